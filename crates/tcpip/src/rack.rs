//! Finding what is lost by what was sent later and has arrived: RACK (RFC
//! 8985).
//!
//! The RFC compares times of transmission. Here what was first sent is
//! ordered by its sequence numbers and what was sent again by its moment (see
//! [`scoreboard`](crate::scoreboard)), which tells the same. Whatever was
//! *overtaken* is lost, at once while segments keep their order, otherwise
//! when it stays out for a reordering window more. That window runs from the
//! acknowledgement which tells of the overtaking; the RFC's begins up to one
//! flight earlier.

use crate::options::Block;
use crate::scoreboard::{Mark, Piece, Scoreboard};
use crate::tcb::{Flags, Moment, Tcb};
use crate::wire::Seq;

/// Selectively acknowledged segments that mean a loss (RFC 8985, section
/// 6.2).
pub(crate) const DUP_THRESH: u32 = 3;
/// Recoveries for which a wider reordering window is remembered (RFC 8985,
/// section 6.2: `RACK.reo_wnd_persist`).
const PERSIST: u8 = 15;
/// The widest reordering window, in quarters of the least round trip.
const MAX_QUARTERS: u8 = 15;
/// Ranges beyond those that a flight of whole segments comes to.
const SPARE_RANGES: usize = 16;
/// Bytes before SND.UNA that a report of duplicates (RFC 2883) is believed
/// about.
const MAX_TWICE_AGE: u32 = 1 << 24;

/// What one acknowledgement tells of.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct News {
    /// Bytes that have newly arrived.
    pub(crate) delivered: u32,
    /// Some of them as they were first sent, though taken as lost.
    pub(crate) not_lost: bool,
    /// Some of them as they were first sent, after something behind them.
    pub(crate) reordered: bool,
    /// What has arrived twice.
    pub(crate) twice: Option<Block>,
    /// Bytes that were sent again and have arrived too soon for that: what was
    /// first sent has.
    pub(crate) early: u32,
    /// A block found no place on the scoreboard.
    pub(crate) no_place: bool,
}

/// What is late, and what is newly lost.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Found {
    /// Bytes newly taken as lost.
    pub(crate) lost: u32,
    /// Some of them had been sent again before.
    pub(crate) again: bool,
    /// Microseconds after which to look again.
    pub(crate) look_in: Option<u32>,
}

/// The latest of what has arrived, in order of transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// What was first sent before this has been overtaken.
    overtook: Seq,
    /// Behind the last byte that has arrived as it was first sent.
    fack: Seq,
    /// When the latest of what was sent again and has arrived was sent, and
    /// its end.
    resent: Option<(u32, Seq)>,
    /// Everything before this has been looked at since it was overtaken.
    looked: Seq,
    /// The earliest of what was sent again and is still out: its fence, its
    /// moment and its end; perhaps it has arrived meanwhile.
    earliest: Option<(Seq, u32, Seq)>,
    /// Something is late.
    late: bool,
}

impl Rack {
    pub(crate) const fn new(una: Seq) -> Self {
        Self {
            overtook: una,
            fack: una,
            resent: None,
            looked: una,
            earliest: None,
            late: false,
        }
    }

    /// A piece has arrived. `fack` is what `self.fack` was before the
    /// acknowledgement that says so, `echo` the timestamp that came back for it.
    fn deliver(
        &mut self,
        piece: Piece,
        tcb: &Tcb,
        echo: Option<u32>,
        now: Moment,
        fack: Seq,
        news: &mut News,
    ) {
        match piece.mark {
            Some(Mark::Sacked) => return,
            Some(Mark::Resent { at, fence }) => {
                // With an older timestamp, or sooner than any round trip: what
                // was first sent has arrived (RFC 8985, section 6.2, step 2).
                // (Round trips of what was acknowledged in pairs are
                // longer, hence the margin.)
                let least = tcb.rtt.least() - tcb.rtt.least() / 4;
                let after = now.micros.wrapping_sub(at);
                let ago = after.div_ceil(1_000) + lateness(tcb);
                let sent = tcb.ts_clock(now).wrapping_sub(ago);
                let is_older = echo.is_some_and(|echo| Seq(echo).before(Seq(sent)));
                if (is_older || after < least) && tcb.flags.has(Flags::SACK) {
                    news.reordered = true;
                    news.early += piece.len();
                } else {
                    if self.resent.is_none() || !self.is_later(at, piece.end) {
                        self.resent = Some((at, piece.end));
                    }
                    self.overtook = self.overtook.later(fence);
                }
            }
            Some(Mark::LateAgain { .. }) => {}
            None | Some(Mark::Late { .. } | Mark::Lost) => {
                news.not_lost |= piece.mark == Some(Mark::Lost);
                news.reordered |= !piece.end.after(fack);
                self.fack = self.fack.later(piece.end);
                self.overtook = self.overtook.later(piece.end);
            }
        }
        news.delivered += piece.len();
    }

