//! Logs changes to the interface, and some counts that the operator should know, while the workers
//! serve.
//!
//! A worker does not log packets, because each line costs a system call that any sender could
//! cause. Instead, a worker publishes its counts between two batches, and the control thread reads
//! them once a second.

use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use nmio::device::{Change, Monitor, QueueAccess};
use tokio::time::{MissedTickBehavior, interval};

use crate::live::Published;
use crate::program::Counted;

/// Interval between two readings of counts and changes.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of changes logged in one period. The kernel keeps further changes for the next
/// period.
const MAX_CHANGES: usize = 100;
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

/// Logs counts and changes to the interface, on the control thread.
pub(crate) struct StatusLog<'a> {
    workers: &'a [Published],
    partial_checksums: Growth,
    evicted: Growth,
    app_errors: Growth,
    /// Reports changes to the interface. `None` once reading these changes has failed.
    monitor: Option<Monitor>,
    interface: String,
    /// The MAC address under which the server can be reached.
    mac: [u8; 6],
    own: bool,
}

impl<'a> StatusLog<'a> {
    /// Starts to watch the interface. Must be called before the thread drops its privileges.
    ///
    /// # Errors
    /// If the kernel cannot report changes to the interface.
    pub(crate) fn new(interface: &QueueAccess, workers: &'a [Published]) -> io::Result<Self> {
        Ok(Self {
            workers,
            partial_checksums: Growth::default(),
            evicted: Growth::default(),
            app_errors: Growth::default(),
            monitor: interface.monitor()?,
            interface: interface.name().to_owned(),
            mac: interface.mac(),
            own: interface.is_own(),
        })
    }

    /// Logs the changes to the interface since the last call, and the growth of each count that may
    /// be logged again.
    pub(crate) fn log(&mut self, now: Instant) {
        self.log_counts(now);
        self.log_changes();
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

    fn log_changes(&mut self) {
        for _ in 0..MAX_CHANGES {
            let Some(monitor) = &mut self.monitor else {
                return;
            };
            match monitor.next_change() {
                Ok(Some(change)) => self.log_change(change),
                Ok(None) => return,
                Err(error) => {
                    self.monitor = None;
                    tracing::warn!(
                        "changes to interface {} are no longer logged: {error}",
                        self.interface
                    );
                }
            }
        }
    }

    fn log_counts(&mut self, now: Instant) {
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

    fn log_change(&self, change: Change) {
        let name = &self.interface;
        let restart = if self.own {
            "the server still serves its own addresses"
        } else {
            "restart the server to serve the current addresses"
        };
        match change {
            Change::Down => tracing::info!("interface {name} is down"),
            Change::Up => tracing::info!("interface {name} is up"),
            Change::NoCarrier => tracing::info!("interface {name} has no carrier"),
            Change::Carrier => tracing::info!("interface {name} has a carrier again"),
            Change::AddressAdded(address) => {
                tracing::info!("interface {name} has a new address {address}; {restart}");
            }
            Change::AddressRemoved(address) => {
                tracing::info!("interface {name} has lost address {address}; {restart}");
            }
            Change::Mac(mac) if mac == self.mac => {
                tracing::warn!("interface {name} has its former MAC address, and is served again");
            }
            Change::Mac(_) => tracing::warn!(
                "interface {name} has a new MAC address, to which the server does not answer; restart \
                 the server"
            ),
            Change::Missed => {
                tracing::info!(
                    "interface {name}: too many changes at once, so some are not logged"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;

    use super::*;

    /// Returns what a server with MAC address 02:02:02:02:02:02 logs about `change`.
    fn logged(change: Change) -> String {
        let log = StatusLog {
            workers: &[],
            partial_checksums: Growth::default(),
            evicted: Growth::default(),
            app_errors: Growth::default(),
            monitor: None,
            interface: "srv0".into(),
            mac: [2; 6],
            own: false,
        };
        let (mut written, writer) = io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Arc::new(writer))
            .finish();
        tracing::subscriber::with_default(subscriber, || log.log_change(change));
        let mut text = String::new();
        written.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_a_new_mac_address_causes_advice_to_restart() {
        let new = logged(Change::Mac([4; 6]));
        assert!(new.contains("srv0") && new.contains("restart"), "{new}");
        let former = logged(Change::Mac([2; 6]));
        assert!(former.contains("is served again"), "{former}");
        assert!(!former.contains("restart"), "{former}");
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
