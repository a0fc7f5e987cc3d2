//! One TX or RX ring in memory shared with the kernel.
//!
//! ```text
//!   slot   0   1   2   3   4   5   6   7
//!              ▲           ▲       ▲
//!              reaped      tail    head
//!         ours │ to reap   │ sent  │ ours: free to fill
//! ```
//!
//! The program owns the slots from `head` up to, but not including, `tail`. The kernel moves `tail`,
//! but only in a call that synchronizes the ring. In a TX ring, the slots from the one after `tail`
//! up to `head` are being sent, and those before were sent.
//!
//! Everything that the kernel writes is checked, because other programs may share the memory.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::rc::Rc;

use netmap_sys::{NS_BUF_CHANGED, NS_MOREFRAG, NS_REPORT, netmap_slot};

use super::region::{Located, Region};

/// What both kinds of rings share.
struct Ring {
    at: Located,
    /// First slot that the program owns and has not handed over.
    head: u32,
    /// First slot that the kernel owns, as last read.
    tail: u32,
    /// Keeps the ring's memory mapped.
    _region: Rc<Region>,
}

impl Ring {
    fn new(at: Located, region: Rc<Region>) -> io::Result<Self> {
        // SAFETY: `at` is in the region, which `region` keeps alive.
        let head = unsafe { (&raw const (*at.ring.as_ptr()).head).read_volatile() };
        let mut ring = Self {
            at,
            head: 0,
            tail: 0,
            _region: region,
        };
        ring.head = ring.checked(head)?;
        ring.tail = ring.read_tail()?;
        Ok(ring)
    }

    fn checked(&self, index: u32) -> io::Result<u32> {
        if index < self.at.num_slots {
            Ok(index)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "netmap reports a slot beyond the end of the ring",
            ))
        }
    }

    /// Reads the kernel's position.
    #[inline(always)]
    fn read_tail(&self) -> io::Result<u32> {
        // SAFETY: the ring is in the region, which lives as long as `self`.
        self.checked(unsafe { (&raw const (*self.at.ring.as_ptr()).tail).read_volatile() })
    }

    /// Hands all slots before `head` to the kernel with the next call that synchronizes the ring.
    #[inline(always)]
    fn publish(&self) {
        let ring = self.at.ring.as_ptr();
        // SAFETY: as in `read_tail`. Only this program writes these fields.
        unsafe {
            (&raw mut (*ring).cur).write_volatile(self.head);
            (&raw mut (*ring).head).write_volatile(self.head);
        }
    }

    #[inline(always)]
    fn next(&self, slot: u32) -> u32 {
        let next = slot + 1;
        if next == self.at.num_slots { 0 } else { next }
    }

    /// Returns the number of slots from `from` up to, but not including, `to`.
    #[inline(always)]
    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from {
            to - from
        } else {
            to + self.at.num_slots - from
        }
    }

    #[inline(always)]
    fn read(&self, slot: u32) -> Slot {
        debug_assert!(slot < self.at.num_slots);
        let at = self.at.slots.as_ptr().wrapping_add(slot as usize);
        // SAFETY: the slot is in the ring, which is in the region. Its address is a multiple of 8.
        Slot::from_bits(unsafe { at.cast::<u64>().read_volatile() })
    }

    /// Writes all of a slot except the field `ptr`, which has no meaning without other flags.
    #[inline(always)]
    fn write(&mut self, slot: u32, content: Slot) {
        debug_assert!(slot < self.at.num_slots);
        let at = self.at.slots.as_ptr().wrapping_add(slot as usize);
        // SAFETY: as in `read`. The program owns this slot.
        unsafe { at.cast::<u64>().write_volatile(content.to_bits()) };
    }
}

/// The fields of a [`netmap_slot`] that the port uses. They are its first 8 bytes, which are read and
/// written in one access.
#[derive(Clone, Copy)]
struct Slot {
    buf_idx: u32,
    len: u16,
    flags: u16,
}

const _: () = assert!(
    offset_of!(netmap_slot, buf_idx) == 0
        && offset_of!(netmap_slot, len) == 4
        && offset_of!(netmap_slot, flags) == 6
        && align_of::<netmap_slot>() == align_of::<u64>()
);

