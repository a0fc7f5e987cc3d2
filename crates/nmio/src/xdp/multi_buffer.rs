//! Packets that span several chunks of the packet memory (`XDP_USE_SG`, Linux 6.6).
//!
//! A port uses this module if a packet of its MTU does not fit in one chunk. A frame is then a run
//! of adjacent chunks.
//!
//! **Sending:** a packet is sent from its frame without a copy, with one descriptor for each chunk.
//! A frame is complete when all its descriptors are.
//!
//! **Receiving:** the fill ring hands out single chunks, which need not be adjacent. Therefore the
//! pieces of a packet are copied to a frame. The chunks for receiving precede the frames in the
//! packet memory, and have a pool of their own.
#![allow(unsafe_code)]

use super::sizes::FrameLayout;
use super::tx_ring::{Slot, TxRing};
use crate::assembly::Assembly;
use crate::frame::Pool;

/// What a port with frames of several chunks needs in addition to its rings.
pub(super) struct MultiBuffer {
    layout: FrameLayout,
    /// The chunks that the kernel receives into. Chunk i of the packet memory is frame i.
    rx_chunks: Pool,
    assembly: Assembly,
    /// For each frame, number of its descriptors that are staged, in the TX ring, or not completed.
    in_flight: Box<[u8]>,
}

impl MultiBuffer {
    pub(super) fn new(layout: FrameLayout, rx_chunks: Pool, frames: u32) -> Self {
        Self {
            layout,
            rx_chunks,
            assembly: Assembly::default(),
            in_flight: vec![0; frames as usize].into_boxed_slice(),
        }
    }

    /// Returns the pool of the chunks that the kernel receives into.
    pub(super) fn rx_chunks(&self) -> &Pool {
        &self.rx_chunks
    }

    /// Returns the assembly of received packets.
    pub(super) fn assembly(&mut self) -> &mut Assembly {
        &mut self.assembly
    }

    /// Writes the descriptors of the packet in frame `index`, which is being sent. The TX ring must have
    /// room for `layout.chunks` of them. The kernel sees them after [`TxRing::publish`].
    pub(super) fn stage(&mut self, index: u32, len: u32, ring: &mut TxRing) {
        let first_chunk = self.layout.rx_chunks() + index * self.layout.chunks;
        let start = u64::from(first_chunk) * u64::from(self.layout.chunk);
        let mut pieces = self.layout.pieces(len).peekable();
        let mut count = 0;
        while let Some((offset, piece)) = pieces.next() {
            let slot = Slot {
                addr: start + u64::from(offset),
                len: piece,
            };
            // SAFETY: the caller has made room. The frame is marked as being sent.
            unsafe { ring.stage(slot, pieces.peek().is_some()) };
            count += 1;
        }
        self.in_flight[index as usize] = count;
    }

    /// Forgets all packets that are being sent or assembled.
    pub(super) fn forget_sent(&mut self) {
        self.in_flight.fill(0);
        self.assembly = Assembly::default();
    }

    /// Records the completion of the descriptor of the data at `addr`. Returns the frame's index if
    /// this was its last descriptor, and an error if `addr` is not in flight.
    pub(super) fn complete(&mut self, addr: u64) -> Result<Option<u32>, ()> {
        let chunk = addr / u64::from(self.layout.chunk);
        let index = chunk
            .checked_sub(u64::from(self.layout.rx_chunks()))
            .ok_or(())? as usize
            / self.layout.chunks as usize;
        let left = self.in_flight.get_mut(index).ok_or(())?;
        *left = left.checked_sub(1).ok_or(())?;
        Ok((*left == 0).then_some(index as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_complete_when_all_its_descriptors_are() {
        let layout = FrameLayout::for_mtu(9000);
        let mut multi = MultiBuffer::new(layout, Pool::for_tests(1, 64), 2);
        let start = |frame: u32| {
            u64::from(layout.rx_chunks() + frame * layout.chunks) * u64::from(layout.chunk)
        };
        multi.in_flight[0] = 1;
        multi.in_flight[1] = 3;
        assert_eq!(multi.complete(start(1) + 256), Ok(None));
        assert_eq!(multi.complete(start(0) + 256), Ok(Some(0)));
        assert_eq!(multi.complete(start(1) + 8192), Ok(None));
        assert_eq!(multi.complete(start(1) + 4096), Ok(Some(1)));
        // These are not in flight: a completed frame, a chunk for receiving, and no chunk at all.
        for addr in [start(1), 256, start(2), u64::MAX] {
            assert_eq!(multi.complete(addr), Err(()), "{addr}");
        }
    }
}
