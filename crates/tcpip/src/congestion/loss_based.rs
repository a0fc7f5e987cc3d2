//! Algorithms that grow the window until they see congestion, usually a loss. They share the code
//! that reduces the window after congestion, and the validation of the window (New-CWV, RFC 7661).

mod cubic;
mod newreno;
mod reno;

pub use cubic::Cubic;
pub use newreno::NewReno;
pub use reno::Reno;

use super::{Event, MAX_WINDOW, MIN_SEGMENTS};

/// Shift that converts microseconds to ticks of the clock in [`Validation`]. A tick is 1.024 ms, so
/// the 16-bit clock wraps around after 67 s.
///
/// A wrap-around is harmless. Between two ACKs, only an idle period can last for 67 s, and an idle
/// period longer than the retransmission timeout restarts the window anyway.
const TICK_SHIFT: u32 = 10;
/// Minimum duration of half a sampling period: half a second, in ticks. A whole period lasts for
/// max (3 RTT, 1 s) (RFC 7661, section 4.3).
const MIN_HALF_PERIOD: u16 = (500_000 >> TICK_SHIFT) as u16;
/// Maximum duration of half a sampling period: 20 s, in ticks. This limit keeps the clock from
/// wrapping around within a whole period.
const MAX_HALF_PERIOD: u16 = (20_000_000 >> TICK_SHIFT) as u16;
/// Shift that converts ticks to units of 33 ms. [`Validation`] measures the non-validated phase in
/// these units, because its 16-bit counter must last for five minutes.
const PHASE_SHIFT: u32 = 5;
/// Maximum duration of the non-validated phase: five minutes, in units of 33 ms (RFC 7661, section
/// 4.4.2).
const MAX_PHASE: u16 = (300_000_000 >> (TICK_SHIFT + PHASE_SHIFT)) as u16;
/// Value of `Validation::phase` during a recovery that began in the non-validated phase.
const RECOVERING: u16 = u16::MAX;

/// Tracks how much of the congestion window was recently used.
///
/// `pipeACK` of RFC 7661 is the largest amount of data acknowledged in a round trip, over a
/// sampling period of max (3 RTT, 1 s). This code uses the largest amount in flight instead,
/// because that costs only one comparison per ACK. Without a loss, all data in flight is
/// acknowledged a round trip later. After a loss the measurement restarts. The sliding maximum
/// consists of two bins of half a period each.
///
/// The window is *validated* while `pipeACK` is at least half of the window. Otherwise the window
/// must not grow, and congestion reduces only the used part of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Validation {
    /// `pipeACK` of this half period, in bytes. During a recovery that began in the non-validated
    /// phase: the number of bytes of the window that were used when recovery began.
    pipe_ack: u32,
    /// `pipeACK` of the previous half period, in bytes. During a recovery that began in the
    /// non-validated phase: the number of bytes lost so far.
    earlier: u32,
    /// Start of this half period, in ticks.
    since: u16,
    /// Time spent in the non-validated phase, in units of `2^PHASE_SHIFT` ticks, or [`RECOVERING`].
    phase: u16,
}

/// Returns true if a window of `cwnd` bytes is validated, which requires that `used` is at least
/// half of it (RFC 7661, section 4.4).
#[inline(always)]
const fn is_validated(cwnd: u32, used: u32) -> bool {
    cwnd / 2 <= used
}

impl Validation {
    #[inline(always)]
    const fn ticks(now: u32) -> u16 {
        (now >> TICK_SHIFT) as u16
    }

    /// Records the bytes in flight when an ACK arrives.
    #[inline(always)]
    fn record_flight(&mut self, event: &Event) {
        if event.in_flight > self.pipe_ack {
            self.pipe_ack = event.in_flight;
        }
    }

    /// Returns true when the minimum half period has passed. The caller then calls
    /// [`end_half_period`](Self::end_half_period), which computes the actual duration.
    #[inline(always)]
    fn may_end_half_period(&self, event: &Event) -> bool {
        Self::ticks(event.now).wrapping_sub(self.since) >= MIN_HALF_PERIOD
    }

