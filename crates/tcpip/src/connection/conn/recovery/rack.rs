//! Loss detection with RACK (RFC 8985): a segment may count as lost if a segment sent later was
//! delivered.
//!
//! The RFC compares send times. Here first transmissions are ordered by sequence number, and
//! retransmissions by send time, which is equivalent (see [`scoreboard`](super::scoreboard)).
//!
//! An *overtaken* segment was sent before a delivered one. If the path has not reordered segments,
//! the overtaken segment counts as lost as soon as three segments were SACKed or recovery has
//! begun. Otherwise it counts as lost after a reordering window. This window starts when an ACK
//! reveals the overtaking. The RFC's window starts one RTT after the overtaken segment was sent.

use super::{Delivery, Flight, Losses, Mark, Piece, Rack, Scoreboard, earliest};
use crate::wire::{Block, Seq};

/// Number of ranges that are allowed in addition to those that a flight of whole segments needs.
const SPARE_RANGES: usize = 16;
/// Maximum distance in bytes by which a plausible DSACK (RFC 2883) may begin before SND.UNA.
const MAX_DSACK_AGE: u32 = 1 << 24;

#[cfg(test)]
thread_local! {
    /// Number of pieces that this thread has counted as delivered.
    static PIECES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Rack {
    /// Processes the delivery of a piece. `fack` is `self.fack` before this ACK, and `tsecr` is the
    /// ACK's TSecr if it belongs to the piece.
    fn deliver(
        &mut self,
        piece: Piece,
        flight: &Flight,
        tsecr: Option<u32>,
        fack: Seq,
        delivery: &mut Delivery,
    ) {
        match piece.mark {
            Some(Mark::Sacked) => return,
            Some(Mark::Retransmitted { at, fence }) => {
                // If the TSecr is older than the retransmission, the original was delivered. The
                // same is true if the ACK arrives after less than a round trip (RFC 8985, section
                // 6.2, step 2). The margin of a quarter allows for delayed ACKs, which lengthen the
                // measured RTT.
                let min_rtt = flight.min_rtt - flight.min_rtt / 4;
                let after = flight.now.wrapping_sub(at);
                let ago = after.div_ceil(1_000) + flight.backdating;
                let sent = flight.tsval.wrapping_sub(ago);
                let is_older = tsecr.is_some_and(|tsecr| Seq(tsecr).before(Seq(sent)));
                if (is_older || after < min_rtt) && flight.sack {
                    delivery.reordered = true;
                    delivery.early_bytes += piece.len();
                } else {
                    if self.latest_retransmit.is_none() || !self.is_later(at, piece.end) {
                        self.latest_retransmit = Some((at, piece.end));
                    }
                    self.overtaken = self.overtaken.later(fence);
                }
            }
            Some(Mark::LateRetransmit { .. }) => {}
            None | Some(Mark::Late { .. } | Mark::Lost) => {
                delivery.spurious_loss |= piece.mark == Some(Mark::Lost);
                delivery.reordered |= !piece.end.after(fack);
                self.fack = self.fack.later(piece.end);
                self.overtaken = self.overtaken.later(piece.end);
            }
        }
        delivery.delivered += piece.len();
        #[cfg(test)]
        PIECES.set(PIECES.get() + 1);
    }

    /// Returns true if a delivered retransmission was sent after the one that was sent at time `at`
    /// and ends at `end`.
    fn is_later(&self, at: u32, end: Seq) -> bool {
        self.latest_retransmit.is_some_and(|(latest, latest_end)| {
            let after = latest.wrapping_sub(at).cast_signed();
            after > 0 || after == 0 && latest_end.after(end)
        })
    }

    /// Returns true if a check of all ranges could find a late or lost segment, other than between
    /// `checked` and `overtaken`.
    ///
    /// An ACK that changes nothing must not cause a walk over all ranges, because a client can
    /// repeat it for ever. Therefore a needless walk only follows the delivery of the range that the
    /// answer depends on.
    fn must_check_all(&self, board: &Scoreboard, now: u32, window: u32) -> bool {
        let is_over = |since| now.wrapping_sub(since) >= window;
        !board.knows_late()
            || board.late_since().is_some_and(is_over)
            || self
                .earliest_retransmit
                .is_some_and(|(fence, at, end)| self.fack.after(fence) || self.is_later(at, end))
            || (self.is_incomplete || board.has_forgotten)
                && (self.any_late || self.checked.before(self.overtaken))
    }

    /// Processes an ACK that moves SND.UNA from `una` to `flight.una`.
    ///
    /// `tsecr` is the ACK's TSecr, which belongs to the segment at `una` (RFC 7323, section 4.3).
    pub(super) fn process_ack(
        &mut self,
        board: &mut Scoreboard,
        flight: &Flight,
        una: Seq,
        tsecr: Option<u32>,
        sack: &[Block],
    ) -> Delivery {
        let mut delivery = Delivery::default();
        let fack = self.fack;
        for piece in board.pieces(una, flight.una) {
            let tsecr = tsecr.filter(|_| piece.start == una);
            self.deliver(piece, flight, tsecr, fack, &mut delivery);
        }
        board.advance(flight.una);
        let una = flight.una;
        let max_ranges = max_ranges(flight);
        for (n, (start, end)) in sack.iter().copied().enumerate() {
            if n == 0
                && let Some(dsack) = dsack_block(sack, flight)
            {
                delivery.dsack = Some(dsack);
                continue;
            }
            let start = start.later(una);
            if !start.before(end) || end.since(una) > flight.len() {
                // The block reports data that is already acknowledged or was never sent.
                continue;
            }
            if board.len() >= max_ranges || !board.takes_sacked() {
                // A block that has no room must cost nothing, because a client can repeat it for ever.
                delivery.board_full = true;
                continue;
            }
            // The range that contains both the last byte before `start` and the byte at `start`.
            let around = board.first_piece(start - 1, start + 1);
            let around = around.filter(|piece| piece.end.after(start));
            for piece in board.pieces(start, end) {
                self.deliver(piece, flight, None, fack, &mut delivery);
            }
            if let Some(Mark::Retransmitted { at, fence }) = around.and_then(|piece| piece.mark) {
                // A part of this retransmission remains, and it now ends at `start`.
                self.note_retransmit(fence, at, start);
            }
            board.set(start, end, Some(Mark::Sacked));
        }
        delivery
    }

    /// Marks segments that are now late or lost.
    ///
    /// `skip_window` tells whether to skip the reordering window. The caller skips the window if
    /// the path has not reordered segments so far, and recovery has begun or enough later data was
    /// delivered.
    pub(super) fn find_lost(
        &mut self,
        board: &mut Scoreboard,
        flight: &Flight,
        skip_window: bool,
    ) -> Losses {
        let mut window = if skip_window {
            0
        } else {
            flight.reordering_window
        };
        if flight.all_sent {
            // All data was sent, so a long wait would delay the end of the response. A spurious
            // retransmission costs little.
            window = window.min(flight.min_rtt / 4);
        }
        let mut losses = Losses::default();
        if !self.must_check_all(board, flight.now, window) && self.checked.before(self.overtaken) {
            losses.lost = self.check_new(board, flight, window);
        }
        if self.must_check_all(board, flight.now, window) {
            let all = self.check_all(board, flight, window);
            losses.lost += all.lost;
            losses.lost_retransmission = all.lost_retransmission;
        }
        self.checked = self.overtaken;
        if !board.any_retransmitted() {
            self.earliest_retransmit = None;
        }
        losses.recheck_in = board
            .late_since()
            .map(|since| window.saturating_sub(flight.now.wrapping_sub(since)));
        self.any_late = losses.recheck_in.is_some();
        losses
    }

    /// Marks the segments that were overtaken since the last check. Returns the number of bytes
    /// that are lost.
    fn check_new(&self, board: &mut Scoreboard, flight: &Flight, window: u32) -> u32 {
        let mut lost = 0;
        let mut at = self.checked.later(flight.una);
        while let Some(piece) = board.first_piece(at, self.overtaken) {
            at = piece.end;
            if piece.mark.is_some() {
                continue;
            }
            let mark = if window == 0 {
                lost += piece.len();
                Mark::Lost
            } else {
                Mark::Late { at: flight.now }
            };
            board.set(piece.start, piece.end, Some(mark));
        }
        lost
    }

    /// Marks all segments in flight that are now late or lost.
    fn check_all(&mut self, board: &mut Scoreboard, flight: &Flight, window: u32) -> Losses {
        let (una, now) = (flight.una, flight.now);
        let mut check = Check::new(self, now, window);
        let changes = board
            .pieces(una, flight.nxt)
            .any(|piece| check.mark(piece) != piece.mark);
        if changes || board.has_forgotten || !board.knows_late() {
            // All marks change in one pass, because many single changes would each move ranges.
            check = Check::new(self, now, window);
            board.remark(una, self.overtaken, |piece| check.mark(piece));
        }
        let Check {
            losses, earliest, ..
        } = check;
        self.earliest_retransmit = earliest;
        self.is_incomplete = false;
        losses
    }
}

/// A check of all ranges.
struct Check<'a> {
    rack: &'a Rack,
    now: u32,
    /// Time in microseconds after which a late segment counts as lost.
    window: u32,
    losses: Losses,
    /// The new value of `rack.earliest_retransmit`.
    earliest: Option<(Seq, u32, Seq)>,
}

