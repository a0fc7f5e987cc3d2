//! Finds rings and buffers, and does arithmetic on slot indices.
#![allow(unsafe_code)]

use super::{netmap_if, netmap_ring};

/// Returns TX ring number `index`. The NIC's rings come first, followed by the host stack's rings.
///
/// # Safety
/// `nifp` points into a region mapped from netmap, at the offset that the registration returned.
/// `index` is below `ni_tx_rings + ni_host_tx_rings`.
pub unsafe fn netmap_txring(nifp: *mut netmap_if, index: u32) -> *mut netmap_ring {
    // SAFETY: the caller guarantees that `nifp` is valid and that TX ring `index` exists.
    unsafe { ring_at(nifp, index as usize) }
}

/// Returns RX ring number `index`. The NIC's rings come first, followed by the host stack's rings.
///
/// # Safety
/// `nifp` points into a region mapped from netmap, at the offset that the registration returned.
/// `index` is below `ni_rx_rings + ni_host_rx_rings`.
pub unsafe fn netmap_rxring(nifp: *mut netmap_if, index: u32) -> *mut netmap_ring {
    // SAFETY: the caller guarantees that `nifp` is valid and that RX ring `index` exists. In
    // `ring_ofs`, the entries of all TX rings precede those of the RX rings.
    unsafe {
        let before = (*nifp).ni_tx_rings + (*nifp).ni_host_tx_rings;
        ring_at(nifp, before as usize + index as usize)
    }
}

/// Returns the ring whose offset is entry `entry` of `ring_ofs`.
///
/// # Safety
/// `nifp` points to a `netmap_if` in a region mapped from netmap, and the entry exists.
unsafe fn ring_at(nifp: *mut netmap_if, entry: usize) -> *mut netmap_ring {
    // SAFETY: the kernel has written this entry after the netmap_if. A ring lies at that offset in
    // the same region, correctly aligned.
    unsafe {
        let ring_ofs = (&raw const (*nifp).ring_ofs).cast::<isize>();
        nifp.byte_offset(*ring_ofs.add(entry)).cast()
    }
}

/// Returns the start of buffer `index`. The index comes from [`super::netmap_slot::buf_idx`] or
/// from the list of spare buffers.
///
/// # Safety
/// `ring` points to a ring in a region mapped from netmap, and `index` identifies a buffer in that
/// region.
pub unsafe fn netmap_buf(ring: *mut netmap_ring, index: u32) -> *mut u8 {
    // SAFETY: buffers of `nr_buf_size` bytes start at `buf_ofs` from the ring, in the same region.
    unsafe {
        let first = ring.byte_offset((*ring).buf_ofs as isize);
        first
            .byte_add(index as usize * (*ring).nr_buf_size as usize)
            .cast()
    }
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
