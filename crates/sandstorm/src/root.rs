//! The served folder as a descriptor: nothing is opened but what lies in it.
//!
//! Who may write to the folder may exchange its entries while it is loaded.
//! Every entry is therefore opened from the folder's own descriptor by a path
//! in which the kernel follows no link, and judged by what was opened.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat,
};
use rustix::io::Errno;

use crate::skipped::{Reason, unreadable};

/// Links that are followed one after another, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// A folder, open, with all that lies below it.
#[derive(Debug)]
pub(crate) struct Root {
    descriptor: OwnedFd,
    /// Where it really is, without a link.
    path: PathBuf,
}

impl Root {
    /// Opens a folder. A link to it is followed, as whoever starts the server
    /// has named it.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.canonicalize()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = openat(CWD, &path, flags, Mode::empty())?;
        Ok(Self { descriptor, path })
    }

    /// What `path` is, a link itself and not what it leads to. Nothing is
    /// opened for reading, so that a device does not notice.
    pub(crate) fn look(&self, path: &Path) -> io::Result<Stat> {
        Ok(fstat(self.open_below(path, OFlags::PATH)?)?)
    }

    /// Opens a file for reading, without waiting for anybody to write to it.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(self.open_below(path, flags)?.into())
    }

    /// The names in a folder, sorted, and the folder's own status.
    pub(crate) fn list(&self, path: &Path) -> io::Result<(Stat, Vec<OsString>)> {
        let folder = self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let stat = fstat(&folder)?;
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok((stat, names))
    }

    /// Where the link at `link` really leads: a path below the root without a
    /// link in it. Relative links and absolute ones are followed, as long as
    /// they stay inside.
    pub(crate) fn follow(&self, link: &Path) -> Result<PathBuf, Reason> {
        let mut real = PathBuf::new();
        let mut rest: VecDeque<OsString> = link.iter().map(OsStr::to_owned).collect();
        let mut target = PathBuf::new();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                if !real.pop() {
                    return Err(Reason::LeadsOut { target });
                }
                continue;
            }
            let next = real.join(&name);
            let at = match self.open_below(&next, OFlags::PATH) {
                Ok(at) => at,
                Err(Errno::NOENT | Errno::NOTDIR) => return Err(Reason::Dangling { target }),
                Err(error) => return Err(unreadable(error.into())),
            };
            let kind = fstat(&at).map(|stat| file_type(&stat));
            if kind.map_err(|error| unreadable(error.into()))? != FileType::Symlink {
                real = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Reason::Endless);
            }
            let text = readlinkat(&at, "", Vec::new()).map_err(|error| unreadable(error.into()))?;
            target = PathBuf::from(OsString::from_vec(text.into_bytes()));
            let mut way = target.clone();
            if target.is_absolute() {
                way = self.below(&target)?;
                real = PathBuf::new();
            }
            for name in way.iter().rev().filter(|name| *name != ".") {
                rest.push_front(name.to_owned());
            }
        }
        Ok(real)
    }

    /// An absolute path as one below the root.
    fn below(&self, target: &Path) -> Result<PathBuf, Reason> {
        let failed = |error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Reason::Dangling {
                target: target.to_owned(),
            },
            Some(Errno::LOOP) => Reason::Endless,
            _ => Reason::Unreadable(error),
        };
        let path = target.canonicalize().map_err(failed)?;
        let inside = path.strip_prefix(&self.path);
        inside
            .map(Path::to_owned)
            .map_err(|_| Reason::LeadsOut { target: path })
    }

    /// Opens `path` without following a link anywhere in it, at its end
    /// neither.
    fn open_below(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Magic links are links, too.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.descriptor, path, flags, Mode::empty(), resolve)
    }
}

/// The type of what a status is of.
pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
