//! Copies packets to and from the buffers that belong to the slots.
//!
//! A packet that does not fit in one buffer takes several slots (`NS_MOREFRAG`), whose buffers need
//! not be adjacent.
#![allow(unsafe_code)]

use std::io;
use std::iter;
use std::ptr::NonNull;
use std::rc::Rc;

use arrayvec::ArrayVec;
use netmap_sys::{Buffers, NETMAP_MAX_FRAGS, NM_VNET_HDR_MRG_LEN};

use super::region::{Located, Region};
use super::ring::{Received, TxRing};
use crate::assembly::Piece;
use crate::vnet::VNET_HEADER;

/// Length of the header before each packet on a port with virtio-net headers, in bytes. After the
/// `virtio_net_hdr` follows a number that is not used here.
pub(super) const HEADER: usize = NM_VNET_HDR_MRG_LEN as usize;
/// Number of bytes that the first slot of a packet leaves free.
///
/// If the receiver's port has headers of another length, a switch copies packets in units of 64 bytes.
/// It does not check that the longer header and the last unit fit in the buffer.
const MARGIN: usize = 64;

/// The buffers of the slots, and how packets lie in them.
pub(super) struct SlotCopies {
    buffers: Buffers,
    /// Whether a header precedes each packet.
    has_headers: bool,
    /// Keeps the buffers mapped.
    _region: Rc<Region>,
}

/// A part of a slot's buffer.
///
/// Other programs may write the buffers of a pipe at any time. So there is no reference to the bytes.
// `start` points to `len` bytes in the region of `_slots`.
pub(super) struct Part<'a> {
    start: NonNull<u8>,
    len: usize,
    _slots: &'a SlotCopies,
}

impl Piece for Part<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len);
        // SAFETY: the part has as many bytes, in a region that is mapped. `to` is not in the region,
        // because frames are on the heap if packets are copied.
        unsafe {
            self.start
                .copy_to_nonoverlapping(NonNull::from(&mut *to).cast(), to.len());
        }
    }
}

impl Part<'_> {
    /// Splits the packet's header off. Returns `None` if the part is too short.
    pub(super) fn split_header(self) -> Option<([u8; VNET_HEADER], Self)> {
        let len = self.len.checked_sub(HEADER)?;
        let mut vnet = [0; VNET_HEADER];
        self.copy_to(&mut vnet);
        // SAFETY: the part has at least `HEADER` bytes.
        let start = unsafe { self.start.add(HEADER) };
        Some((vnet, Self { start, len, ..self }))
    }
}

impl SlotCopies {
    /// Creates copies to and from the buffers to which `ring` refers. `has_headers` says whether a
    /// header precedes each packet.
    pub(super) fn new(region: &Rc<Region>, ring: Located, has_headers: bool) -> io::Result<Self> {
        Ok(Self {
            buffers: region.buffers(ring)?,
            has_headers,
            _region: Rc::clone(region),
        })
    }

    /// Returns true if a header precedes each packet.
    pub(super) fn has_headers(&self) -> bool {
        self.has_headers
    }

    fn header_len(&self) -> usize {
        if self.has_headers { HEADER } else { 0 }
    }

    /// Returns the number of bytes in a buffer.
    pub(super) fn size(&self) -> usize {
        self.buffers.size() as usize
    }

    /// Returns the number of slots that a packet of `len` bytes takes.
    pub(super) fn slots_for(&self, len: usize) -> u32 {
        let beyond_first = (self.header_len() + len).saturating_sub(self.size() - MARGIN);
        1 + beyond_first.div_ceil(self.size()) as u32
    }

    /// Returns the length of the longest packet that can be sent through a ring of `slots` slots.
    pub(super) fn longest(&self, slots: u32) -> usize {
        let slots = (slots as usize - 1).min(NETMAP_MAX_FRAGS);
        slots * self.size() - MARGIN - self.header_len()
    }

    /// Returns the bytes of a received slot. Returns `None` if the slot is empty, or if its buffer or
    /// its length is invalid.
    #[inline]
    pub(super) fn part(&self, received: Received) -> Option<Part<'_>> {
        let start = self.buffers.get(received.index)?;
        let len = usize::from(received.len);
        (1..=self.size()).contains(&len).then_some(Part {
            start,
            len,
            _slots: self,
        })
    }

    /// Fills slots with a packet, which consists of `vnet`, where packets have headers, and the
    /// `pieces`.
    ///
    /// Returns `false`, and fills none, if the ring has no room, if a slot names no buffer, or if the
    /// packet is too long.
    #[inline]
    pub(super) fn scatter(
        &self,
        tx: &mut TxRing,
        vnet: [u8; VNET_HEADER],
        pieces: &[&[u8]],
    ) -> bool {
        let slots = self.slots_for(pieces.iter().copied().map(<[u8]>::len).sum());
        if slots > tx.room() {
            return false;
        }
        let buffer = |ahead| {
            let index = tx.buffer_ahead(ahead);
            Some((index, self.buffers.get(index)?))
        };
        let most = slots.min(NETMAP_MAX_FRAGS as u32);
        let buffers: ArrayVec<_, NETMAP_MAX_FRAGS> = (0..most).map_while(buffer).collect();
        if buffers.len() < slots as usize {
            return false;
        }
        let mut header = [0; HEADER];
        header[..VNET_HEADER].copy_from_slice(&vnet);
        let mut pieces = iter::once(&header[..self.header_len()]).chain(pieces.iter().copied());
        let mut rest = pieces.next().unwrap_or_default();
        for (nth, (index, start)) in (1..).zip(buffers) {
            let room = self.size() - if nth == 1 { MARGIN } else { 0 };
            let mut filled = 0;
            while filled < room {
                if rest.is_empty() {
                    let Some(next) = pieces.next() else { break };
                    rest = next;
                }
                let (now, later) = rest.split_at(rest.len().min(room - filled));
                // SAFETY: the buffer has room for these bytes, and belongs to this program until the
                // slot is published. No reference to its contents exists.
                unsafe {
                    let to = start.add(filled);
                    to.copy_from_nonoverlapping(NonNull::from(now).cast(), now.len());
                }
                filled += now.len();
                rest = later;
            }
            tx.push_in_place(index, filled, nth < slots);
        }
        true
    }
}
