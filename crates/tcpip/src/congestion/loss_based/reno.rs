//! Reno: slow start and AIMD, RFC 5681, counting bytes (RFC 3465).

use super::{Validation, reduced, three_quarters};
use crate::congestion::{Congestion, CongestionControl, Event, MAX_WINDOW, initial_window};

/// Hundredths of the window that a loss leaves (RFC 5681, equation 4).
const BETA_LOSS: u32 = 50;
/// Hundredths of the window that a mark leaves (RFC 8511, section 3).
const BETA_ECN: u32 = 80;
/// Segments by which an ACK opens the window in slow start at most (RFC 3465,
/// section 2.2), and after a timeout, when an ACK may cover what had arrived
/// long before (section 2.3).
const SLOW_START_LIMIT: u32 = 2;
const SLOW_START_LIMIT_AFTER_TIMEOUT: u32 = 1;

/// Reno, the congestion control of the paper: RFC 5681, counting bytes
/// (RFC 3465), with the rules for an unused window of RFC 7661 and the milder
/// answer to ECN of RFC 8511.
///
/// Without SACK its recovery ends with the first ACK of new data, as RFC 5681
/// knows no partial ones; see [`NewReno`](super::NewReno).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reno {
    cwnd: u32,
    /// Below it slow start, above it congestion avoidance.
    ssthresh: u32,
    validation: Validation,
    /// Bytes acknowledged in congestion avoidance since the window grew last;
    /// less than the window.
    bytes_acked: u32,
    /// Between [`Congestion::Loss`] and the end of recovery.
    recovering: bool,
    /// Slow start follows a timeout.
    after_timeout: bool,
}

const _: () = assert!(size_of::<Reno>() <= 48);

impl Reno {
    /// RFC 7661, section 4.4.2: five minutes without validation.
    #[cold]
    fn turn(&mut self, event: &Event) {
        if self.validation.end_half_period(self.cwnd, event) {
            self.remember();
            self.cwnd = (self.cwnd / 2)
                .max(initial_window(event.mss))
                .min(self.cwnd);
        }
    }

    /// Slow start may lead back to near the present window, unless it has
    /// never ended.
    fn remember(&mut self) {
        self.ssthresh = self.ssthresh.max(three_quarters(self.cwnd));
    }

    /// RFC 3465, section 2.1: a segment more for a window acknowledged.
    #[cold]
    fn avoid(&mut self, mss: u32) {
        // It is over by now, if it was more than a probe of the tail.
        self.recovering = false;
        // One ACK can't count for more than a window.
        self.bytes_acked = (self.bytes_acked - self.cwnd).min(self.cwnd.saturating_sub(1));
        self.cwnd = self.cwnd.saturating_add(mss).min(MAX_WINDOW);
    }

    #[cold]
    fn slow_start_again(&mut self, acked: u32, mss: u32) {
        let step = acked.min(SLOW_START_LIMIT_AFTER_TIMEOUT.saturating_mul(mss));
        self.cwnd = self.cwnd.saturating_add(step).min(MAX_WINDOW);
        self.after_timeout = self.cwnd < self.ssthresh;
    }
}

impl CongestionControl for Reno {
    const PARTIAL_ACK_RECOVERY: bool = false;

    fn with_window(window: u32) -> Self {
        Self {
            cwnd: window,
            ssthresh: u32::MAX,
            validation: Validation::default(),
            bytes_acked: 0,
            recovering: false,
            after_timeout: false,
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
    fn on_ack(&mut self, acked: u32, event: &Event) {
        self.validation.record_flight(event);
        if self.validation.may_end_half_period(event) {
            self.turn(event);
        }
        if self.cwnd < self.ssthresh {
            if !self.validation.allows_slow_start(self.cwnd) {
                return;
            }
            if self.after_timeout {
                self.slow_start_again(acked, event.mss);
                return;
            }
            let step = acked.min(SLOW_START_LIMIT.wrapping_mul(event.mss));
            self.cwnd = self.cwnd.wrapping_add(step).min(MAX_WINDOW);
        } else if self.validation.allows_avoidance(self.cwnd, event.mss) {
            self.bytes_acked = self.bytes_acked.saturating_add(acked);
            if self.bytes_acked >= self.cwnd {
                self.avoid(event.mss);
            }
        }
    }

    #[cold]
    fn on_congestion(&mut self, cause: Congestion, event: &Event) {
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
        self.bytes_acked = 0;
        self.after_timeout = false;
    }

    fn on_recovery_ack(&mut self, _delivered: u32, lost: u32, _event: &Event) {
        self.validation.on_lost(lost);
    }

    #[cold]
    fn on_recovered(&mut self, _delivered: u32, event: &Event) {
        self.recovering = false;
        if let Some(carried) = self.validation.on_recovered(event) {
            self.ssthresh = reduced(carried, BETA_LOSS, event.mss);
            self.cwnd = self.ssthresh;
        }
    }

    /// RFC 5681, section 3.1. The threshold falls once for the same data, and
    /// not again for a timeout in recovery, for which it has fallen already.
    #[cold]
    fn on_timeout(&mut self, again: bool, event: &Event) {
        if self.ssthresh == u32::MAX || !(again || self.recovering) {
            let used = self.validation.used(self.cwnd, event);
            self.ssthresh = reduced(used, BETA_LOSS, event.mss);
        }
        self.cwnd = event.mss.clamp(1, MAX_WINDOW);
        self.validation.restart(event);
        self.bytes_acked = 0;
        self.recovering = false;
        self.after_timeout = true;
    }

    /// RFC 5681, section 4.1. The stack does not pace as a rule, and then
    /// RFC 7661's leave to keep the window over a pause would be a burst; but
    /// the threshold remembers it.
    #[cold]
    fn on_idle(&mut self, event: &Event) {
        let restart = initial_window(event.mss);
        if self.cwnd > restart {
            self.remember();
            self.cwnd = restart;
        }
        self.bytes_acked = 0;
        self.validation.restart(event);
    }
}

#[cfg(test)]
#[path = "reno_tests.rs"]
mod tests;
