//! CUBIC: RFC 9438.

mod curve;
mod hystart;

use super::{Validation, is_validated, reduced, three_quarters};
use crate::congestion::{Congestion, CongestionControl, Event, MAX_WINDOW, initial_window};

/// Hundredths of the window that a loss leaves (RFC 9438, section 4.6).
const BETA_LOSS: u32 = 70;
/// Hundredths of the window that a mark leaves (RFC 8511, section 3).
const BETA_ECN: u32 = 85;
/// Segments by which an ACK opens the window at most while what a timeout has
/// lost is sent again: it may cover what had arrived long before (RFC 3465,
/// sections 2.2 and 2.3).
const LIMIT_AFTER_TIMEOUT: u32 = 2;

/// What is being mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LossState {
    Open,
    /// Between [`Congestion::Loss`] and the end of recovery.
    Recovery,
    /// All that was in flight when the timer expired is sent again.
    Loss,
}

/// What the window follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first slow start.
    SlowStart(HyStart),
    /// Congestion avoidance, and slow start that leads back to it.
    Avoidance(Curve),
}

/// CUBIC (RFC 9438) with fast convergence, its Reno-friendly region, `HyStart++`
/// (RFC 9406) in the first slow start, the rules for an unused window of RFC
/// 7661, and the milder answer to ECN of RFC 8511.
///
/// Arithmetic is of integers: times in milliseconds and windows in bytes. The
/// curve is looked up once a millisecond or once a window of ACKs, whichever
/// is sooner, and gives the share of each acknowledged byte by which the window
/// grows until then, so that an ACK costs a multiplication.
///
/// Choices that the RFC leaves open: what congestion reduces is the window, or
/// what was used of it where that was less than half (section 4.6 with RFC
/// 7661), and the curve makes for that; in slow start an ACK counts for eight
/// segments at most (RFC 9406, section 4.3), or as many as have just arrived, up
/// to 64 KB; the ACK that ends recovery begins the curve; below its plateau the
/// window goes up to whole segments. Beyond the RFC: until something is lost it
/// grows by a twentieth a round trip at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubic {
    cwnd: u32,
    ssthresh: u32,
    validation: Validation,
    phase: Phase,
    flags: EpochFlags,
    loss_state: LossState,
}

const _: () = assert!(size_of::<Cubic>() <= 48);

/// What comes after an ACK in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// Bytes by which the window may grow.
    growth: u32,
    /// A round is over, or slow start.
    round_over: bool,
    /// Slow start is over: congestion avoidance goes on from here.
    exit: bool,
}

/// The initial slow start of a connection (RFC 9406, section 4.2). Later ones
/// have a threshold, and no need of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HyStart {
    /// The round ends when something behind this is acknowledged.
    round_end: u32,
    /// The shortest round trip of all rounds before this one in microseconds; 0
    /// before the first round, `u32::MAX` without samples. (RFC 9406 looks at the
    /// last round alone, and does not see a queue that several connections fill
    /// little by little.)
    last_min: u32,
    /// The shortest round trip of this round.
    min: u32,
    /// The shortest round trip with which conservative slow start began, in
    /// ticks; 1 when a train began it, 0 outside it.
    css_baseline: u16,
    /// Samples of this round, up to the eight that are judged.
    samples: u8,
    /// Rounds of conservative slow start that have begun.
    css_rounds: u8,
    /// When the round began, and the last ACK of its train came, in ticks.
    round_start: u16,
    train_end: u16,
}

/// What is known of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EpochFlags(u8);

impl EpochFlags {
    /// Fast convergence has lowered the plateau.
    const CONVERGED: u8 = 1;
    /// The window is that of Reno.
    const RENO: u8 = 2;
    /// Slow start has ended, and nothing was ever lost.
    const NO_LOSS_YET: u8 = 4;

    fn set(&mut self, mark: u8) {
        self.0 |= mark;
    }

    fn clear(&mut self, mark: u8) {
        self.0 &= !mark;
    }

    const fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }
}

/// Whether the curve goes on with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// It does.
    None,
    /// It has not begun: slow start leads back to it.
    SlowStart,
    /// The epoch begins with the next ACK.
    Fresh,
    /// It stands still while nothing is in flight, until there is something
    /// to send.
    Idle,
    /// It stands still while the window goes unused (RFC 9438, section 5.8).
    Unused,
}

