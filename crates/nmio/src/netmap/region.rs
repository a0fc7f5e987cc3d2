//! The memory that a netmap port shares with the kernel: descriptions, rings and buffers.
#![allow(unsafe_code)]

use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use netmap_sys::{Buffers, netmap_if, netmap_ring, netmap_slot};

/// Minimum size of a buffer, in bytes, that the port accepts.
const MIN_BUFFER: u32 = 256;
/// Maximum number of rings of each kind that an interface may report.
const MAX_RINGS: u32 = 4096;

/// A region of memory that contains rings and buffers.
///
/// The kernel writes the region, and so may other programs that share it. So everything that is
/// read from it is checked before it is used as an offset or an index.
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
    _memory: Box<dyn Any>,
}

/// The rings to use of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rings {
    /// A ring pair of the device.
    Device(u32),
    /// A ring pair of the host's stack.
    Host(u32),
}

/// A ring in the region, whose layout has been checked.
#[derive(Clone, Copy)]
pub(super) struct Located {
    pub(super) ring: NonNull<netmap_ring>,
    pub(super) slots: NonNull<netmap_slot>,
    pub(super) num_slots: u32,
}

/// A mapping, which is removed when this value is dropped.
struct Mapping(NonNull<u8>, usize);

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this address and length, and its owner, the region,
        // is gone.
        unsafe { libc::munmap(self.0.as_ptr().cast(), self.1) };
    }
}

impl Region {
    /// Maps `len` bytes of a registered netmap descriptor.
    pub(super) fn map(file: BorrowedFd<'_>, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| malformed("the size of the memory"))?;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other memory.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).expect("a mapping is never at address 0");
        // SAFETY: the mapping has `len` bytes, and lives as long as the value passed here.
        Ok(unsafe { Self::new(base, len, Box::new(Mapping(base, len))) })
    }

    /// Creates a region over memory that `memory` keeps alive.
    ///
    /// # Safety
    /// `len` initialized bytes from `base` are valid for reads and writes as long as `memory`
    /// lives. No Rust reference to them exists during that time, except through this region.
    pub(super) unsafe fn new(base: NonNull<u8>, len: usize, memory: Box<dyn Any>) -> Self {
        Self {
            base,
            len,
            _memory: memory,
        }
    }

    /// Returns a pointer to a `T` at `offset`, if it is in the region and correctly aligned.
    fn at<T>(&self, offset: usize, count: usize) -> Option<NonNull<T>> {
        let bytes = count.checked_mul(size_of::<T>())?;
        let end = offset.checked_add(bytes)?;
        // SAFETY: the offset is in the region, or at its end if `bytes` is 0.
        let pointer = (end <= self.len).then(|| unsafe { self.base.add(offset) })?;
        let pointer = pointer.cast::<T>();
        pointer.is_aligned().then_some(pointer)
    }

    /// Returns the offset of an address in the region.
    fn offset_of<T>(&self, pointer: *const T) -> usize {
        pointer.addr().wrapping_sub(self.base.addr().get())
    }

    /// Finds the interface's description at `offset`, which the registration returned.
    pub(super) fn interface(&self, offset: u64) -> io::Result<NonNull<netmap_if>> {
        let offset = usize::try_from(offset).ok();
        offset
            .and_then(|offset| self.at(offset, 1))
            .ok_or_else(|| malformed("the place of the interface"))
    }

    /// Finds the TX and the RX ring of a pair.
    pub(super) fn rings(
        &self,
        interface: NonNull<netmap_if>,
        rings: Rings,
    ) -> io::Result<(Located, Located)> {
        // SAFETY: `interface` points into the region; all bit patterns are valid numbers.
        let (tx, rx, host_tx, host_rx) = unsafe {
            let interface = interface.as_ptr();
            (
                (*interface).ni_tx_rings,
                (*interface).ni_rx_rings,
                (*interface).ni_host_tx_rings,
                (*interface).ni_host_rx_rings,
            )
        };
        let counts = [tx, rx, host_tx, host_rx];
        if counts.iter().any(|count| *count > MAX_RINGS) {
            return Err(malformed("the number of rings"));
        }
        // If there are fewer rings of one kind, the kernel has bound the first of that kind.
        let pick = |index: u32, count: u32| if index < count { index } else { 0 };
        let (tx_index, rx_index) = match rings {
            Rings::Device(index) => (pick(index, tx), pick(index, rx)),
            Rings::Host(index) => (tx + pick(index, host_tx), rx + pick(index, host_rx)),
        };
        let list = self.offset_of(interface.as_ptr()) + size_of::<netmap_if>();
        let entries = self.at::<isize>(list, counts.iter().sum::<u32>() as usize);
        let entries = entries.ok_or_else(|| malformed("the list of rings"))?;
        // In the list, the entries of all TX rings precede those of the RX rings.
        let find = |entry: u32| {
            // SAFETY: the list has this entry.
            let offset = unsafe { entries.add(entry as usize).read_volatile() };
            // The kernel writes 0 for rings that the descriptor is not bound to.
            let offset = Some(offset).filter(|offset| *offset != 0);
            let at = offset.and_then(|offset| {
                self.offset_of(interface.as_ptr())
                    .checked_add_signed(offset)
            });
            self.locate(at.ok_or_else(|| malformed("the place of a ring"))?)
        };
        Ok((find(tx_index)?, find(tx + host_tx + rx_index)?))
    }

    /// Checks that a ring and its slots are in the region.
    fn locate(&self, offset: usize) -> io::Result<Located> {
        let bad = || malformed("the place of a ring");
        let ring = self.at::<netmap_ring>(offset, 1).ok_or_else(bad)?;
        // SAFETY: the ring is in the region.
        let num_slots = unsafe { (&raw const (*ring.as_ptr()).num_slots).read_volatile() };
        let slots = self.at(offset + size_of::<netmap_ring>(), num_slots as usize);
        if num_slots < 2 {
            return Err(malformed("the number of slots"));
        }
        Ok(Located {
            ring,
            slots: slots.ok_or_else(bad)?,
            num_slots,
        })
    }

    /// Finds the buffers to which `ring` refers.
    pub(super) fn buffers(&self, ring: Located) -> io::Result<Buffers> {
        // SAFETY: the ring is in the region.
        unsafe { Buffers::find(ring.ring.as_ptr(), self.base, self.len) }
            .filter(|buffers| buffers.size() >= MIN_BUFFER && buffers.count() > 0)
            .ok_or_else(|| malformed("the place or the size of the buffers"))
    }

    /// Takes the extra buffers of `interface`, which are at most `most`.
    pub(super) fn take_extra(
        buffers: &Buffers,
        interface: NonNull<netmap_if>,
        most: u32,
    ) -> io::Result<Vec<u32>> {
        let mut indices = vec![0; most as usize];
        // SAFETY: the interface is in the region. The buffers in its list belong to this program,
        // which does not use them yet.
        let taken = unsafe { buffers.take_extra(interface.as_ptr(), &mut indices) };
        indices.truncate(taken.map_err(|error| malformed(&error.to_string()))?);
        Ok(indices)
    }
}

/// Returns the error for a value that the kernel cannot have written.
fn malformed(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("netmap reports an impossible value: {what}"),
    )
}
