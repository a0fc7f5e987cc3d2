//! Finding what is lost by what was sent later and has arrived: RACK (RFC
//! 8985).
//!
//! The RFC compares times of transmission. Here what was first sent is
//! ordered by its sequence numbers and what was sent again by its moment (see
//! [`scoreboard`](super::scoreboard)), which tells the same. Whatever was
//! *overtaken* is lost, at once while segments keep their order, otherwise
//! when it stays out for a reordering window more. That window runs from the
//! acknowledgement which tells of the overtaking; the RFC's begins up to one
//! flight earlier.

use super::{Delivery, Flight, Losses, Mark, Piece, Rack, Scoreboard};
use crate::wire::{Block, Seq};

/// Ranges beyond those that a flight of whole segments comes to.
const SPARE_RANGES: usize = 16;
/// Bytes before SND.UNA that a report of duplicates (RFC 2883) is believed
/// about.
const MAX_TWICE_AGE: u32 = 1 << 24;

impl Rack {
    /// A piece has arrived. `fack` is what `self.fack` was before the
    /// acknowledgement that says so, `echo` the timestamp that came back for it.
    fn deliver(
        &mut self,
        piece: Piece,
        flight: &Flight,
        echo: Option<u32>,
        fack: Seq,
        delivery: &mut Delivery,
    ) {
        match piece.mark {
            Some(Mark::Sacked) => return,
            Some(Mark::Retransmitted { at, fence }) => {
                // With an older timestamp, or sooner than any round trip: what
                // was first sent has arrived (RFC 8985, section 6.2, step 2).
                // (Round trips of what was acknowledged in pairs are
                // longer, hence the margin.)
                let least = flight.min_rtt - flight.min_rtt / 4;
                let after = flight.now.wrapping_sub(at);
                let ago = after.div_ceil(1_000) + flight.backdating;
                let sent = flight.ts_clock.wrapping_sub(ago);
                let is_older = echo.is_some_and(|echo| Seq(echo).before(Seq(sent)));
                if (is_older || after < least) && flight.selective {
                    delivery.reordered = true;
                    delivery.early += piece.len();
                } else {
                    if self.latest_retransmit.is_none() || !self.is_later(at, piece.end) {
                        self.latest_retransmit = Some((at, piece.end));
                    }
                    self.overtaken = self.overtaken.later(fence);
                }
            }
            Some(Mark::LateRetransmit { .. }) => {}
            None | Some(Mark::Late { .. } | Mark::Lost) => {
                delivery.not_lost |= piece.mark == Some(Mark::Lost);
                delivery.reordered |= !piece.end.after(fack);
                self.fack = self.fack.later(piece.end);
                self.overtaken = self.overtaken.later(piece.end);
            }
        }
        delivery.delivered += piece.len();
    }

    /// Whether something has arrived that was sent again later than what was
    /// sent at `at` and ends at `end`.
    fn is_later(&self, at: u32, end: Seq) -> bool {
        self.latest_retransmit.is_some_and(|(latest, latest_end)| {
            let after = latest.wrapping_sub(at).cast_signed();
            after > 0 || after == 0 && latest_end.after(end)
        })
    }

    /// Whether a look at the scoreboard could find anything.
    fn may_find(&self) -> bool {
        self.late
            || self.checked.before(self.overtaken)
            || self
                .earliest_retransmit
                .is_some_and(|(fence, at, end)| self.fack.after(fence) || self.is_later(at, end))
    }

    /// Takes an acknowledgement in: `una` was acknowledged before it,
    /// `flight.una` is now. `echo`, where both sides send timestamps, is that of
    /// what came at `una` (RFC 7323, section 4.3).
    pub(super) fn take_in(
        &mut self,
        board: &mut Scoreboard,
        flight: &Flight,
        una: Seq,
        echo: Option<u32>,
        sack: &[Block],
    ) -> Delivery {
        let mut delivery = Delivery::default();
        let fack = self.fack;
        for piece in board.pieces(una, flight.una) {
            let echo = echo.filter(|_| piece.start == una);
            self.deliver(piece, flight, echo, fack, &mut delivery);
        }
        board.advance(flight.una);
        let una = flight.una;
        let room = room(flight);
        for (n, (start, end)) in sack.iter().copied().enumerate() {
            if n == 0
                && let Some(twice) = twice(sack, una)
            {
                delivery.twice = Some(twice);
                continue;
            }
            let start = start.later(una);
            if !start.before(end) || end.since(una) > flight.len() {
                // Acknowledged meanwhile, or never sent.
                continue;
            }
            let before = (*self, delivery);
            for piece in board.pieces(start, end) {
                self.deliver(piece, flight, None, fack, &mut delivery);
            }
            if board.len() >= room || !board.set(start, end, Some(Mark::Sacked)) {
                (*self, delivery) = before;
                delivery.no_place = true;
            }
        }
        delivery
    }

