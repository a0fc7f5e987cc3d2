//! Algorithms that grow the window until a loss. They share the reduction after congestion, and the
//! validation of the window (New-CWV, RFC 7661).

mod cubic;
mod newreno;
mod reno;

pub use cubic::Cubic;
pub use newreno::NewReno;
pub use reno::Reno;

use super::{Event, MAX_WINDOW, MIN_SEGMENTS};

/// Clock of [`Validation`], as a shift of microseconds: a tick is 1.024 ms, so that 16 bits
/// last for a minute.
///
/// An idle period of a minute exceeds any retransmission timeout, so it restarts the window anyway.
const TICK_SHIFT: u32 = 10;
/// Minimum half sampling period in ticks: half a second (RFC 7661, section 4.3: max (3 RTT,
/// 1 s)).
const MIN_HALF_PERIOD: u16 = (500_000 >> TICK_SHIFT) as u16;
/// Maximum half sampling period in ticks: 20 s, so that the clock does not wrap.
const MAX_HALF_PERIOD: u16 = (20_000_000 >> TICK_SHIFT) as u16;
/// Unit of the non-validated phase's duration: 2^5 ticks, 33 ms.
const PHASE_SHIFT: u32 = 5;
/// Longest non-validated phase: five minutes (RFC 7661, section 4.4.2).
const MAX_PHASE: u16 = (300_000_000 >> (TICK_SHIFT + PHASE_SHIFT)) as u16;
/// Value of `phase` during recovery from the non-validated phase.
const RECOVERING: u16 = u16::MAX;

/// Recent use of the congestion window.
///
/// `pipeACK` of RFC 7661 is the most data acknowledged in a round trip, over a sampling period of
/// max (3 RTT, 1 s). We use the most data in flight instead: without a loss, it is acknowledged a
/// round trip later, and after a loss the measurement restarts. This costs one comparison per ACK.
/// Two bins of half a period each make up the sliding maximum.
///
/// The window is *validated* while `pipeACK` is at least half of it. Otherwise the window must not
/// grow, and congestion reduces its used part instead of the whole window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Validation {
    /// `pipeACK` of this half period, in bytes. During recovery from the non-validated
    /// phase: the bytes in use when it began.
    pipe_ack: u32,
    /// `pipeACK` of the previous half period. During recovery from the non-validated phase: the
    /// bytes lost during this recovery.
    earlier: u32,
    /// Start of this half period, in ticks.
    since: u16,
    /// Duration of the non-validated phase, or [`RECOVERING`].
    phase: u16,
}

/// Whether a window of `cwnd` is validated if `used` bytes of it were used (RFC 7661,
/// section 4.4).
#[inline(always)]
const fn is_validated(cwnd: u32, used: u32) -> bool {
    cwnd / 2 <= used
}

impl Validation {
    #[inline(always)]
    const fn clock(now: u32) -> u16 {
        (now >> TICK_SHIFT) as u16
    }

    /// Records the flight at an ACK.
    #[inline(always)]
    fn record_flight(&mut self, event: &Event) {
        if event.in_flight > self.pipe_ack {
            self.pipe_ack = event.in_flight;
        }
    }

    /// Whether [`end_half_period`](Self::end_half_period) may have to be called. The caller checks
    /// this once per round trip or second.
    #[inline(always)]
    fn may_end_half_period(&self, event: &Event) -> bool {
        Self::clock(event.now).wrapping_sub(self.since) >= MIN_HALF_PERIOD
    }

