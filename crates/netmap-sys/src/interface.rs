//! A bound port in the mapped region, and where its rings are.
#![allow(unsafe_code)]

use libc::{IFNAMSIZ, c_char};

use crate::rings::netmap_ring;

/// Interface flag ([`netmap_if::ni_flags`]): the port's memory region is private, not shared with
/// other ports.
pub const NI_PRIV_MEM: u32 = 0x1;

/// Describes a bound port and its rings. The kernel places this structure in the mapped region.
///
/// A program may write only the field `ni_bufs_head`. The offsets of the rings are directly after
/// the structure, where the empty array `ring_ofs` begins. [`netmap_txring`] and [`netmap_rxring`]
/// look them up.
#[repr(C)]
#[derive(Debug)]
pub struct netmap_if {
    /// Name of the interface.
    pub ni_name: [c_char; IFNAMSIZ],
    /// The API version.
    pub ni_version: u32,
    /// Interface flags: [`NI_PRIV_MEM`] or 0.
    pub ni_flags: u32,
    /// Number of TX rings of the NIC.
    pub ni_tx_rings: u32,
    /// Number of RX rings of the NIC.
    pub ni_rx_rings: u32,
    /// Index of the first spare buffer. The first four bytes of each spare buffer hold the index of
    /// the next spare buffer. 0 ends the list. See
    /// [`Buffers::take_extra`](crate::Buffers::take_extra).
    pub ni_bufs_head: u32,
    /// Number of TX rings of the host stack.
    pub ni_host_tx_rings: u32,
    /// Number of RX rings of the host stack.
    pub ni_host_rx_rings: u32,
    /// Unused.
    pub ni_spare1: [u32; 3],
    /// The offsets of the rings start here. They are in bytes, relative to this structure. Their
    /// order is: the NIC's TX rings, the host's TX rings, the NIC's RX rings, the host's RX rings.
    /// The offset of a ring to which the descriptor is not bound is 0.
    pub ring_ofs: [isize; 0],
}

/// Returns TX ring number `index`. The NIC's rings come first, followed by the host stack's rings.
///
/// # Safety
/// `nifp` points into a region mapped from netmap, at the offset that the registration returned.
/// `index` is below `ni_tx_rings + ni_host_tx_rings`, and the descriptor is bound to this ring.
pub unsafe fn netmap_txring(nifp: *mut netmap_if, index: u32) -> *mut netmap_ring {
    // SAFETY: the caller guarantees that `nifp` is valid and that TX ring `index` is bound.
    unsafe { ring_at(nifp, index as usize) }
}

/// Returns RX ring number `index`. The NIC's rings come first, followed by the host stack's rings.
///
/// # Safety
/// `nifp` points into a region mapped from netmap, at the offset that the registration returned.
/// `index` is below `ni_rx_rings + ni_host_rx_rings`, and the descriptor is bound to this ring.
pub unsafe fn netmap_rxring(nifp: *mut netmap_if, index: u32) -> *mut netmap_ring {
    // SAFETY: the caller guarantees that `nifp` is valid and that RX ring `index` is bound. In
    // `ring_ofs`, the entries of all TX rings precede those of the RX rings.
    unsafe {
        let before = (*nifp).ni_tx_rings as usize + (*nifp).ni_host_tx_rings as usize;
        ring_at(nifp, before + index as usize)
    }
}

/// Returns the ring whose offset is entry `entry` of `ring_ofs`.
///
/// # Safety
/// `nifp` points to a `netmap_if` in a region mapped from netmap, and the entry is that of a bound ring.
unsafe fn ring_at(nifp: *mut netmap_if, entry: usize) -> *mut netmap_ring {
    // SAFETY: the kernel has written this entry after the netmap_if. A ring lies at that offset in
    // the same region, correctly aligned.
    unsafe {
        let ring_ofs = (&raw const (*nifp).ring_ofs).cast::<isize>();
        nifp.byte_offset(*ring_ofs.add(entry)).cast()
    }
}
