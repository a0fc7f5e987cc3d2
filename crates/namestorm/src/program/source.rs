//! Where zones come from, now and from the next reload on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::FileHints;

use crate::zone_args::ZoneArgs;
use crate::zone_files::ZoneFiles;
use crate::zone_folders::ZoneFolders;

/// The options that name zones, and say what happens if one is wrong.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) zones: Arc<ZoneArgs>,
    /// Whether a reload fails if a zone has errors or is given twice.
    pub(super) strict: bool,
}

/// Where zones come from.
#[derive(Debug)]
pub(super) struct Source {
    given: Mutex<Given>,
    /// The options from the next reload on, if they have changed.
    next: Mutex<Option<Given>>,
    /// The zones as they were read last.
    pub(super) files: Mutex<ZoneFiles>,
    /// The folders of the zone files, as they were at the start.
    pub(super) folders: ZoneFolders,
    /// Hints about the files that have changed since the last reload of all zones.
    pub(super) hints: FileHints,
}

impl Source {
    pub(super) fn new(given: Given, files: ZoneFiles, folders: ZoneFolders) -> Self {
        files.index_paths();
        Self {
            given: Mutex::new(given),
            next: Mutex::default(),
            hints: FileHints::about(files.files()),
            files: Mutex::new(files),
            folders,
        }
    }

    /// Returns the options that the last reload has used.
    pub(super) fn given(&self) -> Given {
        locked(&self.given).clone()
    }

    /// Returns the newest options, which no reload may have used yet.
    pub(super) fn newest(&self) -> Given {
        let next = locked(&self.next).clone();
        next.unwrap_or_else(|| self.given())
    }

    /// Returns true if no reload has used the newest options.
    pub(super) fn has_next(&self) -> bool {
        locked(&self.next).is_some()
    }

    /// Notes the options that a reload has used.
    pub(super) fn note_used(&self, given: Given) {
        *locked(&self.given) = given;
        *locked(&self.next) = None;
    }
}

/// Other options for zones, which were checked.
#[derive(Debug)]
pub struct NextZones<'p> {
    source: &'p Source,
    given: Given,
}

impl<'p> NextZones<'p> {
    pub(super) fn new(source: &'p Source, given: Given) -> Self {
        Self { source, given }
    }

    /// Lets the next reload of all zones use these options. If it fails, the one after it uses them.
    pub fn take(self) {
        *locked(&self.source.next) = Some(self.given);
    }
}

/// Locks a mutex, also if a thread has panicked with it.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
