//! A site: the server's own prepared responses, and an index of the paths that lead to them.

mod builder;
mod by_host;
mod by_query;
mod errors;
mod media_type;
mod missing_pages;
mod page;
mod rule_index;
mod totals;

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ahash::RandomState;
use arrayvec::ArrayVec;
use control::FileVersion;
use percent_encoding::percent_encode;
use xxhash_rust::xxh3::xxh3_64;

use crate::accept::Accepted;
use crate::coding::Coding;
use crate::disk::DiskFile;
use crate::fields::Fields;
use crate::head::HEAD_LIMIT;
use crate::hosts::Hosts;
use crate::known_sites::{HostedId, KnownSites};
use crate::login::Realm;
use crate::percent::{self, BadEncoding, ENCODED_SLASH, PATH};
use crate::reply::Reply;
use crate::rules::{Captures, HeaderRules, Pattern, QueryPattern, Template};
use crate::settings::Settings;
use crate::status::Status;
use crate::tag_key::TagKey;
pub use builder::Builder;
pub(crate) use builder::INDEX;
pub use by_host::HostedSite;
pub(crate) use by_host::Member;
pub(crate) use media_type::MediaTypes;
use missing_pages::MissingPages;
pub use page::ReplyId;
pub(crate) use page::{FilePage, Page, Variants};
use rule_index::{WITHOUT_SLASH, query_rule_index};
pub use totals::Totals;

/// The server's own prepared replies: files, redirects and error pages. A site is immutable and
/// shared by all workers.
///
/// The decoded path of a request must match a path in the site exactly. A request leads
/// only to files that were found when the folder was loaded, so no path can escape the folder.
#[derive(Clone, Debug)]
pub struct Site {
    /// The pages of files and folders. The key is the decoded path.
    pages: HashMap<Box<[u8]>, Page, RandomState>,
    /// The pages of other paths to files: clean URLs, and lists in JSON.
    aliases: HashMap<Box<[u8]>, Page, RandomState>,
    /// The pages of further paths, by rules that are about a single path.
    exact: HashMap<Box<[u8]>, Page, RandomState>,
    /// The pages of files, folders and clean URLs that rules have replaced.
    replaced: HashMap<Box<[u8]>, Page, RandomState>,
    /// The files with coded forms.
    variants: Vec<Variants>,
    /// The rules that are about many paths, in the order in which they are tried.
    rules: Vec<PathRule>,
    /// The parts for which clients need a name and a password.
    realms: Vec<Realm>,
    /// The files of these parts, by their first reply, each with the index of its part. Rules can lead
    /// from other paths to them.
    realm_files: HashMap<ReplyId, u16, RandomState>,
    /// The paths of links into these parts, each with the index of its part.
    linked: HashMap<Box<[u8]>, u16, RandomState>,
    /// The other paths that lead to a part with a single page, each with the index of its part.
    page_names: HashMap<Box<[u8]>, u16, RandomState>,
    /// The known paths from which an earlier rule leads into these parts if there is a page, each with the
    /// index of its part.
    led: HashMap<Box<[u8]>, u16, RandomState>,
    replies: Vec<Reply>,
    /// The sites for different hosts. They have all files, and this site has none.
    by_host: Option<Box<ByHost>>,
    settings: Arc<Settings>,
    /// The key of the entity tags.
    tag_key: TagKey,
    /// The pages of the site that are sent for errors, by the reply for GET in the plain form.
    errors: HashMap<ReplyId, ErrorPage, RandomState>,
    /// The pages about missing files, of folders that have one.
    missing: MissingPages,
    /// The rules for fields from which the heads of files were made.
    headers: HeaderRules,
    /// What these rules say about errors, or nothing if that is the same for all paths.
    error_rules: HeaderRules,
    /// The boundary between parts of a file. It is secret until a client sees it, so that no file can
    /// have been made to contain it.
    boundary: u64,
    totals: Totals,
    /// Files that may get further coded forms: the replies without a coding.
    uncoded: Vec<ReplyId>,
    /// The versions of files, as far as they can be recognised, at the index of a file's first reply.
    versions: Vec<Option<Fingerprint>>,
    /// The redirects that are about a query, in the order in which they are tried.
    query_rules: Vec<QueryRule>,
    /// The targets of links that lead out of the folder.
    outside: BTreeSet<PathBuf>,
    /// The redirect from a clean URL with a slash at its end, if the site has clean URLs.
    without_slash: Option<Page>,
}