/// The clock of [`Curve::tick`], 256 µs, as a shift.
const TICK_SHIFT: u32 = 8;
/// Ticks for which a gain is good: a millisecond.
const GAIN_TICKS: u8 = 4;

/// Congestion avoidance of CUBIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Curve {
    /// `W_max` in bytes: where the curve is flat.
    w_max: u32,
    /// When it is flat, in microseconds: the epoch's begin and K.
    plateau: u32,
    /// `W_est` in bytes: the window that Reno would have.
    w_est: u32,
    /// Bytes acknowledged that are not in `w_est` yet. While the curve stands
    /// still: since when, in microseconds.
    acked: u32,
    /// Bytes of growth for each 2^32 acknowledged.
    gain: u32,
    /// Growth left over, in 2^-16 bytes.
    credit: u16,
    /// When the gain was looked up, in units of 256 µs.
    tick: u8,
    pause: Pause,
}

impl Curve {
    /// A curve that is to make for `w_max`, if that is more than the window
    /// will be when it begins.
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

    /// The same after slow start, which is to come.
    const fn after_slow_start(w_max: u32) -> Self {
        let mut curve = Self::new(w_max);
        curve.pause = Pause::SlowStart;
        curve
    }

    #[inline(always)]
    const fn clock(now: u32) -> u8 {
        (now >> TICK_SHIFT) as u8
    }

    /// `acked` bytes of a window of `cwnd`, which is used, are acknowledged while
    /// the curve rises: whether it is to be looked up, which
    /// [`update`](Self::update) does.
    #[inline(always)]
    fn needs_update(&self, cwnd: u32, acked: u32, event: &Event) -> bool {
        let acked = self.acked.wrapping_add(acked);
        acked >= cwnd / 8
            && (Self::clock(event.now).wrapping_sub(self.tick) >= GAIN_TICKS || acked >= cwnd)
    }

    /// The window after `acked` bytes of it, of `cwnd`, were acknowledged while
    /// the curve rises.
    #[inline(always)]
    fn grow(&mut self, cwnd: u32, acked: u32) -> u32 {
        // At most 2^31 of growth, by `gain`, to 2^30. Rounded up: a byte short of
        // a segment is a segment less.
        let grown = u64::from(acked) * u64::from(self.gain) + u64::from(u16::MAX);
        let grown = (grown >> 16) + u64::from(self.credit);
        self.credit = grown as u16;
        self.acked = self.acked.wrapping_add(acked);
        cwnd.wrapping_add((grown >> 16) as u32).min(MAX_WINDOW)
    }
}

impl Cubic {
    /// RFC 7661, section 4.4.2: five minutes without validation.
    #[inline]
    fn turn(&mut self, event: &Event) {
        if self.validation.may_end_half_period(event)
            && self.validation.end_half_period(self.cwnd, event)
        {
            let smaller = (self.cwnd / 2).max(initial_window(event.mss));
            self.shrink(smaller);
        }
    }

    /// Nothing tells of congestion, but a window as large as this one is no
    /// longer known to be right: slow start leads back to near it. (The first
    /// slow start just goes on.)
    fn shrink(&mut self, smaller: u32) {
        if self.cwnd <= smaller {
            return;
        }
        if !matches!(self.phase, Phase::SlowStart(_)) {
            self.ssthresh = self.ssthresh.max(three_quarters(self.cwnd));
            self.phase = Phase::Avoidance(Curve::after_slow_start(self.w_max()));
        }
        self.cwnd = smaller;
    }

    fn w_max(&self) -> u32 {
        match self.phase {
            Phase::SlowStart(_) => 0,
            Phase::Avoidance(curve) => curve.w_max,
        }
    }

    /// Bytes that congestion reduces when `used` of the window were used. In the
    /// validated phase that is all of it: what a peer's window holds back, as
    /// while its host opens it in step with our slow start, tells nothing of the
    /// network.
    fn congested(&self, used: u32) -> u32 {
        if is_validated(self.cwnd, used) {
            self.cwnd
        } else {
            used
        }
    }

    /// Congestion avoidance begins with the next ACK.
    #[cold]
    fn avoid(&mut self, w_max: u32) {
        self.phase = Phase::Avoidance(Curve::new(w_max));
    }

