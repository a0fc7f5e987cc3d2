//! Ways from one structure to the next, and arithmetic on ring positions.
#![allow(unsafe_code)]

use super::{netmap_if, netmap_ring};

/// The NIC's TX ring `index` (the host's follow the NIC's).
///
/// # Safety
/// `nifp` points into a region that netmap has mapped, at the offset that
/// the registration gave, and `index` is below `ni_tx_rings +
/// ni_host_tx_rings`.
pub unsafe fn netmap_txring(nifp: *mut netmap_if, index: u32) -> *mut netmap_ring {
    // SAFETY: as the caller's, which is this one's.
    unsafe { ring_at(nifp, index as usize) }
}

/// The NIC's RX ring `index` (the host's follow the NIC's).
///
/// # Safety
/// As for [`netmap_txring`], with `index` below `ni_rx_rings +
/// ni_host_rx_rings`.
pub unsafe fn netmap_rxring(nifp: *mut netmap_if, index: u32) -> *mut netmap_ring {
    // SAFETY: `nifp` points at a netmap_if, and what stands before the RX
    // rings' offsets is counted here.
    unsafe {
        let before = (*nifp).ni_tx_rings + (*nifp).ni_host_tx_rings;
        ring_at(nifp, before as usize + index as usize)
    }
}

/// The ring whose offset is entry `entry` of `ring_ofs`.
///
/// # Safety
/// `nifp` points into a region that netmap has mapped, and the entry exists.
unsafe fn ring_at(nifp: *mut netmap_if, entry: usize) -> *mut netmap_ring {
    // SAFETY: the kernel has put the entry behind the netmap_if, and a ring
    // at that distance inside the same region, aligned as it must be.
    unsafe {
        let ring_ofs = (&raw const (*nifp).ring_ofs).cast::<isize>();
        nifp.byte_offset(*ring_ofs.add(entry)).cast()
    }
}

/// The start of buffer `index`, which [`super::netmap_slot::buf_idx`] or the
/// list of spare buffers has given.
///
/// # Safety
/// `ring` points at a ring in a region that netmap has mapped, and `index` is
/// of a buffer in it.
pub unsafe fn netmap_buf(ring: *mut netmap_ring, index: u32) -> *mut u8 {
    // SAFETY: the buffers of `nr_buf_size` bytes lie at `buf_ofs` from the
    // ring, inside the same region.
    unsafe {
        let first = ring.byte_offset((*ring).buf_ofs as isize);
        first
            .byte_add(index as usize * (*ring).nr_buf_size as usize)
            .cast()
    }
}

/// The slot after slot `i`.
#[inline]
pub const fn nm_ring_next(ring: &netmap_ring, i: u32) -> u32 {
    let next = i.wrapping_add(1);
    if next == ring.num_slots { 0 } else { next }
}

/// Slots that the program owns: from `head` to before `tail`.
#[inline]
pub const fn nm_ring_space(ring: &netmap_ring) -> u32 {
    let ahead = ring.tail.wrapping_sub(ring.head);
    if ring.tail >= ring.head {
        ahead
    } else {
        ahead.wrapping_add(ring.num_slots)
    }
}

/// Whether the program owns no slot.
#[inline]
pub const fn nm_ring_empty(ring: &netmap_ring) -> bool {
    ring.head == ring.tail
}

/// Whether a TX ring has packets that are not sent yet.
#[inline]
pub const fn nm_tx_pending(ring: &netmap_ring) -> bool {
    nm_ring_next(ring, ring.tail) != ring.head
}
