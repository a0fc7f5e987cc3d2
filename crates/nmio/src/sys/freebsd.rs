//! System calls and constants that differ on FreeBSD.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use super::check;

/// Type of an Ethernet interface (`net/if_types.h`).
const IFT_ETHER: u8 = 6;

/// Kinds of advice with which the kernel moves memory to large pages. None is needed, because the
/// kernel promotes pages to superpages by itself.
pub(crate) const LARGE_PAGE_ADVICE: &[i32] = &[];

/// Properties of an interface.
pub(crate) struct Link {
    pub(crate) index: u16,
    pub(crate) is_up: bool,
    /// False only if the driver knows that there is no carrier.
    pub(crate) has_carrier: bool,
    /// The Ethernet address, or `None` if the interface is not Ethernet.
    pub(crate) mac: Option<[u8; 6]>,
    /// Length of the largest IP packet, in bytes.
    pub(crate) mtu: usize,
}

/// Returns the properties of interface `name`.
///
/// # Errors
/// `ENXIO` if there is no such interface.
pub(crate) fn link(name: &str) -> io::Result<Link> {
    let mut list = ptr::null_mut();
    // SAFETY: on success the call stores a pointer to a list, which is freed below.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = None;
    let mut next = list;
    while !next.is_null() && found.is_none() {
        // SAFETY: `next` is a non-null member of a list that is not freed yet. Its name is a C
        // string.
        let (entry, entry_name) = unsafe { (*next, CStr::from_ptr((*next).ifa_name)) };
        next = entry.ifa_next;
        if entry_name.to_bytes() == name.as_bytes() {
            // SAFETY: the entry is a member of a list that is not freed yet.
            found = unsafe { link_of(&entry) };
        }
    }
    // SAFETY: the list came from getifaddrs and is freed only here.
    unsafe { libc::freeifaddrs(list) };
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))
}

/// Returns the properties in a list entry, or `None` if it describes an IP address.
///
/// # Safety
/// The entry comes from `getifaddrs`, and its list is not freed yet.
unsafe fn link_of(entry: &libc::ifaddrs) -> Option<Link> {
    if entry.ifa_addr.is_null() || entry.ifa_data.is_null() {
        return None;
    }
    // SAFETY: the address is not null, and begins with its length and its family.
    let (len, family) = unsafe { ((*entry.ifa_addr).sa_len, (*entry.ifa_addr).sa_family) };
    if i32::from(family) != libc::AF_LINK || usize::from(len) < size_of::<libc::sockaddr_dl>() {
        return None;
    }
    // SAFETY: an address of family AF_LINK is a `sockaddr_dl`, and is long enough. The data of such
    // an entry is an `if_data`.
    let (address, data) = unsafe {
        (
            entry.ifa_addr.cast::<libc::sockaddr_dl>().read_unaligned(),
            entry.ifa_data.cast::<libc::if_data>().read_unaligned(),
        )
    };
    let is_ethernet = address.sdl_type == IFT_ETHER && address.sdl_alen == 6;
    let octets = address.sdl_data.get(usize::from(address.sdl_nlen)..)?;
    let mac = octets.first_chunk::<6>()?.map(|octet| octet as u8);
    Some(Link {
        index: address.sdl_index,
        is_up: entry.ifa_flags.cast_signed() & libc::IFF_UP != 0,
        has_carrier: i32::from(data.ifi_link_state) != libc::LINK_STATE_DOWN,
        mac: is_ethernet.then_some(mac),
        mtu: data.ifi_mtu as usize,
    })
}

/// Opens a routing socket that reports changes of interfaces and addresses. Reading never blocks.
pub(crate) fn route_monitor() -> io::Result<File> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers are passed; a nonnegative descriptor is new, and this process owns it.
    let socket = unsafe {
        OwnedFd::from_raw_fd(check(libc::socket(libc::PF_ROUTE, kind, libc::AF_UNSPEC))?)
    };
    Ok(socket.into())
}
