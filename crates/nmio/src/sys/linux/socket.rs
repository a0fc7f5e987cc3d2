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