    /// Ends a half period if it has passed. Returns whether the window `cwnd` was not
    /// validated for five minutes, and must shrink.
    #[cold]
    fn end_half_period(&mut self, cwnd: u32, event: &Event) -> bool {
        let elapsed = Self::clock(event.now).wrapping_sub(self.since);
        let half = (event.srtt >> TICK_SHIFT).saturating_mul(3) / 2;
        let half = (half.min(u32::from(u16::MAX)) as u16).clamp(MIN_HALF_PERIOD, MAX_HALF_PERIOD);
        if elapsed < half {
            return false;
        }
        self.since = Self::clock(event.now);
        self.earlier = if elapsed < 2 * half {
            self.pipe_ack
        } else {
            event.in_flight
        };
        self.pipe_ack = event.in_flight;
        if self.allows_slow_start(cwnd) {
            self.phase = 0;
            return false;
        }
        if self.phase == RECOVERING {
            // ACKs arrive outside recovery. Its end was not reported, or it never began because a
            // tail loss probe repaired the loss.
            self.phase = 0;
        }
        self.phase = self.phase.saturating_add(elapsed >> PHASE_SHIFT);
        let over = self.phase >= MAX_PHASE;
        if over {
            self.phase = 0;
        }
        over
    }

    /// `pipeACK` in bytes.
    fn pipe_ack(&self) -> u32 {
        self.pipe_ack.max(self.earlier)
    }

    /// Whether slow start may open a window of `cwnd`, which must be validated for this.
    #[inline(always)]
    fn allows_slow_start(&self, cwnd: u32) -> bool {
        is_validated(cwnd, self.pipe_ack) || is_validated(cwnd, self.earlier)
    }

    /// Whether congestion avoidance may open a window of `cwnd`.
    ///
    /// This is stricter than RFC 7661. A window of which a quarter is unused need not grow. Growth
    /// would make it even less valid when it is finally used. Less than a segment of `mss` bytes
    /// cannot be used, and does not count as unused.
    #[inline(always)]
    fn allows_avoidance(&self, cwnd: u32, mss: u32) -> bool {
        let used = cwnd.saturating_sub((cwnd / 4).max(mss));
        used <= self.pipe_ack || used <= self.earlier
    }

    /// Returns the used bytes of the window `cwnd`, to which the reduction applies (RFC 7661,
    /// section 4.4.1: max (pipeACK, `FlightSize`)).
    ///
    /// If `recovery` follows and the window was not validated, losses during recovery also count.
    fn on_congestion(&mut self, cwnd: u32, event: &Event, recovery: bool) -> u32 {
        let used = self.used(cwnd, event);
        *self = Self {
            since: Self::clock(event.now),
            ..Self::default()
        };
        if recovery && !is_validated(cwnd, used) {
            self.pipe_ack = used;
            self.phase = RECOVERING;
        }
        used
    }

    /// Used bytes of the window `cwnd`.
    fn used(&self, cwnd: u32, event: &Event) -> u32 {
        event.flight_size().max(self.pipe_ack()).min(cwnd)
    }

    /// Counts `lost` more bytes, which will be retransmitted.
    #[inline(always)]
    fn on_lost(&mut self, lost: u32) {
        if self.phase == RECOVERING {
            self.earlier = self.earlier.saturating_add(lost).min(MAX_WINDOW);
        }
    }

    /// Ends recovery. If the window was not validated when it began, returns the used bytes
    /// that were not lost.
    ///
    /// The caller then applies the reduction to these bytes, instead of those used at the start of
    /// recovery (RFC 7661, section 4.4.1).
    fn on_recovered(&mut self, event: &Event) -> Option<u32> {
        let carried = self.pipe_ack.saturating_sub(self.earlier);
        let was = self.phase == RECOVERING;
        self.restart(event);
        was.then_some(carried)
    }

    /// Restarts the measurement: the path may have changed, and `pipeACK` is undefined.
    fn restart(&mut self, event: &Event) {
        *self = Self {
            since: Self::clock(event.now),
            ..Self::default()
        };
    }
}

/// Returns the window after congestion: `factor` percent of `base` bytes, but at least two
/// segments.
fn reduced(base: u32, factor: u32, mss: u32) -> u32 {
    let part = u64::from(base) * u64::from(factor) / 100;
    (part as u32).clamp(MIN_SEGMENTS * mss.clamp(1, MAX_WINDOW / 2), MAX_WINDOW)
}

/// Three quarters of a window: the threshold up to which slow start may reopen it after
/// disuse (RFC 7661, section 4.4.2).
const fn three_quarters(window: u32) -> u32 {
    window - window / 4
}

#[cfg(test)]
#[path = "loss_based/loss_based_tests.rs"]
mod tests;
