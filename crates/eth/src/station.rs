//! Answers ARP (RFC 826) and neighbour discovery (RFC 4861) for the server's own addresses, and
//! announces these addresses. These messages are rare, so speed does not matter, and smoltcp parses
//! and writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nmio::device::AddressPrefix;
use nmio::{Frame, Port};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv6Message, Icmpv6Packet, Icmpv6Repr,
    IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

use crate::header::{ETHERTYPE_ARP, ETHERTYPE_IPV6, Header, Link, Mac};

const ARP_LEN: usize = 28;
const IPV6_HEADER_LEN: usize = 40;
/// Length of a neighbour advertisement with one link-layer address option, in bytes.
const ADVERTISEMENT_LEN: usize = 32;
/// Required hop limit of neighbour discovery messages. The value shows that no router has forwarded
/// them (RFC 4861, section 7.1.1).
const NDP_HOP_LIMIT: u8 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns the Ethernet multicast address of an IPv6 group (RFC 2464, section 7).
fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

/// Returns the solicited-node group of `address` (RFC 4291, section 2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The IPv4 network of one of the station's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subnet {
    network: u32,
    mask: u32,
}

impl Subnet {
    fn new(address: Ipv4Addr, prefix: u8) -> Self {
        let host_bits = 32u32.saturating_sub(u32::from(prefix));
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        Self {
            network: address.to_bits() & mask,
            mask,
        }
    }

    #[inline(always)]
    fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask == self.network
    }

    /// Returns true if `address` is the network address or the directed broadcast address (RFC
    /// 1122, section 3.2.1.3). A /31 and a /32 have neither (RFC 3021).
    fn reserves(self, address: Ipv4Addr) -> bool {
        let (address, broadcast) = (address.to_bits(), self.network | !self.mask);
        !self.mask > 1 && (address == self.network || address == broadcast)
    }
}

/// The server's MAC address, and the IP addresses for which it answers.
#[derive(Clone, Debug)]
pub struct Station {
    mac: Mac,
    addresses: Box<[IpAddr]>,
    /// The IPv4 addresses among `addresses`. The split by IP version speeds up the check of each
    /// received packet.
    v4: Box<[Ipv4Addr]>,
    v6: Box<[Ipv6Addr]>,
    /// The networks of the addresses in `v4`, without duplicates.
    subnets: Box<[Subnet]>,
    vlans: Box<[u16]>,
}

impl Station {
    /// Creates a station that answers for `addresses`. Their prefix lengths are unknown, so the
    /// station treats each address as a network that contains no other address.
    pub fn new(mac: Mac, addresses: &[IpAddr]) -> Self {
        let alone = |address: &IpAddr| AddressPrefix {
            address: *address,
            prefix: 128,
        };
        let alone: Vec<_> = addresses.iter().map(alone).collect();
        Self::with_prefixes(mac, &alone)
    }

    /// Creates a station that answers for `addresses`, each with its prefix length in bits. If the
    /// prefix is longer than the address, the network contains only this address. The station
    /// ignores the prefix lengths of IPv6 addresses.
    pub fn with_prefixes(mac: Mac, addresses: &[AddressPrefix]) -> Self {
        let (mut v4, mut v6, mut subnets) = (Vec::new(), Vec::new(), Vec::new());
        for &AddressPrefix { address, prefix } in addresses {
            match address {
                IpAddr::V4(address) => {
                    v4.push(address);
                    let subnet = Subnet::new(address, prefix);
                    if !subnets.contains(&subnet) {
                        subnets.push(subnet);
                    }
                }
                IpAddr::V6(address) => v6.push(address),
            }
        }
        Self {
            mac,
            addresses: addresses.iter().map(|one| one.address).collect(),
            v4: v4.into(),
            v6: v6.into(),
            subnets: subnets.into(),
            vlans: Box::default(),
        }
    }

    /// Accepts frames of these VLANs in addition to untagged frames. ID 0 accepts frames that have
    /// only a priority tag.
    #[must_use]
    pub fn with_vlans(mut self, ids: &[u16]) -> Self {
        self.vlans = ids.into();
        self
    }

