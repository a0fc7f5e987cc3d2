//! The index: maps hashes to the positions of entries in memory.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One slot: a tag, which is the upper half of a hash, and the position of the entry.
type Slot = (u32, u32);

/// The value of a slot that holds no entry.
const EMPTY: Slot = (0, u32::MAX);

/// The position of an entry: its offset in the arena, in units of [`UNIT`] bytes.
pub(crate) type At = u32;

/// Alignment of entries, in bytes.
pub(crate) const UNIT: usize = 8;

/// Size of a cache line, in bytes.
const CACHE_LINE: usize = 64;

/// Part of an arena that may stay unused, as a divisor: an eighth. To free it would copy all entries.
const UNUSED_PART: usize = 8;

/// Prefetches all cache lines of some values.
pub(crate) fn prefetch_lines<T>(values: &[T]) {
    let each = (CACHE_LINE / size_of::<T>().max(1)).max(1);
    let lines = values.iter().step_by(each).chain(values.last());
    lines.for_each(nmio::prefetch);
}

/// An immutable hash table with open addressing. Eight slots share a cache line, and at most two
/// thirds of the slots are in use. Most lookups thus touch only one cache line of the table.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
    mask: usize,
}

impl Table {
    /// Builds a table from pairs of an entry's hash and position.
    pub(crate) fn new(entries: &[(u64, At)]) -> Self {
        let capacity = (entries.len() * 3 / 2 + 1).next_power_of_two();
        let mut slots = Vec::new();
        nmio::reserve_in_large_pages(&mut slots, capacity);
        slots.resize(capacity, EMPTY);
        let mut slots = slots.into_boxed_slice();
        let mask = capacity - 1;
        for &(hash, at) in entries {
            let mut slot = hash as usize & mask;
            while slots[slot] != EMPTY {
                slot = (slot + 1) & mask;
            }
            slots[slot] = (tag(hash), at);
        }
        nmio::prefer_large_pages(&slots);
        Self { slots, mask }
    }

    /// Returns the position of the entry with this hash for which `is_it` returns true.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(At) -> bool) -> Option<At> {
        let mut slot = hash as usize & self.mask;
        loop {
            let (found, at) = self.slots[slot];
            if at == EMPTY.1 {
                return None;
            }
            if found == tag(hash) && is_it(at) {
                return Some(at);
            }
            slot = (slot + 1) & self.mask;
        }
    }

    /// Prefetches the slot where the search for a hash begins.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        nmio::prefetch(&self.slots[hash as usize & self.mask]);
    }

    /// Returns the probable position of the entry with this hash: the position in the first slot
    /// that has the hash's tag.
    #[inline(always)]
    pub(crate) fn guess(&self, hash: u64) -> Option<At> {
        self.find(hash, |_| true)
    }

    /// Returns the size in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }
}

#[inline(always)]
const fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The arena is full: its entries may take at most 32 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFull;

/// A cache line of entries. It makes the start of all entries begin at a cache line.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; CACHE_LINE]);

const EMPTY_LINE: Line = Line([0; CACHE_LINE]);

/// Entries stored one after another, each placed to touch as few cache lines as possible.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    lines: Vec<Line>,
    /// Number of bytes in use.
    len: usize,
}

impl Arena {
    /// Creates an empty arena with room for this number of cache lines.
    pub(crate) fn with_room(lines: usize) -> Self {
        let mut arena = Self::default();
        nmio::reserve_in_large_pages(&mut arena.lines, lines);
        arena
    }

    /// Adds an entry made of the concatenated `parts`, and returns its position.
    ///
    /// # Errors
    ///
    /// Returns an error if the arena is full.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) -> Result<At, ArenaFull> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut start = self.len.next_multiple_of(UNIT);
        let lines = |start: usize| (start % CACHE_LINE + len).div_ceil(CACHE_LINE);
        if lines(start) > lines(0) {
            start = start.next_multiple_of(CACHE_LINE);
        }
        let at = At::try_from(start / UNIT).map_err(|_| ArenaFull)?;
        if at == At::MAX {
            return Err(ArenaFull);
        }
        self.len = start + len;
        let lines = self.len.div_ceil(CACHE_LINE);
        let more = lines.saturating_sub(self.lines.len());
        nmio::reserve_in_large_pages(&mut self.lines, more);
        self.lines.resize(lines, EMPTY_LINE);
        let mut rest = &mut self.lines.as_mut_bytes()[start..];
        for part in parts {
            let (to, after) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = after;
        }
        Ok(at)
    }

    /// Returns the entries. Frees unused memory if it is more than an eighth, and asks the kernel for
    /// huge pages. Lookups read entries in random order, which would cause many TLB misses with small
    /// pages.
    pub(crate) fn finish(self) -> Entries {
        let mut lines = self.lines;
        let unused = lines.capacity() - lines.len();
        if unused <= lines.len() / UNUSED_PART {
            lines.resize(lines.capacity(), EMPTY_LINE);
        } else {
            let mut exact = Vec::new();
            nmio::reserve_in_large_pages(&mut exact, lines.len());
            exact.extend_from_slice(&lines);
            lines = exact;
        }
        let lines = lines.into_boxed_slice();
        nmio::prefer_large_pages(&lines);
        Entries { lines }
    }
}

