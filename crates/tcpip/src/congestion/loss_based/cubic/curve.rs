//! CUBIC's window as a function of the time since the start of the epoch.

use super::{Curve, EpochFlags, Pause};
use crate::congestion::{Event, MAX_WINDOW};

/// Maximum distance in milliseconds from the plateau at which the curve is evaluated, so that
/// products fit into 64 bits. In this time, a curve for segments of 536 bytes rises from its
/// plateau to [`MAX_WINDOW`].
const MAX_DISTANCE_MS: i64 = 200_000;
/// Maximum time since the plateau: 18 minutes, in microseconds. After that time, the plateau moves
/// along with the current time, so that the difference never wraps around.
const MAX_DISTANCE: u32 = 1 << 30;
/// Minimum growth per round trip until the first congestion: a twentieth of the window.
///
/// By RFC 9438, section 4.10, the curve starts flat after the first slow start. But slow start may
/// have ended early because of a queue that other connections filled. A flat curve would then need
/// seconds to reach the path's capacity. Linux uses the same minimum.
const MIN_GAIN: u32 = u32::MAX / 20;
/// Smallest growth step of the Reno window, in bytes. Acknowledged bytes accumulate until they
/// yield this step or are a whole window, because rounding would lose the growth for smaller steps.
const MIN_STEP: u32 = 64;

impl Curve {
    /// Evaluates the curve if `due` is set, grows the window, and stops the clock if nothing is in
    /// flight. Returns the new window.
    #[inline]
    pub(super) fn update(
        &mut self,
        cwnd: u32,
        acked: u32,
        due: bool,
        flags: &mut EpochFlags,
        event: &Event,
    ) -> u32 {
        let cwnd = if due {
            self.update_gain(cwnd, flags, event)
        } else {
            cwnd
        };
        let cwnd = self.grow(cwnd, acked);
        if event.una == event.nxt {
            self.suspend(Pause::Idle, cwnd, *flags, event);
        }
        cwnd
    }

    /// Processes an ACK that arrives while the clock is stopped, or that stops the clock. Returns
    /// the new window. `used` tells whether enough of the window is used for it to grow.
    pub(super) fn on_ack_paused(
        &mut self,
        cwnd: u32,
        acked: u32,
        used: bool,
        flags: &mut EpochFlags,
        event: &Event,
    ) -> u32 {
        match (self.pause, used) {
            (Pause::Fresh, true) => {
                // The window must also grow for this ACK, which may cover half or all of a small
                // window.
                let cwnd = self.begin(cwnd, flags, event);
                self.grow(cwnd, acked)
            }
            (Pause::Idle | Pause::Unused, true) => {
                self.resume(event.now);
                self.update_gain(cwnd, flags, event)
            }
            (Pause::None, false) => {
                self.suspend(Pause::Unused, cwnd, *flags, event);
                cwnd
            }
            (Pause::Idle, false) => {
                self.pause = Pause::Unused;
                cwnd
            }
            (Pause::None, true) | (Pause::SlowStart, _) | (Pause::Fresh | Pause::Unused, false) => {
                cwnd
            }
        }
    }

    /// Lets the stopped clock run on when data is sent after an idle time.
    #[inline(always)]
    pub(super) fn on_send(&mut self, event: &Event) {
        if self.pause == Pause::Idle {
            self.resume(event.now);
        }
    }

    /// Begins the epoch with a window of `cwnd` (RFC 9438, section 4.2).
    fn begin(&mut self, cwnd: u32, flags: &mut EpochFlags, event: &Event) -> u32 {
        self.pause = Pause::None;
        if self.w_max <= cwnd {
            // After a slow start, K is 0 (RFC 9438, sections 4.8 and 4.10).
            self.w_max = cwnd;
            flags.remove(EpochFlags::CONVERGED);
        }
        let k = time_to_plateau(self.w_max - cwnd, event.mss);
        self.plateau = event.now.wrapping_add(k);
        self.w_est = cwnd;
        self.acked = 0;
        self.credit = 0;
        self.update_gain(cwnd, flags, event)
    }

    /// Stops the clock for the reason `pause`.
    fn suspend(&mut self, pause: Pause, cwnd: u32, flags: EpochFlags, event: &Event) {
        self.pause = pause;
        self.w_est = self
            .w_est
            .saturating_add(self.reno_step(cwnd, flags, event.mss))
            .min(MAX_WINDOW);
        self.acked = event.now;
    }

    /// Restarts the clock, and postpones the plateau by the time for which the clock was stopped
    /// (RFC 9438, section 5.8).
    #[cold]
    fn resume(&mut self, now: u32) {
        self.pause = Pause::None;
        let stood = now.wrapping_sub(self.acked);
        self.plateau = self.plateau.wrapping_add(stood);
        self.acked = 0;
    }

