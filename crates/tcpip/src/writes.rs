//! Buffers for what is written once: bytes that are no content.

use crate::connection::NONE;
use crate::free_list::FreeList;
use crate::peers::{Owner, Owners, Peers, Pool};

/// The most bytes of one [`write_bytes`](crate::Connection::write_bytes): a
/// DNS message over TCP with its length.
pub const MAX_WRITE_LEN: usize = 2 + 65_535;

/// A bounded pool of buffers. A buffer keeps its memory when it is released,
/// so that in a steady state nothing is allocated, until
/// [`trim`](Self::trim).
#[derive(Debug)]
pub(crate) struct Writes {
    buffers: Vec<Vec<u8>>,
    free: FreeList,
    owners: Owners,
    most: u32,
    /// The connection that found none free last, or [`NONE`].
    refused: u32,
}

impl Writes {
    /// A pool of at most `most` buffers.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            buffers: Vec::new(),
            free: FreeList::default(),
            owners: Owners::new(Pool::WriteBuffers),
            most,
            refused: NONE,
        }
    }

    /// Stores `bytes` in a free buffer; `None` when all are in use.
    pub(crate) fn store(&mut self, bytes: &[u8], owner: Owner, peers: &mut Peers) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.buffers.len() < self.most as usize => {
                self.buffers.push(Vec::new());
                self.free.has_taken();
                self.buffers.len() as u32 - 1
            }
            None => {
                self.refused = owner.id;
                return None;
            }
        };
        self.owners.take(index, owner, peers);
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
    pub(crate) fn release(&mut self, index: u32, peers: &mut Peers) {
        self.buffers[index as usize].clear();
        self.owners.give_back(index, peers);
        self.free.push(index);
    }

    /// Whether connection `id` has found no buffer free since
    /// [`forget_refusal`](Self::forget_refusal).
    #[inline(always)]
    pub(crate) fn was_refused(&self, id: u32) -> bool {
        self.refused == id
    }

    /// What was refused before says nothing of the next callback.
    #[inline(always)]
    pub(crate) fn forget_refusal(&mut self) {
        self.refused = NONE;
    }

    /// The most buffers.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
    }

    pub(crate) fn free(&mut self) -> &mut FreeList {
        &mut self.free
    }

    /// Whether there may soon be memory to give back.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.free.has_surplus()
    }

    /// Gives back the memory of one buffer that was not needed for a while.
    /// Whether there was one.
    pub(crate) fn trim(&mut self) -> bool {
        let slot = self.free.next_surplus();
        if let Some(slot) = slot {
            self.buffers[slot as usize] = Vec::new();
        }
        slot.is_some()
    }

    /// Buffers in use.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn in_use(&self) -> usize {
        self.free.in_use()
    }

    /// Bytes of memory that the buffers have.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.buffers.iter().map(Vec::capacity).sum()
    }
}
