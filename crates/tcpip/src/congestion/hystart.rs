//! When to leave slow start before it overflows a queue: `HyStart++`, RFC 9406.

use super::Event;

/// Samples of a round that are judged (RFC 9406, section 4.3).
const N_RTT_SAMPLE: u8 = 8;
/// Microseconds of more delay that are taken for a queue: an eighth of the
/// round trip, within these (RFC 9406, section 4.3).
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
/// Conservative slow start grows by a quarter, as a shift.
const CSS_GROWTH_SHIFT: u8 = 2;
/// Rounds of conservative slow start, that in which it begins included.
const CSS_ROUNDS: u8 = 5;
/// Segments by which an ACK opens the window at most (RFC 9406, section 4.3).
const LIMIT: u32 = 8;
/// And by which one that tells of so many does that have just arrived: those
/// of 64 KB, which receive offload gathers into one segment with one ACK. Such
/// a lump lets one of its size out anyway, and slow start would not be one
/// with receivers of that kind.
const LUMP_LIMIT: u32 = 45;

/// Bytes by which slow start opens the window for `acked`.
#[inline(always)]
pub(super) fn slow_start(acked: u32, event: &Event) -> u32 {
    if acked > LIMIT.wrapping_mul(event.mss) {
        of_lump(acked, event)
    } else {
        acked
    }
}

/// An ACK may also cover what had arrived, out of order, long before. That is
/// not in flight: only what has left the flight counts.
#[cold]
fn of_lump(acked: u32, event: &Event) -> u32 {
    let left = event.nxt.wrapping_sub(event.una);
    let arrived = event.in_flight.saturating_sub(left);
    acked
        .min(LUMP_LIMIT.saturating_mul(event.mss))
        .min(arrived.max(LIMIT.saturating_mul(event.mss)))
}

/// What comes after an ACK in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes by which the window may grow.
    pub(super) growth: u32,
    /// A round is over.
    pub(super) round_over: bool,
    /// Slow start is over with it: congestion avoidance goes on from here.
    pub(super) exit: bool,
}

/// The initial slow start of a connection (RFC 9406, section 4.2). Later ones
/// have a threshold, and no need of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HyStart {
    /// The round ends when this is acknowledged.
    round_end: u32,
    /// The shortest round trip of the last round in microseconds; 0 before
    /// the first round, `u32::MAX` without samples.
    last_min: u32,
    /// The shortest round trip of this round.
    min: u32,
    /// The shortest round trip with which conservative slow start began; 0
    /// outside it.
    css_baseline: u32,
    /// Samples of this round, up to [`N_RTT_SAMPLE`].
    samples: u8,
    /// Rounds of conservative slow start that have begun.
    css_rounds: u8,
    /// Growth is shifted by this: 0 in slow start.
    shift: u8,
}

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
            shift: 0,
        }
    }

    /// `acked` bytes were acknowledged.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, acked: u32, event: &Event) -> Step {
        let mut exit = false;
        let mut round_over = false;
        let shift = self.shift;
        if event.rtt != 0 {
            self.min = self.min.min(event.rtt);
            if self.samples < N_RTT_SAMPLE {
                self.samples += 1;
                if self.samples == N_RTT_SAMPLE {
                    self.judge(event);
                }
            } else if self.min < self.css_baseline {
                self.resume();
            }
        }
        // The ACK that ends a round is of a segment of that round.
        if event.una.wrapping_sub(self.round_end).cast_signed() >= 0 && self.last_min != 0 {
            exit = self.begin_round(event);
            round_over = true;
        }
        Step {
            growth: slow_start(acked, event) >> shift,
            round_over,
            exit,
        }
    }

    /// The last round is acknowledged. True when conservative slow start has
    /// had its rounds.
    #[cold]
    fn begin_round(&mut self, event: &Event) -> bool {
        self.round_end = event.nxt;
        self.last_min = self.min;
        self.min = u32::MAX;
        self.samples = 0;
        if self.css_baseline == 0 {
            return false;
        }
        if self.css_rounds == CSS_ROUNDS {
            return true;
        }
        self.css_rounds += 1;
        false
    }

    /// There are enough samples of this round. The shortest of them only gets
    /// shorter with more, so a queue shows now or not in this round.
    #[cold]
    fn judge(&mut self, event: &Event) {
        if self.last_min == 0 {
            // Before the first round.
            self.last_min = u32::MAX;
            self.round_end = event.nxt;
            self.samples = 1;
        } else if self.css_baseline == 0 {
            self.look_for_a_queue();
        } else if self.min < self.css_baseline {
            self.resume();
        }
    }

    /// Conservative slow start begins if there is more delay than in the last
    /// round.
    fn look_for_a_queue(&mut self) {
        let thresh = (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.min >= self.last_min.saturating_add(thresh) {
            self.css_baseline = self.min;
            self.css_rounds = 1;
            self.shift = CSS_GROWTH_SHIFT;
        }
    }

    /// It was jitter, and slow start goes on; unless it still is more delay
    /// than in the last round.
    #[cold]
    fn resume(&mut self) {
        self.css_baseline = 0;
        self.css_rounds = 0;
        self.shift = 0;
        self.look_for_a_queue();
    }
}

#[cfg(test)]
#[path = "hystart_tests.rs"]
mod tests;
