//! The threads that read files for the workers.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use control::FileRead;
use crossbeam_channel::{Receiver, Sender, unbounded};
use nmio::mailbox;

use super::buffer::Buffer;
use super::file::{DiskFile, MAX_TOGETHER, ReadError};

/// Maximum number of files that are kept open, if not all of them are being sent.
const MAX_OPEN: usize = 64;
/// Maximum number of files that are kept open.
const MAX_IN_USE: usize = 256;
/// Files that are not being sent, and were not read for this time, are closed.
const IDLE: Duration = Duration::from_secs(1);
/// Minimum time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);
/// Number of threads if files are on the disk. An SSD reads several chunks at a time.
const THREADS: usize = 8;

/// Chunks of a file, one after the other, that are read together.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) file: Arc<DiskFile>,
    /// Index of the first chunk.
    pub(super) first: u32,
    /// The memory of each chunk. It is used again if it has the right length.
    pub(super) buffers: ArrayVec<Buffer, MAX_TOGETHER>,
    /// Whether the kernel is to keep a copy, because the chunks are asked for again and again.
    pub(super) is_kept: bool,
}

impl Run {
    pub(super) fn new(file: &Arc<DiskFile>, first: u32, buffer: Buffer, is_kept: bool) -> Self {
        Self {
            file: Arc::clone(file),
            first,
            buffers: [buffer].into_iter().collect(),
            is_kept,
        }
    }

    /// Whether the chunks are read without the page cache.
    fn is_direct(&self) -> bool {
        !self.is_kept && self.file.is_direct()
    }

    /// Whether the next chunk of the file can be read together with these.
    pub(super) fn accepts(&self, is_kept: bool) -> bool {
        self.is_kept == is_kept && !self.buffers.is_full()
    }
}

/// A piece of work for a thread.
#[derive(Debug)]
pub(super) enum DiskTask {
    /// Reads chunks, and sends them to the worker.
    Read(Run, mailbox::Sender<Arrived>),
    /// Frees the memory of a chunk, because a worker must not wait for the system.
    Free(#[expect(dead_code, reason = "it is only dropped")] Buffer),
    /// Ends the thread.
    End,
}

/// Chunks that were read for a worker.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(super) run: Run,
    /// Whether all of them could be read.
    pub(super) is_read: bool,
}

/// The queue of chunks to read. All reading threads take from it. Each worker adds only a bounded
/// number of chunks at a time.
#[derive(Debug)]
pub(crate) struct Reads {
    work: Sender<DiskTask>,
    queue: Receiver<DiskTask>,
    open: Mutex<OpenFiles>,
    is_closed: AtomicBool,
    /// Whether files are on the disk at the start.
    has_files: AtomicBool,
    /// When the last warning was logged.
    warned: Mutex<Option<Instant>>,
    page_cache: PageCache,
    /// Whether the log says that a file system refuses direct reads.
    has_told: AtomicBool,
}

impl Default for Reads {
    fn default() -> Self {
        let (work, queue) = unbounded();
        Self {
            work,
            queue,
            open: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_files: AtomicBool::new(false),
            warned: Mutex::default(),
            page_cache: PageCache::default(),
            has_told: AtomicBool::new(false),
        }
    }
}

