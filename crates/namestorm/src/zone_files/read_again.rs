//! Zones that are read again without a look at all files.
//!
//! A server may have very many zones. So nothing here looks at each of them, until the workers have the new
//! answers.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use control::FileVersions;

use super::by_path::ByPath;
use super::good_zone::GoodZone;
use super::reading::{ReadZone, read_zone};
use super::{UnservedFile, ZoneFiles, say_findings};
use crate::answers::Answers;
use crate::groups::GroupLabels;
use crate::load::ReadFile;

/// Maximum number of zones that are read for hints. If there are more, looking at all files costs little
/// beside reading them.
const MAX_HINTED: usize = 64;

/// Zones that were read again.
#[derive(Debug)]
pub(crate) struct ReadAgain {
    /// The numbers of the zones, and the zones.
    zones: Vec<(usize, Arc<GoodZone>)>,
    group_labels: GroupLabels,
}

impl ReadAgain {
    /// Returns the numbers of the zones.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.zones.iter().map(|(number, _)| *number).collect()
    }

    /// Returns answers in which these zones have replaced those of `old`, the answers of the zones before.
    pub(crate) fn answers_after(&self, old: &Answers) -> Answers {
        let zones = self.zones.iter();
        let zones = zones.map(|(number, zone)| (*number, &zone.answers));
        old.with_zones(zones, self.group_labels.clone())
    }
}

impl ZoneFiles {
    /// Reads the zone with the number `at` again. Passes findings to `say`. Returns `None` if its file now
    /// holds another zone.
    ///
    /// # Errors
    ///
    /// Returns the file if the zone has an error.
    ///
    /// # Panics
    ///
    /// If there is no such zone.
    pub(crate) fn read_one(
        &self,
        at: usize,
        say: &mut dyn FnMut(String),
    ) -> Result<Option<ReadAgain>, Box<UnservedFile>> {
        let (spec, apex) = (self.good[at].facts.spec(), self.good[at].facts.apex());
        let read = read_zone(spec, &self.hashing, self.keeps_records).map_err(|broken| {
            say_findings(&broken.report, say);
            Box::new(UnservedFile::broken(spec.clone(), broken))
        })?;
        if *read.apex != *apex {
            return Ok(None);
        }
        Ok(Some(self.replacing([(at, read)], say)))
    }

    /// Reads the zones again that were read from one of the `changed` files. Leaves out a zone with an error,
    /// and one whose file now holds another zone. Passes findings to `say`. Returns `None` if no zone is left,
    /// or if too many have changed.
    pub(crate) fn read_hinted(
        &self,
        changed: &HashSet<PathBuf>,
        say: &mut dyn FnMut(String),
    ) -> Option<ReadAgain> {
        let mut versions = FileVersions::default();
        let mut numbers = BTreeSet::new();
        for path in changed {
            for at in self.by_path().candidates(path, &self.hashing) {
                if self.has_changed(at, path, &mut versions) {
                    numbers.insert(at);
                }
                if numbers.len() > MAX_HINTED {
                    return None;
                }
            }
        }
        let read = |at: usize| {
            let facts = &self.good[at].facts;
            let read = read_zone(facts.spec(), &self.hashing, self.keeps_records).ok()?;
            (*read.apex == *facts.apex()).then_some((at, read))
        };
        let zones: Vec<_> = numbers.into_iter().filter_map(read).collect();
        (!zones.is_empty()).then(|| self.replacing(zones, say))
    }

    /// Returns true if the zone with this number was read from this file, and the file has changed.
    fn has_changed(&self, number: usize, path: &Path, versions: &mut FileVersions) -> bool {
        let mut files = self.good[number].files.iter();
        files.any(|file| file.path() == path && !file.is_unchanged(versions))
    }

    /// Returns what was read to replace zones with these numbers. Passes findings to `say`.
    fn replacing(
        &self,
        read: impl IntoIterator<Item = (usize, ReadZone)>,
        say: &mut dyn FnMut(String),
    ) -> ReadAgain {
        let mut group_labels = self.group_labels.clone();
        let zones = read.into_iter().map(|(at, read)| {
            say_findings(&read.report, say);
            let spec = self.good[at].facts.spec().clone();
            let zone = GoodZone::new(spec, read, &mut group_labels);
            (at, Arc::new(zone))
        });
        ReadAgain {
            zones: zones.collect(),
            group_labels,
        }
    }

    /// Returns the same zones, but these as they were read again.
    pub(crate) fn with_zones(&self, again: ReadAgain) -> Self {
        let mut good = self.good.clone();
        let read = again.zones.len();
        for (at, zone) in again.zones {
            good[at] = zone;
        }
        let mut files = Self {
            hashing: self.hashing.clone(),
            keeps_records: self.keeps_records,
            by_path: self.index_for(&good),
            good,
            stale: Vec::new(),
            unserved: Arc::clone(&self.unserved),
            group_labels: again.group_labels,
            example: self.example.clone(),
            read,
            tried: self.tried.clone(),
        };
        files.note_tried(&self.stale);
        files
    }

    /// Returns the index of the files of these zones, which is made later unless the zones before have had the
    /// same files.
    pub(super) fn index_for(&self, good: &[Arc<GoodZone>]) -> Arc<OnceLock<ByPath>> {
        let has_same_files = |(zone, old): (&Arc<GoodZone>, &Arc<GoodZone>)| {
            let [paths, old_paths] = [zone, old].map(|zone| zone.files.iter().map(ReadFile::path));
            Arc::ptr_eq(zone, old) || paths.eq(old_paths)
        };
        if good.len() == self.good.len() && good.iter().zip(&self.good).all(has_same_files) {
            Arc::clone(&self.by_path)
        } else {
            Arc::default()
        }
    }

    /// Makes the index of the zones' files now, so that [`read_hinted`](Self::read_hinted) need not wait for it.
    pub(crate) fn index_paths(&self) {
        self.by_path();
    }

    fn by_path(&self) -> &ByPath {
        self.by_path
            .get_or_init(|| ByPath::of(&self.good, &self.hashing))
    }
}
