//! Entries of a folder that are not served, and why.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::load::MAX_DEPTH;
use crate::site::MAX_FILE_LEN;

/// An entry that is left out of the site.
#[derive(Debug)]
pub struct Skipped {
    /// The entry, below the folder as it was named.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: Reason,
}

impl Display for Skipped {
    /// One line, whatever the name.
    #[expect(
        clippy::unnecessary_debug_formatting,
        reason = "a name may hold line feeds, escape sequences, and bytes that are no text"
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.path, self.reason)
    }
}

/// Why an entry is left out: a sentence that begins with the entry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The entry, or the folder, cannot be read.
    #[error("cannot be read: {0}; make it readable, or take it out of the folder")]
    Unreadable(io::Error),
    /// A symbolic link leads out of the folder.
    #[error("leads out of the folder that is served, to {target:?}; put a copy in its place")]
    LeadsOut {
        /// The target of the link that leads out: this one, or one that it
        /// leads to.
        target: PathBuf,
    },
    /// A symbolic link leads to nothing.
    #[error("is a link to {target:?}, which does not exist; remove the link, or mend it")]
    Dangling {
        /// The target that is not there.
        target: PathBuf,
    },
    /// A symbolic link leads back to itself.
    #[error("is a link that leads to no end, as a link to itself does; remove the link")]
    Endless,
    /// A symbolic link leads to a folder that contains the link.
    #[error("is a link to a folder that contains the link; remove the link")]
    Circular,
    /// Neither a file nor a folder.
    #[error("is {kind}, and only files and folders are served; take it out of the folder")]
    Special {
        /// With its article.
        kind: &'static str,
    },
    /// The entry was replaced, or the file became longer, shorter or other
    /// while it was read.
    #[error("changed while it was read; start again when it is complete")]
    Changed,
    /// A file is longer than [`MAX_FILE_LEN`].
    #[error("has {len} bytes, more than the {MAX_FILE_LEN} of one response; serve it in parts")]
    FileTooLong {
        /// Its bytes.
        len: u64,
    },
    /// Too many folders in each other.
    #[error("lies {MAX_DEPTH} folders deep, and nothing is served from there; move it further up")]
    TooDeep,
    /// With this file there would be more bytes than
    /// [`Limits::bytes`](crate::Limits::bytes).
    #[error("has {len} bytes, with which all files have more than {limit}; raise --max-bytes")]
    TooManyBytes {
        /// Its bytes.
        len: u64,
        /// How many all files may have.
        limit: u64,
    },
    /// There are more files than [`Limits::files`](crate::Limits::files).
    #[error("and all files behind it are left out: there are more than {limit}; raise --max-files")]
    TooManyFiles {
        /// How many are allowed.
        limit: u64,
    },
    /// There are more folders than [`Limits::folders`](crate::Limits::folders).
    #[error(
        "and all entries behind it are left out: there are more than {limit} paths to folders; \
         remove links, or serve fewer folders"
    )]
    TooManyFolders {
        /// How many are looked into.
        limit: u64,
    },
}

/// What an error of opening or reading an entry means, after it was listed.
pub(crate) fn unreadable(error: io::Error) -> Reason {
    match Errno::from_io_error(&error) {
        // It is gone, or a link now, or has a link on the way.
        Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Reason::Changed,
        _ => Reason::Unreadable(error),
    }
}