impl Reads {
    /// The end of the queue at which a worker adds work.
    pub(super) fn sender(&self) -> Sender<DiskTask> {
        self.work.clone()
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

    /// Does a piece of work.
    fn work(&self, work: DiskTask) {
        if let DiskTask::Read(mut run, to) = work {
            let outcome = self.read(&mut run);
            if let Err(error) = &outcome {
                self.warn(&run.file, error);
            }
            let is_read = outcome.is_ok();
            // The mailbox has room for all chunks that its worker has asked for. A worker that has
            // ended needs none.
            drop(to.send(Arrived { run, is_read }));
        }
    }

    /// Reads chunks: without the page cache, unless it has them, or is to keep them.
    fn read(&self, run: &mut Run) -> Result<(), ReadError> {
        if run.is_direct() {
            if self.page_cache.may_have_it() {
                let is_cached = self.read_by(run, FileRead::IfCached)?;
                self.page_cache.note(is_cached);
                if is_cached {
                    return Ok(());
                }
            }
            if self.read_by(run, FileRead::Direct)? {
                return Ok(());
            }
            if !self.has_told.swap(true, Ordering::Relaxed) {
                tracing::info!(
                    "{}: its file system permits no direct reads, so the kernel's page cache keeps \
                     files too",
                    run.file.path().display()
                );
            }
        }
        self.read_by(run, FileRead::Cached).map(drop)
    }

    /// Reads chunks in one way. Returns false if it is not possible. A file that is no longer at its path is
    /// read as it is open.
    fn read_by(&self, run: &mut Run, way: FileRead) -> Result<bool, ReadError> {
        let (file, is_direct) = (Arc::clone(&run.file), way == FileRead::Direct);
        let known = self.open().find(&file, is_direct, Instant::now());
        let opened = match known {
            Some(opened) => opened,
            None => match file.open() {
                Ok(opened) if file.is_version_of(&opened)? => {
                    if !way.open(&opened) {
                        return Ok(false);
                    }
                    let opened = Arc::new(opened);
                    let kept = Arc::clone(&opened);
                    let closed = self.open().keep(&file, is_direct, kept, Instant::now());
                    drop(closed);
                    opened
                }
                // What the page cache has of it does not tell what it has of other files.
                _ if way == FileRead::IfCached => return Ok(false),
                at_path => return self.read_replaced(run, at_path),
            },
        };
        file.read(&opened, run.first, &mut run.buffers, way)
    }

    /// Reads chunks of a file that is no longer at its path, if it is still open for direct reads or for
    /// others. Otherwise fails, because there is nothing or another version `at_path`.
    fn read_replaced(
        &self,
        run: &mut Run,
        at_path: Result<File, ReadError>,
    ) -> Result<bool, ReadError> {
        for way in [FileRead::Direct, FileRead::Cached] {
            let is_direct = way == FileRead::Direct;
            let known = self.open().find(&run.file, is_direct, Instant::now());
            if let Some(opened) = known
                && run.file.read(&opened, run.first, &mut run.buffers, way)?
            {
                return Ok(true);
            }
        }
        run.file.check(&at_path?)?;
        Err(ReadError::Changed)
    }

    /// Closes files that were not read for a while.
    fn close_idle(&self, now: Instant) {
        let closed = self.open().take_idle(now);
        drop(closed);
    }

    fn open(&self) -> MutexGuard<'_, OpenFiles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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
            match self.queue.recv_timeout(IDLE) {
                Ok(DiskTask::End) => break,
                Ok(work) => self.work(work),
                Err(_) => self.close_idle(Instant::now()),
            }
        }
        // The next thread ends as well.
        drop(self.work.send(DiskTask::End));
    }

    fn end(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        drop(self.work.send(DiskTask::End));
    }
}

/// The files that were read lately, the latest one last. A file that is read directly is open for nothing
/// else.
#[derive(Debug, Default)]
struct OpenFiles(Vec<OpenFile>);

#[derive(Debug)]
struct OpenFile {
    file: Arc<DiskFile>,
    is_direct: bool,
    opened: Arc<File>,
    /// When it was read last.
    at: Instant,
}

impl OpenFiles {
    /// Returns a file if it is open, and makes it the latest one.
    fn find(&mut self, file: &DiskFile, is_direct: bool, now: Instant) -> Option<Arc<File>> {
        let place = self.place(file, is_direct)?;
        self.0[place..].rotate_left(1);
        let latest = self.0.last_mut()?;
        latest.at = now;
        Some(Arc::clone(&latest.opened))
    }

    /// Keeps a file open. Another thread may have opened it meanwhile. Returns those that are too many, to be
    /// closed: the ones that were read longest ago, and rather ones that are not being sent.
    #[must_use = "other threads should not wait while a file is closed"]
    fn keep(
        &mut self,
        file: &Arc<DiskFile>,
        is_direct: bool,
        opened: Arc<File>,
        at: Instant,
    ) -> Vec<OpenFile> {
        let mut closed = Vec::new();
        if self.place(file, is_direct).is_some() {
            return closed;
        }
        while self.0.len() >= MAX_OPEN {
            let unused = self.0.iter().position(|one| !one.file.is_in_use());
            let longest_ago = (self.0.len() >= MAX_IN_USE).then_some(0);
            let Some(place) = unused.or(longest_ago) else {
                break;
            };
            closed.push(self.0.remove(place));
        }
        self.0.push(OpenFile {
            file: Arc::clone(file),
            is_direct,
            opened,
            at,
        });
        closed
    }

    /// Returns the files that are not being sent and were not read for a while, to be closed.
    #[must_use = "other threads should not wait while a file is closed"]
    fn take_idle(&mut self, now: Instant) -> Vec<OpenFile> {
        let is_idle = |one: &mut OpenFile| {
            !one.file.is_in_use() && now.saturating_duration_since(one.at) >= IDLE
        };
        self.0.extract_if(.., is_idle).collect()
    }

    fn place(&self, file: &DiskFile, is_direct: bool) -> Option<usize> {
        let mut all = self.0.iter();
        all.rposition(|one| {
            std::ptr::eq(Arc::as_ptr(&one.file), file) && one.is_direct == is_direct
        })
    }
}

