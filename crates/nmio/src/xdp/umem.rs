//! The packet memory that is shared with the kernel (UMEM).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::huge_pages;
use super::mapping::Mapping;
use crate::device::{MemoryFacts, PacketMemory};
use crate::sys;

/// Memory that the kernel reads packets from and writes packets to. It is a file without a name, so that
/// another process can register it.
pub(super) struct Umem {
    /// Its size is a multiple of the page size.
    map: Mapping,
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
        Ok(Self {
            map: Mapping::of(file.as_fd(), len, 0, true)?,
            page_size,
            file: Arc::new(file),
        })
    }

    /// Returns this memory with chunks of this number of bytes, for another process.
    pub(super) fn shared(&self, chunk: u32) -> PacketMemory {
        let len = self.map.len();
        PacketMemory::new(MemoryFacts { len, chunk }, Arc::clone(&self.file))
    }

    /// Makes this the packet memory of a socket, which is divided into chunks of this number of
    /// bytes.
    ///
    /// # Errors
    /// The kernel's error, for example if the limit on locked memory is too low.
    pub(super) fn register(&self, socket: BorrowedFd<'_>, chunk: u32) -> io::Result<()> {
        register(&self.map, socket, chunk)
    }

    /// Returns the address of the first byte. Its provenance covers the whole memory.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.map.start()
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the size in bytes of the pages.
    pub(super) fn page_size(&self) -> u64 {
        self.page_size
    }
}

/// Gives a socket the packet memory of a port in another process. The limit on locked memory holds for
/// the calling process, unless it has `CAP_IPC_LOCK`.
///
/// # Errors
/// The kernel's error.
pub(crate) fn register_memory(socket: BorrowedFd<'_>, memory: &PacketMemory) -> io::Result<()> {
    let MemoryFacts { len, chunk } = memory.facts();
    // The kernel keeps the pages, so they need not stay mapped.
    register(&Mapping::of(memory.file(), len, 0, false)?, socket, chunk)
}

fn register(map: &Mapping, socket: BorrowedFd<'_>, chunk: u32) -> io::Result<()> {
    let memory = libc::xdp_umem_reg {
        addr: map.start().as_ptr().expose_provenance() as u64,
        len: map.len() as u64,
        chunk_size: chunk,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::register_umem(socket, &memory)
}
