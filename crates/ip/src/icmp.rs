//! ICMP (RFC 792) and ICMPv6 (RFC 4443): writes echo replies, and parses errors about packets that
//! we sent.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::addresses::Addresses;
use crate::checksum;
use crate::packet::Packet;
use crate::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP,
};

const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
const UNREACHABLE_V4: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TIME_EXCEEDED_V4: u8 = 11;
const PARAMETER_PROBLEM_V4: u8 = 12;
const UNREACHABLE_V6: u8 = 1;
const TOO_BIG_V6: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;
const PARAMETER_PROBLEM_V6: u8 = 4;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
pub(crate) const NEIGHBOUR_SOLICITATION: u8 = 135;

/// Length of the ICMP header, in bytes: type, code, checksum, and four more bytes.
pub(crate) const ICMP_HEADER_LEN: usize = 8;
/// Offset of the checksum field in the ICMP header.
pub(crate) const CHECKSUM_AT: usize = 2;

/// The meaning of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Our packet is too big for a link on the path (RFC 1191, RFC 8201).
    TooBig {
        /// The maximum size of an IP packet on that link, in bytes. Routers older than RFC 1191
        /// send 0.
        mtu: u32,
    },
    /// The destination is unreachable. The value is the code of the ICMP message.
    Unreachable(u8),
    /// Our packet's TTL or hop limit reached zero before the destination.
    TimeExceeded,
    /// A router or the peer could not process a header field of our packet.
    ParameterProblem,
}

/// An ICMP error that quotes a packet from one of our addresses. Anyone can forge an error, so
/// check `sequence` before acting on the error (RFC 5927).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The kind of error.
    pub kind: ErrorKind,
    /// The addresses of the quoted packet. The source is one of our addresses.
    pub addresses: Addresses,
    /// The protocol of the quoted packet: TCP or UDP.
    pub protocol: u8,
    /// The source port of the quoted packet, which is our port.
    pub src_port: u16,
    /// The destination port of the quoted packet, which is the peer's port.
    pub dst_port: u16,
    /// The sequence number of a quoted TCP segment, or the length and checksum of a quoted UDP
    /// datagram.
    pub sequence: u32,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Turns an echo request into its reply, in place. Leaves other messages unchanged and returns
/// `false`.
pub(crate) fn turn_echo_round(packet: &mut Packet, protocol: u8) -> bool {
    let (request, reply) = match protocol {
        PROTOCOL_ICMPV6 => (ECHO_REQUEST_V6, ECHO_REPLY_V6),
        _ => (ECHO_REQUEST_V4, ECHO_REPLY_V4),
    };
    let message = packet.payload_mut();
    if message[0] != request || message[1] != 0 {
        return false;
    }
    // Swapping the addresses does not change the sum of ICMPv6's pseudo-header.
    let field = u16::from_be_bytes([message[CHECKSUM_AT], message[CHECKSUM_AT + 1]]);
    let (old, new) = (u16::from(request) << 8, u16::from(reply) << 8);
    message[0] = reply;
    let mut field = checksum::update(field, old, new);
    if field == 0 {
        // If all other bytes of the reply are 0, its checksum must be 0xffff. For all other
        // replies, 0 and 0xffff are equivalent (RFC 1624, section 3).
        field = 0xffff;
    }
    message[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&field.to_be_bytes());
    true
}

/// Parses an error message. Returns `None` for other messages. Also returns `None` if the quoted
/// packet is truncated, or cannot be a TCP segment or UDP datagram of ours.
pub(crate) fn parse_error(message: &[u8], protocol: u8) -> Option<IcmpError> {
    let (kind_byte, code) = (*message.first()?, *message.get(1)?);
    let embedded = message.get(ICMP_HEADER_LEN..)?;
    if protocol == PROTOCOL_ICMP {
        let kind = match (kind_byte, code) {
            (UNREACHABLE_V4, FRAGMENTATION_NEEDED) => ErrorKind::TooBig {
                mtu: u32::from(be16(message, 6)?),
            },
            (UNREACHABLE_V4, code) => ErrorKind::Unreachable(code),
            (TIME_EXCEEDED_V4, _) => ErrorKind::TimeExceeded,
            (PARAMETER_PROBLEM_V4, _) => ErrorKind::ParameterProblem,
            _ => return None,
        };
        // We never send options or fragments, so we cannot have sent a packet that has them.
        if embedded.first()? != &0x45 || be16(embedded, 6)? & 0x3fff != 0 {
            return None;
        }
        let addresses = Addresses::V4 {
            src: Ipv4Addr::from_bits(be32(embedded, 12)?),
            dst: Ipv4Addr::from_bits(be32(embedded, 16)?),
        };
        return parse_embedded(
            kind,
            addresses,
            embedded[9],
            embedded.get(IPV4_HEADER_LEN..)?,
        );
    }
    let kind = match kind_byte {
        TOO_BIG_V6 => ErrorKind::TooBig {
            mtu: be32(message, 4)?,
        },
        UNREACHABLE_V6 => ErrorKind::Unreachable(code),
        TIME_EXCEEDED_V6 => ErrorKind::TimeExceeded,
        PARAMETER_PROBLEM_V6 => ErrorKind::ParameterProblem,
        _ => return None,
    };
    if embedded.first()? >> 4 != 6 {
        return None;
    }
    let address = |at: usize| Some(Ipv6Addr::from(*embedded.get(at..)?.first_chunk::<16>()?));
    let addresses = Addresses::V6 {
        src: address(8)?,
        dst: address(24)?,
    };
    parse_embedded(
        kind,
        addresses,
        embedded[6],
        embedded.get(IPV6_HEADER_LEN..)?,
    )
}

fn parse_embedded(
    kind: ErrorKind,
    addresses: Addresses,
    protocol: u8,
    transport: &[u8],
) -> Option<IcmpError> {
    if !matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP) {
        return None;
    }
    Some(IcmpError {
        kind,
        addresses,
        protocol,
        src_port: be16(transport, 0)?,
        dst_port: be16(transport, 2)?,
        sequence: be32(transport, 4)?,
    })
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
mod tests;
