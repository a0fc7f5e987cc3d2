//! Reno: slow start and AIMD (RFC 5681) with byte counting (RFC 3465).

use super::{Validation, reduced, three_quarters};
use crate::congestion::{Congestion, CongestionControl, Event, MAX_WINDOW, initial_window};

/// Window after a loss, in percent of the used window (RFC 5681, equation 4).
const BETA_LOSS: u32 = 50;
/// Window after an ECN mark, in percent of the used window (RFC 8511, section 3).
const BETA_ECN: u32 = 80;
/// Maximum number of segments by which an ACK opens the window in slow start (RFC 3465, section
/// 2.2).
const SLOW_START_LIMIT: u32 = 2;
/// Maximum number of segments by which an ACK opens the window in slow start after a timeout. The
/// limit is lower, because an ACK may cover data that arrived long before (RFC 3465, section 2.3).
const SLOW_START_LIMIT_AFTER_TIMEOUT: u32 = 1;

/// Reno, the congestion control in the paper (see the [crate documentation](crate)). It follows RFC
/// 5681, with byte counting (RFC 3465), window validation (RFC 7661) and the milder reduction after
/// ECN marks (RFC 8511).
///
/// Without SACK, Reno's recovery ends with the first ACK of new data, because RFC 5681 does not
/// treat partial ACKs specially. [`NewReno`](super::NewReno) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reno {
    cwnd: u32,
    /// The slow-start threshold in bytes. A smaller window grows by slow start, and any other
    /// window by congestion avoidance.
    ssthresh: u32,
    validation: Validation,
    /// Number of bytes acknowledged in congestion avoidance for which the window has not grown yet.
    bytes_acked: u32,
    /// Whether the connection is in a recovery that began with [`Congestion::Loss`].
    recovering: bool,
    /// Whether the current slow start follows a timeout.
    after_timeout: bool,
}

const _: () = assert!(size_of::<Reno>() <= 48);

impl Reno {
    /// Ends a half period of window validation when its time has passed. Halves a window that was
    /// not validated for five minutes (RFC 7661, section 4.4.2), but not below the initial window.
    #[cold]
    fn validate_window(&mut self, event: &Event) {
        if self.validation.end_half_period(self.cwnd, event) {
            self.remember_window();
            self.cwnd = (self.cwnd / 2)
                .max(initial_window(event.mss))
                .min(self.cwnd);
        }
    }

    /// Raises the threshold to at least three quarters of the current window, so that slow start
    /// can return to that size. In the first slow start the call has no effect, because the
    /// threshold is still unlimited.
    fn remember_window(&mut self) {
        self.ssthresh = self.ssthresh.max(three_quarters(self.cwnd));
    }

    /// Grows the window by a segment, because a whole window was acknowledged (RFC 3465, section
    /// 2.1).
    #[cold]
    fn grow_by_segment(&mut self, mss: u32) {
        // This function runs only outside recovery. If a tail loss probe repaired the loss, the end
        // of recovery was not reported.
        self.recovering = false;
        // One ACK counts for at most a whole window.
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
    const NAME: &'static str = "reno";
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
            self.validate_window(event);
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
                self.grow_by_segment(event.mss);
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

    /// Reduces the window to one segment (RFC 5681, section 3.1). The threshold is reduced only
    /// once for the same data. A timeout in recovery does not reduce it again.
    #[cold]
    fn on_timeout(&mut self, is_repeated: bool, event: &Event) {
        if self.ssthresh == u32::MAX || !(is_repeated || self.recovering) {
            let used = self.validation.used(self.cwnd, event);
            self.ssthresh = reduced(used, BETA_LOSS, event.mss);
        }
        self.cwnd = event.mss.clamp(1, MAX_WINDOW);
        self.validation.restart(event);
        self.bytes_acked = 0;
        self.recovering = false;
        self.after_timeout = true;
    }

    /// Reduces a larger window to the initial window (RFC 5681, section 4.1). RFC 7661 allows
    /// keeping the window over an idle period. Without pacing, the kept window would cause a burst.
    /// Therefore only the threshold remembers the window.
    #[cold]
    fn on_idle(&mut self, event: &Event) {
        let restart = initial_window(event.mss);
        if self.cwnd > restart {
            self.remember_window();
            self.cwnd = restart;
        }
        self.bytes_acked = 0;
        self.validation.restart(event);
    }
}

#[cfg(test)]
#[path = "reno_tests.rs"]
mod tests;
