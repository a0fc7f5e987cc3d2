//! The pages about missing files that folders have.

use std::collections::HashMap;

use ahash::RandomState;

use super::page::ReplyId;
use crate::limits::MAX_DEPTH;

/// The pages about missing files of folders that have such a page.
#[derive(Clone, Debug)]
pub(super) struct MissingPages {
    /// The pages by the decoded path of the folder, which ends with a slash.
    folders: HashMap<Box<[u8]>, MissingPage, RandomState>,
    /// Length of the longest of these paths.
    longest: usize,
}

/// One of these pages.
#[derive(Clone, Copy, Debug)]
struct MissingPage {
    /// The reply for GET in the plain form.
    first: ReplyId,
    /// The index of the part with a password that the page belongs to.
    realm: Option<u16>,
}

impl MissingPages {
    pub(super) fn new(hash: RandomState) -> Self {
        Self {
            folders: HashMap::with_hasher(hash),
            longest: 0,
        }
    }

    /// Adds the page of a folder. `realm` is the index of the part that the page belongs to.
    pub(super) fn add(&mut self, folder: &[u8], first: ReplyId, realm: Option<u16>) {
        self.longest = self.longest.max(folder.len());
        let page = MissingPage { first, realm };
        self.folders.insert(folder.into(), page);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// The pages of folders that have one in `old` too, each with that one.
    pub(super) fn common(&self, old: &Self) -> impl Iterator<Item = (ReplyId, ReplyId)> {
        let folders = self.folders.iter();
        folders.filter_map(|(folder, page)| Some((page.first, old.folders.get(folder)?.first)))
    }

    /// Returns the page of the innermost folder around a path that has one. A page that belongs to a part
    /// counts only if `has_password` returns true for the part's index.
    pub(super) fn find(&self, path: &[u8], has_password: impl Fn(u16) -> bool) -> Option<ReplyId> {
        let path = &path[..path.len().min(self.longest)];
        let slashes = memchr::memchr_iter(b'/', path).take(MAX_DEPTH);
        let pages = slashes.filter_map(|at| self.folders.get(&path[..=at]));
        let open = pages.filter(|page| page.realm.is_none_or(&has_password));
        open.last().map(|page| page.first)
    }
}
