//! What is special on Linux.

mod file_hints;
mod memory;
mod way;

use std::ffi::{CStr, OsStr};
use std::fs::{File, read_dir};
use std::io::{self, IoSliceMut};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;

pub use file_hints::FileHints;
pub use memory::free_memory;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2};
pub(crate) use way::give_way;

/// Whether each thread has a sandbox of its own. Otherwise no thread of a server can open files or use new
/// sockets after the start. Such a server has no reload and no threads that read files for the workers.
pub const CONFINES_EACH_THREAD: bool = true;

/// Returns the number of threads of this process.
pub(crate) fn threads() -> io::Result<usize> {
    Ok(read_dir("/proc/self/task")?.count())
}

/// Sets the name under which tools show this process, which has one thread.
pub(crate) fn set_process_name(name: &CStr) -> io::Result<()> {
    Ok(rustix::thread::set_name(name)?)
}

/// Returns the address that a text names: a path, or `@` and an abstract name.
pub(crate) fn socket_address(text: &OsStr) -> io::Result<SocketAddr> {
    match text.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(text),
    }
}

/// Reads `len` bytes at `offset` if the page cache has all of them. Returns true if it has.
pub(crate) fn read_if_cached(
    file: &File,
    buffers: &mut [IoSliceMut<'_>],
    len: usize,
    offset: u64,
) -> bool {
    preadv2(file, buffers, offset, ReadWriteFlags::NOWAIT).is_ok_and(|read| read >= len)
}

/// Reads a file that [`set_direct`] has prepared. Returns the number of bytes, which is less than the
/// buffers have only at the end of the file. Returns `None` if the file system refuses the read.
pub(crate) fn read_direct(
    file: &File,
    buffers: &mut [IoSliceMut<'_>],
    offset: u64,
) -> io::Result<Option<usize>> {
    match preadv(file, buffers, offset) {
        Ok(read) => Ok(Some(read)),
        Err(Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lets all reads of an open file bypass the page cache.
pub(crate) fn set_direct(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::DIRECT)?)
}
