//! The few routing netlink requests (RFC 3549) that create links and read device limits.
//!
//! A message consists of a header, a fixed structure, and attributes, some of which contain further
//! attributes. `netlink_packet_core` reads and writes headers and attributes. The attributes that
//! no request here needs are never decoded, so that no kernel can surprise the parser.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{IFLA_IFNAME, IFLA_LINKINFO};
use netlink_packet_core::{
    DefaultNla, Emitable, ErrorBuffer, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST,
    NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};

use crate::sys;

/// Flags of a request that creates something new.
const CREATE: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
// linux/if_link.h, linux/veth.h, linux/pkt_sched.h
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const VETH_INFO_PEER: u16 = 1;
const TC_H_ROOT: u32 = u32::MAX;

/// Bytes of a message header.
const HEADER: usize = 16;
/// `struct ifinfomsg`: family, padding, type, index, flags, change.
pub(super) const INTERFACE_MESSAGE: usize = 16;
/// `struct tcmsg`: family, padding, interface, handle, parent, info.
const QDISC_MESSAGE: usize = 20;
/// Size of the receive buffer. The kernel's description of one interface takes about 2 KB, and more
/// for a card with SR-IOV virtual functions.
pub(super) const ANSWER: usize = 32 << 10;
/// The limit of super-segments on kernels that do not report one.
const DEFAULT_GSO_SIZE: u32 = 65_536;

/// Sends a request, and waits until the kernel has done it.
fn request(kind: u16, flags: u16, fixed: &[u8], attributes: &[DefaultNla]) -> io::Result<()> {
    let socket = sys::route_socket()?;
    ask(&socket, kind, flags, fixed, attributes).map(drop)
}

/// Sends a request and returns the kernel's answer without its header. A mere acknowledgement gives
/// an empty answer.
fn ask(
    mut socket: &File,
    kind: u16,
    flags: u16,
    fixed: &[u8],
    attributes: &[DefaultNla],
) -> io::Result<Vec<u8>> {
    let mut bytes = [&[0; HEADER], &body(fixed, attributes)[..]].concat();
    let len = bytes.len() as u32;
    let mut header = NetlinkBuffer::new(&mut bytes);
    header.set_length(len);
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    socket.write_all(&bytes)?;
    let mut answer = vec![0; ANSWER];
    let len = socket.read(&mut answer)?;
    let answer = NetlinkBuffer::new_checked(&answer[..len]).map_err(io::Error::other)?;
    if answer.message_type() != NLMSG_ERROR {
        return Ok(answer.payload().to_vec());
    }
    let error = ErrorBuffer::new_checked(answer.payload()).map_err(io::Error::other)?;
    match error.code() {
        None => Ok(Vec::new()),
        Some(code) => Err(io::Error::from_raw_os_error(-code.get())),
    }
}

/// Writes a fixed structure, followed by attributes.
fn body(fixed: &[u8], attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = fixed.to_vec();
    bytes.resize(fixed.len() + attributes.buffer_len(), 0);
    attributes.emit(&mut bytes[fixed.len()..]);
    bytes
}

/// Returns the fixed structure of a message about interface number `index`.
fn interface(index: u32) -> [u8; INTERFACE_MESSAGE] {
    let mut fixed = [0; INTERFACE_MESSAGE];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed
}

/// Makes an attribute to send.
fn value(kind: u16, value: &[u8]) -> DefaultNla {
    DefaultNla::new(kind, value.to_vec())
}

/// Makes an attribute that contains others.
fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind, body(&[], attributes))
}

/// Returns the value of the attribute of kind `wanted`, if present.
pub(super) fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(attributes).flatten();
    let found = attributes.find(|attribute| attribute.kind() == wanted)?;
    let len = usize::from(found.length());
    found.into_inner().get(4..len)
}

/// Returns the attribute as a number.
fn number(attributes: &[u8], wanted: u16) -> Option<u32> {
    let value = attribute(attributes, wanted)?.first_chunk()?;
    Some(u32::from_ne_bytes(*value))
}

/// Returns the attribute as text, without a trailing zero byte.
fn text(attributes: &[u8], wanted: u16) -> Option<String> {
    let value = attribute(attributes, wanted)?;
    let end = value.iter().position(|byte| *byte == 0);
    Some(String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned())
}

/// An interface that another interface belongs to as a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) name: String,
    /// Kind of interface: `bridge`, `bond`, `team`, `vrf` and so on.
    pub(super) kind: String,
}

/// Returns the interface that interface number `index` is a port of, if any.
pub(super) fn master(index: u32) -> io::Result<Option<Master>> {
    let socket = sys::route_socket()?;
    let attributes = |index| link_attributes(&socket, index);
    let port = attributes(index)?;
    let Some(master) = number(&port, libc::IFLA_MASTER) else {
        return Ok(None);
    };
    let info = attribute(&port, IFLA_LINKINFO).unwrap_or_default();
    Ok(Some(Master {
        name: text(&attributes(master)?, IFLA_IFNAME).unwrap_or_default(),
        kind: text(info, libc::IFLA_INFO_SLAVE_KIND).unwrap_or_default(),
    }))
}

