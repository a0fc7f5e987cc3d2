//! Loads a folder: all its files, except hidden ones and those that cannot be served.

mod files;
mod loader;
mod reading;
mod rules;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, io};

use self::loader::{Folder, Loader};
pub(crate) use self::rules::RULES;
use crate::finding::Warning;
use crate::root::{FollowLinks, RealPath, Root};
use crate::settings::Settings;
use crate::site::{Builder, NextSite, Site, Totals};
use crate::skipped::{Reason, Skipped};

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
    /// Something is probably a mistake, but served.
    Warning {
        /// The folder.
        folder: &'a Path,
        /// What it is.
        warning: Warning,
    },
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

impl Site {
    /// Loads the files of `folder` and its subfolders, within `limits`. `progress` is called for
    /// each file, and for each entry that is left out because it cannot be served.
    ///
    /// Hidden files and folders, whose names begin with a dot, are left out, except `.well-known`.
    /// Symbolic links are followed if they stay inside the folder. [`Settings::follow_links`] changes
    /// that.
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

    /// Loads the folder again, beside `packets` bytes of resident packets. Files that have not changed
    /// since `self` was loaded are neither read nor copied. A file that changes while it is read keeps
    /// its old content.
    ///
    /// # Errors
    /// [`LoadError`], if the folder cannot be read or has no file that can be served.
    pub(crate) fn load_next_beside(
        &self,
        packets: u64,
        folder: &Path,
        limits: &Limits,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<NextSite, LoadError> {
        let settings = self.settings();
        let settings = Settings {
            memory: settings.memory.map(|memory| memory.beside(packets)),
            ..settings.clone()
        };
        let builder = builder_of(folder, limits, &settings, Some(self), progress)?;
        Ok(builder.into_next(self))
    }

    /// Loads the folder again, without resident packets.
    #[cfg(test)]
    pub(crate) fn load_next(
        &self,
        folder: &Path,
        limits: &Limits,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<NextSite, LoadError> {
        self.load_next_beside(0, folder, limits, progress)
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
    let real = RealPath::of(&Arc::new(root));
    let unreadable = |source| {
        let path = path();
        LoadError::Unreadable { path, source }
    };
    let list = real.list().map_err(unreadable)?;
    let outer = match settings.follow_links {
        FollowLinks::Inside => None,
        FollowLinks::All => Some(Arc::new(Root::outer().map_err(unreadable)?)),
    };
    let mut site = Builder::with_settings(SystemTime::now(), settings);
    site.check_codings();
    if let Some(previous) = previous {
        site.reserve_for(previous);
    }
    let mut loader = Loader {
        folder,
        root: real.clone(),
        outer,
        limits,
        settings,
        site,
        open: vec![Folder::new(PathBuf::new(), real, list)],
        folders: 1,
        previous,
        reading: None,
        threads_from: files::MANY,
        late: Vec::new(),
        secrets: Vec::new(),
        exposed: None,
        progress,
    };
    loader.load_tag_key()?;
    loader.load_users()?;
    loader.load_rules()?;
    loader.load_all();
    loader.add_rest();
    loader.load_late();
    loader.check_secrets()?;
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

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "load_rules_tests.rs"]
mod rules_tests;

#[cfg(test)]
#[path = "load_links_tests.rs"]
mod links_tests;
