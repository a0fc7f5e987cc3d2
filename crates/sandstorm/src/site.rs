//! A site: the server's own prepared responses, and an index of the paths that lead to them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ahash::RandomState;
use arrayvec::ArrayVec;
use httpdate::fmt_http_date;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::fields::{Fields, MAX_FIELDS_LEN};
use crate::head::HEAD_LIMIT;
use crate::reply::{ETag, FileFields, FileReplies, Reply, redirect, status_page};
use crate::status::Status;

/// The name of the file that is served as the page of its folder.
const INDEX: &[u8] = b"index.html";

/// Characters to percent-encode in the server's own paths: all except the slash and the unreserved
/// characters (RFC 3986, section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Identifies a [`Reply`] of one [`Site`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyId(pub(crate) u32);

impl ReplyId {
    /// The index of the reply in [`Site::replies`].
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a path leads to. All replies for one path are adjacent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Page {
    File(FilePage),
    /// The id of the redirect for GET. The next reply is the redirect for HEAD.
    Redirect(ReplyId),
}

impl Page {
    /// Returns the id of the first reply for the path.
    fn first(&self) -> ReplyId {
        match self {
            Self::File(page) => page.first,
            Self::Redirect(first) => *first,
        }
    }
}

/// The prepared replies for a file, and the tag and time for evaluating preconditions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePage {
    first: ReplyId,
    pub(crate) tag: ETag,
    /// The time of `Last-Modified`, in seconds since 1970.
    pub(crate) modified: u64,
}

impl FilePage {
    #[inline(always)]
    pub(crate) fn content_reply(&self, head_only: bool) -> ReplyId {
        ReplyId(self.first.0 + u32::from(head_only))
    }

    pub(crate) fn not_modified(&self) -> ReplyId {
        ReplyId(self.first.0 + 2)
    }
}

/// Returns the id of a redirect: `first` for GET, or the next id if `head_only` is set.
pub(crate) fn redirect_reply(first: ReplyId, head_only: bool) -> ReplyId {
    ReplyId(first.0 + u32::from(head_only))
}

/// Totals of a loaded site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of files.
    pub files: u64,
    /// Number of folders with an `index.html`.
    pub indexes: u64,
    /// Total length of the files, in bytes.
    pub content_bytes: u64,
    /// Number of hidden files and folders, which were left out.
    pub hidden: u64,
    /// Number of entries that were left out because they cannot be served.
    pub skipped: u64,
    /// Number of replies: three for each file, two for each redirect, and the shared ones.
    pub replies: u64,
    /// Total length of all replies in memory, in bytes.
    pub reply_bytes: u64,
}

/// The server's own prepared replies: files, redirects and error pages. A site is immutable and
/// shared by all workers.
///
/// The decoded path of a request must match a path in the site exactly. Requests never access the
/// file system, so no path can escape the loaded folder.
#[derive(Debug)]
pub struct Site {
    /// The key is the decoded path.
    pages: HashMap<Box<[u8]>, Page, RandomState>,
    replies: Vec<Reply>,
    /// The fields common to all responses.
    fields: Fields,
    /// The boundary between parts of a file. It is secret until a client sees it, so that no file can
    /// have been made to contain it.
    boundary: u64,
    totals: Totals,
    /// The versions of files, by the first of a file's replies.
    versions: HashMap<u32, Version>,
}

/// What distinguishes a version of a file from others, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Device and inode number.
    pub(crate) file: (u64, u64),
    pub(crate) len: u64,
    /// Times of the last change of content and of metadata, in seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

/// Minimum age of a version that is recognised, in seconds. A younger file may change again without
/// a new time, because file systems round times.
const MIN_AGE: i64 = 2;

/// Marks a reply of a [`NextSite`] that the previous site does not have.
pub(crate) const NEW: u32 = u32::MAX;

/// A site that takes over from a previous one.
#[derive(Debug)]
pub(crate) struct NextSite {
    pub(crate) site: Arc<Site>,
    /// For each reply, the index of the same reply in the previous site, or [`NEW`].
    pub(crate) origins: Box<[u32]>,
    /// The indices of the previous site's replies that this site does not have.
    pub(crate) leaving: Box<[u32]>,
}

impl Site {
    /// Returns the replies of the file at `path`, if it is in the site.
    fn file_at(&self, path: &[u8]) -> Option<FilePage> {
        match self.pages.get(path) {
            Some(Page::File(page)) => Some(*page),
            _ => None,
        }
    }

    /// Finds the page for the path of a request target. The path includes its leading slash, may be
    /// percent-encoded, and excludes the query.
    #[inline]
    pub(crate) fn find(&self, path: &[u8]) -> Result<&Page, NoPage> {
        if path.contains(&b'%') {
            return self.find_encoded(path);
        }
        self.pages.get(path).ok_or(NoPage::Unknown)
    }

