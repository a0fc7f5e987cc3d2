//! CUBIC (RFC 9438).

mod curve;
mod hystart;

use super::{Validation, is_validated, reduced, three_quarters};
use crate::congestion::{Congestion, CongestionControl, Event, MAX_WINDOW, initial_window};
use bitflags::bitflags;

/// Window after a loss, in percent of the window, or of its used part, before the loss (RFC 9438,
/// section 4.6).
const BETA_LOSS: u32 = 70;
/// Window after an ECN mark, in percent of the window, or of its used part, before the mark (RFC
/// 8511, section 3).
const BETA_ECN: u32 = 85;
/// Maximum number of segments by which an ACK opens the window after a timeout. The limit prevents
/// bursts, because an ACK after a timeout may cover data that arrived long before (RFC 3465,
/// sections 2.2 and 2.3).
const LIMIT_AFTER_TIMEOUT: u32 = 2;

/// Phase of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LossState {
    Open,
    /// Fast recovery, which began with [`Congestion::Loss`].
    Recovery,
    /// After a timeout, while the outstanding data is retransmitted.
    Loss,
}

/// Phase of the window's growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// The first slow start.
    SlowStart(HyStart),
    /// Congestion avoidance, or a later slow start that leads back to it.
    Avoidance(Curve),
}

/// CUBIC (RFC 9438) with fast convergence and the Reno-friendly region.
///
/// This implementation includes `HyStart++` (RFC 9406) for the first slow start, window validation
/// (RFC 7661), and the milder reduction after ECN marks (RFC 8511).
///
/// All arithmetic is on integers. The curve is evaluated at most once per millisecond, or once per
/// window of ACKs if that is sooner. The result is the window's growth per acknowledged byte until
/// the next evaluation, so most ACKs cost one multiplication.
///
/// Choices that the RFC leaves open:
/// - Congestion reduces the window, or only its used part if that is less than half of the window
///   (section 4.6 with RFC 7661). The plateau of the curve is the value before the reduction.
/// - In slow start an ACK counts for at most eight segments (RFC 9406, section 4.3). An ACK for
///   more segments counts for those that have just arrived at the peer, up to 64 KB. After a
///   timeout, an ACK counts for at most two segments.
/// - The ACK that ends recovery starts the curve.
/// - Below the plateau of the curve, the window grows to whole segments.
///
/// In addition to the RFC, the window grows by at least a twentieth per round trip between the
/// first slow start and the first congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubic {
    cwnd: u32,
    ssthresh: u32,
    validation: Validation,
    growth: Growth,
    flags: EpochFlags,
    loss_state: LossState,
}

const _: () = assert!(size_of::<Cubic>() <= 48);

/// Effect of an ACK in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlowStartStep {
    /// Number of bytes by which the window may grow.
    growth: u32,
    /// Whether a round or slow start has ended.
    round_over: bool,
    /// Whether slow start has ended, and congestion avoidance follows.
    exit: bool,
}

/// `HyStart++` in a connection's first slow start (RFC 9406, section 4.2). Later slow starts end at
/// a known threshold, and therefore do not need `HyStart++`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HyStart {
    /// The round ends when an ACK exceeds this sequence number.
    round_end: u32,
    /// Minimum RTT of all previous rounds in microseconds. It is 0 before the first round, and
    /// `u32::MAX` if there are no samples.
    ///
    /// RFC 9406 compares the RTT only with the last round's, and therefore misses a queue that
    /// several connections fill slowly.
    last_min: u32,
    /// Minimum RTT of the current round in microseconds.
    min: u32,
    /// Minimum RTT in ticks when conservative slow start began. It is 1 if a long ACK train began
    /// conservative slow start, and 0 outside conservative slow start.
    css_baseline: u16,
    /// Number of RTT samples in the current round, up to the eight that are evaluated.
    samples: u8,
    /// Number of rounds of conservative slow start that have begun.
    css_rounds: u8,
    /// Start of the round, in ticks.
    round_start: u16,
    /// Time of the last ACK of the current ACK train, in ticks.
    train_end: u16,
}

