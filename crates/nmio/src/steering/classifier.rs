//! The rules as they are followed in user space. This is a translation of `bpf/steer.bpf.c`, which
//! explains each rule.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Rules;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN_TAG: u16 = 0x8100;
const IPV6: u16 = 0x86dd;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Maximum number of IPv6 extension headers to skip. The steering program has the same limit.
const MAX_EXTENSIONS: usize = 6;
/// More-fragments flag and offset (RFC 791, section 3.1).
const FRAGMENT_BITS: u16 = 0x3fff;
/// The same for IPv6 (RFC 8200, section 4.5).
const FRAGMENT_BITS_V6: u16 = 0xfff9;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const ICMP_HEADER: usize = 8;
/// Size of an ARP packet for IPv4 over Ethernet (RFC 826), in bytes.
const ARP_PACKET: usize = 28;

/// ICMP messages that report an error (RFC 792): unreachable, time exceeded, parameter problem.
const ICMP_ERRORS: [u8; 3] = [3, 11, 12];
/// ICMPv6 messages that report an error (RFC 4443, section 2.1).
const ICMPV6_ERRORS: std::ops::RangeInclusive<u8> = 1..=4;
/// A neighbour solicitation (RFC 4861, section 4.3).
const SOLICITATION: u8 = 135;
/// Start of a solicited-node multicast address (RFC 4291, section 2.7.1).
const SOLICITED_NODE: [u8; 13] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];

/// Decides for each received frame whether it goes to the server.
#[derive(Debug)]
pub(crate) struct Classifier {
    own: bool,
    mac: [u8; 6],
    /// A set bit for each configured VLAN.
    vlans: Box<[u64; 4096 / 64]>,
    /// The served addresses in ascending order, IPv4 addresses as IPv4-mapped IPv6 addresses.
    addresses: Box<[Ipv6Addr]>,
    /// The served ports in ascending order, each with its protocol number.
    services: Box<[(u8, u16)]>,
}

impl Classifier {
    pub(crate) fn new(rules: &Rules<'_>) -> Self {
        let mut vlans = Box::new([0; 4096 / 64]);
        for &id in rules.vlans {
            vlans[usize::from(id) / 64] |= 1 << (id % 64);
        }
        let mut addresses: Vec<_> = rules
            .addresses
            .iter()
            .map(|address| mapped(*address))
            .collect();
        addresses.sort_unstable();
        let services = rules.services.iter();
        let mut services: Vec<_> = services
            .map(|(transport, port)| (transport.protocol() as u8, *port))
            .collect();
        services.sort_unstable();
        Self {
            own: rules.own,
            mac: rules.mac,
            vlans,
            addresses: addresses.into(),
            services: services.into(),
        }
    }

    /// Returns true if the frame goes to the server.
    #[inline]
    pub(crate) fn takes(&self, frame: &[u8]) -> bool {
        let Some((header, packet)) = frame.split_first_chunk::<14>() else {
            return false;
        };
        let to_us = header[..6] == self.mac;
        if !to_us && header[0] & 1 == 0 {
            return false;
        }
        let protocol = u16::from_be_bytes([header[12], header[13]]);
        if protocol != VLAN_TAG {
            return self.takes_packet(protocol, packet, to_us);
        }
        let Some((tag, packet)) = packet.split_first_chunk::<4>() else {
            return false;
        };
        let id = usize::from(u16::from_be_bytes([tag[0], tag[1]]) & 0xfff);
        let protocol = u16::from_be_bytes([tag[2], tag[3]]);
        self.vlans[id / 64] >> (id % 64) & 1 == 1 && self.takes_packet(protocol, packet, to_us)
    }

    #[inline]
    fn takes_packet(&self, protocol: u16, packet: &[u8], to_us: bool) -> bool {
        match protocol {
            IPV4 => to_us && self.takes_v4(packet),
            IPV6 if to_us => self.takes_v6(packet),
            IPV6 => self.own && self.is_solicitation(packet),
            ARP => self.takes_arp(packet),
            _ => false,
        }
    }

    #[inline]
    fn takes_v4(&self, packet: &[u8]) -> bool {
        let Some(header) = packet.first_chunk::<IPV4_HEADER>() else {
            return false;
        };
        if header[0] >> 4 != 4 || header[0] & 0xf < 5 || !self.is_ours(v4_at(header, 16)) {
            return false;
        }
        if self.own {
            return true;
        }
        if be16(header, 6) & FRAGMENT_BITS != 0 {
            return false;
        }
        let transport = packet.get(usize::from(header[0] & 0xf) * 4..);
        let transport = transport.unwrap_or_default();
        match header[9] {
            ICMP => self.is_our_error_v4(transport),
            protocol => self.is_served(protocol, transport, 2),
        }
    }

