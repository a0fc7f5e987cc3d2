//! Loads a folder: all its files, except hidden ones and those that cannot be served.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

use crate::disk::DiskFile;
use crate::listing::Entry;
use crate::login::{RealmFile, Users};
use crate::root::{List, Root, file_type};
use crate::rules::{LineError, parse_headers, parse_redirects};
use crate::settings::Settings;
use crate::site::{Builder, MAX_FILE_LEN, NextSite, Site, Totals, Version};
use crate::skipped::{Reason, Skipped, unreadable};

/// The only name with a leading dot that is served (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// The file with a folder's redirects. Like [`HEADERS`], it is read at load and not served.
const REDIRECTS: &str = "_redirects";
/// The file with rules for the fields of a folder's files.
const HEADERS: &str = "_headers";
/// The files with a folder's rules.
pub(crate) const RULES: [&str; 2] = [REDIRECTS, HEADERS];
/// Maximum length of these files in bytes.
const MAX_RULES_LEN: u64 = 1 << 20;

/// Maximum depth of nested folders. The served folder itself counts as one.
pub(crate) const MAX_DEPTH: usize = 64;

/// Limits on what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of files; 1,000,000 by default.
    pub files: u64,
    /// Maximum total size of the files in bytes; 16 GiB by default. Further files are left out.
    pub bytes: u64,
    /// Maximum number of folders to search; 1,000,000 by default. A folder counts once per path
    /// that leads to it, because a few links can create a huge number of paths.
    pub folders: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 1_000_000,
            bytes: 16 << 30,
            folders: 1_000_000,
        }
    }
}

/// Events that are reported while a folder is loaded.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A file was loaded. The totals include this file.
    Loaded(&'a Totals),
    /// An entry of a folder was left out because it cannot be served.
    Skipped(Skipped),
}

/// Why a folder could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The folder cannot be read.
    #[error("cannot read {}: {source}; make it readable", path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The folder does not exist.
    #[error("there is no folder {}; name the folder that the files are in", path.display())]
    Missing {
        /// The path that was given.
        path: PathBuf,
    },
    /// The path is not a folder.
    #[error("{} is not a folder; name the folder that the files are in", path.display())]
    NotAFolder {
        /// The path that was given.
        path: PathBuf,
    },
    /// The rules of the folder cannot be read. Nothing is served without them, because they may protect
    /// files.
    #[error("{} {reason}", path.display())]
    Rules {
        /// The file with the rules.
        path: PathBuf,
        /// Why it cannot be read.
        reason: Reason,
    },
    /// A file with users cannot be used.
    #[error("{} {reason}", path.display())]
    Users {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
    /// The folder contains no file, apart from hidden ones.
    #[error("there is no file to serve in {}; files whose name begins with a dot do not count", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// No file was loaded, and at least one entry was left out because it cannot be served.
    #[error("no file in {} can be served; entries left out, each with its reason: {skipped}", path.display())]
    AllSkipped {
        /// The folder.
        path: PathBuf,
        /// Number of entries that were left out.
        skipped: u64,
    },
}

