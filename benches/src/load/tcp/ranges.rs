//! Tracks data received out of order. Only the position and the checksum of the data are stored.

use arrayvec::ArrayVec;
use crc32fast::Hasher;

use super::{MAX_SACK_BLOCKS, before};

/// Maximum number of separate ranges on one connection.
pub(in super::super) const MAX_RANGES: usize = 32;

/// A range of sequence numbers, `start..end`, and the CRC-32 of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u32,
    end: u32,
    crc: u32,
}

impl Range {
    fn len(&self) -> u32 {
        self.end.wrapping_sub(self.start)
    }
}

/// The data received after the first hole.
///
/// The bytes themselves are not stored. When two ranges become adjacent, they are merged, and their
/// checksums are combined. Duplicate data is skipped.
#[derive(Debug, Default)]
pub(in super::super) struct Ranges {
    /// The ranges are in order of sequence numbers. No two ranges are adjacent.
    ranges: ArrayVec<Range, MAX_RANGES>,
    /// Start of the range that contains the last received data. The SACK option reports this range
    /// first (RFC 2018, section 4).
    latest: u32,
}

impl Ranges {
    pub(in super::super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the start of the first range.
    pub(in super::super) fn first(&self) -> Option<u32> {
        self.ranges.first().map(|range| range.start)
    }

    /// Removes the first range if it starts at `at`, and returns its length and CRC.
    pub(in super::super) fn take_at(&mut self, at: u32) -> Option<(u32, u32)> {
        if self.first() != Some(at) {
            return None;
        }
        let range = self.ranges.remove(0);
        Some((range.len(), range.crc))
    }

    /// Adds the parts of `data` that are new. `seq` is the sequence number of the first byte. A
    /// part that would exceed [`MAX_RANGES`] is dropped, and the server must send it again.
    pub(in super::super) fn add(&mut self, seq: u32, data: &[u8]) {
        let end = seq.wrapping_add(data.len() as u32);
        let mut at = seq;
        while before(at, end) {
            // The first range that ends after `at`.
            let next = (self.ranges.iter()).position(|range| before(at, range.end));
            let hole_end = match next.map(|i| self.ranges[i]) {
                Some(range) if !before(at, range.start) => {
                    self.latest = range.start;
                    at = range.end;
                    continue;
                }
                Some(range) if before(range.start, end) => range.start,
                _ => end,
            };
            let from = at.wrapping_sub(seq) as usize;
            let to = hole_end.wrapping_sub(seq) as usize;
            self.fill(next.unwrap_or(self.ranges.len()), at, &data[from..to]);
            at = hole_end;
        }
    }

    /// Puts `piece`, which begins at `at`, into the hole before range `next`.
    fn fill(&mut self, next: usize, at: u32, piece: &[u8]) {
        let end = at.wrapping_add(piece.len() as u32);
        let previous = next.checked_sub(1).filter(|i| self.ranges[*i].end == at);
        let i = if let Some(i) = previous {
            let range = &mut self.ranges[i];
            range.crc = continued(range.crc, piece);
            range.end = end;
            i
        } else {
            if self.ranges.is_full() {
                return;
            }
            let range = Range {
                start: at,
                end,
                crc: continued(0, piece),
            };
            self.ranges.insert(next, range);
            next
        };
        self.latest = self.ranges[i].start;
        if self.ranges.get(i + 1).is_some_and(|next| next.start == end) {
            let next = self.ranges.remove(i + 1);
            let range = &mut self.ranges[i];
            range.crc = combined(range.crc, next.crc, next.len());
            range.end = next.end;
        }
    }

    /// Returns the blocks of a SACK option, beginning with the latest range.
    pub(in super::super) fn blocks(&self) -> ArrayVec<(u32, u32), MAX_SACK_BLOCKS> {
        let is_latest = |range: &&Range| range.start == self.latest;
        let latest = self.ranges.iter().filter(is_latest);
        let others = self.ranges.iter().filter(|range| !is_latest(range));
        (latest.chain(others))
            .map(|range| (range.start, range.end))
            .take(MAX_SACK_BLOCKS)
            .collect()
    }
}

/// Returns the CRC of some bytes followed by `data`. `crc` is the CRC of the bytes before `data`.
#[inline(always)]
pub(in super::super) fn continued(crc: u32, data: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(data);
    hasher.finalize()
}

/// Returns the CRC of two adjacent pieces from the CRC of each piece. The second piece is `len`
/// bytes long.
pub(in super::super) fn combined(first: u32, second: u32, len: u32) -> u32 {
    let mut hasher = Hasher::new_with_initial(first);
    hasher.combine(&Hasher::new_with_initial_len(second, u64::from(len)));
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reassembles `pieces` of `whole` as a connection does. Returns the number of bytes in order,
    /// and their CRC.
    fn assemble(whole: &[u8], base: u32, pieces: &[(usize, usize)]) -> (usize, u32) {
        let (mut have, mut crc) = (0, 0);
        let mut ranges = Ranges::default();
        for &(start, end) in pieces {
            if start > have {
                ranges.add(base.wrapping_add(start as u32), &whole[start..end]);
                continue;
            }
            let mut at = have;
            while at < end {
                let first = ranges
                    .first()
                    .map_or(end, |first| end.min(first.wrapping_sub(base) as usize));
                crc = continued(crc, &whole[at..first]);
                at = first;
                while let Some((len, more)) = ranges.take_at(base.wrapping_add(at as u32)) {
                    crc = combined(crc, more, len);
                    at += len as usize;
                }
            }
            have = have.max(at);
        }
        (have, crc)
    }

    #[test]
    fn pieces_in_any_order_give_the_checksum_of_the_whole() {
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..500 {
            let whole: Vec<u8> = (0..rng.usize(1..6000)).map(|_| rng.u8(..)).collect();
            let base = rng.u32(..);
            let mut pieces: Vec<(usize, usize)> = (0..whole.len())
                .step_by(200)
                .map(|start| (start, whole.len().min(start + rng.usize(200..900))))
                .collect();
            rng.shuffle(&mut pieces);
            // Repeats every piece, so that dropped pieces arrive again.
            let mut duplicated = pieces.clone();
            pieces.sort_unstable();
            duplicated.extend(pieces);
            let all = assemble(&whole, base, &duplicated);
            assert_eq!(all, (whole.len(), crc32fast::hash(&whole)), "round {round}");
        }
    }

    #[test]
    fn ranges_are_bounded_and_the_latest_is_reported_first() {
        let mut ranges = Ranges::default();
        for i in 0..2 * MAX_RANGES as u32 {
            ranges.add(i * 10, &[1; 5]);
        }
        assert_eq!(ranges.ranges.len(), MAX_RANGES);
        ranges.add(25, &[1; 5]);
        assert_eq!(
            ranges.ranges.len(),
            MAX_RANGES - 1,
            "the new piece joins two ranges"
        );
        let blocks = ranges.blocks();
        assert_eq!(blocks[0], (20, 35));
        assert_eq!(blocks[1..], [(0, 5), (10, 15), (40, 45)]);
    }
}
