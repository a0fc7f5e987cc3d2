//! What a program may use while it prepares a worker.

use nmio::mailbox::Sender;
use nmio::{Bell, Mailbox};

use crate::program::WorkerContext;

/// A worker that is being prepared: its service or application does not exist yet.
#[derive(Debug)]
pub struct NewWorker<M> {
    index: u32,
    workers: u32,
    bell: Bell,
    mailbox: Option<Mailbox<M>>,
}

impl<M: Send> NewWorker<M> {
    /// Creates the worker of this context, without a mailbox.
    pub fn new(context: &WorkerContext) -> Self {
        Self {
            index: context.index,
            workers: context.workers,
            bell: context.bell.clone(),
            mailbox: None,
        }
    }

    /// Number of this worker, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Number of workers of the server.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Opens the worker's mailbox for `capacity` messages. Each message is passed to `on_message`
    /// of the worker's service or application. A second call replaces the first mailbox.
    ///
    /// # Panics
    /// If the messages would need more memory than a process can have. The memory is allocated now.
    pub fn open_mailbox(&mut self, capacity: usize) -> Sender<M> {
        let (sender, mailbox) = self.bell.mailbox(capacity);
        self.mailbox = Some(mailbox);
        sender
    }

    /// Returns the mailbox, if one was opened.
    pub fn into_mailbox(self) -> Option<Mailbox<M>> {
        self.mailbox
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_worker_has_its_index_and_keeps_its_last_mailbox() {
        let context = WorkerContext::example(2, 5);
        let mut worker = NewWorker::<u8>::new(&context);
        assert_eq!((worker.index(), worker.workers()), (2, 5));
        let first = worker.open_mailbox(1);
        let second = worker.open_mailbox(1);
        first.send(1).unwrap_err();
        second.send(2).unwrap();
        let mut taken = Vec::new();
        let mut mailbox = worker.into_mailbox().unwrap();
        mailbox.take_all(|message| taken.push(message));
        assert_eq!(taken, [2]);
        assert!(NewWorker::<u8>::new(&context).into_mailbox().is_none());
    }
}
