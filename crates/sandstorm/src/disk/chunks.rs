//! The chunks of files that a worker has in memory, and the chunks that are being read for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Sender;
use nmio::{Bell, Mailbox, mailbox};
use tcpip::{ConnectionId, ContentId, Contents};

use super::buffer::Buffer;
use super::cache::{Cache, ChunkKey};
use super::file::DiskFile;
use super::reads::{Arrived, DiskTask, Reads, Run};

/// Maximum number of chunks that are read at a time for one worker.
const MAX_READS: usize = 512;
/// Maximum number of chunks that are read at a time for one client. It is much more than the threads read at
/// a time, so a client alone loses nothing.
const MAX_OF_CLIENT: usize = MAX_READS / 4;

/// A cache has one entry for so many bytes of its capacity, and at most [`MAX_ENTRIES`]. So short
/// files cannot make its tables arbitrarily large.
const BYTES_PER_ENTRY: usize = 4 << 10;
const MAX_ENTRIES: usize = 1 << 18;
/// Minimum capacity in bytes, with which a worker can send some files at a time.
const MIN_CAPACITY: usize = 4 << 20;

/// Chunks are read ahead only while those being read have at most 1/`AHEAD_SHARE` of the capacity. So they do
/// not replace those that clients need now.
const AHEAD_SHARE: usize = 4;

/// Chunks are read ahead only while fewer are being read, for all clients and for this one. So clients get
/// those at once that they need now.
const MAX_AHEAD: usize = MAX_READS / 2;
const MAX_AHEAD_OF_CLIENT: usize = MAX_OF_CLIENT * 3 / 4;

/// The chunks that a worker has in memory, as content items of its TCP stack.
#[derive(Debug)]
pub(crate) struct Chunks {
    cache: Cache,
    /// Maximum memory of the chunks that are here and those being read, in bytes.
    capacity: usize,
    /// The chunks being read.
    reading: HashMap<ChunkKey, ChunkRead>,
    reading_bytes: usize,
    /// Number of chunks that are being read for each client.
    of_clients: HashMap<IpAddr, usize>,
    /// Whether other clients wait for the places of chunks that have arrived.
    keeps_places: bool,
    work: Sender<DiskTask>,
    mailbox: Mailbox<Arrived>,
    reply_to: mailbox::Sender<Arrived>,
    counts: Counts,
}

