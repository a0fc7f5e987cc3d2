//! Routing netlink requests (RFC 3549), which create, configure and describe interfaces.
//!
//! A message consists of a header, a fixed structure, and attributes, which may contain nested
//! attributes. `netlink_packet_core` reads and writes headers and attributes. Only needed
//! attributes are decoded, so unknown attributes of newer kernels cannot cause errors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{IFLA_IFNAME, IFLA_LINKINFO};
use netlink_packet_core::{
    DefaultNla, Emitable, ErrorBuffer, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL,
    NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};

use crate::device::AddressPrefix;
use crate::sys;

/// Flags of a request that creates an object, and fails if the object already exists.
const CREATE: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
/// Flags of a request that creates an object, or replaces the existing one.
const REPLACE: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
/// Flag of a request that the kernel acknowledges.
pub(super) const ACK: u16 = NLM_F_ACK;
// Constants from linux/if_link.h, linux/veth.h and linux/pkt_sched.h.
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_XDP_ATTACHED: u16 = 2;
/// Values of [`IFLA_XDP_ATTACHED`] if neither the kernel nor the driver runs an XDP program. The
/// value is 0 if there is no program, and 3 if the network card itself runs the program.
const NOT_IN_SOFTWARE: [u8; 2] = [0, 3];
const VETH_INFO_PEER: u16 = 1;
const TC_H_ROOT: u32 = u32::MAX;
const TC_H_INGRESS: u32 = 0xffff_fff1;
/// Name of the queueing discipline of an interface that has none.
const NO_QUEUE: &str = "noqueue";
/// Place of the field `tx_dropped` in `rtnl_link_stats64`, in bytes.
const TX_DROPPED: usize = 7 * size_of::<u64>();

/// Size of a message header, in bytes.
const HEADER: usize = 16;
/// Size in bytes of `struct ifinfomsg`: family, padding, type, index, flags, change.
pub(super) const INTERFACE_MESSAGE: usize = 16;
/// Size in bytes of `struct tcmsg`: family, padding, interface, handle, parent, info.
const QDISC_MESSAGE: usize = 20;
/// Size of the receive buffer, in bytes. The kernel's description of an interface is about 2 KB
/// long. It is longer for a card with SR-IOV virtual functions.
pub(super) const RECEIVE_BUFFER: usize = 32 << 10;
/// Limit on the length of super-segments, in bytes, for kernels that report no limit.
const DEFAULT_GSO_SIZE: u32 = 65_536;

/// Sends a request, and waits until the kernel has executed it.
fn execute(kind: u16, flags: u16, fixed: &[u8], attributes: &[DefaultNla]) -> io::Result<()> {
    let socket = sys::route_socket()?;
    exchange(&socket, kind, flags, fixed, attributes).map(drop)
}

/// Sends a request and returns the kernel's response without its header. The result is empty if the
/// kernel only acknowledges the request.
pub(super) fn exchange(
    mut socket: &File,
    kind: u16,
    flags: u16,
    fixed: &[u8],
    attributes: &[DefaultNla],
) -> io::Result<Vec<u8>> {
    request(socket, kind, flags, fixed, attributes)?;
    let mut response = vec![0; RECEIVE_BUFFER];
    let len = socket.read(&mut response)?;
    let response = NetlinkBuffer::new_checked(&response[..len]).map_err(io::Error::other)?;
    if response.message_type() != NLMSG_ERROR {
        return Ok(response.payload().to_vec());
    }
    outcome(response.payload()).map(|()| Vec::new())
}

/// Requests a list from the kernel. Returns its messages without their headers.
pub(super) fn dump(
    mut socket: &File,
    kind: u16,
    fixed: &[u8],
    attributes: &[DefaultNla],
) -> io::Result<Vec<Vec<u8>>> {
    request(socket, kind, NLM_F_DUMP, fixed, attributes)?;
    let (mut list, mut buffer) = (Vec::new(), vec![0; RECEIVE_BUFFER]);
    loop {
        let len = socket.read(&mut buffer)?;
        let mut unread = &buffer[..len];
        while !unread.is_empty() {
            let message = NetlinkBuffer::new_checked(unread).map_err(io::Error::other)?;
            match message.message_type() {
                NLMSG_DONE => return Ok(list),
                NLMSG_ERROR => outcome(message.payload())?,
                _ => list.push(message.payload().to_vec()),
            }
            let len = message.length().next_multiple_of(4) as usize;
            unread = unread.get(len..).unwrap_or_default();
        }
    }
}

