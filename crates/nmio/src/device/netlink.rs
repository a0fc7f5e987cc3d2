//! The few routing netlink requests (RFC 3549) that create links and read device limits.
//!
//! A message consists of a header, a fixed structure, and attributes. Each attribute starts with
//! its length and kind, and is padded to 4 bytes; some contain further attributes. All numbers are
//! in host byte order.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h,
// linux/pkt_sched.h
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE_NEW: u16 = 0x400 | 0x200;
const NLMSG_ERROR: u16 = 2;
pub(super) const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
pub(super) const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_DELADDR: u16 = 21;
const RTM_NEWQDISC: u16 = 36;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const VETH_INFO_PEER: u16 = 1;
pub(super) const IFA_ADDRESS: u16 = 1;
pub(super) const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TC_H_ROOT: u32 = u32::MAX;
const AF_INET: u8 = libc::AF_INET as u8;
const AF_INET6: u8 = libc::AF_INET6 as u8;
/// Uses an IPv6 address at once, without duplicate address detection.
const IFA_F_NODAD: u8 = 0x02;

pub(super) const HEADER: usize = 16;
/// `struct ifinfomsg`: family, padding, type, index, flags, change.
pub(super) const INTERFACE_MESSAGE: usize = 16;
/// `struct tcmsg`: family, padding, interface, handle, parent, info.
const QDISC_MESSAGE: usize = 20;
/// Size of the receive buffer. The kernel's description of one interface takes about 2 KB, and more
/// for a card with SR-IOV virtual functions.
pub(super) const ANSWER: usize = 32 << 10;
/// The limit of super-segments on kernels that do not report one.
const DEFAULT_GSO_SIZE: u32 = 65_536;

struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        Self(bytes)
    }

    /// Starts a message about interface number `index`.
    fn about(kind: u16, flags: u16, index: u32) -> Self {
        let mut fixed = [0; INTERFACE_MESSAGE];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        Self::new(kind, flags).fixed(&fixed)
    }

    fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn attribute(self, kind: u16, value: &[u8]) -> Self {
        self.nest(kind, |message| message.fixed(value))
    }

    fn nest(mut self, kind: u16, content: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        let mut message = content(self);
        let len = (message.0.len() - start) as u16;
        message.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        message.0.resize(message.0.len().next_multiple_of(4), 0);
        message
    }

    /// Sends the request, and waits until the kernel has done it.
    fn request(mut self) -> io::Result<()> {
        let flags = u16::from_ne_bytes([self.0[6], self.0[7]]) | NLM_F_ACK;
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.ask().map(drop)
    }

    /// Sends the request and returns the kernel's answer without its header. A mere acknowledgement
    /// gives an empty answer.
    fn ask(self) -> io::Result<Vec<u8>> {
        self.ask_through(&sys::route_socket()?)
    }

    /// Does the same as `ask` through an open socket.
    fn ask_through(mut self, mut socket: &File) -> io::Result<Vec<u8>> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        socket.write_all(&self.0)?;
        let mut answer = vec![0; ANSWER];
        let len = socket.read(&mut answer)?;
        answer.truncate(len);
        if len < HEADER + 4 {
            return Err(io::Error::other("malformed netlink answer"));
        }
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        answer.drain(..HEADER);
        if kind != NLMSG_ERROR {
            return Ok(answer);
        }
        match i32::from_ne_bytes([answer[0], answer[1], answer[2], answer[3]]) {
            0 => Ok(Vec::new()),
            code => Err(io::Error::from_raw_os_error(-code)),
        }
    }
}

/// Returns the value of the attribute of kind `wanted`, if present.
pub(super) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [a, b, c, d, rest @ ..] = attributes {
        let len = usize::from(u16::from_ne_bytes([*a, *b])).checked_sub(4)?;
        if u16::from_ne_bytes([*c, *d]) == wanted {
            return rest.get(..len);
        }
        attributes = rest.get(len.next_multiple_of(4)..)?;
    }
    None
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
    let attributes = |index| {
        let answer = Message::about(RTM_GETLINK, 0, index).ask()?;
        io::Result::Ok(answer.get(INTERFACE_MESSAGE..).unwrap_or_default().to_vec())
    };
    let port = attributes(index)?;
    let Some(master) = number(&port, IFLA_MASTER) else {
        return Ok(None);
    };
    let info = attribute(&port, IFLA_LINKINFO).unwrap_or_default();
    Ok(Some(Master {
        name: text(&attributes(master)?, IFLA_IFNAME).unwrap_or_default(),
        kind: text(info, IFLA_INFO_SLAVE_KIND).unwrap_or_default(),
    }))
}

