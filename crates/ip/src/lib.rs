//! What TCP and UDP share: IPv4 and IPv6 headers, checksums, ICMP, and the
//! policy on fragments.
//!
//! [`Host::receive`] takes a frame apart once. What it gives back is a
//! [`Packet`] whose headers have been checked, so that everything behind it
//! can read without checking again; or a reply that only needs sending (ARP,
//! neighbour discovery, echo); or a parsed ICMP error about something that we
//! sent. All else is dropped and counted by its reason. [`Transports`] are what serves on
//! a host; a [`Server`] is both, ready for [`nmio::run`].
//!
//! ```
//! use ip::Sum;
//!
//! // RFC 1071, section 3: 0001 f203 f4f5 f6f7 add up to ddf2.
//! let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
//! assert_eq!(sum.fold(), 0xddf2);
//! ```
//!
//! IPv4 options and IPv6 extension headers are skipped. A reply carries none:
//! many networks drop packets that do (RFC 9288; RFC 7126), and for that
//! reason an echo reply does not return a record route or a timestamp, which
//! RFC 1122, section 3.2.2.6, only recommends.
//!
//! Deliberately absent, and counted where they arrive: fragments (answers
//! never need them, and their reassembly is a way to be attacked; an atomic
//! fragment is none, RFC 6946), source routes, forwarding, and multicast but
//! for neighbour discovery.

mod both;
mod errors;
mod host;
mod icmp;
mod options;
mod packet;
mod path;
mod segmentation;
mod server;
mod source;
#[cfg(test)]
mod testing;
mod transports;

pub use both::Both;
pub use host::{Counters, Host, Input};
pub use icmp::{ErrorKind, IcmpError};
pub use nmio::checksum::{self, Sum};
pub use packet::{Addresses, Packet};
pub use path::{Ecn, Path};
pub use segmentation::cut;
pub use server::Server;
pub use transports::{Inputs, Transports};

/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_LEN: usize = 20;
/// Bytes of an IPv6 header without extensions.
pub const IPV6_HEADER_LEN: usize = 40;
/// TTL and hop limit of what we send (RFC 1700's recommended default).
pub const HOP_LIMIT: u8 = 64;
