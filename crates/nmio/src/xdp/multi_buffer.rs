//! Packets that span several chunks of the packet memory (`XDP_USE_SG`, Linux 6.6).
//!
//! A port uses this module if a packet of its MTU does not fit in one chunk. A frame is then a run
//! of adjacent chunks.
//!
//! **Sending:** a packet is sent from its frame without a copy, with one descriptor for each chunk.
//! `xsk-rs` can only describe data behind a chunk's headroom, so the descriptors are written through
//! [`TxSlots`]. A frame is complete when all its descriptors are.
//!
//! **Receiving:** the fill ring hands out single chunks, which need not be adjacent. Therefore the
//! pieces of a packet are copied to a frame. The chunks for receiving precede the frames in the
//! packet memory, and have a pool of their own.

use super::sizes::FrameLayout;
use super::tx_slots::TxSlots;
use crate::frame::{Frame, Pool, Sending};

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

    /// Writes the descriptors of a packet into the TX ring, which must have room for
    /// `layout.chunks` of them. The kernel sees them after [`TxSlots::publish`].
    pub(super) fn stage(&mut self, packet: Sending, slots: &mut TxSlots) {
        let len = packet.len() as u32;
        let index = packet.into_index();
        let first_chunk = self.layout.rx_chunks() + index * self.layout.chunks;
        let start = u64::from(first_chunk) * u64::from(self.layout.chunk);
        let mut pieces = self.layout.pieces(len).peekable();
        let mut count = 0;
        while let Some((offset, piece)) = pieces.next() {
            slots.stage(start + u64::from(offset), piece, pieces.peek().is_some());
            count += 1;
        }
        self.in_flight[index as usize] = count;
    }

    /// Records the completion of the descriptor of the data at `addr`. Returns the frame's index if
    /// this was its last descriptor, and an error if `addr` is not in flight.
    pub(super) fn complete(&mut self, addr: usize) -> Result<Option<u32>, ()> {
        let chunk = addr / self.layout.chunk as usize;
        let index = chunk
            .checked_sub(self.layout.rx_chunks() as usize)
            .ok_or(())?
            / self.layout.chunks as usize;
        let left = self.in_flight.get_mut(index).ok_or(())?;
        *left = left.checked_sub(1).ok_or(())?;
        Ok((*left == 0).then_some(index as u32))
    }
}

/// Joins the pieces of received packets.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// The packet whose last piece has not arrived yet.
    frame: Option<Frame>,
    /// Whether the rest of the current packet must be skipped.
    skips: bool,
}

impl Assembly {
    /// Adds a piece. `None` stands for an invalid piece. `more` is true if another piece of the same
    /// packet follows.
    ///
    /// Returns the packet with its last piece. If the packet is invalid or too long, or if the pool
    /// has no frame for it, its last piece returns an error.
    pub(super) fn add(
        &mut self,
        piece: Option<&[u8]>,
        more: bool,
        pool: &Pool,
    ) -> Result<Option<Frame>, ()> {
        let frame = match piece {
            Some(piece) if !self.skips => self.append(piece, pool),
            _ => None,
        };
        match (frame, more) {
            (Some(frame), false) => return Ok(Some(frame)),
            (frame, true) => {
                self.skips = frame.is_none();
                self.frame = frame;
                return Ok(None);
            }
            (None, false) => {}
        }
        *self = Self::default();
        Err(())
    }

    /// Returns the packet so far with `piece` at its end. Returns `None` if there is no room.
    fn append(&mut self, piece: &[u8], pool: &Pool) -> Option<Frame> {
        let mut frame = self.frame.take().or_else(|| pool.take())?;
        let len = frame.len();
        let new_len = len + piece.len();
        if new_len > frame.capacity() {
            return None;
        }
        frame.set_len(new_len);
        frame[len..].copy_from_slice(piece);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PoolLayout;

    fn pool(frames: u32, capacity: usize) -> Pool {
        Pool::on_heap(PoolLayout {
            stride: capacity,
            capacity,
            io_frames: frames,
            resident_frames: 0,
        })
    }

    #[test]
    fn pieces_are_joined_to_packets() {
        let (pool, mut assembly) = (pool(1, 12), Assembly::default());
        let mut add = |piece, more| assembly.add(Some(piece), more, &pool).unwrap();
        assert_eq!(&add(b"single", false).unwrap()[..], b"single");
        assert!(add(b"first", true).is_none());
        assert!(add(b"second", true).is_none());
        assert_eq!(&add(b"3", false).unwrap()[..], b"firstsecond3");
        assert_eq!(&add(b"next", false).unwrap()[..], b"next");
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn a_packet_with_an_invalid_piece_is_skipped_whole() {
        let (pool, mut assembly) = (pool(2, 12), Assembly::default());
        let mut add = |piece: Option<&[u8]>, more| assembly.add(piece, more, &pool).map(drop);
        // The invalid piece is the first one, a middle one, the last one, and the only one.
        for bad in 0..3 {
            for nth in 0..3 {
                let piece = (nth != bad).then_some(&b"abc"[..]);
                assert_eq!(add(piece, nth < 2), if nth < 2 { Ok(()) } else { Err(()) });
            }
        }
        assert_eq!(add(None, false), Err(()));
        assert_eq!(pool.available(), 2, "no frame is lost");
        let packet = assembly.add(Some(b"good"), false, &pool).unwrap().unwrap();
        assert_eq!(&packet[..], b"good");
    }

    #[test]
    fn a_packet_without_room_is_skipped_whole() {
        let (pool, mut assembly) = (pool(1, 12), Assembly::default());
        assert!(assembly.add(Some(&[0; 12]), true, &pool).is_ok());
        assert!(assembly.add(Some(&[0; 1]), true, &pool).is_ok());
        assert!(assembly.add(Some(&[0; 1]), false, &pool).is_err());
        let held = pool.take().unwrap();
        assert!(assembly.add(Some(b"x"), true, &pool).is_ok());
        drop(held);
        // The pool has a frame again, but the packet's start is missing.
        assert!(assembly.add(Some(b"y"), false, &pool).is_err());
        let packet = assembly.add(Some(b"z"), false, &pool).unwrap().unwrap();
        assert_eq!(&packet[..], b"z");
    }

    #[test]
    fn a_frame_is_complete_when_all_its_descriptors_are() {
        let layout = FrameLayout::for_mtu(9000);
        let mut multi = MultiBuffer::new(layout, pool(1, 64), 2);
        let start = |frame: usize| {
            (layout.rx_chunks() as usize + frame * layout.chunks as usize) * layout.chunk as usize
        };
        multi.in_flight[0] = 1;
        multi.in_flight[1] = 3;
        assert_eq!(multi.complete(start(1) + 256), Ok(None));
        assert_eq!(multi.complete(start(0) + 256), Ok(Some(0)));
        assert_eq!(multi.complete(start(1) + 8192), Ok(None));
        assert_eq!(multi.complete(start(1) + 4096), Ok(Some(1)));
        // These are not in flight: a completed frame, a chunk for receiving, and no chunk at all.
        for addr in [start(1), 256, start(2), usize::MAX] {
            assert_eq!(multi.complete(addr), Err(()), "{addr}");
        }
    }
}
