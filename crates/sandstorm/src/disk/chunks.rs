//! The chunks of files that a worker has in memory, and those that are being read for it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Sender;
use nmio::{Bell, Mailbox, mailbox};
use tcpip::{ConnectionId, ContentId, Contents};

use super::buffer::Buffer;
use super::cache::{Cache, Key};
use super::file::DiskFile;
use super::reads::{Arrived, Reads, Run, Work};

/// Maximum number of chunks that are read at a time for one worker.
const MAX_READS: usize = 512;
/// A cache has one entry for so many bytes of its capacity, and at most [`MAX_ENTRIES`]. So short
/// files cannot make its tables arbitrarily large.
const BYTES_PER_ENTRY: usize = 4 << 10;
const MAX_ENTRIES: usize = 1 << 18;
/// Minimum capacity in bytes, with which a worker can send some files at a time.
const MIN_CAPACITY: usize = 4 << 20;

/// Chunks are read ahead only while those being read have at most 1/`AHEAD_SHARE` of the capacity and of
/// [`MAX_READS`]. So they do not replace those that clients need now.
const AHEAD_SHARE: usize = 4;

/// The chunks that a worker has in memory, as content items of its TCP stack.
#[derive(Debug)]
pub(crate) struct Chunks {
    cache: Cache,
    /// Maximum memory of the chunks that are here and those being read, in bytes.
    capacity: usize,
    /// The chunks being read, each with the connections that wait for it.
    reading: HashMap<Key, Vec<ConnectionId>>,
    reading_bytes: usize,
    work: Sender<Work>,
    mailbox: Mailbox<Arrived>,
    reply_to: mailbox::Sender<Arrived>,
    counts: Counts,
}

/// What a worker has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of chunks that were read.
    pub(crate) read: u64,
    /// Their length in bytes.
    pub(crate) bytes_read: u64,
    /// Number of chunks that could not be read.
    pub(crate) failed: u64,
}

/// The result of looking for a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The chunk is in this content item, from this offset on.
    Here(ContentId, usize),
    /// The chunk is being read. The connection will be told.
    Later,
    /// There is no memory for the chunk yet.
    NoRoom,
    /// Too many chunks are being read.
    Busy,
}

impl Chunks {
    /// Creates a cache of `capacity` bytes for the worker with this bell.
    pub(crate) fn new(reads: &Reads, capacity: usize, bell: &Bell) -> Self {
        let capacity = capacity.max(MIN_CAPACITY);
        let (reply_to, mailbox) = bell.mailbox(MAX_READS);
        Self {
            cache: Cache::default(),
            capacity,
            reading: HashMap::with_capacity(MAX_READS),
            reading_bytes: 0,
            work: reads.sender(),
            mailbox,
            reply_to,
            counts: Counts::default(),
        }
    }

    /// Returns the first of these chunks of `file`, which must exist. If it is not in memory, it is read,
    /// and `connection` waits for it. The others are then read as well, as far as there is room for them.
    pub(crate) fn find(
        &mut self,
        contents: &mut Contents,
        file: &Arc<DiskFile>,
        chunks: Range<u32>,
        connection: ConnectionId,
    ) -> Found {
        let key = (file.number(), chunks.start);
        if let Some((content, start)) = self.cache.find(key) {
            return Found::Here(content, start);
        }
        self.read(contents, file, chunks);
        if let Some(waiting) = self.reading.get_mut(&key) {
            waiting.push(connection);
            Found::Later
        } else if self.is_busy() {
            Found::Busy
        } else {
            Found::NoRoom
        }
    }

    /// Has chunks read that are neither in memory nor being read, as far as there is room for them.
    pub(crate) fn read(
        &mut self,
        contents: &mut Contents,
        file: &Arc<DiskFile>,
        chunks: Range<u32>,
    ) {
        if self.cache.max_entries() == 0 {
            // The tables are made when the first file is read.
            self.cache = Cache::new(MAX_ENTRIES.min(self.capacity / BYTES_PER_ENTRY));
        }
        let first = chunks.start;
        let mut run: Option<Run> = None;
        for chunk in chunks {
            let key = (file.number(), chunk);
            if self.cache.contains(key) || self.reading.contains_key(&key) {
                self.send(run.take());
                continue;
            }
            let is_ahead = chunk > first;
            if self.is_busy() || (is_ahead && self.is_far_ahead()) {
                break;
            }
            let Some(buffer) = self.make_room(contents, file.buffer_len(chunk)) else {
                break;
            };
            // The kernel's copy may also serve other workers.
            let is_kept = self.cache.has_left(key);
            self.reading_bytes += file.buffer_len(chunk);
            self.reading.insert(key, Vec::new());
            match &mut run {
                Some(run) if run.accepts(is_kept) => run.buffers.push(buffer),
                _ => {
                    let next = Run::new(file, chunk, buffer, is_kept);
                    self.send(run.replace(next));
                }
            }
        }
        self.send(run);
    }

    /// Gives chunks to the threads that read.
    fn send(&self, run: Option<Run>) {
        if let Some(run) = run {
            // The threads end after the workers.
            drop(self.work.send(Work::Read(run, self.reply_to.clone())));
        }
    }

