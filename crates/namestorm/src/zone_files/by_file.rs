//! Finds the known zones of files.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use ahash::HashMap;
use control::FileVersions;

use super::good_zone::GoodZone;
use crate::key::Hashing;
use crate::load::ZoneSpec;

/// What is known of a file.
pub(super) enum Known<'z> {
    Not,
    /// The zone that the file had. Its files, or the options about it, have changed.
    Changed(&'z Arc<GoodZone>),
    /// The zone that the file still has.
    Unchanged(&'z Arc<GoodZone>),
}

/// Finds the known zones of files. This is fast as long as the files come in the order of the zones.
pub(super) struct ByFile<'z> {
    zones: &'z [Arc<GoodZone>],
    hashing: &'z Hashing,
    /// The number of the zone that is expected next.
    next: usize,
    /// Maps each path to the number of its zone, once another zone than the expected one was looked for.
    numbers: Option<HashMap<&'z [u8], usize>>,
    versions: FileVersions,
}

impl<'z> ByFile<'z> {
    pub(super) fn new(zones: &'z [Arc<GoodZone>], hashing: &'z Hashing) -> Self {
        Self {
            zones,
            hashing,
            next: 0,
            numbers: None,
            versions: FileVersions::default(),
        }
    }

    /// Looks for the zone of a file, and whether its files have changed.
    pub(super) fn find(&mut self, spec: &ZoneSpec) -> Known<'z> {
        let Some(number) = self.number(spec) else {
            return Known::Not;
        };
        self.next = number + 1;
        let zone = &self.zones[number];
        let known = zone.facts.spec();
        let is_same = known.origin == spec.origin && known.group == spec.group;
        let mut files = zone.files.iter();
        if is_same && files.all(|file| file.is_unchanged(&mut self.versions)) {
            Known::Unchanged(zone)
        } else {
            Known::Changed(zone)
        }
    }

    fn number(&mut self, spec: &ZoneSpec) -> Option<usize> {
        let path = spec.file.as_os_str();
        let is_it = |zone: &Arc<GoodZone>| zone.facts.file().as_os_str() == path;
        if self.zones.get(self.next).is_some_and(is_it) {
            return Some(self.next);
        }
        let path_of = |zone: &'z Arc<GoodZone>| zone.facts.file().as_os_str().as_bytes();
        let numbers = self.numbers.get_or_insert_with(|| {
            let mut numbers = self.hashing.map(self.zones.len());
            numbers.extend(self.zones.iter().map(path_of).zip(0..));
            numbers
        });
        numbers.get(path.as_bytes()).copied()
    }
}
