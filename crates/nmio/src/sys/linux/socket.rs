//! Sockets and their options.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::super::check;

/// Creates a socket that is closed on exec.
pub(super) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed; a nonnegative descriptor is new, and this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::socket(family, kind, protocol))?) })
}

/// Sets an `int` socket option.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: u32) -> io::Result<()> {
    // SAFETY: the pointer and the length describe a live u32.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of::<u32>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads an `int` socket option.
pub(crate) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the live i32.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value)
}

pub(super) fn bind<T>(socket: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: the callers pass a live socket address of type T.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(address).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Returns the layouts of the rings of an `AF_XDP` socket.
pub(crate) fn xdp_ring_layouts(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: the offsets are integers.
    unsafe { xdp_structure(fd, libc::XDP_MMAP_OFFSETS) }
}

/// Returns the kernel's counts of an `AF_XDP` socket.
pub(crate) fn xdp_statistics(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    // SAFETY: the counts are integers.
    unsafe { xdp_structure(fd, libc::XDP_STATISTICS) }
}

/// Reads an option of an `AF_XDP` socket that is a structure.
///
/// # Safety
/// All bit patterns are valid for `T`.
unsafe fn xdp_structure<T>(fd: BorrowedFd<'_>, name: i32) -> io::Result<T> {
    let mut value = mem::MaybeUninit::<T>::zeroed();
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the live value.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    // SAFETY: the value is initialised, and the caller guarantees that it is valid.
    Ok(unsafe { value.assume_init() })
}

/// Makes memory the packet memory of an `AF_XDP` socket. The kernel checks that the memory is mapped.
/// It writes packets to the chunks in the fill ring.
pub(crate) fn register_umem(fd: BorrowedFd<'_>, memory: &libc::xdp_umem_reg) -> io::Result<()> {
    // SAFETY: the pointer and the length describe a live structure.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_UMEM_REG,
            ptr::from_ref(memory).cast(),
            mem::size_of_val(memory) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Binds an `AF_XDP` socket to a queue of the interface with this index.
pub(crate) fn bind_xdp(fd: BorrowedFd<'_>, index: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    bind(fd, &address)
}
