//! Packet-timed round trips, and what each has carried.

use super::{Round, Sample, bytes_at, loses_much, rate_of};
use crate::congestion::Event;

/// The window was used up in this round.
const FULL: u8 = 1;
/// And in the round before.
const WAS_FULL: u8 = 2;
/// Less was sent in the round before than was allowed.
const WAS_LIMITED: u8 = 4;
/// This round counts as if less had been sent than was allowed.
const LIMITED: u8 = 8;

impl Round {
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
        let allowed = bytes_at(pacing_rate, elapsed);
        let limited = self.flags & FULL == 0 && u64::from(self.sent) < allowed / 8 * 7;
        let sample = Sample {
            rate: rate_of(self.delivered, elapsed.max(self.before)),
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

    /// Most bytes in flight while what is delivered now was sent.
    fn tx_in_flight(&self) -> u32 {
        if self.in_flight[1] == 0 {
            self.in_flight[0]
        } else {
            self.in_flight[1]
        }
    }

    /// Whether more is lost in this round than is tolerated.
    pub(super) fn loses_much(&self) -> bool {
        loses_much(self.lost, self.tx_in_flight())
    }

    /// Bytes in flight that the path has carried: the most that there were, less
    /// what was lost. `None`: less was sent than was allowed, so it is not known.
    pub(super) fn carried(&self) -> Option<u32> {
        let is_limited = self.flags & WAS_LIMITED != 0;
        (!is_limited).then(|| self.tx_in_flight().saturating_sub(self.lost))
    }

    /// No more than `limit` may have been in flight safely.
    pub(super) fn limit_in_flight(&mut self, limit: u32) {
        self.in_flight = self.in_flight.map(|most| most.min(limit));
    }
}
