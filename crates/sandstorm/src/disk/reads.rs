//! The threads that read files for the workers.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nmio::mailbox;

use super::file::{DiskFile, ReadError};

/// Maximum number of files that are kept open.
const MAX_OPEN: usize = 64;
/// Files that were not read for this time are closed.
const IDLE: Duration = Duration::from_secs(1);
/// Minimum time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);
/// Number of threads if files are on the disk. An SSD reads several chunks at a time.
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
    open: Mutex<OpenFiles>,
    is_closed: AtomicBool,
    /// Whether files are on the disk at the start.
    has_files: AtomicBool,
    /// When the last warning was logged.
    warned: Mutex<Option<Instant>>,
}

impl Default for Reads {
    fn default() -> Self {
        let (work, queue) = channel();
        Self {
            work: Mutex::new(work),
            queue: Mutex::new(queue),
            open: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_files: AtomicBool::new(false),
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

    /// Says whether files are on the disk. If not, one thread suffices for those that a reload finds.
    pub(crate) fn expect_files(&self, has_files: bool) {
        self.has_files.store(has_files, Ordering::Relaxed);
    }

    /// Reads a chunk for a worker.
    fn read(&self, file: Arc<DiskFile>, chunk: u32, to: &mailbox::Sender<Arrived>) {
        let opened = self.open().find(&file);
        let opened = opened.map_or_else(|| file.open().map(Arc::new), Ok);
        let outcome = opened.and_then(|opened| {
            let bytes = file.read(&opened, chunk)?;
            self.open().keep(file.number(), opened);
            Ok(bytes)
        });
        if let Err(error) = &outcome {
            self.warn(&file, error);
        }
        let bytes = outcome.ok();
        // The mailbox has room for all chunks that its worker has asked for. A worker that has ended
        // needs none.
        drop(to.send(Arrived { file, chunk, bytes }));
    }

    fn open(&self) -> MutexGuard<'_, OpenFiles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work. Returns `None` if there was none for a while. Only one thread waits for the queue,
    /// and the others wait for this thread.
    fn next(&self) -> Option<Work> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.recv_timeout(IDLE).ok()
    }
}

impl control::Readers for Reads {
    fn threads(&self) -> usize {
        if self.has_files.load(Ordering::Relaxed) {
            THREADS
        } else {
            1
        }
    }

    fn run(&self) {
        while !self.is_closed.load(Ordering::Relaxed) {
            match self.next() {
                Some(Work::Read { file, chunk, to }) => self.read(file, chunk, &to),
                Some(Work::Free(_)) => {}
                Some(Work::End) => break,
                None => self.open().0.clear(),
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

/// The files that were read lately, the latest one last.
#[derive(Debug, Default)]
struct OpenFiles(Vec<(u32, Arc<File>)>);

impl OpenFiles {
    /// Returns a file if it is open.
    fn find(&self, file: &DiskFile) -> Option<Arc<File>> {
        let mut latest = self.0.iter().rev();
        let (_, opened) = latest.find(|(number, _)| *number == file.number())?;
        Some(Arc::clone(opened))
    }

    /// Keeps a file open.
    fn keep(&mut self, number: u32, opened: Arc<File>) {
        let known = self.0.iter().position(|(known, _)| *known == number);
        if let Some(at) = known {
            self.0.remove(at);
        } else if self.0.len() >= MAX_OPEN {
            self.0.remove(0);
        }
        self.0.push((number, opened));
    }
}

#[cfg(test)]
impl Reads {
    /// Does all work that waits in the queue.
    pub(crate) fn work_all(&self) {
        let work: Vec<Work> = {
            let queue = self.queue.lock().unwrap();
            queue.try_iter().collect()
        };
        for one in work {
            if let Work::Read { file, chunk, to } = one {
                self.read(file, chunk, &to);
            }
        }
    }
}
