//! Opens entries of the served folder through its descriptor. Opens an entry outside the folder only if
//! a link leads there, and the operator allows such links.
//!
//! Anyone with write access to the folder could replace entries during loading. Therefore every
//! entry is opened relative to the folder's descriptor, one component of its path after the other,
//! and the kernel follows no link. A file that is read is checked once more after it was opened.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat,
};
use rustix::io::Errno;

use crate::skipped::{Reason, unreadable};

/// Maximum number of links to follow to resolve one path. The kernel has the same limit.
const MAX_LINKS: usize = 40;

/// Opening a file with these flags never blocks, not even if it is a named pipe without a writer.
const FOR_READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Minimum number of entries of a folder that stays open while its files are read. So only few folders
/// are open at a time.
const MIN_ENTRIES: usize = 32;

/// A file that can be opened for reading.
pub(crate) enum FilePlace {
    /// The name in an open folder. It takes a single call to open the file, however deep the folder is.
    InFolder(Arc<OwnedFd>, OsString),
    Real(RealPath),
}

impl FilePlace {
    /// Opens the file, as [`RealPath::file`] does.
    pub(crate) fn open(&self) -> io::Result<File> {
        match self {
            Self::InFolder(folder, name) => {
                let flags = FOR_READING | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Ok(openat(folder, name, flags, Mode::empty())?.into())
            }
            Self::Real(path) => path.file(),
        }
    }
}

/// The entries of an open folder.
pub(crate) struct List {
    folder: Arc<OwnedFd>,
    stat: Stat,
    /// Number of all entries.
    len: usize,
    names: std::vec::IntoIter<OsString>,
}

impl List {
    /// Returns the folder's device and inode number, which are the same for every path to it.
    pub(crate) fn id(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Returns the time of the folder's last change, in seconds since 1970.
    pub(crate) fn modified(&self) -> i64 {
        self.stat.st_mtime
    }

    /// Returns the status of an entry, without following links or opening the entry.
    pub(crate) fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The place of the file with this name, which is no link. `real` returns its path.
    pub(crate) fn place(&self, name: &OsStr, real: impl FnOnce() -> RealPath) -> FilePlace {
        if self.len < MIN_ENTRIES {
            return FilePlace::Real(real());
        }
        FilePlace::InFolder(Arc::clone(&self.folder), name.to_owned())
    }
}

/// The remaining names, in ascending order.
impl Iterator for List {
    type Item = OsString;

    fn next(&mut self) -> Option<OsString> {
        self.names.next()
    }
}

/// Which symbolic links are followed.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowLinks {
    /// Only those that stay inside the folder.
    #[default]
    Inside,
    /// Also those that lead to other folders.
    All,
}

/// The path of an entry below an open folder. Only its last component may be a link.
#[derive(Clone, Debug)]
pub(crate) struct RealPath {
    root: Arc<Root>,
    path: PathBuf,
}

impl RealPath {
    /// The path of the folder itself.
    pub(crate) fn of(root: &Arc<Root>) -> Self {
        Self {
            root: Arc::clone(root),
            path: PathBuf::new(),
        }
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> Self {
        Self {
            root: Arc::clone(&self.root),
            path: self.path.join(name),
        }
    }

    pub(crate) fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// The path below the root.
    pub(crate) fn below_root(&self) -> &Path {
        &self.path
    }

    /// The absolute path, if the entry is outside the served folder.
    pub(crate) fn outside(&self) -> Option<PathBuf> {
        self.root.is_outer.then(|| self.root.path.join(&self.path))
    }

    /// Same as [`Root::stat`].
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        self.root.stat(&self.path)
    }

    /// Same as [`Root::file`].
    pub(crate) fn file(&self) -> io::Result<File> {
        self.root.file(&self.path)
    }

    /// Same as [`Root::list`].
    pub(crate) fn list(&self) -> io::Result<List> {
        self.root.list(&self.path)
    }

    /// Resolves the link at this path to a path without links. A link may lead out of the root if
    /// `outer` is given, the root of all folders.
    pub(crate) fn follow(&self, outer: Option<&Arc<Root>>) -> Result<Self, Reason> {
        let (root, path) = match (self.root.follow(&self.path), outer) {
            (Err(Reason::LeadsOut { target }), Some(outer)) => {
                let link = self.root.path.join(&self.path);
                let path = link.canonicalize().map_err(failed_at(&target))?;
                match path.strip_prefix(&self.root.path) {
                    // Another link on the way leads back.
                    Ok(inside) => (&self.root, inside.to_owned()),
                    Err(_) => (outer, outer.below(&path)?),
                }
            }
            (path, _) => (&self.root, path?),
        };
        let root = Arc::clone(root);
        Ok(Self { root, path })
    }
}

