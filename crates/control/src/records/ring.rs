//! The ring between one worker and the writer's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};

/// Size of a ring in bytes. Logs that belong together share it.
const CAPACITY: usize = 4 << 20;
/// Minimum size of a ring in bytes, with room for more than 100 records.
const MIN_CAPACITY: usize = 256 << 10;
/// Size of the length in front of each record, in bytes.
const LEN: usize = size_of::<u32>();

/// Maximum length of the first part of a record, in bytes. The longest one is that of the access log.
const MAX_HEAD: usize = 38;

/// The worker's end of a ring.
#[derive(Debug)]
pub struct RecordSender {
    ring: Producer<u8>,
    lost: Arc<Lost>,
}

/// Numbers of records that are lost.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// They did not fit in the ring.
    dropped: AtomicU64,
    /// The writer could not write them.
    unwritten: AtomicU64,
}

impl Lost {
    /// Number of records that did not fit in the ring.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts records that could not be written.
    pub(super) fn count_unwritten(&self, records: u64) {
        self.unwritten.fetch_add(records, Ordering::Relaxed);
    }

    /// Number of records that could not be written.
    pub(super) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }
}

/// The writer's end of a ring.
#[derive(Debug)]
pub(crate) struct RecordReader {
    ring: Consumer<u8>,
    lost: Arc<Lost>,
}

/// Creates a ring. Its memory is used when records fill it for the first time.
pub(crate) fn ring() -> (RecordSender, RecordReader) {
    ring_for(1)
}

/// Creates the ring of one of `logs` logs that belong together.
pub(super) fn ring_for(logs: usize) -> (RecordSender, RecordReader) {
    ring_of((CAPACITY / logs.max(1)).max(MIN_CAPACITY))
}

fn ring_of(capacity: usize) -> (RecordSender, RecordReader) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let lost = Arc::new(Lost::default());
    let sender = RecordSender {
        ring: producer,
        lost: Arc::clone(&lost),
    };
    let reader = RecordReader {
        ring: consumer,
        lost,
    };
    (sender, reader)
}

impl RecordSender {
    /// Puts a record that consists of two parts into the ring. If there is no room, counts it as
    /// lost. The first part has at most 38 bytes.
    #[inline]
    pub fn send<const N: usize>(&mut self, head: &[u8; N], body: &[u8]) {
        const { assert!(N <= MAX_HEAD) };
        let len = N + body.len();
        let has_room = |slots: usize| slots >= LEN + len;
        // The first number is a cached one, which costs no access to the reader's memory.
        if !has_room(self.ring.cached_slots()) && !has_room(self.ring.slots()) {
            self.lost.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Each part costs about 60 instructions, so the length and the head are one part.
        let mut first = [0; LEN + MAX_HEAD];
        first[..LEN].copy_from_slice(&(len as u32).to_ne_bytes());
        first[LEN..LEN + N].copy_from_slice(head);
        for part in [&first[..LEN + N], body] {
            // There is room, so this does not fail.
            let _ = self.ring.push_entire_slice(part);
        }
    }

    /// Like [`send`](Self::send), with a body in several parts.
    pub fn send_parts<const N: usize>(&mut self, head: &[u8; N], body: &[&[u8]]) {
        let len = N + body.iter().map(|part| part.len()).sum::<usize>();
        if self.ring.slots() < LEN + len {
            self.lost.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let len = (len as u32).to_ne_bytes();
        for part in [&len[..], head].iter().chain(body) {
            // There is room, so this does not fail.
            let _ = self.ring.push_entire_slice(part);
        }
    }

    /// Number of records that are lost, because the ring was full or the log could not be written.
    pub fn lost(&self) -> u64 {
        self.lost.dropped() + self.lost.unwritten()
    }
}

impl RecordReader {
    /// Takes the oldest record into `record`. Returns `false` if there is no complete record.
    pub(crate) fn take(&mut self, record: &mut Vec<u8>) -> bool {
        let Ok(chunk) = self.ring.read_chunk(LEN) else {
            return false;
        };
        let mut len = [0; LEN];
        let (first, second) = chunk.as_slices();
        len[..first.len()].copy_from_slice(first);
        len[first.len()..].copy_from_slice(second);
        let len = u32::from_ne_bytes(len) as usize;
        if self.ring.slots() < LEN + len {
            return false;
        }
        record.resize(LEN + len, 0);
        if self.ring.pop_entire_slice(record).is_err() {
            return false;
        }
        record.drain(..LEN);
        true
    }

    /// Returns the numbers of records that are lost, which other threads may read.
    pub(super) fn lost(&self) -> Arc<Lost> {
        Arc::clone(&self.lost)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn records_arrive_whole_and_in_order() {
        let (mut sender, mut reader) = ring_of(61);
        let sending = thread::spawn(move || {
            for number in 0..10_000_u32 {
                let body = vec![b'x'; number as usize % 40];
                let mut lost = sender.lost();
                sender.send(&number.to_ne_bytes(), &body);
                while sender.lost() > lost {
                    lost = sender.lost();
                    thread::yield_now();
                    sender.send(&number.to_ne_bytes(), &body);
                }
            }
        });
        let mut record = Vec::new();
        for number in 0..10_000_u32 {
            while !reader.take(&mut record) {
                thread::yield_now();
            }
            assert_eq!(record[..4], number.to_ne_bytes());
            assert_eq!(record.len(), 4 + number as usize % 40);
        }
        sending.join().unwrap();
        assert!(!reader.take(&mut record));
    }

    #[test]
    fn a_record_that_does_not_fit_is_counted() {
        let (mut sender, mut reader) = ring_of(20);
        sender.send(b"12345678", b"12345678");
        sender.send(b"", b"");
        assert_eq!(sender.lost(), 1);
        let mut record = Vec::new();
        assert!(reader.take(&mut record));
        assert_eq!(record, b"1234567812345678");
        sender.send(b"", b"");
        assert!(reader.take(&mut record) && record.is_empty());
        let lost = reader.lost();
        lost.count_unwritten(2);
        assert_eq!((sender.lost(), lost.unwritten()), (3, 2));
    }
}
