//! What is special on FreeBSD.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::ptr;

/// See the Linux constant of the same name. Here all threads of the process have the same sandbox.
pub const CONFINES_EACH_THREAD: bool = false;

/// No hints, because no content can be reloaded.
#[derive(Debug)]
pub struct FileHints;

impl FileHints {
    /// Returns no hints.
    pub fn about<'f>(_: impl Iterator<Item = &'f Path>) -> Self {
        Self
    }

    /// Returns nothing.
    pub fn take(&self) -> HashSet<PathBuf> {
        HashSet::new()
    }
}

/// Returns `None`, because nothing here reads how much memory is free.
pub fn free_memory() -> Option<u64> {
    None
}

/// Does nothing, because threads have no priority of their own.
pub(crate) fn give_way() {}

/// Returns the number of threads of this process.
pub(crate) fn threads() -> io::Result<usize> {
    let query = [
        libc::CTL_KERN,
        libc::KERN_PROC,
        libc::KERN_PROC_PID,
        std::process::id().cast_signed(),
    ];
    let mut process = MaybeUninit::<libc::kinfo_proc>::zeroed();
    let mut len = mem::size_of::<libc::kinfo_proc>();
    // SAFETY: the query and the length describe live memory. The kernel writes at most `len` bytes.
    let result = unsafe {
        libc::sysctl(
            query.as_ptr(),
            query.len() as libc::c_uint,
            process.as_mut_ptr().cast(),
            &raw mut len,
            ptr::null(),
            0,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the structure is plain data, for which all zeroes are valid.
    let process = unsafe { process.assume_init() };
    usize::try_from(process.ki_numthreads).map_err(io::Error::other)
}

/// Sets the name under which tools show this process.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail")]
pub(crate) fn set_process_name(name: &CStr) -> io::Result<()> {
    // SAFETY: both arguments are C strings, and the format takes the second one. The leading minus
    // sign keeps the function from writing the program's name before it.
    unsafe { libc::setproctitle(c"-%s".as_ptr(), name.as_ptr()) };
    Ok(())
}

/// Returns the address of a socket at a path.
pub(crate) fn socket_address(path: &OsStr) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(path)
}

/// Returns false, because nothing here reads without waiting.
pub(crate) fn read_if_cached(_: &File, _: &mut [IoSliceMut<'_>], _: usize, _: u64) -> bool {
    false
}

/// Returns `None`, because nothing here reads directly.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail")]
pub(crate) fn read_direct(_: &File, _: &mut [IoSliceMut<'_>], _: u64) -> io::Result<Option<usize>> {
    Ok(None)
}

/// Refuses direct reads.
pub(crate) fn set_direct(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
