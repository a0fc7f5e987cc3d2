//! Makes the pages for errors from files of the site.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Builder, paths_of};
use crate::finding::{Finding, Report, Warning};
use crate::reply::{Reply, error_page, status_page};
use crate::site::page::{ReplyId, Variants};
use crate::site::{ErrorPage, SHARED, Site, encoded};
use crate::status::Status;

/// The page about a missing file, unless the settings name another one. Other hosts have the same
/// convention.
const NOT_FOUND_PAGE: &[u8] = b"/404.html";

/// Maximum number of folders with such a page of their own. Each page is a copy of its file.
const MAX_FOLDERS: usize = 1_000;

/// Maximum length of such a page in bytes. All these copies are in memory.
const MAX_FOLDER_PAGE_LEN: usize = 256 << 10;

/// Maximum length of the page about an error, if it is a file on the disk, in bytes.
const MAX_PAGE_LEN: usize = 16 << 20;

/// The pages of the site that rules send with the status of an error, by status and path.
pub(super) type ErrorPages = HashMap<(Status, Box<[u8]>), ReplyId>;

impl Builder {
    /// Makes the pages for errors, from pages of the site where the settings name them. The other ones
    /// get the fields of the rules about all paths.
    pub(super) fn apply_error_pages(&mut self, report: &mut Report<'_>) {
        let settings = Arc::clone(&self.site.settings);
        let fields = self.everywhere.clone();
        for (index, status) in SHARED.into_iter().enumerate() {
            let named = settings.error_pages.iter().find(|(one, _)| *one == status);
            let usual = (status == Status::NotFound && self.has_password_of(b"/", NOT_FOUND_PAGE))
                .then_some(NOT_FOUND_PAGE);
            let path = named.map(|(_, path)| &**path).or(usual);
            let made = path.and_then(|path| self.make_error_page(status, path, ""));
            let rule = format!("error page {}", status.digits());
            if let (Some((_, path)), None) = (named, &made) {
                self.report_no_error_page(path, &rule, status == Status::NotFound, report);
            }
            if let Some(path) = path {
                self.report_open_error_page(path, &rule, report);
            }
            let first = ReplyId(2 * index as u32);
            let replies = match made {
                Some((page, replies)) => {
                    self.site.errors.insert(first, page);
                    replies
                }
                None if fields == settings.fields => continue,
                None => status_page(status, &fields),
            };
            for (id, reply) in [first, first.or_head(true)].into_iter().zip(replies) {
                self.replace(id, reply);
            }
        }
        let mut named = settings.error_pages.iter();
        if !named.any(|(status, _)| *status == Status::NotFound) {
            self.add_pages_of_folders(report);
        }
    }

    /// Makes the pages about missing files below folders that have their own one. A page that needs another
    /// password than its folder is none, and neither is a long one.
    fn add_pages_of_folders(&mut self, report: &mut Report<'_>) {
        let paths = self.site.pages.keys();
        let paths = paths
            .filter(|path| path.ends_with(NOT_FOUND_PAGE) && path.len() > NOT_FOUND_PAGE.len());
        let mut paths: Vec<_> = paths.cloned().collect();
        // Outer folders come first, because their pages are for the inner ones too.
        paths.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        if paths.len() > MAX_FOLDERS {
            report(Finding::Warning(Warning::ErrorPages { limit: MAX_FOLDERS }));
            paths.truncate(MAX_FOLDERS);
        }
        for path in paths {
            let folder = &path[..path.len() + 1 - NOT_FOUND_PAGE.len()];
            let realm = self.realm_of_page(&path);
            if realm == self.realm_of_path(folder)
                && self.is_short_page(&path, report)
                && let Some(page) = self.add_error_page(Status::NotFound, &path, "")
            {
                self.site.missing.add(folder, page, realm);
            }
        }
    }

    /// Returns true if the page of a folder at `path` may be copied. Reports a page that is too long.
    fn is_short_page(&self, path: &[u8], report: &mut Report<'_>) -> bool {
        let file = self.site.file_at(path);
        let is_long =
            file.is_some_and(|file| self.site.reply(file.first).body_len() > MAX_FOLDER_PAGE_LEN);
        if is_long {
            report(Finding::Warning(Warning::LongErrorPage {
                page: encoded(path),
                limit: MAX_FOLDER_PAGE_LEN as u64,
            }));
        }
        !is_long
    }

