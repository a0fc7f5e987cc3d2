//! Live counters: the counts of each worker, published while it serves.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use nmio::mailbox::{SendMessageError, Sender};
use nmio::{Bell, Mailbox, PortCounters, PortLevels, Times};

use crate::questions::{MAX_WAITING, Question};
use crate::tally::{Counted, Tally};

/// Counts of one worker since its start, as the worker last published them.
#[derive(Clone, Debug, Default)]
pub struct WorkerSnapshot {
    published: Option<Instant>,
    port: PortCounters,
    levels: PortLevels,
    batch_times: Times,
    tally: Tally,
    counted: Counted,
}

impl WorkerSnapshot {
    /// Time since the worker published this snapshot. It is less than 250 ms while the worker
    /// serves and gets its CPU time. The result is `None`, and all counts are 0, until the worker
    /// is ready to serve.
    pub fn age(&self) -> Option<Duration> {
        self.age_at(Instant::now())
    }

    /// The same at the time `now`.
    pub(crate) fn age_at(&self, now: Instant) -> Option<Duration> {
        self.published.map(|at| now.saturating_duration_since(at))
    }

    /// Counts of the worker's port.
    pub fn port(&self) -> &PortCounters {
        &self.port
    }

    /// How full the port's packet memory and rings were when the worker published this snapshot.
    pub fn levels(&self) -> &PortLevels {
        &self.levels
    }

    /// Times from the receipt of a batch until the packets in answer to it were flushed.
    pub fn batch_times(&self) -> &Times {
        &self.batch_times
    }

    /// Counts of the worker's program, as [`Program::tally`](crate::Program::tally) reports them.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Replaces all counts. Reuses the tally's buffers, so that no memory is allocated.
    pub(crate) fn fill(
        &mut self,
        (port, levels): (PortCounters, PortLevels),
        batch_times: &Times,
        counted: Counted,
        tally: impl FnOnce(&mut Tally),
    ) {
        (self.port, self.levels) = (port, levels);
        self.batch_times = *batch_times;
        self.counted = counted;
        self.tally.clear();
        tally(&mut self.tally);
        self.published = Some(Instant::now());
    }
}

/// Counts of all workers. The workers publish their counts at different times.
#[derive(Clone, Debug)]
pub struct Snapshot {
    workers: Vec<WorkerSnapshot>,
}

impl Snapshot {
    /// The snapshot of each worker, ordered by worker number.
    pub fn workers(&self) -> &[WorkerSnapshot] {
        &self.workers
    }

    /// Age of the oldest of the workers' snapshots, or `None` until all workers are ready.
    pub fn age(&self) -> Option<Duration> {
        let ages = self.workers.iter().map(WorkerSnapshot::age);
        ages.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Sum of the counts of all ports.
    pub fn port(&self) -> PortCounters {
        add_up(self.workers.iter().map(WorkerSnapshot::port))
    }

    /// Sum of the tallies of all workers, by name.
    pub fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        for worker in &self.workers {
            sum.merge(&worker.tally);
        }
        sum
    }
}

/// The place where one worker publishes its snapshot, and where it can be asked for more. If a reader
/// holds the lock, the worker does not wait but tries again later.
#[derive(Debug, Default)]
pub(crate) struct Published {
    snapshot: Mutex<WorkerSnapshot>,
    questions: OnceLock<Sender<Question>>,
}

impl Published {
    /// Creates one place for each worker's snapshot.
    pub(crate) fn for_workers(workers: u32) -> Box<[Self]> {
        (0..workers).map(|_| Self::default()).collect()
    }

    /// Locks the snapshot for the worker. Returns `None` while a reader holds the lock.
    pub(crate) fn try_write(&self) -> Option<MutexGuard<'_, WorkerSnapshot>> {
        match self.snapshot.try_lock() {
            Ok(slot) => Some(slot),
            // A thread panicked while it held the lock. The counts may be inconsistent, but the
            // worker overwrites all of them.
            Err(TryLockError::Poisoned(slot)) => Some(slot.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the snapshot for a reader, or for a worker that has ended and may therefore wait.
    pub(crate) fn lock(&self) -> MutexGuard<'_, WorkerSnapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the worker's mailbox for questions, which has this bell.
    pub(crate) fn open_questions(&self, bell: &Bell) -> Mailbox<Question> {
        let (sender, mailbox) = bell.mailbox(MAX_WAITING);
        // A worker opens its mailbox once.
        let _ = self.questions.set(sender);
        mailbox
    }

    /// Sends a question to the worker.
    ///
    /// # Errors
    /// If the worker is not ready, has ended, or has too many questions.
    pub(crate) fn ask(&self, question: Question) -> Result<(), SendMessageError<Question>> {
        match self.questions.get() {
            Some(sender) => sender.send(question),
            None => Err(SendMessageError::Closed(question)),
        }
    }

    /// Returns the counts that the log reports.
    pub(crate) fn counted(&self) -> Counted {
        self.lock().counted
    }
}

/// Returns the counts that each worker published last.
pub(crate) fn snapshot(published: &[Published]) -> Snapshot {
    let workers = published.iter().map(|worker| {
        let mut snapshot = worker.lock().clone();
        let listed = std::mem::take(&mut snapshot.tally);
        // Counts that the worker listed several times are added up.
        snapshot.tally.merge(&listed);
        snapshot
    });
    Snapshot {
        workers: workers.collect(),
    }
}

/// Adds up the counts of several ports.
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
            tx_retries,
            tx_lost,
            tx_refused,
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
        sum.tx_retries += tx_retries;
        sum.tx_lost += tx_lost;
        sum.tx_refused += tx_refused;
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
            partial_checksums: 3,
            evicted: 5,
            app_errors: 7,
        };
        let mut slot = published.try_write().unwrap();
        let levels = PortLevels::default();
        slot.fill((port, levels), &Times::default(), counted, |tally| {
            tally.event("requests", requests);
            tally.drop("fragment", 1);
        });
    }

    #[test]
    fn a_snapshot_has_the_last_counts_and_their_sums() {
        let published = [Published::default(), Published::default()];
        let before = snapshot(&published);
        assert_eq!(before.age(), None);
        assert_eq!(before.tally(), Tally::default());
        count(&published[0], 10, 3);
        assert_eq!(snapshot(&published).age(), None, "one worker is not ready");
        count(&published[1], 20, 1);
        count(&published[1], 30, 4);
        let now = snapshot(&published);
        assert!(now.age().unwrap() < Duration::from_mins(1));
        assert_eq!(now.workers()[1].port().rx_frames, 30);
        assert_eq!(now.workers()[1].tally().of("requests"), Some(4));
        assert_eq!(now.port().rx_frames, 40);
        assert_eq!(now.tally().of("requests"), Some(7));
        assert_eq!(now.tally().drops()[0].to_string(), "fragment 2");
        let counted = published[0].counted();
        assert_eq!((counted.partial_checksums, counted.evicted), (3, 5));
        assert_eq!(counted.app_errors, 7);
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
    fn a_panic_with_the_lock_held_does_not_block_the_slot() {
        let published = Published::default();
        let thread = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _slot = published.try_write();
                std::panic::resume_unwind(Box::new(()));
            });
            worker.join()
        });
        assert!(thread.is_err());
        count(&published, 1, 2);
        assert_eq!(snapshot(&[published]).port().rx_frames, 1);
    }
}
