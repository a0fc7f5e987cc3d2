//! The index of apexes, which leads from a name to the zone that it belongs to.

use std::mem;
use std::sync::Arc;

use super::zone_answers::ZoneAnswers;
use crate::index::Table;
use crate::key::{Hashing, Key};
use crate::zone_number::ZoneNumber;

/// An index of zones by their apexes. It finds the zone with the longest apex that a name ends
/// with.
#[derive(Clone, Debug)]
pub(super) struct Apexes {
    hashing: Hashing,
    /// Shared by all generations of answers whose zones have the same apexes.
    table: Arc<Table>,
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
        let hashes = zones.iter().map(|zone| hashing.hash(zone.apex()));
        let entries: Vec<_> = hashes.zip(0..).collect();
        let labels = zones.iter().map(|zone| hashing.form().labels(zone.apex()));
        Self {
            table: Arc::new(Table::new(&entries)),
            depths: labels.fold(0, |depths, labels| depths | depth_bit(labels)),
            hashing,
            zones: zones.into_boxed_slice(),
        }
    }

    /// Puts `zone` in the place of the zone with this number, which has the same apex and is returned.
    pub(super) fn replace(&mut self, number: usize, zone: Arc<ZoneAnswers>) -> Arc<ZoneAnswers> {
        debug_assert_eq!(self.zones[number].apex(), zone.apex());
        mem::replace(&mut self.zones[number], zone)
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

    /// Returns the number of the zone with the longest apex that the name with this key ends with. `hash`
    /// is the hash of the key.
    #[inline(always)]
    pub(super) fn find(&self, key: &[u8], hash: u64) -> ZoneNumber {
        match &*self.zones {
            // A server with a single zone needs no hash.
            [zone] if self.is_within(key, zone.apex()) => ZoneNumber(0),
            [_] => ZoneNumber::NONE,
            _ => self.find_longest(key, hash),
        }
    }

    /// Returns true if the name with this key is the name with the key `apex` or below it.
    #[inline(always)]
    fn is_within(&self, key: &[u8], apex: &[u8]) -> bool {
        let Some(below) = key.len().checked_sub(apex.len()) else {
            return false;
        };
        // An ancestor begins where a label begins.
        let mut start = 0;
        while start < below {
            match self.hashing.form().parent(key, start) {
                Some(parent) => start = parent,
                None => return false,
            }
        }
        start == below && &key[below..] == apex
    }

    /// Like [`find`](Self::find), for any number of zones.
    #[inline(never)]
    fn find_longest(&self, key: &[u8], hash: u64) -> ZoneNumber {
        let is_it = |number: u32, apex: &[u8]| self.zones[number as usize].apex() == apex;
        let mut apexes = self.candidates(key);
        let found = apexes.find_map(|apex| {
            let hash = self.hash_of(apex, (key, hash));
            self.table.find(hash, |number| is_it(number, apex))
        });
        found.map_or(ZoneNumber::NONE, ZoneNumber)
    }

    /// Returns the ancestors of the name with this key, and itself, that have as many labels as an
    /// apex. The longest comes first.
    #[inline(always)]
    fn candidates<'k>(&self, key: &'k [u8]) -> impl Iterator<Item = &'k [u8]> {
        let form = self.hashing.form();
        let depths = self.depths;
        let mut labels = form.labels(key);
        let mut next = Some(0);
        std::iter::from_fn(move || {
            while let Some(start) = next {
                next = form.parent(key, start);
                let is_candidate = depths & depth_bit(labels) != 0;
                labels = labels.wrapping_sub(1);
                if is_candidate {
                    return Some(&key[start..]);
                }
            }
            None
        })
    }

    /// Returns the hash of an ancestor of the name with this key and hash, or of the name itself.
    #[inline(always)]
    fn hash_of(&self, ancestor: &[u8], (key, hash): (&[u8], u64)) -> u64 {
        if ancestor.len() == key.len() {
            hash
        } else {
            self.hashing.hash(ancestor)
        }
    }

    /// Returns true if there are several zones, so that their index and the zones themselves are worth
    /// prefetching.
    #[inline(always)]
    pub(super) fn are_many(&self) -> bool {
        self.zones.len() > 1
    }

    /// Prefetches the slot where the search for the zone of a name begins. Returns the hash of the
    /// zone's probable name, for [`guess`](Self::guess).
    #[inline(always)]
    pub(super) fn fetch_slot(&self, key: &Key) -> u64 {
        let apex = self.candidates(key.bytes()).next().unwrap_or_default();
        let hash = self.hash_of(apex, (key.bytes(), key.hash()));
        self.table.prefetch(hash);
        hash
    }

    /// Returns the zone whose name probably has this hash.
    #[inline(always)]
    pub(super) fn guess(&self, hash: u64) -> Option<&Arc<ZoneAnswers>> {
        self.zones.get(self.table.guess(hash)? as usize)
    }
}
