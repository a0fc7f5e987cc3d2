//! The buffers of a region, and the list of extra buffers, which are in no ring.
//!
//! A registration asks for extra buffers with [`nmreq_register::nr_extra_bufs`]. The list starts at
//! [`netmap_if::ni_bufs_head`]. The program takes buffers from the list, and exchanges them with
//! buffers in slots. When the descriptor is closed, the kernel frees the buffers in slots and in
//! the list. Before that, the program must put all other buffers that it has into the list.
//!
//! [`nmreq_register::nr_extra_bufs`]: crate::nmreq_register::nr_extra_bufs
#![allow(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::ptr::NonNull;

use crate::interface::netmap_if;
use crate::rings::netmap_ring;

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
            "netmap's list of extra buffers is damaged: \
             buffer {} is out of range or occurs twice",
            self.0
        )
    }
}

impl Error for BadExtraBuffer {}

/// Where the buffers of a region are.
///
/// All programs that use a region can write it, including the fields that describe its buffers.
/// This value has read them once and checked them. Therefore [`Buffers::get`] checks indices from
/// slots and lists reliably, which [`netmap_buf`](crate::netmap_buf) does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    first: NonNull<u8>,
    size: u32,
    count: u32,
}

impl Buffers {
    /// Finds the buffers of the rings in a region of `len` bytes.
    ///
    /// Returns `None` if the ring does not describe buffers of at least four bytes in this region.
    ///
    /// # Safety
    /// `ring` points to a ring in the region.
    pub unsafe fn find(ring: *const netmap_ring, region: NonNull<u8>, len: usize) -> Option<Self> {
        // SAFETY: the caller guarantees that the ring is valid. Each field is read only once.
        let (buf_ofs, size) = unsafe {
            (
                (&raw const (*ring).buf_ofs).read_volatile(),
                (&raw const (*ring).nr_buf_size).read_volatile(),
            )
        };
        let ring_at = ring.addr().checked_sub(region.addr().get())?;
        let first_at = ring_at.checked_add_signed(isize::try_from(buf_ofs).ok()?)?;
        let bytes = len.checked_sub(first_at)?;
        if (size as usize) < size_of::<u32>() {
            return None;
        }
        Some(Self {
            // SAFETY: the first buffer is in the region, or at its end.
            first: unsafe { region.add(first_at) },
            size,
            count: u32::try_from(bytes / size as usize).ok()?,
        })
    }

    /// Returns the size of each buffer, in bytes.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the number of buffers between buffer 0 and the end of the region.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the start of buffer `index`, or `None` if it is not in the region.
    #[inline]
    pub fn get(&self, index: u32) -> Option<NonNull<u8>> {
        if index >= self.count {
            return None;
        }
        let offset = index as usize * self.size as usize;
        NonNull::new(self.first.as_ptr().wrapping_add(offset))
    }

    /// Takes buffers from the list of extra buffers, and writes their indices to `indices`.
    ///
    /// Returns the number of buffers taken. It is smaller than `indices.len()` if the list is
    /// shorter. The rest of the list remains. All taken buffers are in the region, and no index
    /// occurs twice in one call.
    ///
    /// # Errors
    /// Fails if the list contains an index that is out of range or that occurs twice. Then no
    /// buffer is taken, and the list has only the buffers before that index.
    ///
    /// # Safety
    /// `nifp` points to an interface in the region, which is still mapped. This program uses the
    /// buffers in the list for nothing else.
    pub unsafe fn take_extra(
        &self,
        nifp: *mut netmap_if,
        indices: &mut [u32],
    ) -> Result<usize, BadExtraBuffer> {
        // SAFETY: the caller guarantees that `nifp` is valid.
        let list = unsafe { &raw mut (*nifp).ni_bufs_head };
        // SAFETY: `list` is valid, and so are the buffers in the region, which nobody else uses.
        unsafe {
            let mut head = list.read_volatile();
            for taken in 0..indices.len() {
                if head == 0 {
                    list.write_volatile(0);
                    return Ok(taken);
                }
                let next = self.link(head);
                if next == TAKEN {
                    list.write_volatile(0);
                    self.give_extra(nifp, &indices[..taken]);
                    return Err(BadExtraBuffer(head));
                }
                self.set_link(head, TAKEN);
                indices[taken] = head;
                head = next;
            }
            list.write_volatile(head);
        }
        Ok(indices.len())
    }

    /// Puts buffers into the list of extra buffers, where [`Buffers::take_extra`] or the kernel
    /// finds them. Indices that are out of range are left out.
    ///
    /// # Safety
    /// `nifp` points to an interface in the region, which is still mapped. The program owns the
    /// buffers with these indices: they are in no slot, and not in the list.
    pub unsafe fn give_extra(&self, nifp: *mut netmap_if, indices: &[u32]) {
        // SAFETY: the caller guarantees that `nifp` is valid, and that the program owns the buffers.
        unsafe {
            let list = &raw mut (*nifp).ni_bufs_head;
            for &index in indices.iter().filter(|index| self.in_list(**index)) {
                self.set_link(index, list.read_volatile());
                list.write_volatile(index);
            }
        }
    }

    /// Returns true if the buffer can be in the list of extra buffers.
    fn in_list(&self, index: u32) -> bool {
        (FIRST_INDEX..self.count).contains(&index)
    }

    /// Returns the index of the buffer that follows a buffer in the list. Returns [`TAKEN`] if the
    /// buffer cannot be in the list.
    ///
    /// # Safety
    /// The region is still mapped.
    unsafe fn link(&self, index: u32) -> u32 {
        match self.get(index).filter(|_| self.in_list(index)) {
            // SAFETY: the buffer is in the region, and has at least four bytes. It may be unaligned.
            Some(buffer) => u32::from_ne_bytes(unsafe { buffer.cast::<[u8; 4]>().read_volatile() }),
            None => TAKEN,
        }
    }

    /// Sets the index of the buffer that follows a buffer in the list.
    ///
    /// # Safety
    /// The region is still mapped, and the program owns the buffer.
    unsafe fn set_link(&self, index: u32, next: u32) {
        if let Some(buffer) = self.get(index) {
            let bytes = buffer.cast::<[u8; 4]>();
            // SAFETY: the buffer is in the region, and has at least four bytes.
            unsafe { bytes.write_volatile(next.to_ne_bytes()) };
        }
    }
}
