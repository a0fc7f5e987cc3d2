//! Attaches an XDP program, in native or generic mode, and writes to its maps. The kernel detaches
//! the program when the BPF link's descriptor is closed, at the latest when the process exits.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

/// Attaches `program` to the interface with index `interface`, as a BPF link (`BPF_LINK_CREATE`).
/// The program stays attached while the returned descriptor is open in some process.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    generic: bool,
) -> io::Result<OwnedFd> {
    // SAFETY: the options are plain data, for which all zeroes mean "none".
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { mem::zeroed() };
    options.sz = mem::size_of_val(&options) as _;
    options.flags = if generic {
        libbpf_sys::XDP_FLAGS_SKB_MODE
    } else {
        libbpf_sys::XDP_FLAGS_DRV_MODE
    };
    // SAFETY: the program descriptor is live, and the options are live and have the size that they
    // state. Interface indices are positive.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            interface.cast_signed(),
            libbpf_sys::BPF_XDP,
            &raw const options,
        )
    };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the call has created this descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Writes one element of a map, which has keys and values of these sizes.
///
/// # Errors
/// The kernel's error, or `EINVAL` if the map's keys or values have other sizes.
pub(super) fn insert(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    if sizes(map)? != (key.len(), value.len()) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the map's keys and values are as long as the slices that the pointers point to.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            key.as_ptr().cast(),
            value.as_ptr().cast(),
            0,
        )
    };
    check(result)
}

/// Removes one element of a map, which has keys of this size. It need not exist.
///
/// # Errors
/// The kernel's error, or `EINVAL` if the map's keys have another size.
pub(super) fn remove(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    if sizes(map)?.0 != key.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the map's keys are as long as the slice that the pointer points to.
    let result = unsafe { libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), key.as_ptr().cast()) };
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

/// Returns the sizes of a map's keys and values in bytes.
fn sizes(map: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
    // SAFETY: the structure is plain data, for which all zeroes are valid.
    let mut info: libbpf_sys::bpf_map_info = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `len` bytes into the live structure.
    check(unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok((info.key_size as usize, info.value_size as usize))
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(())
    }
}
