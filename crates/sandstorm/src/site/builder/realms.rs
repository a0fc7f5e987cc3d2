//! Protects the parts of a site for which clients need a name and a password.

use std::sync::Arc;

use super::{Builder, INDEX, LISTING_JSON};
use crate::finding::{Finding, Report, Warning};
use crate::listing::ListingEntry;
use crate::login::{Realm, RealmPath};
use crate::reply::challenge;
use crate::rules::Pattern;
use crate::site::page::{Page, ReplyId};
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
                self.report_no_error_page(path, "error page 401", false, report);
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

    /// Returns true if a folder is at the clean URL of a page, and the folder's index needs a password of its own.
    /// That is neither the one of the page nor the one of the folder's path. The redirect to the folder would tell
    /// that there is an index.
    pub(super) fn is_beside_closed_index(&self, page: &[u8], clean: &[u8]) -> bool {
        if !matches!(self.site.pages.get(clean), Some(Page::Redirect { .. })) {
            return false;
        }
        let index = self.realm_of_path(&[clean, b"/", INDEX].concat());
        let others = [self.realm_of_path(page), self.realm_of_path(clean)];
        index.is_some() && !others.contains(&index)
    }

    /// Keeps the entries of a folder that need no password, or that of this part.
    pub(super) fn keep_listed(
        &self,
        folder: &[u8],
        realm: Option<u16>,
        entries: &mut Vec<ListingEntry>,
    ) {
        entries.retain(|entry| {
            let needed = self.realm_of_path(&[folder, &*entry.name].concat());
            needed.is_none() || needed == realm
        });
    }

    /// Returns a path of the part that the list of a folder in JSON belongs to. It is the part of the list in
    /// HTML, unless the list in JSON is a part of its own.
    pub(super) fn part_of_json_list(&self, folder: &[u8]) -> Vec<u8> {
        let path = [folder, LISTING_JSON].concat();
        let has_own = self.users.iter().any(|(realm, _)| realm.is_at(&path));
        if has_own {
            path
        } else {
            [folder, INDEX].concat()
        }
    }

    /// Notes the other paths that lead to a part with a single page. They belong to the part, so nobody learns
    /// without a password whether there is a page. A path with a page of another file stays open, and the own
    /// path of another part stays with that part.
    pub(super) fn note_names_of_pages(&mut self) {
        let settings = Arc::clone(&self.site.settings);
        let list = settings.listings.then_some(LISTING_JSON);
        for (realm, _) in &self.users {
            let (page, names) = realm.page_and_names(settings.clean_urls, list);
            let Some(index) = self.realm_of(&page) else {
                continue;
            };
            for name in names.into_iter().filter(|name| !realm.contains(name)) {
                if !self.may_belong_to(index, &name) {
                    continue;
                }
                if let Some(Page::Redirect { first, .. }) = self.site.pages.get(&*name) {
                    self.site.realm_files.insert(*first, index);
                }
                self.site.page_names.insert(name.into(), index);
            }
        }
    }

    /// Returns true if a path has a page of the part with this index. A path without a page must not be the own
    /// path of another part.
    fn may_belong_to(&self, index: u16, path: &[u8]) -> bool {
        let Site {
            pages,
            aliases,
            variants,
            realm_files,
            ..
        } = &self.site;
        let first = match pages.get(path).or_else(|| aliases.get(path)) {
            None => return !self.users.iter().any(|(realm, _)| realm.is_at(path)),
            Some(Page::File(file)) => file.first,
            Some(Page::Negotiated(index)) => variants[*index as usize].plain.first,
            // A folder belongs to the part of its index.
            Some(_) => {
                return !path.ends_with(b"/") && self.may_belong_to(index, &[path, b"/"].concat());
            }
        };
        realm_files.get(&first) == Some(&index)
    }

    /// Returns the index of the part that has this path, or to which a link on the way leads.
    pub(super) fn realm_of_path(&self, path: &[u8]) -> Option<u16> {
        self.realm_of(path).or_else(|| self.site.linked_realm(path))
    }

    /// Same as [`realm_of_path`](Self::realm_of_path), but also knows the other paths of single pages.
    pub(super) fn realm_of_name(&self, path: &[u8]) -> Option<u16> {
        let named = self.site.page_names.get(path).copied();
        named.or_else(|| self.realm_of_path(path))
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

    /// Returns true if a page and its folder belong to the same part, or both to none.
    pub(super) fn has_password_of(&self, folder: &[u8], path: &[u8]) -> bool {
        self.realm_of_page(path) == self.realm_of_path(folder)
    }

    /// Returns the index of the part that the page at a path belongs to.
    pub(super) fn realm_of_page(&self, path: &[u8]) -> Option<u16> {
        let first = self.site.file_at(path)?.first;
        self.site.realm_files.get(&first).copied()
    }
}
