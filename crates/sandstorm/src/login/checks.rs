//! The thread that checks passwords for the workers.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use nmio::mailbox;

use super::credentials::Credentials;
use super::users::Users;

/// A piece of work for the thread.
#[derive(Debug)]
pub(super) enum CheckTask {
    Check(Check, mailbox::Sender<Checked>),
    /// Ends the thread.
    End,
}

/// Credentials to be checked for a worker.
#[derive(Debug)]
pub(super) struct Check {
    /// The number that the worker has given to the check.
    pub(super) number: u64,
    pub(super) users: Arc<Users>,
    pub(super) credentials: Credentials,
}

/// The result of a check.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) check: Check,
    pub(super) is_right: bool,
}

/// The queue of credentials to check. Each worker adds one at a time.
#[derive(Debug)]
pub(crate) struct Checks {
    work: Mutex<Sender<CheckTask>>,
    queue: Mutex<Receiver<CheckTask>>,
}

impl Default for Checks {
    fn default() -> Self {
        let (work, queue) = channel();
        Self {
            work: Mutex::new(work),
            queue: Mutex::new(queue),
        }
    }
}

impl Checks {
    /// The end of the queue at which a worker adds work.
    pub(super) fn sender(&self) -> Sender<CheckTask> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.clone()
    }
}

impl Check {
    fn run(self, to: &mailbox::Sender<Checked>) {
        let (name, password) = self.credentials.split();
        let is_right = self.users.accept(name, password);
        let check = self;
        // The mailbox has room for the only check of its worker. A worker that has ended needs none.
        drop(to.send(Checked { check, is_right }));
    }
}

impl control::Readers for Checks {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(CheckTask::Check(check, to)) = queue.recv() {
            check.run(&to);
        }
    }

    fn end(&self) {
        drop(self.sender().send(CheckTask::End));
    }
}

#[cfg(test)]
impl Checks {
    /// Does all work that waits in the queue.
    pub(crate) fn work_all(&self) {
        let queue = self.queue.lock().unwrap();
        for work in queue.try_iter() {
            if let CheckTask::Check(check, to) = work {
                check.run(&to);
            }
        }
    }
}
