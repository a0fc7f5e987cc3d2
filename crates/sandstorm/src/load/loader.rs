//! Walks through a folder and all folders below it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::FileVersion;
use rustix::fs::{FileType, Stat};

use super::names::{RULES, is_hidden, key_of};
use super::progress::Progress;
use super::reading::FileReaders;
use crate::finding::{Finding, Warning};
use crate::limits::{Limits, MAX_DEPTH};
use crate::listing::ListingEntry;
use crate::root::{FilePlace, List, RealPath, Root, file_type};
use crate::settings::Settings;
use crate::site::{Builder, INDEX, MAX_TARGETS, Site};
use crate::skipped::{Reason, Skipped, unreadable};

/// A folder that is being loaded.
pub(super) struct LoadedFolder {
    /// The path in URLs, relative to the served folder.
    path: PathBuf,
    /// The real path, without symbolic links.
    real: RealPath,
    /// The remaining entries.
    entries: List,
    /// The entries that are served, for a page that lists them.
    listed: Vec<ListingEntry>,
    /// Whether there is an `index.html`, even one that cannot be served. It is there in place of a list.
    has_index: bool,
}

impl LoadedFolder {
    pub(super) fn new(path: PathBuf, real: RealPath, entries: List) -> Self {
        Self {
            path,
            real,
            entries,
            listed: Vec::new(),
            has_index: false,
        }
    }

    /// The real path of the entry with the last name of this path, which is no link.
    fn real(&self, path: &Path) -> RealPath {
        self.real.join(path.file_name().unwrap_or_default())
    }

    /// The place of the file with the last name of this path, which is no link.
    pub(super) fn place(&self, path: &Path) -> FilePlace {
        let name = path.file_name().unwrap_or_default();
        self.entries.place(name, || self.real(path))
    }

    /// Returns true if the folder is inside the served one, whatever links lead to it.
    pub(super) fn is_inside(&self) -> bool {
        self.real.outside().is_none()
    }

