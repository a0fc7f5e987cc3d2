//! Loads a folder: all its files, except hidden ones and those that cannot be served.

mod error;
mod files;
mod loader;
mod names;
mod progress;
mod reading;
mod rules;
mod unchanged;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

pub use self::error::LoadError;
use self::loader::{LoadedFolder, Loader};
pub(crate) use self::names::RULES;
pub use self::progress::Progress;
pub(crate) use self::rules::check_secret_files;
use crate::limits::Limits;
use crate::root::{FollowLinks, RealPath, Root};
use crate::settings::Settings;
use crate::site::{Builder, NextSite, Site};

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
        Self::load_without(&[], (folder, limits), settings, progress)
    }

    /// Same as [`load_with`](Self::load_with), but leaves out these files with rules of the folder.
    pub(crate) fn load_without(
        rules: &[PathBuf],
        (folder, limits): (&Path, &Limits),
        settings: &Settings,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<Self, LoadError> {
        let builder = builder_of(folder, limits, settings, (None, rules), progress)?;
        Ok(builder.into_site())
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
        (limits, settings): (&Limits, &Settings),
        progress: impl FnMut(Progress<'_>),
    ) -> Result<NextSite, LoadError> {
        let settings = Settings {
            memory: settings.memory.map(|memory| memory.beside(packets)),
            ..settings.clone()
        };
        let builder = builder_of(folder, limits, &settings, (Some(self), &[]), progress)?;
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
        self.load_next_beside(0, folder, (limits, self.settings()), progress)
    }
}

/// Loads a folder into a builder, and finishes the site. Leaves out the files `without`, which have rules.
fn builder_of(
    folder: &Path,
    limits: &Limits,
    settings: &Settings,
    (previous, without): (Option<&Site>, &[PathBuf]),
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
        open: vec![LoadedFolder::new(PathBuf::new(), real, list)],
        folders: 1,
        previous,
        without,
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