impl Site {
    /// Loads the files of `folder` and its subfolders, within `limits`. `progress` is called for
    /// each file, and for each entry that is left out because it cannot be served.
    ///
    /// Hidden files and folders, whose names begin with a dot, are left out, except `.well-known`.
    /// Symbolic links are followed if they stay inside the folder.
    ///
    /// # Errors
    /// [`LoadError`], if the folder cannot be read or has no file that can be served.
    pub fn load(
        folder: &Path,
        limits: &Limits,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<Self, LoadError> {
        Self::load_with(folder, limits, &Settings::default(), progress)
    }

    /// Same as [`load`](Self::load), with `settings`.
    ///
    /// # Errors
    /// [`LoadError`], if the folder cannot be read or has no file that can be served.
    pub fn load_with(
        folder: &Path,
        limits: &Limits,
        settings: &Settings,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<Self, LoadError> {
        Ok(builder_of(folder, limits, settings, None, progress)?.into_site())
    }

    /// Loads the folder again. Files that have not changed since `self` was loaded are neither read
    /// nor copied. A file that changes while it is read keeps its old content.
    ///
    /// # Errors
    /// [`LoadError`], if the folder cannot be read or has no file that can be served.
    pub(crate) fn load_next(
        &self,
        folder: &Path,
        limits: &Limits,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<NextSite, LoadError> {
        let builder = builder_of(folder, limits, self.settings(), Some(self), progress)?;
        Ok(builder.into_next(self))
    }
}

/// Loads a folder into a builder, and finishes the site.
fn builder_of(
    folder: &Path,
    limits: &Limits,
    settings: &Settings,
    previous: Option<&Site>,
    progress: impl FnMut(Progress<'_>),
) -> Result<Builder, LoadError> {
    let path = || folder.to_owned();
    let root = Root::open(folder).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LoadError::Missing { path: path() },
        io::ErrorKind::NotADirectory => LoadError::NotAFolder { path: path() },
        _ => LoadError::Unreadable {
            path: path(),
            source,
        },
    })?;
    let list = root.list(Path::new("")).map_err(|source| {
        let path = path();
        LoadError::Unreadable { path, source }
    })?;
    let mut site = Builder::with_settings(SystemTime::now(), settings);
    site.check_codings();
    if let Some(previous) = previous {
        site.reserve_for(previous);
    }
    let mut loader = Loader {
        folder,
        root: Arc::new(root),
        limits,
        settings,
        site,
        open: vec![Folder::new(PathBuf::new(), PathBuf::new(), list)],
        folders: 1,
        previous,
        late: Vec::new(),
        progress,
    };
    loader.load_users()?;
    loader.load_rules()?;
    loader.load_all();
    loader.load_late();
    loader.finish();
    let totals = *loader.site.totals();
    match totals.files {
        0 if totals.skipped == 0 => Err(LoadError::Empty { path: path() }),
        0 => Err(LoadError::AllSkipped {
            path: path(),
            skipped: totals.skipped,
        }),
        _ => Ok(loader.site),
    }
}

/// Returns true if an entry's name begins with a dot, so that it is left out without a warning.
fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != WELL_KNOWN
}

/// A folder that is being loaded.
struct Folder {
    /// The path in URLs, relative to the served folder.
    path: PathBuf,
    /// The real path relative to the served folder, without symbolic links.
    real: PathBuf,
    /// The remaining entries.
    entries: List,
    /// The entries that are served, for a page that lists them.
    listed: Vec<Entry>,
}

impl Folder {
    fn new(path: PathBuf, real: PathBuf, entries: List) -> Self {
        Self {
            path,
            real,
            entries,
            listed: Vec::new(),
        }
    }

    /// Returns the path in URLs, with its slashes.
    fn url_path(&self) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        match path {
            [] => b"/".to_vec(),
            path => [b"/", path, b"/"].concat(),
        }
    }
}

struct Loader<'a, P> {
    /// The path that the user gave.
    folder: &'a Path,
    root: Arc<Root>,
    limits: &'a Limits,
    settings: &'a Settings,
    site: Builder,
    /// The folders that lead to the current entry, starting with the served folder.
    open: Vec<Folder>,
    /// Number of folders searched so far.
    folders: u64,
    /// The site that is served until this one is loaded.
    previous: Option<&'a Site>,
    /// Long files, which are loaded when all others are.
    late: Vec<Late>,
    progress: P,
}

/// A file that is loaded later.
struct Late {
    path: PathBuf,
    real: PathBuf,
    len: u64,
    version: Version,
}

