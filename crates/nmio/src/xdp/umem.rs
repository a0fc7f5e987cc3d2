//! The packet memory that is shared with the kernel (UMEM).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::huge_pages;
use crate::device::{MemoryFacts, PacketMemory};
use crate::sys;

/// Memory that the kernel reads packets from and writes packets to. It is a file without a name, so that
/// another process can register it.
pub(super) struct Umem {
    map: NonNull<u8>,
    /// Size in bytes, a multiple of the page size.
    len: usize,
    page_size: u64,
    file: Arc<OwnedFd>,
}

impl Umem {
    /// Allocates at least this number of zeroed bytes. Uses huge pages if enough are free.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub(super) fn allocate(bytes: u64) -> io::Result<Self> {
        if let Some(page_size) = huge_pages::size_if_free(bytes)
            && let Ok(umem) = Self::create(bytes, page_size, libc::MFD_HUGETLB)
        {
            return Ok(umem);
        }
        Self::create(bytes, huge_pages::NORMAL_PAGE, 0)
    }

    fn create(bytes: u64, page_size: u64, flags: libc::c_uint) -> io::Result<Self> {
        // Unmapping huge pages fails unless the size is a multiple of the page size.
        let len = usize::try_from(bytes.next_multiple_of(page_size))
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let file = sys::memory_file(len as u64, flags)?;
        Self::map(Arc::new(file), len, page_size, libc::MAP_POPULATE)
    }

    /// Maps the packet memory of a port in another process.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn of(memory: &PacketMemory) -> io::Result<Self> {
        let file = memory.file().try_clone_to_owned()?;
        Self::map(
            Arc::new(file),
            memory.facts().len,
            huge_pages::NORMAL_PAGE,
            0,
        )
    }

    fn map(file: Arc<OwnedFd>, len: usize, page_size: u64, flags: i32) -> io::Result<Self> {
        // SAFETY: the call creates a new mapping, at an address that the kernel chooses.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | flags,
                file.as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            map: NonNull::new(map.cast()).expect("mapped memory has an address"),
            len,
            page_size,
            file,
        })
    }

    /// Returns this memory with chunks of this number of bytes, for another process.
    pub(super) fn shared(&self, chunk: u32) -> PacketMemory {
        let len = self.len;
        PacketMemory::new(MemoryFacts { len, chunk }, Arc::clone(&self.file))
    }

    /// Makes this the packet memory of a socket, which is divided into chunks of this number of
    /// bytes.
    ///
    /// # Errors
    /// The kernel's error, for example if the limit on locked memory is too low.
    pub(super) fn register(&self, socket: BorrowedFd<'_>, chunk: u32) -> io::Result<()> {
        let memory = libc::xdp_umem_reg {
            addr: self.map.as_ptr().expose_provenance() as u64,
            len: self.len as u64,
            chunk_size: chunk,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        sys::register_umem(socket, &memory)
    }

    /// Returns the address of the first byte. Its provenance covers the whole memory.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.map
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the size in bytes of the pages.
    pub(super) fn page_size(&self) -> u64 {
        self.page_size
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's. The owners of the frames in it keep the value alive.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.len) };
    }
}
