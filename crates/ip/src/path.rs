//! The path to a peer: the link and IP headers of packets to the peer.

use eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Link};

use crate::addresses::Addresses;
use crate::ecn::Ecn;

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