    /// Adds the replies with this status and the page at `path`, and further lines in their heads. Those
    /// in `known` are there already.
    pub(super) fn error_of(
        &mut self,
        status: Status,
        path: &[u8],
        known: &mut ErrorPages,
    ) -> Option<ReplyId> {
        let key = (status, Box::from(path));
        if let Some(first) = known.get(&key) {
            return Some(*first);
        }
        let first = self.add_error_page(status, path, "")?;
        known.insert(key, first);
        Some(first)
    }

    /// Adds the replies with this status and the page at `path`, and `more` lines in their heads.
    pub(super) fn add_error_page(
        &mut self,
        status: Status,
        path: &[u8],
        more: &str,
    ) -> Option<ReplyId> {
        let (page, replies) = self.make_error_page(status, path, more)?;
        let first = self.add(replies);
        self.site.errors.insert(first, page);
        Some(first)
    }

    /// Makes the replies with the page at `path`. Only rules about this very path say how long caches
    /// may keep them. Otherwise an error would be kept as long as files are.
    fn make_error_page(
        &self,
        status: Status,
        path: &[u8],
        more: &str,
    ) -> Option<(ErrorPage, [Reply; 2])> {
        let caching = self.site.headers.caching_of(&paths_of(path));
        let page = ErrorPage {
            status,
            file: self.site.file_at(path)?.first,
            more: format!("{more}{}", caching.lines()).into(),
            coded: arrayvec::ArrayVec::new(),
        };
        let replies = error_replies(&self.site, &page, page.file)?;
        Some((page, replies))
    }

    /// Reports that the page at `path`, to which `rule` leads, cannot be sent for errors.
    pub(super) fn report_no_error_page(
        &self,
        path: &[u8],
        rule: &str,
        replaces_files: bool,
        report: &mut Report<'_>,
    ) {
        report(Finding::Warning(Warning::NoErrorPage {
            rule: rule.to_owned(),
            page: encoded(path),
            is_there: self.site.file_at(path).is_some(),
            replaces_files,
        }));
    }

    /// Lets the pages for errors have the coded forms of their files.
    pub(super) fn code_error_pages(&mut self) {
        let site = &self.site;
        if site.errors.is_empty() {
            return;
        }
        let mut forms: HashMap<ReplyId, Option<&Variants>> = HashMap::new();
        forms.extend(site.errors.values().map(|page| (page.file, None)));
        for variants in &site.variants {
            if let Some(form) = forms.get_mut(&variants.plain.first) {
                *form = Some(variants);
            }
        }
        let mut made = Vec::new();
        for (first, page) in &site.errors {
            let coded = forms[&page.file].iter().flat_map(|one| &one.coded);
            for one in coded.filter(|one| !page.has(one.coding)) {
                let replies = error_replies(site, page, one.page.first);
                made.extend(replies.map(|replies| (*first, one.coding, replies)));
            }
        }
        made.sort_by_key(|(first, coding, _)| (first.0, *coding));
        for (first, coding, replies) in made {
            let len = replies[0].body_len();
            let form = self.add(replies);
            for id in [first, first.or_head(true)] {
                if let Some(reply) = self.site.reply(id).with_vary() {
                    self.replace(id, reply);
                }
            }
            if let Some(page) = self.site.errors.get_mut(&first) {
                page.add(coding, form, len);
            }
        }
    }

    /// Takes over the pages of folders about missing files, and the coded forms of all pages for errors, that
    /// equal those of the previous site.
    pub(super) fn keep_equal_errors(&mut self, previous: &Site) {
        let of_folders: Vec<_> = self.site.missing.common(&previous.missing).collect();
        for (own, old) in of_folders {
            self.keep_equal(previous, own, old, 2);
        }
        let mut pairs = Vec::new();
        for (first, page) in &self.site.errors {
            let old = previous.errors.get(&ReplyId(self.origins[first.index()]));
            pairs.extend(old.into_iter().flat_map(|old| page.common_forms(old)));
        }
        for (own, old) in pairs {
            self.keep_equal(previous, own, old, 2);
        }
    }
}

/// Makes the replies for an error with the content of `file`, which is a form of the page's file.
fn error_replies(site: &Site, page: &ErrorPage, file: ReplyId) -> Option<[Reply; 2]> {
    let file = site.reply(file);
    let body = file.read_body(MAX_PAGE_LEN)?;
    Some(error_page(page.status, file, &body, &page.more))
}