/// Adds the attributes of one end of a veth pair.
fn end(message: Message, name: &str, queues: u32) -> Message {
    message
        .attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
        .attribute(IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes())
        .attribute(IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes())
}

/// Creates a veth pair: `name` in this network namespace, and `peer` in `namespace`.
pub(super) fn create_veth(
    name: &str,
    peer: &str,
    queues: u32,
    namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    let message = Message::new(RTM_NEWLINK, NLM_F_CREATE_NEW).fixed(&[0; INTERFACE_MESSAGE]);
    end(message, name, queues)
        .nest(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth")
                .nest(IFLA_INFO_DATA, |data| {
                    data.nest(VETH_INFO_PEER, |message| {
                        end(message.fixed(&[0; INTERFACE_MESSAGE]), peer, queues)
                            .attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes())
                    })
                })
        })
        .request()
}

/// Removes interface number `index`.
pub(super) fn delete_link(index: u32) -> io::Result<()> {
    Message::about(RTM_DELLINK, 0, index).request()
}

/// Returns the largest TCP super-segments, over IPv4 and over IPv6, that interface number `index`
/// takes.
///
/// The sizes are bytes of the whole packet, including the link header. Kernels before Linux 6.3
/// have one limit for both.
pub(crate) fn longest_supers(route: &File, index: u32) -> io::Result<[usize; 2]> {
    let answer = Message::about(RTM_GETLINK, 0, index).ask_through(route)?;
    let attributes = answer.get(INTERFACE_MESSAGE..).unwrap_or_default();
    let v6 = number(attributes, IFLA_GSO_MAX_SIZE).unwrap_or(DEFAULT_GSO_SIZE);
    let v4 = number(attributes, IFLA_GSO_IPV4_MAX_SIZE).unwrap_or(v6.min(DEFAULT_GSO_SIZE));
    // The kernel reports an exclusive limit.
    Ok([v4, v6].map(|limit| limit.saturating_sub(1) as usize))
}

/// Makes interface number `index` accept IPv4 super-segments of less than `bytes`, including the
/// link header. Needs Linux 6.3.
pub(super) fn allow_supers(index: u32, bytes: u32) -> io::Result<()> {
    Message::about(RTM_SETLINK, 0, index)
        .attribute(IFLA_GSO_IPV4_MAX_SIZE, &bytes.to_ne_bytes())
        .request()
}

/// Gives interface number `index` a queue for `packets` that it cannot send at once.
///
/// Without a queue, a veth end drops packets while its peer's ring is full. With a queue it makes
/// senders wait, including `AF_XDP` sockets.
pub(super) fn add_queue(index: u32, packets: u32) -> io::Result<()> {
    let mut fixed = [0; QDISC_MESSAGE];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
    Message::new(RTM_NEWQDISC, NLM_F_CREATE_NEW)
        .fixed(&fixed)
        .attribute(TCA_KIND, b"pfifo\0")
        .attribute(TCA_OPTIONS, &packets.to_ne_bytes())
        .request()
}

/// Adds an address to interface number `index`.
pub(super) fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let (family, octets, flags) = match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec(), 0),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec(), IFA_F_NODAD),
    };
    let mut fixed = [family, prefix, flags, 0, 0, 0, 0, 0];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE_NEW)
        .fixed(&fixed)
        .attribute(IFA_LOCAL, &octets)
        .attribute(IFA_ADDRESS, &octets);
    if let IpAddr::V4(v4) = address
        && prefix < 31
    {
        let broadcast = v4.to_bits() | u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
        message = message.attribute(IFA_BROADCAST, &broadcast.to_be_bytes());
    }
    message.request()
}