impl Slot {
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, len @ .., e, f] = bits.to_ne_bytes();
        Self {
            buf_idx: u32::from_ne_bytes([a, b, c, d]),
            len: u16::from_ne_bytes(len),
            flags: u16::from_ne_bytes([e, f]),
        }
    }

    #[inline(always)]
    fn to_bits(self) -> u64 {
        let index = u64::from(self.buf_idx);
        let (len, flags) = (u64::from(self.len), u64::from(self.flags));
        if cfg!(target_endian = "little") {
            index | len << 32 | flags << 48
        } else {
            index << 32 | len << 16 | flags
        }
    }
}

/// A received packet, or a part of one, in the first slot of an RX ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// The buffer that holds it.
    pub(super) index: u32,
    /// Number of its bytes.
    pub(super) len: u16,
    /// Whether the packet continues in the next slot.
    pub(super) continues: bool,
}

/// An RX ring. Each received buffer is exchanged for a free one.
pub(super) struct RxRing(Ring);

impl RxRing {
    pub(super) fn new(at: Located, region: Rc<Region>) -> io::Result<Self> {
        Ring::new(at, region).map(Self)
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> u32 {
        self.0.at.num_slots
    }

    /// Returns the indices of the buffers in all slots.
    pub(super) fn buffers(&self) -> impl Iterator<Item = u32> {
        (0..self.0.at.num_slots).map(|slot| self.0.read(slot).buf_idx)
    }

    /// Learns which slots the kernel has filled, and returns their number.
    #[inline(always)]
    pub(super) fn available(&mut self) -> io::Result<u32> {
        self.0.tail = self.0.read_tail()?;
        Ok(self.0.distance(self.0.head, self.0.tail))
    }

    /// Returns what the first filled slot holds.
    ///
    /// # Panics
    /// In debug builds, if there is none.
    #[inline(always)]
    pub(super) fn first(&self) -> Received {
        debug_assert_ne!(self.0.head, self.0.tail);
        let slot = self.0.read(self.0.head);
        Received {
            index: slot.buf_idx,
            len: slot.len,
            continues: slot.flags & NS_MOREFRAG != 0,
        }
    }

    /// Puts a free buffer into the first slot, in exchange for the buffer there, and moves on.
    #[inline(always)]
    pub(super) fn exchange(&mut self, free: u32) {
        let slot = self.0.head;
        self.0.write(
            slot,
            Slot {
                buf_idx: free,
                len: 0,
                flags: NS_BUF_CHANGED,
            },
        );
        self.0.head = self.0.next(slot);
    }

    /// Leaves the buffer in the first slot, and moves on.
    #[inline(always)]
    pub(super) fn skip(&mut self) {
        self.0.head = self.0.next(self.0.head);
    }

    /// Leaves the buffers in all filled slots, and moves on.
    pub(super) fn skip_all(&mut self) -> io::Result<()> {
        self.0.tail = self.0.read_tail()?;
        self.0.head = self.0.tail;
        Ok(())
    }

    /// Returns the emptied slots to the kernel with the next call that synchronizes the ring.
    #[inline(always)]
    pub(super) fn publish(&self) {
        self.0.publish();
    }
}

/// A TX ring. A sent buffer replaces the one in its slot.
pub(super) struct TxRing {
    ring: Ring,
    /// First slot whose buffer did not come back yet.
    reaped: u32,
    /// `head` when the kernel last learned it.
    published: u32,
    /// Number of slots that can be filled now.
    room: u32,
    /// The buffer in each slot, as this side wrote it.
    buffers: Box<[u32]>,
}

impl TxRing {
    pub(super) fn new(at: Located, region: Rc<Region>) -> io::Result<Self> {
        let ring = Ring::new(at, region)?;
        let buffers = (0..at.num_slots).map(|slot| ring.read(slot).buf_idx);
        let reaped = ring.next(ring.tail);
        Ok(Self {
            reaped,
            published: ring.head,
            room: at.num_slots - 1 - ring.distance(reaped, ring.head),
            buffers: buffers.collect(),
            ring,
        })
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> u32 {
        self.ring.at.num_slots
    }

    /// Returns the buffers of the slots that are not being sent.
    pub(super) fn idle_buffers(&self) -> impl Iterator<Item = u32> {
        let idle = self.slots() - self.in_flight();
        (0..idle).map(|n| self.buffers[self.idle_slot(n)])
    }

    /// Replaces the buffers of the slots that are not being sent, as far as `buffers` reach.
    ///
    /// Such a slot may still name a buffer that has come back since and was sent from another
    /// slot. The kernel frees the buffers of all slots at the end, so no two may name the same.
    pub(super) fn replace_idle(&mut self, mut buffers: impl Iterator<Item = u32>) {
        let idle = self.slots() - self.in_flight();
        for n in 0..idle {
            let Some(buf_idx) = buffers.next() else {
                return;
            };
            let slot = self.idle_slot(n);
            self.buffers[slot] = buf_idx;
            self.ring.write(
                slot as u32,
                Slot {
                    buf_idx,
                    len: 0,
                    flags: NS_BUF_CHANGED,
                },
            );
        }
    }

    fn idle_slot(&self, n: u32) -> usize {
        ((self.ring.head + n) % self.slots()) as usize
    }

    /// Returns the number of slots that can be filled now.
    ///
    /// A slot without its buffer back is never filled, wherever the kernel claims to be. One slot
    /// always stays empty, because a full ring would look like an empty one.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        self.room
    }