impl<P: FnMut(Progress<'_>)> Loader<'_, P> {
    /// Reads the files with users.
    fn load_users(&mut self) -> Result<(), LoadError> {
        for RealmFile { path, file } in &self.settings.realms {
            let failed = |reason| LoadError::Users {
                path: file.clone(),
                reason,
            };
            let users = Users::load(file).map_err(|error| failed(error.to_string()))?;
            if self.would_serve(file) {
                let reason = "is in the served folder; move it out, because it has secrets";
                return Err(failed(reason.to_owned()));
            }
            self.site.add_realm(path.clone(), Arc::new(users));
        }
        Ok(())
    }

    /// Returns true if a file is in the folder and not hidden.
    fn would_serve(&self, file: &Path) -> bool {
        let real = (file.canonicalize(), self.folder.canonicalize());
        let (Ok(file), Ok(folder)) = real else {
            return false;
        };
        let is_shown = |part: &OsStr| self.settings.hidden || !is_hidden(part.as_bytes());
        file.strip_prefix(folder)
            .is_ok_and(|below| below.iter().all(is_shown))
    }

    /// Reads the rules of the folder.
    fn load_rules(&mut self) -> Result<(), LoadError> {
        let (redirects, wrong) = parse_redirects(&self.rules_text(REDIRECTS)?);
        self.report_lines(REDIRECTS, wrong);
        let (headers, wrong) = parse_headers(&self.rules_text(HEADERS)?);
        self.report_lines(HEADERS, wrong);
        let headers = headers.into_iter().collect();
        self.site.add_rules(redirects, headers);
        Ok(())
    }

    /// Returns the text of a file with rules, or an empty text if there is none. A file that cannot be
    /// read is an error, because its rules may protect other files.
    fn rules_text(&mut self, name: &str) -> Result<String, LoadError> {
        let failed = |reason| LoadError::Rules {
            path: self.folder.join(name),
            reason,
        };
        let mut real = PathBuf::from(name);
        match self.root.stat(&real) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Ok(stat) if file_type(&stat) == FileType::Symlink => {
                real = self.root.follow(&real).map_err(failed)?;
            }
            _ => {}
        }
        let file = self
            .root
            .file(&real)
            .map_err(|error| failed(unreadable(error)))?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_RULES_LEN + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(Reason::Unreadable(error)))?;
        if bytes.len() as u64 > MAX_RULES_LEN {
            return Err(failed(Reason::RulesTooLong {
                limit: MAX_RULES_LEN,
            }));
        }
        String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + memchr::memchr_iter(b'\n', before).count();
            failed(Reason::NotUtf8 { line })
        })
    }

    fn report_lines(&mut self, name: &str, wrong: Vec<LineError>) {
        for LineError { line, why } in wrong {
            self.skip(name.as_ref(), Reason::Rule { line, why });
        }
    }

    /// Counts and reports an entry that is left out.
    fn skip(&mut self, path: &Path, reason: Reason) {
        self.site.add_skipped();
        (self.progress)(Progress::Skipped(Skipped {
            path: self.folder.join(path),
            reason,
        }));
    }

    /// Adds everything that depends on all files.
    fn finish(&mut self) {
        let mut missing = Vec::new();
        let mut report = |path: &[u8], rule: &str| missing.push((path.to_vec(), rule.to_owned()));
        self.site.finish(self.previous, &mut report);
        for (path, rule) in missing {
            let name = path.strip_prefix(b"/").unwrap_or(&path);
            self.skip(OsStr::from_bytes(name).as_ref(), Reason::NoTarget { rule });
        }
    }

    fn load_all(&mut self) {
        while let Some(folder) = self.open.last_mut() {
            let Some(name) = folder.entries.next() else {
                self.leave();
                continue;
            };
            if is_hidden(name.as_bytes()) && !self.settings.hidden {
                self.site.add_hidden();
                continue;
            }
            if folder.path.as_os_str().is_empty() && (name == REDIRECTS || name == HEADERS) {
                continue;
            }
            let path = folder.path.join(&name);
            let real = folder.real.join(&name);
            let stat = folder.entries.stat(&name).map_err(unreadable);
            let outcome = stat.and_then(|stat| self.load(&path, real, stat));
            if let Err(reason) = outcome {
                let ends = matches!(
                    reason,
                    Reason::TooManyFiles { .. } | Reason::TooManyFolders { .. }
                );
                self.skip(&path, reason);
                if ends {
                    while !self.open.is_empty() {
                        self.leave();
                    }
                }
            }
        }
    }

    /// Leaves the innermost folder, whose entries have all been loaded.
    fn leave(&mut self) {
        let Some(folder) = self.open.pop() else {
            return;
        };
        if !self.settings.listings {
            return;
        }
        let modified = folder.entries.modified();
        if let (Some(outer), Some(name)) = (self.open.last_mut(), folder.path.file_name()) {
            outer.listed.push(Entry {
                name: name.as_bytes().to_vec(),
                is_folder: true,
                len: 0,
                modified,
            });
        }
        self.site
            .add_listing(&folder.url_path(), modified, &folder.listed);
    }

    /// Loads one entry. `path` is its path in URLs. `real` is its path in the file system, in which
    /// only the last component may be a symbolic link. `stat` is the entry's status. If the entry is a folder, its entries are
    /// loaded next.
    fn load(&mut self, path: &Path, mut real: PathBuf, mut stat: Stat) -> Result<(), Reason> {
        if file_type(&stat) == FileType::Symlink {
            real = self.root.follow(&real)?;
            stat = self.root.stat(&real).map_err(unreadable)?;
        }
        match file_type(&stat) {
            FileType::RegularFile => {
                self.add_file(path, real, &stat)?;
                self.list_file(path, &stat);
                Ok(())
            }
            FileType::Directory => self.enter(path, real),
            kind => Err(Reason::Special {
                kind: name_of(kind),
            }),
        }
    }

    /// Adds a file to the list of its folder.
    fn list_file(&mut self, path: &Path, stat: &Stat) {
        if self.settings.listings
            && let (Some(folder), Some(name)) = (self.open.last_mut(), path.file_name())
        {
            folder.listed.push(Entry {
                name: name.as_bytes().to_vec(),
                is_folder: false,
                len: stat.st_size.cast_unsigned(),
                modified: stat.st_mtime.try_into().unwrap_or_default(),
            });
        }
    }

    fn enter(&mut self, path: &Path, real: PathBuf) -> Result<(), Reason> {
        if self.open.len() == MAX_DEPTH {
            return Err(Reason::TooDeep);
        }
        if self.folders >= self.limits.folders {
            let limit = self.limits.folders;
            return Err(Reason::TooManyFolders { limit });
        }
        let list = self.root.list(&real).map_err(unreadable)?;
        if self
            .open
            .iter()
            .any(|outer| outer.entries.id() == list.id())
        {
            return Err(Reason::Circular);
        }
        self.folders += 1;
        self.open.push(Folder::new(path.to_owned(), real, list));
        Ok(())
    }

    /// Adds a file: from the previous site if it has not changed, and else by reading it. A file that is
    /// long for the memory left is added later.
    fn add_file(&mut self, path: &Path, real: PathBuf, stat: &Stat) -> Result<(), Reason> {
        let key = key_of(path);
        let len = stat.st_size.cast_unsigned();
        self.check_limits(len)?;
        let version = version_of(stat);
        if let Some(previous) = self.previous
            && self.site.keep_file(&key, previous, Some(version))
        {
            return Ok(());
        }
        let used = self.site.totals().memory();
        let memory = self.settings.memory;
        if memory.is_some_and(|memory| memory.is_big(len, used)) {
            self.late.push(Late {
                path: path.to_owned(),
                real,
                len,
                version,
            });
            return Ok(());
        }
        self.read_or_keep(path, &real)
    }

    /// Adds the long files: the shorter ones as long as there is memory, and the others as files on the
    /// disk.
    fn load_late(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        late.sort_by_key(|file| file.len);
        for file in late {
            if let Err(reason) = self.add_late(&file) {
                self.skip(&file.path, reason);
            }
        }
    }

    fn add_late(&mut self, file: &Late) -> Result<(), Reason> {
        self.check_limits(file.len)?;
        let used = self.site.totals().memory();
        let memory = self.settings.memory;
        if file.len <= MAX_FILE_LEN && memory.is_none_or(|memory| memory.fits(file.len, used)) {
            return self.read_or_keep(&file.path, &file.real);
        }
        // Nothing is served that cannot be read.
        self.root.file(&file.real).map_err(unreadable)?;
        let (seconds, nanos) = file.version.modified;
        let modified = UNIX_EPOCH
            + Duration::new(
                seconds.try_into().unwrap_or_default(),
                nanos.unsigned_abs() as u32,
            );
        let key = key_of(&file.path);
        let on_disk = DiskFile::new(&self.root, &file.real, file.version);
        self.site.add_disk_file(&key, modified, Arc::new(on_disk));
        self.site.note_version(&key, file.version);
        (self.progress)(Progress::Loaded(self.site.totals()));
        Ok(())
    }

    /// Reads a file. If it changes meanwhile, it keeps the content that it has in the previous site.
    fn read_or_keep(&mut self, path: &Path, real: &Path) -> Result<(), Reason> {
        let key = key_of(path);
        match (self.read_file(&key, real), self.previous) {
            (Err(Reason::Changed), Some(previous)) if self.site.keep_file(&key, previous, None) => {
                let path = self.folder.join(path);
                tracing::warn!(
                    "{} changed while it was read, so it keeps its old content; reload again",
                    path.display()
                );
                Ok(())
            }
            (outcome, _) => outcome,
        }
    }

    fn check_limits(&self, len: u64) -> Result<(), Reason> {
        let totals = self.site.totals();
        if len > MAX_FILE_LEN && self.settings.memory.is_none() {
            return Err(Reason::FileTooLong { len });
        }
        if totals.files >= self.limits.files {
            let limit = self.limits.files;
            return Err(Reason::TooManyFiles { limit });
        }
        if totals.content_bytes.saturating_add(len) > self.limits.bytes {
            let limit = self.limits.bytes;
            return Err(Reason::TooManyBytes { len, limit });
        }
        Ok(())
    }

    /// Reads a file whose path in URLs is `key`.
    fn read_file(&mut self, key: &[u8], real: &Path) -> Result<(), Reason> {
        let mut file = self.root.file(real).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        // The entry may have been replaced since `load` checked its type.
        if !metadata.is_file() {
            return Err(Reason::Changed);
        }
        let modified = metadata.modified().map_err(unreadable)?;
        let len = metadata.len();
        self.check_limits(len)?;
        self.site.add_file(key, modified, len as usize, |buffer| {
            read_exactly(&mut file, buffer, modified)
        })?;
        self.site.note_version(key, Version::of(&metadata));
        (self.progress)(Progress::Loaded(self.site.totals()));
        Ok(())
    }
}

