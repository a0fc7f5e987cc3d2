//! The index of apexes, which leads from a name to the zone that it belongs to.

use std::sync::Arc;

use super::zone_answers::ZoneAnswers;
use crate::index::Table;
use crate::key::Hashing;

/// The number of a zone in an index of apexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ZoneNumber(u32);

/// An index of zones by their apexes. It finds the zone with the longest apex that a name ends
/// with.
#[derive(Debug)]
pub(super) struct Apexes {
    hashing: Hashing,
    table: Table,
    zones: Box<[Arc<ZoneAnswers>]>,
    /// The numbers of labels that apexes have, as bits. Other ancestors of a name are not looked up.
    depths: u64,
}

/// Returns the bit for names with this number of labels. Names with 63 labels or more share one.
#[inline(always)]
const fn depth_bit(labels: usize) -> u64 {
    1 << if labels < 63 { labels } else { 63 }
}

impl Apexes {
    /// Creates an index of `zones`, whose apexes differ.
    pub(super) fn new(hashing: Hashing, zones: Vec<Arc<ZoneAnswers>>) -> Self {
        let hashes = zones.iter().map(|zone| hashing.hash_of_name(zone.apex()));
        let entries: Vec<_> = hashes.zip(0..).collect();
        let labels = zones.iter().map(|zone| hashing.form().labels(zone.apex()));
        Self {
            table: Table::new(&entries),
            depths: labels.fold(0, |depths, labels| depths | depth_bit(labels)),
            hashing,
            zones: zones.into_boxed_slice(),
        }
    }

    /// Returns how names become keys and hashes.
    #[inline(always)]
    pub(super) fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    /// Returns the zone with this number.
    #[inline(always)]
    pub(super) fn zone(&self, number: ZoneNumber) -> &ZoneAnswers {
        &self.zones[number.0 as usize]
    }

    /// Returns the number of the zone with the longest apex that `name` ends with, and the apex's
    /// offset in the name. `labels` is the number of the name's labels, and `key` its key.
    #[inline(always)]
    pub(super) fn find(
        &self,
        name: &[u8],
        mut labels: usize,
        key: &[u8],
    ) -> Option<(ZoneNumber, usize)> {
        let mut start = 0;
        loop {
            if self.depths & depth_bit(labels) != 0
                && let Some(number) = self.at(key.get(start..)?)
            {
                return Some((number, start));
            }
            labels = labels.checked_sub(1)?;
            start += 1 + usize::from(*name.get(start)?);
        }
    }

    /// Returns the number of the zone whose apex has this key.
    #[inline(always)]
    fn at(&self, apex: &[u8]) -> Option<ZoneNumber> {
        let is_it = |number: u32| self.zones[number as usize].apex() == apex;
        self.table
            .find(self.hashing.hash_of_name(apex), is_it)
            .map(ZoneNumber)
    }
}