    #[cold]
    fn find_encoded(&self, path: &[u8]) -> Result<&Page, NoPage> {
        let mut decoded = ArrayVec::<u8, HEAD_LIMIT>::new();
        let mut rest = path;
        while let [first, more @ ..] = rest {
            let mut byte = *first;
            rest = more;
            if byte == b'%' {
                let [high, low, more @ ..] = rest else {
                    return Err(NoPage::BadEncoding);
                };
                byte = (hex(*high)? << 4) | hex(*low)?;
                rest = more;
                // An encoded slash is part of a name, and no file name contains a slash. If it
                // counted as a separator, each file would have more paths, which filters in front
                // of the server do not know.
                if byte == b'/' {
                    return Err(NoPage::Unknown);
                }
            }
            if decoded.try_push(byte).is_err() {
                return Err(NoPage::Unknown);
            }
        }
        self.pages.get(&*decoded).ok_or(NoPage::Unknown)
    }

    /// Returns the id of the shared reply for `status`, which must be one of [`SHARED`].
    #[inline]
    pub(crate) fn shared(status: Status, head_only: bool) -> ReplyId {
        let index = SHARED.iter().position(|s| *s == status).unwrap_or(0);
        ReplyId(2 * index as u32 + u32::from(head_only))
    }

    /// All replies. A [`ReplyId`] is an index into this slice.
    pub fn replies(&self) -> &[Reply] {
        &self.replies
    }

    /// The reply with this id.
    ///
    /// # Panics
    /// Panics if the index of `id` is out of range, which can happen if the id belongs to another
    /// site.
    #[inline(always)]
    pub fn reply(&self, id: ReplyId) -> &Reply {
        &self.replies[id.index()]
    }

    /// The fields common to all responses.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The boundary between the parts of a multipart response.
    pub(crate) fn boundary(&self) -> u64 {
        self.boundary
    }

    /// The totals of this site.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The decoded paths of all files, without their leading slash.
    pub fn file_paths(&self) -> impl Iterator<Item = &[u8]> {
        self.pages
            .iter()
            .filter(|(path, page)| matches!(page, Page::File(_)) && !path.ends_with(b"/"))
            .filter_map(|(path, _)| path.strip_prefix(b"/"))
    }

    /// The decoded path of each file with its whole reply, without the paths of folders.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&[u8], &Reply)> {
        let files = self.pages.iter().filter(|(path, _)| !path.ends_with(b"/"));
        files.filter_map(|(path, page)| match page {
            Page::File(file) => Some((&**path, self.reply(file.content_reply(false)))),
            Page::Redirect(_) => None,
        })
    }

    /// A percent-encoded path for trying out the server. It is the shortest path of all files. If
    /// the root folder has an index, the path is `/`.
    pub fn some_path(&self) -> String {
        let shortest = self
            .pages
            .iter()
            .filter(|(_, page)| matches!(page, Page::File(_)))
            .map(|(path, _)| path)
            .min_by_key(|path| (path.len(), *path));
        shortest.map_or_else(|| "/".to_owned(), |path| encoded(path))
    }
}

/// Percent-encodes a path.
fn encoded(path: &[u8]) -> String {
    percent_encode(path, ENCODED).to_string()
}

/// Why a path was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPage {
    /// No file has this path.
    Unknown,
    /// A percent sign is not followed by two hexadecimal digits.
    BadEncoding,
}

fn hex(digit: u8) -> Result<u8, NoPage> {
    let value = char::from(digit).to_digit(16).ok_or(NoPage::BadEncoding)?;
    Ok(value as u8)
}

/// The statuses of the shared replies, which belong to no path. [`Site::replies`] begins with them:
/// two for each status, for GET and for HEAD.
const SHARED: [Status; 11] = [
    Status::NoContent,
    Status::BadRequest,
    Status::NotFound,
    Status::MethodNotAllowed,
    Status::PreconditionFailed,
    Status::UriTooLong,
    Status::RangeNotSatisfiable,
    Status::ExpectationFailed,
    Status::HeadTooLarge,
    Status::NotImplemented,
    Status::VersionNotSupported,
];

/// Maximum length of a file in bytes. A file and its head must fit into one content item of the TCP
/// stack.
pub const MAX_FILE_LEN: u64 = (tcpip::MAX_CONTENT_LEN - MAX_HEAD_LEN) as u64;
/// An upper bound for the length of a file's head, in bytes.
const MAX_HEAD_LEN: usize = 4_096 + MAX_FIELDS_LEN;

/// Builds a [`Site`], file by file.
#[derive(Debug)]
pub struct Builder {
    site: Site,
    /// The latest time that `Last-Modified` may show (RFC 9110, section 8.8.2.1).
    now: SystemTime,
    /// For each reply so far, its index in the previous site, or [`NEW`].
    origins: Vec<u32>,
}