/// Sends a request to the kernel.
fn request(
    mut socket: &File,
    kind: u16,
    flags: u16,
    fixed: &[u8],
    attributes: &[DefaultNla],
) -> io::Result<()> {
    let mut bytes = [&[0; HEADER], &body(fixed, attributes)[..]].concat();
    let len = bytes.len() as u32;
    let mut header = NetlinkBuffer::new(&mut bytes);
    header.set_length(len);
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    socket.write_all(&bytes)
}

/// Returns the outcome that an error message reports, which may be success.
fn outcome(payload: &[u8]) -> io::Result<()> {
    let error = ErrorBuffer::new_checked(payload).map_err(io::Error::other)?;
    match error.code() {
        None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code.get())),
    }
}

/// Builds a message body: the fixed structure, followed by the attributes.
fn body(fixed: &[u8], attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = fixed.to_vec();
    bytes.resize(fixed.len() + attributes.buffer_len(), 0);
    attributes.emit(&mut bytes[fixed.len()..]);
    bytes
}

/// Returns the `struct ifinfomsg` of a message about interface number `index`.
fn interface(index: u32) -> [u8; INTERFACE_MESSAGE] {
    let mut fixed = [0; INTERFACE_MESSAGE];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed
}

/// Returns the `struct tcmsg` of a message about the queueing discipline of interface number
/// `index`.
fn queue(index: u32) -> [u8; QDISC_MESSAGE] {
    let mut fixed = [0; QDISC_MESSAGE];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
    fixed
}

/// Creates an attribute to send.
pub(super) fn value(kind: u16, value: &[u8]) -> DefaultNla {
    DefaultNla::new(kind, value.to_vec())
}

/// Creates an attribute that contains nested attributes.
fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind, body(&[], attributes))
}

/// Returns the value of the first attribute of type `kind`, or `None` if there is none.
pub(super) fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(attributes).flatten();
    let attribute = attributes.find(|attribute| attribute.kind() == kind)?;
    let len = usize::from(attribute.length());
    attribute.into_inner().get(4..len)
}

/// Returns the value of the first attribute of type `kind` as a number.
pub(super) fn number(attributes: &[u8], kind: u16) -> Option<u32> {
    let value = attribute(attributes, kind)?.first_chunk()?;
    Some(u32::from_ne_bytes(*value))
}

/// Returns the value of the first attribute of type `kind` as text, up to the first zero byte.
fn text(attributes: &[u8], kind: u16) -> Option<String> {
    let value = attribute(attributes, kind)?;
    let end = value.iter().position(|byte| *byte == 0);
    Some(String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned())
}

/// An interface that has other interfaces as ports, such as a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) name: String,
    /// Kind of interface: `bridge`, `bond`, `team`, `vrf` and so on.
    pub(super) kind: String,
}

/// Returns the master (such as a bridge) of which interface number `index` is a port, or `None` if
/// there is none.
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

/// Returns true if the queueing discipline of interface number `index` is `noqueue`. Such an
/// interface drops packets that it cannot send immediately.
pub(super) fn is_without_queue(index: u32) -> io::Result<bool> {
    queue_kind(index).map(|kind| kind == NO_QUEUE)
}

/// Returns the name of the queueing discipline of interface number `index`.
pub(super) fn queue_kind(index: u32) -> io::Result<String> {
    let attributes = link_attributes(&sys::route_socket()?, index)?;
    Ok(text(&attributes, libc::IFLA_QDISC).unwrap_or_default())
}

/// Returns the number of packets that interface number `index` has dropped instead of sending them.
/// Returns `None` if it has a queueing discipline, which makes senders wait.
pub(crate) fn dropped_without_queue(route: &File, index: u32) -> io::Result<Option<u64>> {
    let attributes = link_attributes(route, index)?;
    let has_none = text(&attributes, libc::IFLA_QDISC).is_some_and(|kind| kind == NO_QUEUE);
    let stats = attribute(&attributes, libc::IFLA_STATS64).filter(|_| has_none);
    let dropped = stats.and_then(|stats| stats.get(TX_DROPPED..)?.first_chunk());
    Ok(dropped.map(|bytes| u64::from_ne_bytes(*bytes)))
}

/// A queueing discipline, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    /// Its number. 0: the kernel has chosen this queueing discipline by itself.
    pub(super) handle: u32,
    /// The class of another queueing discipline to which this one belongs, or a constant `TC_H_*`.
    pub(super) parent: u32,
    /// Its name.
    pub(super) kind: String,
    /// Its parameters, in a format of its own.
    pub(super) options: Vec<u8>,
    /// Whether it computes the size of a packet from a table (`tc-stab`).
    pub(super) has_size_table: bool,
}