/// The entries of an arena that is complete.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    lines: Box<[Line]>,
}

impl Entries {
    /// Returns the bytes from the entry at `at` to the end of the last cache line.
    #[inline(always)]
    pub(crate) fn at(&self, at: At) -> &[u8] {
        &self.lines.as_bytes()[at as usize * UNIT..]
    }

    /// Prefetches an entry's first cache line. Most entries fit in that line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: At) {
        nmio::prefetch(self.at(at));
    }

    /// Prefetches this number of cache lines, from that of an entry on.
    pub(crate) fn prefetch_lines(&self, at: At, lines: usize) {
        let first = at as usize * UNIT / CACHE_LINE;
        let lines = self.lines.iter().skip(first).take(lines);
        lines.for_each(nmio::prefetch);
    }

    /// Returns the size in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_and_nothing_else() {
        // Many of these hashes have the same first slot and the same tag.
        let hashes: Vec<u64> = (0..1000).map(|i: u64| (i % 7) | ((i % 3) << 32)).collect();
        let entries: Vec<_> = hashes.iter().zip(0..).map(|(h, at)| (*h, at)).collect();
        let table = Table::new(&entries);
        for &(hash, at) in &entries {
            assert_eq!(table.find(hash, |found| found == at), Some(at));
        }
        assert_eq!(table.find(0, |_| false), None);
        assert_eq!(table.find(5 << 32, |_| true), None);
        assert_eq!(Table::new(&[]).find(7, |_| true), None);
    }

    #[test]
    fn a_guess_is_an_entry_with_the_right_tag() {
        let table = Table::new(&[(3 << 32, 17), (4 << 32, 23)]);
        assert_eq!(table.guess(3 << 32), Some(17));
        assert_eq!(table.guess(4 << 32), Some(23));
        assert_eq!(table.guess(5 << 32), None);
        // Two entries need at least three slots, because at most two thirds may be in use. The
        // number of slots is a power of two, so the table has four.
        assert_eq!(table.memory(), 4 * 8);
    }

    #[test]
    fn any_hash_can_be_prefetched() {
        for entries in [&[][..], &[(3 << 32, 17), (4 << 32, 23)]] {
            let table = Table::new(entries);
            for hash in [0, 1, u64::MAX] {
                table.prefetch(hash);
            }
        }
    }

    #[test]
    fn entries_are_adjacent_unless_padding_saves_a_cache_line() {
        let mut arena = Arena::default();
        let lens = [1, 40, 30, 64, 60, 5, 70, 128, 9];
        let starts = lens.map(|len| arena.push(&[&vec![0; len]]).unwrap() as usize * UNIT);
        assert_eq!(starts, [0, 8, 64, 128, 192, 256, 264, 384, 512]);
    }

    #[test]
    fn an_entry_touches_as_few_cache_lines_as_possible() {
        let mut arena = Arena::default();
        let mut records = Vec::new();
        for len in [1, 40, 30, 64, 60, 5, 70, 128, 9] {
            let record = vec![len as u8; len];
            let at = arena.push(&[&record[..1], &record[1..]]).unwrap();
            let start = at as usize * UNIT;
            let lines = (start + len).div_ceil(CACHE_LINE) - start / CACHE_LINE;
            assert_eq!(lines, len.div_ceil(CACHE_LINE), "{len} bytes at {start}");
            records.push((at, record));
        }
        let entries = arena.finish();
        for (at, record) in records {
            assert_eq!(entries.at(at)[..record.len()], record);
        }
    }
}