    /// Whether something has arrived that was sent again later than what was
    /// sent at `at` and ends at `end`.
    fn is_later(&self, at: u32, end: Seq) -> bool {
        self.resent.is_some_and(|(latest, latest_end)| {
            let after = latest.wrapping_sub(at).cast_signed();
            after > 0 || after == 0 && latest_end.after(end)
        })
    }

    /// `start..end` is sent again.
    pub(crate) fn has_resent(&mut self, end: Seq, fence: Seq, now: Moment) {
        self.earliest.get_or_insert((fence, now.micros, end));
    }

    /// Nothing that was sent again is out: its clock must not wrap.
    pub(crate) fn forget_resent(&mut self) {
        self.resent = None;
    }

    /// The scoreboard has been written anew.
    pub(crate) fn look_again(&mut self, una: Seq) {
        self.looked = una;
        self.earliest = Some((una, self.resent.map_or(0, |(at, _)| at), una));
        self.late = true;
    }

    /// Whether a look at the scoreboard could find anything.
    fn may_find(&self) -> bool {
        self.late
            || self.looked.before(self.overtook)
            || self
                .earliest
                .is_some_and(|(fence, at, end)| self.fack.after(fence) || self.is_later(at, end))
    }

    /// Takes an acknowledgement in: `una` was acknowledged before it,
    /// `tcb.snd_una` is now. `echo`, where both sides send timestamps, is that of
    /// what came at `una` (RFC 7323, section 4.3).
    pub(crate) fn take_in(
        &mut self,
        board: &mut Scoreboard,
        tcb: &Tcb,
        una: Seq,
        echo: Option<u32>,
        sack: &[Block],
        now: Moment,
    ) -> News {
        let mut news = News::default();
        let fack = self.fack;
        for piece in board.pieces(una, tcb.snd_una) {
            let echo = echo.filter(|_| piece.start == una);
            self.deliver(piece, tcb, echo, now, fack, &mut news);
        }
        board.advance(tcb.snd_una);
        let una = tcb.snd_una;
        let room = room(tcb);
        for (n, (start, end)) in sack.iter().copied().enumerate() {
            if n == 0
                && let Some(twice) = twice(sack, una)
            {
                news.twice = Some(twice);
                continue;
            }
            let start = start.later(una);
            if !start.before(end) || end.since(una) > tcb.flight() {
                // Acknowledged meanwhile, or never sent.
                continue;
            }
            let before = (*self, news);
            for piece in board.pieces(start, end) {
                self.deliver(piece, tcb, None, now, fack, &mut news);
            }
            if board.len() >= room || !board.set(start, end, Some(Mark::Sacked)) {
                (*self, news) = before;
                news.no_place = true;
            }
        }
        news
    }

