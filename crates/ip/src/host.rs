//! Taking a received frame apart, once.

use std::net::{Ipv4Addr, Ipv6Addr};

use eth::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Header, Mac, Station};
use nmio::Frame;

use crate::icmp::{self, CHECKSUM_AT, ICMP_HEADER_LEN, IcmpError, NEIGHBOUR_SOLICITATION};
use crate::packet::{Addresses, Packet};
use crate::source::{self, BadSource};
use crate::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP,
};
use nmio::checksum::Sum;

/// More fragments, or an offset: part of a fragmented packet.
const FRAGMENT_BITS: u16 = 0x3fff;
/// Next header of an IPv6 fragment (RFC 8200, section 4.5).
const NEXT_FRAGMENT: u8 = 44;

/// What a received frame turns out to be.
#[derive(Debug)]
pub enum Input {
    /// A TCP segment for us; its checksum is still to be checked.
    Tcp(Packet),
    /// A UDP datagram for us; its checksum is still to be checked.
    Udp(Packet),
    /// An answer below the transport (ARP, neighbour discovery, echo): send
    /// it as it is.
    Reply(Frame),
    /// Somebody tells about a packet of ours.
    Error(IcmpError),
    /// Nothing for us. Counted.
    Dropped,
}

/// Frames by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// TCP segments passed on.
    pub tcp: u64,
    /// UDP datagrams passed on.
    pub udp: u64,
    /// ARP requests and neighbour solicitations answered.
    pub discovery_replies: u64,
    /// Echo requests answered.
    pub echo_replies: u64,
    /// ICMP errors passed on.
    pub icmp_errors: u64,
    /// Dropped: no Ethernet II frame, or nothing that we speak.
    pub unknown_ethertype: u64,
    /// Dropped: a tag of a VLAN that is not served.
    pub foreign_vlan: u64,
    /// Dropped: an IP header that is cut, inconsistent or of another version.
    pub malformed: u64,
    /// Dropped: a wrong IPv4 header or ICMP checksum.
    pub bad_checksum: u64,
    /// Dropped: a fragment.
    pub fragments: u64,
    /// Dropped: IPv4 options or IPv6 extension headers.
    pub options: u64,
    /// Dropped: to another station's MAC address.
    pub other_station: u64,
    /// Dropped: not to one of our addresses.
    pub not_for_us: u64,
    /// Dropped: from a multicast group or the limited broadcast address.
    pub source_group: u64,
    /// Dropped: from a loopback address.
    pub source_loopback: u64,
    /// Dropped: from 0/8, 240/4, or an unspecified, IPv4-compatible or
    /// IPv4-mapped IPv6 address.
    pub source_reserved: u64,
    /// Dropped: from the network or broadcast address of a network of ours.
    pub source_subnet: u64,
    /// Dropped: from one of our own addresses.
    pub source_own: u64,
    /// Dropped: a protocol or ICMP message that we do not answer.
    pub unknown_protocol: u64,
}

impl Counters {
    /// The drops, by reason, for whoever reports them.
    pub fn drops(&self) -> [(&'static str, u64); 14] {
        [
            ("unknown ethertype", self.unknown_ethertype),
            ("VLAN not served", self.foreign_vlan),
            ("malformed IP header", self.malformed),
            ("bad IP or ICMP checksum", self.bad_checksum),
            ("fragment", self.fragments),
            ("IP options", self.options),
            ("another station's MAC address", self.other_station),
            ("not for us", self.not_for_us),
            ("source address is a group", self.source_group),
            ("source address is loopback", self.source_loopback),
            ("source address is reserved", self.source_reserved),
            ("source address is the subnet's", self.source_subnet),
            ("source address is our own", self.source_own),
            ("unknown protocol", self.unknown_protocol),
        ]
    }

    #[cold]
    fn count_source(&mut self, why: BadSource) {
        let counter = match why {
            BadSource::Group => &mut self.source_group,
            BadSource::Loopback => &mut self.source_loopback,
            BadSource::Reserved => &mut self.source_reserved,
            BadSource::Subnet => &mut self.source_subnet,
            BadSource::Own => &mut self.source_own,
        };
        *counter += 1;
    }
}

/// Our end of the network layer: the addresses that we serve, and what is
/// answered below the transport.
#[derive(Debug)]
pub struct Host {
    station: Station,
    own: bool,
    partial_checksums: bool,
    counters: Counters,
}

impl Host {
    /// A host in **own** mode: the station's addresses belong to the server
    /// alone, so it also answers ARP, neighbour discovery and echo.
    pub fn own(station: Station) -> Self {
        Self {
            station,
            own: true,
            partial_checksums: false,
            counters: Counters::default(),
        }
    }

