//! Contents: bytes that are sent to many clients. The stack cuts each content item into segments
//! for each class of clients, and stores payload checksums. In pre-copy mode, it also keeps
//! resident packets.

mod contents;

pub use contents::{
    ContentError, ContentId, Contents, MAX_CLASSES, MAX_CONTENT_LEN, MAX_CONTENTS, Totals,
};

use std::net::{Ipv4Addr, Ipv6Addr};

use eth::{Link, Mac};
use ip::{Addresses, PROTOCOL_TCP, Path, Sum};
use nmio::Copies;

use crate::wire::{HEADER_LEN, TIMESTAMPED_HEADER_LEN};

/// Maximum length of a slot in bytes. A slot is the part of a content item that differs between
/// responses.
pub const MAX_SLOT_LEN: usize = 256;

/// How single prepared segments are sent. In both modes, a run of segments is sent as a
/// super-segment if the port supports super-segments. The two modes correspond to the two stacks of
/// the SIGCOMM 2014 paper (see the crate's documentation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendMode {
    /// The stack stores whole packets in the port's memory, patches their headers and sends them in
    /// place. If all copies of a packet are still in the TX ring, the stack makes and keeps another
    /// one. The stack sends as in [`SendMode::MemCopy`] on VLANs, and when the port has no more
    /// memory for resident packets.
    PreCopy,
    /// For each send, the stack copies the payload to a new frame.
    #[default]
    MemCopy,
}

/// A range of a content item that differs between responses, for example a date. The item's own
/// bytes in this range are ignored. When the stack sends a segment that overlaps the range,
/// [`Application::render`](crate::Application::render) writes the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Offset from the start of the content item, in bytes.
    pub offset: u32,
    /// Length in bytes: 1 to [`MAX_SLOT_LEN`].
    pub len: u32,
}

/// The IP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of these addresses.
    #[inline(always)]
    pub(crate) const fn of(addresses: &Addresses) -> Self {
        match addresses {
            Addresses::V4 { .. } => Self::V4,
            Addresses::V6 { .. } => Self::V6,
        }
    }

    /// Returns the total length of the IP and TCP headers without options, in bytes.
    #[inline(always)]
    pub(crate) const fn headers(self) -> usize {
        match self {
            Self::V4 => ip::IPV4_HEADER_LEN + HEADER_LEN,
            Self::V6 => ip::IPV6_HEADER_LEN + HEADER_LEN,
        }
    }

    /// Returns a path of this family whose addresses are all zero, for the headers of resident
    /// packets. Each send overwrites the addresses.
    const fn blank_path(self) -> Path {
        Path {
            link: Link {
                peer: Mac([0; 6]),
                own: Mac([0; 6]),
                vlan: None,
            },
            addresses: match self {
                Self::V4 => Addresses::V4 {
                    src: Ipv4Addr::UNSPECIFIED,
                    dst: Ipv4Addr::UNSPECIFIED,
                },
                Self::V6 => Addresses::V6 {
                    src: Ipv6Addr::UNSPECIFIED,
                    dst: Ipv6Addr::UNSPECIFIED,
                },
            },
        }
    }
}

/// A class: all connections with the same IP family and MSS. A content item is cut at the same
/// places for all of them.
#[derive(Debug)]
struct Class {
    family: Family,
    /// Number of payload bytes in a full segment.
    mss: u16,
    /// Number of open connections in the class.
    connections: u32,
    /// Value of `Contents::uses` when a connection last joined or left the class.
    used: u64,
    /// Indices of the content items that are cut into segments for this class. The list stays empty
    /// for the two permanent classes, because their segments are never evicted.
    contents: Vec<u32>,
}

impl Class {
    fn new(family: Family, mss: u16) -> Self {
        Self {
            family,
            mss,
            connections: 0,
            used: 0,
            contents: Vec::new(),
        }
    }

