//! The memory of a chunk.

use std::sync::Arc;

use control::ALIGNMENT;

/// The memory of a chunk. The bytes of the chunk begin at [`start`](Self::start).
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    bytes: Arc<[u8]>,
    start: usize,
}

impl Buffer {
    /// Length of the memory for a chunk of `len` bytes, in bytes. It is more if the chunk is read directly.
    pub(super) fn len_for(len: usize, is_direct: bool) -> usize {
        if is_direct {
            len.next_multiple_of(ALIGNMENT) + ALIGNMENT
        } else {
            len
        }
    }

    /// Length of the memory in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// All of the memory.
    pub(crate) fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Index of the chunk's first byte.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Returns the memory for a chunk of `len` bytes, and what may be overwritten behind it. If the buffer
    /// has another length, or if somebody else has it too, it becomes a new one.
    pub(super) fn writable(&mut self, len: usize, is_direct: bool) -> &mut [u8] {
        let all = Self::len_for(len, is_direct);
        if self.bytes.len() != all || Arc::get_mut(&mut self.bytes).is_none() {
            self.bytes = std::iter::repeat_n(0, all).collect();
        }
        let (address, mut end) = (self.bytes.as_ptr().addr(), len);
        self.start = 0;
        if is_direct {
            self.start = address.next_multiple_of(ALIGNMENT) - address;
            end = self.start + len.next_multiple_of(ALIGNMENT);
        }
        let bytes = Arc::get_mut(&mut self.bytes);
        bytes.map_or(&mut [], |bytes| &mut bytes[self.start..end])
    }

    /// Returns the chunk of `len` bytes.
    pub(crate) fn chunk(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_begin_and_end_where_direct_reads_need_it() {
        for len in [1, ALIGNMENT, ALIGNMENT + 1, 61_440] {
            let mut buffer = Buffer::default();
            let bytes = buffer.writable(len, true);
            assert!(bytes.as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert_eq!(bytes.len(), len.next_multiple_of(ALIGNMENT));
            bytes[len - 1] = 7;
            assert_eq!(buffer.chunk(len).last(), Some(&7));
            assert_eq!(buffer.len(), Buffer::len_for(len, true));
            assert_eq!(buffer.writable(len, false).len(), len);
            assert_eq!((buffer.len(), buffer.start()), (len, 0));
        }
    }

    #[test]
    fn memory_is_used_again_unless_somebody_else_has_it_or_its_length_differs() {
        let mut buffer = Buffer::default();
        buffer.writable(61_440, true)[0] = 1;
        let first = Arc::as_ptr(buffer.bytes());
        buffer.writable(61_000, true)[0] = 2;
        assert_eq!(Arc::as_ptr(buffer.bytes()), first);
        let sent = buffer.clone();
        buffer.writable(61_440, true)[0] = 3;
        assert_ne!(Arc::as_ptr(buffer.bytes()), first);
        assert_eq!(sent.chunk(1), [2]);
        // The same length, for another kind of read.
        let (all, second) = (buffer.len(), Arc::as_ptr(buffer.bytes()));
        buffer.writable(all, false);
        assert_eq!((buffer.start(), Arc::as_ptr(buffer.bytes())), (0, second));
    }
}
