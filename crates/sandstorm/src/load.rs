//! Loading a folder: once, whole, or not at all.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use walkdir::{DirEntry, WalkDir};

use crate::site::{Builder, MAX_FILE_LEN, Site, Totals};

/// Hidden, and served all the same (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// Folders inside each other, the one that is served included.
const MAX_DEPTH: usize = 64;

/// How much is loaded at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files: 1,000,000 by default.
    pub files: u64,
    /// Bytes of all files: 16 GiB by default. All of them are kept in memory.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 1_000_000,
            bytes: 16 << 30,
        }
    }
}

/// Why a folder was not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The folder to be served, one in it, or an entry of one cannot be read.
    #[error("cannot read {}: {source}; make it readable, or take it out of the folder", path.display())]
    Unreadable {
        /// What cannot be read.
        path: PathBuf,
        /// The system's word on it.
        source: io::Error,
    },
    /// What is to be served is no folder, or is not there.
    #[error("{} is not a folder; name the folder that the files are in", path.display())]
    NotAFolder {
        /// What it was to be.
        path: PathBuf,
    },
    /// No file at all.
    #[error("there is no file to serve in {}; files whose name begins with a dot do not count", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A symbolic link leads out of the folder.
    #[error(
        "{} is a link to {}, which is not in the folder that is served; remove the link, or put a copy in its place",
        link.display(), target.display()
    )]
    LeadsOut {
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A symbolic link leads to a folder that it lies in.
    #[error("{} is a link to {}, in which it lies itself; remove the link", link.display(), target.display())]
    Circular {
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Neither a file nor a folder.
    #[error("{} is neither a file nor a folder; take it out of the folder", path.display())]
    Special {
        /// The device, pipe or socket.
        path: PathBuf,
    },
    /// A file has got longer or shorter while it was read.
    #[error("{} has changed while it was read; start again when it is complete", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file is longer than [`MAX_FILE_LEN`].
    #[error("{} has {len} bytes, more than the {MAX_FILE_LEN} of one response; serve it in parts", path.display())]
    FileTooLong {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        len: u64,
    },
    /// Folders lie deeper in each other than anybody wants.
    #[error("{} lies {MAX_DEPTH} folders deep; no file is served from there", path.display())]
    TooDeep {
        /// The folder.
        path: PathBuf,
    },
    /// More files than [`Limits::files`].
    #[error("there are more than {limit} files in {}; raise --max-files, or serve less", path.display())]
    TooManyFiles {
        /// The folder that is served.
        path: PathBuf,
        /// How many are allowed.
        limit: u64,
    },
    /// More bytes than [`Limits::bytes`].
    #[error("the files in {} have more than {limit} bytes, and all are kept in memory; raise --max-bytes, or serve less", path.display())]
    TooManyBytes {
        /// The folder that is served.
        path: PathBuf,
        /// How many are allowed.
        limit: u64,
    },
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> LoadError {
    let path = path.to_owned();
    |source| LoadError::Unreadable { path, source }
}

impl Site {
    /// Loads all files of `folder` and of the folders in it. `progress` is
    /// told what has been loaded after each file.
    ///
    /// Hidden files and folders, whose names begin with a dot, are left out,
    /// but for `.well-known`. Symbolic links are followed inside the folder.
    ///
    /// # Errors
    /// [`LoadError`]: one file that cannot be served as it should ends it,
    /// and nothing is served.
    pub fn load(
        folder: &Path,
        limits: &Limits,
        mut progress: impl FnMut(&Totals),
    ) -> Result<Self, LoadError> {
        // Links are compared with where the folder really is.
        let root = match folder.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            root => Some(root.map_err(unreadable(folder))?),
        };
        let Some(root) = root.filter(|root| root.is_dir()) else {
            return Err(LoadError::NotAFolder {
                path: folder.to_owned(),
            });
        };
        let mut loader = Loader {
            folder,
            root: &root,
            limits,
            site: Builder::new(SystemTime::now()),
        };
        let mut entries = WalkDir::new(folder)
            .follow_links(true)
            .max_depth(MAX_DEPTH)
            .sort_by_file_name()
            .into_iter();
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) if is_hidden(entry.depth(), entry.path()) => {
                    loader.site.add_hidden();
                    if entry.file_type().is_dir() {
                        entries.skip_current_dir();
                    }
                }
                Ok(entry) => {
                    loader.load(&entry)?;
                    progress(loader.site.totals());
                }
                // A link that leads nowhere, such as an editor's lock.
                Err(error) if is_hidden(error.depth(), error.path().unwrap_or(folder)) => {
                    loader.site.add_hidden();
                }
                Err(error) => return Err(walk_error(folder, error)),
            }
        }
        if loader.site.totals().files == 0 {
            return Err(LoadError::Empty {
                path: folder.to_owned(),
            });
        }
        Ok(loader.site.build())
    }
}

