//! Messages between the workers of one server.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::{Arc, OnceLock};

use nmio::mailbox::{SendMessageError, Sender};

use crate::new_worker::NewWorker;

/// A sender for each worker, set when that worker opens its mailbox.
type Senders<M> = Box<[OnceLock<Sender<M>>]>;

/// The mailboxes of all workers of one server. Create this value in `main`, and [open](Self::open)
/// a mailbox for each worker where you create its application.
#[derive(Debug)]
pub struct Mailboxes<M>(Arc<OnceLock<Senders<M>>>);

impl<M> Default for Mailboxes<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M: Send> Mailboxes<M> {
    /// Opens a worker's mailbox, with room for `capacity` messages times the number of workers.
    /// Returns a handle that can send to any worker. The application receives the messages in
    /// `on_message`.
    pub fn open(&self, worker: &mut NewWorker<M>, capacity: usize) -> Peers<M> {
        let capacity = capacity.saturating_mul(worker.workers() as usize);
        let empty_slots = || (0..worker.workers()).map(|_| OnceLock::new()).collect();
        let senders = self.0.get_or_init(empty_slots);
        let own = worker.index() as usize;
        if let Some(sender) = senders.get(own) {
            sender.get_or_init(|| worker.open_mailbox(capacity));
        }
        Peers {
            own,
            senders: Arc::clone(&self.0),
        }
    }
}

/// Sends messages from one worker to any worker of the same server. Workers are numbered from 0.
#[derive(Debug)]
pub struct Peers<M> {
    own: usize,
    senders: Arc<OnceLock<Senders<M>>>,
}

impl<M> Peers<M> {
    /// Number of this worker, from 0.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Number of workers, including this one.
    pub fn count(&self) -> usize {
        self.senders.get().map_or(1, |senders| senders.len())
    }

    /// Returns the number of the worker that keeps `key`, if keys are distributed over the workers
    /// by their hash. The result is the same on all workers of one process.
    pub fn keeper_of(&self, key: impl Hash) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        (hash % self.count() as u64) as usize
    }

    /// Sends a message to a worker, without waiting.
    ///
    /// # Errors
    /// [`SendMessageError::Full`] if that worker's mailbox is full. [`SendMessageError::Closed`] if
    /// the worker has ended, has not opened a mailbox, or does not exist. Both errors return the
    /// message.
    pub fn send(&self, worker: usize, message: M) -> Result<(), SendMessageError<M>> {
        let senders = self.senders.get();
        match senders.and_then(|all| all.get(worker)?.get()) {
            Some(sender) => sender.send(message),
            None => Err(SendMessageError::Closed(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::WorkerContext;

    fn worker(index: u32) -> NewWorker<u32> {
        NewWorker::new(&WorkerContext::example(index, 3))
    }

    #[test]
    fn each_worker_reaches_all_workers_with_a_mailbox() {
        let mailboxes = Mailboxes::default();
        let (mut first, mut last) = (worker(0), worker(2));
        let peers = mailboxes.open(&mut first, 1);
        assert_eq!((peers.own(), peers.count()), (0, 3));
        assert_eq!(peers.send(2, 7), Err(SendMessageError::Closed(7)));
        let others = mailboxes.open(&mut last, 1);
        (0..3).for_each(|message| peers.send(2, message).unwrap());
        assert_eq!(
            peers.send(2, 9),
            Err(SendMessageError::Full(9)),
            "three workers"
        );
        others.send(0, 10).unwrap();
        for (worker, expected) in [(first, vec![10]), (last, vec![0, 1, 2])] {
            let mut taken = Vec::new();
            let mut mailbox = worker.into_mailbox().unwrap();
            mailbox.take_all(|message| taken.push(message));
            assert_eq!(taken, expected);
        }
        assert_eq!(peers.send(2, 11), Err(SendMessageError::Closed(11)));
        assert_eq!(peers.send(3, 12), Err(SendMessageError::Closed(12)), "none");
    }

    #[test]
    fn workers_agree_on_the_keeper_of_a_key() {
        let mailboxes = Mailboxes::default();
        let [first, second] = [0, 1].map(|index| mailboxes.open(&mut worker(index), 1));
        let keepers: Vec<_> = (0..100_usize).map(|key| first.keeper_of(key)).collect();
        assert!((0..3).all(|worker| keepers.contains(&worker)));
        assert!((0..100).all(|key| second.keeper_of(key) == keepers[key]));
    }

    #[test]
    fn servers_of_one_process_do_not_share_mailboxes() {
        let [one, other] = [(); 2].map(|()| Mailboxes::default());
        let peers = one.open(&mut worker(0), 1);
        other.open(&mut worker(1), 1);
        assert_eq!(peers.send(1, 5), Err(SendMessageError::Closed(5)));
    }
}
