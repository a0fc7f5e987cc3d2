//! A SACK receiver's record of the bytes that have arrived. Offsets are relative to the stream's
//! first byte.

use std::ops::Range;

/// A range of arrived bytes after a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    bytes: Range<u64>,
    /// Number of the latest segment that overlaps or adjoins this range, counted in order of
    /// arrival.
    touched: u64,
}

/// The byte ranges that have arrived.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// Offset of the first missing byte: `rcv_nxt`.
    next: u64,
    /// Ranges after `next` in ascending order, with holes between them.
    held: Vec<Held>,
    segments: u64,
}

impl Ranges {
    /// Returns the offset of the first missing byte.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns true if bytes after a hole have arrived.
    pub fn has_holes(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the number of bytes in this range that have arrived.
    pub fn overlap(&self, bytes: &Range<u64>) -> u64 {
        let common = |have: &Range<u64>| {
            let start = have.start.max(bytes.start);
            have.end.min(bytes.end).saturating_sub(start)
        };
        let held: u64 = self.held.iter().map(|held| common(&held.bytes)).sum();
        held + common(&(0..self.next))
    }

    /// Returns true if all bytes in this range have arrived.
    pub fn contains(&self, bytes: &Range<u64>) -> bool {
        self.overlap(bytes) == bytes.end - bytes.start
    }

    /// Returns the first contiguous part of this range that has already arrived. A D-SACK block
    /// reports this part (RFC 2883, section 4).
    pub fn duplicate(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let in_order = 0..self.next;
        let held = self.held.iter().map(|held| &held.bytes);
        std::iter::once(&in_order)
            .chain(held)
            .map(|have| have.start.max(bytes.start)..have.end.min(bytes.end))
            .find(|common| !common.is_empty())
    }

    /// Adds the byte range of an arrived segment.
    pub fn add(&mut self, bytes: Range<u64>) {
        self.segments += 1;
        let mut new = Held {
            bytes,
            touched: self.segments,
        };
        self.held.retain(|held| {
            let apart = held.bytes.end < new.bytes.start || new.bytes.end < held.bytes.start;
            if !apart {
                new.bytes.start = new.bytes.start.min(held.bytes.start);
                new.bytes.end = new.bytes.end.max(held.bytes.end);
            }
            apart
        });
        if new.bytes.start <= self.next {
            self.next = self.next.max(new.bytes.end);
        } else {
            let at = (self.held).partition_point(|held| held.bytes.start < new.bytes.start);
            self.held.insert(at, new);
        }
    }

    /// Drops all bytes after the first hole, as a SACK receiver may do (RFC 2018, section 8).
    pub fn renege(&mut self) {
        self.held.clear();
    }

    /// Returns the arrived range that contains `offset`. Returns `None` if `offset` has not
    /// arrived, or if there is no hole before it.
    pub fn around(&self, offset: u64) -> Option<Range<u64>> {
        let held = self.held.iter().find(|held| held.bytes.contains(&offset));
        held.map(|held| held.bytes.clone())
    }

    /// Returns all ranges after a hole, in the order of their SACK blocks. The range with the most
    /// recent segment comes first (RFC 2018, section 4).
    pub fn by_age(&self) -> Vec<Range<u64>> {
        let mut held: Vec<&Held> = self.held.iter().collect();
        held.sort_by_key(|held| std::cmp::Reverse(held.touched));
        held.into_iter().map(|held| held.bytes.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ranges that have arrived from offset `from` on. This reference implementation
    /// has one flag per byte.
    fn ranges(have: &[bool], from: usize) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for at in (from..have.len()).filter(|at| have[*at]) {
            match ranges.last_mut() {
                Some(last) if last.end == at as u64 => last.end += 1,
                _ => ranges.push(at as u64..at as u64 + 1),
            }
        }
        ranges
    }

    #[test]
    fn ranges_match_a_record_of_single_bytes() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut have = [false; 60];
            let mut received = Ranges::default();
            for _ in 0..40 {
                let start = rng.usize(0..50);
                let end = start + rng.usize(1..10);
                let bytes = start as u64..end as u64;
                let old = have[start..end].iter().filter(|have| **have).count();
                assert_eq!(received.overlap(&bytes), old as u64, "seed {seed}");
                let first = ranges(&have[..end], start).first().cloned();
                assert_eq!(received.duplicate(&bytes), first, "seed {seed}");
                received.add(bytes.clone());
                have[start..end].fill(true);
                let next = have.iter().position(|have| !have).unwrap_or(60);
                assert_eq!(received.next(), next as u64, "seed {seed}");
                let mut held = received.by_age();
                assert!(start < next || held[0].contains(&bytes.start));
                held.sort_by_key(|range| range.start);
                assert_eq!(held, ranges(&have, next), "seed {seed}");
                assert_eq!(received.has_holes(), !held.is_empty());
            }
        }
    }
}
