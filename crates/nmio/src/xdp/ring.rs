//! The rings that an `AF_XDP` socket shares with the kernel (`linux/if_xdp.h`).
//!
//! A ring has a power of two of slots and two positions. One side fills slots and then advances the
//! position `producer`. The other side empties them and then advances `consumer`. Positions count
//! modulo 2^32, and their low bits are the number of a slot.
//!
//! ```text
//!   fill, TX          Producer ── slots ──▶ kernel
//!   RX, completion    kernel   ── slots ──▶ Consumer
//! ```
//!
//! Each side advances only its own position. A store with release order and a load with acquire order
//! make the contents of the slots visible to the other side before the position.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::mapping::Mapping;
use crate::sys;

/// One of the four rings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingName {
    Fill,
    Completion,
    Rx,
    Tx,
}

impl RingName {
    /// Returns the socket option that sets the number of slots.
    pub(super) fn size_option(self) -> i32 {
        match self {
            Self::Fill => libc::XDP_UMEM_FILL_RING,
            Self::Completion => libc::XDP_UMEM_COMPLETION_RING,
            Self::Rx => libc::XDP_RX_RING,
            Self::Tx => libc::XDP_TX_RING,
        }
    }

    /// Returns the offset in the socket's descriptor at which the ring is mapped.
    fn page_offset(self) -> i64 {
        match self {
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed(),
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed(),
            Self::Rx => libc::XDP_PGOFF_RX_RING,
            Self::Tx => libc::XDP_PGOFF_TX_RING,
        }
    }

    /// Returns the ring's layout among those of the socket.
    fn layout(self, all: &libc::xdp_mmap_offsets) -> libc::xdp_ring_offset {
        match self {
            Self::Fill => all.fr,
            Self::Completion => all.cr,
            Self::Rx => all.rx,
            Self::Tx => all.tx,
        }
    }
}

/// A mapped ring. A slot holds one `T`.
struct Ring<T> {
    map: Mapping,
    layout: libc::xdp_ring_offset,
    /// Number of slots minus one.
    mask: u32,
    slots: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring of a socket. The ring has this number of slots, a power of two.
    fn map(socket: BorrowedFd<'_>, name: RingName, slots: u32) -> io::Result<Self> {
        let layout = name.layout(&sys::xdp_ring_layouts(socket)?);
        let len = layout.desc as usize + slots as usize * mem::size_of::<T>();
        Ok(Self {
            map: Mapping::of(socket, len, name.page_offset(), true)?,
            layout,
            mask: slots - 1,
            slots: PhantomData,
        })
    }

    #[inline(always)]
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel has placed an aligned u32 at this offset in the mapping, which it
        // accesses atomically, too.
        unsafe {
            self.map
                .start()
                .add(offset as usize)
                .cast::<AtomicU32>()
                .as_ref()
        }
    }

    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        self.word(self.layout.producer)
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        self.word(self.layout.consumer)
    }

    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        let flags = self.word(self.layout.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> NonNull<T> {
        let slot = (position & self.mask) as usize * mem::size_of::<T>();
        // SAFETY: the mask keeps the slot within the mapping.
        unsafe {
            self.map
                .start()
                .add(self.layout.desc as usize + slot)
                .cast()
        }
    }

    #[inline(always)]
    fn read(&self, position: u32) -> T {
        // SAFETY: the slot is mapped, aligned and initialised. All bytes are a valid `T`, which is an
        // integer or a structure of integers. The slot is this side's, so the kernel does not write
        // it during the read.
        unsafe { self.slot(position).read() }
    }

    /// Writes a slot, which the kernel must not read during this call.
    #[inline(always)]
    fn write(&mut self, position: u32, value: T) {
        // SAFETY: the slot is mapped and aligned, and no other code accesses it during this call.
        unsafe { self.slot(position).write(value) }
    }
}

/// A ring that this process fills: the fill ring or the TX ring.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Position of the next slot to fill. It is published later.
    position: u32,
}

impl<T: Copy> Producer<T> {
    /// Maps a ring of a new socket. The ring has this number of slots, a power of two.
    pub(super) fn map(socket: BorrowedFd<'_>, name: RingName, slots: u32) -> io::Result<Self> {
        let ring = Ring::map(socket, name, slots)?;
        Ok(Self { ring, position: 0 })
    }

    /// Fills a slot, which the kernel sees after [`publish`](Self::publish).
    ///
    /// # Safety
    /// The ring has a free slot. The memory that `value` describes belongs to the kernel from now
    /// on.
    #[inline(always)]
    pub(super) unsafe fn stage(&mut self, value: T) {
        debug_assert!(self.occupied() <= self.ring.mask, "the ring has room");
        self.ring.write(self.position, value);
        self.position = self.position.wrapping_add(1);
    }

    /// Lets the kernel use all filled slots.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.position, Ordering::Release);
    }

    /// Returns the position behind the last filled slot.
    #[inline(always)]
    pub(super) fn position(&self) -> u32 {
        self.position
    }

    /// Returns the position up to which the kernel has emptied slots.
    #[inline(always)]
    pub(super) fn consumed(&self) -> u32 {
        self.ring.consumer().load(Ordering::Acquire)
    }

    /// Returns the position behind the last slot that the kernel may use.
    #[inline(always)]
    pub(super) fn published(&self) -> u32 {
        self.ring.producer().load(Ordering::Relaxed)
    }

    /// Returns the number of slots that the kernel has not emptied.
    #[inline(always)]
    pub(super) fn occupied(&self) -> u32 {
        self.position.wrapping_sub(self.consumed())
    }

    /// Returns true if the kernel must be woken to use the ring.
    #[inline(always)]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// Returns the slot at this position.
    pub(super) fn get(&self, position: u32) -> T {
        self.ring.read(position)
    }

    /// Changes the slot at this position.
    ///
    /// # Safety
    /// The kernel does not read the slot during this call. The memory that `value` describes belongs
    /// to the kernel from now on.
    pub(super) unsafe fn set(&mut self, position: u32, value: T) {
        self.ring.write(position, value);
    }
}

/// A ring that this process empties: the RX ring or the completion ring.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Position of the next slot to empty.
    position: u32,
}

impl<T: Copy> Consumer<T> {
    /// Maps a ring of a new socket. The ring has this number of slots, a power of two.
    pub(super) fn map(socket: BorrowedFd<'_>, name: RingName, slots: u32) -> io::Result<Self> {
        let ring = Ring::map(socket, name, slots)?;
        Ok(Self { ring, position: 0 })
    }

    /// Passes at most `limit` values to `each`, in order, and gives their slots back to the kernel.
    /// Returns the number of values. `each` may not trust a value.
    #[inline(always)]
    pub(super) fn take(&mut self, limit: usize, mut each: impl FnMut(T)) -> usize {
        let filled = self.ring.producer().load(Ordering::Acquire);
        let count = (filled.wrapping_sub(self.position) as usize).min(limit);
        if count == 0 {
            return 0;
        }
        for nth in 0..count as u32 {
            each(self.ring.read(self.position.wrapping_add(nth)));
        }
        self.position = self.position.wrapping_add(count as u32);
        self.ring.consumer().store(self.position, Ordering::Release);
        count
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
pub(super) mod tests;
