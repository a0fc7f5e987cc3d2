//! Logs some counts that the operator should know, while the workers serve.
//!
//! A worker does not log packets, because each line costs a system call that any sender could
//! cause. Instead, a worker publishes its counts between two batches, and the control thread reads
//! them once a second.

use std::convert::Infallible;
use std::ops::Add;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use crate::live::Published;
use crate::observed::Observed;
use crate::records::RecordLog;
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

/// Difference between two clocks above which one of them was set.
const STEP: Duration = Duration::from_secs(2);

/// The system's time, and the steady one at the same moment.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    system: SystemTime,
    steady: Instant,
}

impl Clocks {
    /// Takes the present times. Returns how far the system's clock was set since the earlier ones, in
    /// seconds, if it was set. A clock that was set back gives a negative number.
    fn take(&mut self, now: Self) -> Option<f64> {
        let expected = self.system + now.steady.duration_since(self.steady);
        *self = now;
        let set = match now.system.duration_since(expected) {
            Ok(forward) => forward.as_secs_f64(),
            Err(back) => -back.duration().as_secs_f64(),
        };
        (set.abs() >= STEP.as_secs_f64()).then_some(set)
    }
}

/// Logs counts, on the control thread.
pub(crate) struct StatusLog<'a> {
    server: &'a Observed,
    /// The logs of records, and what they have lost.
    logs: Vec<(&'a RecordLog, Growth)>,
    clocks: Clocks,
    partial_checksums: Growth,
    evicted: Growth,
    app_errors: Growth,
}

impl<'a> StatusLog<'a> {
    /// Creates the log of the counts of this server, and of what its logs of records lose.
    pub(crate) fn new(server: &'a Observed, logs: Vec<&'a RecordLog>) -> Self {
        let logs = logs.into_iter().map(|log| (log, Growth::default()));
        Self {
            server,
            logs: logs.collect(),
            clocks: Clocks {
                system: SystemTime::now(),
                steady: Instant::now(),
            },
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
        // Both at once, because a line of the log may have to wait.
        let clocks = Clocks {
            system: SystemTime::now(),
            steady: now,
        };
        let workers = self.server.workers().iter();
        let each = workers.map(Published::counted);
        let sum = each.fold(Counted::default(), Add::add);
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
        for (log, dropped) in &mut self.logs {
            if let Some(records) = dropped.take(log.dropped(), now) {
                tracing::warn!("{}", log.describe_loss(records));
            }
        }
        if let Some(seconds) = self.clocks.take(clocks) {
            self.server.count_clock_step();
            let direction = if seconds < 0.0 { "back" } else { "forward" };
            tracing::warn!(
                "the system's clock was set {direction} by {:.0} s; connections and timers do not notice, \
                 but dates in responses and logs have the new time",
                seconds.abs()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::records::{LogDestination, LogName};

    #[test]
    fn a_clock_that_was_set_is_told_from_time_that_has_passed() {
        let start = Clocks {
            system: SystemTime::UNIX_EPOCH + Duration::from_secs(100_000),
            steady: Instant::now(),
        };
        let mut clocks = start;
        let mut after = |steady: u64, system: u64| {
            clocks.take(Clocks {
                system: SystemTime::UNIX_EPOCH + Duration::from_secs(system),
                steady: start.steady + Duration::from_secs(steady),
            })
        };
        assert_eq!(after(1, 100_001), None);
        assert_eq!(after(2, 100_003), None);
        assert_eq!(after(3, 96_404), Some(-3_600.0));
        assert_eq!(after(4, 96_405), None);
        assert_eq!(after(5, 100_006), Some(3_600.0));
    }

    /// A terminal that takes a line only after this time.
    struct Slow(Duration);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            thread::sleep(self.0);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_waits_is_no_step_of_the_clock() {
        let to = LogDestination::File("/dev/null".into());
        let name = LogName {
            shown: "test log",
            option: "test_log",
        };
        let log = RecordLog::open(name, "test", &to, |_, _| ()).unwrap();
        let mut worker = log.sender();
        while worker.lost() == 0 {
            worker.send(b"", &vec![0; 1 << 20]);
        }
        let (workers, lists) = (Published::for_workers(1).into(), Default::default());
        let server = Observed::new(("test", "1"), workers, Arc::default(), None, lists);
        let mut status_log = StatusLog::new(&server, vec![&log]);
        let lines = tracing_subscriber::fmt().with_writer(|| Slow(STEP + STEP / 4));
        tracing::subscriber::with_default(lines.finish(), || {
            for _ in 0..2 {
                status_log.log(Instant::now());
            }
        });
        assert_eq!(server.status().clock_steps, 0);
    }

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