    /// Marks what is late or lost by now. `at_once`: the segments have kept
    /// their order so far, or enough has arrived behind a gap.
    pub(crate) fn find_lost(
        &mut self,
        board: &mut Scoreboard,
        tcb: &Tcb,
        at_once: bool,
        now: Moment,
    ) -> Found {
        let mut found = Found::default();
        if !self.may_find() {
            return found;
        }
        let mut window = if at_once { 0 } else { reordering_window(tcb) };
        if tcb.snd_nxt == tcb.limit() {
            // A needless segment costs itself now, and waiting the end of the
            // response.
            window = window.min(tcb.rtt.least() / 4);
        }
        self.late = false;
        self.earliest = None;
        let mut at = tcb.snd_una;
        while let Some(mut piece) = board.pieces(at, tcb.snd_nxt).next() {
            let (late_since, again) = match piece.mark {
                None if piece.start.before(self.overtook) => {
                    if self.overtook.before(piece.end) {
                        piece.end = self.overtook;
                    }
                    (Some(now.micros), false)
                }
                Some(Mark::Late { at }) => (Some(at), false),
                Some(Mark::LateAgain { at }) => (Some(at), true),
                Some(Mark::Resent { at, fence }) => {
                    let late = self.fack.after(fence) || self.is_later(at, piece.end);
                    if !late {
                        self.note_earliest(fence, at, piece.end);
                    }
                    (late.then_some(now.micros), true)
                }
                _ => (None, false),
            };
            at = piece.end;
            let Some(since) = late_since else {
                continue;
            };
            let waited = now.micros.wrapping_sub(since);
            let mark = if waited >= window {
                Mark::Lost
            } else {
                let left = window - waited;
                found.look_in = Some(found.look_in.map_or(left, |least| least.min(left)));
                self.late = true;
                if again {
                    Mark::LateAgain { at: since }
                } else {
                    Mark::Late { at: since }
                }
            };
            if piece.mark != Some(mark) {
                board.set(piece.start, piece.end, Some(mark));
                if mark == Mark::Lost {
                    found.lost += piece.len();
                    found.again |= again;
                }
            }
        }
        self.looked = self.overtook;
        found
    }

    fn note_earliest(&mut self, fence: Seq, at: u32, end: Seq) {
        let (least_fence, least_at, least_end) = self.earliest.unwrap_or((fence, at, end));
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
        self.earliest = Some((fence, at, end));
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

/// How long a segment that was overtaken may stay out, in microseconds (RFC
/// 8985, section 6.2, step 4).
fn reordering_window(tcb: &Tcb) -> u32 {
    let quarters = u32::from(tcb.reorder & 0x0f);
    let window = (tcb.rtt.least() / 4).saturating_mul(quarters);
    window.min(tcb.rtt.smoothed())
}

/// Milliseconds by which the timestamp of what is sent again lies back. It
/// fills a gap, and from then on the receiver takes what is older for another
/// connection's (RFC 7323, section 5: PAWS): also what is merely late, and would
/// be lost that way. So it is as old as what may still be on its way, but not by
/// more than a round trip: older than what was first sent it would itself be
/// thrown away.
pub(crate) fn lateness(tcb: &Tcb) -> u32 {
    if tcb.flags.has(Flags::REORDERING) {
        let least = tcb.rtt.least() / 1_000;
        reordering_window(tcb).div_ceil(1_000).min(least)
    } else {
        0
    }
}

/// Something has arrived twice, sent again for nothing: segments stay out
/// longer than was thought. (RFC 8985 leaves `RACK.reordering_seen` alone then,
/// and goes on without a window while it recovers; where segments are late by
/// more than a round trip that sends far more for nothing.)
pub(crate) fn widen_reordering(tcb: &mut Tcb) {
    tcb.flags.set(Flags::REORDERING);
    let quarters = (tcb.reorder & 0x0f).saturating_add(1).min(MAX_QUARTERS);
    tcb.reorder = PERSIST << 4 | quarters;
}

/// A recovery has ended: after some, the reordering window is as it was.
pub(crate) fn narrow_reordering(tcb: &mut Tcb) {
    let recoveries = tcb.reorder >> 4;
    tcb.reorder = if recoveries <= 1 {
        1
    } else {
        (recoveries - 1) << 4 | tcb.reorder & 0x0f
    };
}

/// Ranges that a scoreboard may come to before it takes no more selective
/// acknowledgements in: of honest ones each names a segment, of others perhaps
/// a byte, and memory is not theirs to spend.
fn room(tcb: &Tcb) -> usize {
    2 * (tcb.flight() / u32::from(tcb.mss)) as usize + SPARE_RANGES
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
