//! Logs some counts that the operator should know, while the workers serve.
//!
//! A worker does not log packets, because each line costs a system call that any sender could
//! cause. Instead, a worker publishes its counts between two batches, and the control thread reads
//! them once a second.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use crate::live::Published;
use crate::tally::Counted;

/// Interval between two readings of counts.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// Minimum time between two log lines about the same count.
const LINE_INTERVAL: Duration = Duration::from_mins(1);

/// A count that can only grow. The first growth is logged immediately, and later growth at most
/// once a minute.
#[derive(Debug, Default)]
struct Growth {
    logged: u64,
    last: Option<Instant>,
}

impl Growth {
    /// Returns the growth of `count` since it was last logged. Returns `None` if it has not grown,
    /// or if the last line is too recent.
    fn take(&mut self, count: u64, now: Instant) -> Option<u64> {
        let is_early = self.last.is_some_and(|last| now < last + LINE_INTERVAL);
        if count <= self.logged || is_early {
            return None;
        }
        let grown = count - self.logged;
        (self.logged, self.last) = (count, Some(now));
        Some(grown)
    }
}

/// Logs counts, on the control thread.
pub(crate) struct StatusLog<'a> {
    workers: &'a [Published],
    partial_checksums: Growth,
    evicted: Growth,
    app_errors: Growth,
}

impl<'a> StatusLog<'a> {
    /// Creates the log of the counts of these workers.
    pub(crate) fn new(workers: &'a [Published]) -> Self {
        Self {
            workers,
            partial_checksums: Growth::default(),
            evicted: Growth::default(),
            app_errors: Growth::default(),
        }
    }

    /// Calls [`log`](Self::log) once a second, while the future is polled.
    pub(crate) async fn keep_logging(mut self) -> Infallible {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            period.tick().await;
            self.log(Instant::now());
        }
    }

    /// Logs the growth of each count that may be logged again.
    pub(crate) fn log(&mut self, now: Instant) {
        let mut sum = Counted::default();
        for counted in self.workers.iter().map(Published::counted) {
            sum.partial_checksums += counted.partial_checksums;
            sum.evicted += counted.evicted;
            sum.app_errors += counted.app_errors;
        }
        if let Some(packets) = self.partial_checksums.take(sum.partial_checksums, now) {
            tracing::warn!(
                "packets dropped because of partial checksums: {packets}; their senders leave \
                 checksums to a device that does not compute them, such as a container's veth; run \
                 ethtool -K PEER tx off at the sender's end, or add partial-checksums to --device"
            );
        }
        if let Some(requests) = self.app_errors.take(sum.app_errors, now) {
            tracing::warn!(
                "requests that failed because the application or hook returned an error: {requests}"
            );
        }
        if let Some(connections) = self.evicted.take(sum.evicted, now) {
            tracing::info!(
                "connections evicted because they made the least progress: {connections}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_growth_is_logged_at_once_and_later_growth_once_a_minute() {
        let mut growth = Growth::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seconds, count, logged) in [
            (0, 0, None),
            (5, 3, Some(3)),
            (6, 4, None),
            (64, 9, None),
            (65, 9, Some(6)),
            (200, 9, None),
            (201, 10, Some(1)),
        ] {
            assert_eq!(growth.take(count, at(seconds)), logged, "at {seconds} s");
        }
    }
}