/// Returns whether interface number `index` has no queue for packets that it cannot send at once.
pub(super) fn is_without_queue(index: u32) -> io::Result<bool> {
    let attributes = link_attributes(&sys::route_socket()?, index)?;
    Ok(text(&attributes, libc::IFLA_QDISC).is_some_and(|kind| kind == "noqueue"))
}

/// Asks for the attributes of interface number `index`.
fn link_attributes(socket: &File, index: u32) -> io::Result<Vec<u8>> {
    let answer = ask(socket, libc::RTM_GETLINK, 0, &interface(index), &[])?;
    Ok(answer.get(INTERFACE_MESSAGE..).unwrap_or_default().to_vec())
}

/// Returns the attributes of one end of a veth pair.
fn end(name: &str, queues: u32) -> Vec<DefaultNla> {
    vec![
        value(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat()),
        value(libc::IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes()),
        value(libc::IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes()),
    ]
}

/// Creates a veth pair: `name` in this network namespace, and `peer` in `namespace`.
pub(super) fn create_veth(
    name: &str,
    peer: &str,
    queues: u32,
    namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut peer = end(peer, queues);
    let namespace = namespace.as_raw_fd().to_ne_bytes();
    peer.push(value(libc::IFLA_NET_NS_FD, &namespace));
    let peer = DefaultNla::new(VETH_INFO_PEER, body(&interface(0), &peer));
    let info = [
        value(libc::IFLA_INFO_KIND, b"veth"),
        nest(libc::IFLA_INFO_DATA, &[peer]),
    ];
    let mut attributes = end(name, queues);
    attributes.push(nest(IFLA_LINKINFO, &info));
    request(libc::RTM_NEWLINK, CREATE, &interface(0), &attributes)
}

/// Removes interface number `index`.
pub(super) fn delete_link(index: u32) -> io::Result<()> {
    request(libc::RTM_DELLINK, NLM_F_ACK, &interface(index), &[])
}

/// Returns the largest TCP super-segments, over IPv4 and over IPv6, that interface number `index`
/// takes.
///
/// The sizes are bytes of the whole packet, including the link header. Kernels before Linux 6.3
/// have one limit for both.
pub(crate) fn longest_supers(route: &File, index: u32) -> io::Result<[usize; 2]> {
    let attributes = link_attributes(route, index)?;
    let v6 = number(&attributes, libc::IFLA_GSO_MAX_SIZE).unwrap_or(DEFAULT_GSO_SIZE);
    let v4 = number(&attributes, IFLA_GSO_IPV4_MAX_SIZE).unwrap_or(v6.min(DEFAULT_GSO_SIZE));
    // The kernel reports an exclusive limit.
    Ok([v4, v6].map(|limit| limit.saturating_sub(1) as usize))
}

/// Makes interface number `index` accept IPv4 super-segments of less than `bytes`, including the
/// link header. Needs Linux 6.3.
pub(super) fn allow_supers(index: u32, bytes: u32) -> io::Result<()> {
    let limit = value(IFLA_GSO_IPV4_MAX_SIZE, &bytes.to_ne_bytes());
    request(libc::RTM_SETLINK, NLM_F_ACK, &interface(index), &[limit])
}

/// Gives interface number `index` a queue for `packets` that it cannot send at once.
///
/// Without a queue, a veth end drops packets while its peer's ring is full. With a queue it makes
/// senders wait, including `AF_XDP` sockets.
pub(super) fn add_queue(index: u32, packets: u32) -> io::Result<()> {
    let mut fixed = [0; QDISC_MESSAGE];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
    let attributes = [
        value(libc::TCA_KIND, b"pfifo\0"),
        value(libc::TCA_OPTIONS, &packets.to_ne_bytes()),
    ];
    request(libc::RTM_NEWQDISC, CREATE, &fixed, &attributes)
}

/// Adds an address to interface number `index`.
pub(super) fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let (family, octets, flags) = match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec(), 0),
        // Use an IPv6 address at once, without duplicate address detection.
        IpAddr::V6(v6) => (
            libc::AF_INET6 as u8,
            v6.octets().to_vec(),
            libc::IFA_F_NODAD,
        ),
    };
    let mut fixed = [family, prefix, flags as u8, 0, 0, 0, 0, 0];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut attributes = vec![
        value(libc::IFA_LOCAL, &octets),
        value(libc::IFA_ADDRESS, &octets),
    ];
    if let IpAddr::V4(v4) = address
        && prefix < 31
    {
        let broadcast = v4.to_bits() | u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
        attributes.push(value(libc::IFA_BROADCAST, &broadcast.to_be_bytes()));
    }
    request(libc::RTM_NEWADDR, CREATE, &fixed, &attributes)
}
