//! When to leave slow start before it overflows a queue: `HyStart++`, RFC 9406.

use super::{HyStart, Step};
use crate::congestion::Event;

/// Samples of a round that are judged (RFC 9406, section 4.3).
const N_RTT_SAMPLE: u8 = 8;
/// Microseconds of more delay that are taken for a queue: an eighth of the
/// round trip, within these (RFC 9406, section 4.3).
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
/// Conservative slow start grows by a quarter, as a shift; not in the round in
/// which it begins, which eight ACKs have let grow already. (RFC 9406 goes on by
/// a quarter at once; several connections that find a queue together would then
/// fill it before they hear of that.)
const CSS_GROWTH_SHIFT: u8 = 2;
/// Rounds of conservative slow start, that in which it begins included.
const CSS_ROUNDS: u8 = 5;
/// Segments by which an ACK opens the window at most (RFC 9406, section 4.3).
const LIMIT: u32 = 8;
/// And by which one that tells of so many does that have just arrived: those
/// of 64 KB, which receive offload gathers into one segment with one ACK. Such
/// a lump lets one of its size out anyway, and slow start would not be one
/// with receivers of that kind.
const AGGREGATE_LIMIT: u32 = 45;

/// An ACK may also cover what had arrived, out of order, long before. That is
/// not in flight: only what has left the flight counts.
#[cold]
fn aggregated_growth(acked: u32, event: Event) -> u32 {
    let left = event.nxt.wrapping_sub(event.una);
    let arrived = event.in_flight.saturating_sub(left);
    acked
        .min(AGGREGATE_LIMIT.saturating_mul(event.mss))
        .min(arrived.max(LIMIT.saturating_mul(event.mss)))
}

/// Ticks of 64 µs, as a shift of microseconds: 16 bits are good for 4 s.
const TICK_SHIFT: u32 = 6;
/// ACKs that are no further apart are of one train, in microseconds (two
/// segments, acknowledged together, take 2.4 ms at 10 Mb/s); or than this part
/// of the round trip.
const TRAIN_SPACING: u32 = 3_000;
const TRAIN_SPACINGS: u32 = 32;
/// On shorter round trips, in microseconds, trains tell of how hosts pause, and
/// not of the path.
const TRAIN_MIN_RTT: u32 = 1_000;
/// Segments in flight below which a train tells nothing.
const TRAIN_SEGMENTS: u32 = 16;

