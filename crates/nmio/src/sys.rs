//! Safe wrappers for system calls that the standard library lacks.
#![allow(unsafe_code)]
// System calls often take a signed integer where this crate uses an unsigned one, or vice versa.
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]

#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "linux")]
mod linux;

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

#[cfg(target_os = "freebsd")]
pub(crate) use freebsd::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

/// Turns the result of a system call into an error if it is negative.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Returns true if `error` is the system error `errno`.
pub(crate) fn is_errno(error: &io::Error, errno: i32) -> bool {
    error.raw_os_error() == Some(errno)
}

/// Waits until one of the descriptors is readable, for at most `timeout`. Returns the events that
/// occurred on each. After a timeout or a signal, there are none.
pub(crate) fn poll_readable<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Duration,
) -> io::Result<[i16; N]> {
    let mut fds = fds.map(|fd| libc::pollfd {
        // `ppoll` ignores negative descriptors.
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    });
    poll_all(&mut fds, timeout)?;
    Ok(fds.map(|fd| fd.revents))
}

fn poll_all(fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<()> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = fds.len() as libc::nfds_t;
    // SAFETY: `count` pollfds and the timeout stay valid during the call; a null signal mask is
    // allowed.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const timeout, ptr::null()) };
    match check(ready) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Returns how much memory can be allocated without swapping, in bytes, or `None` if unknown.
pub(crate) fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// An IP address with its interface and prefix length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

/// Returns the names of all interfaces, and all IP addresses, of the calling thread's network
/// namespace.
pub(crate) fn interfaces() -> io::Result<(Vec<String>, Vec<InterfaceAddress>)> {
    let mut list = ptr::null_mut();
    // SAFETY: on success the call stores a pointer to a list, which is freed below.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut names: Vec<String> = Vec::new();
    let mut addresses = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is a non-null member of a list that is not freed yet. Its name is a C
        // string.
        let (entry, name) = unsafe { (*next, CStr::from_ptr((*next).ifa_name)) };
        next = entry.ifa_next;
        let name = name.to_string_lossy();
        // For an IPv4 address, the name may be a label such as `eth0:1`. The interface's name
        // precedes the colon.
        let interface = name.split(':').next().unwrap_or_default().to_owned();
        // SAFETY: each pointer from getifaddrs is null or points to a complete address of its
        // family.
        let (address, mask) = unsafe { (socket_ip(entry.ifa_addr), socket_ip(entry.ifa_netmask)) };
        if let (Some(address), Some(mask)) = (address, mask) {
            let prefix = match mask {
                IpAddr::V4(mask) => mask.to_bits().leading_ones(),
                IpAddr::V6(mask) => mask.to_bits().leading_ones(),
            } as u8;
            addresses.push(InterfaceAddress {
                interface: interface.clone(),
                address,
                prefix,
            });
        }
        if !names.contains(&interface) {
            names.push(interface);
        }
    }
    // SAFETY: the list came from getifaddrs and is freed only here.
    unsafe { libc::freeifaddrs(list) };
    Ok((names, addresses))
}

/// Returns the IP address in a socket address, or `None` if the socket address contains none.
///
/// # Safety
/// `address` is null or points to a complete address of the family that it names.
unsafe fn socket_ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees a valid address, and it is not null.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}