/// Whether an entry is left out. The folder that is served never is.
fn is_hidden(depth: usize, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    depth > 0 && name.starts_with(b".") && name != WELL_KNOWN
}

fn walk_error(folder: &Path, error: walkdir::Error) -> LoadError {
    let path = error.path().unwrap_or(folder).to_owned();
    match error.loop_ancestor() {
        Some(target) => LoadError::Circular {
            link: path,
            target: target.to_owned(),
        },
        None => LoadError::Unreadable {
            path,
            source: error
                .into_io_error()
                .unwrap_or_else(|| io::ErrorKind::Other.into()),
        },
    }
}

struct Loader<'a> {
    /// As the user has named it.
    folder: &'a Path,
    /// Where it really is.
    root: &'a Path,
    limits: &'a Limits,
    site: Builder,
}

impl Loader<'_> {
    fn load(&mut self, entry: &DirEntry) -> Result<(), LoadError> {
        let path = entry.path();
        if entry.path_is_symlink() && entry.depth() > 0 {
            let target = path.canonicalize().map_err(unreadable(path))?;
            if !target.starts_with(self.root) {
                return Err(LoadError::LeadsOut {
                    link: path.to_owned(),
                    target,
                });
            }
        }
        let kind = entry.file_type();
        if kind.is_file() {
            return self.load_file(path);
        }
        if !kind.is_dir() {
            return Err(LoadError::Special {
                path: path.to_owned(),
            });
        }
        if entry.depth() == MAX_DEPTH {
            return Err(LoadError::TooDeep {
                path: path.to_owned(),
            });
        }
        Ok(())
    }

    fn load_file(&mut self, path: &Path) -> Result<(), LoadError> {
        let mut file = File::open(path).map_err(unreadable(path))?;
        let metadata = file.metadata().map_err(unreadable(path))?;
        let modified = metadata.modified().map_err(unreadable(path))?;
        let len = metadata.len();
        let totals = self.site.totals();
        if totals.files >= self.limits.files {
            return Err(LoadError::TooManyFiles {
                path: self.folder.to_owned(),
                limit: self.limits.files,
            });
        }
        if len > MAX_FILE_LEN {
            return Err(LoadError::FileTooLong {
                path: path.to_owned(),
                len,
            });
        }
        if totals.content_bytes + len > self.limits.bytes {
            return Err(LoadError::TooManyBytes {
                path: self.folder.to_owned(),
                limit: self.limits.bytes,
            });
        }
        // Every entry lies below the folder.
        let name = path.strip_prefix(self.folder).unwrap_or(path);
        let key = [b"/", name.as_os_str().as_bytes()].concat();
        self.site.add_file(&key, modified, len as usize, |place| {
            read_exactly(&mut file, place, path)
        })
    }
}

/// Reads a file that must have as many bytes as `place`.
fn read_exactly(file: &mut File, place: &mut [u8], path: &Path) -> Result<(), LoadError> {
    let changed = || LoadError::Changed {
        path: path.to_owned(),
    };
    file.read_exact(place)
        .map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => changed(),
            _ => unreadable(path)(source),
        })?;
    let mut more = [0];
    match file.read(&mut more).map_err(unreadable(path))? {
        0 => Ok(()),
        _ => Err(changed()),
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