/// Returns the path in URLs.
fn key_of(path: &Path) -> Vec<u8> {
    [b"/", path.as_os_str().as_bytes()].concat()
}

fn version_of(stat: &Stat) -> Version {
    // The type of the nanoseconds depends on the system.
    fn nanos(nanos: impl TryInto<i64>) -> i64 {
        nanos.try_into().unwrap_or_default()
    }
    Version {
        file: (stat.st_dev, stat.st_ino),
        len: stat.st_size.cast_unsigned(),
        modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
        changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
    }
}

/// Reads a file into `buffer`. Fails if the file's length differs from that of `buffer`, or its
/// modification time from `modified`.
fn read_exactly(file: &mut File, buffer: &mut [u8], modified: SystemTime) -> Result<(), Reason> {
    file.read_exact(buffer)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Reason::Changed,
            _ => Reason::Unreadable(error),
        })?;
    let metadata = file.metadata().map_err(unreadable)?;
    let now = metadata.modified().map_err(unreadable)?;
    let more = file.read(&mut [0]).map_err(unreadable)?;
    if more == 0 && metadata.len() == buffer.len() as u64 && now == modified {
        Ok(())
    } else {
        Err(Reason::Changed)
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "of an unknown kind",
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "load_rules_tests.rs"]
mod rules_tests;
