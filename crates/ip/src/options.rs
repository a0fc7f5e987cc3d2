//! Checks IPv4 options, and walks and checks IPv6 extension headers.
//!
//! The server has no use for options and extension headers, so it skips them. For security, packets
//! with source routes are refused (RFC 7126, sections 4.3 and 4.4; RFC 5095). A packet is also
//! refused if it has an unknown IPv6 option whose type forbids skipping it (RFC 8200, section 4.2).

use crate::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_ICMPV6};

/// Maximum number of IPv6 extension headers in one packet. The XDP program that steers packets uses
/// the same limit. The limit exceeds what RFC 8200, section 4.1, recommends: each supported header
/// at most once, and the destination options header at most twice.
const MAX_EXTENSIONS: usize = 6;
/// Maximum number of options in one IPv6 packet, including padding. RFC 8504, section 5.3, allows a
/// host to limit this number.
const MAX_OPTIONS: usize = 32;

/// Types of IPv4 options (RFC 791, section 3.1).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// Next-header values of the supported extension headers (RFC 8200, section 4.1).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Unit of an extension header's length, in bytes.
const EXTENSION_UNIT: usize = 8;
/// Mask of the fragment offset and the more-fragments flag in a fragment header (RFC 8200, section
/// 4.5).
const FRAGMENT_BITS: u16 = 0xfff9;

/// Type of the IPv6 option for one byte of padding (RFC 8200, section 4.2).
const PAD_1: u8 = 0;
/// Mask of the two highest bits of an option's type. They say what a node must do if it does not
/// know the option.
const ACTION_BITS: u8 = 0xc0;
const ACTION_SKIP: u8 = 0x00;
const ACTION_DISCARD: u8 = 0x40;

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The packet is truncated, or its lengths contradict each other.
    Malformed,
    /// The packet is a fragment of a larger packet.
    Fragment,
    /// The packet has an IPv4 source route.
    SourceRoute,
    /// The packet has an IPv6 routing header with segments left. `at` is the offset of the header's
    /// type field. `report` says whether an ICMP error may be sent.
    RoutingHeader { report: bool, at: u16 },
    /// The packet has an unknown IPv6 option that must not be ignored. `at` is the offset of the
    /// option. `report` says whether an ICMP error may be sent.
    Option { report: bool, at: u16 },
    /// The packet has too many extension headers or options.
    TooMany,
}

/// The position and protocol of a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) protocol: u8,
    /// Offset of the payload from the start of the IP header.
    pub(crate) at: usize,
    /// Offset of the next-header field that names `protocol`, from the start of the IP header.
    pub(crate) next_header_at: usize,
}

/// Refuses an IPv4 header whose options are malformed or contain a source route.
pub(crate) fn check_ipv4(header: &[u8]) -> Result<(), Refusal> {
    let mut options = header.get(IPV4_HEADER_LEN..).ok_or(Refusal::Malformed)?;
    while let [kind, rest @ ..] = options {
        options = match *kind {
            END_OF_OPTIONS => break,
            NO_OPERATION => rest,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(Refusal::SourceRoute),
            _ => {
                let len = usize::from(*rest.first().ok_or(Refusal::Malformed)?);
                if len < 2 {
                    return Err(Refusal::Malformed);
                }
                options.get(len..).ok_or(Refusal::Malformed)?
            }
        };
    }
    Ok(())
}

/// Returns true if `next_header` is an extension header that [`walk_ipv6`] skips.
#[inline(always)]
pub(crate) fn is_extension(next_header: u8) -> bool {
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
}

/// Walks the extension headers of an IPv6 packet. Returns the position and protocol of the packet's
/// payload. The caller has removed the Ethernet padding.
pub(crate) fn walk_ipv6(packet: &[u8]) -> Result<Payload, Refusal> {
    let mut payload = Payload {
        protocol: *packet.get(6).ok_or(Refusal::Malformed)?,
        at: IPV6_HEADER_LEN,
        next_header_at: 6,
    };
    let mut options_left = MAX_OPTIONS;
    for _ in 0..MAX_EXTENSIONS {
        // Hop-by-hop options directly follow the IPv6 header (RFC 8200, section 4.1). Anywhere
        // else, they count as an unknown protocol.
        let is_late = payload.protocol == HOP_BY_HOP && payload.at != IPV6_HEADER_LEN;
        if !is_extension(payload.protocol) || is_late {
            return Ok(payload);
        }
        let rest = packet.get(payload.at..).ok_or(Refusal::Malformed)?;
        let unit: &[u8; EXTENSION_UNIT] = rest.first_chunk().ok_or(Refusal::Malformed)?;
        let len = match payload.protocol {
            FRAGMENT => EXTENSION_UNIT,
            _ => EXTENSION_UNIT * (1 + usize::from(unit[1])),
        };
        let extension = rest.get(..len).ok_or(Refusal::Malformed)?;
        let report = !may_be_error(unit[0], &rest[len..]);
        match payload.protocol {
            // An atomic fragment is a whole packet (RFC 6946, section 4).
            FRAGMENT if u16::from_be_bytes([unit[2], unit[3]]) & FRAGMENT_BITS != 0 => {
                return Err(Refusal::Fragment);
            }
            // A routing header without segments left is ignored (RFC 8200, section 4.4).
            ROUTING if unit[3] != 0 => {
                let at = (payload.at + 2) as u16;
                return Err(Refusal::RoutingHeader { report, at });
            }
            HOP_BY_HOP | DESTINATION => {
                check_ipv6_options(extension, payload.at, report, &mut options_left)?;
            }
            _ => {}
        }
        payload = Payload {
            protocol: unit[0],
            at: payload.at + len,
            next_header_at: payload.at,
        };
    }
    if is_extension(payload.protocol) {
        return Err(Refusal::TooMany);
    }
    Ok(payload)
}

/// Returns true if the packet may be an ICMPv6 error, which must not be answered with an error (RFC
/// 4443, section 2.4). `next_header` is the type of `rest`, the part of the packet that is not yet
/// parsed. If this part starts with an extension header, it may still contain an error.
fn may_be_error(next_header: u8, rest: &[u8]) -> bool {
    const INFORMATIONAL: u8 = 128;
    let is_error = rest.first().is_none_or(|kind| *kind < INFORMATIONAL);
    is_extension(next_header) || next_header == PROTOCOL_ICMPV6 && is_error
}

/// Checks the options of an extension header at offset `at` of its packet. `report` says whether an
/// ICMP error may be sent. `remaining` is the number of options that the packet may still have.
fn check_ipv6_options(
    extension: &[u8],
    at: usize,
    report: bool,
    remaining: &mut usize,
) -> Result<(), Refusal> {
    let mut next = 2;
    while next < extension.len() {
        *remaining = remaining.checked_sub(1).ok_or(Refusal::TooMany)?;
        let kind = extension[next];
        if kind == PAD_1 {
            next += 1;
            continue;
        }
        let len = *extension.get(next + 1).ok_or(Refusal::Malformed)?;
        match kind & ACTION_BITS {
            ACTION_SKIP => {}
            action => {
                return Err(Refusal::Option {
                    report: report && action != ACTION_DISCARD,
                    at: (at + next) as u16,
                });
            }
        }
        next += 2 + usize::from(len);
        if next > extension.len() {
            return Err(Refusal::Malformed);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
