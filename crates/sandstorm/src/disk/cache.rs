//! Which chunks stay in memory: the S3-FIFO of *FIFO queues are all you need for cache eviction*
//! (Yang and others, SOSP 2023).
//!
//! New chunks are in a small queue. Chunks that are used there again move to the main queue, and the
//! others leave soon. So files that are requested once do not replace popular ones. The keys of chunks
//! that have left are remembered for a while. If such a chunk returns, it begins in the main queue.

use std::collections::{HashMap, HashSet, VecDeque};

use tcpip::ContentId;

use super::buffer::Buffer;

/// Maximum number of uses that are counted since an entry joined its queue.
const MAX_USES: u8 = 3;
/// The small queue has at most 1/`SMALL_SHARE` of the bytes while the main queue has entries.
const SMALL_SHARE: usize = 10;
/// Maximum number of entries that a search for one to evict examines.
const MAX_EXAMINED: usize = 128;

/// The number of a file, and the index of a chunk in it.
pub(super) type ChunkKey = (u32, u32);

/// A chunk that is a content item of the TCP stack.
#[derive(Debug)]
pub(super) struct CachedChunk {
    key: ChunkKey,
    pub(super) content: ContentId,
    pub(super) buffer: Buffer,
    uses: u8,
}

/// The chunks in memory.
#[derive(Debug, Default)]
pub(super) struct Cache {
    places: HashMap<ChunkKey, u32>,
    entries: Vec<Option<CachedChunk>>,
    free: Vec<u32>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    left: VecDeque<ChunkKey>,
    is_left: HashSet<ChunkKey>,
    small_bytes: usize,
    bytes: usize,
    max_entries: usize,
}

impl Cache {
    /// Creates a cache of at most `max_entries` entries.
    pub(super) fn new(max_entries: usize) -> Self {
        Self {
            // A table that grows would stop a worker for long.
            places: HashMap::with_capacity(max_entries),
            entries: Vec::with_capacity(max_entries),
            free: Vec::with_capacity(max_entries),
            small: VecDeque::with_capacity(max_entries),
            main: VecDeque::with_capacity(max_entries),
            left: VecDeque::with_capacity(max_entries),
            is_left: HashSet::with_capacity(max_entries),
            max_entries,
            ..Self::default()
        }
    }

    pub(super) fn max_entries(&self) -> usize {
        self.max_entries
    }

    /// Memory of all chunks in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of chunks.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Finds a chunk, and counts the use. Returns its content item, and where the chunk starts in it.
    pub(super) fn find(&mut self, key: ChunkKey) -> Option<(ContentId, usize)> {
        let place = *self.places.get(&key)?;
        let entry = self.entries[place as usize].as_mut()?;
        entry.uses = MAX_USES.min(entry.uses + 1);
        Some((entry.content, entry.buffer.start()))
    }

    /// Whether the chunk has left, but is remembered.
    pub(super) fn has_left(&self, key: ChunkKey) -> bool {
        self.is_left.contains(&key)
    }

    pub(super) fn contains(&self, key: ChunkKey) -> bool {
        self.places.contains_key(&key)
    }

    /// Adds a chunk, which must not be in the cache. There must be fewer than
    /// [`max_entries`](Self::max_entries).
    pub(super) fn insert(&mut self, key: ChunkKey, content: ContentId, buffer: Buffer) {
        let len = buffer.len();
        self.bytes += len;
        let entry = Some(CachedChunk {
            key,
            content,
            buffer,
            uses: 0,
        });
        let place = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(place as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        self.places.insert(key, place);
        if self.is_left.remove(&key) {
            self.main.push_back(place);
        } else {
            self.small.push_back(place);
            self.small_bytes += len;
        }
    }

    /// Removes the entry that is least likely to be used again. Passes over those for which `is_in_use`
    /// returns true. Returns `None` if no such entry is found in time.
    pub(super) fn evict(&mut self, is_in_use: impl Fn(ContentId) -> bool) -> Option<CachedChunk> {
        // Entries of one queue that are in use must not hide free ones of the other.
        let mut small_left = self.small.len().min(MAX_EXAMINED / 2);
        let mut main_left = self.main.len().min(MAX_EXAMINED / 2);
        for examined in 0..MAX_EXAMINED {
            let is_large = self.small_bytes * SMALL_SHARE >= self.bytes.max(1);
            let is_small = small_left > 0 && (is_large || main_left == 0);
            let queue = if is_small {
                &mut self.small
            } else {
                &mut self.main
            };
            let place = queue.pop_front()?;
            let entry = self.entries[place as usize].as_mut()?;
            let (is_wanted, len) = (is_in_use(entry.content), entry.buffer.len());
            small_left -= usize::from(is_small);
            if !is_small {
                // If many entries were used lately, a use no longer counts.
                let is_used = entry.uses > 0 && examined < MAX_EXAMINED / 2;
                if !is_used && !is_wanted {
                    return self.remove(place);
                }
                main_left -= usize::from(is_wanted && main_left > 0);
                entry.uses = entry.uses.saturating_sub(1);
                self.main.push_back(place);
            } else if is_wanted {
                self.small.push_back(place);
            } else {
                self.small_bytes -= len;
                // The client for whom the chunk was read makes the first use.
                if entry.uses <= 1 {
                    let key = entry.key;
                    self.remember(key);
                    return self.remove(place);
                }
                entry.uses = 0;
                self.main.push_back(place);
            }
        }
        None
    }

    /// Remembers the key of an entry that leaves the small queue.
    fn remember(&mut self, key: ChunkKey) {
        if self.left.len() >= self.max_entries
            && let Some(oldest) = self.left.pop_front()
        {
            self.is_left.remove(&oldest);
        }
        if self.is_left.insert(key) {
            self.left.push_back(key);
        }
    }

    fn remove(&mut self, place: u32) -> Option<CachedChunk> {
        let entry = self.entries[place as usize].take()?;
        self.bytes -= entry.buffer.len();
        self.places.remove(&entry.key);
        self.free.push(place);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::with_contents;
    use tcpip::Contents;

    struct Filled<'c> {
        cache: Cache,
        contents: &'c mut Contents,
    }

    impl Filled<'_> {
        fn insert(&mut self, file: u32) {
            let mut buffer = Buffer::default();
            buffer.writable(10, false);
            let bytes = Arc::clone(buffer.bytes());
            let content = self.contents.add(bytes, None).unwrap();
            self.cache.insert((file, 0), content, buffer);
        }

        fn evict(&mut self) -> Option<u32> {
            Some(self.cache.evict(|_| false)?.key.0)
        }

        /// Adds entries to the main queue, as those that return soon. Each was used `uses` times.
        fn insert_in_main(&mut self, files: std::ops::Range<u32>, uses: u8) {
            for file in files {
                self.cache.remember((file, 0));
                self.insert(file);
                (0..uses).for_each(|_| assert!(self.cache.find((file, 0)).is_some()));
            }
        }
    }

