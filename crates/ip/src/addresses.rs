//! The IP addresses of a packet, and the IP headers that carry them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ecn::Ecn;
use crate::{HOP_LIMIT, IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use nmio::checksum::Sum;

/// First byte of an IPv4 header without options: version 4, and a length of five 32-bit words.
const VERSION_IHL: u8 = 0x45;
/// IPv4's DF flag. Our packets are never fragmented, so their identification may be 0
/// (RFC 6864, section 4).
const DONT_FRAGMENT: u16 = 0x4000;

/// The source and destination IP addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// The addresses of an IPv4 packet.
    V4 {
        /// The source address.
        src: Ipv4Addr,
        /// The destination address.
        dst: Ipv4Addr,
    },
    /// The addresses of an IPv6 packet.
    V6 {
        /// The source address.
        src: Ipv6Addr,
        /// The destination address.
        dst: Ipv6Addr,
    },
}

impl Addresses {
    /// Reads the addresses of an IPv4 header.
    #[inline(always)]
    pub(crate) fn of_v4(header: &[u8; IPV4_HEADER_LEN]) -> Self {
        let [.., a, b, c, d, e, f, g, h] = *header;
        Self::V4 {
            src: Ipv4Addr::new(a, b, c, d),
            dst: Ipv4Addr::new(e, f, g, h),
        }
    }

    /// Reads the addresses of an IPv6 header.
    #[inline(always)]
    pub(crate) fn of_v6(header: &[u8; IPV6_HEADER_LEN]) -> Self {
        let address = |at: usize| {
            let bytes = header[at..].first_chunk::<16>();
            Ipv6Addr::from(*bytes.expect("the header has 40 bytes"))
        };
        Self::V6 {
            src: address(8),
            dst: address(24),
        }
    }

    /// Reads the addresses of an IP header without options. The header's length tells its version.
    #[inline(always)]
    pub(crate) fn of_header(header: &[u8]) -> Self {
        if let Some(header) = header.first_chunk::<IPV6_HEADER_LEN>() {
            Self::of_v6(header)
        } else {
            Self::of_v4(header.first_chunk().expect("a header without options"))
        }
    }

    /// Swaps source and destination.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { src, dst } => Self::V4 { src: dst, dst: src },
            Self::V6 { src, dst } => Self::V6 { src: dst, dst: src },
        }
    }

    /// Returns the source address.
    #[inline(always)]
    pub const fn src(&self) -> IpAddr {
        match self {
            Self::V4 { src, .. } => IpAddr::V4(*src),
            Self::V6 { src, .. } => IpAddr::V6(*src),
        }
    }

    /// Returns the destination address.
    #[inline(always)]
    pub const fn dst(&self) -> IpAddr {
        match self {
            Self::V4 { dst, .. } => IpAddr::V4(*dst),
            Self::V6 { dst, .. } => IpAddr::V6(*dst),
        }
    }

    /// Returns the length in bytes of an IP header without options for these addresses.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::V4 { .. } => IPV4_HEADER_LEN,
            Self::V6 { .. } => IPV6_HEADER_LEN,
        }
    }

    /// Returns the sum over both addresses, which is part of every transport checksum.
    #[inline(always)]
    pub fn sum(&self) -> Sum {
        match self {
            Self::V4 { src, dst } => Sum::ZERO.dword(src.to_bits()).dword(dst.to_bits()),
            Self::V6 { src, dst } => Sum::of(&src.octets()).add(Sum::of(&dst.octets())),
        }
    }

    /// Returns the sum over the pseudo-header for an IP payload of `len` bytes (RFC 9293, section
    /// 3.1; RFC 8200, section 8.1).
    #[inline(always)]
    pub fn pseudo_sum(&self, protocol: u8, len: usize) -> Sum {
        self.sum().word(u16::from(protocol)).dword(len as u32)
    }

    /// See [`Path::patch_marked`](crate::Path::patch_marked). `packet` starts with the IP header, whose
    /// length is returned.
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
