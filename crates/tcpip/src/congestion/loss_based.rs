//! Algorithms whose window grows until something is lost, and what they share:
//! what congestion leaves of a window, and how much of it was used (New-CWV,
//! RFC 7661).

mod cubic;
mod newreno;
mod reno;

pub use cubic::Cubic;
pub use newreno::NewReno;
pub use reno::Reno;

use super::{Event, MAX_WINDOW, MIN_SEGMENTS};

/// The clock of [`Validation`] in microseconds, as a shift: 1.024 ms a tick, so
/// that 16 bits are good for a minute. Silence for longer than that is
/// longer than any retransmission timeout, and then the window restarts.
const TICK_SHIFT: u32 = 10;
/// Ticks of half a sampling period at least: half a second (RFC 7661, section
/// 4.3: max (3 RTT, 1 s)).
const MIN_HALF_PERIOD: u16 = (500_000 >> TICK_SHIFT) as u16;
/// And at most, to stay clear of the wrap: 20 s.
const MAX_HALF_PERIOD: u16 = (20_000_000 >> TICK_SHIFT) as u16;
/// The non-validated phase is timed in units of 2^5 ticks, 33 ms.
const PHASE_SHIFT: u32 = 5;
/// The non-validated phase lasts for five minutes at most (RFC 7661, section
/// 4.4.2).
const MAX_PHASE: u16 = (300_000_000 >> (TICK_SHIFT + PHASE_SHIFT)) as u16;
/// Stands for the time of the non-validated phase during its recovery.
const RECOVERING: u16 = u16::MAX;

/// How much of the window has been used lately.
///
/// `pipeACK` of RFC 7661 is the most data acknowledged in a round trip, over a
/// sampling period of max (3 RTT, 1 s). What is in flight now is what a round
/// trip from now will have acknowledged, unless it is lost, and then the
/// measure starts anew; so the most that was in flight is the same number, a
/// round trip earlier and for one comparison an ACK. Two bins of half a period
/// each make up the sliding maximum.
///
/// The window is *validated* while `pipeACK` is at least half of it.
/// Otherwise it must not grow, and congestion reduces what was used of it, not
/// what was allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Validation {
    /// `pipeACK` of this half period, in bytes. During recovery from the
    /// non-validated phase: what was used when it began.
    pipe_ack: u32,
    /// The same of the half period before. During recovery from the
    /// non-validated phase: bytes lost, and so sent again.
    earlier: u32,
    /// When this half period began, in ticks.
    since: u16,
    /// How long the phase has been non-validated, or [`RECOVERING`].
    phase: u16,
}

/// Whether a window of `cwnd`, of which `used` bytes were used, is validated (RFC
/// 7661, section 4.4).
#[inline(always)]
const fn is_validated(cwnd: u32, used: u32) -> bool {
    cwnd / 2 <= used
}

impl Validation {
    #[inline(always)]
    const fn clock(now: u32) -> u16 {
        (now >> TICK_SHIFT) as u16
    }

    /// Takes in what was in flight when an ACK came.
    #[inline(always)]
    fn record_flight(&mut self, event: &Event) {
        if event.in_flight > self.pipe_ack {
            self.pipe_ack = event.in_flight;
        }
    }

    /// Whether [`end_half_period`](Self::end_half_period) may be due. To be asked once a round trip
    /// or second.
    #[inline(always)]
    fn may_end_half_period(&self, event: &Event) -> bool {
        Self::clock(event.now).wrapping_sub(self.since) >= MIN_HALF_PERIOD
    }

    /// Half a sampling period may have passed. True when the window `cwnd`
    /// has not been validated for five minutes and must shrink.
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
            // ACKs outside recovery: its end was not told, or it never began
            // (a probe of the tail had mended the loss).
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

    /// Whether slow start may open a window of `cwnd`: the validated phase.
    #[inline(always)]
    fn allows_slow_start(&self, cwnd: u32) -> bool {
        is_validated(cwnd, self.pipe_ack) || is_validated(cwnd, self.earlier)
    }

    /// Whether congestion avoidance may open a window of `cwnd`. Stricter than
    /// RFC 7661: a window of which a quarter is spare has no need to grow, and
    /// would only be wrong by more when it is used at last. What is less than a
    /// segment of `mss` bytes cannot be used, and is not spare.
    #[inline(always)]
    fn allows_avoidance(&self, cwnd: u32, mss: u32) -> bool {
        let used = cwnd.saturating_sub((cwnd / 4).max(mss));
        used <= self.pipe_ack || used <= self.earlier
    }

    /// Bytes that were used of the window `cwnd`, which congestion is to reduce at
    /// least (RFC 7661, section 4.4.1: max (pipeACK, `FlightSize`)). `recovery`
    /// follows: what is lost in it counts then, if the window was not
    /// validated.
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

    /// Bytes that were used of the window `cwnd`.
    fn used(&self, cwnd: u32, event: &Event) -> u32 {
        event.flight_size().max(self.pipe_ack()).min(cwnd)
    }

    /// `lost` more bytes are lost and will be sent again.
    #[inline(always)]
    fn on_lost(&mut self, lost: u32) {
        if self.phase == RECOVERING {
            self.earlier = self.earlier.saturating_add(lost).min(MAX_WINDOW);
        }
    }

    /// Recovery has ended. If the window was not validated when it began, the
    /// bytes that the network has carried of what was used: to be reduced once
    /// more in place of those at the beginning (RFC 7661, section 4.4.1).
    fn on_recovered(&mut self, event: &Event) -> Option<u32> {
        let carried = self.pipe_ack.saturating_sub(self.earlier);
        let was = self.phase == RECOVERING;
        self.restart(event);
        was.then_some(carried)
    }

    /// Nothing is known of the path any more: `pipeACK` is undefined.
    fn restart(&mut self, event: &Event) {
        *self = Self {
            since: Self::clock(event.now),
            ..Self::default()
        };
    }
}

/// The window that congestion leaves of `base` bytes: `factor` hundredths,
/// but at least two segments.
fn reduced(base: u32, factor: u32, mss: u32) -> u32 {
    let part = u64::from(base) * u64::from(factor) / 100;
    (part as u32).clamp(MIN_SEGMENTS * mss.clamp(1, MAX_WINDOW / 2), MAX_WINDOW)
}

/// `base` reduced to three quarters, as the threshold up to which a window
/// that went unused may be opened quickly again (RFC 7661, section 4.4.2).
const fn three_quarters(window: u32) -> u32 {
    window - window / 4
}

#[cfg(test)]
#[path = "loss_based/loss_based_tests.rs"]
mod tests;