impl Builder {
    /// Starts a site without files. No file's `Last-Modified` is later than `now`.
    pub fn new(now: SystemTime) -> Self {
        Self::with_fields(now, Fields::new())
    }

    /// Same as [`new`](Self::new), with `fields` in all responses, including those of an
    /// application. Prepared replies already contain the fields, so there they cost nothing per
    /// request.
    pub fn with_fields(now: SystemTime, fields: Fields) -> Self {
        // The keys are derived from the standard library's hasher, whose own keys are random.
        let random = std::hash::RandomState::new();
        let key = |n: usize| {
            let mut hasher = random.build_hasher();
            hasher.write_usize(n);
            hasher.finish()
        };
        Self::with_keys(now, fields, std::array::from_fn(key))
    }

    /// Same as [`new`](Self::new), with fixed keys for the hash of paths. This makes runs
    /// reproducible, for example to count instructions. An attacker who knows the keys can request
    /// paths that collide.
    pub fn keyed(now: SystemTime, keys: [u64; 4]) -> Self {
        Self::with_keys(now, Fields::new(), keys)
    }

    fn with_keys(now: SystemTime, fields: Fields, keys: [u64; 4]) -> Self {
        let [a, b, c, d] = keys;
        let hash = RandomState::with_seeds(a, b, c, d);
        let mut builder = Self {
            site: Site {
                pages: HashMap::with_hasher(hash.clone()),
                replies: Vec::new(),
                fields,
                boundary: hash.hash_one("boundary"),
                totals: Totals::default(),
                versions: HashMap::new(),
            },
            now,
            origins: Vec::new(),
        };
        for status in SHARED {
            let pages = status_page(status, &builder.site.fields);
            builder.add(pages);
        }
        builder
    }

    /// Makes room for the content of a site that is probably similar to `previous`.
    #[must_use]
    pub(crate) fn similar_to(mut self, previous: &Site) -> Self {
        let Site {
            pages,
            replies,
            versions,
            ..
        } = &mut self.site;
        pages.reserve(previous.pages.len());
        versions.reserve(previous.versions.len());
        replies.reserve(previous.replies.len());
        self.origins.reserve(previous.replies.len());
        self
    }

