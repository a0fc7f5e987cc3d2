//! A packet that waits for a flush through the packet socket.

use crate::frame::Frame;
use crate::super_segment::{MAX_OVER_V6, SuperSegment};
use crate::sys::Gather;
use crate::vnet::{FINISHED, vnet_header};

/// Size of an Ethernet header in bytes. The device's limits include this header.
pub(super) const ETHERNET_HEADER: usize = 14;
/// Maximum length, in bytes, of an IP packet that the kernel can store even if memory is
/// fragmented, because single pages suffice.
pub(super) const MAX_RELIABLE_LEN: usize = MAX_OVER_V6;

/// A packet in the queue.
// The size difference between the variants wastes little memory: the queue is allocated once, and
// most packets are super-segments.
#[allow(clippy::large_enum_variant)]
pub(super) enum QueuedPacket {
    Frame(Frame),
    Super(SuperSegment),
}

impl QueuedPacket {
    /// Returns true if the packet is so long that some kernels refuse it.
    pub(super) fn is_long(&self) -> bool {
        matches!(self, Self::Super(packet) if packet.len() > MAX_RELIABLE_LEN + ETHERNET_HEADER)
    }

    /// Returns the number of frames that the packet counts as.
    pub(super) fn frames(&self) -> usize {
        match self {
            Self::Frame(_) => 1,
            Self::Super(packet) => packet.segments(),
        }
    }

    pub(super) fn is_frame(&self) -> bool {
        matches!(self, Self::Frame(_))
    }

    /// Returns the packet as the kernel takes it.
    pub(super) fn gather(&self) -> Gather<'_> {
        match self {
            Self::Frame(frame) => Gather {
                vnet: FINISHED,
                stretches: [frame, &[], &[], &[]],
            },
            Self::Super(packet) => Gather {
                vnet: vnet_header(packet),
                stretches: packet.gather(),
            },
        }
    }
}
