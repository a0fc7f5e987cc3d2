//! The complete list of files that each kind of thread may still use after it has dropped its
//! privileges.
//!
//! Descriptors that are already open, such as those of queues, captures and standard error, need no
//! entry here. A feature that opens files while the server runs must add their paths to
//! [`Table::for_server`].
// Capsicum forbids opening any file, so FreeBSD needs only a part of the table.
#![cfg_attr(target_os = "freebsd", allow(dead_code))]

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::content_files::ContentFiles;

/// A kind of thread. Each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread that handles packets from the network.
    Worker,
    /// The thread that handles signals, and watches the workers and the helper.
    Control,
    /// The thread that reads the content again.
    Reload,
    /// The same, if it also keeps files for the next start.
    StoringReload,
    /// A thread that reads files for the workers.
    Read,
    /// A thread that exchanges datagrams with other servers, through sockets that are open.
    Exchange,
    /// The thread that writes the logs.
    Log,
    /// The thread of a log that is sent to a socket. It connects again when that is necessary.
    ConnectingLog,
    /// The thread that watches the files of the content.
    Watch,
    /// The only thread of the helper process.
    Helper,
    /// The same, if the helper follows the addresses of the interface.
    FollowingHelper,
    /// The same, if the helper can also open the interface again after its removal.
    ReopeningHelper,
}

/// What the kernel says about interfaces, for a helper that opens one.
const KERNEL_FILES: [&str; 2] = ["/proc", "/sys"];

/// What the helper process does after it has opened the interface. It keeps the capabilities for
/// these tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HelperTasks {
    /// It removes an interface at the end.
    pub(crate) removes_interface: bool,
    /// It changes the steering program when the addresses change.
    pub(crate) follows: bool,
    /// It opens the interface again after its removal.
    pub(crate) reopens: bool,
    /// It reserves these ports on new addresses.
    pub(crate) ports: Vec<u16>,
}

/// What threads may still do after they have dropped their privileges, as far as it depends on the
/// configuration.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Paths below which the threads that read content may read. No other thread may open a file.
    readable: Vec<PathBuf>,
    /// Paths below which the reload thread may also read, because a new configuration file may appear there.
    configuration: Vec<PathBuf>,
    /// Folders in which the thread for logs may make files and write to them.
    writable: Vec<PathBuf>,
    /// Folders in which the reload thread may make, replace and remove files.
    stored: Vec<PathBuf>,
    /// Files that the content was read from, which the server's user should be able to read again.
    files: ContentFiles,
    /// What the helper does while the server runs, and at the end.
    helper: HelperTasks,
    /// Whether the server runs inside another program, where only workers drop privileges.
    is_embedded: bool,
}

impl Table {
    /// Returns the table for a server whose content was read from `files`, below the paths
    /// `readable`.
    pub(crate) fn for_server(readable: Vec<PathBuf>, files: ContentFiles) -> Self {
        Self {
            readable: readable.into_iter().flat_map(with_folder_of_file).collect(),
            configuration: Vec::new(),
            writable: Vec::new(),
            stored: Vec::new(),
            files,
            helper: HelperTasks::default(),
            is_embedded: false,
        }
    }

    /// Also lets the reload thread read below these folders, where the configuration file is.
    #[must_use]
    pub(crate) fn with_configuration_in(self, folders: Vec<PathBuf>) -> Self {
        Self {
            configuration: folders,
            ..self
        }
    }

    /// Also lets the thread for logs write below these folders.
    #[must_use]
    pub(crate) fn with_logs_in(self, folders: Vec<PathBuf>) -> Self {
        Self {
            writable: folders,
            ..self
        }
    }

    /// Also lets the reload thread make, replace and remove files in these folders.
    #[must_use]
    pub(crate) fn with_store_in(self, folders: Vec<PathBuf>) -> Self {
        Self {
            stored: folders,
            ..self
        }
    }

    /// Returns the kind of the reload thread.
    pub(crate) fn reload_kind(&self) -> Kind {
        if self.stored.is_empty() {
            Kind::Reload
        } else {
            Kind::StoringReload
        }
    }

    /// Returns the table for a server inside another program. Its workers open no files.
    pub(crate) fn for_embedded() -> Self {
        Self {
            is_embedded: true,
            ..Self::for_server(Vec::new(), ContentFiles::default())
        }
    }

    /// Returns the table for the helper process.
    pub(crate) fn for_helper(helper: HelperTasks) -> Self {
        let files: &[&str] = if helper.reopens { &KERNEL_FILES } else { &[] };
        let readable = files.iter().map(PathBuf::from).collect();
        Self {
            helper,
            ..Self::for_server(readable, ContentFiles::default())
        }
    }

