//! The index of apexes, which leads from a name to the zone that it belongs to.

use std::sync::Arc;

use super::zone_answers::ZoneAnswers;
use crate::index::Table;
use crate::key::Hashing;
use crate::name;

/// The number of a zone in an index of apexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ZoneNumber(u32);

impl ZoneNumber {
    /// The number of no zone.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

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

/// Returns the bit for names with this number of labels. Numbers that differ by 64 share a bit.
#[inline(always)]
const fn depth_bit(labels: usize) -> u64 {
    1 << (labels % 64)
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

    /// Returns the zone with this number, if there is one.
    #[inline(always)]
    pub(super) fn zone(&self, number: ZoneNumber) -> Option<&ZoneAnswers> {
        self.zones.get(number.0 as usize).map(|zone| &**zone)
    }

    /// Returns the number of the zone with the longest apex that `name` ends with. `key` is the name's
    /// key.
    #[inline(always)]
    pub(super) fn find(&self, name: &[u8], key: &[u8]) -> ZoneNumber {
        match &*self.zones {
            // A server with a single zone needs no hash.
            [zone] if is_within(name, key, zone.apex()) => ZoneNumber(0),
            [_] => ZoneNumber::NONE,
            _ => self.find_longest(name, key),
        }
    }

    /// Like [`find`](Self::find), for any number of zones.
    #[inline(never)]
    fn find_longest(&self, name: &[u8], key: &[u8]) -> ZoneNumber {
        let mut labels = name::label_starts(name).count();
        let mut start = 0;
        loop {
            if self.depths & depth_bit(labels) != 0
                && let Some(apex) = key.get(start..)
                && let Some(number) = self.at(apex)
            {
                return ZoneNumber(number);
            }
            match name.get(start) {
                Some(len) if labels > 0 => start += 1 + usize::from(*len),
                _ => return ZoneNumber::NONE,
            }
            labels -= 1;
        }
    }

    /// Returns the number of the zone whose apex has this key.
    #[inline(always)]
    fn at(&self, apex: &[u8]) -> Option<u32> {
        let is_it = |number: u32| self.zones[number as usize].apex() == apex;
        self.table.find(self.hashing.hash_of_name(apex), is_it)
    }
}

/// Returns true if `name`, whose key is `key`, is the name with the key `apex` or below it.
#[inline(always)]
fn is_within(name: &[u8], key: &[u8], apex: &[u8]) -> bool {
    let Some(below) = key.len().checked_sub(apex.len()) else {
        return false;
    };
    // An ancestor begins where a label begins.
    let mut start = 0;
    while start < below {
        start += 1 + usize::from(name[start]);
    }
    start == below && &key[below..] == apex
}
