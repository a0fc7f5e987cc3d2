//! The window as a function of time since the last congestion.

use super::{Curve, EpochFlags, Pause};
use crate::congestion::{Event, MAX_WINDOW};

/// Milliseconds from the plateau in which any curve meets [`MAX_WINDOW`].
const MAX_DISTANCE_MS: i64 = 200_000;
/// Microseconds beyond the plateau after which it is moved along, so that the
/// clock's wrap is never met: 2^30 is 18 minutes.
const MAX_DISTANCE: u32 = 1 << 30;
/// The part of a window by which it grows at least in a round trip until
/// something is lost. RFC 9438, section 4.10, has the curve begin flat; but
/// slow start may have ended early, for a queue of others, and then the curve
/// would take seconds to find what there is. (Linux has the same.)
const LEAST_GAIN: u32 = u32::MAX / 20;
/// Bytes below which growth of the Reno window is left to add up.
const MIN_STEP: u32 = 64;

impl Curve {
    /// As [`grow`](Self::grow), with what is not to be done for every ACK: the
    /// look-up when `due`, and standing still when nothing is in flight any more.
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

    /// An ACK while the curve stands still, or that makes it stand.
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
                // At a small window this ACK is of half of it, or all.
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

    /// Something is sent.
    #[inline(always)]
    pub(super) fn on_send(&mut self, event: &Event) {
        if self.pause == Pause::Idle {
            self.resume(event.now);
        }
    }

    /// The epoch begins with a window of `cwnd` (RFC 9438, section 4.2).
    fn begin(&mut self, cwnd: u32, flags: &mut EpochFlags, event: &Event) -> u32 {
        self.pause = Pause::None;
        if self.w_max <= cwnd {
            // Sections 4.8 and 4.10: K is 0.
            self.w_max = cwnd;
            flags.clear(EpochFlags::CONVERGED);
        }
        let k = time_to_plateau(self.w_max - cwnd, event.mss);
        self.plateau = event.now.wrapping_add(k);
        self.w_est = cwnd;
        self.acked = 0;
        self.credit = 0;
        self.update_gain(cwnd, flags, event)
    }

    /// Time stands still from now on.
    fn suspend(&mut self, pause: Pause, cwnd: u32, flags: EpochFlags, event: &Event) {
        self.pause = pause;
        self.w_est = self
            .w_est
            .saturating_add(self.reno_step(cwnd, flags, event.mss))
            .min(MAX_WINDOW);
        self.acked = event.now;
    }

    /// Time goes on (RFC 9438, section 5.8).
    #[cold]
    fn resume(&mut self, now: u32) {
        self.pause = Pause::None;
        let stood = now.wrapping_sub(self.acked);
        self.plateau = self.plateau.wrapping_add(stood);
        self.acked = 0;
    }

    /// Finds the gain for the time to come. The window, which Reno's growth
    /// may have raised.
    #[inline(never)]
    fn update_gain(&mut self, mut cwnd: u32, flags: &mut EpochFlags, event: &Event) -> u32 {
        let mss = event.mss.max(1);
        self.tick = Self::clock(event.now);
        if event.now.wrapping_sub(self.plateau).cast_signed() > MAX_DISTANCE.cast_signed() {
            self.plateau = event.now.wrapping_sub(MAX_DISTANCE);
        }
        if flags.has(EpochFlags::RENO) {
            // What the gain has given is Reno's growth already.
            self.w_est = self.w_est.max(cwnd);
            self.acked = 0;
        } else {
            let step = self.reno_step(cwnd, *flags, mss);
            if step >= MIN_STEP || self.acked >= cwnd {
                self.w_est = self.w_est.saturating_add(step).min(MAX_WINDOW);
                self.acked = 0;
            }
        }
        // Sections 4.2, 4.4 and 4.5: to where the curve is a round trip from
        // now, but by half at most.
        let target = self.window_at(event.now.wrapping_add(event.srtt), mss);
        // (Rounded up, too.)
        let gain = |growth: u64, window: u64| (growth.min(window / 2) << 32).div_ceil(window);
        // Section 4.3. ACKs come in bursts, in which the curve stands still and
        // Reno's window does not: what the curve will give within the round
        // trip counts there too, if it is more.
        let reno_leads = cwnd <= self.w_est;
        if reno_leads && self.window_at(event.now, mss) < u64::from(self.w_est) {
            flags.set(EpochFlags::RENO);
            cwnd = cwnd.max(self.w_est).max(1);
            let (share, of) = self.alpha(*flags);
            let reno = ((u64::from(mss) * share) << 32) / (u64::from(cwnd) * of);
            let gain = reno.max(gain(target.saturating_sub(cwnd.into()), cwnd.into()));
            self.gain = gain.min(u64::from(u32::MAX)) as u32;
        } else {
            flags.clear(EpochFlags::RENO);
            cwnd = cwnd.max(1);
            let (growth, window) = self.growth(cwnd, target, mss);
            self.gain = gain(growth, window) as u32;
        }
        if flags.has(EpochFlags::NO_LOSS_YET) {
            self.gain = self.gain.max(LEAST_GAIN);
        }
        cwnd
    }

