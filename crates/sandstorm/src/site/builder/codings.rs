//! Attaches coded forms to files.

use std::collections::HashMap;

use arrayvec::ArrayVec;

use super::Builder;
use crate::coder::{Coder, Made, is_form_of, is_worthwhile};
use crate::coding::Coding;
use crate::etag::ETag;
use crate::reply::{CodedContent, FileReplies, PartialHead, Reply};
use crate::site::page::{CodedPage, FilePage, Page, Variants};
use crate::site::{NEW, NextSite, Site};

/// The forms of files, by the first reply of the plain form.
pub(super) type Forms = HashMap<u32, Variants>;

/// The coded forms that files of the previous site have, by the first reply of the plain form.
type Previous<'s> = Option<(&'s Site, HashMap<u32, &'s Variants>)>;

impl Site {
    /// Returns the site with the coded forms that `coder` has made in the meantime.
    pub(crate) fn with_codings(&self, coder: &Coder) -> NextSite {
        let mut builder = Builder::of(self.clone());
        let mut forms = builder.take_forms();
        builder.add_made_forms(coder, &mut forms, &None);
        builder.set_forms(forms);
        builder.code_error_pages();
        builder.into_next(self)
    }
}

impl Builder {
    /// Lets files have coded forms: the content of files beside them, such as `page.html.gz`, and what
    /// the server has made itself.
    pub(super) fn attach_codings(&mut self, previous: Option<&Site>) {
        let previous: Previous<'_> = previous.map(|site| {
            let variants = site.variants.iter();
            let by_first = variants.map(|variants| (variants.plain.first.0, variants));
            (site, by_first.collect())
        });
        if let Some((previous, _)) = &previous {
            self.note_same_content(previous);
        }
        let mut forms = Forms::new();
        for path in std::mem::take(&mut self.coded) {
            self.add_form_beside(&path, &mut forms, &previous);
        }
        if let Some(coder) = self.site.settings.coder.clone() {
            self.add_made_forms(&coder, &mut forms, &previous);
        }
        self.set_forms(forms);
    }

    /// Notes the pages that were made anew with the content that they have in the `previous` site, such as lists
    /// whose fields have changed. They keep their coded forms.
    fn note_same_content(&mut self, previous: &Site) {
        if previous.variants.is_empty() {
            return;
        }
        let page = |site: &Site, page: &Page| match page {
            Page::File(file) => Some(*file),
            Page::Negotiated(index) => Some(site.variants[*index as usize].plain),
            _ => None,
        };
        let site = &self.site;
        for (path, own) in &site.pages {
            let is_new = |own: &FilePage| self.origins[own.first.index()] == NEW;
            let Some(own) = page(site, own).filter(is_new) else {
                continue;
            };
            let old = previous.pages.get(path);
            let Some(old) = old.and_then(|old| page(previous, old)) else {
                continue;
            };
            let [reply, before] = [site.reply(own.first), previous.reply(old.first)];
            let are_in_memory = reply.disk().is_none() && before.disk().is_none();
            // With another key, the same bytes have another tag.
            let is_same = are_in_memory && own.tag == old.tag && reply.body() == before.body();
            if is_same {
                self.made_again.entry(own.first.0).or_insert(old.first.0);
            }
        }
    }

    /// Adds the content of the file at `path`, if it is a coded form of the file beside it.
    fn add_form_beside(&mut self, path: &[u8], forms: &mut Forms, previous: &Previous<'_>) {
        let site = &self.site;
        let Some((plain_path, coding)) = Coding::of_path(path) else {
            return;
        };
        let (Some(plain), Some(coded)) = (site.file_at(plain_path), site.file_at(path)) else {
            return;
        };
        let realms = &site.realm_files;
        let (plain_reply, coded_reply) = (site.reply(plain.first), site.reply(coded.first));
        let refuse = |why: &str| {
            let path = String::from_utf8_lossy(path);
            tracing::info!("{path} is sent only under its own name, because it {why}");
        };
        if realms.get(&plain.first) != realms.get(&coded.first) {
            return refuse("needs another password than the file beside it");
        }
        if plain_reply.has_field("content-encoding") {
            return refuse("is beside a file to which a rule gives a Content-Encoding");
        }
        if coded_reply.body_len() >= plain_reply.body_len() {
            return refuse("is not shorter than the file without this coding");
        }
        if coded_reply.disk().is_some() && plain_reply.disk().is_none() {
            return refuse("is not kept in memory, but the file beside it is");
        }
        if coded.modified < plain.modified {
            return refuse("is older than the file without this coding");
        }
        let old = self.old_form(plain, coding, previous);
        let old = old.filter(|(old, site)| {
            is_same(
                site.reply(old.page.first),
                old.page.tag,
                coded_reply,
                coded.tag,
            )
        });
        if old.is_none() && !self.is_form(coded_reply, coding, plain_reply) {
            return refuse("is no coded form of the file beside it");
        }
        let is_kept = self.is_kept(plain);
        self.add_vary(plain);
        let page = match old {
            Some((old, site)) if is_kept => self.keep_page(old.page, site),
            _ => {
                let reply = self.site.reply(coded.first).clone();
                self.make_form(plain, coding, &CodedContent::of(&reply, coded.tag))
            }
        };
        let one = CodedPage {
            coding,
            page,
            is_made: false,
        };
        forms_of(plain, forms).push(one);
    }

    /// Whether `coded` is the content of `plain` in this coding. If one of them is on the disk, only the
    /// first bytes are compared, because reading both files would take long.
    fn is_form(&self, coded: &Reply, coding: Coding, plain: &Reply) -> bool {
        if let Some(file) = coded.disk() {
            let start = file.read_start(Coding::MARK_LEN);
            return start.is_ok_and(|start| coding.may_have_made(&start));
        }
        let is_whole = || is_form_of(coded.body(), coding, plain.body());
        let is_checked = self.checks_codings && plain.disk().is_none();
        coding.may_have_made(coded.body()) && (!is_checked || is_whole())
    }

    /// Adds the coded forms that the server has made. Notes the files that lack some.
    fn add_made_forms(&mut self, coder: &Coder, forms: &mut Forms, previous: &Previous<'_>) {
        let pages = self.site.pages.values();
        let plain = pages.filter_map(|page| match page {
            Page::File(file) => Some(*file),
            _ => None,
        });
        let mut files: Vec<_> = plain.collect();
        // Several paths may lead to a file.
        files.sort_unstable_by_key(|file| file.first.0);
        files.dedup_by_key(|file| file.first.0);
        self.site.uncoded.clear();
        let mut coded = Vec::new();
        for file in files {
            if !is_compressible(self.site.reply(file.first)) {
                continue;
            }
            let (are_all_tried, is_any_new) = self.add_made_forms_of(file, coder, forms, previous);
            if !are_all_tried {
                self.site.uncoded.push(file.first);
            }
            if is_any_new {
                coded.push(file.first);
            }
        }
        // Other files with the same content have their forms now, too.
        for first in coded {
            coder.forget_memory(self.site.reply(first).body());
        }
    }

    /// Adds the coded forms of a file that the server has made. Returns whether it has tried all codings, and
    /// whether a form is new.
    fn add_made_forms_of(
        &mut self,
        plain: FilePage,
        coder: &Coder,
        forms: &mut Forms,
        previous: &Previous<'_>,
    ) -> (bool, bool) {
        let (mut are_all_tried, mut is_any_new) = (true, false);
        let whole = self.site.reply(plain.first).clone();
        for coding in Coding::ALL {
            if !coder.has_room(self.site.totals.reply_bytes) {
                // What is left has no room at all.
                return (true, is_any_new);
            }
            let known = forms.get(&plain.first.0);
            if known.is_some_and(|known| known.coded(coding).is_some()) {
                continue;
            }
            let old = self
                .old_form(plain, coding, previous)
                .filter(|(old, _)| old.is_made);
            let page = match old {
                Some((old, site)) if self.is_kept(plain) => self.keep_page(old.page, site),
                Some((old, site)) => {
                    self.add_vary(plain);
                    let form = CodedContent::of(site.reply(old.page.first), old.page.tag);
                    self.make_form(plain, coding, &form)
                }
                None => match coder.get(whole.body(), coding) {
                    Some(Made::Coded(coded)) => {
                        is_any_new = true;
                        self.add_vary(plain);
                        let form = CodedContent::made(&coded, &self.site.tag_key);
                        self.make_form(plain, coding, &form)
                    }
                    Some(Made::NotWorthIt) => continue,
                    None => {
                        are_all_tried = false;
                        continue;
                    }
                },
            };
            let one = CodedPage {
                coding,
                page,
                is_made: true,
            };
            forms_of(plain, forms).push(one);
        }
        (are_all_tried, is_any_new)
    }

    /// Returns the form that the same file has in the previous site, with this site.
    fn old_form<'s>(
        &self,
        plain: FilePage,
        coding: Coding,
        previous: &Previous<'s>,
    ) -> Option<(CodedPage, &'s Site)> {
        let (site, forms) = previous.as_ref()?;
        let old = match self.origins[plain.first.index()] {
            NEW => *self.made_again.get(&plain.first.0)?,
            old => old,
        };
        Some((*forms.get(&old)?.coded(coding)?, site))
    }

    /// Whether the replies of a file are those of the previous site.
    fn is_kept(&self, plain: FilePage) -> bool {
        self.origins[plain.first.index()] != NEW
    }

    /// Makes the replies for the coded form of a file.
    fn make_form(&mut self, plain: FilePage, coding: Coding, form: &CodedContent<'_>) -> FilePage {
        let file = self.form_replies(plain, coding, form);
        FilePage {
            first: self.add(file.replies),
            tag: file.tag,
            modified: plain.modified,
        }
    }

    /// Returns the replies for the coded form of a file.
    fn form_replies(
        &self,
        plain: FilePage,
        coding: Coding,
        form: &CodedContent<'_>,
    ) -> FileReplies {
        let [whole, not_modified] = plain.replies().map(|id| self.site.reply(id));
        FileReplies::of_coding(whole, not_modified, coding, form)
    }

    /// Makes the replies of a coded form again, because its tag is known now, or the replies of its file
    /// have changed.
    pub(super) fn make_form_again(&mut self, plain: FilePage, one: &CodedPage) {
        let reply = self.site.reply(one.page.first).clone();
        let form = CodedContent::of(&reply, one.page.tag);
        let file = self.form_replies(plain, one.coding, &form);
        for (id, reply) in one.page.replies().into_iter().zip(file.replies) {
            self.replace(id, reply);
        }
    }

    /// Adds `Vary` to the replies of a file, unless they have it.
    pub(super) fn add_vary(&mut self, file: FilePage) {
        for id in file.replies() {
            if let Some(reply) = self.site.reply(id).with_vary() {
                self.replace(id, reply);
            }
        }
    }

    /// Returns the forms of all files, and lets each path lead to the plain form.
    pub(super) fn take_forms(&mut self) -> Forms {
        let variants = std::mem::take(&mut self.site.variants);
        for page in self.all_pages() {
            if let Page::Negotiated(index) = page {
                *page = Page::File(variants[*index as usize].plain);
            }
        }
        let by_first = variants.into_iter().map(|one| (one.plain.first.0, one));
        by_first.collect()
    }

    /// Lets each path lead to all forms of its file.
    pub(super) fn set_forms(&mut self, forms: Forms) {
        if forms.is_empty() {
            return;
        }
        let mut by_first = HashMap::new();
        let mut all = Vec::new();
        self.site.totals.coded = 0;
        for (first, mut variants) in forms {
            let len = |one: &CodedPage| self.site.reply(one.page.first).body_len();
            variants.coded.sort_by_key(|one| (len(one), one.coding));
            self.site.totals.coded += variants.coded.len() as u64;
            by_first.insert(first, all.len() as u32);
            all.push(variants);
        }
        self.site.variants = all;
        for page in self.all_pages() {
            if let Page::File(file) = page
                && let Some(index) = by_first.get(&file.first.0)
            {
                *page = Page::Negotiated(*index);
            }
        }
    }

    /// Returns the pages of all paths.
    pub(super) fn all_pages(&mut self) -> impl Iterator<Item = &mut Page> {
        let Site {
            pages,
            aliases,
            exact,
            replaced,
            rules,
            ..
        } = &mut self.site;
        let of_rules = rules.iter_mut().filter_map(|rule| rule.page.as_mut());
        [pages, aliases, exact, replaced]
            .into_iter()
            .flat_map(HashMap::values_mut)
            .chain(of_rules)
    }
}

/// Returns the forms of a file.
fn forms_of(plain: FilePage, forms: &mut Forms) -> &mut ArrayVec<CodedPage, { Coding::ALL.len() }> {
    let variants = forms.entry(plain.first.0).or_insert_with(|| Variants {
        plain,
        coded: ArrayVec::new(),
    });
    &mut variants.coded
}

/// Whether two replies have the same content, as far as that is known. These are their tags.
fn is_same(one: &Reply, one_tag: Option<ETag>, other: &Reply, other_tag: Option<ETag>) -> bool {
    match (one.disk(), other.disk()) {
        (None, None) => one_tag == other_tag,
        (Some(one), Some(other)) => one.number() == other.number(),
        _ => false,
    }
}

/// Returns true if it is worth making coded forms of a file.
fn is_compressible(file: &Reply) -> bool {
    let media_type = PartialHead::of(file).media_type();
    let is_in_memory = file.disk().is_none();
    is_in_memory
        && is_worthwhile(media_type, file.body_len())
        && !file.has_field("content-encoding")
}
