//! Finishes a site that takes over from a previous one.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::Builder;
use crate::coding::Coding;
use crate::site::page::{FilePage, Page, ReplyId};
use crate::site::{NEW, NextSite, SHARED, Site};

/// Adjacent replies of a path.
#[derive(Clone, Copy)]
struct Group {
    /// What the replies are for. A group takes over replies from a group of the same kind.
    kind: Kind,
    first: ReplyId,
    count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Coded(Coding),
    Other,
}

impl Group {
    fn of_file(kind: Kind, page: &FilePage) -> Self {
        Self {
            kind,
            first: page.first,
            count: FilePage::REPLIES,
        }
    }

    /// Returns the groups of a page.
    fn of(page: &Page, site: &Site) -> ArrayVec<Self, { 1 + Coding::ALL.len() }> {
        match page {
            Page::File(file) => std::iter::once(Self::of_file(Kind::Plain, file)).collect(),
            Page::Negotiated(index) => {
                let variants = &site.variants[*index as usize];
                let coded = variants.coded.iter();
                let coded = coded.map(|one| Self::of_file(Kind::Coded(one.coding), &one.page));
                let plain = Self::of_file(Kind::Plain, &variants.plain);
                std::iter::once(plain).chain(coded).collect()
            }
            Page::Redirect { first, .. } | Page::Rule { first, .. } | Page::Error(first) => {
                std::iter::once(Self {
                    kind: Kind::Other,
                    first: *first,
                    count: 2,
                })
                .collect()
            }
        }
    }
}

impl Builder {
    /// Returns the finished site, which takes over from `previous`. Replies that are equal are taken
    /// over as well, such as redirects, and files that were read again although they have not changed.
    pub(crate) fn into_next(mut self, previous: &Site) -> NextSite {
        // The shared replies are usually equal, because they depend only on the common fields.
        self.keep_equal(previous, ReplyId(0), ReplyId(0), 2 * SHARED.len());
        self.keep_equal_pages(previous);
        let realms = self.site.realms.iter().zip(&previous.realms);
        let firsts: Vec<_> = realms.map(|(own, old)| (own.first, old.first)).collect();
        for (own, old) in firsts {
            self.keep_equal(previous, own, old, 2);
        }
        self.keep_equal_errors(previous);
        let origins = std::mem::take(&mut self.origins).into_boxed_slice();
        NextSite::new(Arc::new(self.into_site()), origins, previous.replies.len())
    }

    /// Takes over the replies of paths that equal those of the previous site.
    pub(super) fn keep_equal_pages(&mut self, previous: &Site) {
        let own = self.site.known_paths().chain(&self.site.replaced);
        let mut pairs = Vec::new();
        for (path, page) in own {
            let mut groups = Group::of(page, &self.site);
            // A file that has not changed was kept before.
            groups.retain(|group| self.origins[group.first.index()] == NEW);
            if groups.is_empty() {
                continue;
            }
            let maps = [
                &previous.replaced,
                &previous.pages,
                &previous.aliases,
                &previous.exact,
            ];
            let olds = maps.into_iter().filter_map(|map| map.get(path));
            let olds: Vec<_> = olds.map(|page| Group::of(page, previous)).collect();
            for group in groups {
                let olds = olds.iter().flatten();
                let olds = olds.filter(|old| old.kind == group.kind);
                pairs.extend(olds.map(|old| (group, *old)));
            }
        }
        let rules = self.site.rules.iter().zip(&previous.rules);
        let rules = rules.map(|(own, old)| (own.page, old.page));
        let queries = self.site.query_rules.iter().zip(&previous.query_rules);
        let queries = queries.map(|(own, old)| (Some(own.page), Some(old.page)));
        let pages = rules
            .chain(queries)
            .chain([(self.site.without_slash, previous.without_slash)]);
        for (own, old) in pages.filter_map(|(own, old)| own.zip(old)) {
            let old = Group::of(&old, previous);
            pairs.extend(Group::of(&own, &self.site).into_iter().zip(old));
        }
        for (own, old) in pairs {
            self.keep_equal(previous, own.first, old.first, own.count);
        }
    }

    /// Takes over those of `count` replies that equal replies of the previous site.
    pub(super) fn keep_equal(&mut self, previous: &Site, own: ReplyId, old: ReplyId, count: usize) {
        for offset in 0..count {
            let (own, old) = (own.index() + offset, old.index() + offset);
            let (new, known) = (&self.site.replies[own], &previous.replies[old]);
            // The heads of different versions of a file on the disk may be equal.
            let are_in_memory = new.disk().is_none() && known.disk().is_none();
            let are_equal = are_in_memory && new.bytes() == known.bytes();
            if self.origins[own] == NEW && are_equal && self.take_over(own, old as u32) {
                self.site.replies[own].clone_from(known);
            }
        }
    }

    /// Lets a reply of the site take over one of the previous site. Returns false if another one has done
    /// so.
    pub(super) fn take_over(&mut self, own: usize, old: u32) -> bool {
        let at = old as usize;
        if self.taken.len() <= at {
            self.taken.resize(at + 1, false);
        }
        let is_free = !std::mem::replace(&mut self.taken[at], true);
        if is_free {
            self.origins[own] = old;
        }
        is_free
    }
}