    /// Removes chunks that no connection sends, until there is room for `len` bytes. Returns the memory of
    /// the last one, to be used again.
    fn make_room(&mut self, contents: &mut Contents, len: usize) -> Option<Buffer> {
        let mut last = Buffer::default();
        while self.is_crowded() || self.bytes() + len > self.capacity {
            let is_in_use = |content| contents.is_in_use(content);
            let evicted = self.cache.evict(is_in_use);
            if let Some(entry) = &evicted {
                contents.remove(entry.content);
            }
            let freed = std::mem::replace(&mut last, evicted?.buffer);
            if freed.len() > 0 {
                drop(self.work.send(Work::Free(freed)));
            }
        }
        Some(last)
    }

    /// Adds the chunks that have arrived to `contents`. Returns the connections that have waited for them,
    /// each with whether its chunk is here.
    pub(crate) fn take_arrived(&mut self, contents: &mut Contents) -> Vec<(ConnectionId, bool)> {
        let mut told = Vec::new();
        let Self {
            cache,
            reading,
            reading_bytes,
            counts,
            mailbox,
            ..
        } = self;
        mailbox.take_all(|Arrived { run, is_read }| {
            for (chunk, buffer) in (run.first..).zip(run.buffers) {
                let key = (run.file.number(), chunk);
                let waiting = reading.remove(&key).unwrap_or_default();
                *reading_bytes -= run.file.buffer_len(chunk);
                if is_read {
                    counts.read += 1;
                    counts.bytes_read += run.file.chunk_len(chunk) as u64;
                    // There are always fewer contents than the stack accepts.
                    if let Ok(content) = contents.add(Arc::clone(buffer.bytes()), None) {
                        cache.insert(key, content, buffer);
                    }
                } else {
                    counts.failed += 1;
                }
                told.extend(waiting.into_iter().map(|waiting| (waiting, is_read)));
            }
        });
        told
    }

    /// Maximum memory of all chunks in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// What has been read so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether no further chunk can be read now.
    pub(crate) fn is_busy(&self) -> bool {
        self.reading.len() >= MAX_READS
    }

    /// Whether no further chunk is to be read ahead now.
    fn is_far_ahead(&self) -> bool {
        self.reading_bytes > self.capacity / AHEAD_SHARE
            || self.reading.len() >= MAX_READS / AHEAD_SHARE
    }

    /// Whether the cache has an entry for each chunk that it may get.
    fn is_crowded(&self) -> bool {
        self.cache.len() + self.reading.len() >= self.cache.max_entries()
    }

    /// Memory of the chunks that are here and of those being read, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.cache.bytes() + self.reading_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use control::FileVersion;
    use nmio::Bell;

    use super::super::file::{CHUNK_LEN, MAX_TOGETHER};
    use super::*;
    use crate::root::Root;
    use crate::testing::with_contents;

    /// Calls `act` with a file of `len` bytes, and chunks with this capacity.
    fn with_chunks(
        len: usize,
        capacity: usize,
        act: impl FnOnce(&mut Contents, &Arc<DiskFile>, &Reads, &mut Chunks),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![1; len]).unwrap();
        let root = Arc::new(Root::open(folder.path()).unwrap());
        let version = FileVersion::at(&path).unwrap();
        let file = Arc::new(DiskFile::new(&root, "file".as_ref(), version));
        let (bell, reads) = (Bell::new().unwrap(), Reads::default());
        let mut chunks = Chunks::new(&reads, capacity, &bell);
        with_contents(|contents| act(contents, &file, &reads, &mut chunks));
    }

    #[test]
    fn chunks_are_read_together_as_long_as_there_is_much_room() {
        with_chunks(
            10 * CHUNK_LEN + 5,
            1 << 30,
            |contents, file, reads, chunks| {
                chunks.read(contents, file, 1..3);
                assert_eq!(reads.work_all(), [2]);
                chunks.take_arrived(contents);
                chunks.read(contents, file, 0..11);
                assert_eq!(reads.work_all(), [1, MAX_TOGETHER, MAX_TOGETHER]);
                chunks.take_arrived(contents);
                assert_eq!(chunks.counts().read, 11);
                assert_eq!(chunks.counts().bytes_read, file.len() as u64);
                chunks.read(contents, file, 0..11);
                assert!(reads.work_all().is_empty(), "all of it is in memory");
            },
        );
    }

    #[test]
    fn reading_ahead_leaves_places_to_clients_that_need_a_chunk_now() {
        let last = 2 * MAX_READS as u32;
        let len = last as usize * CHUNK_LEN;
        with_chunks(len, 1 << 30, |contents, file, _, chunks| {
            chunks.read(contents, file, 0..last);
            let ahead = chunks.reading.len();
            assert_eq!(ahead, MAX_READS / AHEAD_SHARE);
            for chunk in last - (MAX_READS - ahead) as u32..last {
                assert!(!chunks.is_busy());
                chunks.read(contents, file, chunk..last);
            }
            assert!(chunks.is_busy());
            chunks.read(contents, file, last - 500..last);
            assert_eq!(chunks.reading.len(), MAX_READS);
        });
    }

    #[test]
    fn reading_ahead_takes_only_a_part_of_the_memory() {
        with_chunks(100 * CHUNK_LEN, 0, |contents, file, reads, chunks| {
            chunks.read(contents, file, 0..100);
            let ahead: usize = reads.work_all().iter().sum();
            let most = MIN_CAPACITY / AHEAD_SHARE / CHUNK_LEN + 1;
            assert!((most / 2..=most).contains(&ahead), "{ahead}");
            // The first one is needed now.
            chunks.read(contents, file, 50..100);
            assert_eq!(reads.work_all(), [1]);
        });
    }
}
