//! Rings: their positions, slots and buffers.
#![allow(unsafe_code)]

use libc::timeval;

use crate::slots::netmap_slot;

/// Alignment of the parts of a ring that must not share a cache line, in bytes.
pub const NM_CACHE_ALIGN: usize = 128;

/// Ring flag ([`netmap_ring::flags`]): update `ts` at each sync.
pub const NR_TIMESTAMP: u32 = 0x0002;
/// Ring flag: forward packets whose slots set [`NS_FORWARD`](crate::NS_FORWARD).
pub const NR_FORWARD: u32 = 0x0004;

/// A TX or RX ring in the mapped region.
///
/// The program writes `head`, `cur`, `flags` and the slots that it owns. These are the slots from
/// `head` up to, but not including, `tail`. The positions must stay in the order `head`, `cur`,
/// `tail`. Otherwise `ioctl` does nothing, though it succeeds, and `poll` returns `POLLERR`.
#[repr(C, align(128))]
pub struct netmap_ring {
    /// Offset of buffer 0 from this structure, in bytes.
    pub buf_ofs: i64,
    /// Number of slots.
    pub num_slots: u32,
    /// Size of each buffer, in bytes.
    pub nr_buf_size: u32,
    /// Index of the ring.
    pub ringid: u16,
    /// Direction. 0: TX, 1: RX.
    pub dir: u16,
    /// Index of the first slot that the program owns.
    pub head: u32,
    /// Index of the slot that `tail` must pass before `poll` returns.
    pub cur: u32,
    /// Index of the first slot that the kernel owns.
    pub tail: u32,
    /// Ring flags: [`NR_TIMESTAMP`] and [`NR_FORWARD`].
    pub flags: u32,
    /// Time of the last sync, if [`NR_TIMESTAMP`] is set.
    pub ts: timeval,
    /// Mask for the bits of [`netmap_slot::ptr`] that hold the packet's offset in its buffer. The
    /// mask is 0 if no offsets were requested.
    pub offset_mask: u64,
    /// Required alignment, in bytes, of a packet in its buffer.
    pub buf_align: u64,
    /// Private data of the kernel.
    pub sem: netmap_sem,
    /// The ring's `num_slots` slots start here.
    pub slot: [netmap_slot; 0],
}

/// The kernel's private data in a [`netmap_ring`], on separate cache lines.
#[repr(C, align(128))]
pub struct netmap_sem(pub [u8; 128]);

/// Returns slot number `i`.
///
/// # Safety
/// `ring` points to a ring in a region mapped from netmap, and `i` is below `num_slots`.
#[inline]
pub unsafe fn netmap_slot_at(ring: *mut netmap_ring, i: u32) -> *mut netmap_slot {
    // SAFETY: the slots follow the ring in the same region, and the caller guarantees that slot `i`
    // exists.
    unsafe {
        let slots = (&raw mut (*ring).slot).cast::<netmap_slot>();
        slots.add(i as usize)
    }
}

/// Returns the start of buffer `index`. The index comes from [`netmap_slot::buf_idx`] or from the
/// list of spare buffers. [`Buffers::get`](crate::Buffers::get) checks the index.
///
/// # Safety
/// `ring` points to a ring in a region mapped from netmap, and `index` identifies a buffer in that
/// region.
#[inline]
pub unsafe fn netmap_buf(ring: *mut netmap_ring, index: u32) -> *mut u8 {
    // SAFETY: buffers of `nr_buf_size` bytes start at `buf_ofs` from the ring, in the same region.
    unsafe {
        let first = ring.byte_offset((*ring).buf_ofs as isize);
        first
            .byte_add(index as usize * (*ring).nr_buf_size as usize)
            .cast()
    }
}

/// Returns the start of the packet that a slot describes, which is at an offset in its buffer.
///
/// # Safety
/// `ring` points to a ring in a region mapped from netmap, and `slot` is one of its slots. The
/// slot's index identifies a buffer in that region. Its offset is not above the size of a buffer.
#[inline]
pub unsafe fn netmap_buf_offset(ring: *mut netmap_ring, slot: *const netmap_slot) -> *mut u8 {
    // SAFETY: the caller guarantees that the slot's buffer exists, and that the offset is in it.
    unsafe {
        let offset = netmap_roffset(&*ring, &*slot);
        netmap_buf(ring, (*slot).buf_idx).add(offset as usize)
    }
}

/// Returns the index of the buffer that contains the address `buf`. Returns `None` if `buf` is
/// before the first buffer.
///
/// # Safety
/// `ring` points to a ring in a region mapped from netmap.
#[inline]
pub unsafe fn netmap_buf_idx(ring: *const netmap_ring, buf: *const u8) -> Option<u32> {
    // SAFETY: the caller guarantees that the ring is valid.
    let (buf_ofs, buf_size) = unsafe { ((*ring).buf_ofs, (*ring).nr_buf_size) };
    let first = ring.addr().checked_add_signed(buf_ofs as isize)?;
    let index = buf
        .addr()
        .checked_sub(first)?
        .checked_div(buf_size as usize)?;
    u32::try_from(index).ok()
}

/// Returns a packet's offset in its buffer, in bytes. It is 0 if the ring has no offsets.
#[inline]
pub const fn netmap_roffset(ring: &netmap_ring, slot: &netmap_slot) -> u64 {
    slot.ptr & ring.offset_mask
}

/// Sets a packet's offset in its buffer, in bytes. The other bits of [`netmap_slot::ptr`] stay
/// unchanged. If the ring has no offsets, nothing changes.
#[inline]
pub const fn netmap_woffset(ring: &netmap_ring, slot: &mut netmap_slot, offset: u64) {
    slot.ptr = slot.ptr & !ring.offset_mask | offset & ring.offset_mask;
}

/// Returns the index of the slot after slot `i`. The last slot is followed by slot 0.
#[inline]
pub const fn nm_ring_next(ring: &netmap_ring, i: u32) -> u32 {
    let next = i.wrapping_add(1);
    if next == ring.num_slots { 0 } else { next }
}

/// Returns the number of slots that the program owns, from `head` up to, but not including, `tail`.
#[inline]
pub const fn nm_ring_space(ring: &netmap_ring) -> u32 {
    let ahead = ring.tail.wrapping_sub(ring.head);
    if ring.tail >= ring.head {
        ahead
    } else {
        ahead.wrapping_add(ring.num_slots)
    }
}

/// Returns true if the program owns no slot.
#[inline]
pub const fn nm_ring_empty(ring: &netmap_ring) -> bool {
    ring.head == ring.tail
}

/// Returns true if a TX ring has unsent packets.
#[inline]
pub const fn nm_tx_pending(ring: &netmap_ring) -> bool {
    nm_ring_next(ring, ring.tail) != ring.head
}
