//! Scoreboard of the bytes in flight after a loss or reordering (RFC 6675), with the times that
//! RACK needs (RFC 8985).
//!
//! Bytes without a mark count as in flight and as sent only once. No send time is stored for them.
//! First transmissions are sent in the order of their sequence numbers, so "sent later" means
//! "higher number".
//!
//! Retransmissions break this order. The mark of a retransmission holds its send time and its
//! *fence*, the value of SND.NXT at that time. Data below the fence was first sent before the
//! retransmission, and all other data was first sent later.

use std::collections::vec_deque;

use super::{Mark, Piece, Range, Scoreboard};
use crate::wire::Seq;

impl Scoreboard {
    /// Divides `start..end` into pieces with the same mark, in order.
    pub(super) fn pieces(&self, start: Seq, end: Seq) -> impl Iterator<Item = Piece> {
        let first = self.first_after(start);
        Pieces {
            ranges: self.ranges.range(first..),
            at: start,
            end,
        }
    }

    /// Returns the index of the first range that ends after `seq`.
    fn first_after(&self, seq: Seq) -> usize {
        self.ranges.partition_point(|range| !range.end.after(seq))
    }

    /// Removes all marks of data before `una`, because that data is acknowledged.
    pub(super) fn advance(&mut self, una: Seq) {
        let gone = self.first_after(una);
        for range in self.ranges.drain(..gone) {
            match range.mark {
                Mark::Sacked => self.sacked -= range.len(),
                Mark::Lost => self.lost -= range.len(),
                _ => {}
            }
        }
        if let Some(first) = self.ranges.front_mut()
            && first.start.before(una)
        {
            let cut = una.since(first.start);
            first.start = una;
            match first.mark {
                Mark::Sacked => self.sacked -= cut,
                Mark::Lost => self.lost -= cut,
                _ => {}
            }
        }
    }

    /// Marks `start..end`, or removes its marks if `mark` is `None`.
    ///
    /// Returns `false`, and changes nothing, if `mark` is [`Mark::Sacked`] and there is no room for
    /// another range. For all other marks, [`forget_furthest`](Self::forget_furthest) makes room if
    /// necessary.
    pub(super) fn set(&mut self, start: Seq, end: Seq, mark: Option<Mark>) -> bool {
        if !start.before(end) {
            return true;
        }
        if !self.takes_sacked() {
            if mark == Some(Mark::Sacked) {
                return false;
            }
            if self.ranges.len() + 2 > self.limit {
                self.forget_furthest();
            }
        }
        let from = self.first_after(start);
        let overlapping = self.ranges.range(from..);
        let to = from
            + overlapping
                .take_while(|range| range.start.before(end))
                .count();
        // Parts of old ranges that extend beyond `start` or `end` keep their marks.
        let head = self.ranges.get(from).filter(|_| from < to);
        let head = head
            .filter(|range| range.start.before(start))
            .map(|range| Range {
                end: start,
                ..*range
            });
        let tail = self.ranges.get(to.wrapping_sub(1)).filter(|_| from < to);
        let tail = tail
            .filter(|range| range.end.after(end))
            .map(|range| Range {
                start: end,
                ..*range
            });
        let new = mark.map(|mark| Range { start, end, mark });
        for range in self.ranges.drain(from..to) {
            match range.mark {
                Mark::Sacked => self.sacked -= range.len(),
                Mark::Lost => self.lost -= range.len(),
                _ => {}
            }
        }
        let mut at = from;
        for range in [head, new, tail].into_iter().flatten() {
            match range.mark {
                Mark::Sacked => self.sacked += range.len(),
                Mark::Lost => self.lost += range.len(),
                _ => {}
            }
            self.ranges.insert(at, range);
            at += 1;
        }
        self.join(from.saturating_sub(1), at - from + 2);
        true
    }

    /// Removes two ranges. SACKed ranges are removed first, and lost ranges last. Among ranges of
    /// the same kind, the one with the highest sequence numbers is removed first.
    #[cold]
    fn forget_furthest(&mut self) {
        for _ in 0..2 {
            let mut ranges = self.ranges.iter();
            let arrived = ranges.rposition(|range| range.mark == Mark::Sacked);
            let mut ranges = self.ranges.iter();
            let furthest = arrived.or_else(|| ranges.rposition(|range| range.mark != Mark::Lost));
            let at = furthest.unwrap_or(self.ranges.len() - 1);
            if let Some(range) = self.ranges.remove(at) {
                match range.mark {
                    Mark::Sacked => self.sacked -= range.len(),
                    Mark::Lost => self.lost -= range.len(),
                    _ => {}
                }
            }
        }
    }

    /// Merges neighbours with the same mark among the `count` ranges that begin at index `from`.
    fn join(&mut self, from: usize, count: usize) {
        let mut at = from;
        for _ in 0..count {
            let (Some(range), Some(next)) = (self.ranges.get(at), self.ranges.get(at + 1)) else {
                return;
            };
            if range.end == next.start && range.mark == next.mark {
                self.ranges[at].end = self.ranges[at + 1].end;
                self.ranges.remove(at + 1);
            } else {
                at += 1;
            }
        }
    }

    /// Replaces every mark in `una..nxt` with the result of `new_mark`. If the result would need
    /// too many ranges, the whole of `una..nxt` gets the mark that `new_mark` returns for `None`.
    pub(super) fn rebuild(
        &mut self,
        una: Seq,
        nxt: Seq,
        new_mark: impl Fn(Option<Mark>) -> Option<Mark>,
    ) {
        self.advance(una);
        let listed = self.ranges.len();
        (self.sacked, self.lost) = (0, 0);
        if new_mark(None).is_some() && self.pieces(una, nxt).count() > self.limit {
            // The gaps between the ranges would become ranges too, which would exceed the capacity.
            // Therefore all data becomes one range.
            self.ranges.clear();
            self.append(una, nxt, new_mark(None));
            return;
        }
        // This loop rotates the ring once: old ranges leave at the front, and new ones enter at the
        // back.
        let mut at = una;
        for _ in 0..listed {
            let Some(range) = self.ranges.pop_front() else {
                return;
            };
            self.append(at, range.start, new_mark(None));
            self.append(range.start, range.end, new_mark(Some(range.mark)));
            at = range.end;
        }
        self.append(at, nxt, new_mark(None));
    }

    /// Appends `start..end` as the last range, unless `start..end` is empty or `mark` is `None`.
    fn append(&mut self, start: Seq, end: Seq, mark: Option<Mark>) {
        let Some(mark) = mark.filter(|_| start.before(end)) else {
            return;
        };
        match mark {
            Mark::Sacked => self.sacked += end.since(start),
            Mark::Lost => self.lost += end.since(start),
            _ => {}
        }
        match self.ranges.back_mut() {
            Some(last) if last.end == start && last.mark == mark => last.end = end,
            _ => self.ranges.push_back(Range { start, end, mark }),
        }
    }
}

/// Iterator that [`Scoreboard::pieces`] returns.
#[derive(Clone, Debug)]
struct Pieces<'a> {
    ranges: vec_deque::Iter<'a, Range>,
    at: Seq,
    end: Seq,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let start = self.at;
        if !start.before(self.end) {
            return None;
        }
        let nearer = |a: Seq, b: Seq| if a.before(b) { a } else { b };
        let (end, mark) = match self.ranges.clone().next() {
            Some(range) if range.start.after(start) => (nearer(range.start, self.end), None),
            Some(range) => {
                self.ranges.next();
                (nearer(range.end, self.end), Some(range.mark))
            }
            None => (self.end, None),
        };
        self.at = end;
        Some(Piece { start, end, mark })
    }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
