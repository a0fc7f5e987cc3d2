//! The index: from a hash to where a record lies.

/// One slot: the upper half of a hash, and where its record is.
type Slot = (u32, u32);

/// A slot without a record.
const EMPTY: Slot = (0, u32::MAX);

/// Where a record lies: its offset in units of [`UNIT`] bytes.
pub(crate) type At = u32;

/// Records start at multiples of this many bytes.
pub(crate) const UNIT: usize = 8;

/// Bytes that the processor loads together.
const CACHE_LINE: usize = 64;

/// A hash table of fixed content with open addressing. Eight slots share a
/// cache line and at most two thirds are in use, so that nearly every look-up
/// touches one line here and then the line of its record.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
    mask: usize,
}

impl Table {
    /// A table of `entries`: hashes, and where the records are.
    pub(crate) fn new(entries: &[(u64, At)]) -> Self {
        let capacity = (entries.len() * 3 / 2 + 1).next_power_of_two();
        let mut slots = vec![EMPTY; capacity].into_boxed_slice();
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

    /// The record of this hash that `is_it` says yes to.
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

    /// Asks for the slot where the search for a hash begins.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        nmio::prefetch(&self.slots[hash as usize & self.mask]);
    }

    /// Where the record of a hash probably is: the first whose tag is right.
    #[inline(always)]
    pub(crate) fn guess(&self, hash: u64) -> Option<At> {
        self.find(hash, |_| true)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }
}

#[inline(always)]
const fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The records' memory is full: 32 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFull;

/// Records one behind the other, each laid so that it touches as few cache
/// lines as it can.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
}

impl Arena {
    /// Adds a record, whose parts are joined, and says where it is.
    ///
    /// # Errors
    /// When there is no place for it.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) -> Result<At, ArenaFull> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut start = self.bytes.len().next_multiple_of(UNIT);
        let lines = |start: usize| (start % CACHE_LINE + len).div_ceil(CACHE_LINE);
        if lines(start) > lines(0) {
            start = start.next_multiple_of(CACHE_LINE);
        }
        let at = At::try_from(start / UNIT).map_err(|_| ArenaFull)?;
        if at == At::MAX {
            return Err(ArenaFull);
        }
        self.bytes.resize(start, 0);
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        Ok(at)
    }

    /// The record at `at`, and everything behind it.
    #[inline(always)]
    pub(crate) fn at(&self, at: At) -> &[u8] {
        &self.bytes[at as usize * UNIT..]
    }

    /// Asks for the cache line that a record begins in, which most end in
    /// too.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: At) {
        nmio::prefetch(self.at(at));
    }

    /// Gives memory back that will not be used; the rest is read at random
    /// from now on.
    pub(crate) fn finish(&mut self) {
        self.bytes.shrink_to_fit();
        nmio::prefer_large_pages(&self.bytes);
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_and_nothing_else() {
        // Hashes that collide in slot and tag.
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
    fn a_guess_is_a_record_with_the_right_tag() {
        let table = Table::new(&[(3 << 32, 17), (4 << 32, 23)]);
        assert_eq!(table.guess(3 << 32), Some(17));
        assert_eq!(table.guess(4 << 32), Some(23));
        assert_eq!(table.guess(5 << 32), None);
        // Room for two entries at a load of two thirds: four slots.
        assert_eq!(table.memory(), 4 * 8);
    }

    #[test]
    fn any_hash_has_a_slot_to_ask_for() {
        for entries in [&[][..], &[(3 << 32, 17), (4 << 32, 23)]] {
            let table = Table::new(entries);
            for hash in [0, 1, u64::MAX] {
                table.prefetch(hash);
            }
        }
    }

    #[test]
    fn records_lie_close_where_no_further_line_is_touched() {
        let mut arena = Arena::default();
        let lens = [1, 40, 30, 64, 60, 5, 70, 128, 9];
        let starts = lens.map(|len| arena.push(&[&vec![0; len]]).unwrap() as usize * UNIT);
        assert_eq!(starts, [0, 8, 64, 128, 192, 256, 264, 384, 512]);
    }

    #[test]
    fn a_record_that_fits_a_line_lies_in_one() {
        let mut arena = Arena::default();
        for len in [1, 40, 30, 64, 60, 5, 70, 128, 9] {
            let record = vec![len as u8; len];
            let at = arena.push(&[&record[..1], &record[1..]]).unwrap();
            let start = at as usize * UNIT;
            let lines = (start + len).div_ceil(CACHE_LINE) - start / CACHE_LINE;
            assert_eq!(lines, len.div_ceil(CACHE_LINE), "{len} bytes at {start}");
            assert_eq!(arena.at(at)[..len], record);
        }
    }
}
