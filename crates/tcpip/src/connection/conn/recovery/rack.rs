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

use super::{Delivery, Flight, Losses, Mark, Piece, Rack, Scoreboard};
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

    /// Returns true if a check of the scoreboard could find a late or lost segment.
    fn may_find(&self) -> bool {
        self.any_late
            || self.checked.before(self.overtaken)
            || self
                .earliest_retransmit
                .is_some_and(|(fence, at, end)| self.fack.after(fence) || self.is_later(at, end))
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
                && let Some(dsack) = dsack_block(sack, una)
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
            for piece in board.pieces(start, end) {
                self.deliver(piece, flight, None, fack, &mut delivery);
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
        let mut losses = Losses::default();
        if !self.may_find() {
            return losses;
        }
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
        self.any_late = false;
        self.earliest_retransmit = None;
        let mut at = flight.una;
        while let Some(mut piece) = board.first_piece(at, flight.nxt) {
            let (late_since, is_retransmission) = match piece.mark {
                None if piece.start.before(self.overtaken) => {
                    if self.overtaken.before(piece.end) {
                        piece.end = self.overtaken;
                    }
                    (Some(flight.now), false)
                }
                Some(Mark::Late { at }) => (Some(at), false),
                Some(Mark::LateRetransmit { at }) => (Some(at), true),
                Some(Mark::Retransmitted { at, fence }) => {
                    let is_late = self.fack.after(fence) || self.is_later(at, piece.end);
                    if !is_late {
                        self.note_earliest_retransmit(fence, at, piece.end);
                    }
                    (is_late.then_some(flight.now), true)
                }
                _ => (None, false),
            };
            at = piece.end;
            let Some(since) = late_since else {
                continue;
            };
            let elapsed = flight.now.wrapping_sub(since);
            let mark = if elapsed >= window {
                Mark::Lost
            } else {
                let delay = window - elapsed;
                losses.recheck_in = Some(losses.recheck_in.map_or(delay, |min| min.min(delay)));
                self.any_late = true;
                if is_retransmission {
                    Mark::LateRetransmit { at: since }
                } else {
                    Mark::Late { at: since }
                }
            };
            if piece.mark != Some(mark) {
                board.set(piece.start, piece.end, Some(mark));
                if mark == Mark::Lost {
                    losses.lost += piece.len();
                    losses.lost_retransmission |= is_retransmission;
                }
            }
        }
        self.checked = self.overtaken;
        losses
    }

    fn note_earliest_retransmit(&mut self, fence: Seq, at: u32, end: Seq) {
        let (min_fence, min_at, min_end) = self.earliest_retransmit.unwrap_or((fence, at, end));
        let (at, end) = if at.wrapping_sub(min_at).cast_signed() < 0 {
            (at, end)
        } else {
            (min_at, min_end)
        };
        let fence = if fence.before(min_fence) {
            fence
        } else {
            min_fence
        };
        self.earliest_retransmit = Some((fence, at, end));
    }
}

/// Returns the first SACK block if it is a DSACK. A DSACK lies below the cumulative ACK or inside
/// the second block (RFC 2883, section 4).
fn dsack_block(sack: &[Block], una: Seq) -> Option<Block> {
    let (start, end) = *sack.first()?;
    if !start.before(end) {
        return None;
    }
    let is_old = !end.after(una) && una.since(start) <= MAX_DSACK_AGE;
    let is_inside = sack
        .get(1)
        .is_some_and(|(outer, outer_end)| !start.before(*outer) && !end.after(*outer_end));
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