    /// Writes the packet for the segment with index `segment` of `bytes` to `packet`. Header fields
    /// that differ between connections are left zero, because each send overwrites them.
    #[cold]
    fn write_packet<'a>(&self, packet: &'a mut Vec<u8>, bytes: &[u8], segment: u32) -> &'a [u8] {
        let start = segment as usize * usize::from(self.mss);
        let end = bytes.len().min(start + usize::from(self.mss));
        let payload = &bytes[start..end];
        let path = self.family.blank_path();
        packet.clear();
        packet.resize(path.header_len() + TIMESTAMPED_HEADER_LEN, 0);
        path.write(packet, PROTOCOL_TCP, TIMESTAMPED_HEADER_LEN + payload.len());
        packet.extend_from_slice(payload);
        packet
    }
}

/// Marks a checksum that is not computed yet. A computed checksum of zero is stored as all ones,
/// which is the same number in one's complement.
const UNKNOWN: u16 = 0;

/// What the slot of a resident packet contains since it was last sent: the response's parameters, and
/// the checksum of the rendered bytes.
type Rendered = Option<([u32; 2], u16)>;

/// The copies of a segment's resident packet.
type ResidentCopies = Copies<Rendered>;

/// The segments of one content item in one class. Empty while the item is not cut into segments for
/// the class.
#[derive(Debug, Default)]
struct Segments {
    sums: Box<[u16]>,
    /// Copies of each segment's resident packet, parallel to `sums`. Empty in memcopy mode.
    copies: Box<[ResidentCopies]>,
    /// Position of the content item in `Class::contents`.
    place: usize,
}

impl Segments {
    fn new(count: usize, mode: SendMode, place: usize) -> Self {
        let copies = match mode {
            SendMode::PreCopy => count,
            SendMode::MemCopy => 0,
        };
        Self {
            sums: vec![UNKNOWN; count].into_boxed_slice(),
            copies: (0..copies).map(|_| ResidentCopies::default()).collect(),
            place,
        }
    }

    /// Returns the memory for the checksums and bookkeeping of `count` segments, in bytes.
    fn memory_of(count: usize, mode: SendMode) -> usize {
        let each = match mode {
            SendMode::PreCopy => size_of::<u16>() + size_of::<ResidentCopies>(),
            SendMode::MemCopy => size_of::<u16>(),
        };
        count * each
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.sums) + size_of_val(&*self.copies)
    }

    fn len(&self) -> usize {
        self.sums.len()
    }

    #[inline(always)]
    fn sum(&self, segment: u32) -> Option<u16> {
        let sum = *self.sums.get(segment as usize)?;
        (sum != UNKNOWN).then_some(sum)
    }

    /// Returns the resident copies of one segment, or `None` in memcopy mode.
    #[inline(always)]
    fn copies(&mut self, segment: u32) -> Option<&mut ResidentCopies> {
        self.copies.get_mut(segment as usize)
    }

    /// Computes and stores the checksum of a segment of `bytes`, counting the slot's bytes as
    /// zeros.
    fn add_sum(&mut self, bytes: &[u8], slot: Option<Slot>, mss: u32, segment: u32) -> u16 {
        let start = segment as usize * mss as usize;
        let end = bytes.len().min(start + mss as usize);
        let sum = segment_sum(bytes, slot, start, end);
        self.sums[segment as usize] = sum;
        sum
    }
}

/// Returns the checksum of `bytes[start..end]` as it is stored, counting the slot's bytes as zeros.
fn segment_sum(bytes: &[u8], slot: Option<Slot>, start: usize, end: usize) -> u16 {
    match payload_sum(bytes, slot, start, end).fold() {
        UNKNOWN => 0xffff,
        sum => sum,
    }
}

/// Returns the checksum of `bytes[start..end]`, counting the slot's bytes as zeros.
pub(crate) fn payload_sum(bytes: &[u8], slot: Option<Slot>, start: usize, end: usize) -> Sum {
    let Some((from, to)) = slot.and_then(|slot| slot.within(start, end)) else {
        return Sum::of(&bytes[start..end]);
    };
    Sum::of(&bytes[start..from]).add_at(Sum::of(&bytes[to..end]), to - start)
}

impl Slot {
    /// Returns the overlap of the slot with bytes `start..end` of the content item, or `None` if
    /// there is no overlap.
    #[inline(always)]
    pub(crate) fn within(self, start: usize, end: usize) -> Option<(usize, usize)> {
        let from = (self.offset as usize).max(start);
        let to = (self.offset as usize + self.len as usize).min(end);
        (from < to).then_some((from, to))
    }
}
