//! How far ACKs run ahead of the rate, because they come in lumps.

use super::super::Event;
use super::rate;

/// Rounds of half the filter; it remembers 5 to 10 (the draft: 10).
const HALF: u8 = 5;

/// `BBR.extra_acked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aggregation {
    /// Since when, in microseconds.
    start: u32,
    /// Bytes delivered since.
    delivered: u32,
    /// Most bytes beyond those expected, of this half of the filter and the
    /// one before.
    extra: [u32; 2],
    /// Rounds of this half.
    rounds: u8,
}

impl Aggregation {
    pub(super) const fn new() -> Self {
        Self {
            start: 0,
            delivered: 0,
            extra: [0; 2],
            rounds: 0,
        }
    }

    pub(super) fn restart(&mut self, now: u32) {
        self.start = now;
        self.delivered = 0;
    }

    /// `delivered` bytes at an estimated rate of `bw`.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, delivered: u32, bw: u32, cwnd: u32, event: &Event) {
        let expected = rate::bytes(bw, event.now.wrapping_sub(self.start));
        let expected = if u64::from(self.delivered) <= expected {
            self.restart(event.now);
            0
        } else {
            expected
        };
        self.delivered = self.delivered.saturating_add(delivered);
        let extra = u64::from(self.delivered).saturating_sub(expected);
        let extra = extra.min(u64::from(cwnd)) as u32;
        self.extra[0] = self.extra[0].max(extra);
    }

    /// A round is over; during Startup (`short`) only one is remembered.
    pub(super) fn on_round(&mut self, short: bool) {
        self.rounds += 1;
        if short || self.rounds >= HALF {
            self.rounds = 0;
            self.extra = [0, self.extra[0]];
        }
    }

    pub(super) fn extra(&self) -> u32 {
        self.extra[0].max(self.extra[1])
    }
}
