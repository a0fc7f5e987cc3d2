//! The ring between one worker and the writer's thread.
#![allow(unsafe_code)]

use std::mem::{self, MaybeUninit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::{Consumer, CopyToUninit as _, Producer, RingBuffer};

/// Size of a ring in bytes. Logs that belong together share it.
const CAPACITY: usize = 4 << 20;
/// Minimum size of a ring in bytes, with room for more than 100 records.
const MIN_CAPACITY: usize = 256 << 10;
/// Size of the length in front of each record, in bytes.
const LEN: usize = size_of::<u32>();

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

/// Slots for a record: those up to the end of the ring's memory, and those from its start.
struct Slots<'r> {
    to_end: &'r mut [MaybeUninit<u8>],
    from_start: &'r mut [MaybeUninit<u8>],
}

impl Slots<'_> {
    /// Fills the next slots.
    ///
    /// # Panics
    ///
    /// If there are fewer slots than bytes.
    #[inline(always)]
    fn fill(&mut self, mut bytes: &[u8]) {
        if bytes.len() > self.to_end.len() {
            bytes = self.turn_round(bytes);
        }
        let (next, rest) = mem::take(&mut self.to_end).split_at_mut(bytes.len());
        bytes.copy_to_uninit(next);
        self.to_end = rest;
    }

    /// Fills the slots up to the end of the memory, and goes on at its start. Returns the bytes that
    /// are left.
    #[cold]
    fn turn_round<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (first, rest) = bytes.split_at(self.to_end.len());
        first.copy_to_uninit(self.to_end);
        self.to_end = mem::take(&mut self.from_start);
        rest
    }
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
    /// lost.
    #[inline]
    pub fn send<const N: usize>(&mut self, head: &[u8; N], body: &[u8]) {
        self.send_parts(head, &[body]);
    }

    /// Like [`send`](Self::send), with a body in several parts.
    #[inline]
    pub fn send_parts<const N: usize>(&mut self, head: &[u8; N], body: &[&[u8]]) {
        let len = N + body.iter().map(|part| part.len()).sum::<usize>();
        let Ok(mut chunk) = self.ring.write_chunk_uninit(LEN + len) else {
            self.lost.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (to_end, from_start) = chunk.as_mut_slices();
        let mut slots = Slots { to_end, from_start };
        slots.fill(&(len as u32).to_ne_bytes());
        slots.fill(head);
        for part in body {
            slots.fill(part);
        }
        // SAFETY: all slots are filled. The chunk has as many slots as the length, the head and the
        // parts have bytes, and each call of `fill` fills the next ones.
        unsafe { chunk.commit_all() };
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
