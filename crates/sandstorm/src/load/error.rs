//! Why a folder could not be loaded.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::skipped::Reason;

/// Why a folder could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The folder cannot be read.
    #[error(
        "cannot read {}: {source}; make it readable, or restart the server if the folder was replaced after \
         the start",
        path.display()
    )]
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
    #[error("{}{} {reason}", path.display(), LinkTo(target.as_deref()))]
    Users {
        /// The file, as the settings name it.
        path: PathBuf,
        /// The file to which it leads, if it is a symbolic link.
        target: Option<PathBuf>,
        /// Why it cannot be used.
        reason: String,
    },
    /// A file with the key of entity tags cannot be used.
    #[error("{}{} {reason}", path.display(), LinkTo(target.as_deref()))]
    TagKey {
        /// The file, as the settings name it.
        path: PathBuf,
        /// The file to which it leads, if it is a symbolic link.
        target: Option<PathBuf>,
        /// Why it cannot be used.
        reason: String,
    },
    /// A text belongs to a path that needs no password.
    #[error("--basic-auth-realm names {path}, but --basic-auth does not; correct one of them")]
    NoRealm {
        /// The path.
        path: String,
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

/// Formats the target of a link behind the link.
struct LinkTo<'a>(Option<&'a Path>);

impl fmt::Display for LinkTo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(target) => write!(f, " (a link to {})", target.display()),
        }
    }
}
