//! System calls that the standard library has no words for, in safe clothes.
#![allow(unsafe_code)]
// C has one integer type where we have two.
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod control;
mod features;
mod packet;
mod queues;
mod socket;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

pub(crate) use control::Control;
pub(crate) use packet::{
    FINISHED, Gather, MAX_PACKETS, VNET_HEADER, bypass_queueing, packet_sender, read_packet,
    send_packets, unfinished_checksum, vnet_header, write_packet,
};
pub(crate) use queues::Channels;
use socket::{bind, check, socket};
pub(crate) use socket::{is_errno, option, set_option};

/// `SOL_XDP` options that libc's headers may lack (`linux/if_xdp.h`).
pub(crate) const XDP_OPTIONS: i32 = 8;
/// Bit of `XDP_OPTIONS`: the socket is in zero-copy mode.
pub(crate) const XDP_OPTIONS_ZEROCOPY: i32 = 1;
/// Packets that one wakeup may send in copy mode, 32 to the ring's size.
pub(crate) const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// Asks the kernel to go on sending what is in the TX ring of an AF_XDP
/// socket; never blocks.
pub(crate) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address are passed.
    let sent = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null(),
            0,
        )
    };
    check(sent as i32).map(drop)
}

/// Asks the kernel to go on receiving into an AF_XDP socket, inside this call
/// where busy polling is active; never blocks.
pub(crate) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address are passed.
    let received = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    check(received as i32).map(drop)
}

/// Waits for one of `events`, or for `other` to be readable, at most `timeout`;
/// the events that came, 0 when none did or a signal interrupted.
pub(crate) fn poll(
    fd: BorrowedFd<'_>,
    events: i16,
    timeout: Duration,
    other: Option<BorrowedFd<'_>>,
) -> io::Result<i16> {
    let pollfd = |fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // One that is negative is passed over.
    let other = other.map_or(-1, |other| other.as_raw_fd());
    let mut fds = [pollfd(fd.as_raw_fd(), events), pollfd(other, libc::POLLIN)];
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = fds.len() as libc::nfds_t;
    // SAFETY: so many live pollfds, a live timeout, no signal mask.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const timeout, ptr::null()) };
    match check(ready) {
        Ok(_) => Ok(fds[0].revents),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Memory that can be used without ending other programs, in bytes, as far as
/// the kernel tells.
pub(crate) fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Lifts the limit on locked memory, where that is allowed: with the limit a
/// large UMEM is refused.
pub(crate) fn lift_memory_lock_limit() {
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a live rlimit. Failure is seen where the memory is registered.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) };
}

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

/// Names of all interfaces, and their IP addresses, in the calling thread's
/// network namespace.
pub(crate) fn interfaces() -> io::Result<(Vec<String>, Vec<InterfaceAddress>)> {
    let mut list = ptr::null_mut();
    // SAFETY: on success the kernel's list is stored, freed below.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut names: Vec<String> = Vec::new();
    let mut addresses = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: a non-null member of the list, which is not freed yet; its
        // name is a C string.
        let (entry, name) = unsafe { (*next, CStr::from_ptr((*next).ifa_name)) };
        next = entry.ifa_next;
        let name = name.to_string_lossy();
        // IPv4 addresses may carry a label, `eth0:1`.
        let interface = name.split(':').next().unwrap_or_default().to_owned();
        // SAFETY: getifaddrs gives null or a whole address of the family it
        // names.
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
    // SAFETY: the list came from getifaddrs and is freed once.
    unsafe { libc::freeifaddrs(list) };
    Ok((names, addresses))
}

/// The IP address in a socket's address, if it is one.
///
/// # Safety
/// `address` is null, or points at a whole address of the family it names.
unsafe fn socket_ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise, and it is not null.
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