/// A rule for the paths that match a pattern.
#[derive(Clone, Debug)]
struct PathRule {
    from: Pattern,
    to: Template,
    /// What the paths lead to, or `None` if each leads to another page of the site.
    page: Option<Page>,
}

impl PathRule {
    /// Returns true if the page of the rule is for this path. A redirect does not lead to itself.
    fn holds(&self, page: &Page, captures: &Captures<'_>, path: &[u8]) -> bool {
        let is_redirect = matches!(page, Page::Redirect { .. } | Page::Rule { .. });
        let leads_to_itself = || self.to.leads_to(captures, path, false);
        self.to.holds(captures, path.len()) && !(is_redirect && leads_to_itself())
    }
}

/// A redirect for the paths that match a pattern, if their query does too.
#[derive(Clone, Debug)]
struct QueryRule {
    from: Pattern,
    query: QueryPattern,
    to: Template,
    /// Whether it also holds for paths that have a file.
    forced: bool,
    page: Page,
}

/// A page of the site that is sent for an error.
#[derive(Clone, Debug)]
struct ErrorPage {
    status: Status,
    /// The first reply of the file in its plain form.
    file: ReplyId,
    /// Further lines of the head.
    more: Box<str>,
    /// The coded forms, shortest first.
    coded: ArrayVec<CodedError, { Coding::ALL.len() }>,
}

/// A coded form of an error's page.
#[derive(Clone, Copy, Debug)]
struct CodedError {
    coding: Coding,
    /// The reply for GET. The next reply is the one for HEAD.
    first: ReplyId,
    /// Length of the body in bytes.
    len: usize,
}

/// A hash of a [`FileVersion`], which is much shorter. Two versions have the same one with a probability of
/// 1 in 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint(NonZeroU64);

impl Fingerprint {
    fn of(version: &FileVersion) -> Self {
        let FileVersion {
            file: (device, inode),
            len,
            modified,
            changed,
        } = *version;
        let [a, b, c, d] = [modified.0, modified.1, changed.0, changed.1].map(i64::cast_unsigned);
        let words = [device, inode, len, a, b, c, d].map(u64::to_ne_bytes);
        let hash = xxh3_64(words.as_flattened());
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }
}

/// Sites for different hosts.
#[derive(Clone, Debug)]
pub(crate) struct ByHost {
    hosts: Hosts,
    sites: Vec<Hosted>,
    known: KnownSites,
}

/// One of them.
#[derive(Clone, Debug)]
struct Hosted {
    site: Arc<Site>,
    id: HostedId,
    has_folder: bool,
    /// Number of replies before its own.
    first: u32,
}

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

impl NextSite {
    /// Combines a site with the origins of its replies in a previous one, which has `old` replies.
    ///
    /// An old reply can be taken over once, because it goes when the reply that has taken it over does. A
    /// further reply with this origin counts as new.
    ///
    /// # Panics
    /// Panics unless there is an origin for each reply. Workers find replies by their numbers, so clients
    /// would get other files.
    pub(crate) fn new(site: Arc<Site>, mut origins: Box<[u32]>, old: usize) -> Self {
        assert_eq!(origins.len(), site.replies.len(), "origins of replies");
        let mut stays = vec![false; old];
        for origin in origins.iter_mut().filter(|origin| **origin != NEW) {
            if std::mem::replace(&mut stays[*origin as usize], true) {
                *origin = NEW;
            }
        }
        let leaving = (0..).zip(stays).filter(|(_, stays)| !stays);
        let leaving = leaving.map(|(index, _)| index).collect();
        Self {
            site,
            origins,
            leaving,
        }
    }

