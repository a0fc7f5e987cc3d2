//! Pages of the site that are sent for errors, and the fields that rules give to errors.

use super::page::ReplyId;
use super::{CodedError, ErrorPage, Site, decoded};
use crate::accept::Accepted;
use crate::coding::Coding;
use crate::reply::{Reply, Status};

impl ErrorPage {
    pub(super) fn has(&self, coding: Coding) -> bool {
        self.coded.iter().any(|one| one.coding == coding)
    }

    /// Adds a coded form, which the page does not have yet.
    pub(super) fn add(&mut self, coding: Coding, first: ReplyId, len: usize) {
        self.coded.push(CodedError { coding, first, len });
        self.coded.sort_by_key(|one| (one.len, one.coding));
    }

    /// The first replies of the forms with the codings that `old` has too, and those of `old`.
    pub(super) fn common_forms(&self, old: &Self) -> impl Iterator<Item = (ReplyId, ReplyId)> {
        self.coded.iter().filter_map(|one| {
            let old = old.coded.iter().find(|old| old.coding == one.coding)?;
            Some((one.first, old.first))
        })
    }

    /// Returns the form that the client wants most, or `None` for the plain one.
    fn choose(&self, accepted: Accepted) -> Option<ReplyId> {
        let mut best = (None, accepted.identity().max(1));
        // Longer forms come first, so that shorter ones win.
        for one in self.coded.iter().rev() {
            let quality = accepted.quality(one.coding);
            if quality >= best.1 {
                best = (Some(one.first), quality);
            }
        }
        best.0
    }
}

impl Site {
    /// Returns the reply for GET with the form of an error's page that a client wants most. `first` is
    /// the reply with the plain form.
    #[cold]
    pub(crate) fn error_form(&self, first: ReplyId, accepted: Accepted) -> ReplyId {
        let page = self.errors.get(&first);
        page.and_then(|page| page.choose(accepted)).unwrap_or(first)
    }

    /// Returns the reply for GET in the plain form about a missing file. It is the page of the innermost
    /// folder around its path that has one, or else that of the whole site. The path's password is the
    /// only one that a page may need.
    #[cold]
    pub(crate) fn missing(&self, path: &[u8]) -> ReplyId {
        let usual = Self::shared(Status::NotFound, false);
        if self.missing.is_empty() {
            return usual;
        }
        let has_realms = !self.realms.is_empty();
        let realm = has_realms.then(|| self.realm(path, None)).flatten();
        let has_password = |index: u16| {
            let needed = self.realms.get(usize::from(index));
            realm.is_some_and(|own| needed.is_some_and(|needed| std::ptr::eq(own, needed)))
        };
        let page = decoded(path)
            .ok()
            .and_then(|path| self.missing.find(&path, has_password));
        page.unwrap_or(usual)
    }

    /// Returns true if the response to an error depends on its path.
    pub(crate) fn has_error_fields(&self) -> bool {
        !self.error_rules.is_empty()
    }

    /// Returns true if a rule about all paths gives this line to errors. Rules about a path may remove it.
    pub(crate) fn is_from_everywhere(&self, name: &str, line: &[u8]) -> bool {
        self.error_rules.set_everywhere(name, line)
    }

    /// Appends the head of an error with the fields that rules have for the path of its request.
    pub(crate) fn write_error_head(&self, error: &Reply, path: &[u8], out: &mut Vec<u8>) {
        match decoded(path) {
            Ok(path) => {
                let rules = self.error_rules.matching(&path);
                let is_replaced = |name: &str, _: &[u8]| rules.replaces(name);
                error.write_changed_head(is_replaced, rules.lines(), out);
            }
            Err(_) => out.extend_from_slice(error.head()),
        }
    }
}
