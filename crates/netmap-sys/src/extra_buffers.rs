//! Extra buffers: a list of spare buffers that are in no ring.
//!
//! A registration asks for them with [`nmreq_register::nr_extra_bufs`]. The list starts at
//! [`netmap_if::ni_bufs_head`]. The program takes buffers from the list, and exchanges them with
//! buffers in slots. When the descriptor is closed, the kernel frees the buffers in the list. The
//! program must therefore put as many back, though not the same ones.
//!
//! [`nmreq_register::nr_extra_bufs`]: crate::nmreq_register::nr_extra_bufs
#![allow(unsafe_code)]

use std::error::Error;
use std::fmt;

use crate::interface::netmap_if;
use crate::rings::{netmap_buf, netmap_ring};

/// Lowest index of a buffer that can be in the list. 0 ends the list, and netmap keeps 1.
const FIRST_INDEX: u32 = 2;

/// Written to a buffer that has been taken, instead of the index of the next one. It is no index
/// of a buffer.
const TAKEN: u32 = u32::MAX;

/// The list of extra buffers is damaged. It contains this index, which is not one of a free buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadExtraBuffer(pub u32);

impl fmt::Display for BadExtraBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "netmap's list of extra buffers is damaged at buffer {}",
            self.0
        )
    }
}

impl Error for BadExtraBuffer {}

/// Takes buffers from the list of extra buffers, and writes their indices to `indices`.
///
/// Returns the number of buffers taken. It is smaller than `indices.len()` if the list is shorter.
/// The rest of the list remains.
///
/// `buffers` is the number of buffers in the region; see
/// [`netmap_buf_count`](crate::netmap_buf_count). Taken indices are below it, and no index occurs
/// twice in one call.
///
/// # Errors
/// Fails if the list contains an index that is out of range or that occurs twice. Then no buffer is
/// taken, and the list has only the buffers before that index.
///
/// # Safety
/// `nifp` and `ring` point into the same region mapped from netmap. All buffers with indices below
/// `buffers` are in this region. No other thread uses the buffers in the list.
pub unsafe fn netmap_take_extra_bufs(
    nifp: *mut netmap_if,
    ring: *mut netmap_ring,
    buffers: u32,
    indices: &mut [u32],
) -> Result<usize, BadExtraBuffer> {
    // SAFETY: the caller guarantees that `nifp` is valid. Each index is below `buffers`, so its
    // buffer is in the region, and holds at least four bytes. Nobody else uses this buffer.
    unsafe {
        let mut head = (*nifp).ni_bufs_head;
        for taken in 0..indices.len() {
            if head == 0 {
                (*nifp).ni_bufs_head = 0;
                return Ok(taken);
            }
            let in_range = (FIRST_INDEX..buffers).contains(&head);
            let next = if in_range { link(ring, head) } else { TAKEN };
            if next == TAKEN {
                (*nifp).ni_bufs_head = 0;
                netmap_give_extra_bufs(nifp, ring, &indices[..taken]);
                return Err(BadExtraBuffer(head));
            }
            set_link(ring, head, TAKEN);
            indices[taken] = head;
            head = next;
        }
        (*nifp).ni_bufs_head = head;
    }
    Ok(indices.len())
}

/// Puts buffers into the list of extra buffers, where [`netmap_take_extra_bufs`] or the kernel
/// finds them.
///
/// # Safety
/// `nifp` and `ring` point into the same region mapped from netmap. The buffers with these indices
/// are in this region. The program owns them: they are in no slot, and not in the list.
pub unsafe fn netmap_give_extra_bufs(
    nifp: *mut netmap_if,
    ring: *mut netmap_ring,
    indices: &[u32],
) {
    for &index in indices {
        // SAFETY: the caller guarantees that `nifp` is valid, and that the program owns the buffer.
        unsafe {
            set_link(ring, index, (*nifp).ni_bufs_head);
            (*nifp).ni_bufs_head = index;
        }
    }
}

/// Returns the index of the buffer that follows a buffer in the list.
///
/// # Safety
/// `ring` points into a region mapped from netmap, and `index` identifies a buffer in that region.
unsafe fn link(ring: *mut netmap_ring, index: u32) -> u32 {
    // SAFETY: the caller guarantees that the buffer exists. It may be unaligned in external memory.
    unsafe { netmap_buf(ring, index).cast::<u32>().read_unaligned() }
}

/// Sets the index of the buffer that follows a buffer in the list.
///
/// # Safety
/// As for [`link`], and no other thread uses the buffer.
unsafe fn set_link(ring: *mut netmap_ring, index: u32, next: u32) {
    // SAFETY: the caller guarantees that the buffer exists and is unused.
    unsafe {
        netmap_buf(ring, index).cast::<u32>().write_unaligned(next);
    }
}
