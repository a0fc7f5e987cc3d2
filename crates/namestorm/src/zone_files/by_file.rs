//! Finds the known zones of files.

use std::sync::Arc;

use ahash::HashMap;
use control::FileVersions;

use super::good_zone::GoodZone;
use crate::key::Hashing;
use crate::load::{ZoneKey, ZoneSpec};

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
    /// The numbers of zones that count as unchanged, because they were just read.
    just_read: &'z [usize],
    hashing: &'z Hashing,
    /// The number of the zone that is expected next.
    next: usize,
    /// Maps each path with its origin to the number of its zone, once another zone than the expected one
    /// was looked for. A file may have several zones, each with an origin of its own.
    numbers: Option<HashMap<ZoneKey<'z>, usize>>,
    versions: FileVersions,
}

impl<'z> ByFile<'z> {
    pub(super) fn new(
        zones: &'z [Arc<GoodZone>],
        just_read: &'z [usize],
        hashing: &'z Hashing,
    ) -> Self {
        Self {
            zones,
            just_read,
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
        let mut files = zone.files.iter();
        let mut is_unchanged = || {
            self.just_read.contains(&number)
                || files.all(|file| file.is_unchanged(&mut self.versions))
        };
        if known.group == spec.group && is_unchanged() {
            Known::Unchanged(zone)
        } else {
            Known::Changed(zone)
        }
    }

    fn number(&mut self, spec: &ZoneSpec) -> Option<usize> {
        let wanted = spec.key();
        let is_it = |zone: &Arc<GoodZone>| zone.facts.spec().key() == wanted;
        if self.zones.get(self.next).is_some_and(is_it) {
            return Some(self.next);
        }
        let numbers = self.numbers.get_or_insert_with(|| {
            let mut numbers = self.hashing.map(self.zones.len());
            numbers.extend(
                self.zones
                    .iter()
                    .map(|zone| zone.facts.spec().key())
                    .zip(0..),
            );
            numbers
        });
        numbers.get(&wanted).copied()
    }
}
