//! The complete list of files that each kind of thread may still use after it has dropped its
//! privileges.
//!
//! Descriptors that are already open, such as those of queues, captures and standard error, need no
//! entry here. A feature that opens files while the server runs must add their paths to
//! [`Table::for_server`].
// Capsicum forbids opening any file, so FreeBSD needs only a part of the table.
#![cfg_attr(target_os = "freebsd", allow(dead_code))]

use std::path::PathBuf;

/// A kind of thread. Each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread that handles packets from the network.
    Worker,
    /// The thread that handles signals, and watches the workers and the helper.
    Control,
    /// The thread that reads the content again.
    Reload,
    /// The only thread of the helper process.
    Helper,
}

/// What threads may still do after they have dropped their privileges, as far as it depends on the
/// configuration.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Paths below which the reload thread may read. No other thread may open a file.
    readable: Vec<PathBuf>,
    /// Files that the content was read from, which the server's user should be able to read again.
    files: Vec<PathBuf>,
    /// Whether the helper has to remove an interface at the end.
    removes_interface: bool,
    /// Whether the server runs inside another program, where only workers drop privileges.
    is_embedded: bool,
}

impl Table {
    /// Returns the table for a server whose content was read from `files`, below the paths
    /// `readable`.
    pub(crate) fn for_server(readable: Vec<PathBuf>, files: Vec<PathBuf>) -> Self {
        Self {
            readable,
            files,
            removes_interface: false,
            is_embedded: false,
        }
    }

    /// Returns the table for a server inside another program. Its workers open no files.
    pub(crate) fn for_embedded() -> Self {
        Self {
            is_embedded: true,
            ..Self::for_server(Vec::new(), Vec::new())
        }
    }

    /// Returns the table for the helper process. `made_interface` says whether the helper has to
    /// remove an interface at the end.
    pub(crate) fn for_helper(made_interface: bool) -> Self {
        Self {
            removes_interface: made_interface,
            ..Self::for_server(Vec::new(), Vec::new())
        }
    }

    /// Describes the file access of the reload thread, for the start block.
    pub(super) fn describe_file_access(&self) -> String {
        if self.readable.is_empty() {
            return "no file access".to_owned();
        }
        let paths = self.readable.iter().map(|path| path.display().to_string());
        format!(
            "read access for reloads below {}",
            paths.collect::<Vec<_>>().join(", ")
        )
    }

    /// Returns the paths below which a thread of this kind may read.
    pub(super) fn readable(&self, kind: Kind) -> &[PathBuf] {
        match kind {
            Kind::Reload => &self.readable,
            Kind::Worker | Kind::Control | Kind::Helper => &[],
        }
    }

    /// Returns the files that a thread of this kind should be able to read again.
    pub(super) fn to_read_again(&self, kind: Kind) -> &[PathBuf] {
        match kind {
            Kind::Reload => &self.files,
            Kind::Worker | Kind::Control | Kind::Helper => &[],
        }
    }

    /// Returns true if a thread of this kind has to remove an interface at the end.
    pub(super) fn removes_interface(&self, kind: Kind) -> bool {
        kind == Kind::Helper && self.removes_interface
    }

    /// Returns true if the server runs inside another program.
    pub(super) fn is_embedded(&self) -> bool {
        self.is_embedded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reload_thread_may_read_files() {
        let [folder, file] = ["pages", "pages/index"].map(PathBuf::from);
        let table = Table::for_server(vec![folder.clone()], vec![file.clone()]);
        assert_eq!(
            table.describe_file_access(),
            "read access for reloads below pages"
        );
        assert_eq!(table.readable(Kind::Reload), [folder]);
        assert_eq!(table.to_read_again(Kind::Reload), [file]);
        for kind in [Kind::Worker, Kind::Control, Kind::Helper] {
            assert!(table.readable(kind).is_empty(), "{kind:?}");
            assert!(table.to_read_again(kind).is_empty(), "{kind:?}");
        }
    }
}