bitflags! {
    /// Flags of an epoch, the period of congestion avoidance between two congestion events.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct EpochFlags: u8 {
        /// Whether fast convergence has lowered the plateau.
        const CONVERGED = 1;
        /// Whether the window is in the Reno-friendly region.
        const RENO = 2;
        /// Whether slow start has ended without congestion, and there has been none since.
        const NO_LOSS_YET = 4;
    }
}

/// Whether the curve's clock is stopped, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// The clock runs.
    None,
    /// The epoch has not begun, because slow start is still active.
    SlowStart,
    /// The epoch begins with the next ACK.
    Fresh,
    /// The clock is stopped while nothing is in flight.
    Idle,
    /// The clock is stopped while the window is not used (RFC 9438, section 5.8).
    Unused,
}

/// Shift that converts microseconds to the ticks of [`Curve::tick`]. A tick is 256 µs.
const TICK_SHIFT: u32 = 8;
/// Number of ticks for which [`Curve::gain`] is valid, about a millisecond.
const GAIN_TICKS: u8 = 4;

/// CUBIC's curve: the window during congestion avoidance as a function of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Curve {
    /// `W_max` in bytes: the window at the plateau.
    w_max: u32,
    /// Time of the plateau in microseconds: start of the epoch plus K.
    plateau: u32,
    /// `W_est` in bytes: the window that Reno would have.
    w_est: u32,
    /// Acknowledged bytes for which `w_est` has not grown yet. While the clock is stopped: the time
    /// of the stop, in microseconds.
    acked: u32,
    /// Number of bytes by which the window grows per 2^32 acknowledged bytes.
    gain: u32,
    /// Fraction of a byte by which the window has yet to grow, in units of 2^-16 bytes.
    credit: u16,
    /// Time of the last evaluation, in ticks of 256 µs.
    tick: u8,
    pause: Pause,
}

impl Curve {
    /// Creates a curve that begins with the next ACK. Its plateau is `w_max`, or the window at the
    /// start of the epoch if that is larger.
    const fn new(w_max: u32) -> Self {
        Self {
            w_max,
            plateau: 0,
            w_est: 0,
            acked: 0,
            gain: 0,
            credit: 0,
            tick: 0,
            pause: Pause::Fresh,
        }
    }

    /// Creates a curve that begins after a slow start.
    const fn after_slow_start(w_max: u32) -> Self {
        let mut curve = Self::new(w_max);
        curve.pause = Pause::SlowStart;
        curve
    }

    #[inline(always)]
    const fn ticks(now: u32) -> u8 {
        (now >> TICK_SHIFT) as u8
    }

    /// Returns true if [`update`](Self::update) must evaluate the curve after an ACK of `acked`
    /// bytes. The window is `cwnd` bytes, and the clock must be running.
    #[inline(always)]
    fn needs_update(&self, cwnd: u32, acked: u32, event: &Event) -> bool {
        let acked = self.acked.wrapping_add(acked);
        acked >= cwnd / 8
            && (Self::ticks(event.now).wrapping_sub(self.tick) >= GAIN_TICKS || acked >= cwnd)
    }

    /// Returns the new value of the window `cwnd` after an ACK of `acked` bytes, while the clock
    /// runs.
    #[inline(always)]
    fn grow(&mut self, cwnd: u32, acked: u32) -> u32 {
        // The window cannot overflow: `gain` adds at most 2^31 bytes to a window of 2^30. The
        // growth is rounded up, because a window that is one byte too small for a segment wastes
        // that segment.
        let grown = u64::from(acked) * u64::from(self.gain) + u64::from(u16::MAX);
        let grown = (grown >> 16) + u64::from(self.credit);
        self.credit = grown as u16;
        self.acked = self.acked.wrapping_add(acked);
        cwnd.wrapping_add((grown >> 16) as u32).min(MAX_WINDOW)
    }
}

impl Cubic {
    /// Ends a half period of window validation when its time has passed. Halves a window that was
    /// not validated for five minutes (RFC 7661, section 4.4.2), but not below the initial window.
    #[inline]
    fn validate_window(&mut self, event: &Event) {
        if self.validation.may_end_half_period(event)
            && self.validation.end_half_period(self.cwnd, event)
        {
            let smaller = (self.cwnd / 2).max(initial_window(event.mss));
            self.shrink(smaller);
        }
    }

