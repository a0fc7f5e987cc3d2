//! Sizes of the rings, and the layout of frames in the packet memory.
//!
//! The kernel divides the packet memory (the UMEM) into chunks of at most a page. If a packet of the
//! MTU fits in one chunk, a frame is one chunk. Otherwise a frame is several adjacent chunks, and a
//! long packet takes one descriptor for each of them (`XDP_USE_SG`).

use super::fill_level::FILL_RING;
use super::refusals::Refusals;
use crate::port::USUAL_BATCH;

/// Number of slots in the RX ring. It has room for all frames offered through the fill ring, so it
/// never overflows.
pub(super) const RX_RING: u32 = FILL_RING;
/// Number of slots in the TX ring.
pub(super) const TX_RING: u32 = 2048;
/// Maximum number of descriptors in flight: staged, in the TX ring, or not completed yet. The
/// remaining slots are spare, because a dropped frame takes another slot each time it is put back.
const MAX_IN_FLIGHT: u32 = TX_RING - Refusals::MAX_TRIES.next_multiple_of(64);
/// Number of slots in the completion ring, which must hold all descriptors in flight.
pub(super) const COMPLETION_RING: u32 = TX_RING;
/// Number of spare frames, for callers that hold more than a batch of 256.
const RESERVE: u32 = 256;
/// Size in bytes of a chunk for small MTUs, for example 1,500 bytes.
const SMALL_CHUNK: u32 = 2048;
/// Size in bytes of a chunk for larger MTUs. The kernel allows at most a page.
const LARGE_CHUNK: u32 = 4096;
/// Maximum number of chunks in a frame.
const MAX_CHUNKS: u32 = 3;
/// The kernel reserves this many bytes at the start of each chunk that it receives into, for XDP
/// programs.
pub(super) const HEADROOM: u32 = 256;
/// Number of bytes that a chunk must hold besides a packet of the MTU: the Ethernet header, two
/// 802.1Q tags, and the frame check sequence.
///
/// Newer kernels refuse zero-copy if a chunk has fewer (Linux commit 36ee60b569ba).
const LINK_OVERHEAD: usize = 14 + 2 * 4 + 4;

/// The largest MTU that every driver with XDP supports with one buffer for each packet, in bytes.
pub(crate) const ORDINARY_MTU: usize = 1500;
/// The largest supported MTU, in bytes.
pub(crate) const MAX_MTU: usize = largest_mtu(MAX_CHUNKS * LARGE_CHUNK);
/// The largest MTU whose packets fit in one chunk, in bytes.
pub(super) const MAX_SINGLE_BUFFER_MTU: usize = largest_mtu(LARGE_CHUNK);

/// Returns the largest MTU whose frames fit in `bytes` bytes of packet memory.
const fn largest_mtu(bytes: u32) -> usize {
    (bytes - HEADROOM) as usize - LINK_OVERHEAD
}

/// Returns the memory of a frame that can hold a packet of this MTU, in bytes.
pub(crate) fn frame_len(mtu: usize) -> usize {
    FrameLayout::for_mtu(mtu).stride()
}

/// The layout of frames in the packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameLayout {
    /// Size of a chunk in bytes.
    pub(super) chunk: u32,
    /// Number of chunks in a frame.
    pub(super) chunks: u32,
}

impl FrameLayout {
    /// Returns the layout with the smallest frames that can hold a packet of this MTU, which is at
    /// most [`MAX_MTU`].
    pub(super) fn for_mtu(mtu: usize) -> Self {
        if mtu <= largest_mtu(SMALL_CHUNK) {
            return Self {
                chunk: SMALL_CHUNK,
                chunks: 1,
            };
        }
        let fits = |chunks: &u32| mtu <= largest_mtu(chunks * LARGE_CHUNK);
        Self {
            chunk: LARGE_CHUNK,
            chunks: (1..MAX_CHUNKS).find(fits).unwrap_or(MAX_CHUNKS),
        }
    }

