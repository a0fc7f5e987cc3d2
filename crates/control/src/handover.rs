//! Hands new content to all workers, which give back the old content bit by bit.

use std::sync::mpsc::{self, channel};
use std::sync::{Mutex, PoisonError};

use nmio::mailbox::Sender;
use nmio::{Bell, Mailbox};

/// New content for one worker. The worker drops this value when it has given back everything of the
/// old content.
#[derive(Debug)]
pub struct Turn<T> {
    /// The new content.
    pub content: T,
    /// Closes its channel when the last worker drops it.
    _done: mpsc::Sender<()>,
}

/// Hands new content to workers. A reload [sends](Self::send) it, and each worker has a mailbox for
/// it.
#[derive(Debug)]
pub struct Handover<T> {
    workers: Mutex<Vec<Sender<Turn<T>>>>,
}

impl<T> Default for Handover<T> {
    fn default() -> Self {
        Self {
            workers: Mutex::default(),
        }
    }
}

impl<T: Send> Handover<T> {
    /// Opens the mailbox of a worker with this bell. `read` returns the content that the worker begins
    /// with. The mailbox gets all content that is sent later, and nothing that `read` returns.
    pub fn open<R>(&self, bell: &Bell, read: impl FnOnce() -> R) -> (R, Mailbox<Turn<T>>) {
        let (sender, mailbox) = bell.mailbox(1);
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.push(sender);
        (read(), mailbox)
    }

    /// Sends new content to all workers, and waits until each of them has given back the old
    /// content or has ended. `make` makes the content for each worker. `change` lets workers that are
    /// [opened](Self::open) from now on begin with the new content. Only one thread may send, so that a
    /// mailbox is never full.
    pub fn send(&self, change: impl FnOnce(), mut make: impl FnMut() -> T) {
        let (done, all_done) = channel();
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        change();
        for worker in &*workers {
            let turn = Turn {
                content: make(),
                _done: done.clone(),
            };
            // A worker that has ended needs no content.
            drop(worker.send(turn));
        }
        drop((done, workers));
        // Nobody sends on the channel, so this waits until all senders are dropped.
        let _ = all_done.recv();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_handover_ends_when_all_workers_have_given_back_the_old_content() {
        let handover = Handover::default();
        let bell = Bell::new().unwrap();
        let open = || handover.open(&bell, || ()).1;
        let mut mailboxes = [open(), open()];
        drop(open());
        thread::scope(|scope| {
            let sending = scope.spawn(|| handover.send(|| (), || 7));
            let mut turns = Vec::new();
            while turns.len() < 2 {
                for mailbox in &mut mailboxes {
                    mailbox.take_all(|turn| turns.push(turn));
                }
            }
            assert!(turns.iter().all(|turn| turn.content == 7));
            assert!(!sending.is_finished());
            turns.pop();
            assert!(!sending.is_finished());
            turns.clear();
            sending.join().unwrap();
        });
    }

    #[test]
    fn a_worker_misses_no_content_that_is_sent_while_it_is_prepared() {
        let handover = Handover::default();
        let newest = AtomicU32::new(0);
        let bell = Bell::new().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for next in 1..=200 {
                    handover.send(|| newest.store(next, Ordering::Relaxed), || next);
                }
            });
            let worker = || {
                let read = || newest.load(Ordering::Relaxed);
                let (mut content, mut mailbox) = handover.open(&bell, read);
                while content < 200 {
                    mailbox.take_all(|turn| {
                        assert_eq!(turn.content, content + 1);
                        content = turn.content;
                    });
                }
            };
            for _ in 0..4 {
                scope.spawn(worker);
            }
        });
    }
}