impl<'a> Check<'a> {
    fn new(rack: &'a Rack, now: u32, window: u32) -> Self {
        Self {
            rack,
            now,
            window,
            losses: Losses::default(),
            earliest: None,
        }
    }

    /// Returns the new mark of a piece. A piece without a mark must not lie on both sides of
    /// `rack.overtaken`.
    fn mark(&mut self, piece: Piece) -> Option<Mark> {
        let (since, is_retransmission) = match piece.mark {
            None if piece.start.before(self.rack.overtaken) => (self.now, false),
            Some(Mark::Late { at }) => (at, false),
            Some(Mark::LateRetransmit { at }) => (at, true),
            Some(Mark::Retransmitted { at, fence }) => {
                if !self.rack.fack.after(fence) && !self.rack.is_later(at, piece.end) {
                    let noted = (fence, at, piece.end);
                    self.earliest = Some(earliest(self.earliest.unwrap_or(noted), noted));
                    return piece.mark;
                }
                (self.now, true)
            }
            None | Some(Mark::Sacked | Mark::Lost) => return piece.mark,
        };
        if self.now.wrapping_sub(since) >= self.window {
            self.losses.lost += piece.len();
            self.losses.lost_retransmission |= is_retransmission;
            Some(Mark::Lost)
        } else if is_retransmission {
            Some(Mark::LateRetransmit { at: since })
        } else {
            Some(Mark::Late { at: since })
        }
    }
}

/// Returns the first SACK block if it is a DSACK. A DSACK lies below the cumulative ACK or inside
/// the second block (RFC 2883, section 4). A second block with data that was never sent proves
/// nothing.
fn dsack_block(sack: &[Block], flight: &Flight) -> Option<Block> {
    let una = flight.una;
    let (start, end) = *sack.first()?;
    if !start.before(end) {
        return None;
    }
    let is_old = !end.after(una) && una.since(start) <= MAX_DSACK_AGE;
    let is_inside = sack.get(1).is_some_and(|(outer, outer_end)| {
        !start.before(*outer) && !end.after(*outer_end) && !outer_end.after(flight.nxt)
    });
    (is_old || is_inside).then_some((start, end))
}

/// Returns the number of ranges up to which SACK blocks are accepted for a flight, whatever the
/// capacity of the scoreboard. The limit suffices for honest peers, which report whole segments.
/// Without this limit, an attacker could report single bytes to exhaust memory.
fn max_ranges(flight: &Flight) -> usize {
    2 * (flight.len() / flight.mss) as usize + SPARE_RANGES
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
