//! CUBIC: RFC 9438.

mod curve;

use curve::{Curve, Marks};

use super::hystart::HyStart;
use super::validation::Validation;
use super::{
    Congestion, CongestionControl, Event, MAX_WINDOW, initial_window, reduced, three_quarters,
};

/// Hundredths of the window that a loss leaves (RFC 9438, section 4.6).
const BETA_LOSS: u32 = 70;
/// Hundredths of the window that a mark leaves (RFC 8511, section 3).
const BETA_ECN: u32 = 85;
/// Segments by which an ACK opens the window at most in a slow start that is
/// not the first (RFC 3465, section 2.2).
const SLOW_START_LIMIT: u32 = 2;

/// What the window follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first slow start.
    Start(HyStart),
    /// A later one: up to the threshold.
    Restart {
        /// Bytes of the window before the last congestion that the curve will
        /// make for; 0: none.
        w_max: u32,
    },
    /// Congestion avoidance.
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
/// Choices that the RFC leaves open: what congestion reduces is what was used
/// of the window (section 4.6 with RFC 7661), and the curve makes for that; an
/// ACK opens the first slow start by eight segments at most (RFC 9406, section
/// 4.3) and later ones by two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubic {
    cwnd: u32,
    ssthresh: u32,
    validation: Validation,
    phase: Phase,
    marks: Marks,
    /// Between [`Congestion::Loss`] and the end of recovery.
    recovering: bool,
}

const _: () = assert!(size_of::<Cubic>() <= 48);

impl Cubic {
    /// RFC 7661, section 4.4.2: five minutes without validation.
    #[cold]
    fn turn(&mut self, event: &Event) {
        if self.validation.turn(self.cwnd, event) {
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
        if !matches!(self.phase, Phase::Start(_)) {
            self.ssthresh = self.ssthresh.max(three_quarters(self.cwnd));
            self.phase = Phase::Restart {
                w_max: self.w_max(),
            };
        }
        self.cwnd = smaller;
    }

    fn w_max(&self) -> u32 {
        match self.phase {
            Phase::Start(_) => 0,
            Phase::Restart { w_max } => w_max,
            Phase::Avoidance(curve) => curve.w_max(),
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
    fn leave_start(&mut self) {
        self.ssthresh = self.cwnd;
        self.marks = Marks::default();
        self.avoid(self.cwnd);
    }

    #[inline(never)]
    fn restart_on_ack(&mut self, acked: u32, event: &Event) {
        let step = acked.min(SLOW_START_LIMIT.saturating_mul(event.mss));
        let grown = self.cwnd.saturating_add(step).min(MAX_WINDOW);
        // What is beyond the threshold is the curve's.
        self.cwnd = grown.min(self.ssthresh.max(self.cwnd));
        if self.cwnd >= self.ssthresh {
            let w_max = self.w_max();
            self.avoid(w_max);
        }
    }
}

impl CongestionControl for Cubic {
    fn new(mss: u32) -> Self {
        Self {
            cwnd: initial_window(mss),
            ssthresh: u32::MAX,
            validation: Validation::default(),
            phase: Phase::Start(HyStart::new()),
            marks: Marks::default(),
            recovering: false,
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
        if self.validation.note(event) {
            self.turn(event);
        }
        match &mut self.phase {
            Phase::Start(start) => {
                let step = start.on_ack(acked, event);
                if self.validation.in_slow_start(self.cwnd) {
                    self.cwnd = self.cwnd.saturating_add(step.growth).min(MAX_WINDOW);
                }
                if step.exit {
                    self.leave_start();
                }
            }
            Phase::Restart { .. } => {
                if self.validation.in_slow_start(self.cwnd) {
                    self.restart_on_ack(acked, event);
                }
            }
            Phase::Avoidance(curve) => {
                let used = self.validation.in_avoidance(self.cwnd, event.mss);
                let cwnd = curve.on_ack(self.cwnd, acked, used, &mut self.marks, event);
                self.cwnd = cwnd.min(MAX_WINDOW);
            }
        }
    }

    /// RFC 9438, sections 4.6 and 4.7.
    #[cold]
    fn on_congestion(&mut self, cause: Congestion, event: &Event) {
        let last = self.w_max();
        self.recovering = cause == Congestion::Loss;
        let used = self
            .validation
            .on_congestion(self.cwnd, event, self.recovering);
        let beta = match cause {
            Congestion::Loss => BETA_LOSS,
            Congestion::Ecn => BETA_ECN,
        };
        self.ssthresh = reduced(used, beta, event.mss);
        self.cwnd = self.ssthresh;
        self.marks = Marks::default();
        let w_max = if used < last {
            self.marks.set(Marks::CONVERGED);
            curve::converged(used)
        } else {
            used
        };
        self.avoid(w_max);
    }

    fn on_recovery_ack(&mut self, _delivered: u32, lost: u32, _event: &Event) {
        self.validation.on_lost(lost);
    }

    #[cold]
    fn on_recovered(&mut self, event: &Event) {
        self.recovering = false;
        if let Some(carried) = self.validation.on_recovered(event) {
            self.ssthresh = reduced(carried, BETA_LOSS, event.mss);
            self.cwnd = self.ssthresh;
        }
    }

    /// RFC 9438, section 4.8. The threshold falls once for the same data, and
    /// not again for a timeout in recovery, for which it has fallen already.
    #[cold]
    fn on_timeout(&mut self, again: bool, event: &Event) {
        if self.ssthresh == u32::MAX || !(again || self.recovering) {
            let used = self.validation.used(self.cwnd, event);
            self.ssthresh = reduced(used, BETA_LOSS, event.mss);
        }
        self.cwnd = event.mss.clamp(1, MAX_WINDOW);
        self.validation.restart(event);
        self.recovering = false;
        self.marks = Marks::default();
        // The curve then begins flat at the window that slow start leaves.
        self.phase = Phase::Restart { w_max: 0 };
    }

    /// RFC 5681, section 4.1. The stack does not pace as a rule, and then
    /// RFC 7661's leave to keep the window over a pause would be a burst; but
    /// the threshold and the curve remember it.
    #[cold]
    fn on_idle(&mut self, event: &Event) {
        self.validation.restart(event);
        self.shrink(initial_window(event.mss));
        if let Phase::Start(start) = &mut self.phase {
            // Rounds begin anew: the path may have changed.
            *start = HyStart::new();
        }
    }
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