    /// A host in **shared** mode: the addresses are the kernel's too, which
    /// answers everything below the transport itself.
    pub fn shared(station: Station) -> Self {
        Self {
            own: false,
            ..Self::own(station)
        }
    }

    /// Accepts transport checksums that hold only the pseudo-header's sum
    /// (see [`nmio::Capabilities::partial_checksums`]).
    #[must_use]
    pub fn with_partial_checksums(mut self, accept: bool) -> Self {
        self.partial_checksums = accept;
        self
    }

    /// Whether such checksums are accepted.
    #[inline(always)]
    pub fn partial_checksums(&self) -> bool {
        self.partial_checksums
    }

    /// The addresses that are served.
    pub fn station(&self) -> &Station {
        &self.station
    }

    /// What has been received so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a frame apart.
    #[inline(always)]
    pub fn receive(&mut self, frame: Frame) -> Input {
        let Some(link) = Header::parse(&frame) else {
            self.counters.unknown_ethertype += 1;
            return Input::Dropped;
        };
        if !self.station.is_on_vlan(link.vlan) {
            self.counters.foreign_vlan += 1;
            return Input::Dropped;
        }
        match link.ethertype {
            ETHERTYPE_IPV4 => self.receive_ipv4(frame, link),
            ETHERTYPE_IPV6 => self.receive_ipv6(frame, link),
            _ => self.receive_other(frame, &link),
        }
    }

    #[inline(always)]
    fn receive_ipv4(&mut self, mut frame: Frame, link: Header) -> Input {
        let start = link.len();
        let Some(header) = frame[start..].first_chunk::<IPV4_HEADER_LEN>() else {
            self.counters.malformed += 1;
            return Input::Dropped;
        };
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] != 0x45 {
            let with_options = header[0] >> 4 == 4 && header[0] & 15 > 5;
            let reason = if with_options {
                &mut self.counters.options
            } else {
                &mut self.counters.malformed
            };
            *reason += 1;
            return Input::Dropped;
        }
        if total_len < IPV4_HEADER_LEN || total_len > frame.len() - start {
            self.counters.malformed += 1;
            return Input::Dropped;
        }
        if !Sum::of(header).is_valid() {
            self.counters.bad_checksum += 1;
            return Input::Dropped;
        }
        if u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_BITS != 0 {
            self.counters.fragments += 1;
            return Input::Dropped;
        }
        let protocol = header[9];
        let src = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
        let dst = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
        if link.dst != self.station.mac() {
            return self.refuse_station(link.dst);
        }
        if !self.station.serves_v4(dst) {
            self.counters.not_for_us += 1;
            return Input::Dropped;
        }
        if let Some(why) = source::refuse_v4(&self.station, src) {
            self.counters.count_source(why);
            return Input::Dropped;
        }
        frame.set_len(start + total_len);
        let addresses = Addresses::V4 { src, dst };
        let packet = Packet::new(frame, link, addresses, start + IPV4_HEADER_LEN);
        self.pass_on(packet, protocol, PROTOCOL_ICMP)
    }

    #[inline(always)]
    fn receive_ipv6(&mut self, mut frame: Frame, link: Header) -> Input {
        let start = link.len();
        let Some(header) = frame[start..].first_chunk::<IPV6_HEADER_LEN>() else {
            self.counters.malformed += 1;
            return Input::Dropped;
        };
        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || payload_len > frame.len() - start - IPV6_HEADER_LEN {
            self.counters.malformed += 1;
            return Input::Dropped;
        }
        let next_header = header[6];
        let address = |at: usize| {
            Ipv6Addr::from(
                *header[at..]
                    .first_chunk::<16>()
                    .expect("the header has 40 bytes"),
            )
        };
        let (src, dst) = (address(8), address(24));
        if dst.is_multicast() || link.dst != self.station.mac() {
            return self.receive_group(frame, &link, next_header);
        }
        if !self.station.serves_v6(dst) {
            self.counters.not_for_us += 1;
            return Input::Dropped;
        }
        if let Some(why) = source::refuse_v6(&self.station, src) {
            self.counters.count_source(why);
            return Input::Dropped;
        }
        frame.set_len(start + IPV6_HEADER_LEN + payload_len);
        let addresses = Addresses::V6 { src, dst };
        let packet = Packet::new(frame, link, addresses, start + IPV6_HEADER_LEN);
        let is_solicitation = next_header == PROTOCOL_ICMPV6
            && packet.payload().first() == Some(&NEIGHBOUR_SOLICITATION);
        if is_solicitation {
            return self.receive_solicitation(packet.into_frame(), &link);
        }
        self.pass_on(packet, next_header, PROTOCOL_ICMPV6)
    }

