//! Memory that is mapped until it is dropped.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// A mapping that can be read and written.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, shared with all others who map it.
    pub(super) fn of(
        file: BorrowedFd<'_>,
        len: usize,
        offset: i64,
        populate: bool,
    ) -> io::Result<Self> {
        let populate = if populate { libc::MAP_POPULATE } else { 0 };
        Self::map(len, libc::MAP_SHARED | populate, file.as_raw_fd(), offset)
    }

    /// Maps `len` zeroed bytes of memory.
    #[cfg(test)]
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(len: usize, flags: i32, file: i32, offset: i64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the call creates a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            let offset = offset as libc::off_t;
            libc::mmap(ptr::null_mut(), len, access, flags, file, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).expect("mapped memory has an address"),
            len,
        })
    }

    /// Returns the address of the first byte. Its provenance covers the whole mapping.
    #[inline(always)]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no pointer into it outlives the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
