//! Protects the parts of a site for which clients need a name and a password.

use std::sync::Arc;

use super::Builder;
use crate::finding::{Finding, Report, Warning, no_target};
use crate::login::{Realm, RealmPath};
use crate::reply::challenge;
use crate::rules::Pattern;
use crate::site::page::ReplyId;
use crate::site::{Site, encoded};
use crate::status::Status;

impl Builder {
    /// Makes the replies that ask for a name and a password. Passes to `report` what is
    /// probably a mistake.
    pub(super) fn apply_realms(&mut self, report: &mut Report<'_>) {
        const STATUS: Status = Status::Unauthorized;
        let settings = Arc::clone(&self.site.settings);
        let mut named = settings.error_pages.iter();
        let named = named.find(|(status, _)| *status == STATUS);
        let fields = self.everywhere.clone();
        for (path, users) in std::mem::take(&mut self.users) {
            if !self.has_page_in(&path) {
                let realm = path.to_string();
                report(Finding::Warning(Warning::NothingThere { realm }));
            }
            let value = Realm::challenge(&path, &settings.realm_texts);
            let more = format!("WWW-Authenticate: {value}\r\n");
            let page = named.and_then(|(_, path)| self.add_error_page(STATUS, path, &more));
            if let (Some((_, path)), None) = (named, page) {
                report(no_target(path, "error page 401"));
            }
            let first = page.unwrap_or_else(|| self.add(challenge(&value, &fields)));
            self.site.realms.push(Realm::new(path, users, first));
        }
    }

    /// Notes that a link leads from the file or folder at `path` to the one at `real`, so that it
    /// belongs to the same part.
    pub(crate) fn note_link(&mut self, path: &[u8], real: &[u8]) {
        if let Some(index) = self.realm_of(real) {
            self.site.linked.insert(path.into(), index);
        }
    }

    /// Notes to which part the file at `path` belongs. `first` is its first reply. The redirect to a
    /// folder belongs to the part of the folder.
    pub(super) fn note_realm(&mut self, path: &[u8], first: ReplyId) {
        if let Some(index) = self.realm_of_path(path) {
            self.site.realm_files.insert(first, index);
        }
    }

    /// Returns the index of the part that has this path, or to which a link on the way leads.
    pub(super) fn realm_of_path(&self, path: &[u8]) -> Option<u16> {
        self.realm_of(path).or_else(|| self.site.linked_realm(path))
    }

    /// Returns the index of the part that has this path.
    fn realm_of(&self, path: &[u8]) -> Option<u16> {
        RealmPath::index_of(self.users.iter().map(|(path, _)| path), path)
    }

    /// Returns true if a file, a folder or a rule has a path in this part.
    fn has_page_in(&self, realm: &RealmPath) -> bool {
        let Site {
            rules, query_rules, ..
        } = &self.site;
        let of_rules = rules.iter().map(|rule| &rule.from);
        let of_query = query_rules.iter().map(|rule| &rule.from);
        let mut paths = self.site.known_paths().map(|(path, _)| path);
        let mut patterns = of_rules.chain(of_query);
        paths.any(|path| realm.contains(path)) || patterns.any(|one| realm.contains(one.base()))
    }

    /// Reports a rule about the paths of `from` that sends the page at `path` without its password.
    pub(super) fn report_open_page(
        &self,
        path: &[u8],
        from: &Pattern,
        rule: &str,
        report: &mut Report<'_>,
    ) {
        let realm = self.realm_of_page(path);
        if realm.is_some() && realm != self.realm_of(from.base()) {
            self.report_open(realm, path, rule, report);
        }
    }

    /// Reports that errors of all paths have the page at `path`, which needs a password. If the whole site
    /// needs it, this is meant.
    pub(super) fn report_open_error_page(&self, path: &[u8], rule: &str, report: &mut Report<'_>) {
        let realm = self.realm_of_page(path);
        if realm != self.realm_of(b"/") {
            self.report_open(realm, path, rule, report);
        }
    }

    fn report_open(&self, realm: Option<u16>, path: &[u8], rule: &str, report: &mut Report<'_>) {
        if let Some(index) = realm
            && let Some((realm, _)) = self.users.get(usize::from(index))
        {
            report(Finding::Warning(Warning::OpenPage {
                rule: rule.to_owned(),
                page: encoded(path),
                realm: realm.to_string(),
            }));
        }
    }

    /// Returns the index of the part that the page at a path belongs to.
    pub(super) fn realm_of_page(&self, path: &[u8]) -> Option<u16> {
        let first = self.site.file_at(path)?.first;
        self.site.realm_files.get(&first).copied()
    }
}