/// A kernel socket bound to `address` that never listens: while it lives, no
/// other program gets the port. `scope` is the interface's number.
///
/// Connections of an earlier program that are in TIME-WAIT do not matter.
pub(crate) fn reserve_port(address: SocketAddr, tcp: bool, scope: u32) -> io::Result<OwnedFd> {
    let kind = if tcp {
        libc::SOCK_STREAM
    } else {
        libc::SOCK_DGRAM
    };
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = socket(family, kind, 0)?;
    let share = |on| set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, on);
    if tcp {
        share(1)?;
    }
    match address {
        SocketAddr::V4(v4) => {
            let sockaddr = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            bind(socket.as_fd(), &sockaddr)?;
        }
        SocketAddr::V6(v6) => {
            // An address whose uniqueness the kernel is still checking can be
            // bound all the same.
            set_option(socket.as_fd(), libc::SOL_IPV6, libc::IPV6_FREEBIND, 1)?;
            let sockaddr = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: scope,
            };
            bind(socket.as_fd(), &sockaddr)?;
        }
    }
    if tcp {
        // From here on nobody else listens there, whatever options they set.
        share(0)?;
    }
    Ok(socket)
}

/// A socket that receives nothing: while it lives, interface number `index`
/// lets frames to the Ethernet multicast addresses `groups` in.
pub(crate) fn join_groups(index: u32, groups: &[[u8; 6]]) -> io::Result<OwnedFd> {
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    for group in groups {
        let mut request = libc::packet_mreq {
            mr_ifindex: index as i32,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: group.len() as u16,
            mr_address: [0; 8],
        };
        request.mr_address[..group.len()].copy_from_slice(group);
        // SAFETY: the pointer and the length are those of a live packet_mreq.
        check(unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const request).cast(),
                mem::size_of::<libc::packet_mreq>() as libc::socklen_t,
            )
        })?;
    }
    Ok(socket)
}

/// A routing netlink socket: requests are written to it and answers read.
pub(crate) fn route_socket() -> io::Result<File> {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    Ok(socket.into())
}

/// A netlink socket that hears of changes of interfaces and their addresses in
/// the calling thread's network namespace; reading never blocks.
pub(crate) fn route_monitor() -> io::Result<File> {
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let socket = socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)?;
    // SAFETY: the address is plain data, for which all zeroes are valid.
    let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups as u32;
    bind(socket.as_fd(), &address)?;
    Ok(socket.into())
}

/// An `AF_XDP` socket without memory or queue: whether this process may have
/// one.
pub(crate) fn xdp_socket() -> io::Result<OwnedFd> {
    socket(libc::AF_XDP, libc::SOCK_RAW, 0)
}

/// Moves the calling thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: concerns this thread's namespace only, no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the calling thread into the network namespace `namespace`.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: concerns this thread's namespace only, no memory.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// How a tap device is opened.
#[derive(Clone, Copy)]
pub(crate) struct TapFlags {
    /// It has more queues than one.
    pub(crate) multi_queue: bool,
    /// It must not exist yet.
    pub(crate) exclusive: bool,
}

// linux/if_tun.h: what may come in unfinished.
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const TUN_F_TSO6: libc::c_ulong = 4;
const TUN_F_TSO_ECN: libc::c_ulong = 8;

/// Has a tap device give frames whose checksums are not finished, as it then
/// says, and perhaps TCP super-segments.
pub(crate) fn offer_offload(tap: BorrowedFd<'_>, supers: bool) -> io::Result<()> {
    let mut offers = TUN_F_CSUM;
    if supers {
        offers |= TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    }
    // SAFETY: this request takes a number.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD as _, offers) }).map(drop)
}

/// Makes `tun`, an opened `/dev/net/tun`, one queue of the tap device `name`,
/// which is created when it does not exist. Before each packet stands what is
/// left to be done to it.
pub(crate) fn attach_tap(tun: &File, name: &str, how: TapFlags) -> io::Result<()> {
    let mut request = Control::request(name)?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if how.multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if how.exclusive {
        flags |= libc::IFF_TUN_EXCL;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: this request reads and writes one ifreq.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    // A device that was there before remembers what another program has chosen.
    let header = VNET_HEADER as i32;
    // SAFETY: this request reads one int.
    check(unsafe {
        libc::ioctl(
            tun.as_raw_fd(),
            libc::TUNSETVNETHDRSZ as _,
            &raw const header,
        )
    })
    .map(drop)
}