impl Queue {
    /// Decodes the body of a message about a queueing discipline of interface number `index`. Returns
    /// `None` if it belongs to another interface.
    fn parse(body: &[u8], index: u32) -> Option<Self> {
        let number = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
        let attributes = body.get(QDISC_MESSAGE..)?;
        (number(4)? == index).then_some(Self {
            handle: number(8)?,
            parent: number(12)?,
            kind: text(attributes, libc::TCA_KIND)?,
            options: attribute(attributes, libc::TCA_OPTIONS)
                .unwrap_or_default()
                .to_vec(),
            has_size_table: attribute(attributes, libc::TCA_STAB).is_some(),
        })
    }

    /// Returns true if all packets pass this queueing discipline first.
    pub(super) fn is_root(&self) -> bool {
        self.parent == TC_H_ROOT
    }

    /// Returns true if packets that are sent do not pass this queueing discipline.
    pub(super) fn is_ingress(&self) -> bool {
        self.parent == TC_H_INGRESS
    }
}

/// Returns all queueing disciplines of interface number `index`, also those of its single queues.
pub(super) fn queues(index: u32) -> io::Result<Vec<Queue>> {
    let route = sys::route_socket()?;
    let queues = dump(&route, libc::RTM_GETQDISC, &queue(index), &[])?;
    let ours = queues.iter().filter_map(|body| Queue::parse(body, index));
    Ok(ours.collect())
}

/// Returns the names of all queueing disciplines of interface number `index`, also those of its
/// single queues.
pub(crate) fn queue_kinds(index: u32) -> io::Result<Vec<String>> {
    Ok(queues(index)?.into_iter().map(|queue| queue.kind).collect())
}

/// Returns true if the kernel or the driver runs an XDP program on interface number `index`. If so,
/// no other program can be attached.
pub(super) fn has_xdp(index: u32) -> io::Result<bool> {
    let attributes = link_attributes(&sys::route_socket()?, index)?;
    let xdp = attribute(&attributes, libc::IFLA_XDP).unwrap_or_default();
    let attached = attribute(xdp, IFLA_XDP_ATTACHED).and_then(<[u8]>::first);
    Ok(attached.is_some_and(|mode| !NOT_IN_SOFTWARE.contains(mode)))
}

/// Returns the MAC address of interface number `index`, or `None` if it is not Ethernet.
pub(super) fn mac(index: u32) -> io::Result<Option<[u8; 6]>> {
    let attributes = link_attributes(&sys::route_socket()?, index)?;
    let mac = attribute(&attributes, libc::IFLA_ADDRESS);
    Ok(mac.and_then(|mac| mac.try_into().ok()))
}

/// Requests the link of interface number `index` from the kernel, or of the one named `name` if the number
/// is 0. Returns the body of the message about it, or `None` if there is no such interface.
pub(super) fn find_link(socket: &File, index: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let name = (index == 0).then(|| name_value(name));
    match exchange(
        socket,
        libc::RTM_GETLINK,
        0,
        &interface(index),
        name.as_slice(),
    ) {
        Err(error) if sys::is_errno(&error, libc::ENODEV) => Ok(None),
        found => found.map(Some),
    }
}

/// Requests the attributes of interface number `index` from the kernel.
fn link_attributes(socket: &File, index: u32) -> io::Result<Vec<u8>> {
    let response = exchange(socket, libc::RTM_GETLINK, 0, &interface(index), &[])?;
    Ok(response
        .get(INTERFACE_MESSAGE..)
        .unwrap_or_default()
        .to_vec())
}

/// Returns the attribute with the name of an interface.
fn name_value(name: &str) -> DefaultNla {
    value(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
}

/// Returns the attributes for creating one end of a veth pair.
fn end(name: &str, queues: u32) -> Vec<DefaultNla> {
    vec![
        name_value(name),
        value(libc::IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes()),
        value(libc::IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes()),
    ]
}

/// Creates a veth pair: interface `name` in the calling thread's network namespace, and interface
/// `peer` in `namespace`. Each end has `queues` RX queues and as many TX queues.
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
    execute(libc::RTM_NEWLINK, CREATE, &interface(0), &attributes)
}

/// Removes interface number `index`.
pub(super) fn delete_link(index: u32) -> io::Result<()> {
    execute(libc::RTM_DELLINK, NLM_F_ACK, &interface(index), &[])
}

