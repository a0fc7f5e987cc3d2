//! Buffers for what is written once: bytes that are no content.

/// The most bytes of one [`write_bytes`](crate::Connection::write_bytes): a
/// DNS message over TCP with its length.
pub const MAX_WRITE_LEN: usize = 2 + 65_535;

/// A bounded pool of buffers. A buffer keeps its memory when it is given
/// back, so that in a steady state nothing is allocated.
#[derive(Debug)]
pub(crate) struct Writes {
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    most: usize,
}

impl Writes {
    /// A pool of at most `most` buffers.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            buffers: Vec::new(),
            free: Vec::new(),
            most: most as usize,
        }
    }

    /// Stores `bytes` in a free buffer; `None` when all are in use.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.buffers.len() < self.most => {
                self.buffers.push(Vec::new());
                self.buffers.len() as u32 - 1
            }
            None => return None,
        };
        self.buffers[index as usize].extend_from_slice(bytes);
        Some(index)
    }

    /// Adds `bytes` to a buffer in use; `false` when they do not fit.
    pub(crate) fn append(&mut self, index: u32, bytes: &[u8]) -> bool {
        let buffer = &mut self.buffers[index as usize];
        let fits = buffer.len() + bytes.len() <= MAX_WRITE_LEN;
        if fits {
            buffer.extend_from_slice(bytes);
        }
        fits
    }

    /// What a buffer holds.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> &[u8] {
        &self.buffers[index as usize]
    }

    /// Gives a buffer back.
    pub(crate) fn release(&mut self, index: u32) {
        self.buffers[index as usize].clear();
        self.free.push(index);
    }

    /// Buffers in use.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn in_use(&self) -> usize {
        self.buffers.len() - self.free.len()
    }
}
