//! The layer that TCP and UDP share: IPv4 and IPv6 headers, checksums, ICMP, and the policy on
//! fragments.
//!
//! [`Host::receive`] parses a frame once. It returns one of three things:
//!
//! - a TCP or UDP [`Packet`], whose link and IP headers are already checked,
//! - a frame that is ready to send: an ICMP error, or the reply to an ARP request, a neighbour
//!   solicitation or an echo request,
//! - a parsed ICMP error about a packet that we sent.
//!
//! All other frames are dropped and counted by reason. [`Transports`] serve TCP and UDP on a host.
//! A [`Server`] is a host with its transports, ready for [`nmio::run`].
//!
//! ```
//! use ip::Sum;
//!
//! // RFC 1071, section 3: 0001 f203 f4f5 f6f7 add up to ddf2.
//! let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
//! assert_eq!(sum.fold(), 0xddf2);
//! ```
//!
//! IPv4 options and IPv6 extension headers that may be ignored are skipped. Replies have neither,
//! because many networks drop packets with options or extension headers (RFC 9288; RFC 7126). An
//! echo reply therefore omits the request's record route and timestamp options. RFC 1122, section
//! 3.2.2.6, recommends returning these options but does not require it.
//!
//! Deliberately not supported: fragments, source routes, forwarding, and multicast other than
//! neighbour discovery. Packets that need them are dropped and counted. The server never sends
//! fragments, and reassembling received fragments invites attacks. An atomic fragment is accepted,
//! because it is a whole packet (RFC 6946).

mod addresses;
mod both;
mod ecn;
mod errors;
mod host;
mod icmp;
mod many;
mod options;
mod packet;
mod path;
mod segmentation;
mod server;
mod source;
#[cfg(test)]
mod testing;
mod transports;

pub use addresses::Addresses;
pub use both::Both;
pub use ecn::Ecn;
pub use host::{Counters, Host, Input};
pub use icmp::{ErrorKind, IcmpError};
pub use many::{Many, Member};
pub use nmio::checksum::{self, Sum};
pub use packet::Packet;
pub use path::Path;
pub use segmentation::write_segment;
pub use server::Server;
pub use transports::{Inputs, MAX_INPUTS, Transports};

/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// Length of an IPv4 header without options, in bytes.
pub const IPV4_HEADER_LEN: usize = 20;
/// Length of an IPv6 header without extension headers, in bytes.
pub const IPV6_HEADER_LEN: usize = 40;
/// TTL (IPv4) and hop limit (IPv6) of sent packets, except neighbour discovery. RFC 1700 recommends
/// this default.
pub const HOP_LIMIT: u8 = 64;