    /// Shrinks the window to `smaller` bytes without congestion, because its size may no longer be
    /// valid.
    ///
    /// A new slow start then reopens most of the old window. The first slow start, if it has not
    /// ended, simply continues.
    fn shrink(&mut self, smaller: u32) {
        if self.cwnd <= smaller {
            return;
        }
        if !matches!(self.growth, Growth::SlowStart(_)) {
            self.ssthresh = self.ssthresh.max(three_quarters(self.cwnd));
            self.growth = Growth::Avoidance(Curve::after_slow_start(self.w_max()));
        }
        self.cwnd = smaller;
    }

    fn w_max(&self) -> u32 {
        match self.growth {
            Growth::SlowStart(_) => 0,
            Growth::Avoidance(curve) => curve.w_max,
        }
    }

    /// Returns the number of bytes to which a reduction applies: the whole window if it is
    /// validated, and otherwise only the `used` bytes.
    ///
    /// The peer's receive window may have limited the used part of a validated window. For example,
    /// the peer may open its window along with our slow start. That limit says nothing about the
    /// network, so the whole window counts.
    fn congested(&self, used: u32) -> u32 {
        if is_validated(self.cwnd, used) {
            self.cwnd
        } else {
            used
        }
    }

    /// Prepares congestion avoidance, which the next ACK begins.
    #[cold]
    fn prepare_avoidance(&mut self, w_max: u32) {
        self.growth = Growth::Avoidance(Curve::new(w_max));
    }

    /// Ends slow start at the current window, without congestion (RFC 9438, section 4.10).
    #[cold]
    fn exit_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
        self.flags = EpochFlags::NO_LOSS_YET;
        self.prepare_avoidance(self.cwnd);
    }

    /// Ends a round of the first slow start, and slow start itself if `exit` is set.
    #[cold]
    fn end_round(&mut self, exit: bool, event: Event) {
        self.validate_window(&event);
        if exit {
            self.exit_slow_start();
        }
    }

    /// Processes an ACK off the fast path: the curve must be evaluated (`due`), nothing is left in
    /// flight, or a half period may be over.
    #[inline(never)]
    fn update(&mut self, due: bool, acked: u32, event: Event) {
        if let Growth::Avoidance(curve) = &mut self.growth {
            self.cwnd = curve.update(self.cwnd, acked, due, &mut self.flags, &event);
        }
        self.validate_window(&event);
    }

    /// Processes an ACK while the curve's clock is stopped or the window is not used.
    #[cold]
    fn on_ack_slow_path(&mut self, acked: u32, event: Event) {
        self.validate_window(&event);
        let Growth::Avoidance(curve) = &mut self.growth else {
            return;
        };
        if curve.pause != Pause::SlowStart {
            // This code runs only outside recovery, so any earlier recovery is over.
            self.loss_state = LossState::Open;
            let used = self.validation.allows_avoidance(self.cwnd, event.mss);
            let flags = &mut self.flags;
            self.cwnd = curve.on_ack_paused(self.cwnd, acked, used, flags, &event);
        } else if self.validation.allows_slow_start(self.cwnd) {
            let step = match self.loss_state {
                LossState::Loss => acked.min(LIMIT_AFTER_TIMEOUT.saturating_mul(event.mss)),
                LossState::Open | LossState::Recovery => HyStart::slow_start(acked, &event),
            };
            let grown = self.cwnd.saturating_add(step).min(MAX_WINDOW);
            // Slow start ends at the threshold. Above the threshold, the curve determines the
            // window.
            self.cwnd = grown.min(self.ssthresh.max(self.cwnd));
            if self.cwnd >= self.ssthresh {
                curve.pause = Pause::Fresh;
            }
        }
    }
}

impl CongestionControl for Cubic {
    const NAME: &'static str = "cubic";

    fn with_window(window: u32) -> Self {
        Self {
            cwnd: window,
            ssthresh: u32::MAX,
            validation: Validation::default(),
            growth: Growth::SlowStart(HyStart::default()),
            flags: EpochFlags::default(),
            loss_state: LossState::Open,
        }
    }

    #[inline(always)]
    fn window(&self) -> u32 {
        self.cwnd
    }

    #[inline(always)]
    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    #[inline(always)]
    fn on_send(&mut self, _bytes: u32, event: &Event) {
        if let Growth::Avoidance(curve) = &mut self.growth {
            curve.on_send(event);
        }
    }

