//! What Linux knows about this process.

use std::ffi::CStr;
use std::fs;
use std::io;

/// Returns the number of threads of this process.
pub(super) fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Sets the name under which tools show this process, which has one thread.
pub(in crate::helper) fn set_name(name: &CStr) -> io::Result<()> {
    Ok(rustix::thread::set_name(name)?)
}
