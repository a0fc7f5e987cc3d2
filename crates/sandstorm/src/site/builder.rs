//! Builds a site, file by file.

mod codings;
mod digests;
mod errors;
mod heads;
mod next;
mod realms;
mod rules;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ahash::RandomState;
use control::FileVersion;

use super::missing_pages::MissingPages;
use super::page::{FilePage, Page, ReplyId};
use super::{Fingerprint, MAX_TARGETS, NEW, SHARED, Site, Totals, encoded};
use crate::coder::is_worthwhile;
use crate::coding::Coding;
use crate::date::{LAST_SECOND, second_of, time_of, write_http_date};
use crate::disk::DiskFile;
use crate::fields::Fields;
use crate::finding::Report;
use crate::listing::{self, ListingEntry};
use crate::login::{RealmPath, Users};
use crate::reply::{FileFields, FileReplies, Reply, redirect, status_page};
use crate::rules::{HeaderRules, Redirect};
use crate::settings::Settings;
use crate::status::Status;
use crate::tag_key::TagKey;

/// The name of the file that is served as the page of its folder.
pub(crate) const INDEX: &[u8] = b"index.html";
/// The name of the list of a folder's entries in JSON.
const LISTING_JSON: &[u8] = b"index.json";
/// The end of the name of a file that a clean URL leads to.
const PAGE_SUFFIX: &[u8] = b".html";

/// Builds a [`Site`], file by file.
#[derive(Debug)]
pub struct Builder {
    pub(super) site: Site,
    /// The redirects of the site, in the order in which they are tried.
    pub(super) redirects: Vec<Redirect>,
    /// The parts of the site that need a name and a password, each with the users who may see it.
    pub(super) users: Vec<(RealmPath, Arc<Users>)>,
    /// The fields of the server's own responses, such as redirects.
    pub(super) everywhere: Fields,
    /// The latest time that `Last-Modified` may show (RFC 9110, section 8.8.2.1).
    now: SystemTime,
    /// For each reply so far, its index in the previous site, or [`NEW`].
    pub(super) origins: Vec<u32>,
    /// For each reply of the previous site, whether it is taken over. The last ones may be missing.
    taken: Vec<bool>,
    /// For the first reply of each file that has got another head, that of the same file in the previous site.
    made_again: HashMap<u32, u32>,
    /// Whether coded forms in files are decoded and compared.
    checks_codings: bool,
    /// The paths of files with coded content, which may belong to a file without a coding.
    pub(super) coded: Vec<Box<[u8]>>,
}

impl Builder {
    /// Starts a site without files. No file's `Last-Modified` is later than `now`.
    pub fn new(now: SystemTime) -> Self {
        Self::with_settings(now, &Settings::default())
    }

    /// Same as [`new`](Self::new), with `fields` in all responses, including those of an
    /// application. Prepared replies already contain the fields, so there they cost nothing per
    /// request.
    pub fn with_fields(now: SystemTime, fields: Fields) -> Self {
        let settings = Settings {
            fields,
            ..Settings::default()
        };
        Self::with_settings(now, &settings)
    }

    /// Same as [`new`](Self::new), with settings. They also apply to responses of an application, as
    /// far as they are about all responses.
    pub fn with_settings(now: SystemTime, settings: &Settings) -> Self {
        // The keys are derived from the standard library's hasher, whose own keys are random.
        let random = std::hash::RandomState::new();
        let key = |n: usize| {
            let mut hasher = random.build_hasher();
            hasher.write_usize(n);
            hasher.finish()
        };
        Self::with_keys(now, settings, std::array::from_fn(key))
    }

    /// Same as [`new`](Self::new), with fixed keys for the hash of paths. This makes runs
    /// reproducible, for example to count instructions. An attacker who knows the keys can request
    /// paths that collide.
    pub fn keyed(now: SystemTime, keys: [u64; 4]) -> Self {
        Self::with_keys(now, &Settings::default(), keys)
    }

