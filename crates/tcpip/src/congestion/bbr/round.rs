//! Packet-timed round trips, and what each has carried.

use super::super::Event;
use super::rate;

/// What a round trip has carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The delivery rate, in units of [`rate::UNIT`].
    pub(super) rate: u32,
    /// Bytes delivered.
    pub(super) delivered: u32,
    /// Bytes taken as lost.
    pub(super) lost: u32,
    /// Losses found.
    pub(super) losses: u8,
    /// Most bytes in flight while what was delivered was sent.
    pub(super) tx_in_flight: u32,
    /// The application had less to send than it was allowed.
    pub(super) limited: bool,
}

/// A round trip timed by packets: it begins with the sending of a segment and
/// ends when that is acknowledged.
///
/// Nothing is kept of each segment. What was in flight when the round began
/// must be delivered or lost before the first segment sent in it can be
/// acknowledged, so the round ends with the next byte after that, in and out
/// of recovery alike. Its delivery rate is the draft's sample of that segment:
/// what was delivered, over the longer of the round and the round before, in
/// which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// Bytes left in flight of those when the round began.
    left: u32,
    /// Bytes delivered since.
    delivered: u32,
    /// Bytes lost since.
    lost: u32,
    /// Bytes sent since, new and again.
    sent: u32,
    /// When it began, in microseconds.
    start: u32,
    /// Microseconds of the round before; 0: none.
    before: u32,
    /// Most bytes in flight in this round, and in the round before.
    in_flight: [u32; 2],
    /// Losses found in this round.
    losses: u8,
    flags: u8,
}

/// The window was used up in this round.
const FULL: u8 = 1;
/// And in the round before.
const WAS_FULL: u8 = 2;
/// Less was sent in the round before than was allowed.
const WAS_LIMITED: u8 = 4;
/// This round counts as if less had been sent than was allowed.
const LIMITED: u8 = 8;

impl Round {
    pub(super) const fn new() -> Self {
        Self {
            left: 0,
            delivered: 0,
            lost: 0,
            sent: 0,
            start: 0,
            before: 0,
            in_flight: [0; 2],
            losses: 0,
            flags: 0,
        }
    }

    /// `bytes` are sent, with a window of `cwnd`.
    #[inline(always)]
    pub(super) fn on_send(&mut self, bytes: u32, cwnd: u32, event: &Event) {
        if event.in_flight == 0 {
            // Time without anything in flight is nobody's round trip.
            self.begin(0, event.now);
            self.left = bytes.saturating_sub(1);
            self.before = 0;
        }
        let in_flight = event.in_flight.saturating_add(bytes);
        self.in_flight[0] = self.in_flight[0].max(in_flight);
        self.sent = self.sent.saturating_add(bytes);
        if in_flight.saturating_add(event.mss) > cwnd {
            self.flags |= FULL;
        }
    }

    /// Bytes were `delivered` and `lost`. What the round has carried, when it
    /// is over; `pacing_rate` is at what rate it was allowed to send.
    #[inline(always)]
    pub(super) fn on_ack(
        &mut self,
        delivered: u32,
        lost: u32,
        pacing_rate: u32,
        event: &Event,
    ) -> Option<Sample> {
        self.delivered = self.delivered.saturating_add(delivered);
        if lost > 0 {
            self.lost = self.lost.saturating_add(lost);
            self.losses = self.losses.saturating_add(1);
        }
        let gone = delivered.saturating_add(lost);
        if delivered == 0 || gone <= self.left {
            self.left = self.left.saturating_sub(gone);
            return None;
        }
        Some(self.end(event.in_flight.saturating_sub(gone), pacing_rate, event))
    }

    #[inline(never)]
    fn end(&mut self, in_flight: u32, pacing_rate: u32, event: &Event) -> Sample {
        let elapsed = event.now.wrapping_sub(self.start).max(1);
        let allowed = rate::bytes(pacing_rate, elapsed);
        let limited = self.flags & FULL == 0 && u64::from(self.sent) < allowed / 8 * 7;
        let sample = Sample {
            rate: rate::of(self.delivered, elapsed.max(self.before)),
            delivered: self.delivered,
            lost: self.lost,
            losses: self.losses,
            tx_in_flight: self.tx_in_flight(),
            limited: self.flags & WAS_LIMITED != 0,
        };
        let full = self.flags & FULL != 0;
        let limited = limited || self.flags & LIMITED != 0;
        self.flags = (u8::from(full) * WAS_FULL) | (u8::from(limited) * WAS_LIMITED);
        self.before = elapsed;
        self.in_flight = [0, self.in_flight[0]];
        self.begin(in_flight, event.now);
        sample
    }

    /// A round begins before the last one is over, with `in_flight` bytes in
    /// flight.
    pub(super) fn restart(&mut self, in_flight: u32, now: u32) {
        if self.flags & LIMITED != 0 {
            // Those are what its sample will be of.
            self.flags |= WAS_LIMITED;
        }
        self.begin(in_flight, now);
    }

    fn begin(&mut self, in_flight: u32, now: u32) {
        self.left = in_flight;
        self.delivered = 0;
        self.lost = 0;
        self.sent = 0;
        self.losses = 0;
        self.start = now;
    }

    /// What is sent in this round says nothing of the path.
    pub(super) fn mark_limited(&mut self) {
        self.flags |= LIMITED;
    }

    /// Whether the window was used up in this round or the one before.
    pub(super) const fn window_is_used(&self) -> bool {
        self.flags & (FULL | WAS_FULL) != 0
    }

    /// Whether what is delivered now was sent with less than was allowed.
    pub(super) const fn is_limited(&self) -> bool {
        self.flags & WAS_LIMITED != 0
    }

    /// Most bytes in flight while what is delivered now was sent.
    pub(super) fn tx_in_flight(&self) -> u32 {
        if self.in_flight[1] == 0 {
            self.in_flight[0]
        } else {
            self.in_flight[1]
        }
    }

    /// No more than `limit` may have been in flight safely.
    pub(super) fn limit_in_flight(&mut self, limit: u32) {
        self.in_flight = self.in_flight.map(|most| most.min(limit));
    }

    /// Bytes lost in this round.
    pub(super) const fn lost(&self) -> u32 {
        self.lost
    }
}
