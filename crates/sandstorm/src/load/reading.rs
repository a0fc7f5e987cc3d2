//! Reads short files on threads beside the one that walks through the folders. Most of the time for a
//! short file goes by in system calls.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::SystemTime;

use control::FileVersion;

use super::unchanged::read_exactly;
use crate::root::FilePlace;
use crate::skipped::{Reason, unreadable};

/// Maximum length of a file that is read on these threads, in bytes. Its content is copied once more.
pub(super) const MAX_LEN: u64 = 64 << 10;
/// Maximum number of threads. One thread can add the files of so many.
const MAX_THREADS: usize = 4;
/// Number of files that a thread reads at a time.
const BATCH: usize = 32;
/// Number of batches for each thread that are read, or have been read and not added.
const BATCHES_PER_THREAD: usize = 2;

/// A file to read.
pub(super) struct Job {
    /// The path in URLs, relative to the served folder.
    pub(super) path: PathBuf,
    pub(super) place: FilePlace,
    /// Length in bytes when the folder was searched.
    pub(super) len: u64,
}

/// A file that was read.
pub(super) struct Read {
    pub(super) path: PathBuf,
    /// The length in the job.
    len: u64,
    pub(super) content: Result<FileContent, Reason>,
}

/// The content of a file, in a version that has not changed meanwhile.
pub(super) struct FileContent {
    pub(super) bytes: Vec<u8>,
    pub(super) modified: SystemTime,
    pub(super) version: FileVersion,
}

/// Files to read, and where to send what was read.
struct Batch {
    jobs: Vec<Job>,
    to: Sender<Vec<Read>>,
}

/// The threads, and the files that they read.
pub(super) struct FileReaders {
    /// The queue of the threads. It is closed to end them.
    queue: Option<Sender<Batch>>,
    threads: Vec<JoinHandle<()>>,
    /// The files of the next batch.
    next: Vec<Job>,
    /// The batches that are not yet added, in the order of their files.
    batches: VecDeque<Receiver<Vec<Read>>>,
    /// Number and length of all files that are not yet added.
    files: u64,
    bytes: u64,
}

impl FileReaders {
    /// Starts the threads.
    pub(super) fn start() -> io::Result<Self> {
        let (queue, batches) = channel::<Batch>();
        let batches = Arc::new(Mutex::new(batches));
        let count = available_parallelism().map_or(1, usize::from);
        let start = |_| {
            let batches = Arc::clone(&batches);
            Builder::new()
                .name("load".to_owned())
                .spawn(move || read_batches(&batches))
        };
        let threads = (0..count.min(MAX_THREADS)).map(start);
        Ok(Self {
            threads: threads.collect::<io::Result<_>>()?,
            queue: Some(queue),
            next: Vec::new(),
            batches: VecDeque::new(),
            files: 0,
            bytes: 0,
        })
    }

    /// Number of files that are not yet added.
    pub(super) fn files(&self) -> u64 {
        self.files
    }

    /// Length of these files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has a file read. Returns what was read before, if it is its turn to be added.
    pub(super) fn add(&mut self, job: Job) -> Vec<Read> {
        self.files += 1;
        self.bytes += job.len;
        self.next.push(job);
        if self.next.len() < BATCH {
            return Vec::new();
        }
        self.send();
        if self.batches.len() <= BATCHES_PER_THREAD * self.threads.len() {
            return Vec::new();
        }
        self.take()
    }

    /// Sends the next batch to the threads.
    fn send(&mut self) {
        let (to, read) = channel();
        let jobs = std::mem::take(&mut self.next);
        if let Some(queue) = &self.queue {
            // The threads wait for batches until the queue is closed.
            drop(queue.send(Batch { jobs, to }));
        }
        self.batches.push_back(read);
    }

    /// Waits for the first batch, and returns its files.
    fn take(&mut self) -> Vec<Read> {
        let Some(first) = self.batches.pop_front() else {
            return Vec::new();
        };
        let read = first.recv().expect("a thread answers each batch");
        self.files -= read.len() as u64;
        self.bytes -= read.iter().map(|one| one.len).sum::<u64>();
        read
    }

    /// Waits for all files, and returns those of the next batch. Returns nothing if there are none.
    pub(super) fn take_rest(&mut self) -> Vec<Read> {
        if !self.next.is_empty() {
            self.send();
        }
        self.take()
    }
}

impl Drop for FileReaders {
    /// Ends the threads, because the caller may drop its privileges next.
    fn drop(&mut self) {
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            // A panic of a thread ends the process, or was reported.
            let _ = thread.join();
        }
    }
}

/// Reads batches until the queue is closed. Only one thread waits for the queue, and the others wait
/// for this thread.
fn read_batches(batches: &Mutex<Receiver<Batch>>) {
    loop {
        let next = batches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(Batch { jobs, to }) = next else {
            return;
        };
        let read = |Job { path, place, len }| Read {
            content: place.open().map_err(unreadable).and_then(read_file),
            path,
            len,
        };
        // The caller may have given up.
        drop(to.send(jobs.into_iter().map(read).collect()));
    }
}

/// Reads an open file.
fn read_file(mut file: File) -> Result<FileContent, Reason> {
    let metadata = file.metadata().map_err(unreadable)?;
    // The entry may have been replaced since its type was checked.
    if !metadata.is_file() || metadata.len() > MAX_LEN {
        return Err(Reason::Changed);
    }
    let modified = metadata.modified().map_err(unreadable)?;
    let mut bytes = vec![0; metadata.len() as usize];
    read_exactly(&mut file, &mut bytes, modified)?;
    Ok(FileContent {
        bytes,
        modified,
        version: FileVersion::of(&metadata),
    })
}