    /// Number of replies that the previous site does not have.
    pub(crate) fn added(&self) -> u64 {
        self.origins.iter().filter(|one| **one == NEW).count() as u64
    }
}

impl Site {
    /// Returns the replies of the plain form of the file at `path`, if it is in the site. Rules may have
    /// replaced it there.
    fn file_at(&self, path: &[u8]) -> Option<FilePage> {
        match self.replaced.get(path).or_else(|| self.pages.get(path)) {
            Some(Page::File(page)) => Some(*page),
            Some(Page::Negotiated(index)) => Some(self.variants[*index as usize].plain),
            _ => None,
        }
    }

    /// Whether the file at `path` has coded forms.
    fn has_forms(&self, path: &[u8]) -> bool {
        let page = self.replaced.get(path).or_else(|| self.pages.get(path));
        matches!(page, Some(Page::Negotiated(_)))
    }

    /// Returns the file at this decoded path, if it is on the disk.
    pub(crate) fn disk_file(&self, path: &[u8]) -> Option<&Arc<DiskFile>> {
        self.reply(self.file_at(path)?.first).disk()
    }

    /// Finds the page for the path of a request target. The path includes its leading slash, may be
    /// percent-encoded, and excludes the query.
    #[inline]
    pub(crate) fn find(&self, path: &[u8]) -> Result<&Page, NoPage> {
        if path.contains(&b'%') {
            return self.find_encoded(path);
        }
        self.page(path).ok_or(NoPage::Unknown)
    }

    #[cold]
    fn find_encoded(&self, path: &[u8]) -> Result<&Page, NoPage> {
        self.page(&decoded(path)?).ok_or(NoPage::Unknown)
    }

    /// Finds the page for a decoded path.
    #[inline]
    fn page(&self, path: &[u8]) -> Option<&Page> {
        match self.pages.get(path) {
            Some(page) => Some(page),
            None => self.other_page(path),
        }
    }

    /// Finds the page for a path that no file or folder has.
    #[cold]
    fn other_page(&self, path: &[u8]) -> Option<&Page> {
        if let Some(page) = self.aliases.get(path).or_else(|| self.exact.get(path)) {
            return Some(page);
        }
        if let Some(redirect) = &self.without_slash
            && let Some(clean) = path.strip_suffix(b"/")
            && let Some(Page::File(_) | Page::Negotiated(_)) = self.aliases.get(clean)
        {
            return Some(redirect);
        }
        self.page_by_rules(path)
    }

    /// Returns the page to which the first rule leads that has a pattern for this path, and a page.
    fn page_by_rules(&self, path: &[u8]) -> Option<&Page> {
        self.rules
            .iter()
            .find_map(|rule| self.page_by_rule(rule, path))
    }

    /// Returns the page to which a rule leads from this path, if it holds.
    fn page_by_rule<'s>(&'s self, rule: &'s PathRule, path: &[u8]) -> Option<&'s Page> {
        let captures = rule.from.captures(path)?;
        if let Some(page) = &rule.page {
            return rule.holds(page, &captures, path).then_some(page);
        }
        let mut buffer = ArrayVec::new();
        self.rewritten(rule.to.path(&captures, &mut buffer)?)
    }

    /// Returns the page to which a rewrite to a path leads. Redirects do not hold for it, but a file that
    /// a rule keeps from clients with an error stays so.
    fn rewritten(&self, target: &[u8]) -> Option<&Page> {
        let page = self
            .pages
            .get(target)
            .or_else(|| self.aliases.get(target))?;
        match page {
            Page::Error(_) => Some(page),
            _ => self.replaced.get(target).or(Some(page)),
        }
    }