    /// Slow start ends with the window as it is, without congestion (RFC 9438,
    /// section 4.10).
    #[cold]
    fn exit_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
        self.flags = EpochFlags::default();
        self.flags.set(EpochFlags::NO_LOSS_YET);
        self.avoid(self.cwnd);
    }

    /// A round of the first slow start is over, and slow start with it if
    /// `exit`.
    #[cold]
    fn end_round(&mut self, exit: bool, event: Event) {
        self.turn(&event);
        if exit {
            self.exit_slow_start();
        }
    }

    /// An ACK with what is not to be done with every one: the look-up on the
    /// curve when `due`, and what nothing in flight means.
    #[inline(never)]
    fn update(&mut self, due: bool, acked: u32, event: Event) {
        if let Phase::Avoidance(curve) = &mut self.phase {
            self.cwnd = curve.update(self.cwnd, acked, due, &mut self.flags, &event);
        }
        self.turn(&event);
    }

    /// An ACK while the curve does not rise.
    #[cold]
    fn on_ack_slow_path(&mut self, acked: u32, event: Event) {
        self.turn(&event);
        let Phase::Avoidance(curve) = &mut self.phase else {
            return;
        };
        if curve.pause != Pause::SlowStart {
            // Recovery, if there was one, is over.
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
            // What is beyond the threshold is the curve's.
            self.cwnd = grown.min(self.ssthresh.max(self.cwnd));
            if self.cwnd >= self.ssthresh {
                curve.pause = Pause::Fresh;
            }
        }
    }
}

impl CongestionControl for Cubic {
    fn with_window(window: u32) -> Self {
        Self {
            cwnd: window,
            ssthresh: u32::MAX,
            validation: Validation::default(),
            phase: Phase::SlowStart(HyStart::new()),
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
        if let Phase::Avoidance(curve) = &mut self.phase {
            curve.on_send(event);
        }
    }

    #[inline(always)]
    fn on_ack(&mut self, acked: u32, event: &Event) {
        self.validation.record_flight(event);
        match &mut self.phase {
            Phase::SlowStart(start) => {
                let step = start.on_ack(acked, event);
                if self.validation.allows_slow_start(self.cwnd) {
                    self.cwnd = self.cwnd.wrapping_add(step.growth).min(MAX_WINDOW);
                }
                if step.round_over {
                    self.end_round(step.exit, *event);
                }
            }
            Phase::Avoidance(curve) => {
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

    /// RFC 9438, sections 4.6 and 4.7.
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
            self.flags.set(EpochFlags::CONVERGED);
            converged(from)
        } else {
            from
        };
        self.avoid(w_max);
    }

    fn on_recovery_ack(&mut self, _delivered: u32, lost: u32, _event: &Event) {
        self.validation.on_lost(lost);
    }

    /// The curve begins with the ACK that ends recovery: where windows are of
    /// a few segments, the next is a round trip away.
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

    /// RFC 9438, section 4.8. The threshold falls once for the same data, and
    /// not again for a timeout in recovery, for which it has fallen already.
    #[cold]
    fn on_timeout(&mut self, again: bool, event: &Event) {
        if self.ssthresh == u32::MAX || !(again || self.loss_state == LossState::Recovery) {
            let used = self.validation.used(self.cwnd, event);
            self.ssthresh = reduced(self.congested(used), BETA_LOSS, event.mss);
        }
        self.cwnd = event.mss.clamp(1, MAX_WINDOW);
        self.validation.restart(event);
        self.loss_state = LossState::Loss;
        self.flags = EpochFlags::default();
        // The curve then begins flat at the window that slow start leaves.
        self.phase = Phase::Avoidance(Curve::after_slow_start(0));
    }

    /// RFC 5681, section 4.1. The stack does not pace as a rule, and then
    /// RFC 7661's leave to keep the window over a pause would be a burst; but
    /// the threshold and the curve remember it.
    #[cold]
    fn on_idle(&mut self, event: &Event) {
        self.validation.restart(event);
        self.shrink(initial_window(event.mss));
        if let Phase::SlowStart(start) = &mut self.phase {
            // Rounds begin anew: the path may have changed.
            *start = HyStart::new();
        }
    }
}

/// The plateau that fast convergence leaves of a window of `used` bytes (RFC
/// 9438, section 4.7): (1 + beta) / 2.
fn converged(used: u32) -> u32 {
    (u64::from(used) * 17 / 20) as u32
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