    /// Computes the gain that applies to the next ACKs. Returns the window, which may have been
    /// raised to Reno's.
    #[inline(never)]
    fn update_gain(&mut self, mut cwnd: u32, flags: &mut EpochFlags, event: &Event) -> u32 {
        let mss = event.mss.max(1);
        self.tick = Self::ticks(event.now);
        if event.now.wrapping_sub(self.plateau).cast_signed() > MAX_DISTANCE.cast_signed() {
            self.plateau = event.now.wrapping_sub(MAX_DISTANCE);
        }
        if flags.intersects(EpochFlags::RENO) {
            // In the Reno-friendly region the gain includes Reno's growth, so `cwnd` has already
            // grown by it.
            self.w_est = self.w_est.max(cwnd);
            self.acked = 0;
        } else {
            let step = self.reno_step(cwnd, *flags, mss);
            if step >= MIN_STEP || self.acked >= cwnd {
                self.w_est = self.w_est.saturating_add(step).min(MAX_WINDOW);
                self.acked = 0;
            }
        }
        // The target is the value of the curve a round trip from now, but at most 1.5 windows (RFC
        // 9438, sections 4.2, 4.4 and 4.5).
        let target = self.window_at(event.now.wrapping_add(event.srtt), mss);
        // The gain is rounded up.
        let gain = |growth: u64, window: u64| (growth.min(window / 2) << 32).div_ceil(window);
        // The window is in the Reno-friendly region if Reno's window is larger (RFC 9438, section
        // 4.3). During a burst of ACKs, the curve's clock hardly advances while Reno's window
        // grows. Therefore the gain in this region is at least the curve's gain over the next round
        // trip.
        let reno_leads = cwnd <= self.w_est;
        if reno_leads && self.window_at(event.now, mss) < u64::from(self.w_est) {
            flags.insert(EpochFlags::RENO);
            cwnd = cwnd.max(self.w_est).max(1);
            let (share, of) = self.alpha(*flags);
            let reno = ((u64::from(mss) * share) << 32) / (u64::from(cwnd) * of);
            let gain = reno.max(gain(target.saturating_sub(cwnd.into()), cwnd.into()));
            self.gain = gain.min(u64::from(u32::MAX)) as u32;
        } else {
            flags.remove(EpochFlags::RENO);
            cwnd = cwnd.max(1);
            let (growth, window) = self.growth(cwnd, target, mss);
            self.gain = gain(growth, window) as u32;
        }
        if flags.intersects(EpochFlags::NO_LOSS_YET) {
            self.gain = self.gain.max(MIN_GAIN);
        }
        cwnd
    }

    /// Returns the growth from `cwnd` to a higher target, and the number of acknowledged bytes over
    /// which it is spread.
    ///
    /// Below the plateau, the growth begins and ends at whole segments, because only whole segments
    /// are sent. Otherwise a window of almost eleven segments could use only ten, and would stay a
    /// tenth below the curve.
    fn growth(&self, cwnd: u32, target: u64, mss: u32) -> (u64, u64) {
        let (mut from, mut to) = (u64::from(cwnd), target);
        if target < u64::from(self.w_max) {
            let mss = u64::from(mss);
            from = (from - from % mss).max(1);
            to = target.next_multiple_of(mss);
        }
        (to.saturating_sub(from), from)
    }

    /// Returns `W_cubic` at `time`, in bytes (RFC 9438, equation 1).
    fn window_at(&self, time: u32, mss: u32) -> u64 {
        let distance = i64::from(time.wrapping_sub(self.plateau).cast_signed()) / 1_000;
        let distance = distance.clamp(-MAX_DISTANCE_MS, MAX_DISTANCE_MS);
        // C is 0.4 segments per cubic second.
        let cube = distance * distance * distance / 1_000;
        let rise = cube * (4 * i64::from(mss.min(MAX_MSS))) / 10_000_000;
        (i64::from(self.w_max) + rise).max(0).cast_unsigned()
    }

    /// Returns the growth of Reno's window in segments per acknowledged window, as numerator and
    /// denominator (RFC 9438, section 4.3).
    fn alpha(&self, flags: EpochFlags) -> (u64, u64) {
        let prior = if flags.intersects(EpochFlags::CONVERGED) {
            u64::from(self.w_max) * 20 / 17
        } else {
            u64::from(self.w_max)
        };
        if u64::from(self.w_est) >= prior {
            (1, 1)
        } else {
            // This is 3 (1 - beta) / (1 + beta) with beta = 0.7.
            (9, 17)
        }
    }

    /// Returns the growth of Reno's window in bytes, for the bytes counted in `self.acked`.
    fn reno_step(&self, cwnd: u32, flags: EpochFlags, mss: u32) -> u32 {
        let (share, of) = self.alpha(flags);
        let acked = u64::from(self.acked.min(MAX_WINDOW));
        let step = u64::from(mss.min(MAX_MSS)) * share * acked / (u64::from(cwnd.max(1)) * of);
        step.min(u64::from(MAX_WINDOW)) as u32
    }
}

/// Upper bound of the segment size in bytes, which keeps products within 64 bits.
const MAX_MSS: u32 = 65_535;

/// Returns K in microseconds: the time in which the curve rises by `bytes` to the plateau (RFC
/// 9438, equation 2).
fn time_to_plateau(bytes: u32, mss: u32) -> u32 {
    // K^3 in cubic milliseconds is bytes / (0.4 mss) * 10^9.
    let cube = u64::from(bytes.min(MAX_WINDOW)) * 2_500_000_000 / u64::from(mss.max(1));
    cube_root(cube).min(MAX_DISTANCE / 1_000) * 1_000
}

/// Returns the integer cube root, rounded down, computed bit by bit.
fn cube_root(cube: u64) -> u32 {
    let mut root = 0_u64;
    // 2642245, the cube root of 2^64 - 1, needs 22 bits.
    let mut bit = 1_u64 << 21;
    while bit != 0 {
        let tried = root | bit;
        if tried <= 2_642_245 && tried * tried * tried <= cube {
            root = tried;
        }
        bit >>= 1;
    }
    root as u32
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