    /// Returns true if the server itself redirects a path, to the one with or without a final slash.
    fn has_own_redirect(&self, path: &[u8]) -> bool {
        let original = self.replaced.get(path).or_else(|| self.pages.get(path));
        match path.strip_suffix(b"/") {
            Some(clean) => self.without_slash.is_some() && self.aliases.contains_key(clean),
            None => matches!(original, Some(Page::Redirect { .. })),
        }
    }

    /// The paths that are known without a pattern, each with its page.
    fn known_paths(&self) -> impl Iterator<Item = (&Box<[u8]>, &Page)> {
        self.pages.iter().chain(&self.aliases).chain(&self.exact)
    }

    /// Returns true if a path is known without a pattern.
    fn is_known(&self, path: &[u8]) -> bool {
        let others = [&self.aliases, &self.exact];
        self.pages.contains_key(path) || others.iter().any(|one| one.contains_key(path))
    }

    /// The sites for different hosts, if there are any.
    #[inline(always)]
    pub(crate) fn by_host(&self) -> Option<&ByHost> {
        self.by_host.as_deref()
    }

    /// Returns the site that has a reply.
    pub(crate) fn owner(&self, reply: ReplyId) -> &Self {
        match &self.by_host {
            None => self,
            Some(sites) => sites.owner(reply).unwrap_or(self),
        }
    }

    /// Returns this site, and the sites for different hosts.
    fn with_hosted(&self) -> impl Iterator<Item = &Self> {
        let hosted = self.by_host.iter().flat_map(|sites| sites.sites());
        std::iter::once(self).chain(hosted)
    }

    /// Returns the form of a file that a client wants most.
    #[inline]
    pub(crate) fn form(&self, variants: u32, accepted: Accepted) -> &FilePage {
        self.variants[variants as usize].choose(accepted)
    }

    /// Appends the location to which the rule with this index redirects a path. Returns true if the
    /// request's query may follow it.
    pub(crate) fn write_location(
        &self,
        rule: u16,
        (path, query): (&[u8], &[u8]),
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some(index) = query_rule_index(rule) {
            self.write_location_by_query(index, path, query, out);
            return false;
        }
        if rule == WITHOUT_SLASH {
            if let Ok(path) = decoded(path) {
                out.extend_from_slice(encoded(path.strip_suffix(b"/").unwrap_or(&path)).as_bytes());
            }
            return true;
        }
        let rule = &self.rules[usize::from(rule)];
        // Cannot fail: the rule has matched the same path before, and the location has room.
        if let Ok(path) = decoded(path)
            && let Some(captures) = rule.from.captures(&path)
        {
            let _ = rule.to.write(&captures, out);
        }
        !rule.to.has_query()
    }

    /// The parts of the site that need a name and a password.
    #[inline(always)]
    pub(crate) fn realms(&self) -> &[Realm] {
        &self.realms
    }

    /// Returns the part with a password that a path belongs to, or the part of the page that it leads to.
    #[inline(never)]
    pub(crate) fn realm(&self, path: &[u8], page: Option<&Page>) -> Option<&Realm> {
        let first = match page {
            Some(Page::File(file)) => Some(file.first),
            Some(Page::Negotiated(index)) => Some(self.variants[*index as usize].plain.first),
            Some(Page::Redirect { first, .. }) => Some(*first),
            _ => None,
        };
        let of_page = first.and_then(|first| self.realm_files.get(&first));
        match of_page {
            Some(index) => self.realms.get(usize::from(*index)),
            None if path.contains(&b'%') => self.realm_of_encoded(path),
            None => self.realm_of_path(path),
        }
    }