    /// Returns true if a packet may take several descriptors.
    pub(super) fn is_multi_buffer(self) -> bool {
        self.chunks > 1
    }

    /// Returns the distance between two frames, in bytes.
    pub(super) fn stride(self) -> usize {
        (self.chunk * self.chunks) as usize
    }

    /// Returns the number of data bytes in a frame.
    pub(super) fn capacity(self) -> usize {
        self.stride() - HEADROOM as usize
    }

    /// Returns the maximum number of frames in flight.
    pub(super) fn max_in_flight(self) -> u32 {
        MAX_IN_FLIGHT / self.chunks
    }

    /// Returns the number of frames that the port itself needs. With several chunks to a frame,
    /// received packets have chunks of their own (see [`rx_chunks`](Self::rx_chunks)).
    pub(super) fn port_frames(self) -> u32 {
        let receiving = if self.is_multi_buffer() { 0 } else { RX_RING };
        receiving + TX_RING / self.chunks + USUAL_BATCH + RESERVE
    }

    /// Returns the number of chunks that precede the frames and belong to no frame. The kernel
    /// receives into them.
    pub(super) fn rx_chunks(self) -> u32 {
        if self.is_multi_buffer() { RX_RING } else { 0 }
    }

    /// Returns the offset and the length, in bytes, of each piece of a packet of `len` bytes. The
    /// offset is relative to the start of the frame's first chunk. No piece crosses a chunk's end.
    pub(super) fn pieces(self, len: u32) -> impl Iterator<Item = (u32, u32)> {
        let end = HEADROOM + len;
        let first_chunks = (0..self.chunks).map(move |nth| nth * self.chunk);
        first_chunks
            .take_while(move |start| *start < end)
            .map(move |start| {
                let begin = start.max(HEADROOM);
                (begin, end.min(start + self.chunk) - begin)
            })
    }
}

const _: () = assert!(
    MAX_IN_FLIGHT <= COMPLETION_RING,
    "the completion ring must never overflow"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_as_few_chunks_as_the_mtu_allows() {
        for (mtu, chunk, chunks) in [
            (68, 2048, 1),
            (1500, 2048, 1),
            (1766, 2048, 1),
            (1767, 4096, 1),
            (3814, 4096, 1),
            (3815, 4096, 2),
            (7910, 4096, 2),
            (9000, 4096, 3),
            (12_006, 4096, 3),
        ] {
            let layout = FrameLayout::for_mtu(mtu);
            assert_eq!(layout, FrameLayout { chunk, chunks }, "MTU {mtu}");
            assert!(mtu + LINK_OVERHEAD <= layout.capacity());
            let descriptors = layout.max_in_flight() * layout.chunks;
            assert!(descriptors <= MAX_IN_FLIGHT);
        }
        assert_eq!((MAX_SINGLE_BUFFER_MTU, MAX_MTU), (3814, 12_006));
    }

    #[test]
    fn the_pieces_of_a_packet_are_adjacent_and_stay_in_their_chunks() {
        let layout = FrameLayout::for_mtu(9000);
        let pieces = |len| layout.pieces(len).collect::<Vec<_>>();
        assert_eq!(pieces(14), [(256, 14)]);
        assert_eq!(pieces(3840), [(256, 3840)]);
        assert_eq!(pieces(3841), [(256, 3840), (4096, 1)]);
        assert_eq!(pieces(9018), [(256, 3840), (4096, 4096), (8192, 1082)]);
        for len in 1..=layout.capacity() as u32 {
            let (mut at, mut total) = (HEADROOM, 0);
            for (begin, piece) in layout.pieces(len) {
                assert_eq!(begin, at, "the pieces of {len} bytes are adjacent");
                assert!(piece > 0 && begin % 4096 + piece <= 4096);
                at = begin + piece;
                total += piece;
            }
            assert_eq!(total, len);
        }
    }
}