/// Returns the reason for which a link to `target` cannot be resolved.
fn failed_at(target: &Path) -> impl Fn(io::Error) -> Reason + '_ {
    |error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR) => Reason::Dangling {
            target: target.to_owned(),
        },
        Some(Errno::LOOP) => Reason::Endless,
        _ => Reason::Unreadable(error),
    }
}

/// An open folder, which gives access to everything below it.
#[derive(Debug)]
pub(crate) struct Root {
    descriptor: OwnedFd,
    /// Device and inode number.
    id: (u64, u64),
    /// The real path, without symbolic links.
    path: PathBuf,
    /// Whether this is the root of all folders, and not the served folder.
    is_outer: bool,
}

impl Root {
    /// Opens a folder. Follows the path if it is a link, because the operator chose it.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.canonicalize()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::at(path, flags, false)
    }

    /// Opens the root of all folders. Needs no right to read it.
    pub(crate) fn outer() -> io::Result<Self> {
        let path = PathBuf::from("/");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::at(path, flags, true)
    }

    fn at(path: PathBuf, flags: OFlags, is_outer: bool) -> io::Result<Self> {
        let descriptor = openat(CWD, &path, flags, Mode::empty())?;
        let stat = fstat(&descriptor)?;
        Ok(Self {
            descriptor,
            id: (stat.st_dev, stat.st_ino),
            path,
            is_outer,
        })
    }

    /// Whether this is the same folder as `other`, whatever its path is now.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Returns the status of `path` without following links. The entry is not opened for reading,
    /// because that can have side effects if the entry is a device.
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(fstat(self.open_below(path, OFlags::PATH)?)?)
    }

    /// Opens a file for reading. Never blocks, not even on a named pipe without a writer.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        Ok(self.open_below(path, FOR_READING)?.into())
    }

    /// Opens a folder and reads its names.
    fn list(&self, path: &Path) -> io::Result<List> {
        let folder = self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let stat = fstat(&folder)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(List {
            folder: Arc::new(folder),
            stat,
            len: names.len(),
            names: names.into_iter(),
        })
    }

    /// Resolves the link at `link` to a path without links. Follows relative and absolute links as
    /// long as they stay inside the root.
    fn follow(&self, link: &Path) -> Result<PathBuf, Reason> {
        let mut real = PathBuf::new();
        let mut components: VecDeque<OsString> = link.iter().map(OsStr::to_owned).collect();
        let mut target = PathBuf::new();
        let mut links = 0;
        while let Some(name) = components.pop_front() {
            if name == ".." {
                if !real.pop() {
                    // The path may lead back to the root.
                    let rest: PathBuf = components.iter().collect();
                    let outside = self.path.parent().unwrap_or(&self.path).join(rest);
                    return self
                        .below(&outside)
                        .map_err(|_| Reason::LeadsOut { target });
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
            let mut relative_target = target.clone();
            if target.is_absolute() {
                relative_target = self.below(&target)?;
                real = PathBuf::new();
            }
            for name in relative_target.iter().rev().filter(|name| *name != ".") {
                components.push_front(name.to_owned());
            }
        }
        Ok(real)
    }

    /// Converts an absolute path to one relative to the root.
    fn below(&self, target: &Path) -> Result<PathBuf, Reason> {
        let path = target.canonicalize().map_err(failed_at(target))?;
        let inside = path.strip_prefix(&self.path);
        inside
            .map(Path::to_owned)
            .map_err(|_| Reason::LeadsOut { target: path })
    }

    /// Opens `path` without following any link in it, including the last component.
    fn open_below(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let open = |folder: Option<&OwnedFd>, name: &OsStr, flags| {
            let folder = folder.unwrap_or(&self.descriptor).as_fd();
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(folder, name, flags, Mode::empty())
        };
        let mut folder = None;
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            // Other components, such as `..`, could lead out of the folder. Callers pass none.
            let Component::Normal(name) = component else {
                return Err(Errno::INVAL);
            };
            if components.peek().is_none() {
                return open(folder.as_ref(), name, flags);
            }
            folder = Some(open(
                folder.as_ref(),
                name,
                OFlags::PATH | OFlags::DIRECTORY,
            )?);
        }
        open(None, OsStr::new("."), flags)
    }
}

/// Returns the type of the file that `stat` describes.
pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
