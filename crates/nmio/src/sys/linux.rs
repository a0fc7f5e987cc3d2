//! System calls that only Linux has.

mod control;
mod features;
mod napi;
mod packet;
mod queues;
mod socket;

use std::fs::File;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::{check, poll_all};
use crate::vnet::VNET_HEADER;
pub(crate) use control::Control;
pub(crate) use napi::NapiPoller;
pub(crate) use packet::{
    Gather, MAX_PACKETS, bind_packet_sender, bypass_queueing, has_sent_all, packet_sender,
    read_packet, send_packets, write_packet,
};
pub(crate) use queues::{Channels, listed_interface};
use socket::{bind, socket};
pub(crate) use socket::{
    bind_xdp, option, register_umem, set_option, xdp_ring_layouts, xdp_statistics,
};

/// `SOL_XDP` option that reads the flags of an `AF_XDP` socket (`linux/if_xdp.h`). libc does not
/// define this option for every target.
pub(crate) const XDP_OPTIONS: i32 = 8;
/// Bit of `XDP_OPTIONS` that is set if the socket is in zero-copy mode.
pub(crate) const XDP_OPTIONS_ZEROCOPY: i32 = 1;
/// Option for the maximum number of packets that one wakeup sends in copy mode, from 32 to the TX
/// ring's size.
pub(crate) const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// Kinds of advice with which the kernel moves memory to large pages. `MADV_COLLAPSE` is 25
/// (linux/mman.h). The libc crate does not define it for every target.
pub(crate) const LARGE_PAGE_ADVICE: &[i32] = &[libc::MADV_HUGEPAGE, 25];

/// Wakes the kernel so that it sends the packets in the TX ring of an `AF_XDP` socket. Never
/// blocks.
pub(crate) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call gets no buffer and no address.
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

/// Wakes the kernel so that it continues receiving into an `AF_XDP` socket. Never blocks. With
/// active busy polling, the kernel receives packets during this call.
pub(crate) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call gets no buffer and no address.
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

/// Removes the limit on locked memory if this process may do so. The kernel refuses a UMEM that is
/// larger than the limit.
pub(crate) fn lift_memory_lock_limit() {
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the rlimit stays valid during the call. An error is ignored, because registering the
    // UMEM fails if the limit is too low.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) };
}

/// Opens a socket that reserves `address` without listening. No other program can use the port at
/// this address while the socket is open.
///
/// `scope` is the interface index, which IPv6 link-local addresses require. TIME-WAIT connections
/// of an earlier program do not prevent the reservation.
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
            // Freebind allows binding to an address whose duplicate address detection is still
            // running.
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
        // Without SO_REUSEADDR on this socket, no other socket can listen on this address and port,
        // whatever the other socket's options are.
        share(0)?;
    }
    Ok(socket)
}

/// Opens a socket that makes the interface with index `index` accept frames to the Ethernet
/// multicast addresses `groups`.
///
/// The socket itself receives no packets. The interface accepts these frames while the socket is
/// open.
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
        // SAFETY: the pointer and the length describe a live packet_mreq.
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

/// Opens a routing netlink socket for requests and responses.
pub(crate) fn route_socket() -> io::Result<File> {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    Ok(socket.into())
}

/// Opens a generic netlink socket for requests and responses.
pub(crate) fn generic_socket() -> io::Result<File> {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
    Ok(socket.into())
}

/// Opens a netlink socket that reports changes of interfaces and addresses. Reading never blocks.
///
/// The socket covers the calling thread's network namespace.
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

/// Waits until one of `events` occurs on `fd` or `other` is readable, for at most `timeout`.
///
/// Returns the events that occurred on `fd`. They are 0 if only `other` is readable, and after a
/// timeout or a signal.
pub(crate) fn poll(
    fd: Option<BorrowedFd<'_>>,
    events: i16,
    timeout: Duration,
    other: Option<BorrowedFd<'_>>,
) -> io::Result<i16> {
    let pollfd = |fd: Option<BorrowedFd<'_>>, events| libc::pollfd {
        // `ppoll` ignores negative descriptors.
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events,
        revents: 0,
    };
    let mut fds = [pollfd(fd, events), pollfd(other, libc::POLLIN)];
    poll_all(&mut fds, timeout)?;
    Ok(fds[0].revents)
}

/// Opens an `AF_XDP` socket without memory or a queue.
pub(crate) fn xdp_socket() -> io::Result<OwnedFd> {
    socket(libc::AF_XDP, libc::SOCK_RAW, 0)
}

/// Creates a file without a name in memory, which has this number of zeroed bytes. `flags` are the
/// flags of `memfd_create`.
pub(crate) fn memory_file(bytes: u64, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let fd = check(unsafe { libc::memfd_create(c"packets".as_ptr(), libc::MFD_CLOEXEC | flags) })?;
    // SAFETY: the descriptor is new, and no other code owns it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the call accesses no memory.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), bytes) })?;
    Ok(file)
}

/// Moves the calling thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: the call changes only this thread's namespace and accesses no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the calling thread into the network namespace `namespace`.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call changes only this thread's namespace and accesses no memory.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// How to open a tap device.
#[derive(Clone, Copy)]
pub(crate) struct TapFlags {
    /// Whether the device has several queues.
    pub(crate) multi_queue: bool,
    /// Whether opening fails if the device already exists.
    pub(crate) exclusive: bool,
}

// Flags for the offloads that the reader of a tap device accepts (linux/if_tun.h).
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const TUN_F_TSO6: libc::c_ulong = 4;
const TUN_F_TSO_ECN: libc::c_ulong = 8;

/// Allows the kernel to pass frames with partial checksums to the reader of a tap device. If
/// `supers` is set, also allows TCP super-segments.
pub(crate) fn offer_offload(tap: BorrowedFd<'_>, supers: bool) -> io::Result<()> {
    let mut offers = TUN_F_CSUM;
    if supers {
        offers |= TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    }
    // SAFETY: the argument of this request is a number.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD as _, offers) }).map(drop)
}

/// Attaches `tun`, an open `/dev/net/tun`, to the tap device `name` as one queue.
///
/// Creates the device if it does not exist. A `virtio_net_hdr` precedes each packet.
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
    // SAFETY: this request reads and writes one live ifreq.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    // Another program may have set another header size on an existing device. Therefore always set
    // the size.
    let header = VNET_HEADER as i32;
    // SAFETY: this request reads one live int.
    check(unsafe {
        libc::ioctl(
            tun.as_raw_fd(),
            libc::TUNSETVNETHDRSZ as _,
            &raw const header,
        )
    })
    .map(drop)
}