/// Guesses whether the page cache has what is read next, from what it had before. A wrong guess costs
/// a second read of the disk.
#[derive(Debug)]
struct PageCache {
    /// Rises with each hit, and falls with each miss.
    score: AtomicU32,
    reads: AtomicU32,
}

impl PageCache {
    const MAX_SCORE: u32 = 16;
    /// If the score is 0, one of so many reads tries the page cache.
    const TRY_ONE_OF: u32 = 64;

    fn may_have_it(&self) -> bool {
        self.score.load(Ordering::Relaxed) > 0
            || (self.reads.fetch_add(1, Ordering::Relaxed)).is_multiple_of(Self::TRY_ONE_OF)
    }

    fn note(&self, had_it: bool) {
        let score = self.score.load(Ordering::Relaxed);
        let next = if had_it {
            Self::MAX_SCORE.min(score + 1)
        } else {
            score.saturating_sub(1)
        };
        self.score.store(next, Ordering::Relaxed);
    }
}

impl Default for PageCache {
    fn default() -> Self {
        Self {
            score: AtomicU32::new(Self::MAX_SCORE / 2),
            reads: AtomicU32::new(0),
        }
    }
}

#[cfg(test)]
impl Reads {
    /// Does all work that waits in the queue. Returns the number of chunks in each run of reads.
    pub(crate) fn work_all(&self) -> Vec<usize> {
        self.work_some(usize::MAX)
    }

    /// Closes the files that are not being sent.
    pub(crate) fn close_unused(&self) {
        self.close_idle(Instant::now() + IDLE);
    }

    /// Does at most so many pieces of work.
    pub(crate) fn work_some(&self, most: usize) -> Vec<usize> {
        let work: Vec<DiskTask> = self.queue.try_iter().take(most).collect();
        let runs = work.iter().filter_map(|one| match one {
            DiskTask::Read(run, _) => Some(run.buffers.len()),
            DiskTask::Free(_) | DiskTask::End => None,
        });
        let runs = runs.collect();
        for one in work {
            self.work(one);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use control::FileVersion;

    use super::super::file::InUse;
    use super::*;
    use crate::root::Root;

    #[test]
    fn files_are_closed_when_they_are_idle_or_too_many_unless_they_are_being_sent() {
        let (start, step) = (Instant::now(), IDLE / 2);
        let folder = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(folder.path()).unwrap());
        let version = FileVersion::at(folder.path()).unwrap();
        let new = || Arc::new(DiskFile::new(&root, "a".as_ref(), version));
        let opened = || Arc::new(tempfile::tempfile().unwrap());
        let mut files = OpenFiles::default();
        let (idle, sent) = (new(), new());
        let in_use = InUse::new(&sent);
        for (file, is_direct) in [(&idle, false), (&idle, true), (&sent, true)] {
            assert!(files.keep(file, is_direct, opened(), start).is_empty());
        }
        assert!(files.find(&idle, true, start + step).is_some());
        assert_eq!(files.take_idle(start + 2 * step).len(), 1);
        assert!(files.find(&idle, false, start).is_none());
        assert!(files.find(&idle, true, start).is_some());
        for _ in 0..MAX_OPEN {
            drop(files.keep(&new(), false, opened(), start));
        }
        assert_eq!(files.0.len(), MAX_OPEN);
        assert!(files.find(&idle, true, start).is_none());
        assert!(files.find(&sent, true, start).is_some());
        let all: Vec<_> = (0..MAX_IN_USE).map(|_| InUse::new(&new())).collect();
        for one in &all {
            drop(files.keep(one, false, opened(), start));
        }
        assert_eq!(files.0.len(), MAX_IN_USE);
        assert!(files.find(&sent, true, start).is_none());
        drop((all, in_use));
        // As soon as they are not being sent, they have no more places than others.
        assert_eq!(
            files.keep(&new(), false, opened(), start).len(),
            MAX_IN_USE + 1 - MAX_OPEN
        );
        assert_eq!(files.take_idle(start + IDLE).len(), MAX_OPEN);
        assert!(files.0.is_empty());
    }

    #[test]
    fn the_page_cache_is_tried_as_long_as_it_has_what_is_read() {
        let cache = PageCache::default();
        let tries = |had_it: bool| {
            let each = (0..PageCache::TRY_ONE_OF * 10).filter(|_| {
                let tried = cache.may_have_it();
                if tried {
                    cache.note(had_it);
                }
                tried
            });
            each.count() as u32
        };
        assert_eq!(tries(true), PageCache::TRY_ONE_OF * 10);
        assert_eq!(tries(false), PageCache::MAX_SCORE + 10);
        assert_eq!(tries(false), 10);
        // The first hit comes from one of the few tries.
        assert!(tries(true) > PageCache::TRY_ONE_OF * 9);
    }
}
