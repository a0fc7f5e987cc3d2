//! The NSEC3 records of a zone, by the hashes in their owners.

use std::ops::Range;

use crate::index::{At, prefetch_lines};
use crate::nsec3::{NameHash, Params};

/// Average number of hashes that share an entry of the table of first bits.
const SHARED: usize = 4;

/// The positions of NSEC3 records, sorted by hash.
///
/// Hashes are spread evenly. A table leads from the first bits of a hash to the few hashes with the
/// same bits.
#[derive(Debug)]
pub(crate) struct Hashes {
    params: Params,
    /// Hash and position lie side by side, so that a search reads them together.
    sorted: Box<[(NameHash, At)]>,
    /// For each value of the first bits, the number of hashes whose bits are lower.
    starts: Box<[u32]>,
    /// Number of bits of a hash, among its first 32, that the table does not use.
    shift: u32,
}

impl Hashes {
    /// Creates the index from hashes, in order, and the positions of their records.
    pub(crate) fn new(params: Params, hashes: impl Iterator<Item = (NameHash, At)>) -> Self {
        let mut sorted = Vec::new();
        for one in hashes {
            nmio::reserve_in_large_pages(&mut sorted, 1);
            sorted.push(one);
        }
        let sorted = sorted.into_boxed_slice();
        let bits = (sorted.len() / SHARED).max(2).ilog2().min(31);
        let shift = u32::BITS - bits;
        let bits_of = |hash: &NameHash| first_bits(hash, shift);
        let starts = 0..=1usize << bits;
        let starts =
            starts.map(|bits| sorted.partition_point(|(hash, _)| bits_of(hash) < bits) as u32);
        let starts: Box<[_]> = starts.collect();
        nmio::prefer_large_pages(&sorted);
        nmio::prefer_large_pages(&starts);
        Self {
            params,
            sorted,
            starts,
            shift,
        }
    }

    /// Returns how the zone hashes names.
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// Returns the position of the NSEC3 record that covers or matches this hash. It has the last hash
    /// that is not above this one, or the last of all.
    pub(crate) fn covering(&self, hash: &NameHash) -> Option<At> {
        let range = self.candidates(hash);
        let not_above = self.sorted[range.clone()].partition_point(|(known, _)| known <= hash);
        let last = (range.start + not_above).checked_sub(1);
        let last = last.or_else(|| self.sorted.len().checked_sub(1))?;
        self.sorted.get(last).map(|(_, at)| *at)
    }

    /// Returns the range of the hashes that have the same first bits.
    fn candidates(&self, hash: &NameHash) -> Range<usize> {
        let bits = first_bits(hash, self.shift);
        self.starts[bits] as usize..self.starts[bits + 1] as usize
    }

    /// Prefetches where the search for a hash begins: the first memory access of
    /// [`covering`](Self::covering).
    pub(crate) fn fetch_start(&self, hash: &NameHash) {
        nmio::prefetch(&self.starts[first_bits(hash, self.shift)]);
    }

    /// Prefetches the hashes with the same first bits: the second memory access.
    pub(crate) fn fetch_candidates(&self, hash: &NameHash) {
        let range = self.candidates(hash);
        // The hash before is the covering one if all of these are above.
        prefetch_lines(&self.sorted[range.start.saturating_sub(1)..range.end]);
    }

    /// Returns the position of the NSEC3 record that matches this hash, if there is one.
    pub(crate) fn matching(&self, hash: &NameHash) -> Option<At> {
        let index = self
            .sorted
            .binary_search_by_key(hash, |(known, _)| *known)
            .ok()?;
        self.sorted.get(index).map(|(_, at)| *at)
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.sorted) + size_of_val(&*self.starts)
    }
}

/// Returns the first bits of a hash, without the last `shift` of the first 32.
fn first_bits(hash: &NameHash, shift: u32) -> usize {
    let [a, b, c, d, ..] = *hash;
    (u64::from(u32::from_be_bytes([a, b, c, d])) >> shift) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(list: &[NameHash]) -> Hashes {
        let params = Params {
            iterations: 0,
            salt: Box::default(),
        };
        Hashes::new(params, list.iter().copied().zip(100..))
    }

    #[test]
    fn the_last_hash_that_is_not_above_is_found() {
        for count in [1, 2, 3, 7, 100, 5000] {
            let mut list: Vec<NameHash> = (0..count)
                .map(|n: u32| {
                    let mut hash = [0x80; 20];
                    hash[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b9).to_be_bytes());
                    hash
                })
                .collect();
            list.sort_unstable();
            let index = hashes(&list);
            for (place, hash) in list.iter().enumerate() {
                let at = 100 + place as At;
                let [mut above, mut below] = [*hash; 2];
                above[19] += 1;
                below[19] -= 1;
                let before = if place == 0 { 99 + count } else { at - 1 };
                assert_eq!(index.covering(hash), Some(at));
                assert_eq!(index.covering(&above), Some(at));
                assert_eq!(index.covering(&below), Some(before));
                assert_eq!(index.matching(hash), Some(at));
                assert_eq!(index.matching(&above), None);
            }
        }
        assert_eq!(hashes(&[]).covering(&[7; 20]), None);
    }
}