    #[inline(always)]
    fn pass_on(&mut self, packet: Packet, protocol: u8, icmp: u8) -> Input {
        match protocol {
            PROTOCOL_TCP => {
                self.counters.tcp += 1;
                Input::Tcp(packet)
            }
            PROTOCOL_UDP => {
                self.counters.udp += 1;
                Input::Udp(packet)
            }
            _ if protocol == icmp => self.receive_icmp(packet, protocol),
            _ => self.refuse_protocol(protocol),
        }
    }

    #[cold]
    fn refuse_protocol(&mut self, protocol: u8) -> Input {
        match protocol {
            NEXT_FRAGMENT => self.counters.fragments += 1,
            // Hop-by-hop, routing, authentication, destination options.
            0 | 43 | 51 | 60 => self.counters.options += 1,
            _ => self.counters.unknown_protocol += 1,
        }
        Input::Dropped
    }

    #[cold]
    fn receive_icmp(&mut self, mut packet: Packet, protocol: u8) -> Input {
        if packet.payload().len() < ICMP_HEADER_LEN {
            self.counters.malformed += 1;
            return Input::Dropped;
        }
        let valid = if protocol == PROTOCOL_ICMPV6 {
            packet.checksum_ok(protocol, CHECKSUM_AT, false)
        } else {
            Sum::of(packet.payload()).is_valid()
        };
        if !valid {
            self.counters.bad_checksum += 1;
            return Input::Dropped;
        }
        if self.own && icmp::turn_echo_round(&mut packet, protocol) {
            self.counters.echo_replies += 1;
            return Input::Reply(packet.turn_round(protocol));
        }
        match icmp::parse_error(packet.payload(), protocol) {
            Some(error) if self.station.addresses().contains(&error.addresses.src()) => {
                self.counters.icmp_errors += 1;
                Input::Error(error)
            }
            _ => {
                self.counters.unknown_protocol += 1;
                Input::Dropped
            }
        }
    }

    /// A frame that is not to our own MAC address.
    #[cold]
    fn refuse_station(&mut self, dst: Mac) -> Input {
        if dst.is_group() {
            self.counters.not_for_us += 1;
        } else {
            self.counters.other_station += 1;
        }
        Input::Dropped
    }

    /// To a group, by its IPv6 or its MAC address, or to another station: only
    /// neighbour discovery for our own addresses is for us.
    #[cold]
    fn receive_group(&mut self, frame: Frame, link: &Header, next_header: u8) -> Input {
        let is_to_us = link.dst == self.station.mac() || self.station.listens_to(link.dst);
        if !is_to_us {
            return self.refuse_station(link.dst);
        }
        if next_header == PROTOCOL_ICMPV6 {
            return self.receive_solicitation(frame, link);
        }
        self.counters.not_for_us += 1;
        Input::Dropped
    }

    #[cold]
    fn receive_solicitation(&mut self, frame: Frame, link: &Header) -> Input {
        let reply = if self.own {
            self.station.answer_solicitation(frame, link)
        } else {
            None
        };
        self.discovery(reply)
    }

    #[cold]
    fn receive_other(&mut self, frame: Frame, link: &Header) -> Input {
        if link.ethertype != ETHERTYPE_ARP {
            self.counters.unknown_ethertype += 1;
            return Input::Dropped;
        }
        if link.dst != self.station.mac() && link.dst != Mac::BROADCAST {
            return self.refuse_station(link.dst);
        }
        let reply = if self.own {
            self.station.answer_arp(frame, link)
        } else {
            None
        };
        self.discovery(reply)
    }

    fn discovery(&mut self, reply: Option<Frame>) -> Input {
        if let Some(frame) = reply {
            self.counters.discovery_replies += 1;
            return Input::Reply(frame);
        }
        self.counters.not_for_us += 1;
        Input::Dropped
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
