//! Finds the zones that were read from a file.

use std::path::Path;
use std::sync::Arc;

use super::good_zone::GoodZone;
use crate::key::Hashing;
use crate::load::ReadFile;

/// An index of zones by the paths of their files. It takes 8 bytes for each file.
#[derive(Debug)]
pub(super) struct ByPath {
    /// The lower half of the hash of each path, in order, with the number of a zone that has the file.
    entries: Box<[(u32, u32)]>,
}

impl ByPath {
    /// Creates an index of these zones.
    pub(super) fn of(zones: &[Arc<GoodZone>], hashing: &Hashing) -> Self {
        let pairs = (0..).zip(zones);
        let entries = pairs.flat_map(|(number, zone)| {
            let paths = zone.files.iter().map(ReadFile::path);
            paths.map(move |path| (hash_of(path, hashing), number))
        });
        let mut entries: Box<[_]> = entries.collect();
        entries.sort_unstable();
        Self { entries }
    }

    /// Returns the numbers of all zones that have this file. Others may be among them, whose paths have the
    /// same hash.
    pub(super) fn candidates(
        &self,
        path: &Path,
        hashing: &Hashing,
    ) -> impl Iterator<Item = usize> + '_ {
        let hash = hash_of(path, hashing);
        let start = self.entries.partition_point(|(other, _)| *other < hash);
        let found = self.entries[start..].iter();
        let found = found.take_while(move |(other, _)| *other == hash);
        found.map(|(_, number)| *number as usize)
    }
}

/// Returns the same hash for equal paths, such as `a/b` and `a/./b`.
fn hash_of(path: &Path, hashing: &Hashing) -> u32 {
    hashing.hash_of(path) as u32
}