    /// Ends the half period if its duration has passed. Returns true if the window `cwnd` must
    /// shrink, because it was not validated for five minutes.
    #[cold]
    fn end_half_period(&mut self, cwnd: u32, event: &Event) -> bool {
        let elapsed = Self::ticks(event.now).wrapping_sub(self.since);
        let half = (event.srtt >> TICK_SHIFT).saturating_mul(3) / 2;
        let half = (half.min(u32::from(u16::MAX)) as u16).clamp(MIN_HALF_PERIOD, MAX_HALF_PERIOD);
        if elapsed < half {
            return false;
        }
        self.since = Self::ticks(event.now);
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
            // This function runs only outside recovery, so the value of `phase` is outdated. Either
            // the end of recovery was not reported, or recovery never began because a tail loss
            // probe repaired the loss.
            self.phase = 0;
        }
        self.phase = self.phase.saturating_add(elapsed >> PHASE_SHIFT);
        let over = self.phase >= MAX_PHASE;
        if over {
            self.phase = 0;
        }
        over
    }

    /// Returns `pipeACK` of the sampling period, in bytes.
    fn pipe_ack(&self) -> u32 {
        self.pipe_ack.max(self.earlier)
    }

    /// Returns true if slow start may increase a window of `cwnd` bytes: only a validated window
    /// may grow.
    #[inline(always)]
    fn allows_slow_start(&self, cwnd: u32) -> bool {
        is_validated(cwnd, self.pipe_ack) || is_validated(cwnd, self.earlier)
    }

    /// Returns true if congestion avoidance may increase a window of `cwnd` bytes.
    ///
    /// Three quarters of the window must be used, which is stricter than RFC 7661. A window that is
    /// not used up need not grow, and would be even less valid when it is finally used. A remainder
    /// of less than a segment (`mss` bytes) cannot be used, and does not count as unused.
    #[inline(always)]
    fn allows_avoidance(&self, cwnd: u32, mss: u32) -> bool {
        let used = cwnd.saturating_sub((cwnd / 4).max(mss));
        used <= self.pipe_ack || used <= self.earlier
    }

    /// Restarts the measurement after congestion. Returns the number of used bytes of the window
    /// `cwnd`, from which the caller computes the reduction (RFC 7661, section 4.4.1).
    ///
    /// If `recovery` is set and the window was not validated, the bytes lost from now on are
    /// counted as well.
    fn on_congestion(&mut self, cwnd: u32, event: &Event, recovery: bool) -> u32 {
        let used = self.used(cwnd, event);
        self.restart(event);
        if recovery && !is_validated(cwnd, used) {
            self.pipe_ack = used;
            self.phase = RECOVERING;
        }
        used
    }

    /// Returns the number of used bytes of the window: max (`pipeACK`, `FlightSize`), but at most
    /// `cwnd`.
    fn used(&self, cwnd: u32, event: &Event) -> u32 {
        event.flight_size().max(self.pipe_ack()).min(cwnd)
    }

    /// Adds `lost` to the number of bytes lost during a recovery that began in the non-validated
    /// phase.
    #[inline(always)]
    fn on_lost(&mut self, lost: u32) {
        if self.phase == RECOVERING {
            self.earlier = self.earlier.saturating_add(lost).min(MAX_WINDOW);
        }
    }

    /// Ends recovery. If the window was not validated when recovery began, returns the number of
    /// used bytes that were not lost. Otherwise returns `None`.
    ///
    /// The caller applies the reduction to the returned number, which replaces the number of bytes
    /// used at the start of recovery (RFC 7661, section 4.4.1).
    fn on_recovered(&mut self, event: &Event) -> Option<u32> {
        let carried = self.pipe_ack.saturating_sub(self.earlier);
        let was = self.phase == RECOVERING;
        self.restart(event);
        was.then_some(carried)
    }

    /// Discards the measurement and starts a new one. Called when the earlier measurement says
    /// nothing about the new window.
    fn restart(&mut self, event: &Event) {
        *self = Self {
            since: Self::ticks(event.now),
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

/// Returns three quarters of a window. Slow start may reopen an unused window up to this threshold
/// after the window has shrunk (RFC 7661, section 4.4.2).
const fn three_quarters(window: u32) -> u32 {
    window - window / 4
}

#[cfg(test)]
#[path = "loss_based/loss_based_tests.rs"]
mod tests;
