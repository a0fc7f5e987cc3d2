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

use super::{Mark, Piece, Range, Scoreboard, Sums, note_steps};
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
        while let Some(first) = self.ranges.front_mut()
            && first.start.before(una)
        {
            let gone = Range {
                end: first.end.earlier(una),
                ..*first
            };
            first.start = una;
            self.sums.remove(&gone);
            if !una.before(first.end) {
                self.ranges.pop_front();
            }
        }
        self.sums.first_lost = self.sums.first_lost.later(una);
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
        self.replace(from, to, start, end, mark);
        true
    }

    /// Marks `start..end`, which overlaps exactly the ranges with the indices `from..to`.
    fn replace(
        &mut self,
        mut from: usize,
        mut to: usize,
        start: Seq,
        end: Seq,
        mark: Option<Mark>,
    ) {
        // A neighbour with the same mark becomes part of the new range.
        if let Some(before) = self.ranges.get(from.wrapping_sub(1))
            && before.end == start
            && mark == Some(before.mark)
        {
            from -= 1;
        }
        if let Some(after) = self.ranges.get(to)
            && after.start == end
            && mark == Some(after.mark)
        {
            to += 1;
        }
        let (mut head, mut tail) = (None, None);
        let mut new = mark.map(|mark| Range { start, end, mark });
        for old in self.ranges.range(from..to).copied() {
            self.sums.remove(&old);
            // Parts of old ranges that extend beyond `start` or `end` keep their marks.
            match &mut new {
                Some(new) if new.mark == old.mark => {
                    new.start = new.start.earlier(old.start);
                    new.end = new.end.later(old.end);
                }
                _ => {
                    let before = old.start.before(start);
                    head = head.or(before.then_some(Range { end: start, ..old }));
                    let after = old.end.after(end);
                    tail = tail.or(after.then_some(Range { start: end, ..old }));
                }
            }
        }
        let mut at = from;
        for range in [head, new, tail].into_iter().flatten() {
            self.sums.add(&range);
            if at < to {
                self.ranges[at] = range;
            } else {
                note_steps(at.min(self.ranges.len() - at));
                self.ranges.insert(at, range);
            }
            at += 1;
        }
        if at < to {
            note_steps(at.min(self.ranges.len() - to));
            self.ranges.drain(at..to);
        }
    }

    /// Removes two ranges. SACKed ranges are removed first, and lost ranges last. Among ranges of
    /// the same kind, the one with the highest sequence numbers is removed first.
    #[cold]
    fn forget_furthest(&mut self) {
        self.has_forgotten = true;
        for _ in 0..2 {
            let mut ranges = self.ranges.iter();
            let arrived = ranges.rposition(|range| range.mark == Mark::Sacked);
            let mut ranges = self.ranges.iter();
            let furthest = arrived.or_else(|| ranges.rposition(|range| range.mark != Mark::Lost));
            let at = furthest.unwrap_or(self.ranges.len() - 1);
            if let Some(range) = self.ranges.remove(at) {
                self.sums.remove(&range);
            }
        }
    }

    /// Replaces the mark of every range, and of every gap in `una..end`, with the result of
    /// `new_mark`. The data in gaps beyond `end` stays without a mark. If the result could need too
    /// many ranges, [`forget_tail`](Self::forget_tail) makes room first.
    pub(super) fn remark(
        &mut self,
        una: Seq,
        end: Seq,
        new_mark: impl FnMut(Piece) -> Option<Mark>,
    ) {
        if 2 * self.len() >= self.limit && self.len() + self.gaps(una, end) > self.limit {
            self.forget_tail(una, end);
        }
        self.rotate(una, end, new_mark);
        self.has_forgotten = false;
    }

    /// Returns the number of gaps between the ranges in `una..end`.
    fn gaps(&self, una: Seq, end: Seq) -> usize {
        let gaps = self.pieces(una, end).filter(|piece| piece.mark.is_none());
        gaps.count()
    }

    /// Makes room for a mark on every gap in `una..end`. To that end, the ranges with the highest
    /// sequence numbers are removed. The part of them beyond `end` becomes a single lost range.
    #[cold]
    fn forget_tail(&mut self, una: Seq, end: Seq) {
        // The two last ranges are the gap behind all that is kept, and the lost range.
        let mut room = self.limit - 2;
        let (mut kept, mut at) = (0, una);
        for range in &self.ranges {
            let needed = 1 + usize::from(at.before(range.start.earlier(end)));
            if needed > room {
                break;
            }
            room -= needed;
            kept += 1;
            at = range.end;
        }
        let last = self.ranges.back().map_or(una, |range| range.end);
        while self.ranges.len() > kept
            && let Some(range) = self.ranges.pop_back()
        {
            self.sums.remove(&range);
        }
        self.append(at.later(end), last, Some(Mark::Lost));
    }

    /// Replaces the mark of every range, and of every gap in `una..end`, with the result of
    /// `new_mark`.
    fn rotate(&mut self, una: Seq, end: Seq, mut new_mark: impl FnMut(Piece) -> Option<Mark>) {
        let mut enter = |board: &mut Self, start: Seq, end: Seq, mark| {
            if start.before(end) {
                board.append(start, end, new_mark(Piece { start, end, mark }));
            }
        };
        // This loop rotates the ring once: old ranges leave at the front, and new ones enter at the
        // back.
        let listed = self.ranges.len();
        self.sums = Sums::default();
        let mut at = una;
        for _ in 0..listed {
            let Some(range) = self.ranges.pop_front() else {
                return;
            };
            note_steps(1);
            enter(self, at, range.start.earlier(end), None);
            enter(self, range.start, range.end, Some(range.mark));
            at = range.end;
        }
        enter(self, at, end, None);
    }

    /// Appends `start..end` as the last range, unless `start..end` is empty or `mark` is `None`.
    fn append(&mut self, start: Seq, end: Seq, mark: Option<Mark>) {
        let Some(mark) = mark.filter(|_| start.before(end)) else {
            return;
        };
        let range = Range { start, end, mark };
        self.sums.add(&range);
        match self.ranges.back_mut() {
            Some(last) if last.end == start && last.mark == mark => last.end = end,
            _ => self.ranges.push_back(range),
        }
    }
}

