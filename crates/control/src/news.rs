//! What the log tells of while the workers serve: changes of the interface, and
//! counts that a person should look at.
//!
//! A worker writes no log for a packet: each line is a system call, and a
//! sender could ask for as many as it likes. Instead a worker publishes its
//! counts between two batches, and the control thread reads them once a second.

use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use nmio::device::{Change, Monitor, QueueAccess};
use tokio::time::{MissedTickBehavior, interval};

use crate::live::Published;

/// How often counts and changes are read.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// Changes that are told in one period; the kernel keeps the others.
const MAX_CHANGES: usize = 100;
/// One kind of line comes no more often than this.
const QUIET: Duration = Duration::from_mins(1);

/// A count that grows, told of at once and then in sum.
#[derive(Debug, Default)]
struct Growth {
    told: u64,
    last: Option<Instant>,
}

impl Growth {
    /// By how much `count` has grown since it was last told, if it is time to
    /// tell.
    fn take(&mut self, count: u64, now: Instant) -> Option<u64> {
        let is_early = self.last.is_some_and(|last| now < last + QUIET);
        if count <= self.told || is_early {
            return None;
        }
        let grown = count - self.told;
        (self.told, self.last) = (count, Some(now));
        Some(grown)
    }
}

/// The control thread's part: it writes the log.
pub(crate) struct News<'a> {
    workers: &'a [Published],
    unfinished: Growth,
    evicted: Growth,
    /// Until the kernel tells no more.
    monitor: Option<Monitor>,
    interface: String,
    own: bool,
}

impl<'a> News<'a> {
    /// Begins to watch the interface; call it while the thread still has its
    /// rights.
    ///
    /// # Errors
    /// When the kernel does not tell of changes.
    pub(crate) fn new(interface: &QueueAccess, workers: &'a [Published]) -> io::Result<Self> {
        Ok(Self {
            workers,
            unfinished: Growth::default(),
            evicted: Growth::default(),
            monitor: Some(interface.monitor()?),
            interface: interface.name().to_owned(),
            own: interface.is_own(),
        })
    }

    /// Tells the log what has happened since the last time.
    pub(crate) fn tell(&mut self, now: Instant) {
        self.tell_counts(now);
        self.tell_changes();
    }

    /// Tells the log what happens, for as long as it is polled.
    pub(crate) async fn keep_telling(mut self) -> Infallible {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            period.tick().await;
            self.tell(Instant::now());
        }
    }

    fn tell_changes(&mut self) {
        for _ in 0..MAX_CHANGES {
            let Some(monitor) = &mut self.monitor else {
                return;
            };
            match monitor.next_change() {
                Ok(Some(change)) => self.tell_change(change),
                Ok(None) => return,
                Err(error) => {
                    self.monitor = None;
                    tracing::warn!(
                        "changes of interface {} are not logged from now on: {error}",
                        self.interface
                    );
                }
            }
        }
    }

    fn tell_counts(&mut self, now: Instant) {
        let counted = self.workers.iter().map(Published::counted);
        let (unfinished, evicted) = counted.fold((0, 0), |(unfinished, evicted), one| {
            (unfinished + one.unfinished_checksums, evicted + one.evicted)
        });
        if let Some(packets) = self.unfinished.take(unfinished, now) {
            tracing::warn!(
                "packets dropped because of unfinished checksums: {packets}; their senders leave \
                 checksums to a device that does not finish them (a container's veth does so): run \
                 ethtool -K PEER tx off at the sender's end, or add partial-checksums to --device"
            );
        }
        if let Some(connections) = self.evicted.take(evicted, now) {
            tracing::info!(
                "connections that gave way to others, having made the least progress: {connections}"
            );
        }
    }

    fn tell_change(&self, change: Change) {
        let name = &self.interface;
        let restart = if self.own {
            "the server's own addresses stay"
        } else {
            "start again to serve the addresses that it has now"
        };
        match change {
            Change::Down => tracing::info!("interface {name} is down"),
            Change::Up => tracing::info!("interface {name} is up"),
            Change::NoCarrier => tracing::info!("interface {name} has no carrier"),
            Change::Carrier => tracing::info!("interface {name} has its carrier again"),
            Change::AddressAdded(address) => {
                tracing::info!("interface {name} has a new address {address}; {restart}");
            }
            Change::AddressRemoved(address) => {
                tracing::info!("interface {name} has lost address {address}; {restart}");
            }
            Change::Mac(_) => tracing::warn!(
                "interface {name} has another MAC address, and frames to it are not served; start \
                 again"
            ),
            Change::Missed => tracing::info!(
                "interface {name}: so much changed at once that some of it is not logged"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_at_once_and_then_in_sum() {
        let mut growth = Growth::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seconds, count, told) in [
            (0, 0, None),
            (5, 3, Some(3)),
            (6, 4, None),
            (64, 9, None),
            (65, 9, Some(6)),
            (200, 9, None),
            (201, 10, Some(1)),
        ] {
            assert_eq!(growth.take(count, at(seconds)), told, "at {seconds} s");
        }
    }
}