    /// Marks what is late or lost by now. `at_once`: the segments have kept
    /// their order so far, or enough has arrived behind a gap.
    pub(super) fn find_lost(
        &mut self,
        board: &mut Scoreboard,
        flight: &Flight,
        at_once: bool,
    ) -> Losses {
        let mut losses = Losses::default();
        if !self.may_find() {
            return losses;
        }
        let mut window = if at_once { 0 } else { flight.reordering_window };
        if flight.all_sent {
            // A needless segment costs itself now, and waiting the end of the
            // response.
            window = window.min(flight.min_rtt / 4);
        }
        self.late = false;
        self.earliest_retransmit = None;
        let mut at = flight.una;
        while let Some(mut piece) = board.first_piece(at, flight.nxt) {
            let (late_since, again) = match piece.mark {
                None if piece.start.before(self.overtaken) => {
                    if self.overtaken.before(piece.end) {
                        piece.end = self.overtaken;
                    }
                    (Some(flight.now), false)
                }
                Some(Mark::Late { at }) => (Some(at), false),
                Some(Mark::LateRetransmit { at }) => (Some(at), true),
                Some(Mark::Retransmitted { at, fence }) => {
                    let late = self.fack.after(fence) || self.is_later(at, piece.end);
                    if !late {
                        self.note_earliest_retransmit(fence, at, piece.end);
                    }
                    (late.then_some(flight.now), true)
                }
                _ => (None, false),
            };
            at = piece.end;
            let Some(since) = late_since else {
                continue;
            };
            let waited = flight.now.wrapping_sub(since);
            let mark = if waited >= window {
                Mark::Lost
            } else {
                let left = window - waited;
                losses.recheck_in = Some(losses.recheck_in.map_or(left, |least| least.min(left)));
                self.late = true;
                if again {
                    Mark::LateRetransmit { at: since }
                } else {
                    Mark::Late { at: since }
                }
            };
            if piece.mark != Some(mark) {
                board.set(piece.start, piece.end, Some(mark));
                if mark == Mark::Lost {
                    losses.lost += piece.len();
                    losses.again |= again;
                }
            }
        }
        self.checked = self.overtaken;
        losses
    }

    fn note_earliest_retransmit(&mut self, fence: Seq, at: u32, end: Seq) {
        let (least_fence, least_at, least_end) =
            self.earliest_retransmit.unwrap_or((fence, at, end));
        let (at, end) = if at.wrapping_sub(least_at).cast_signed() < 0 {
            (at, end)
        } else {
            (least_at, least_end)
        };
        let fence = if fence.before(least_fence) {
            fence
        } else {
            least_fence
        };
        self.earliest_retransmit = Some((fence, at, end));
    }
}

/// The first block, if it tells what has arrived twice (RFC 2883, section 4):
/// it lies before what is acknowledged, or inside the second.
fn twice(sack: &[Block], una: Seq) -> Option<Block> {
    let (start, end) = *sack.first()?;
    if !start.before(end) {
        return None;
    }
    let old = !end.after(una) && una.since(start) <= MAX_TWICE_AGE;
    let inside = sack
        .get(1)
        .is_some_and(|(outer, outer_end)| !start.before(*outer) && !end.after(*outer_end));
    (old || inside).then_some((start, end))
}

/// Ranges that a scoreboard may come to before it takes no more selective
/// acknowledgements in: of honest ones each names a segment, of others perhaps
/// a byte, and memory is not theirs to spend.
fn room(flight: &Flight) -> usize {
    2 * (flight.len() / flight.mss) as usize + SPARE_RANGES
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