/// Returns the maximum lengths of TCP super-segments, over IPv4 and over IPv6, that interface
/// number `index` accepts.
///
/// The lengths are in bytes, and include the link header. Kernels before Linux 6.3 use one limit
/// for both IP versions.
pub(crate) fn longest_supers(route: &File, index: u32) -> io::Result<[usize; 2]> {
    let attributes = link_attributes(route, index)?;
    let v6 = number(&attributes, libc::IFLA_GSO_MAX_SIZE).unwrap_or(DEFAULT_GSO_SIZE);
    let v4 = number(&attributes, IFLA_GSO_IPV4_MAX_SIZE).unwrap_or(v6.min(DEFAULT_GSO_SIZE));
    // A super-segment must be shorter than the limit that the kernel reports.
    Ok([v4, v6].map(|limit| limit.saturating_sub(1) as usize))
}

/// Makes interface number `index` accept IPv4 super-segments shorter than `bytes` bytes, including
/// the link header. Requires Linux 6.3.
pub(super) fn allow_supers(index: u32, bytes: u32) -> io::Result<()> {
    let limit = value(IFLA_GSO_IPV4_MAX_SIZE, &bytes.to_ne_bytes());
    execute(libc::RTM_SETLINK, NLM_F_ACK, &interface(index), &[limit])
}

/// Adds a packet queue to interface number `index`. The queue holds up to `packets` packets that
/// cannot be sent immediately.
///
/// Without a queue, one end of a veth pair drops packets while its peer's ring is full. With a
/// queue, all senders, including `AF_XDP` sockets, wait instead.
pub(super) fn add_queue(index: u32, packets: u32) -> io::Result<()> {
    let attributes = [
        value(libc::TCA_KIND, b"pfifo\0"),
        value(libc::TCA_OPTIONS, &packets.to_ne_bytes()),
    ];
    execute(libc::RTM_NEWQDISC, CREATE, &queue(index), &attributes)
}

/// Gives interface number `index` the queueing discipline `wanted`, without a size table, instead of
/// its present one.
pub(super) fn replace_queue(index: u32, wanted: &Queue) -> io::Result<()> {
    let mut fixed = queue(index);
    fixed[8..12].copy_from_slice(&wanted.handle.to_ne_bytes());
    let mut attributes = vec![value(
        libc::TCA_KIND,
        &[wanted.kind.as_bytes(), &[0]].concat(),
    )];
    if !wanted.options.is_empty() {
        attributes.push(value(libc::TCA_OPTIONS, &wanted.options));
    }
    execute(libc::RTM_NEWQDISC, REPLACE, &fixed, &attributes)
}

/// Removes the queueing discipline of interface number `index`. The kernel then uses its default.
pub(super) fn remove_queue(index: u32) -> io::Result<()> {
    execute(libc::RTM_DELQDISC, NLM_F_ACK, &queue(index), &[])
}

/// Size in bytes of `struct ifaddrmsg`: family, prefix, flags, scope, index.
const ADDRESS_MESSAGE: usize = 8;

/// Returns the addresses of interface number `index`, in the kernel's order. An address with several
/// prefixes occurs several times.
pub(super) fn addresses(socket: &File, index: u32) -> io::Result<Vec<AddressPrefix>> {
    let any = [0; ADDRESS_MESSAGE];
    let list = dump(socket, libc::RTM_GETADDR, &any, &[])?;
    let ours = list
        .iter()
        .filter(|body| body.get(4..8) == Some(&index.to_ne_bytes()));
    Ok(ours.filter_map(|body| address_in(body)).collect())
}

/// Returns the address in the body of a message about an address.
pub(super) fn address_in(body: &[u8]) -> Option<AddressPrefix> {
    let attributes = body.get(ADDRESS_MESSAGE..)?;
    // Prefer IFA_LOCAL, because on a point-to-point link IFA_ADDRESS is the peer's address.
    let octets = attribute(attributes, libc::IFA_LOCAL)
        .or_else(|| attribute(attributes, libc::IFA_ADDRESS))?;
    let address = match i32::from(*body.first()?) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into(),
        _ => return None,
    };
    let prefix = body[1];
    Some(AddressPrefix { address, prefix })
}

/// Adds an address to interface number `index`.
pub(super) fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let (family, octets, flags) = match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec(), 0),
        // Make an IPv6 address usable immediately, without duplicate address detection.
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
    execute(libc::RTM_NEWADDR, CREATE, &fixed, &attributes)
}