    /// Returns true if the station accepts frames with this tag control information. `None` means
    /// an untagged frame, which is always accepted.
    #[inline(always)]
    pub fn is_on_vlan(&self, tag: Option<u16>) -> bool {
        tag.is_none_or(|tag| self.vlans.contains(&(tag & Header::VLAN_ID)))
    }

    /// Returns the station's MAC address.
    #[inline(always)]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Returns true if `group` is the Ethernet address of the solicited-node group of one of the
    /// station's addresses (RFC 4291, section 2.7.1).
    pub fn listens_to(&self, group: Mac) -> bool {
        let groups = self.v6.iter().map(|own| group_mac(solicited_node(*own)));
        groups.into_iter().any(|own| own == group)
    }

    /// Returns the addresses for which the station answers.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns true if the station answers for this IPv4 address.
    #[inline(always)]
    pub fn serves_v4(&self, address: Ipv4Addr) -> bool {
        self.v4.iter().any(|own| own.to_bits() == address.to_bits())
    }

    /// Returns true if the station answers for this IPv6 address.
    #[inline(always)]
    pub fn serves_v6(&self, address: Ipv6Addr) -> bool {
        self.v6.iter().any(|own| own.to_bits() == address.to_bits())
    }

    /// Returns true if `address` is in one of the station's IPv4 networks. Each network contains
    /// one of the station's own addresses.
    #[inline(always)]
    pub fn is_on_link(&self, address: Ipv4Addr) -> bool {
        self.subnets.iter().any(|subnet| subnet.contains(address))
    }

    /// Returns true if `address` is the network address or the broadcast address of one of the
    /// station's IPv4 networks. No host uses such an address.
    pub fn is_reserved_on_link(&self, address: Ipv4Addr) -> bool {
        let mut around = self.subnets.iter().filter(|s| s.contains(address));
        around.any(|subnet| subnet.reserves(address))
    }

