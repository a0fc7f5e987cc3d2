//! The threads that read files for the workers.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nmio::mailbox;

use super::file::{DiskFile, ReadError};

/// Maximum number of files that a thread keeps open.
const MAX_OPEN: usize = 32;
/// Files that were not read for this time are closed.
const IDLE: Duration = Duration::from_secs(1);
/// Minimum time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);
/// Number of threads. An SSD reads several chunks at a time.
const THREADS: usize = 8;

/// A piece of work for a thread.
#[derive(Debug)]
pub(super) enum Work {
    /// Reads a chunk, and sends it to the worker.
    Read {
        file: Arc<DiskFile>,
        chunk: u32,
        to: mailbox::Sender<Arrived>,
    },
    /// Frees the memory of a chunk, because a worker must not wait for the system.
    Free(#[expect(dead_code, reason = "it is only dropped")] Arc<[u8]>),
    /// Ends the thread.
    End,
}

/// A chunk that was read for a worker.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(super) file: Arc<DiskFile>,
    pub(super) chunk: u32,
    /// The bytes, or `None` if they cannot be read.
    pub(super) bytes: Option<Arc<[u8]>>,
}

/// The queue of chunks that are to be read. All reading threads take from it. Each worker adds only a
/// bounded number of chunks at a time.
#[derive(Debug)]
pub(crate) struct Reads {
    work: Mutex<Sender<Work>>,
    queue: Mutex<Receiver<Work>>,
    is_closed: AtomicBool,
    /// When the last warning was logged.
    warned: Mutex<Option<Instant>>,
}

impl Default for Reads {
    fn default() -> Self {
        let (work, queue) = channel();
        Self {
            work: Mutex::new(work),
            queue: Mutex::new(queue),
            is_closed: AtomicBool::new(false),
            warned: Mutex::default(),
        }
    }
}

impl Reads {
    /// The end of the queue at which a worker adds work.
    pub(super) fn sender(&self) -> Sender<Work> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.clone()
    }

    /// Logs why a chunk could not be read, but only once in a while.
    fn warn(&self, file: &DiskFile, error: &ReadError) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!("{} {error}", file.path().display());
        }
    }

    /// Reads a chunk for a worker.
    fn read(
        &self,
        open: &mut OpenFiles,
        file: Arc<DiskFile>,
        chunk: u32,
        to: &mailbox::Sender<Arrived>,
    ) {
        let outcome = open.read(&file, chunk);
        if let Err(error) = &outcome {
            self.warn(&file, error);
        }
        let bytes = outcome.ok();
        // The mailbox has room for all chunks that its worker has asked for. A worker that has ended
        // needs none.
        drop(to.send(Arrived { file, chunk, bytes }));
    }

    fn next(&self) -> Result<Work, RecvTimeoutError> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.recv_timeout(IDLE)
    }
}

impl control::Readers for Reads {
    fn threads(&self) -> usize {
        THREADS
    }

    fn run(&self) {
        let mut open = OpenFiles::default();
        while !self.is_closed.load(Ordering::Relaxed) {
            match self.next() {
                Ok(Work::Read { file, chunk, to }) => {
                    self.read(&mut open, file, chunk, &to);
                }
                Ok(Work::Free(_)) => {}
                Ok(Work::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => open.0.clear(),
            }
        }
        // The next thread ends as well.
        drop(self.sender().send(Work::End));
    }

    fn end(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        drop(self.sender().send(Work::End));
    }
}

/// The files that a thread has read lately, the latest one last.
#[derive(Debug, Default)]
struct OpenFiles(Vec<(u32, File)>);

impl OpenFiles {
    fn read(&mut self, file: &DiskFile, chunk: u32) -> Result<Arc<[u8]>, ReadError> {
        let known = self
            .0
            .iter()
            .position(|(number, _)| *number == file.number());
        let opened = match known {
            Some(at) => self.0.remove(at).1,
            None => file.open()?,
        };
        let bytes = file.read(&opened, chunk)?;
        if self.0.len() >= MAX_OPEN {
            self.0.remove(0);
        }
        self.0.push((file.number(), opened));
        Ok(bytes)
    }
}

#[cfg(test)]
impl Reads {
    /// Does all work that waits in the queue.
    pub(crate) fn work_all(&self) {
        let mut open = OpenFiles::default();
        let work: Vec<Work> = {
            let queue = self.queue.lock().unwrap();
            queue.try_iter().collect()
        };
        for one in work {
            if let Work::Read { file, chunk, to } = one {
                self.read(&mut open, file, chunk, &to);
            }
        }
    }
}
