//! Receive buffers for data that is not consumed yet, or that has arrived out of order.
//!
//! Most connections never need a buffer, because a request arrives in one segment and is consumed
//! directly from the received frame. The other connections borrow a buffer from a bounded pool
//! while they need it.

mod data;

use arrayvec::ArrayVec;

use crate::pools::Lendable;
#[cfg(test)]
use crate::pools::LendingPool;

/// Maximum number of out-of-order ranges in a receive buffer. Data that would need one more range
/// is dropped, and the peer retransmits it.
pub const MAX_RANGES: usize = 4;

/// One connection's receive buffer, which begins at the first byte that is not consumed.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    /// Number of bytes that are in order and not consumed, stored as `bytes[..ready]`.
    ready: usize,
    /// Ranges of `bytes` that were received after a gap. They are ascending, disjoint and not
    /// adjacent.
    ranges: ArrayVec<(usize, usize), MAX_RANGES>,
    /// For each range, the value of `changes` when that range last changed.
    changed_at: ArrayVec<u32, MAX_RANGES>,
    /// Number of changes to `ranges` so far. The number wraps around.
    changes: u32,
    /// Offset of the peer's FIN in the buffer, if it has arrived.
    fin: Option<usize>,
}

impl Buffer {
    /// Allocates `capacity` bytes if the buffer has no memory.
    fn provide(&mut self, capacity: usize) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; capacity].into_boxed_slice();
        }
    }

    /// Returns the bytes that are in order and not consumed.
    #[inline(always)]
    fn ready(&self) -> &[u8] {
        &self.bytes[..self.ready]
    }

    /// Returns true if the buffer holds neither data nor a FIN.
    fn is_empty(&self) -> bool {
        self.ready == 0 && self.ranges.is_empty() && self.fin.is_none()
    }

    /// Returns the number of bytes that fit after the bytes in order.
    pub(super) fn space(&self) -> usize {
        self.bytes.len() - self.ready
    }

    /// Stores `data`, which begins `ahead` bytes after the bytes in order. The part that does not
    /// fit into the buffer is dropped.
    ///
    /// Returns how many more bytes are now in order. Returns `None` if nothing was stored because
    /// there are too many gaps.
    fn insert(&mut self, ahead: usize, data: &[u8]) -> Option<usize> {
        let start = self.ready.saturating_add(ahead).min(self.bytes.len());
        let len = data.len().min(self.bytes.len() - start);
        let end = start + len;
        // The data is merged with each range that it overlaps or touches.
        let from = self.ranges.partition_point(|range| range.1 < start);
        let to = self.ranges.partition_point(|range| range.0 <= end);
        let mut merged = (start, end);
        for range in &self.ranges[from..to] {
            merged = (merged.0.min(range.0), merged.1.max(range.1));
        }
        let in_order = merged.0 <= self.ready;
        if !in_order && len > 0 && from == to && self.ranges.is_full() {
            return None;
        }
        self.bytes[start..end].copy_from_slice(&data[..len]);
        self.ranges.drain(from..to);
        self.changed_at.drain(from..to);
        if in_order {
            let before = self.ready;
            self.ready = self.ready.max(merged.1);
            return Some(self.ready - before);
        }
        if len > 0 || from < to {
            self.ranges.insert(from, merged);
            self.changes = self.changes.wrapping_add(1);
            self.changed_at.insert(from, self.changes);
        }
        Some(0)
    }

    /// Returns the out-of-order ranges as distances in bytes from the first missing byte. The most
    /// recently changed range comes first (RFC 2018, section 4).
    pub(super) fn out_of_order(&self) -> ArrayVec<(usize, usize), MAX_RANGES> {
        let mut order: ArrayVec<usize, MAX_RANGES> = (0..self.ranges.len()).collect();
        order.sort_unstable_by_key(|at| self.changes.wrapping_sub(self.changed_at[*at]));
        let from_gap = |at: usize| {
            let (start, end) = self.ranges[at];
            (start - self.ready, end - self.ready)
        };
        order.into_iter().map(from_gap).collect()
    }

    /// Returns true if the `len` bytes that begin `ahead` bytes after the bytes in order have
    /// already been received.
    fn has(&self, ahead: usize, len: usize) -> bool {
        let (start, end) = (self.ready + ahead, self.ready + ahead + len);
        let covers = |range: &(usize, usize)| range.0 <= start && end <= range.1;
        self.ranges.iter().any(covers)
    }

    /// Records the peer's FIN, which is `ahead` bytes after the bytes in order. A FIN is ignored if
    /// it lies beyond the buffer or before received data, or if a FIN was already recorded.
    fn set_fin(&mut self, ahead: usize) {
        let at = self.ready + ahead;
        let last = self.ranges.last().map_or(self.ready, |range| range.1);
        if at <= self.bytes.len() && at >= last && self.fin.is_none() {
            self.fin = Some(at);
        }
    }

    /// Removes the FIN if everything before it has arrived. Returns true if the FIN was removed.
    fn take_fin(&mut self) -> bool {
        let is_next = self.fin == Some(self.ready);
        if is_next {
            self.fin = None;
        }
        is_next
    }

    /// Returns the distance in bytes from the end of the bytes in order to the FIN, or `None` if no
    /// FIN has arrived. No data can follow the FIN.
    fn fin_ahead(&self) -> Option<usize> {
        self.fin.map(|at| at - self.ready)
    }

    /// Removes the first `n` bytes, which the application has consumed.
    fn consume(&mut self, n: usize) {
        let n = n.min(self.ready);
        if n == 0 {
            return;
        }
        let last = self.ranges.last().map_or(self.ready, |range| range.1);
        self.bytes.copy_within(n..last, 0);
        self.ready -= n;
        for range in &mut self.ranges {
            *range = (range.0 - n, range.1 - n);
        }
        if let Some(fin) = &mut self.fin {
            *fin -= n;
        }
    }
}

impl Lendable for Buffer {
    fn clear(&mut self) {
        self.ready = 0;
        self.ranges.clear();
        self.changed_at.clear();
        self.fin = None;
    }
}

#[cfg(test)]
impl LendingPool<Buffer> {
    /// Returns the size in bytes of the memory that the buffers own.
    pub(crate) fn memory(&self) -> usize {
        self.all().iter().map(|buffer| buffer.bytes.len()).sum()
    }
}

#[cfg(test)]
#[path = "receive/receive_tests.rs"]
mod tests;