    /// Turns an ARP request for one of the station's addresses into the reply, in place. Returns
    /// `None` for all other frames.
    pub fn answer_arp(&self, mut frame: Frame, header: &Header) -> Option<Frame> {
        let packet = ArpPacket::new_checked(frame.get(header.len()..)?).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        } = ArpRepr::parse(&packet).ok()?
        else {
            return None;
        };
        if !self.serves_v4(target_protocol_addr) {
            return None;
        }
        let reply = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: EthernetAddress(self.mac.0),
            source_protocol_addr: target_protocol_addr,
            target_hardware_addr: source_hardware_addr,
            target_protocol_addr: source_protocol_addr,
        };
        let link = Link {
            peer: header.src,
            own: self.mac,
            vlan: header.vlan,
        };
        let start = link.write(&mut frame, ETHERTYPE_ARP);
        frame.set_len(start + ARP_LEN);
        reply.emit(&mut ArpPacket::new_unchecked(&mut frame[start..]));
        Some(frame)
    }

    /// Turns a neighbour solicitation for one of the station's addresses into the advertisement, in
    /// place (RFC 4861, section 7.2.4). Returns `None` for all other frames, and for solicitations
    /// that are invalid by section 7.1.1. Also returns `None` if the advertisement does not fit the
    /// frame.
    pub fn answer_solicitation(&self, mut frame: Frame, header: &Header) -> Option<Frame> {
        let (asker, target) = Self::parse_solicitation(frame.get(header.len()..)?)?;
        if !self.serves_v6(target) {
            return None;
        }
        // An unspecified source means duplicate address detection: the sender has no address yet.
        // Therefore the reply goes to all nodes and does not have the solicited flag.
        let (dst, flags) = if asker.is_unspecified() {
            (ALL_NODES, NdiscNeighborFlags::OVERRIDE)
        } else {
            (
                asker,
                NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE,
            )
        };
        let peer = if asker.is_unspecified() {
            group_mac(ALL_NODES)
        } else {
            header.src
        };
        let link = Link {
            peer,
            own: self.mac,
            vlan: header.vlan,
        };
        let len = link.header_len() + IPV6_HEADER_LEN + ADVERTISEMENT_LEN;
        if len > frame.capacity() {
            return None;
        }
        frame.set_len(len);
        self.write_advertisement(&mut frame, link, target, dst, flags);
        Some(frame)
    }

    fn parse_solicitation(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let ip = Ipv6Packet::new_checked(packet).ok()?;
        if ip.next_header() != IpProtocol::Icmpv6 || ip.hop_limit() != NDP_HOP_LIMIT {
            return None;
        }
        let (src, dst) = (ip.src_addr(), ip.dst_addr());
        let icmp = Icmpv6Packet::new_checked(ip.payload()).ok()?;
        if icmp.msg_type() != Icmpv6Message::NeighborSolicit || icmp.msg_code() != 0 {
            return None;
        }
        let repr = Icmpv6Repr::parse(&src, &dst, &icmp, &ChecksumCapabilities::default()).ok()?;
        let Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit {
            target_addr,
            lladdr,
        }) = repr
        else {
            return None;
        };
        let malformed = target_addr.is_multicast()
            || src.is_multicast()
            || (src.is_unspecified() && (lladdr.is_some() || dst != solicited_node(target_addr)));
        (!malformed).then_some((src, target_addr))
    }

    fn write_advertisement(
        &self,
        frame: &mut [u8],
        link: Link,
        target: Ipv6Addr,
        dst: Ipv6Addr,
        flags: NdiscNeighborFlags,
    ) {
        let start = link.write(frame, ETHERTYPE_IPV6);
        let advertisement = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
            flags,
            target_addr: target,
            lladdr: Some(RawHardwareAddress::from_bytes(&self.mac.0)),
        });
        let ip = Ipv6Repr {
            src_addr: target,
            dst_addr: dst,
            next_header: IpProtocol::Icmpv6,
            payload_len: ADVERTISEMENT_LEN,
            hop_limit: NDP_HOP_LIMIT,
        };
        let mut packet = Ipv6Packet::new_unchecked(&mut frame[start..]);
        ip.emit(&mut packet);
        advertisement.emit(
            &target,
            &dst,
            &mut Icmpv6Packet::new_unchecked(packet.payload_mut()),
            &ChecksumCapabilities::default(),
        );
    }

    /// Announces the station's addresses at start, so that neighbours replace stale cache entries.
    /// Sends a gratuitous ARP request for each IPv4 address (RFC 5227, section 2.3). Sends an
    /// unsolicited advertisement for each IPv6 address (RFC 4861, section 7.2.6). Each announcement
    /// is sent untagged and on each VLAN.
    ///
    /// The next flush sends the announcements. If no frame is free or the TX ring is full,
    /// announcements are skipped. Neighbours can still ask for the addresses.
    pub fn announce(&self, port: &mut impl Port) {
        let tags = self.vlans.iter().map(|id| Some(*id));
        let links = std::iter::once(None).chain(tags);
        for (vlan, address) in links.flat_map(|vlan| self.addresses.iter().map(move |a| (vlan, a)))
        {
            let packet = self.announcement(*address, vlan);
            let Some(mut frame) = port.pool().take() else {
                return;
            };
            if packet.len() <= frame.capacity() {
                frame.set_len(packet.len());
                frame.copy_from_slice(&packet);
                let _ = port.send(frame);
            }
        }
    }

    fn announcement(&self, address: IpAddr, vlan: Option<u16>) -> Vec<u8> {
        match address {
            IpAddr::V4(address) => self.gratuitous_arp(address, vlan),
            IpAddr::V6(address) => {
                let link = Link {
                    peer: group_mac(ALL_NODES),
                    own: self.mac,
                    vlan,
                };
                let mut frame = vec![0; link.header_len() + IPV6_HEADER_LEN + ADVERTISEMENT_LEN];
                let flags = NdiscNeighborFlags::OVERRIDE;
                self.write_advertisement(&mut frame, link, address, ALL_NODES, flags);
                frame
            }
        }
    }

    fn gratuitous_arp(&self, address: Ipv4Addr, vlan: Option<u16>) -> Vec<u8> {
        let link = Link {
            peer: Mac::BROADCAST,
            own: self.mac,
            vlan,
        };
        let mut frame = vec![0; link.header_len() + ARP_LEN];
        let start = link.write(&mut frame, ETHERTYPE_ARP);
        ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: EthernetAddress(self.mac.0),
            source_protocol_addr: address,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: address,
        }
        .emit(&mut ArpPacket::new_unchecked(&mut frame[start..]));
        frame
    }
}

#[cfg(test)]
#[path = "station_tests.rs"]
mod tests;