    #[test]
    fn what_is_used_again_outlives_what_is_used_once() {
        with_contents(|contents| {
            let cache = Cache::new(100);
            let mut filled = Filled { cache, contents };
            for file in 0..10 {
                filled.insert(file);
                filled.cache.find((file, 0));
            }
            for file in [3, 4] {
                filled.cache.find((file, 0));
            }
            assert_eq!(filled.cache.bytes(), 100);
            // A scan of files that are used once.
            for file in 100..150 {
                filled.insert(file);
                filled.cache.find((file, 0));
                filled.evict();
            }
            assert!(filled.cache.contains((3, 0)) && filled.cache.contains((4, 0)));
            assert!(!filled.cache.contains((0, 0)) && !filled.cache.contains((100, 0)));
            assert_eq!(filled.cache.len(), 10);
        });
    }

    #[test]
    fn what_returns_soon_begins_in_the_main_queue() {
        with_contents(|contents| {
            let cache = Cache::new(100);
            let mut filled = Filled { cache, contents };
            for file in [1, 2] {
                filled.insert(file);
            }
            assert_eq!(filled.evict(), Some(1));
            filled.insert(1);
            // The small queue goes first while it has more than its share.
            assert_eq!(filled.evict(), Some(2));
            assert_eq!(filled.evict(), Some(1));
            assert_eq!(filled.evict(), None);
            assert_eq!((filled.cache.bytes(), filled.cache.small_bytes), (0, 0));
        });
    }

    #[test]
    fn what_is_being_sent_stays() {
        with_contents(|contents| {
            let cache = Cache::new(100);
            let mut filled = Filled { cache, contents };
            for file in 0..5 {
                filled.insert(file);
            }
            assert!(filled.cache.evict(|_| true).is_none());
            assert_eq!(filled.cache.len(), 5);
            let (sent, _) = filled.cache.find((0, 0)).unwrap();
            let evicted = filled.cache.evict(|content| content == sent).unwrap();
            assert_ne!(evicted.key, (0, 0));
        });
    }

    #[test]
    fn entries_that_were_all_used_lately_leave_in_time() {
        with_contents(|contents| {
            let cache = Cache::new(1_000);
            let mut filled = Filled { cache, contents };
            filled.insert_in_main(0..300, MAX_USES);
            assert_eq!(filled.cache.len(), 300);
            for left in (0..300).rev() {
                assert!(filled.evict().is_some());
                assert_eq!(filled.cache.len(), left);
            }
        });
    }

    #[test]
    fn new_entries_that_are_being_sent_do_not_hide_free_ones() {
        with_contents(|contents| {
            let cache = Cache::new(1_000);
            let mut filled = Filled { cache, contents };
            filled.insert_in_main(0..20, 0);
            for file in 100..130 {
                filled.insert(file);
            }
            let sent = (100..130).map(|file| filled.cache.find((file, 0)).unwrap().0);
            let sent: Vec<_> = sent.collect();
            for _ in 0..20 {
                let evicted = filled.cache.evict(|content| sent.contains(&content));
                assert!(evicted.unwrap().key.0 < 20);
            }
            assert!(filled.cache.evict(|_| true).is_none());
        });
    }

    #[test]
    fn old_entries_that_are_being_sent_do_not_hide_a_new_one() {
        with_contents(|contents| {
            let cache = Cache::new(1_000);
            let mut filled = Filled { cache, contents };
            filled.insert_in_main(0..100, 0);
            filled.insert(200);
            let (new, _) = filled.cache.find((200, 0)).unwrap();
            let evicted = filled.cache.evict(|content| content != new);
            assert_eq!(evicted.unwrap().key, (200, 0));
        });
    }
}