    /// Describes the file access of the threads for reloads and for logs, for the start block.
    pub(super) fn describe_file_access(&self) -> String {
        let described = [
            ("read access to content below", &self.readable),
            (
                "read access to the configuration below",
                &self.configuration,
            ),
            ("write access for logs in", &self.writable),
            ("write access for prepared files in", &self.stored),
        ]
        .into_iter()
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(what, paths)| {
            let paths = paths.iter().map(|path| path.display().to_string());
            let distinct: BTreeSet<_> = paths.collect();
            format!("{what} {}", Vec::from_iter(distinct).join(", "))
        });
        let described: Vec<_> = described.collect();
        if described.is_empty() {
            return "no file access".to_owned();
        }
        described.join(", ")
    }

    /// Returns the paths below which a thread of this kind may read.
    pub(super) fn readable(&self, kind: Kind) -> Vec<PathBuf> {
        match kind {
            Kind::Reload | Kind::StoringReload => [&*self.readable, &*self.configuration].concat(),
            Kind::Read | Kind::Watch | Kind::ReopeningHelper => self.readable.clone(),
            Kind::Worker
            | Kind::Control
            | Kind::Exchange
            | Kind::Log
            | Kind::ConnectingLog
            | Kind::Helper
            | Kind::FollowingHelper => Vec::new(),
        }
    }

    /// Returns the folders in which a thread of this kind may make files and write to them.
    pub(super) fn writable(&self, kind: Kind) -> &[PathBuf] {
        match kind {
            Kind::Log => &self.writable,
            Kind::Worker
            | Kind::Control
            | Kind::Reload
            | Kind::StoringReload
            | Kind::Read
            | Kind::Exchange
            | Kind::ConnectingLog
            | Kind::Watch
            | Kind::Helper
            | Kind::FollowingHelper
            | Kind::ReopeningHelper => &[],
        }
    }

    /// Returns the folders in which a thread of this kind may make, replace and remove files.
    pub(super) fn stored(&self, kind: Kind) -> &[PathBuf] {
        if kind == Kind::StoringReload {
            &self.stored
        } else {
            &[]
        }
    }

    /// Returns the files that a thread of this kind should be able to read again, if it reads any again.
    pub(super) fn to_read_again(&self, kind: Kind) -> Option<&ContentFiles> {
        match kind {
            Kind::Reload | Kind::StoringReload => Some(&self.files),
            Kind::Worker
            | Kind::Control
            | Kind::Read
            | Kind::Exchange
            | Kind::Log
            | Kind::ConnectingLog
            | Kind::Watch
            | Kind::Helper
            | Kind::FollowingHelper
            | Kind::ReopeningHelper => None,
        }
    }

    /// Returns the helper's tasks if a thread of this kind is the helper's.
    pub(super) fn helper(&self, kind: Kind) -> Option<&HelperTasks> {
        let is_helper = matches!(
            kind,
            Kind::Helper | Kind::FollowingHelper | Kind::ReopeningHelper
        );
        is_helper.then_some(&self.helper)
    }

    /// Returns true if the server runs inside another program.
    pub(super) fn is_embedded(&self) -> bool {
        self.is_embedded
    }
}

/// Returns the paths below which content at `path` may be read, now and after a change. A rule for a file
/// does not hold for a new file in its place. So the folder of the file is such a path too, and the folder
/// of a link to it. Landlock has no narrower rule for this. The root folder is too much.
fn with_folder_of_file(path: PathBuf) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if path.is_file() {
        let places = [std::path::absolute(&path), path.canonicalize()];
        for file in places.iter().flatten() {
            let folder = file.parent().and_then(|one| one.canonicalize().ok());
            paths.extend(folder.filter(|folder| folder.parent().is_some()));
        }
    }
    paths.push(path);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_that_read_content_may_read_files() {
        let [folder, file, key] = ["pages", "pages/index", "key"].map(PathBuf::from);
        let files = ContentFiles {
            served: vec![file],
            to_reload: vec![key],
        };
        let table = Table::for_server(vec![folder.clone()], files.clone());
        assert_eq!(
            table.describe_file_access(),
            "read access to content below pages"
        );
        for kind in [Kind::Reload, Kind::Read, Kind::Watch] {
            assert_eq!(table.readable(kind), std::slice::from_ref(&folder));
        }
        assert_eq!(table.to_read_again(Kind::Reload), Some(&files));
        let configured = table.clone().with_configuration_in(vec!["etc".into()]);
        let with_file = [folder.clone(), "etc".into()];
        assert_eq!(configured.readable(Kind::Reload), with_file);
        assert_eq!(configured.readable(Kind::StoringReload), with_file);
        assert_eq!(configured.readable(Kind::Watch), [folder]);
        let table = table.with_logs_in(vec!["logs".into()]);
        assert_eq!(
            table.describe_file_access(),
            "read access to content below pages, write access for logs in logs"
        );
        assert_eq!(table.reload_kind(), Kind::Reload);
        let table = table.with_store_in(vec!["store".into()]);
        assert_eq!(table.reload_kind(), Kind::StoringReload);
        assert_eq!(table.stored(Kind::StoringReload), [PathBuf::from("store")]);
        let end = ", write access for prepared files in store";
        assert!(table.describe_file_access().ends_with(end));
        for kind in [
            Kind::Worker,
            Kind::Control,
            Kind::Exchange,
            Kind::Log,
            Kind::Helper,
        ] {
            assert!(table.stored(kind).is_empty(), "{kind:?}");
            assert!(table.readable(kind).is_empty(), "{kind:?}");
            assert_eq!(table.writable(kind).is_empty(), kind != Kind::Log);
            assert!(table.to_read_again(kind).is_none(), "{kind:?}");
        }
    }
}