    /// Returns true if a link leads to the folder, or to one around it.
    fn is_linked(&self) -> bool {
        self.real.below_root().as_os_str() != self.path.as_os_str()
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

/// A file that is loaded later.
pub(super) struct Late {
    pub(super) path: PathBuf,
    pub(super) real: RealPath,
    pub(super) len: u64,
    pub(super) version: FileVersion,
}

pub(super) struct Loader<'a, P> {
    /// The path that the user gave.
    pub(super) folder: &'a Path,
    pub(super) root: RealPath,
    /// The root of all folders, if links may lead there.
    pub(super) outer: Option<Arc<Root>>,
    pub(super) limits: &'a Limits,
    pub(super) settings: &'a Settings,
    pub(super) site: Builder,
    /// The folders that lead to the current entry, starting with the served folder.
    pub(super) open: Vec<LoadedFolder>,
    /// Number of folders searched so far.
    pub(super) folders: u64,
    /// The site that is served until this one is loaded.
    pub(super) previous: Option<&'a Site>,
    /// Files with rules of the folder that are left out.
    pub(super) without: &'a [PathBuf],
    /// Reads short files on other threads, if there are many files.
    pub(super) reading: Option<FileReaders>,
    /// Number of files after which these threads are started.
    pub(super) threads_from: u64,
    /// Long files, which are loaded when all others are.
    pub(super) late: Vec<Late>,
    /// The files with users or a key, by device and inode number.
    pub(super) secrets: Vec<((u64, u64), PathBuf)>,
    /// The first of these that would be served, and its path in the folder.
    pub(super) exposed: Option<(PathBuf, PathBuf)>,
    pub(super) progress: P,
}

impl<P: FnMut(Progress<'_>)> Loader<'_, P> {
    /// Counts and reports an entry that is left out.
    pub(super) fn skip(&mut self, path: &Path, reason: Reason) {
        self.site.add_skipped();
        self.report(path, reason);
    }

    /// Reports a further reason why an entry is left out.
    pub(super) fn report(&mut self, path: &Path, reason: Reason) {
        (self.progress)(Progress::Skipped(Skipped {
            path: self.folder.join(path),
            reason,
        }));
    }

    /// Adds everything that depends on all files.
    pub(super) fn finish(&mut self) {
        let mut findings = Vec::new();
        self.site
            .finish(self.previous, &mut |one| findings.push(one));
        findings.extend(self.over_budget());
        for finding in findings {
            match finding {
                Finding::NoTarget { path, rule } => {
                    let name = path.strip_prefix(b"/").unwrap_or(&path);
                    self.skip(OsStr::from_bytes(name).as_ref(), Reason::NoTarget { rule });
                }
                Finding::Warning(warning) => {
                    let folder = self.folder;
                    (self.progress)(Progress::Warning { folder, warning });
                }
            }
        }
    }

    /// The finding that the site takes more than its memory, although all long files are on the disk.
    fn over_budget(&self) -> Option<Finding> {
        let (memory, budget) = (self.site.totals().memory(), self.settings.memory?.bytes());
        let warning = Warning::OverBudget { memory, budget };
        (memory > budget).then_some(Finding::Warning(warning))
    }

    pub(super) fn load_all(&mut self) {
        let mut path = PathBuf::new();
        while let Some(folder) = self.open.last_mut() {
            let Some(name) = folder.entries.next() else {
                self.leave();
                continue;
            };
            if is_hidden(name.as_bytes()) && !self.settings.hidden {
                self.site.add_hidden();
                continue;
            }
            if folder.path.as_os_str().is_empty() && RULES.iter().any(|rules| name == *rules) {
                continue;
            }
            path.clone_from(&folder.path);
            path.push(&name);
            let stat = folder.entries.stat(&name).map_err(unreadable);
            let outcome = stat.and_then(|stat| self.load(&path, stat));
            if let Err(reason) = outcome {
                let ends = matches!(
                    reason,
                    Reason::TooManyFiles { .. } | Reason::TooManyFolders { .. }
                );
                self.skip(&path, reason);
                self.note_index(&path);
                if ends {
                    // The remaining entries may be indexes, so nothing is listed.
                    self.open.clear();
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
            outer.listed.push(ListingEntry {
                name: name.as_bytes().to_vec(),
                is_folder: true,
                len: 0,
                modified,
            });
        }
        if !folder.has_index {
            self.site
                .add_listing(&folder.url_path(), modified, folder.listed);
        }
    }

    /// Notes that the innermost folder has this entry, which is no folder.
    fn note_index(&mut self, path: &Path) {
        if let Some(folder) = self.open.last_mut() {
            folder.has_index |= path.file_name() == Some(OsStr::from_bytes(INDEX));
        }
    }

    /// Loads one entry of the innermost folder. `path` is its path in URLs, and `stat` its status. If the
    /// entry is a folder, its entries are loaded next.
    fn load(&mut self, path: &Path, mut stat: Stat) -> Result<(), Reason> {
        let mut target = None;
        if file_type(&stat) == FileType::Symlink {
            let real = self.follow(&self.real(path, None))?;
            stat = real.stat().map_err(unreadable)?;
            target = Some(real);
        }
        let outcome = self.load_real(path, target.as_ref(), &stat);
        outcome.map_err(|reason| match reason {
            Reason::Unreadable(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let outside = self.real(path, target.as_ref()).outside();
                outside.map_or(Reason::Unreadable(error), |target| Reason::TargetClosed {
                    target,
                })
            }
            reason => reason,
        })
    }

    /// Returns the path of an entry in the file system: the `target` of a link, or the entry itself. Only
    /// its last component may be a symbolic link.
    pub(super) fn real(&self, path: &Path, target: Option<&RealPath>) -> RealPath {
        match (target, self.open.last()) {
            (Some(target), _) => target.clone(),
            (None, Some(folder)) => folder.real(path),
            (None, None) => self.root.join(path),
        }
    }

    /// Resolves a link. Notes the target if it is outside the folder.
    fn follow(&mut self, link: &RealPath) -> Result<RealPath, Reason> {
        let real = link.follow(self.outer.as_ref())?;
        match real.outside() {
            Some(target) if !self.site.note_outside(&target) => {
                let limit = MAX_TARGETS;
                Err(Reason::TooManyTargets { target, limit })
            }
            _ => Ok(real),
        }
    }

    /// Loads one entry, which is no link. If a link leads to it, `target` is its path.
    fn load_real(
        &mut self,
        path: &Path,
        target: Option<&RealPath>,
        stat: &Stat,
    ) -> Result<(), Reason> {
        if target.is_some() || self.open.last().is_some_and(LoadedFolder::is_linked) {
            let real = self.real(path, target);
            if real.outside().is_none() && real.below_root() != path {
                self.site
                    .note_link(&key_of(path), &key_of(real.below_root()));
            }
        }
        match file_type(stat) {
            FileType::RegularFile => {
                self.note_secret(path, stat);
                self.add_file(path, target, stat)?;
                self.list_file(path, stat);
                Ok(())
            }
            FileType::Directory => self.enter(path, self.real(path, target)),
            kind => Err(Reason::Special {
                kind: name_of(kind),
            }),
        }
    }

    /// Adds a file to the list of its folder.
    fn list_file(&mut self, path: &Path, stat: &Stat) {
        self.note_index(path);
        if self.settings.listings
            && let (Some(folder), Some(name)) = (self.open.last_mut(), path.file_name())
        {
            folder.listed.push(ListingEntry {
                name: name.as_bytes().to_vec(),
                is_folder: false,
                len: stat.st_size.cast_unsigned(),
                modified: stat.st_mtime,
            });
        }
    }

    fn enter(&mut self, path: &Path, real: RealPath) -> Result<(), Reason> {
        if self.open.len() == MAX_DEPTH {
            return Err(Reason::TooDeep);
        }
        if self.folders >= self.limits.folders {
            let limit = self.limits.folders;
            return Err(Reason::TooManyFolders { limit });
        }
        let list = real.list().map_err(unreadable)?;
        if self
            .open
            .iter()
            .any(|outer| outer.entries.id() == list.id())
        {
            return Err(Reason::Circular);
        }
        self.folders += 1;
        self.open
            .push(LoadedFolder::new(path.to_owned(), real, list));
        Ok(())
    }
}

/// Names the kind of an entry that is no file, with its article.
pub(super) fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a folder",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "of an unknown kind",
    }
}