    /// Adds a file that was last modified at `modified`. `path` is its decoded path, with a leading
    /// slash. The new file replaces an earlier file at this path. An `index.html` is also the page
    /// of its folder.
    #[must_use]
    pub fn file(mut self, path: &[u8], modified: SystemTime, content: &[u8]) -> Self {
        let copy = |buffer: &mut [u8]| {
            buffer.copy_from_slice(content);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = self.add_file(path, modified, content.len(), copy);
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
        let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified = since_epoch(modified).min(since_epoch(self.now)).as_secs();
        let modified = modified.min(LAST_HTTP_SECOND);
        let media_type = MediaType::of(path);
        let file = FileReplies::new(
            &FileFields {
                media_type: &media_type.name,
                media_type_if_not_utf8: media_type.without_charset,
                last_modified: &fmt_http_date(UNIX_EPOCH + Duration::from_secs(modified)),
                common: &self.site.fields,
            },
            len,
            read,
        )?;
        let page = Page::File(FilePage {
            first: self.add(file.replies),
            tag: file.tag,
            modified,
        });
        self.add_page(path, page, len as u64);
        Ok(())
    }

    fn add_page(&mut self, path: &[u8], page: Page, len: u64) {
        self.site.totals.files += 1;
        self.site.totals.content_bytes += len;
        if let Some(folder) = path.strip_suffix(INDEX)
            && folder.ends_with(b"/")
        {
            self.add_index(folder, page);
        }
        self.site.pages.insert(path.into(), page);
    }

    /// Notes the version of the file at `path`, which was added last, so that the next site
    /// recognises it.
    pub(crate) fn note_version(&mut self, path: &[u8], version: Version) {
        let now = self
            .now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs()
            .cast_signed();
        let newest = version.changed.0.max(version.modified.0);
        if let Some(page) = self.site.file_at(path)
            && newest + MIN_AGE <= now
        {
            self.site.versions.insert(page.first.0, version);
        }
    }

    /// Adds the file at `path` from the `previous` site, without copying it. If `version` is given,
    /// it must be that of the file in the previous site. Returns `false` if it is not, or if the
    /// file is not in the previous site.
    pub(crate) fn keep_file(
        &mut self,
        path: &[u8],
        previous: &Site,
        version: Option<Version>,
    ) -> bool {
        let Some(page) = previous.file_at(path) else {
            return false;
        };
        let first = page.first.0;
        let known = previous.versions.get(&first).copied();
        if version.is_some() && version != known {
            return false;
        }
        let replies = [first, first + 1, first + 2];
        let copies = replies.map(|index| previous.replies[index as usize].clone());
        let len = copies[0].body_len();
        let new_first = self.add(copies);
        self.origins[new_first.index()..].copy_from_slice(&replies);
        let page = FilePage {
            first: new_first,
            ..page
        };
        self.add_page(path, Page::File(page), len as u64);
        if let Some(known) = known {
            self.site.versions.insert(new_first.0, known);
        }
        true
    }

    /// Makes `page` the index of `folder`, whose path ends with a slash. Redirects the path without
    /// the slash.
    fn add_index(&mut self, folder: &[u8], page: Page) {
        self.site.totals.indexes += 1;
        self.site.pages.insert(folder.into(), page);
        let name = &folder[..folder.len() - 1];
        if !name.is_empty() {
            let first = self.add(redirect(&encoded(folder), &self.site.fields));
            self.site.pages.insert(name.into(), Page::Redirect(first));
        }
    }

    /// Adds replies and returns the id of the first one.
    fn add<const N: usize>(&mut self, replies: [Reply; N]) -> ReplyId {
        let first = ReplyId(self.site.replies.len() as u32);
        let totals = &mut self.site.totals;
        totals.replies += N as u64;
        totals.reply_bytes += replies.iter().map(|r| r.bytes().len() as u64).sum::<u64>();
        self.site.replies.extend(replies);
        self.origins.resize(self.site.replies.len(), NEW);
        first
    }

    pub(crate) fn add_hidden(&mut self) {
        self.site.totals.hidden += 1;
    }

    pub(crate) fn add_skipped(&mut self) {
        self.site.totals.skipped += 1;
    }

    pub(crate) fn totals(&self) -> &Totals {
        &self.site.totals
    }

    /// Finishes the site.
    pub fn build(mut self) -> Site {
        self.site.replies.shrink_to_fit();
        self.site
    }

    /// Finishes a site that takes over from `previous`. Replies that are equal are taken over as well,
    /// such as redirects, and files that were read again although they have not changed.
    pub(crate) fn build_next(mut self, previous: &Site) -> NextSite {
        let mut origins = std::mem::take(&mut self.origins).into_boxed_slice();
        let Site { pages, replies, .. } = &mut self.site;
        let mut keep_equal = |origins: &mut [u32], own: ReplyId, old: ReplyId, count| {
            for offset in 0..count {
                let (own, old) = (own.index() + offset, old.index() + offset);
                let (new, known) = (&mut replies[own], &previous.replies[old]);
                if origins[own] == NEW && new.bytes() == known.bytes() {
                    new.clone_from(known);
                    origins[own] = old as u32;
                }
            }
        };
        // The shared replies are usually equal, because they depend only on the common fields.
        keep_equal(&mut origins, ReplyId(0), ReplyId(0), 2 * SHARED.len());
        for (path, page) in &*pages {
            // A file that has not changed was kept before.
            if origins[page.first().index()] != NEW {
                continue;
            }
            match (page, previous.pages.get(path)) {
                (Page::File(own), Some(Page::File(old))) => {
                    keep_equal(&mut origins, own.first, old.first, 3);
                }
                (Page::Redirect(own), Some(Page::Redirect(old))) => {
                    keep_equal(&mut origins, *own, *old, 2);
                }
                _ => {}
            }
        }
        let mut stays = vec![false; previous.replies.len()];
        for origin in origins.iter().filter(|origin| **origin != NEW) {
            stays[*origin as usize] = true;
        }
        let all = 0..previous.replies.len() as u32;
        NextSite {
            leaving: all.filter(|index| !stays[*index as usize]).collect(),
            origins,
            site: Arc::new(self.build()),
        }
    }
}

/// The last second of the year 9999. HTTP dates have four digits for the year.
const LAST_HTTP_SECOND: u64 = 253_402_300_799;

struct MediaType {
    name: String,
    /// The name without a charset, for text types. It is used if the file is not valid UTF-8.
    without_charset: Option<&'static str>,
}

impl MediaType {
    /// Guesses the type from the extension of the file name.
    fn of(path: &[u8]) -> Self {
        let extension = std::str::from_utf8(path)
            .ok()
            .and_then(|path| path.rsplit('/').next())
            .and_then(|name| name.rsplit_once('.'))
            .map_or("", |(_, extension)| extension);
        let name = mime_guess::from_ext(extension)
            .first_raw()
            .unwrap_or("application/octet-stream");
        if name.starts_with("text/") {
            Self {
                name: format!("{name}; charset=utf-8"),
                without_charset: Some(name),
            }
        } else {
            Self {
                name: name.to_owned(),
                without_charset: None,
            }
        }
    }
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
