//! Entries of a folder that are not served, and the reasons.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::limits::{MAX_DEPTH, MAX_FILE_LEN};
use crate::rules::RuleError;

/// An entry that is left out of the site.
#[derive(Debug)]
pub struct Skipped {
    /// The path of the entry, beginning with the folder as the user named it.
    pub path: PathBuf,
    /// Why the entry cannot be served.
    pub reason: Reason,
}

impl Display for Skipped {
    /// Writes one line, even if the name contains line feeds.
    #[expect(
        clippy::unnecessary_debug_formatting,
        reason = "a name may hold line feeds, escape sequences, and bytes that are no text"
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.path, self.reason)
    }
}

/// Why an entry is left out. The message completes a sentence that begins with the entry's path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The file or folder cannot be read.
    #[error("cannot be read: {0}; make it readable, or take it out of the folder")]
    Unreadable(io::Error),
    /// A symbolic link leads out of the folder.
    #[error(
        "leads out of the folder that is served, to {target:?}; put a copy in its place, or set \
         --follow-links all"
    )]
    LeadsOut {
        /// The target of the link, or of another link on the way out of the folder.
        target: PathBuf,
    },
    /// A symbolic link leads out of the folder, to an entry that cannot be read. A running server can
    /// read only the targets that it has found at its start.
    #[error(
        "leads to {target:?}, which cannot be read; make it readable, or restart the server if the link \
         is newer than it"
    )]
    TargetClosed {
        /// The target, or an entry below it.
        target: PathBuf,
    },
    /// Symbolic links lead to too many places outside the folder.
    #[error(
        "leads to {target:?}, and there are {limit} such targets already; put a copy in its place"
    )]
    TooManyTargets {
        /// The target.
        target: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The target of a symbolic link does not exist.
    #[error("is a link to {target:?}, which does not exist; remove the link, or mend it")]
    Dangling {
        /// The missing target.
        target: PathBuf,
    },
    /// A symbolic link leads back to itself, or through too many other links.
    #[error("is a link that leads to no end, as a link to itself does; remove the link")]
    Endless,
    /// A symbolic link leads to a folder that contains the link.
    #[error("is a link to a folder that contains the link; remove the link")]
    Circular,
    /// The entry is neither a file nor a folder.
    #[error("is {kind}, and only files and folders are served; take it out of the folder")]
    Special {
        /// The kind of the entry, with its article.
        kind: &'static str,
    },
    /// What should be a file with rules is something else.
    #[error("is {kind}, so no rule is used; put a file in its place")]
    NoFile {
        /// The kind of the entry, with its article.
        kind: &'static str,
    },
    /// The entry was removed, replaced or modified while the folder was loaded.
    #[error("changed while it was read; start again when it is complete")]
    Changed,
    /// A file is longer than [`MAX_FILE_LEN`].
    #[error("has {len} bytes, more than the {MAX_FILE_LEN} of one response; split it")]
    FileTooLong {
        /// The length of the file, in bytes.
        len: u64,
    },
    /// A line of a file with rules is wrong. The other lines are used.
    #[error("line {line}, column {column}: {why}")]
    Rule {
        /// The number of the line, from 1.
        line: usize,
        /// The column of the wrong part, in characters from 1.
        column: usize,
        /// What is wrong.
        why: RuleError,
    },
    /// A file with rules is too long.
    #[error("has more than {limit} bytes, so no rule is used; shorten it")]
    RulesTooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// A file with rules is not valid UTF-8.
    #[error(
        "is not UTF-8 in line {line}, column {column}, so no rule is used; save the file as UTF-8"
    )]
    NotUtf8 {
        /// The number of the first such line, from 1.
        line: usize,
        /// The column of the first such character, from 1.
        column: usize,
    },
    /// A rule leads to a file that does not exist, so it does not hold.
    #[error("is what {rule:?} leads to, but there is no such file; add the file, or mend the rule")]
    NoTarget {
        /// The start of the rule's text.
        rule: String,
    },
    /// The entry is a folder that is nested too deeply.
    #[error("lies {MAX_DEPTH} folders deep, and nothing is served from there; move it further up")]
    TooDeep,
    /// With this file, the total length would exceed [`Limits::bytes`](crate::Limits::bytes).
    #[error("has {len} bytes, with which all files have more than {limit}; raise the limit")]
    TooManyBytes {
        /// The length of the file, in bytes.
        len: u64,
        /// The limit for all files together, in bytes.
        limit: u64,
    },
    /// There are more files than [`Limits::files`](crate::Limits::files).
    #[error("and all files behind it are left out: there are more than {limit}; raise --max-files")]
    TooManyFiles {
        /// The maximum number of files.
        limit: u64,
    },
    /// There are more paths to folders than [`Limits::folders`](crate::Limits::folders).
    #[error(
        "and all entries behind it are left out: there are more than {limit} paths to folders; \
         remove links, or serve fewer folders"
    )]
    TooManyFolders {
        /// The maximum number of paths to folders.
        limit: u64,
    },
}

/// Maps an error from opening or reading a listed entry to a reason.
pub(crate) fn unreadable(error: io::Error) -> Reason {
    match Errno::from_io_error(&error) {
        // The entry or a folder in its path was removed, or replaced by a link or a file.
        Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Reason::Changed,
        _ => Reason::Unreadable(error),
    }
}
