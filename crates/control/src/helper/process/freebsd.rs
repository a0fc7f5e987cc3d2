//! What FreeBSD knows about this process.

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;

/// Returns the number of threads of this process.
pub(super) fn threads() -> io::Result<usize> {
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
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(in crate::helper) fn set_name(name: &CStr) -> io::Result<()> {
    // SAFETY: both arguments are C strings, and the format takes the second one. The leading minus
    // sign keeps the function from writing the program's name before it.
    unsafe { libc::setproctitle(c"-%s".as_ptr(), name.as_ptr()) };
    Ok(())
}
