//! Creates and rate-limits ICMP errors about packets to our own addresses (RFC 1122, section 3.2.2;
//! RFC 4443, sections 2.4 and 3).

use std::net::IpAddr;
use std::time::Duration;

use ahash::RandomState;
use nmio::checksum::Sum;
use nmio::{Frame, Instant};

use crate::addresses::Addresses;
use crate::icmp::{CHECKSUM_AT, ICMP_HEADER_LEN};
use crate::options::walk_ipv6;
use crate::packet::Packet;
use crate::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};

const UNREACHABLE_V4: u8 = 3;
const PROTOCOL_UNREACHABLE: u8 = 2;
const PORT_UNREACHABLE_V4: u8 = 3;
const UNREACHABLE_V6: u8 = 1;
const PORT_UNREACHABLE_V6: u8 = 4;
const PARAMETER_PROBLEM_V6: u8 = 4;
const ERRONEOUS_HEADER: u8 = 0;
const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
const UNRECOGNIZED_OPTION: u8 = 2;

/// Maximum length of an error in bytes, including the IP header. Every host must accept a packet of
/// this length (RFC 1812, section 4.3.2.3; RFC 4443, section 2.4 c).
const MAX_ERROR_V4: usize = 576;
const MAX_ERROR_V6: usize = 1280;

/// Maximum number of errors sent in a burst to one IPv4 address or one IPv6 /64.
const BURST: u32 = 6;
/// Minimum time between errors to the same IPv4 address or IPv6 /64 after a burst.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of token buckets. A keyed hash assigns receivers of errors to buckets. Each bucket allows
/// one error per second, so a worker's sustained limit is 256 errors per second. A single bucket
/// would be a side channel: a peer could detect errors to other peers (CVE-2020-25705).
const BUCKETS: usize = 256;

/// The reason for an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// No transport serves the destination UDP port.
    Port,
    /// The server does not support the packet's protocol.
    Protocol,
    /// The packet has an IPv6 routing header with segments left. `at` is the offset of the header's
    /// type field in the packet.
    RoutingType { at: u16 },
    /// The packet has an unknown IPv6 option that must not be ignored. `at` is the offset of the
    /// option in the packet.
    Option { at: u16 },
}

impl Problem {
    /// Returns the type and code of the ICMP error about `packet`, and the value of the error's
    /// pointer field.
    fn message(self, addresses: &Addresses, packet: &[u8]) -> ([u8; 2], u32) {
        let is_v4 = matches!(addresses, Addresses::V4 { .. });
        match self {
            Self::Port if is_v4 => ([UNREACHABLE_V4, PORT_UNREACHABLE_V4], 0),
            Self::Port => ([UNREACHABLE_V6, PORT_UNREACHABLE_V6], 0),
            Self::Protocol if is_v4 => ([UNREACHABLE_V4, PROTOCOL_UNREACHABLE], 0),
            Self::Protocol => {
                let next_header_at = walk_ipv6(packet).map_or(0, |payload| payload.next_header_at);
                let code = [PARAMETER_PROBLEM_V6, UNRECOGNIZED_NEXT_HEADER];
                (code, next_header_at as u32)
            }
            Self::RoutingType { at } => ([PARAMETER_PROBLEM_V6, ERRONEOUS_HEADER], at.into()),
            Self::Option { at } => ([PARAMETER_PROBLEM_V6, UNRECOGNIZED_OPTION], at.into()),
        }
    }
}

/// Replaces a received packet with an ICMP error that quotes it, in the same frame. Returns `None`
/// if the frame is too small for the error's headers.
pub(crate) fn turn_into_error(packet: Packet, problem: Problem) -> Option<Frame> {
    let path = packet.path_back();
    let (ip_at, icmp_at) = (path.link.header_len(), path.header_len());
    let quote_at = icmp_at + ICMP_HEADER_LEN;
    let (protocol, longest) = match path.addresses {
        Addresses::V4 { .. } => (PROTOCOL_ICMP, MAX_ERROR_V4),
        Addresses::V6 { .. } => (PROTOCOL_ICMPV6, MAX_ERROR_V6),
    };
    let mut frame = packet.restore();
    let (code, pointer) = problem.message(&path.addresses, &frame[ip_at..]);
    let room = frame
        .capacity()
        .min(ip_at + longest)
        .checked_sub(quote_at)?;
    let quoted = room.min(frame.len() - ip_at);
    let len = quote_at + quoted;
    frame.set_len(len.max(frame.len()));
    frame.copy_within(ip_at..ip_at + quoted, quote_at);
    frame.set_len(len);

    let message = &mut frame[icmp_at..];
    message[..2].copy_from_slice(&code);
    message[CHECKSUM_AT..4].fill(0);
    message[4..ICMP_HEADER_LEN].copy_from_slice(&pointer.to_be_bytes());
    let pseudo = match path.addresses {
        Addresses::V4 { .. } => Sum::ZERO,
        Addresses::V6 { .. } => path.addresses.pseudo_sum(protocol, message.len()),
    };
    let checksum = pseudo.add(Sum::of(message)).finish();
    message[CHECKSUM_AT..4].copy_from_slice(&checksum.to_be_bytes());
    path.write(&mut frame, protocol, ICMP_HEADER_LEN + quoted);
    Some(frame)
}

/// Limits the rate of ICMP errors (RFC 1812, section 4.3.2.8; RFC 4443, section 2.4 f). A hash
/// assigns each receiver of errors to a token bucket, so several receivers may share a bucket.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    keys: RandomState,
    /// For each bucket, the time at which it will be full again.
    full_at: Box<[Instant; BUCKETS]>,
}

impl RateLimiter {
    pub(crate) fn new([a, b, c, d]: [u64; 4]) -> Self {
        Self {
            keys: RandomState::with_seeds(a, b, c, d),
            full_at: Box::new([Instant::ZERO; BUCKETS]),
        }
    }

    /// Takes a token for an error to `peer`. Returns `false` if there is no token, so the error
    /// must not be sent.
    pub(crate) fn take(&mut self, peer: IpAddr, now: Instant) -> bool {
        let sender = match peer {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        let bucket = self.keys.hash_one((peer.is_ipv4(), sender)) as usize % BUCKETS;
        let full_at = &mut self.full_at[bucket];
        let next = (*full_at).max(now) + INTERVAL;
        if next > now + INTERVAL * BURST {
            return false;
        }
        *full_at = next;
        true
    }
}

#[cfg(test)]
#[path = "errors_tests.rs"]
mod tests;