/// A round trip that none is shorter than, in ticks.
const SHORTEST: u16 = 1;

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            round_end: 0,
            last_min: 0,
            min: u32::MAX,
            css_baseline: 0,
            // The first sample begins the first round.
            samples: N_RTT_SAMPLE - 1,
            css_rounds: 0,
            round_start: 0,
            train_end: 0,
        }
    }

    /// Bytes by which slow start opens the window for `acked`.
    #[inline(always)]
    pub(super) fn slow_start(acked: u32, event: &Event) -> u32 {
        if acked > LIMIT.wrapping_mul(event.mss) {
            aggregated_growth(acked, *event)
        } else {
            acked
        }
    }

    /// `acked` bytes were acknowledged.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, acked: u32, event: &Event) -> Step {
        let mut exit = false;
        let mut round_over = false;
        // The first ACK of what was sent after the one that began the last
        // round: so rounds begin where bursts do.
        if event.una.wrapping_sub(self.round_end).cast_signed() > 0 && self.last_min != 0 {
            exit = self.begin_round(*event);
            round_over = true;
        }
        if event.in_flight >= TRAIN_SEGMENTS * event.mss && self.is_long_train(event) {
            exit |= self.begin_last_round();
        }
        let growth = Self::slow_start(acked, event);
        let growth = match self.css_rounds {
            0 => growth,
            1 => 0,
            _ => growth >> CSS_GROWTH_SHIFT,
        };
        if event.rtt != 0 {
            self.min = self.min.min(event.rtt);
            if self.samples < N_RTT_SAMPLE {
                self.samples += 1;
                if self.samples == N_RTT_SAMPLE {
                    exit |= self.check_delay(*event);
                }
            }
        }
        Step {
            growth,
            round_over: round_over || exit,
            exit,
        }
    }

    /// Whether ACKs have come without a pause for half a round trip: then the
    /// narrowest link on the way has been busy for as long, and doubling once
    /// more would fill it and its queue.
    ///
    /// RFC 9406 does without; its forerunner (Ha and Rhee, "Taming the
    /// elephants", 2011) and Linux have it, and it finds out before a queue has
    /// to grow. They leave slow start at once, with hardly more than the path
    /// holds, a third of which stays empty after the first loss. Here it grows by
    /// a quarter of what it would until the round is over.
    #[inline]
    fn is_long_train(&mut self, event: &Event) -> bool {
        let now = ticks(event.now);
        // Without samples, as while segments change their order.
        let shortest = self.last_min.min(self.min).min(event.srtt);
        let pause = u32::from(now.wrapping_sub(self.train_end)) << TICK_SHIFT;
        if pause > TRAIN_SPACING.max(shortest / TRAIN_SPACINGS) {
            return false;
        }
        self.train_end = now;
        let train = u32::from(now.wrapping_sub(self.round_start)) << TICK_SHIFT;
        shortest >= TRAIN_MIN_RTT && train > shortest / 2
    }

    /// A train is long: conservative slow start, in its last round, which nothing
    /// takes back. True when it had begun before, by delay.
    #[cold]
    fn begin_last_round(&mut self) -> bool {
        if self.css_baseline == 0 {
            self.css_baseline = SHORTEST;
            self.css_rounds = CSS_ROUNDS;
            self.take_samples();
        }
        self.css_baseline != SHORTEST
    }

    /// A round begins, and a train with it.
    fn mark_round(&mut self, event: &Event) {
        self.round_end = event.nxt;
        self.round_start = ticks(event.now);
        self.train_end = self.round_start;
    }

    /// The last round is acknowledged. True when conservative slow start has
    /// had its rounds.
    #[cold]
    fn begin_round(&mut self, event: Event) -> bool {
        self.mark_round(&event);
        self.take_samples();
        if self.css_baseline == 0 {
            return false;
        }
        if self.css_rounds == CSS_ROUNDS {
            return true;
        }
        self.css_rounds += 1;
        false
    }

    /// There are eight samples: the first of this round, taken where a queue
    /// shows, as the later ones of a burst drain it; or, in conservative slow
    /// start, eight more. True when slow start is over.
    #[cold]
    fn check_delay(&mut self, event: Event) -> bool {
        if self.last_min == 0 {
            // Before the first round.
            self.last_min = u32::MAX;
            self.mark_round(&event);
            self.samples = 1;
            return false;
        }
        if self.min < self.baseline() {
            // It was jitter, and slow start goes on; unless it still is more
            // delay than in the rounds before.
            self.css_baseline = 0;
            self.css_rounds = 0;
        }
        let more = self.min.saturating_sub(self.last_min);
        let threshold = threshold(self.last_min);
        if self.css_baseline == 0 && more >= threshold {
            self.css_baseline = ticks_of(self.min);
            self.css_rounds = 1;
        }
        if self.css_baseline != 0 {
            self.take_samples();
        }
        // As much again since conservative slow start began is no jitter, and
        // the rounds that are left would only fill the queue. (RFC 9406 would
        // go through them.)
        more >= 2 * threshold
    }

    /// Eight more.
    fn take_samples(&mut self) {
        self.last_min = self.last_min.min(self.min);
        self.min = u32::MAX;
        self.samples = 0;
    }

    /// In microseconds; 0 outside conservative slow start.
    #[inline(always)]
    fn baseline(&self) -> u32 {
        u32::from(self.css_baseline) << TICK_SHIFT
    }
}

/// See [`TICK_SHIFT`].
#[inline(always)]
const fn ticks(micros: u32) -> u16 {
    (micros >> TICK_SHIFT) as u16
}

/// A round trip, 1 to 65,535 ticks.
const fn ticks_of(rtt: u32) -> u16 {
    match rtt >> TICK_SHIFT {
        0 => SHORTEST,
        ticks if ticks < u16::MAX as u32 => ticks as u16,
        _ => u16::MAX,
    }
}

/// How much more than `rtt` tells of a queue (RFC 9406, section 4.3).
fn threshold(rtt: u32) -> u32 {
    (rtt / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
}

#[cfg(test)]
#[path = "hystart_tests.rs"]
mod tests;