    /// Returns the part that a percent-encoded path belongs to, or into which a rewrite leads from it. An
    /// encoded slash counts as a slash, too, so nobody learns from it about the paths below a part. The rules
    /// that hold for the path as it is come first, because they are used.
    #[cold]
    fn realm_of_encoded(&self, path: &[u8]) -> Option<&Realm> {
        let path = decoded(path).ok()?;
        if !path.contains(&ENCODED_SLASH) {
            return self.realm_of_path(&path);
        }
        let plain = |byte: &u8| if *byte == ENCODED_SLASH { b'/' } else { *byte };
        let plain: Vec<u8> = path.iter().map(plain).collect();
        let own = self.own_realm(&plain).or_else(|| self.own_realm(&path));
        let by_rule = || self.realm_by_rule(&path);
        let index = own.or_else(by_rule);
        let index = index.or_else(|| self.realm_by_rule(&plain))?;
        self.realms.get(usize::from(index))
    }

    /// Returns the part that a decoded path belongs to, or into which a rewrite leads from it. So nobody
    /// learns without a password whether there is a file.
    fn realm_of_path(&self, path: &[u8]) -> Option<&Realm> {
        let index = self.own_realm(path);
        let index = index.or_else(|| self.realm_by_rule(path))?;
        self.realms.get(usize::from(index))
    }

    /// Returns the index of the part that a decoded path belongs to.
    fn own_realm(&self, path: &[u8]) -> Option<u16> {
        let named = self.page_names.get(path).copied();
        let own = named.or_else(|| Realm::index_of(&self.realms, path));
        own.or_else(|| self.linked_realm(path))
    }

    /// Returns the index of the part into which a rewrite leads from a decoded path.
    fn realm_by_rule(&self, path: &[u8]) -> Option<u16> {
        if self.is_known(path) {
            self.led.get(path).copied()
        } else {
            self.realm_behind(self.rules.iter(), path, &|path| self.own_realm(path))
        }
    }

    /// Returns the index of the part into which the first rule leads that holds for a path. A rewrite also counts
    /// if its target has no page, but belongs to a part. `own` returns the part that a path belongs to.
    fn realm_behind<'r>(
        &self,
        mut rules: impl Iterator<Item = &'r PathRule>,
        path: &[u8],
        own: &dyn Fn(&[u8]) -> Option<u16>,
    ) -> Option<u16> {
        let first = rules.find_map(|rule| {
            let captures = rule.from.captures(path)?;
            if let Some(page) = &rule.page {
                return rule.holds(page, &captures, path).then_some(None);
            }
            let mut buffer = ArrayVec::new();
            let target = rule.to.path(&captures, &mut buffer)?;
            let realm = own(target);
            (realm.is_some() || self.rewritten(target).is_some()).then_some(realm)
        });
        first.flatten()
    }

    /// Returns the index of the part into which a link on a decoded path leads.
    fn linked_realm(&self, path: &[u8]) -> Option<u16> {
        if self.linked.is_empty() {
            return None;
        }
        let ends = memchr::memchr_iter(b'/', path).chain([path.len()]);
        let mut links = ends.filter_map(|end| self.linked.get(&path[..end]));
        links.next_back().copied()
    }

    /// Returns the part whose reply with status 401 this is.
    pub(crate) fn realm_of_reply(&self, reply: ReplyId) -> Option<&Realm> {
        let (site, first) = match &self.by_host {
            None => (self, 0),
            Some(sites) => sites.with_first(reply)?,
        };
        let own = |realm: &&Realm| reply.0 - first - realm.first.0 < 2;
        site.realms
            .iter()
            .filter(|realm| realm.first.0 <= reply.0 - first)
            .find(own)
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
        &self.settings.fields
    }

    /// The fields of the server's own responses, which are about no file.
    pub(crate) fn fields_everywhere(&self) -> Fields {
        let common = self.headers.common_for_everything(&self.settings.fields);
        common.replaced_by(&self.headers.for_everything())
    }

    /// How the folder became this site.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The key of the entity tags.
    pub(crate) fn tag_key(&self) -> &TagKey {
        &self.tag_key
    }

    /// The files that may get further coded forms: their replies without a coding.
    pub(crate) fn uncoded(&self) -> &[ReplyId] {
        &self.uncoded
    }

    /// The boundary between the parts of a multipart response.
    pub(crate) fn boundary(&self) -> u64 {
        self.boundary
    }

    /// The targets of links that lead out of the folder.
    pub(crate) fn outside(&self) -> impl Iterator<Item = &Path> {
        self.outside.iter().map(PathBuf::as_path)
    }

    /// The totals of this site.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The decoded paths of all files, without their leading slash.
    pub fn file_paths(&self) -> impl Iterator<Item = &[u8]> {
        self.files().filter_map(|(path, _)| path.strip_prefix(b"/"))
    }

    /// The decoded path of each file with its whole reply, without the paths of folders.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&[u8], &Reply)> {
        self.with_hosted().flat_map(Self::own_files)
    }

    fn own_files(&self) -> impl Iterator<Item = (&[u8], &Reply)> {
        let files = self.pages.iter().filter(|(path, _)| !path.ends_with(b"/"));
        files.filter_map(|(path, _)| Some((&**path, self.reply(self.file_at(path)?.first))))
    }

    /// A percent-encoded path for trying out the server. It is the shortest path of all files for which
    /// no password is needed. If the root folder has an index, the path is `/`.
    pub fn some_path(&self) -> String {
        let paths = self.with_hosted().flat_map(Self::open_paths);
        let shortest = paths.min_by_key(|path| (path.len(), *path));
        shortest.map_or_else(|| "/".to_owned(), encoded)
    }

    /// The paths of files for which no password is needed.
    fn open_paths(&self) -> impl Iterator<Item = &[u8]> {
        let is_file = |page: &Page| matches!(page, Page::File(_) | Page::Negotiated(_));
        let is_open = |path: &[u8]| self.own_realm(path).is_none();
        let pages = self.pages.iter().filter(move |(_, page)| is_file(page));
        pages
            .map(|(path, _)| &**path)
            .filter(move |path| is_open(path))
    }
}

