//! Contents: bytes that are sent again and again, cut into segments once for each
//! class of clients. Payload sums and resident packets are kept.

mod contents;

pub(crate) use contents::NO_CLASS;
pub use contents::{
    ContentError, ContentId, Contents, MAX_CLASSES, MAX_CONTENT_LEN, MAX_CONTENTS, Totals,
};

use std::net::{Ipv4Addr, Ipv6Addr};

use eth::{Link, Mac};
use ip::{Addresses, PROTOCOL_TCP, Path, Sum};
use nmio::Copies;

use crate::wire::{HEADER_LEN, TIMESTAMPED_HEADER_LEN};

/// The most bytes of a content's slot.
pub const MAX_SLOT_LEN: usize = 256;

/// How prepared segments are sent: the paper's two stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendMode {
    /// Packets live in the port's memory and are patched and sent in place;
    /// further copies are made when one is in flight, and kept. Where the
    /// port's share for residents is used up, as [`SendMode::MemCopy`].
    PreCopy,
    /// One original is copied to a scratch frame for each send.
    #[default]
    MemCopy,
}

/// A range of a content whose bytes differ from one response to the next (a
/// date, say). What the content holds there is ignored;
/// [`Application::render`](crate::Application::render) writes it when a
/// segment that covers it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// From the content's start, in bytes.
    pub offset: u32,
    /// Bytes: 1 to [`MAX_SLOT_LEN`].
    pub len: u32,
}

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of a packet.
    #[inline(always)]
    pub(crate) const fn of(addresses: &Addresses) -> Self {
        match addresses {
            Addresses::V4 { .. } => Self::V4,
            Addresses::V6 { .. } => Self::V6,
        }
    }

    /// Bytes of IP and TCP headers.
    #[inline(always)]
    pub(crate) const fn headers(self) -> usize {
        match self {
            Self::V4 => ip::IPV4_HEADER_LEN + HEADER_LEN,
            Self::V6 => ip::IPV6_HEADER_LEN + HEADER_LEN,
        }
    }

    /// Headers of no connection in particular: what is equal in all packets.
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

/// Connections whose segments are cut alike.
#[derive(Debug)]
struct Class {
    family: Family,
    /// Bytes of payload in a full segment.
    mss: u16,
    /// Connections that use it now.
    connections: u32,
    /// When a connection began or ceased to use it, counted in such events.
    used: u64,
    /// Contents that have segments in it; kept only for classes that may go.
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

    /// Writes a whole packet of one segment of `bytes` to `packet`, with
    /// blanks for what differs from connection to connection.
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

/// A sum that is not known yet. Every sum can be written without it: zero and
/// all ones are the same in one's complement.
const UNKNOWN: u16 = 0;

/// The segments of one content in one class. Empty: not made.
#[derive(Debug, Default)]
struct Segments {
    sums: Box<[u16]>,
    /// As long as `sums` in pre-copy mode, else empty.
    copies: Box<[Copies]>,
    /// Where the content stands in the list of its class.
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
            copies: (0..copies).map(|_| Copies::default()).collect(),
            place,
        }
    }

    /// Bytes that `count` segments take.
    fn memory_of(count: usize, mode: SendMode) -> usize {
        let each = match mode {
            SendMode::PreCopy => size_of::<u16>() + size_of::<Copies>(),
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

    fn residents(&self) -> u64 {
        self.copies.iter().map(|copies| copies.len() as u64).sum()
    }

    #[inline(always)]
    fn sum(&self, segment: u32) -> Option<u16> {
        let sum = *self.sums.get(segment as usize)?;
        (sum != UNKNOWN).then_some(sum)
    }

    /// The copies of one segment, in pre-copy mode.
    #[inline(always)]
    fn copies(&mut self, segment: u32) -> Option<&mut Copies> {
        self.copies.get_mut(segment as usize)
    }

    /// Sums a segment of `bytes`, its slot taken as zeros.
    fn add_sum(&mut self, bytes: &[u8], slot: Option<Slot>, mss: u32, segment: u32) -> u16 {
        let start = segment as usize * mss as usize;
        let end = bytes.len().min(start + mss as usize);
        let sum = match payload_sum(bytes, slot, start, end).fold() {
            UNKNOWN => 0xffff,
            sum => sum,
        };
        self.sums[segment as usize] = sum;
        sum
    }
}

/// The sum of `bytes[start..end]`, the slot taken as zeros.
pub(crate) fn payload_sum(bytes: &[u8], slot: Option<Slot>, start: usize, end: usize) -> Sum {
    let Some((from, to)) = slot.and_then(|slot| slot.within(start, end)) else {
        return Sum::of(&bytes[start..end]);
    };
    Sum::of(&bytes[start..from]).add_at(Sum::of(&bytes[to..end]), to - start)
}

impl Slot {
    /// The part of the slot that lies in `start..end` of the content.
    #[inline(always)]
    pub(crate) fn within(self, start: usize, end: usize) -> Option<(usize, usize)> {
        let from = (self.offset as usize).max(start);
        let to = (self.offset as usize + self.len as usize).min(end);
        (from < to).then_some((from, to))
    }
}