    fn with_keys(now: SystemTime, settings: &Settings, keys: [u64; 4]) -> Self {
        let [a, b, c, d] = keys;
        let hash = RandomState::with_seeds(a, b, c, d);
        let mut builder = Self {
            site: Site {
                pages: HashMap::with_hasher(hash.clone()),
                aliases: HashMap::with_hasher(hash.clone()),
                exact: HashMap::with_hasher(hash.clone()),
                replaced: HashMap::with_hasher(hash.clone()),
                variants: Vec::new(),
                rules: Vec::new(),
                realms: Vec::new(),
                realm_files: HashMap::with_hasher(hash.clone()),
                linked: HashMap::with_hasher(hash.clone()),
                page_names: HashMap::with_hasher(hash.clone()),
                led: HashMap::with_hasher(hash.clone()),
                replies: Vec::new(),
                by_host: None,
                errors: HashMap::with_hasher(hash.clone()),
                missing: MissingPages::new(hash.clone()),
                headers: settings.headers.clone(),
                error_rules: settings.headers.for_errors(),
                settings: Arc::new(settings.clone()),
                tag_key: TagKey::default(),
                boundary: hash.hash_one("boundary"),
                totals: Totals::default(),
                uncoded: Vec::new(),
                versions: Vec::new(),
                query_rules: Vec::new(),
                outside: BTreeSet::new(),
                without_slash: None,
            },
            redirects: settings.redirects.clone(),
            users: Vec::new(),
            everywhere: Fields::new(),
            now,
            origins: Vec::new(),
            taken: Vec::new(),
            made_again: HashMap::new(),
            checks_codings: false,
            coded: Vec::new(),
        };
        builder.everywhere = builder.site.fields_everywhere();
        for status in SHARED {
            let pages = status_page(status, &builder.site.settings.fields);
            builder.add(pages);
        }
        builder
    }

    /// Starts a site with everything that `site` has.
    fn of(site: Site) -> Self {
        let mut builder = Self {
            origins: (0..site.replies.len() as u32).collect(),
            taken: vec![true; site.replies.len()],
            site,
            redirects: Vec::new(),
            users: Vec::new(),
            everywhere: Fields::new(),
            now: SystemTime::UNIX_EPOCH,
            made_again: HashMap::new(),
            checks_codings: false,
            coded: Vec::new(),
        };
        builder.everywhere = builder.site.fields_everywhere();
        builder
    }

    /// Decodes coded forms in files, such as `page.html.gz`, and compares them with their file. Other
    /// programs may have written them.
    pub(crate) fn check_codings(&mut self) {
        self.checks_codings = true;
    }

    /// Notes the target of a link that leads out of the folder. Returns false if there are too many.
    pub(crate) fn note_outside(&mut self, target: &Path) -> bool {
        let outside = &mut self.site.outside;
        let has_room = outside.len() < MAX_TARGETS || outside.contains(target);
        if has_room {
            outside.insert(target.to_owned());
        }
        has_room
    }

    /// Sets the key of entity tags.
    pub(crate) fn set_tag_key(&mut self, key: TagKey) {
        self.site.tag_key = key;
    }

    /// Adds the rules of the folder. Those of the settings come before them, or replace them.
    pub(crate) fn add_rules(&mut self, redirects: Vec<Redirect>, mut headers: HeaderRules) {
        self.redirects.extend(redirects);
        headers.extend(&self.site.settings.headers);
        self.site.error_rules = headers.for_errors();
        self.site.headers = headers;
        self.everywhere = self.site.fields_everywhere();
    }

    /// Adds a part of the site that only these users may see.
    pub(crate) fn add_realm(&mut self, path: RealmPath, users: Arc<Users>) {
        self.users.push((path, users));
    }

    /// Makes room for the content of a site that is probably similar to `previous`.
    pub(crate) fn reserve_for(&mut self, previous: &Site) {
        let Site {
            pages,
            replies,
            versions,
            ..
        } = &mut self.site;
        pages.reserve(previous.pages.len());
        versions.reserve(previous.replies.len());
        replies.reserve(previous.replies.len());
        self.origins.reserve(previous.replies.len());
    }

