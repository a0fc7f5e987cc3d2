//! CSB mode, and the sync loop in the kernel (`kloop`).
//!
//! In CSB mode, program and kernel exchange ring positions through arrays of [`nm_csb_atok`] and
//! [`nm_csb_ktoa`], instead of through the rings. [`nmreq_opt_csb`](crate::nmreq_opt_csb) turns it
//! on. `NIOCTXSYNC` and `NIOCRXSYNC` are refused then (`EBUSY`).
//!
//! A thread of the program calls
//! [`NETMAP_REQ_SYNC_KLOOP_START`](crate::NETMAP_REQ_SYNC_KLOOP_START), and syncs the rings in the
//! kernel until another thread calls
//! [`NETMAP_REQ_SYNC_KLOOP_STOP`](crate::NETMAP_REQ_SYNC_KLOOP_STOP). The other threads make no
//! system calls: they write positions with [`nm_sync_kloop_appl_write`], and read the kernel's with
//! [`nm_sync_kloop_appl_read`].
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Body of [`NETMAP_REQ_SYNC_KLOOP_START`](crate::NETMAP_REQ_SYNC_KLOOP_START).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_sync_kloop_start {
    /// How long the kernel sleeps when it finds no work, in microseconds, at most 1,000,000. It is
    /// ignored if eventfds wake the kernel.
    pub sleep_us: u32,
    /// Padding.
    pub pad1: u32,
}

/// A ring's positions, from the program (application) to the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nm_csb_atok {
    /// The program's [`netmap_ring::head`](crate::netmap_ring::head).
    pub head: u32,
    /// The program's [`netmap_ring::cur`](crate::netmap_ring::cur).
    pub cur: u32,
    /// Not 0 if the kernel shall notify the program when `hwtail` moves.
    pub appl_need_kick: u32,
    /// Flags of the sync.
    pub sync_flags: u32,
    /// Padding, up to a cache line.
    pub pad: [u32; 12],
}

/// A ring's positions, from the kernel to the program (application).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nm_csb_ktoa {
    /// Index of the first slot that the kernel has not yet processed.
    pub hwcur: u32,
    /// The kernel's [`netmap_ring::tail`](crate::netmap_ring::tail).
    pub hwtail: u32,
    /// Not 0 if the program shall notify the kernel when it has changed `head`.
    pub kern_need_kick: u32,
    /// Padding, up to a cache line.
    pub pad: [u32; 13],
}

/// Writes a ring's positions for the kernel. All earlier writes to slots and buffers become visible
/// first.
///
/// The kernel may see the new `cur` with the old `head`, but never the reverse. Otherwise `head`
/// could be ahead of `cur`, which the kernel refuses.
///
/// # Safety
/// `atok` points to the ring's entry. Until the entry is unmapped, it is accessed only by this
/// function, by other atomic accesses, and by the kernel.
#[inline]
pub unsafe fn nm_sync_kloop_appl_write(atok: *mut nm_csb_atok, cur: u32, head: u32) {
    // SAFETY: the caller guarantees that the entry is valid, and accessed only atomically. Its
    // fields are aligned, because the entry is.
    let (to_cur, to_head) = unsafe {
        (
            AtomicU32::from_ptr(&raw mut (*atok).cur),
            AtomicU32::from_ptr(&raw mut (*atok).head),
        )
    };
    fence(Ordering::Release);
    to_cur.store(cur, Ordering::Relaxed);
    fence(Ordering::Release);
    to_head.store(head, Ordering::Relaxed);
}

/// Reads a ring's positions from the kernel: `hwtail` and `hwcur`, in this order. Later reads of
/// slots and buffers see what the kernel wrote before it moved `hwtail`.
///
/// # Safety
/// `ktoa` points to the ring's entry. Until the entry is unmapped, it is accessed only by this
/// function, by other atomic accesses, and by the kernel.
#[inline]
pub unsafe fn nm_sync_kloop_appl_read(ktoa: *mut nm_csb_ktoa) -> (u32, u32) {
    // SAFETY: the caller guarantees that the entry is valid, and accessed only atomically. Its
    // fields are aligned, because the entry is.
    let (from_tail, from_cur) = unsafe {
        (
            AtomicU32::from_ptr(&raw mut (*ktoa).hwtail),
            AtomicU32::from_ptr(&raw mut (*ktoa).hwcur),
        )
    };
    let hwtail = from_tail.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    let hwcur = from_cur.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    (hwtail, hwcur)
}
