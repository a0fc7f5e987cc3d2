//! Live counters: what each worker has counted, published while it serves.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use nmio::PortCounters;

use crate::program::{Counted, Tally};

/// What one worker has counted since its start, as it last published it.
#[derive(Clone, Debug, Default)]
pub struct WorkerSnapshot {
    published: Option<Instant>,
    port: PortCounters,
    tally: Tally,
    counted: Counted,
}

impl WorkerSnapshot {
    /// How long ago it was published: less than 250 ms while the worker serves and
    /// gets its core. `None` before it is ready to serve: nothing is counted then.
    pub fn age(&self) -> Option<Duration> {
        self.published.map(|at| at.elapsed())
    }

    /// The counts of its port.
    pub fn port(&self) -> &PortCounters {
        &self.port
    }

    /// The counts of what it serves, as [`Program::tally`](crate::Program::tally) gives
    /// them.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts anew, by `tally` and `counted`; a buffer that is there is used again.
    pub(crate) fn fill(
        &mut self,
        port: PortCounters,
        counted: Counted,
        tally: impl FnOnce(&mut Tally),
    ) {
        self.port = port;
        self.counted = counted;
        self.tally.clear();
        tally(&mut self.tally);
        self.published = Some(Instant::now());
    }
}

/// What all workers have counted, each at its own moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    workers: Vec<WorkerSnapshot>,
}

impl Snapshot {
    /// One for each worker, by its number.
    pub fn workers(&self) -> &[WorkerSnapshot] {
        &self.workers
    }

    /// The age of the oldest part; `None` before all workers are ready.
    pub fn age(&self) -> Option<Duration> {
        let ages = self.workers.iter().map(WorkerSnapshot::age);
        ages.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The counts of all ports, added up.
    pub fn port(&self) -> PortCounters {
        add_up(self.workers.iter().map(WorkerSnapshot::port))
    }

    /// The counts of all workers, added up by name.
    pub fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        for worker in &self.workers {
            sum.merge(&worker.tally);
        }
        sum
    }
}

/// One worker's place for its snapshot. The worker never waits for a reader: it
/// tries again later.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<WorkerSnapshot>);

impl Published {
    /// One for each of so many workers.
    pub(crate) fn for_workers(workers: u32) -> Box<[Self]> {
        (0..workers).map(|_| Self::default()).collect()
    }

    /// The place, for the worker; `None` while somebody reads it.
    pub(crate) fn try_write(&self) -> Option<MutexGuard<'_, WorkerSnapshot>> {
        match self.0.try_lock() {
            Ok(place) => Some(place),
            // Who panicked with it has left numbers, which are overwritten.
            Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The place, for a worker that has ended and may wait, and for readers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, WorkerSnapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the log tells of.
    pub(crate) fn counted(&self) -> Counted {
        self.lock().counted
    }
}

/// Reads what each worker has published last.
pub(crate) fn snapshot(published: &[Published]) -> Snapshot {
    let workers = published.iter().map(|worker| worker.lock().clone());
    Snapshot {
        workers: workers.collect(),
    }
}

/// The sum of what ports have counted.
pub(crate) fn add_up<'a>(ports: impl Iterator<Item = &'a PortCounters>) -> PortCounters {
    let mut sum = PortCounters::default();
    for port in ports {
        let PortCounters {
            rx_frames,
            rx_bytes,
            tx_frames,
            tx_bytes,
            tx_supers,
            tx_ring_full,
            rx_lost,
            tx_lost,
            bad_descriptors,
            tx_wakeups,
            waits,
            rx_batches,
            tx_batches,
        } = port;
        sum.rx_frames += rx_frames;
        sum.rx_bytes += rx_bytes;
        sum.tx_frames += tx_frames;
        sum.tx_bytes += tx_bytes;
        sum.tx_supers += tx_supers;
        sum.tx_ring_full += tx_ring_full;
        sum.rx_lost += rx_lost;
        sum.tx_lost += tx_lost;
        sum.bad_descriptors += bad_descriptors;
        sum.tx_wakeups += tx_wakeups;
        sum.waits += waits;
        sum.rx_batches.merge(rx_batches);
        sum.tx_batches.merge(tx_batches);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(published: &Published, frames: u64, requests: u64) {
        let port = PortCounters {
            rx_frames: frames,
            ..PortCounters::default()
        };
        let counted = Counted {
            unfinished_checksums: 3,
            evicted: 5,
        };
        let mut place = published.try_write().unwrap();
        place.fill(port, counted, |tally| {
            tally.event("requests", requests);
            tally.drop("fragment", 1);
        });
    }

    #[test]
    fn counts_are_read_as_they_were_published_and_added_up() {
        let published = [Published::default(), Published::default()];
        let before = snapshot(&published);
        assert_eq!(before.age(), None);
        assert_eq!(before.tally(), Tally::default());
        count(&published[0], 10, 3);
        assert_eq!(snapshot(&published).age(), None, "one is not ready yet");
        count(&published[1], 20, 1);
        count(&published[1], 30, 4);
        let now = snapshot(&published);
        assert!(now.age().unwrap() < Duration::from_mins(1));
        assert_eq!(now.workers()[1].port().rx_frames, 30);
        assert_eq!(now.workers()[1].tally().events(), [("requests", 4)]);
        assert_eq!(now.port().rx_frames, 40);
        assert_eq!(now.tally().events(), [("requests", 7)]);
        assert_eq!(now.tally().drops(), [("fragment", 2)]);
        let counted = published[0].counted();
        assert_eq!((counted.unfinished_checksums, counted.evicted), (3, 5));
    }

    #[test]
    fn a_worker_does_not_wait_for_a_reader() {
        let published = Published::default();
        let reader = published.lock();
        assert!(published.try_write().is_none());
        drop(reader);
        assert!(published.try_write().is_some());
    }

    #[test]
    fn a_panic_with_the_place_in_hand_leaves_it_to_others() {
        let published = Published::default();
        let thread = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _place = published.try_write();
                std::panic::resume_unwind(Box::new(()));
            });
            worker.join()
        });
        assert!(thread.is_err());
        count(&published, 1, 2);
        assert_eq!(snapshot(&[published]).port().rx_frames, 1);
    }
}