/// Percent-encodes a path.
fn encoded(path: &[u8]) -> String {
    percent_encode(path, PATH).to_string()
}

/// Why a path was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPage {
    /// No file has this path.
    Unknown,
    /// A percent sign is not followed by two hexadecimal digits.
    BadEncoding,
}

/// Decodes a path. An encoded slash becomes [`ENCODED_SLASH`]: it is part of a name, and no file name
/// contains a slash. If it counted as a separator, each file would have more paths, which filters in
/// front of the server do not know.
#[cold]
fn decoded(path: &[u8]) -> Result<ArrayVec<u8, HEAD_LIMIT>, NoPage> {
    let mut decoded = ArrayVec::new();
    for byte in percent::decode(path) {
        let byte = match byte.map_err(|BadEncoding| NoPage::BadEncoding)? {
            (b'/', true) => ENCODED_SLASH,
            (ENCODED_SLASH, _) => return Err(NoPage::Unknown),
            (byte, _) => byte,
        };
        decoded.try_push(byte).map_err(|_| NoPage::Unknown)?;
    }
    Ok(decoded)
}

/// The statuses of the shared replies, which belong to no path. [`Site::replies`] begins with them:
/// two for each status, for GET and for HEAD.
const SHARED: [Status; 14] = [
    Status::NoContent,
    Status::BadRequest,
    Status::Forbidden,
    Status::NotFound,
    Status::MethodNotAllowed,
    Status::Gone,
    Status::PreconditionFailed,
    Status::UriTooLong,
    Status::RangeNotSatisfiable,
    Status::ExpectationFailed,
    Status::MisdirectedRequest,
    Status::HeadTooLarge,
    Status::NotImplemented,
    Status::VersionNotSupported,
];

/// Returns the errors for which a site may have a page of its own.
pub(crate) fn errors_with_page() -> impl Iterator<Item = Status> {
    let shared = SHARED.into_iter().filter(|status| status.code() >= 400);
    std::iter::once(Status::Unauthorized).chain(shared)
}

/// Maximum number of targets outside the folder to which links lead. The server's threads get the right
/// to read each of them.
pub(crate) const MAX_TARGETS: usize = 1_000;

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