    #[inline]
    fn takes_v6(&self, packet: &[u8]) -> bool {
        let Some((header, rest)) = packet.split_first_chunk::<IPV6_HEADER>() else {
            return false;
        };
        if header[0] >> 4 != 6 {
            return false;
        }
        if !self.is_ours(v6_at(header, 24)) {
            return self.own && self.is_solicitation(packet);
        }
        if self.own {
            return true;
        }
        match skip_extensions(header[6], rest) {
            Some((ICMPV6, transport)) => self.is_our_error_v6(transport),
            Some((protocol, transport)) => self.is_served(protocol, transport, 2),
            None => false,
        }
    }

    fn takes_arp(&self, packet: &[u8]) -> bool {
        let Some(arp) = packet.first_chunk::<ARP_PACKET>() else {
            return false;
        };
        self.own && be16(arp, 2) == IPV4 && arp[4..6] == [6, 4] && self.is_ours(v4_at(arp, 24))
    }

    /// Returns true for a neighbour solicitation for one of the server's addresses, sent to a
    /// solicited-node multicast group.
    fn is_solicitation(&self, packet: &[u8]) -> bool {
        let Some(message) = packet.first_chunk::<{ IPV6_HEADER + ICMP_HEADER + 16 }>() else {
            return false;
        };
        message[0] >> 4 == 6
            && message[6] == ICMPV6
            && message[24..].starts_with(&SOLICITED_NODE)
            && message[IPV6_HEADER] == SOLICITATION
            && self.is_ours(v6_at(message, IPV6_HEADER + ICMP_HEADER))
    }

    /// Returns true if an ICMP error is about a packet that the server sent.
    fn is_our_error_v4(&self, message: &[u8]) -> bool {
        let Some((icmp, sent)) = message.split_first_chunk::<ICMP_HEADER>() else {
            return false;
        };
        let Some(header) = sent.first_chunk::<IPV4_HEADER>() else {
            return false;
        };
        let transport = sent.get(usize::from(header[0] & 0xf) * 4..);
        ICMP_ERRORS.contains(&icmp[0])
            && self.is_ours(v4_at(header, 12))
            && self.is_served(header[9], transport.unwrap_or_default(), 0)
    }

    fn is_our_error_v6(&self, message: &[u8]) -> bool {
        let Some((icmp, sent)) = message.split_first_chunk::<ICMP_HEADER>() else {
            return false;
        };
        let Some((header, rest)) = sent.split_first_chunk::<IPV6_HEADER>() else {
            return false;
        };
        ICMPV6_ERRORS.contains(&icmp[0])
            && self.is_ours(v6_at(header, 8))
            && skip_extensions(header[6], rest)
                .is_some_and(|(protocol, transport)| self.is_served(protocol, transport, 0))
    }

    #[inline]
    fn is_ours(&self, address: Ipv6Addr) -> bool {
        match &*self.addresses {
            [only] => *only == address,
            several => several.binary_search(&address).is_ok(),
        }
    }

    /// Returns true if the port at offset `at` of a transport header is served. The header must hold
    /// both ports.
    #[inline]
    fn is_served(&self, protocol: u8, transport: &[u8], at: usize) -> bool {
        let Some(ports) = transport.first_chunk::<4>() else {
            return false;
        };
        self.services
            .binary_search(&(protocol, be16(ports, at)))
            .is_ok()
    }
}

/// Skips IPv6 extension headers, and returns the next protocol with the rest of the packet. Skips
/// the header of an atomic fragment (RFC 6946), but stops at any other fragment header.
fn skip_extensions(mut protocol: u8, mut rest: &[u8]) -> Option<(u8, &[u8])> {
    for _ in 0..MAX_EXTENSIONS {
        if !matches!(
            protocol,
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT
        ) {
            return Some((protocol, rest));
        }
        let header = rest.first_chunk::<4>()?;
        let is_fragment = header[1] != 0 || be16(header, 2) & FRAGMENT_BITS_V6 != 0;
        if protocol == FRAGMENT && is_fragment {
            return Some((protocol, rest));
        }
        protocol = header[0];
        // A header that ends behind the packet leaves nothing to read.
        rest = rest
            .get((usize::from(header[1]) + 1) * 8..)
            .unwrap_or_default();
    }
    Some((protocol, rest))
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// # Panics
/// If the bytes end before the number, as in the functions below.
#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn v4_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    let octets: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
    Ipv4Addr::from(octets).to_ipv6_mapped()
}

#[inline(always)]
fn v6_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen bytes");
    octets.into()
}
