//! The path to a peer: the link and IP headers of packets to the peer.

use eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Link};

use crate::packet::Addresses;
use crate::{HOP_LIMIT, IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use nmio::checksum::Sum;

/// First byte of an IPv4 header without options: version 4, and a length of five 32-bit words.
const VERSION_IHL: u8 = 0x45;
/// IPv4's DF flag. Our packets are never fragmented, so their identification may be 0
/// (RFC 6864, section 4).
const DONT_FRAGMENT: u16 = 0x4000;

/// The two ECN bits in an IP header (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not support ECN for this packet.
    #[default]
    NotEct = 0,
    /// ECT(1): the sender supports ECN.
    Ect1 = 1,
    /// ECT(0): the sender supports ECN.
    Ect0 = 2,
    /// Congestion experienced: a congested router has marked the packet.
    Ce = 3,
}

impl Ecn {
    /// Reads the ECN codepoint from the lowest two bits of IPv4's type of service or IPv6's traffic
    /// class.
    #[inline(always)]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// The link and IP addresses of packets to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The addresses and the tag of the Ethernet header.
    pub link: Link,
    /// The IP addresses: ours is the source, the peer's is the destination.
    pub addresses: Addresses,
}

impl Path {
    /// Returns the length of the link and IP headers, in bytes.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        self.link.header_len() + self.addresses.header_len()
    }

    /// Writes link and IP headers for a payload of `payload_len` bytes to the start of `packet`,
    /// and returns the payload's offset.
    ///
    /// # Panics
    /// Panics if `packet` is shorter than the headers.
    #[inline(always)]
    pub fn write(&self, packet: &mut [u8], protocol: u8, payload_len: usize) -> usize {
        self.write_marked(packet, protocol, payload_len, Ecn::NotEct)
    }

    /// Like [`Path::write`], but also sets the ECN bits. If an IPv4 super-segment exceeds 65,535
    /// bytes, its length field is 0, as in Linux since 6.3 ("BIG TCP").
    ///
    /// # Panics
    /// Panics if `packet` is shorter than the headers.
    #[inline(always)]
    pub fn write_marked(
        &self,
        packet: &mut [u8],
        protocol: u8,
        payload_len: usize,
        ecn: Ecn,
    ) -> usize {
        let ethertype = match self.addresses {
            Addresses::V4 { .. } => ETHERTYPE_IPV4,
            Addresses::V6 { .. } => ETHERTYPE_IPV6,
        };
        let start = self.link.write(packet, ethertype);
        let packet = &mut packet[start..];
        start + self.addresses.write(packet, protocol, payload_len, ecn)
    }

    /// Patches headers that [`Path::write`] has written for another path. Both paths must be
    /// untagged and have the same IP version, and `protocol` must be the same. Writes only the
    /// fields that may differ: the MAC addresses, the IP addresses, the length, the ECN bits and
    /// the IPv4 checksum. Returns the payload's offset.
    ///
    /// # Panics
    /// Panics if `packet` is shorter than the headers.
    #[inline(always)]
    pub fn patch_marked(
        &self,
        packet: &mut [u8],
        protocol: u8,
        payload_len: usize,
        ecn: Ecn,
    ) -> usize {
        debug_assert!(self.link.vlan.is_none(), "prepared packets have no tag");
        packet[..12].copy_from_slice(&self.link.macs());
        let at = eth::HEADER_LEN;
        at + self
            .addresses
            .patch(&mut packet[at..], protocol, payload_len, ecn)
    }
}

impl Addresses {
    /// See [`Path::patch_marked`]. `packet` starts with the IP header, whose length is returned.
    #[inline(always)]
    pub(crate) fn patch(
        &self,
        packet: &mut [u8],
        protocol: u8,
        payload_len: usize,
        ecn: Ecn,
    ) -> usize {
        match self {
            Self::V4 { src, dst } => {
                let header: &mut [u8; IPV4_HEADER_LEN] = packet
                    .first_chunk_mut()
                    .expect("a packet holds its IP header");
                let total_len = (IPV4_HEADER_LEN + payload_len) as u16;
                let checksum = self.ipv4_checksum(protocol, total_len, ecn);
                header[1] = ecn as u8;
                header[2..4].copy_from_slice(&total_len.to_be_bytes());
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                header[12..16].copy_from_slice(&src.octets());
                header[16..20].copy_from_slice(&dst.octets());
                IPV4_HEADER_LEN
            }
            Self::V6 { src, dst } => {
                let header: &mut [u8; IPV6_HEADER_LEN] = packet
                    .first_chunk_mut()
                    .expect("a packet holds its IP header");
                header[1] = (ecn as u8) << 4;
                header[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
                header[8..24].copy_from_slice(&src.octets());
                header[24..40].copy_from_slice(&dst.octets());
                IPV6_HEADER_LEN
            }
        }
    }

    /// Writes an IP header for a payload of `payload_len` bytes to the start of `packet`, and returns
    /// the header's length.
    ///
    /// # Panics
    /// Panics if `packet` is shorter than the header.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        packet: &mut [u8],
        protocol: u8,
        payload_len: usize,
        ecn: Ecn,
    ) -> usize {
        match self {
            Self::V4 { src, dst } => {
                let header: &mut [u8; IPV4_HEADER_LEN] = packet
                    .first_chunk_mut()
                    .expect("a packet holds its IP header");
                let total_len = u16::try_from(IPV4_HEADER_LEN + payload_len).unwrap_or(0);
                header[0] = VERSION_IHL;
                header[1] = ecn as u8;
                header[2..4].copy_from_slice(&total_len.to_be_bytes());
                header[4..6].fill(0);
                header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                header[8] = HOP_LIMIT;
                header[9] = protocol;
                let checksum = self.ipv4_checksum(protocol, total_len, ecn);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                header[12..16].copy_from_slice(&src.octets());
                header[16..20].copy_from_slice(&dst.octets());
                IPV4_HEADER_LEN
            }
            Self::V6 { src, dst } => {
                let header: &mut [u8; IPV6_HEADER_LEN] = packet
                    .first_chunk_mut()
                    .expect("a packet holds its IP header");
                header[..4].copy_from_slice(&[0x60, (ecn as u8) << 4, 0, 0]);
                header[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
                header[6] = protocol;
                header[7] = HOP_LIMIT;
                header[8..24].copy_from_slice(&src.octets());
                header[24..40].copy_from_slice(&dst.octets());
                IPV6_HEADER_LEN
            }
        }
    }

    /// Computes the IPv4 header checksum from the known field values, without reading the header.
    #[inline(always)]
    fn ipv4_checksum(&self, protocol: u8, total_len: u16, ecn: Ecn) -> u16 {
        Sum::ZERO
            .word(u16::from(VERSION_IHL) << 8 | ecn as u16)
            .word(total_len)
            .word(DONT_FRAGMENT)
            .word(u16::from(HOP_LIMIT) << 8 | u16::from(protocol))
            .add(self.sum())
            .finish()
    }
}
