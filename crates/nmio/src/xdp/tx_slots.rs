//! Puts frames that the driver has dropped back into the TX ring.
//!
//! In copy mode a driver may drop a frame instead of refusing it. For example, a veth without a
//! queueing discipline does so while its peer's queue is full. The wakeup then fails with `EBUSY`,
//! and the frame that the kernel took last is the dropped one. The frames behind it are still in
//! the ring.
//!
//! [`TxSlots`] maps the ring a second time and puts the dropped frame back at the ring's head. So a
//! device that is full for a short time causes neither loss nor reordering.
//!
//! Frames of several chunks need descriptors that `xsk-rs` cannot describe. [`TxSlots::stage`] writes
//! them.
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
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Option of a descriptor: the next one belongs to the same packet (`linux/if_xdp.h`).
const XDP_PKT_CONTD: u32 = 1;

/// A frame in the TX ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Offset of the frame's data in the UMEM, in bytes.
    pub(super) addr: u64,
    /// Length of the frame in bytes.
    pub(super) len: u32,
}

/// The frame that the driver dropped in the last wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) slot: Slot,
    /// Length of the longest frame that the driver has accepted since the last drop. `None` if
    /// there is none.
    pub(super) longest_accepted: Option<u32>,
}

/// A second mapping of a TX ring.
pub(super) struct TxSlots {
    map: NonNull<u8>,
    len: usize,
    offsets: libc::xdp_ring_offset,
    /// Number of slots minus one.
    mask: u32,
    /// Number of frames that the kernel has taken so far, modulo 2^32.
    consumed: u32,
    /// Value of `consumed` after the last drop.
    last_drop: u32,
    /// Number of descriptors written behind those that the kernel may read.
    staged: u32,
}

impl TxSlots {
    /// Maps the TX ring of a socket, which has `slots` slots.
    pub(super) fn map(fd: BorrowedFd<'_>, slots: u32) -> io::Result<Self> {
        let offsets = offsets(fd)?;
        let len = offsets.desc as usize + slots as usize * mem::size_of::<libc::xdp_desc>();
        // SAFETY: the call creates a new mapping, at an address that the kernel chooses.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                libc::XDP_PGOFF_TX_RING,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            map: NonNull::new(map.cast()).expect("mapped memory has an address"),
            len,
            offsets,
            mask: slots - 1,
            consumed: 0,
            last_drop: 0,
            staged: 0,
        })
    }

    /// Returns the number of frames in the ring that the kernel has not taken yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.sync_consumed();
        self.index(self.offsets.producer)
            .wrapping_sub(self.consumed)
    }

    /// Advances `consumed` to the position that the kernel has published. Returns true if this
    /// changes `consumed`. Must be called before each wakeup, so that [`dropped`](Self::dropped) can
    /// tell whether the kernel has published a position since.
    pub(super) fn sync_consumed(&mut self) -> bool {
        let published = self.index(self.offsets.consumer);
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
        // The ring still holds the descriptors of the last `mask` frames. Older ones may have been
        // overwritten.
        let accepted = dropped.wrapping_sub(self.last_drop).min(self.mask);
        let lengths = (1..=accepted).map(|back| self.read(dropped.wrapping_sub(back)).len);
        let longest_accepted = lengths.max();
        self.last_drop = self.consumed;
        Dropped {
            slot: self.read(dropped),
            longest_accepted,
        }
    }

    /// Puts the dropped frame before the frames that the kernel has not taken, and moves each of
    /// these back by one slot. Returns the last of them, which the caller must append to the ring.
    pub(super) fn put_back(&mut self, dropped: Slot) -> Slot {
        let end = self.index(self.offsets.producer);
        let mut carried = dropped;
        let mut position = self.consumed;
        while position != end {
            let next = self.read(position);
            self.write(position, carried, 0);
            carried = next;
            position = position.wrapping_add(1);
        }
        carried
    }

    /// Writes a descriptor behind the last one. The ring must have room for it. `more` is true if the
    /// next descriptor belongs to the same packet.
    ///
    /// A ring that is filled by this method must be filled by no other one, because libxdp keeps its
    /// own count.
    pub(super) fn stage(&mut self, addr: u64, len: u32, more: bool) {
        let position = self.index(self.offsets.producer).wrapping_add(self.staged);
        let options = if more { XDP_PKT_CONTD } else { 0 };
        self.write(position, Slot { addr, len }, options);
        self.staged += 1;
    }

    /// Allows the kernel to read the descriptors that [`stage`](Self::stage) has written.
    pub(super) fn publish(&mut self) {
        let producer = self.index_cell(self.offsets.producer);
        let end = producer.load(Ordering::Relaxed).wrapping_add(self.staged);
        producer.store(end, Ordering::Release);
        self.staged = 0;
    }

    fn index(&self, offset: u64) -> u32 {
        self.index_cell(offset).load(Ordering::Acquire)
    }

    fn index_cell(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel places an aligned u32 at this offset in the mapping. The kernel and
        // libxdp access it atomically, too.
        unsafe { self.map.add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    fn desc(&self, position: u32) -> NonNull<libc::xdp_desc> {
        let first = self.offsets.desc as usize;
        let desc = (position & self.mask) as usize * mem::size_of::<libc::xdp_desc>();
        // SAFETY: the mask keeps the descriptor within the mapping.
        unsafe { self.map.add(first + desc).cast() }
    }

    fn read(&self, position: u32) -> Slot {
        // SAFETY: the descriptor is mapped and aligned. Nothing writes it during the read: the
        // kernel only reads the TX ring, and libxdp writes it only on this thread.
        let desc = unsafe { self.desc(position).read() };
        Slot {
            addr: desc.addr,
            len: desc.len,
        }
    }

    fn write(&mut self, position: u32, slot: Slot, options: u32) {
        let desc = libc::xdp_desc {
            addr: slot.addr,
            len: slot.len,
            options,
        };
        // SAFETY: the descriptor is mapped and aligned. The kernel does not read it during this
        // call. It is either not published yet, or the kernel reads it only in a system call of this
        // thread.
        unsafe { self.desc(position).write(desc) }
    }
}

impl Drop for TxSlots {
    fn drop(&mut self) {
        // SAFETY: the mapping was created by `map`, and no pointer into it outlives this value.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.len) };
    }
}

/// Returns the layout of the socket's TX ring.
fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_ring_offset> {
    // SAFETY: the offsets are integers, for which zero is valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&offsets) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the live offsets.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(offsets.tx)
}

#[cfg(test)]
#[path = "tx_slots_tests.rs"]
mod tests;