    /// Returns the number of slots that are filled and did not come back yet.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> u32 {
        self.slots() - 1 - self.room
    }

    /// Returns the number of slots that are filled and not published yet.
    #[inline(always)]
    pub(super) fn staged(&self) -> u32 {
        self.ring.distance(self.published, self.ring.head)
    }

    /// Fills the next slot with `len` bytes of `buffer`.
    ///
    /// # Panics
    /// In debug builds, if there is no room.
    #[inline(always)]
    pub(super) fn push(&mut self, buffer: u32, len: usize) {
        debug_assert!(self.room() > 0);
        let slot = self.ring.head;
        self.buffers[slot as usize] = buffer;
        self.ring.write(
            slot,
            Slot {
                buf_idx: buffer,
                len: len as u16,
                flags: NS_BUF_CHANGED,
            },
        );
        self.advance();
    }

    /// Returns the buffer that a slot holds now. The slot is `ahead` slots behind the next to fill.
    ///
    /// # Panics
    /// In debug builds, if there is no room for that many slots.
    pub(super) fn buffer_ahead(&self, ahead: u32) -> u32 {
        debug_assert!(ahead < self.room());
        let slot = self.ring.head + ahead;
        let past_end = slot.checked_sub(self.slots());
        self.ring.read(past_end.unwrap_or(slot)).buf_idx
    }

    /// Fills the next slot with `len` bytes that are in the slot's own buffer, which is `buf_idx`.
    /// `continues` says whether the packet continues in the slot after it.
    ///
    /// # Panics
    /// In debug builds, if there is no room.
    pub(super) fn push_in_place(&mut self, buf_idx: u32, len: usize, continues: bool) {
        debug_assert!(self.room() > 0);
        let slot = self.ring.head;
        self.ring.write(
            slot,
            Slot {
                buf_idx,
                len: len as u16,
                flags: if continues { NS_MOREFRAG } else { 0 },
            },
        );
        self.advance();
    }

    /// Moves on to the next slot to fill.
    #[inline(always)]
    fn advance(&mut self) {
        self.ring.head = self.ring.next(self.ring.head);
        self.room -= 1;
    }

    /// Hands the filled slots to the kernel with the next call that synchronizes the ring. Asks it
    /// to report promptly when the last of them was sent.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        if self.staged() > 0 {
            let last = self.ring.head.checked_sub(1).unwrap_or(self.slots() - 1);
            let mut slot = self.ring.read(last);
            slot.flags |= NS_REPORT;
            self.ring.write(last, slot);
            self.published = self.ring.head;
        }
        self.ring.publish();
    }

    /// Learns which slots the kernel has sent.
    #[inline(always)]
    pub(super) fn update(&mut self) -> io::Result<()> {
        self.ring.tail = self.ring.read_tail()?;
        Ok(())
    }

    /// Takes back all slots that were sent. Returns their buffers, oldest first, in two runs.
    #[inline(always)]
    pub(super) fn reap(&mut self) -> [&[u32]; 2] {
        // Wherever the kernel claims to be, only filled slots come back.
        let sent = self
            .ring
            .distance(self.reaped, self.ring.next(self.ring.tail))
            .min(self.in_flight());
        let (first, end) = (self.reaped, self.reaped + sent);
        let wrapped = end.saturating_sub(self.slots());
        self.reaped = end.checked_sub(self.slots()).unwrap_or(end);
        self.room += sent;
        [
            &self.buffers[first as usize..(end - wrapped) as usize],
            &self.buffers[..wrapped as usize],
        ]
    }
}