/// A chunk that is being read.
#[derive(Debug)]
struct ChunkRead {
    /// The client that it is read for, by its address or network.
    client: IpAddr,
    /// The connections that wait for it.
    waiting: Vec<ConnectionId>,
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
    /// Too many chunks are being read, for all clients or for this one.
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
            of_clients: HashMap::with_capacity(MAX_READS),
            keeps_places: false,
            work: reads.sender(),
            mailbox,
            reply_to,
            counts: Counts::default(),
        }
    }

    /// Returns the first of these chunks of `file`, which must exist. If it is not in memory, it is read for
    /// this client, and `connection` waits for it. The others are then read as well, as far as there is room
    /// for them.
    pub(crate) fn find(
        &mut self,
        contents: &mut Contents,
        file: &Arc<DiskFile>,
        chunks: Range<u32>,
        (connection, client): (ConnectionId, IpAddr),
    ) -> Found {
        let key = (file.number(), chunks.start);
        if let Some((content, start)) = self.cache.find(key) {
            return Found::Here(content, start);
        }
        self.read(contents, file, chunks, client);
        if let Some(reading) = self.reading.get_mut(&key) {
            reading.waiting.push(connection);
            Found::Later
        } else if self.is_busy_for(client) {
            Found::Busy
        } else {
            Found::NoRoom
        }
    }

    /// Has chunks read for a client that are neither in memory nor being read, as far as there is room for
    /// them.
    pub(crate) fn read(
        &mut self,
        contents: &mut Contents,
        file: &Arc<DiskFile>,
        chunks: Range<u32>,
        client: IpAddr,
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
            if self.is_busy_for(client) || (is_ahead && self.is_far_ahead(client)) {
                break;
            }
            let Some(buffer) = self.make_room(contents, file.buffer_len(chunk)) else {
                break;
            };
            // The kernel's copy may also serve other workers.
            let is_kept = self.cache.has_left(key);
            self.reading_bytes += file.buffer_len(chunk);
            let waiting = Vec::new();
            self.reading.insert(key, ChunkRead { client, waiting });
            *self.of_clients.entry(client).or_default() += 1;
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
            drop(self.work.send(DiskTask::Read(run, self.reply_to.clone())));
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
                drop(self.work.send(DiskTask::Free(freed)));
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
            of_clients,
            counts,
            mailbox,
            ..
        } = self;
        mailbox.take_all(|Arrived { run, is_read }| {
            for (chunk, buffer) in (run.first..).zip(run.buffers) {
                let key = (run.file.number(), chunk);
                *reading_bytes -= run.file.buffer_len(chunk);
                let Some(ChunkRead { client, waiting }) = reading.remove(&key) else {
                    continue;
                };
                if let Entry::Occupied(mut number) = of_clients.entry(client) {
                    *number.get_mut() -= 1;
                    if *number.get() == 0 {
                        number.remove();
                    }
                }
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

    /// Keeps the places of chunks that have arrived for clients that wait for them, or no longer does so.
    pub(crate) fn keep_places(&mut self, keeps: bool) {
        self.keeps_places = keeps;
    }

    /// Whether no further chunk can be read now.
    pub(crate) fn is_full(&self) -> bool {
        self.reading.len() >= MAX_READS
    }

    /// Whether no further chunk can be read for a client now.
    pub(crate) fn is_busy_for(&self, client: IpAddr) -> bool {
        self.keeps_places || self.is_full() || self.number_of(client) >= MAX_OF_CLIENT
    }

    /// Whether no further chunk is to be read ahead for a client now.
    fn is_far_ahead(&self, client: IpAddr) -> bool {
        self.reading_bytes > self.capacity / AHEAD_SHARE
            || self.reading.len() >= MAX_AHEAD
            || self.number_of(client) >= MAX_AHEAD_OF_CLIENT
    }

    /// Number of chunks that are being read for a client.
    fn number_of(&self, client: IpAddr) -> usize {
        self.of_clients.get(&client).copied().unwrap_or_default()
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

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

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
                chunks.read(contents, file, 1..3, client(1));
                assert_eq!(reads.work_all(), [2]);
                chunks.take_arrived(contents);
                chunks.read(contents, file, 0..11, client(1));
                assert_eq!(reads.work_all(), [1, MAX_TOGETHER, MAX_TOGETHER]);
                chunks.take_arrived(contents);
                assert_eq!(chunks.counts().read, 11);
                assert_eq!(chunks.counts().bytes_read, file.len() as u64);
                chunks.read(contents, file, 0..11, client(1));
                assert!(reads.work_all().is_empty(), "all of it is in memory");
            },
        );
    }

    #[test]
    fn reading_ahead_leaves_places_to_chunks_that_are_needed_now() {
        with_chunks(
            MAX_READS * CHUNK_LEN,
            1 << 30,
            |contents, file, _, chunks| {
                let all = 0..MAX_READS as u32;
                chunks.read(contents, file, all.clone(), client(1));
                assert_eq!(chunks.reading.len(), MAX_AHEAD_OF_CLIENT);
                for chunk in all.clone().rev().take(MAX_OF_CLIENT - MAX_AHEAD_OF_CLIENT) {
                    assert!(!chunks.is_busy_for(client(1)));
                    chunks.read(contents, file, chunk..all.end, client(1));
                }
                assert!(chunks.is_busy_for(client(1)));
                chunks.read(contents, file, all.clone(), client(1));
                assert_eq!(chunks.reading.len(), MAX_OF_CLIENT);
            },
        );
    }

    #[test]
    fn no_client_takes_the_places_of_another() {
        let len = 5 * MAX_OF_CLIENT * CHUNK_LEN;
        with_chunks(len, 1 << 30, |contents, file, reads, chunks| {
            let each = |number: u8| {
                let first = u32::from(number) * MAX_OF_CLIENT as u32;
                first..first + MAX_OF_CLIENT as u32
            };
            for number in 0..4 {
                assert!(!chunks.is_busy_for(client(number)));
                for chunk in each(number) {
                    chunks.read(contents, file, chunk..chunk + 1, client(number));
                }
                assert!(chunks.is_busy_for(client(number)));
            }
            assert!(chunks.is_full() && chunks.is_busy_for(client(5)));
            reads.work_all();
            chunks.keep_places(true);
            chunks.take_arrived(contents);
            // Others wait for the places.
            chunks.read(contents, file, each(4), client(1));
            assert_eq!(chunks.reading.len(), 0);
            chunks.keep_places(false);
            assert!(chunks.of_clients.is_empty() && !chunks.is_busy_for(client(1)));
        });
    }

    #[test]
    fn reading_ahead_takes_only_a_part_of_the_memory() {
        with_chunks(100 * CHUNK_LEN, 0, |contents, file, reads, chunks| {
            chunks.read(contents, file, 0..100, client(1));
            let ahead: usize = reads.work_all().iter().sum();
            let most = MIN_CAPACITY / AHEAD_SHARE / CHUNK_LEN + 1;
            assert!((most / 2..=most).contains(&ahead), "{ahead}");
            // The first one is needed now.
            chunks.read(contents, file, 50..100, client(1));
            assert_eq!(reads.work_all(), [1]);
        });
    }
}
