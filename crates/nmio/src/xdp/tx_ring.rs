//! The TX ring, in which frames that the driver has dropped can be put back.
//!
//! In copy mode a driver may drop a frame instead of refusing it. For example, a veth without a
//! queueing discipline does so while its peer's queue is full. The wakeup then fails with `EBUSY`,
//! and the frame that the kernel took last is the dropped one. The frames behind it are still in
//! the ring.
//!
//! [`TxRing::put_back`] puts the dropped frame back at the ring's head. So a device that is full for
//! a short time causes neither loss nor reordering.
//!
//! By the ring's contract, the slots of submitted frames belong to the kernel. But in copy mode the
//! kernel reads a slot only while it sends that slot's frame, inside a system call of this thread.
//! Between two system calls, the slots of frames not yet taken can therefore be rewritten.
//!
//! # Position of the kernel
//! The kernel publishes its position when it has sent a frame, or when it has taken all frames that
//! it knew of. If the first frame of a wakeup is dropped, the kernel publishes nothing, although it
//! has taken the frame. The field `consumed` counts that frame too.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use super::ring::{Producer, RingName};

/// A frame in the TX ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Offset of the frame's data in the UMEM, in bytes.
    pub(super) addr: u64,
    /// Length of the frame in bytes.
    pub(super) len: u32,
}

impl Slot {
    /// Returns the descriptor of this data. `more` is true if the next one belongs to the same packet.
    #[inline(always)]
    fn desc(self, more: bool) -> libc::xdp_desc {
        libc::xdp_desc {
            addr: self.addr,
            len: self.len,
            options: if more { libc::XDP_PKT_CONTD } else { 0 },
        }
    }
}

/// The frame that the driver dropped in the last wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) slot: Slot,
    /// Length of the longest frame that the driver has accepted since the last drop. `None` if
    /// there is none.
    pub(super) longest_accepted: Option<u32>,
}

/// The TX ring of a socket.
pub(super) struct TxRing {
    ring: Producer<libc::xdp_desc>,
    /// Number of slots.
    slots: u32,
    /// Number of frames that the kernel has taken so far, modulo 2^32.
    consumed: u32,
    /// Value of `consumed` after the last drop.
    last_drop: u32,
}

impl TxRing {
    /// Maps the TX ring of a new socket. The ring has this number of slots, a power of two.
    pub(super) fn map(socket: BorrowedFd<'_>, slots: u32) -> io::Result<Self> {
        Ok(Self {
            ring: Producer::map(socket, RingName::Tx, slots)?,
            slots,
            consumed: 0,
            last_drop: 0,
        })
    }

    /// Returns true if the kernel must be woken to use the ring.
    #[inline(always)]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// Returns the number of published frames that the kernel has not taken yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.sync_consumed();
        self.ring.published().wrapping_sub(self.consumed)
    }

    /// Advances `consumed` to the position that the kernel has published. Returns true if this
    /// changes `consumed`. Must be called before each wakeup, so that [`dropped`](Self::dropped) can
    /// tell whether the kernel has published a position since.
    fn sync_consumed(&mut self) -> bool {
        let published = self.ring.consumed();
        let is_ahead = published.wrapping_sub(self.consumed).cast_signed() > 0;
        if is_ahead {
            self.consumed = published;
        }
        is_ahead
    }

    /// Returns the frame that the driver dropped. Must be called once after each wakeup that failed
    /// with `EBUSY`.
    pub(super) fn dropped(&mut self) -> Dropped {
        if !self.sync_consumed() {
            // The kernel has taken one frame without publishing it.
            self.consumed = self.consumed.wrapping_add(1);
        }
        let dropped = self.consumed.wrapping_sub(1);
        // The ring still holds the descriptors of the last `slots - 1` frames. Older ones may have
        // been overwritten.
        let accepted = dropped.wrapping_sub(self.last_drop).min(self.slots - 1);
        let lengths = (1..=accepted).map(|back| self.ring.get(dropped.wrapping_sub(back)).len);
        let longest_accepted = lengths.max();
        self.last_drop = self.consumed;
        let libc::xdp_desc { addr, len, .. } = self.ring.get(dropped);
        Dropped {
            slot: Slot { addr, len },
            longest_accepted,
        }
    }

    /// Returns true if the ring has no room for a frame that was put back.
    pub(super) fn is_full(&self) -> bool {
        self.ring.occupied() >= self.slots
    }

    /// Puts the dropped frame before the frames that the kernel has not taken, and moves each of
    /// these back by one slot.
    ///
    /// # Safety
    /// The ring is not [full](Self::is_full), and all staged frames are published. The kernel has
    /// completed the frame, which is marked as being sent. The socket is in copy mode.
    pub(super) unsafe fn put_back(&mut self, dropped: Slot) {
        let mut carried = dropped.desc(false);
        let mut position = self.consumed;
        while position != self.ring.position() {
            let next = self.ring.get(position);
            // SAFETY: in copy mode the kernel reads the slots of frames that it has not taken only in
            // a system call of this thread. All these frames are being sent.
            unsafe { self.ring.set(position, carried) };
            carried = next;
            position = position.wrapping_add(1);
        }
        // SAFETY: the ring has room, and the frame is being sent.
        unsafe { self.ring.stage(carried) };
        self.ring.publish();
    }

    /// Writes a descriptor behind the last one. `more` is true if the next descriptor belongs to the
    /// same packet. The kernel sees it after [`publish`](Self::publish).
    ///
    /// # Safety
    /// The ring has room. The data belongs to a frame that is marked as being sent.
    #[inline(always)]
    pub(super) unsafe fn stage(&mut self, slot: Slot, more: bool) {
        // SAFETY: the caller guarantees what `Producer::stage` requires.
        unsafe { self.ring.stage(slot.desc(more)) }
    }

    /// Allows the kernel to read the descriptors that [`stage`](Self::stage) has written.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.ring.publish();
    }
}

#[cfg(test)]
#[path = "tx_ring_tests.rs"]
mod tests;
