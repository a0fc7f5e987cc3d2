//! Protects the parts of a site for which clients need a name and a password.

use std::sync::Arc;

use super::Builder;
use super::rules::{MAX_PAGE_LEN, Report};
use crate::login::{Realm, RealmPath};
use crate::reply::{challenge, error_page};
use crate::site::page::ReplyId;
use crate::status::Status;

impl Builder {
    /// Makes the replies that ask for a name and a password. Passes the path of the page for them to
    /// `report` if no page has it.
    pub(super) fn apply_realms(&mut self, report: &mut Report<'_>) {
        const STATUS: Status = Status::Unauthorized;
        let settings = Arc::clone(&self.site.settings);
        let mut named = settings.error_pages.iter();
        let named = named.find(|(status, _)| *status == STATUS);
        let fields = self.everywhere.clone();
        for (path, users) in std::mem::take(&mut self.users) {
            let value = Realm::challenge(&path, &settings.realm_texts);
            let file = named.and_then(|(_, path)| {
                let file = self.site.reply(self.site.file_at(path)?.first);
                Some((file, file.read_body(MAX_PAGE_LEN)?))
            });
            if let (Some((_, path)), None) = (named, &file) {
                report(path, "error page 401");
            }
            let more = format!("WWW-Authenticate: {value}\r\n");
            let replies = match file {
                Some((file, body)) => error_page(STATUS, file, &body, &more),
                None => challenge(&value, &fields),
            };
            let first = self.add(replies);
            self.site.realms.push(Realm::new(path, users, first));
        }
    }

    /// Notes that a link leads from the file or folder at `path` to the one at `real`, so that it
    /// belongs to the same part.
    pub(crate) fn note_link(&mut self, path: &[u8], real: &[u8]) {
        if let Some(index) = self.realm_of(real) {
            self.linked.insert(path.into(), index);
        }
    }

    /// Notes to which part the file at `path` belongs. `first` is its first reply.
    pub(super) fn note_realm(&mut self, path: &[u8], first: ReplyId) {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // The pages that list a folder belong to it.
        let folder = &path[..path.len() - name.len()];
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        let linked = self.linked.get(path).or_else(|| self.linked.get(folder));
        if let Some(index) = self.realm_of(path).or(linked.copied()) {
            self.site.realm_files.insert(first, index);
        }
    }

    /// Returns the index of the part that has this path.
    fn realm_of(&self, path: &[u8]) -> Option<u16> {
        RealmPath::index_of(self.users.iter().map(|(path, _)| path), path)
    }
}
