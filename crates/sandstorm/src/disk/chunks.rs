//! The chunks of files that a worker has in memory, and those that are being read for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use nmio::{Bell, Mailbox, mailbox};
use tcpip::{ConnectionId, ContentId, Contents};

use super::cache::{Cache, Key};
use super::file::{CHUNK_LEN, DiskFile};
use super::reads::{Arrived, Reads, Work};

/// Maximum number of chunks that are read at a time for one worker.
const MAX_READS: usize = 512;
/// A cache has one entry for so many bytes of its capacity, and at most [`MAX_ENTRIES`]. So short
/// files cannot make its tables arbitrarily large.
const BYTES_PER_ENTRY: usize = 4 << 10;
const MAX_ENTRIES: usize = 1 << 18;
/// Minimum capacity in bytes, with which a worker can send some files at a time.
const MIN_CAPACITY: usize = 64 * CHUNK_LEN;

/// The chunks that a worker has in memory, as content items of its TCP stack.
#[derive(Debug)]
pub(crate) struct Chunks {
    cache: Cache,
    /// Maximum length of the chunks in memory and those being read, in bytes.
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
    /// The chunk is this content item.
    Here(ContentId),
    /// The chunk is being read. The connection will be told.
    Later,
    /// There is no memory for the chunk yet.
    NoRoom,
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

    /// Returns a chunk of `file`. If it is not in memory, it is read, and `connection` waits for it.
    pub(crate) fn find(
        &mut self,
        contents: &mut Contents,
        file: &Arc<DiskFile>,
        chunk: u32,
        connection: ConnectionId,
    ) -> Found {
        let key = (file.number(), chunk);
        if let Some(content) = self.cache.find(key) {
            return Found::Here(content);
        }
        if !self.read(contents, file, chunk) {
            return Found::NoRoom;
        }
        self.reading.entry(key).or_default().push(connection);
        Found::Later
    }

    /// Reads a chunk that will soon be needed, unless it is in memory or there is no room for it.
    pub(crate) fn read_ahead(&mut self, contents: &mut Contents, file: &Arc<DiskFile>, chunk: u32) {
        let key = (file.number(), chunk);
        if file.chunk_len(chunk) > 0 && !self.cache.contains(key) {
            self.read(contents, file, chunk);
        }
    }

    /// Has a chunk read, unless that is under way. Returns `false` if there is no room for it.
    fn read(&mut self, contents: &mut Contents, file: &Arc<DiskFile>, chunk: u32) -> bool {
        let key = (file.number(), chunk);
        if self.reading.contains_key(&key) {
            return true;
        }
        if self.cache.max_entries() == 0 {
            // The tables are made when the first file is read.
            self.cache = Cache::new(MAX_ENTRIES.min(self.capacity / BYTES_PER_ENTRY));
        }
        let len = file.chunk_len(chunk);
        if self.reading.len() >= MAX_READS || !self.make_room(contents, len) {
            return false;
        }
        let work = Work::Read {
            file: Arc::clone(file),
            chunk,
            to: self.reply_to.clone(),
        };
        // The threads end after the workers.
        if self.work.send(work).is_err() {
            return false;
        }
        self.reading_bytes += len;
        self.reading.insert(key, Vec::new());
        true
    }

    /// Removes chunks that no connection sends, until there is room for `len` bytes.
    fn make_room(&mut self, contents: &mut Contents, len: usize) -> bool {
        while self.is_crowded() || self.bytes() + len > self.capacity {
            let is_in_use = |content| contents.is_in_use(content);
            let Some(entry) = self.cache.evict(is_in_use) else {
                return false;
            };
            contents.remove(entry.content);
            drop(self.work.send(Work::Free(entry.bytes)));
        }
        true
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
        mailbox.take_all(|Arrived { file, chunk, bytes }| {
            let key = (file.number(), chunk);
            let waiting = reading.remove(&key).unwrap_or_default();
            *reading_bytes -= file.chunk_len(chunk);
            let is_here = bytes.is_some();
            if let Some(bytes) = bytes {
                counts.read += 1;
                counts.bytes_read += bytes.len() as u64;
                // There are always fewer contents than the stack accepts.
                if let Ok(content) = contents.add(Arc::clone(&bytes), None) {
                    cache.insert(key, content, bytes);
                }
            } else {
                counts.failed += 1;
            }
            told.extend(waiting.into_iter().map(|waiting| (waiting, is_here)));
        });
        told
    }

    /// Maximum length of all chunks in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// What has been read so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the cache has an entry for each chunk that it may get.
    fn is_crowded(&self) -> bool {
        self.cache.len() + self.reading.len() >= self.cache.max_entries()
    }

    /// Length of the chunks in memory and of those being read, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.cache.bytes() + self.reading_bytes
    }
}
