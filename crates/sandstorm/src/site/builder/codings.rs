//! Attaches coded forms to files.

use std::collections::HashMap;

use arrayvec::ArrayVec;

use super::Builder;
use crate::coding::Coding;
use crate::reply::FileReplies;
use crate::site::Site;
use crate::site::page::{CodedPage, FilePage, Page, Variants};

/// The coded forms that files of the previous site have, by the first reply of the plain form.
type Previous<'s> = Option<(&'s Site, HashMap<u32, &'s Variants>)>;

impl Builder {
    /// Lets files have coded forms: the content of files beside them, such as `page.html.gz`.
    pub(super) fn attach_codings(&mut self, previous: Option<&Site>) {
        let previous: Previous<'_> = previous.map(|site| {
            let variants = site.variants.iter();
            let by_first = variants.map(|variants| (variants.plain.first.0, variants));
            (site, by_first.collect())
        });
        let mut found: HashMap<u32, Variants> = HashMap::new();
        for path in std::mem::take(&mut self.coded) {
            let Some((plain_path, coding)) = Coding::of_path(&path) else {
                continue;
            };
            let site = &self.site;
            let (Some(plain), Some(coded)) = (site.file_at(plain_path), site.file_at(&path)) else {
                continue;
            };
            if self.is_form_of(plain, coded, coding) {
                let page = self.coded_page(plain, coded, coding, &previous);
                let one = CodedPage { coding, page };
                let variants = found.entry(plain.first.0).or_insert_with(|| Variants {
                    plain,
                    coded: ArrayVec::new(),
                });
                variants.coded.push(one);
            }
        }
        self.add_variants(found);
    }

    /// Returns true if the content of the file `coded` is a coded form of the file `plain`.
    fn is_form_of(&self, plain: FilePage, coded: FilePage, coding: Coding) -> bool {
        let (plain_reply, coded_reply) =
            (self.site.reply(plain.first), self.site.reply(coded.first));
        coded.modified >= plain.modified
            && coded_reply.body_len() < plain_reply.body_len()
            && coding.may_have_made(coded_reply.body())
            && !plain_reply.has_field("content-encoding")
    }

    /// Returns the page of a coded form, from the previous site if it has the same form.
    fn coded_page(
        &mut self,
        plain: FilePage,
        coded: FilePage,
        coding: Coding,
        previous: &Previous<'_>,
    ) -> FilePage {
        self.add_vary(plain);
        if let Some((site, variants)) = previous
            && let Some(old) = variants.get(&self.origins[plain.first.index()])
            && let Some(old) = old.coded(coding)
            && old.tag == coded.tag
        {
            return self.keep_page(*old, site);
        }
        let (whole, not_modified) = (plain.content_reply(false), plain.not_modified());
        let site = &self.site;
        let file = FileReplies::of_coding(
            site.reply(whole),
            site.reply(not_modified),
            coding,
            site.reply(coded.first).body(),
        );
        FilePage {
            first: self.add(file.replies),
            tag: file.tag,
            modified: plain.modified,
        }
    }

    /// Adds `Vary` to the replies of a file, unless they have it.
    fn add_vary(&mut self, file: FilePage) {
        for id in file.replies() {
            if let Some(reply) = self.site.reply(id).with_vary() {
                self.replace(id, reply);
            }
        }
    }

    fn add_variants(&mut self, found: HashMap<u32, Variants>) {
        if found.is_empty() {
            return;
        }
        let mut by_first = HashMap::new();
        for (first, mut variants) in found {
            let len = |one: &CodedPage| self.site.reply(one.page.first).body_len();
            variants.coded.sort_by_key(|one| (len(one), one.coding));
            by_first.insert(first, self.site.variants.len() as u32);
            self.site.variants.push(variants);
        }
        for page in self.site.pages.values_mut() {
            if let Page::File(file) = page
                && let Some(index) = by_first.get(&file.first.0)
            {
                *page = Page::Negotiated(*index);
            }
        }
    }
}
