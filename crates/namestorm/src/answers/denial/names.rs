//! The NSEC records of a zone, by their owners.

use std::ops::Range;

use crate::index::{At, prefetch_lines};

/// Number of keys in a group, which one key of the next level stands for.
const GROUP: usize = 16;

/// The positions of NSEC records, sorted by the canonical order of their owners.
///
/// The first level has the sort keys of all owners. Each further level has every 16th key of the level
/// before. A search reads few cache lines of each level.
#[derive(Debug)]
pub(crate) struct Names {
    places: Box<[At]>,
    levels: Vec<Level>,
}

/// Sorted keys.
#[derive(Debug, Default)]
struct Level {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<u32>,
}

impl Level {
    fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    fn push(&mut self, key: &[u8]) {
        nmio::reserve_in_large_pages(&mut self.bytes, key.len());
        self.bytes.extend_from_slice(key);
        nmio::reserve_in_large_pages(&mut self.ends, 1);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Returns the index of the last key in `range` that is not above `key`. Returns the first index of
    /// `range` if all keys in it are above `key`.
    fn last_not_above(&self, key: &[u8], range: Range<usize>) -> usize {
        let Range { mut start, mut end } = range;
        while end - start > 1 {
            let middle = start.midpoint(end);
            if self.key(middle) <= key {
                start = middle;
            } else {
                end = middle;
            }
        }
        start
    }

    /// Prefetches the ends of keys.
    fn fetch_ends(&self, range: Range<usize>) {
        prefetch_lines(&self.ends[range.start.saturating_sub(1)..range.end]);
    }

    /// Prefetches keys. Their ends should already be in the cache.
    fn fetch_keys(&self, range: Range<usize>) {
        let start = range
            .start
            .checked_sub(1)
            .map_or(0, |before| self.ends[before]);
        let end = self.ends[..range.end].last().copied().unwrap_or(start);
        prefetch_lines(&self.bytes[start as usize..end as usize]);
    }

    /// Returns the range of a group, which is given by the index of its key in the level above.
    fn group(&self, index: usize) -> Range<usize> {
        let start = index * GROUP;
        start..self.ends.len().min(start + GROUP)
    }

    /// Frees unused memory, and asks the kernel for large pages.
    fn finish(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        nmio::prefer_large_pages(&self.bytes);
        nmio::prefer_large_pages(&self.ends);
    }
}

/// A search in steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent {
    /// Number of levels that are left.
    levels: usize,
    /// The group to search in the next level.
    group: usize,
    /// Whether the ends of the group's keys were read.
    has_ends: bool,
}

impl Names {
    /// Creates the index from the sort keys of the owners and the positions of their records, in
    /// canonical order. The first owner must be the apex. The keys may take at most 4 GiB, as a zone
    /// does.
    pub(crate) fn new<'k>(owners: impl Iterator<Item = (&'k [u8], At)>) -> Self {
        let mut places = Vec::new();
        let mut level = Level::default();
        for (key, at) in owners {
            level.push(key);
            nmio::reserve_in_large_pages(&mut places, 1);
            places.push(at);
        }
        level.finish();
        let mut levels = vec![level];
        while let Some(below) = levels.last()
            && below.ends.len() > GROUP
        {
            let mut level = Level::default();
            for index in (0..below.ends.len()).step_by(GROUP) {
                level.push(below.key(index));
            }
            level.finish();
            levels.push(level);
        }
        let places: Box<[_]> = places.into();
        nmio::prefer_large_pages(&places);
        Self { places, levels }
    }

    /// Returns the position of the NSEC record that covers or matches the name with this sort key. Its
    /// owner is the last one that is not after the name.
    pub(crate) fn covering(&self, key: &[u8]) -> Option<At> {
        let mut group = 0;
        for level in self.levels.iter().rev() {
            group = level.last_not_above(key, level.group(group));
        }
        self.places.get(group).copied()
    }

    /// Begins a search in steps, between which the memory of the next step is prefetched.
    pub(crate) fn descend(&self) -> Descent {
        Descent {
            levels: self.levels.len(),
            group: 0,
            has_ends: false,
        }
    }

    /// Goes one step in a search for the position that [`covering`](Self::covering) returns, and
    /// prefetches what the next step reads. Returns true after the last step.
    pub(crate) fn step(&self, descent: &mut Descent, key: &[u8]) -> bool {
        let Some(below) = descent.levels.checked_sub(1) else {
            return true;
        };
        let level = &self.levels[below];
        let range = level.group(descent.group);
        if !descent.has_ends {
            level.fetch_keys(range);
            descent.has_ends = true;
            return false;
        }
        descent.group = level.last_not_above(key, range);
        (descent.levels, descent.has_ends) = (below, false);
        match below.checked_sub(1) {
            Some(next) => {
                let level = &self.levels[next];
                level.fetch_ends(level.group(descent.group));
            }
            None => self
                .places
                .get(descent.group)
                .into_iter()
                .for_each(nmio::prefetch),
        }
        false
    }

    /// Returns the position that a search in steps has found.
    pub(crate) fn place(&self, descent: &Descent) -> Option<At> {
        self.places.get(descent.group).copied()
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        let size = |level: &Level| level.bytes.len() + size_of_val(&*level.ends);
        let levels: usize = self.levels.iter().map(size).sum();
        levels + size_of_val(&*self.places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_owner_that_is_not_after_a_name_is_found() {
        for count in [1, 2, 15, 16, 17, 255, 256, 257, 1000, 5000] {
            let keys: Vec<_> = (0..count).map(|n: u32| format!("{n:05}a")).collect();
            let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
            // The apex has the empty key.
            let owners = std::iter::once(&b""[..]).chain(keys.iter().copied());
            let names = Names::new(owners.zip(100..));
            assert_eq!(names.covering(b""), Some(100));
            assert_eq!(names.covering(b"!"), Some(100));
            for (at, key) in (101..).zip(&keys) {
                assert_eq!(names.covering(key), Some(at), "{count}");
                let above = [key, &b"x"[..]].concat();
                assert_eq!(names.covering(&above), Some(at), "{count}");
                let mut descent = names.descend();
                while !names.step(&mut descent, &above) {}
                assert_eq!(names.place(&descent), Some(at), "{count}");
                let below = &key[..key.len() - 1];
                assert_eq!(names.covering(below), Some(at - 1), "{count}");
            }
        }
        assert_eq!(Names::new(std::iter::empty()).covering(b"a"), None);
    }
}