impl Sums {
    /// Counts a range that enters the scoreboard.
    fn add(&mut self, range: &Range) {
        let len = range.len();
        match range.mark {
            Mark::Sacked => self.sacked += len,
            Mark::Lost => {
                if self.lost == 0 || range.start.before(self.first_lost) {
                    self.first_lost = range.start;
                }
                self.lost += len;
            }
            Mark::Retransmitted { .. } => self.retransmitted += len,
            Mark::Late { at } => self.add_late(at, len),
            Mark::LateRetransmit { at } => {
                self.retransmitted += len;
                self.add_late(at, len);
            }
        }
    }

    fn add_late(&mut self, at: u32, len: u32) {
        let (first, bytes) = self.first_late;
        if self.late == 0 || at.wrapping_sub(first).cast_signed() < 0 {
            self.first_late = (at, len);
        } else if at == first {
            self.first_late = (first, bytes + len);
        }
        self.late += len;
    }

    /// Counts a range that leaves the scoreboard.
    fn remove(&mut self, range: &Range) {
        let len = range.len();
        let late_since = match range.mark {
            Mark::Late { at } | Mark::LateRetransmit { at } => Some(at),
            Mark::Sacked | Mark::Lost | Mark::Retransmitted { .. } => None,
        };
        match range.mark {
            Mark::Sacked => self.sacked -= len,
            Mark::Lost => self.lost -= len,
            Mark::Retransmitted { .. } | Mark::LateRetransmit { .. } => self.retransmitted -= len,
            Mark::Late { .. } => {}
        }
        if let Some(at) = late_since {
            self.late -= len;
            if at == self.first_late.0 {
                self.first_late.1 -= len;
            }
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
        let (end, mark) = match self.ranges.clone().next() {
            Some(range) if range.start.after(start) => (range.start.earlier(self.end), None),
            Some(range) => {
                self.ranges.next();
                (range.end.earlier(self.end), Some(range.mark))
            }
            None => (self.end, None),
        };
        self.at = end;
        note_steps(1);
        Some(Piece { start, end, mark })
    }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