    /// Bytes from `cwnd` to a target that lies above it, and the window that is
    /// to be acknowledged for that. Below the plateau in whole segments, as they
    /// are used: a window that comes near to one more and never to it, lies a
    /// tenth below the curve when it is of ten.
    fn growth(&self, cwnd: u32, target: u64, mss: u32) -> (u64, u64) {
        let (mut from, mut to) = (u64::from(cwnd), target);
        if target < u64::from(self.w_max) {
            let mss = u64::from(mss);
            from = (from - from % mss).max(1);
            to = target.next_multiple_of(mss);
        }
        (to.saturating_sub(from), from)
    }

    /// `W_cubic` at `time`, in bytes (RFC 9438, equation 1).
    fn window_at(&self, time: u32, mss: u32) -> u64 {
        let distance = i64::from(time.wrapping_sub(self.plateau).cast_signed()) / 1_000;
        let distance = distance.clamp(-MAX_DISTANCE_MS, MAX_DISTANCE_MS);
        // C is 0.4 segments a cubic second.
        let cube = distance * distance * distance / 1_000;
        let rise = cube * (4 * i64::from(mss.min(MAX_MSS))) / 10_000_000;
        (i64::from(self.w_max) + rise).max(0).cast_unsigned()
    }

    /// Growth of Reno's window for what is acknowledged, as a fraction of a
    /// segment for each window (RFC 9438, section 4.3).
    fn alpha(&self, flags: EpochFlags) -> (u64, u64) {
        let prior = if flags.has(EpochFlags::CONVERGED) {
            u64::from(self.w_max) * 20 / 17
        } else {
            u64::from(self.w_max)
        };
        if u64::from(self.w_est) >= prior {
            (1, 1)
        } else {
            // 3 (1 - beta) / (1 + beta).
            (9, 17)
        }
    }

    /// Bytes by which Reno's window has grown with `acked`.
    fn reno_step(&self, cwnd: u32, flags: EpochFlags, mss: u32) -> u32 {
        let (share, of) = self.alpha(flags);
        let acked = u64::from(self.acked.min(MAX_WINDOW));
        let step = u64::from(mss.min(MAX_MSS)) * share * acked / (u64::from(cwnd.max(1)) * of);
        step.min(u64::from(MAX_WINDOW)) as u32
    }
}

/// More than any segment has; keeps products in 64 bits.
const MAX_MSS: u32 = 65_535;

/// K in microseconds: how long the curve takes for a rise of `bytes` up to the
/// plateau (RFC 9438, equation 2).
fn time_to_plateau(bytes: u32, mss: u32) -> u32 {
    // Cubic milliseconds: bytes / (0.4 mss) * 10^9.
    let cube = u64::from(bytes.min(MAX_WINDOW)) * 2_500_000_000 / u64::from(mss.max(1));
    cube_root(cube).min(MAX_DISTANCE / 1_000) * 1_000
}

/// The largest integer whose cube is not above `cube`, bit by bit.
fn cube_root(cube: u64) -> u32 {
    let mut root = 0_u64;
    // 2642245 is the root of 2^64 - 1.
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