    #[inline(always)]
    fn on_ack(&mut self, acked: u32, event: &Event) {
        self.validation.record_flight(event);
        match &mut self.growth {
            Growth::SlowStart(start) => {
                let step = start.on_ack(acked, event);
                if self.validation.allows_slow_start(self.cwnd) {
                    self.cwnd = self.cwnd.wrapping_add(step.growth).min(MAX_WINDOW);
                }
                if step.round_over {
                    self.end_round(step.exit, *event);
                }
            }
            Growth::Avoidance(curve) => {
                if curve.pause != Pause::None
                    || !self.validation.allows_avoidance(self.cwnd, event.mss)
                {
                    self.on_ack_slow_path(acked, *event);
                    return;
                }
                let due = curve.needs_update(self.cwnd, acked, event);
                if due || event.una == event.nxt || self.validation.may_end_half_period(event) {
                    self.update(due, acked, *event);
                } else {
                    self.cwnd = curve.grow(self.cwnd, acked);
                }
            }
        }
    }

    /// Reduces the window (RFC 9438, sections 4.6 and 4.7).
    #[cold]
    fn on_congestion(&mut self, cause: Congestion, event: &Event) {
        let last = self.w_max();
        let (loss_state, beta) = match cause {
            Congestion::Loss => (LossState::Recovery, BETA_LOSS),
            Congestion::Ecn => (LossState::Open, BETA_ECN),
        };
        self.loss_state = loss_state;
        let recovery = loss_state == LossState::Recovery;
        let used = self.validation.on_congestion(self.cwnd, event, recovery);
        let from = self.congested(used);
        self.ssthresh = reduced(from, beta, event.mss);
        self.cwnd = self.ssthresh;
        self.flags = EpochFlags::default();
        let w_max = if from < last {
            self.flags.insert(EpochFlags::CONVERGED);
            converged(from)
        } else {
            from
        };
        self.prepare_avoidance(w_max);
    }

    fn on_recovery_ack(&mut self, _delivered: u32, lost: u32, _event: &Event) {
        self.validation.on_lost(lost);
    }

    /// Ends recovery, and starts the curve with the ACK that ends it. With a window of a few
    /// segments, the next ACK is a round trip away.
    #[cold]
    fn on_recovered(&mut self, delivered: u32, event: &Event) {
        self.loss_state = LossState::Open;
        if let Some(carried) = self.validation.on_recovered(event) {
            self.ssthresh = reduced(carried, BETA_LOSS, event.mss);
            self.cwnd = self.ssthresh;
        }
        if delivered > 0 {
            self.on_ack(delivered, event);
        }
    }

    /// Reduces the window to one segment (RFC 9438, section 4.8). The threshold is reduced only
    /// once for the same data. A timeout in recovery does not reduce it again.
    #[cold]
    fn on_timeout(&mut self, is_repeated: bool, event: &Event) {
        if self.ssthresh == u32::MAX || !(is_repeated || self.loss_state == LossState::Recovery) {
            let used = self.validation.used(self.cwnd, event);
            self.ssthresh = reduced(self.congested(used), BETA_LOSS, event.mss);
        }
        self.cwnd = event.mss.clamp(1, MAX_WINDOW);
        self.validation.restart(event);
        self.loss_state = LossState::Loss;
        self.flags = EpochFlags::default();
        // The curve later starts flat: its plateau is the window at which slow start ends.
        self.growth = Growth::Avoidance(Curve::after_slow_start(0));
    }

    /// Reduces a larger window to the initial window (RFC 5681, section 4.1). RFC 7661 allows
    /// keeping the window over an idle period. Without pacing, the kept window would cause a burst.
    /// Therefore only the threshold and the curve remember the window.
    #[cold]
    fn on_idle(&mut self, event: &Event) {
        self.validation.restart(event);
        self.shrink(initial_window(event.mss));
        if let Growth::SlowStart(start) = &mut self.growth {
            // `HyStart++` starts over, because the path may have changed.
            *start = HyStart::default();
        }
    }
}

/// Returns the plateau after fast convergence: `used` times (1 + beta) / 2 (RFC 9438, section 4.7).
fn converged(used: u32) -> u32 {
    (u64::from(used) * 17 / 20) as u32
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