    /// Adds a file that was last modified at `modified`. `path` is its decoded path, with a leading
    /// slash. The new file replaces an earlier file at this path. An `index.html` is also the page
    /// of its folder.
    #[must_use]
    pub fn file(mut self, path: &[u8], modified: SystemTime, content: &[u8]) -> Self {
        let page = self.make_content(path, modified, content);
        self.add_page(path, page, content.len() as u64);
        self
    }

    /// Adds a file of `len` bytes. `read` writes its content directly into the reply.
    pub(crate) fn add_file<E>(
        &mut self,
        path: &[u8],
        modified: SystemTime,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let page = self.make_file(path, modified, len, read)?;
        self.add_page(path, page, len as u64);
        Ok(())
    }

    /// Adds a file that stays on the disk.
    pub(crate) fn add_disk_file(&mut self, path: &[u8], modified: SystemTime, file: Arc<DiskFile>) {
        let len = file.len() as u64;
        let make = |fields: &FileFields<'_>| {
            let replies = FileReplies::on_disk(fields, file, None);
            Ok::<_, std::convert::Infallible>(replies)
        };
        let Ok(page) = self.make_page(path, modified, 0, make);
        self.add_page(path, page, len);
        self.site.totals.disk_files += 1;
        self.site.totals.disk_bytes += len;
    }

    /// Makes the replies of a file, which is not yet at its path.
    fn make_file<E>(
        &mut self,
        path: &[u8],
        modified: SystemTime,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<FilePage, E> {
        let make = |fields: &FileFields<'_>| FileReplies::new(fields, len, read);
        self.make_page(path, modified, len, make)
    }

    /// Makes the replies of a file, of which `compressible_len` bytes may be compressed, with `make`.
    fn make_page<E>(
        &mut self,
        path: &[u8],
        modified: SystemTime,
        compressible_len: usize,
        make: impl FnOnce(&FileFields<'_>) -> Result<FileReplies, E>,
    ) -> Result<FilePage, E> {
        let latest = second_of(self.now).min(LAST_SECOND);
        let modified = second_of(modified).min(latest);
        let file = self.with_fields_of(path, modified, compressible_len, make)?;
        Ok(FilePage {
            first: self.add(file.replies),
            tag: file.tag,
            modified,
        })
    }

    /// Calls `make` with the fields of the file at `path`, which was modified at this second.
    fn with_fields_of<T>(
        &self,
        path: &[u8],
        modified: i64,
        compressible_len: usize,
        make: impl FnOnce(&FileFields<'_>) -> T,
    ) -> T {
        let Site {
            headers, settings, ..
        } = &self.site;
        let common = headers.common_for(&settings.fields, &paths_of(path));
        let (media_type, mut own) = self.site.fields_of(path);
        let is_compressible =
            is_worthwhile(&media_type.name, compressible_len) && !own.has("content-encoding");
        if self.site.settings.coder.is_some() && is_compressible {
            // The file gets coded forms later. If there is no room for the field now, it is added then.
            let _ = own.add("Vary", "Accept-Encoding");
        }
        make(&FileFields {
            media_type: &media_type.name,
            media_type_if_not_utf8: media_type.without_charset.as_deref(),
            last_modified: &write_http_date(modified),
            common: &common,
            own: &own,
            tag_key: &self.site.tag_key,
        })
    }

    /// Makes the replies of a file whose content is in memory.
    fn make_content(&mut self, path: &[u8], modified: SystemTime, content: &[u8]) -> FilePage {
        let copy = |buffer: &mut [u8]| {
            buffer.copy_from_slice(content);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(page) = self.make_file(path, modified, content.len(), copy);
        page
    }

    /// Adds pages that list the entries of `folder`, unless it has an index. The path of the folder
    /// has slashes at both ends. The time of its last change is in seconds since 1970.
    ///
    /// Entries that need a password are listed only if the page needs the same one.
    pub(crate) fn add_listing(
        &mut self,
        folder: &[u8],
        modified: i64,
        mut entries: Vec<ListingEntry>,
    ) {
        if self.site.pages.contains_key(folder) {
            return;
        }
        let realm = self.realm_of_path(&[folder, INDEX].concat());
        self.keep_listed(folder, realm, &mut entries);
        let newest = entries
            .iter()
            .map(|entry| entry.modified)
            .fold(modified, i64::max);
        let modified = time_of(newest);
        let index = [folder, INDEX].concat();
        let html = self.make_content(&index, modified, listing::html(folder, &entries).as_bytes());
        self.note_realm(&index, html.first);
        self.add_index(folder, Page::File(html));
        let part = self.part_of_json_list(folder);
        if self.realm_of_path(&part) != realm {
            self.keep_listed(folder, None, &mut entries);
        }
        let path = [folder, LISTING_JSON].concat();
        let json = self.make_content(&path, modified, listing::json(folder, &entries).as_bytes());
        self.note_realm(&part, json.first);
        self.site.aliases.insert(path.into(), Page::File(json));
    }

    fn add_page(&mut self, path: &[u8], file: FilePage, len: u64) {
        self.note_realm(path, file.first);
        self.site.totals.files += 1;
        self.site.totals.content_bytes += len;
        if let Some(folder) = path.strip_suffix(INDEX)
            && folder.ends_with(b"/")
        {
            self.site.totals.indexes += 1;
            self.add_index(folder, Page::File(file));
        }
        if Coding::of_path(path).is_some() {
            self.coded.push(path.into());
        }
        self.site.pages.insert(path.into(), Page::File(file));
    }

    /// Notes the version of the file at `path`, which was added last, so that the next site
    /// recognises it.
    pub(crate) fn note_version(&mut self, path: &[u8], version: FileVersion) {
        if let Some(page) = self.site.file_at(path)
            && version.is_settled(self.now)
        {
            self.site.versions[page.first.index()] = Some(Fingerprint::of(&version));
        }
    }

    /// Adds the file at `path` from the `previous` site, without reading it. If `version` is given, the file
    /// of the previous site must have this version. Returns `false` if it has another one or is not there, or if
    /// its place or its tag may have changed.
    pub(crate) fn keep_file(
        &mut self,
        path: &[u8],
        previous: &Site,
        version: Option<FileVersion>,
    ) -> bool {
        let Some(page) = previous.file_at(path) else {
            return false;
        };
        let known = previous.versions[page.first.index()];
        let is_other = version.is_some_and(|version| known != Some(Fingerprint::of(&version)));
        let has_changed = previous.tag_key != self.site.tag_key
            || !previous.settings.has_memory_of(&self.site.settings);
        if is_other || has_changed {
            return false;
        }
        let reply = previous.reply(page.first);
        let (len, is_on_disk) = (reply.body_len() as u64, reply.disk().is_some());
        if let (Some(file), Some(_)) = (reply.disk(), version) {
            // It may have had another version meanwhile.
            file.note_change(false);
        }
        let has_same_head = previous.headers == self.site.headers
            && previous.settings.makes_heads_of(&self.site.settings);
        let page = if has_same_head {
            self.keep_page(page, previous)
        } else {
            self.make_head_again(path, page, previous)
        };
        self.add_page(path, page, len);
        if is_on_disk {
            self.site.totals.disk_files += 1;
            self.site.totals.disk_bytes += len;
        }
        self.site.versions[page.first.index()] = known;
        true
    }

    /// Adds the replies of a file from the `previous` site, without copying them.
    pub(super) fn keep_page(&mut self, page: FilePage, previous: &Site) -> FilePage {
        let replies = page.replies();
        let new_first = self.add(replies.map(|id| previous.reply(id).clone()));
        for (offset, id) in replies.into_iter().enumerate() {
            self.take_over(new_first.index() + offset, id.index() as u32);
        }
        FilePage {
            first: new_first,
            ..page
        }
    }

    /// Makes `page` the index of `folder`, whose path ends with a slash. Redirects the path without
    /// the slash.
    pub(super) fn add_index(&mut self, folder: &[u8], page: Page) {
        self.site.pages.insert(folder.into(), page);
        let name = &folder[..folder.len() - 1];
        if !name.is_empty() {
            let page = self.redirect_to(Status::MovedPermanently, &encoded(folder));
            if let Page::Redirect { first, .. } = page {
                self.note_realm(folder, first);
            }
            self.site.pages.insert(name.into(), page);
        }
    }

    /// Makes a redirect to `location`.
    pub(super) fn redirect_to(&mut self, status: Status, location: &str) -> Page {
        let first = self.add(redirect(status, location, &self.everywhere));
        Page::Redirect {
            first,
            keeps_query: !location.contains(['?', '#']),
        }
    }

    /// Adds replies and returns the id of the first one.
    pub(super) fn add<const N: usize>(&mut self, replies: [Reply; N]) -> ReplyId {
        let first = ReplyId(self.site.replies.len() as u32);
        let totals = &mut self.site.totals;
        totals.replies += N as u64;
        totals.reply_bytes += replies.iter().map(|r| r.bytes().len() as u64).sum::<u64>();
        self.site.replies.extend(replies);
        self.site.versions.resize(self.site.replies.len(), None);
        self.origins.resize(self.site.replies.len(), NEW);
        first
    }

    /// Replaces the reply with this id.
    pub(super) fn replace(&mut self, id: ReplyId, reply: Reply) {
        let old = &mut self.site.replies[id.index()];
        self.site.totals.reply_bytes += reply.bytes().len() as u64;
        self.site.totals.reply_bytes -= old.bytes().len() as u64;
        *old = reply;
        self.origins[id.index()] = NEW;
    }

    pub(crate) fn add_hidden(&mut self) {
        self.site.totals.hidden += 1;
    }

    pub(crate) fn add_skipped(&mut self) {
        self.site.totals.skipped += 1;
    }

    pub(crate) fn add_outdated(&mut self) {
        self.site.totals.outdated += 1;
    }

    pub(crate) fn totals(&self) -> &Totals {
        &self.site.totals
    }

    /// Finishes the site.
    pub fn build(mut self) -> Site {
        self.finish(None, &mut |_| {});
        self.into_site()
    }

    /// Finishes a site that takes over from `previous`.
    #[cfg(test)]
    pub(crate) fn build_next(mut self, previous: &Site) -> super::NextSite {
        self.finish(Some(previous), &mut |_| {});
        self.into_next(previous)
    }

    /// Adds everything that depends on all files: coded forms, clean URLs, redirects, and pages for
    /// errors. Passes to `report` what is probably a mistake.
    pub(crate) fn finish(&mut self, previous: Option<&Site>, report: &mut Report<'_>) {
        if let Some(previous) = previous {
            // Files that were read again although they have not changed keep their coded forms.
            self.keep_equal_pages(previous);
        }
        self.attach_codings(previous);
        self.add_clean_urls();
        self.note_names_of_pages();
        self.apply_redirects(report);
        self.apply_error_pages(report);
        self.apply_realms(report);
        self.code_error_pages();
    }

    /// Returns the finished site.
    pub(crate) fn into_site(mut self) -> Site {
        self.site.replies.shrink_to_fit();
        self.site
    }
}

/// Returns the paths that lead to the file at `path`: its own path, and the path of its folder or its
/// clean URL. Rules about any of them hold for the file.
fn paths_of(path: &[u8]) -> [&[u8]; 2] {
    let folder = path
        .strip_suffix(INDEX)
        .filter(|folder| folder.ends_with(b"/"));
    let clean = path.strip_suffix(PAGE_SUFFIX);
    [path, folder.or(clean).unwrap_or(path)]
}
