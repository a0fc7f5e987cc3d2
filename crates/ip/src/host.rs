//! Parses and checks each received frame once.

use eth::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Header, Mac, Station};
use nmio::device::QueueAccess;
use nmio::{Frame, Instant};

use crate::addresses::Addresses;
use crate::errors::{self, Problem, RateLimiter};
use crate::icmp::{self, ICMP_HEADER_LEN, IcmpError, NEIGHBOUR_SOLICITATION};
use crate::options::{self, Refusal};
use crate::packet::Packet;
use crate::source::{self, BadSource};
use crate::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP,
};
use nmio::checksum::Sum;

/// Mask of the IPv4 more-fragments flag and the fragment offset. In a fragment, at least one of
/// these bits is set.
const FRAGMENT_BITS: u16 = 0x3fff;
/// First byte of an IPv4 header without options: version 4, and a length of five 32-bit words.
const PLAIN_V4: u8 = 0x45;
/// Next header value of a packet without payload (RFC 8200, section 4.7).
const NO_NEXT_HEADER: u8 = 59;
/// Offsets of the protocol field in an IPv4 header and of the next-header field in an IPv6 header.
const PROTOCOL_AT_V4: usize = 9;
const NEXT_HEADER_AT_V6: usize = 6;

/// The result of [`Host::receive`].
#[derive(Debug)]
pub enum Input {
    /// A TCP segment for us. Its checksum is not checked yet.
    Tcp(Packet),
    /// A UDP datagram for us. Its checksum is not checked yet.
    Udp(Packet),
    /// A frame that is ready to send: an ICMP error, or the reply to an ARP request, a neighbour
    /// solicitation or an echo request.
    Reply(Frame),
    /// An ICMP error about a packet that we sent.
    Error(IcmpError),
    /// The frame was dropped, and the reason was counted.
    Dropped,
}

/// Offsets in a frame at which its IP packet starts, at which the packet's payload starts, and at
/// which the packet ends.
pub(crate) type Extent = (usize, usize, usize);

/// What [`Host::classify`] finds in a frame.
///
/// It has no reference to the frame, which therefore need not be moved. So the compiler keeps both in
/// registers.
#[derive(Clone, Copy)]
pub(crate) enum Class {
    /// A TCP segment for us.
    Tcp(Extent),
    /// A UDP datagram for us.
    Udp(Extent),
    /// A frame of any other kind, for [`Host::receive_rare`].
    Rare,
    /// The frame must be dropped. The reason was counted.
    Dropped,
}

/// Numbers of received frames by outcome, and of ICMP errors sent. Replies and errors that a full
/// TX ring rejects are counted too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// TCP segments passed to the transports.
    pub tcp: u64,
    /// UDP datagrams passed to the transports.
    pub udp: u64,
    /// ARP requests and neighbour solicitations answered.
    pub discovery_replies: u64,
    /// Echo requests answered.
    pub echo_replies: u64,
    /// ICMP errors passed to the transports.
    pub icmp_errors: u64,
    /// ICMP errors sent about dropped packets.
    pub errors_sent: u64,
    /// Frames dropped because [`eth::Header::parse`] rejects their header, or because their
    /// ethertype is unknown.
    pub unknown_ethertype: u64,
    /// Frames dropped because they are tagged with a VLAN that is not served.
    pub foreign_vlan: u64,
    /// Packets dropped because an IP header, an extension header, an option or an ICMP header is
    /// truncated or inconsistent. A packet whose IP version does not match the ethertype also
    /// counts.
    pub malformed: u64,
    /// Packets dropped because the checksum of the IPv4 header or the ICMP message is wrong.
    pub bad_checksum: u64,
    /// Packets dropped because they are fragments, which are not reassembled.
    pub fragments: u64,
    /// Packets dropped because of an unknown IPv6 option that must not be ignored, or because of
    /// too many extension headers or options.
    pub options: u64,
    /// Packets dropped because of an IPv4 source route, or an IPv6 routing header with segments
    /// left.
    pub source_routes: u64,
    /// Frames dropped because their destination is another station's MAC address.
    pub other_station: u64,
    /// Packets dropped because their destination is not one of our IP addresses, or is a group MAC
    /// address. ARP and neighbour discovery messages that the host does not answer also count.
    pub not_for_us: u64,
    /// Packets dropped because the source is a multicast group or the limited broadcast address.
    pub source_group: u64,
    /// Packets dropped because the source is a loopback address.
    pub source_loopback: u64,
    /// Packets dropped because the source is in 0/8 or 240/4, or is an unspecified, IPv4-compatible
    /// or IPv4-mapped IPv6 address.
    pub source_reserved: u64,
    /// Packets dropped because the source is the network or broadcast address of one of our
    /// networks.
    pub source_subnet: u64,
    /// Packets dropped because the source is one of our own addresses.
    pub source_own: u64,
    /// Packets dropped because the host does not handle their protocol or ICMP message.
    pub unknown_protocol: u64,
    /// UDP datagrams refused because their port is not served.
    pub udp_not_served: u64,
    /// TCP segments refused because no transport handles them.
    pub tcp_not_served: u64,
    /// ICMP errors ignored because no transport handles them, such as errors about UDP datagrams.
    pub icmp_errors_not_served: u64,
}

impl Counters {
    /// Returns the name and count of each drop reason, for reports.
    pub fn drops(&self) -> [(&'static str, u64); 18] {
        [
            ("unknown ethertype", self.unknown_ethertype),
            ("VLAN not served", self.foreign_vlan),
            ("malformed IP header", self.malformed),
            ("bad IP or ICMP checksum", self.bad_checksum),
            ("fragment", self.fragments),
            ("IP options", self.options),
            ("source route", self.source_routes),
            ("another station's MAC address", self.other_station),
            ("not for us", self.not_for_us),
            ("source address is a group", self.source_group),
            ("source address is loopback", self.source_loopback),
            ("source address is reserved", self.source_reserved),
            ("source address is the subnet's", self.source_subnet),
            ("source address is our own", self.source_own),
            ("unknown protocol", self.unknown_protocol),
            ("UDP port not served", self.udp_not_served),
            ("TCP not served", self.tcp_not_served),
            (
                "ICMP error that no transport handles",
                self.icmp_errors_not_served,
            ),
        ]
    }

    #[cold]
    fn count_source(&mut self, reason: BadSource) {
        let counter = match reason {
            BadSource::Group => &mut self.source_group,
            BadSource::Loopback => &mut self.source_loopback,
            BadSource::Reserved => &mut self.source_reserved,
            BadSource::Subnet => &mut self.source_subnet,
            BadSource::Own => &mut self.source_own,
        };
        *counter += 1;
    }
}

/// The server's network layer. Knows the served addresses, and refuses packets that no transport
/// serves. In [own mode](Self::own), also answers ARP, neighbour discovery and echo requests.
#[derive(Debug)]
pub struct Host {
    station: Station,
    own: bool,
    partial_checksums: bool,
    error_limit: RateLimiter,
    counters: Counters,
}

impl Host {
    /// Creates a host in **own** mode. The station's addresses belong only to the server, so the
    /// host answers ARP, neighbour discovery and echo, and sends ICMP errors.
    ///
    /// `secret` is the random key of the hash that assigns the receivers of ICMP errors to rate-limit
    /// buckets. An attacker who can guess it can use up another receiver's limit.
    pub fn own(station: Station, secret: [u64; 4]) -> Self {
        Self {
            station,
            own: true,
            partial_checksums: false,
            error_limit: RateLimiter::new(secret),
            counters: Counters::default(),
        }
    }

    /// Creates a host in **shared** mode. The kernel uses the same addresses. The kernel, not the
    /// host, answers ARP, neighbour discovery and echo, and sends ICMP errors. The secret is that of
    /// [`own`](Self::own).
    pub fn shared(station: Station, secret: [u64; 4]) -> Self {
        Self {
            own: false,
            ..Self::own(station, secret)
        }
    }

    /// Creates the host of a server on this interface, with its addresses, VLANs and mode. The secret
    /// is that of [`own`](Self::own).
    ///
    /// Tell the host of the [partial checksums](Self::with_partial_checksums) that the port accepts.
    /// In own mode, let the station [announce](Station::announce) its addresses before the first
    /// packet.
    pub fn of_interface(interface: &QueueAccess, secret: [u64; 4]) -> Self {
        let station = Station::with_prefixes(Mac(interface.mac()), interface.addresses());
        Self {
            own: interface.is_own(),
            ..Self::own(station.with_vlans(interface.vlans()), secret)
        }
    }

    /// Sets whether transport checksums that cover only the pseudo-header are accepted (see
    /// [`nmio::Capabilities::partial_checksums`]).
    #[must_use]
    pub fn with_partial_checksums(mut self, accept: bool) -> Self {
        self.partial_checksums = accept;
        self
    }

    /// Returns true in [own mode](Self::own).
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Returns true if [partial checksums](Self::with_partial_checksums) are accepted.
    #[inline(always)]
    pub fn partial_checksums(&self) -> bool {
        self.partial_checksums
    }

    /// Returns the station, which holds the served addresses.
    pub fn station(&self) -> &Station {
        &self.station
    }

    /// Changes the station, for example after a change of its addresses. Packets to addresses that
    /// the new station does not have are dropped.
    pub fn set_station(&mut self, station: Station) {
        self.station = station;
    }

    /// Returns the counters of received frames.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Parses and checks a frame, and writes the reply if the host itself answers the frame.
    #[inline(always)]
    pub fn receive(&mut self, frame: Frame, now: Instant) -> Input {
        match self.classify(&frame) {
            Class::Tcp(extent) => Input::Tcp(self.packet_of(frame, extent)),
            Class::Udp(extent) => Input::Udp(self.packet_of(frame, extent)),
            Class::Rare => self.receive_rare(frame, now),
            Class::Dropped => Input::Dropped,
        }
    }

    /// Parses and checks a frame, and counts a TCP segment or UDP datagram.
    #[inline(always)]
    pub(crate) fn classify(&mut self, frame: &Frame) -> Class {
        let Some(link) = Header::parse(frame) else {
            self.counters.unknown_ethertype += 1;
            return Class::Dropped;
        };
        if !self.station.is_on_vlan(link.vlan) {
            self.counters.foreign_vlan += 1;
            return Class::Dropped;
        }
        match link.ethertype {
            ETHERTYPE_IPV4 => self.classify_ipv4(frame, &link),
            ETHERTYPE_IPV6 => self.classify_ipv6(frame, &link),
            _ => Class::Rare,
        }
    }

    #[inline(always)]
    fn classify_ipv4(&mut self, frame: &Frame, link: &Header) -> Class {
        let Some(header) = frame[link.len()..].first_chunk::<IPV4_HEADER_LEN>() else {
            self.counters.malformed += 1;
            return Class::Dropped;
        };
        if header[0] != PLAIN_V4 {
            return Class::Rare;
        }
        if !Sum::of(header).is_valid() {
            self.counters.bad_checksum += 1;
            return Class::Dropped;
        }
        match self.admit_ipv4(frame, link, IPV4_HEADER_LEN) {
            Some((extent, protocol)) => self.classify_protocol(extent, protocol),
            None => Class::Dropped,
        }
    }

    #[inline(always)]
    fn classify_protocol(&mut self, extent: Extent, protocol: u8) -> Class {
        match protocol {
            PROTOCOL_TCP => {
                self.counters.tcp += 1;
                Class::Tcp(extent)
            }
            PROTOCOL_UDP => {
                self.counters.udp += 1;
                Class::Udp(extent)
            }
            _ => Class::Rare,
        }
    }

    /// Returns the packet in a frame.
    #[inline(always)]
    pub(crate) fn packet_of(&self, mut frame: Frame, extent: Extent) -> Packet {
        let (start, payload_at, len) = extent;
        frame.set_len(len);
        Packet::new(frame, start, payload_at, self.partial_checksums)
    }

    /// Receives a frame that is neither a plain TCP segment nor a plain UDP datagram.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive_rare(&mut self, frame: Frame, now: Instant) -> Input {
        match Header::parse(&frame) {
            Some(link) if link.ethertype == ETHERTYPE_IPV4 => {
                self.receive_rare_ipv4(frame, &link, now)
            }
            Some(link) if link.ethertype == ETHERTYPE_IPV6 => {
                self.receive_rare_ipv6(frame, &link, now)
            }
            Some(link) => self.receive_arp(frame, &link),
            None => Input::Dropped,
        }
    }

    /// Receives an IPv4 packet with options, or with another protocol than TCP and UDP, or whose
    /// first byte is invalid.
    fn receive_rare_ipv4(&mut self, frame: Frame, link: &Header, now: Instant) -> Input {
        let packet = &frame[link.len()..];
        let header_len = usize::from(packet[0] & 15) * 4;
        let header = packet.get(..header_len);
        let header = header.filter(|header| header.len() >= IPV4_HEADER_LEN);
        let (4, Some(header)) = (packet[0] >> 4, header) else {
            self.counters.malformed += 1;
            return Input::Dropped;
        };
        if !Sum::of(header).is_valid() {
            self.counters.bad_checksum += 1;
            return Input::Dropped;
        }
        let judged = options::check_ipv4(header);
        let Some((extent, protocol)) = self.admit_ipv4(&frame, link, header_len) else {
            return Input::Dropped;
        };
        let mut packet = self.packet_of(frame, extent);
        if let Err(refusal) = judged {
            return self.refuse_options(packet, refusal, now);
        }
        packet.set_options_aside(header_len - IPV4_HEADER_LEN);
        self.pass_on(packet, protocol, PROTOCOL_ICMP, now)
    }

    /// Returns the packet's extent without its options, and its protocol. Counts the
    /// reason and returns `None` if the packet is truncated, fragmented, not for us, or from a
    /// source that cannot be answered. The header is `header_len` bytes long, and the caller has
    /// checked its checksum.
    #[inline(always)]
    fn admit_ipv4(
        &mut self,
        frame: &Frame,
        link: &Header,
        header_len: usize,
    ) -> Option<(Extent, u8)> {
        let start = link.len();
        let header: &[u8; IPV4_HEADER_LEN] = frame[start..].first_chunk()?;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if total_len < header_len || total_len > frame.len() - start {
            self.counters.malformed += 1;
            return None;
        }
        if u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_BITS != 0 {
            self.counters.fragments += 1;
            return None;
        }
        let protocol = header[PROTOCOL_AT_V4];
        let Addresses::V4 { src, dst } = Addresses::of_v4(header) else {
            return None;
        };
        if !frame.starts_with(&self.station.mac().0) {
            self.count_station(link.dst);
            return None;
        }
        if !self.station.serves_v4(dst) {
            self.counters.not_for_us += 1;
            return None;
        }
        if let Some(reason) = source::refuse_v4(&self.station, src) {
            self.counters.count_source(reason);
            return None;
        }
        Some((
            (start, start + IPV4_HEADER_LEN, start + total_len),
            protocol,
        ))
    }

    #[inline(always)]
    fn classify_ipv6(&mut self, frame: &Frame, link: &Header) -> Class {
        let Some((header, extent)) = extent_of_ipv6(frame, link) else {
            self.counters.malformed += 1;
            return Class::Dropped;
        };
        let Addresses::V6 { src, dst } = Addresses::of_v6(header) else {
            return Class::Dropped;
        };
        if dst.is_multicast() || link.dst != self.station.mac() {
            return Class::Rare;
        }
        if !self.station.serves_v6(dst) {
            self.counters.not_for_us += 1;
            return Class::Dropped;
        }
        if let Some(reason) = source::refuse_v6(&self.station, src) {
            self.counters.count_source(reason);
            return Class::Dropped;
        }
        self.classify_protocol(extent, header[NEXT_HEADER_AT_V6])
    }

    /// Receives an IPv6 packet to a group or to another MAC address, or with another next header
    /// than TCP and UDP.
    fn receive_rare_ipv6(&mut self, frame: Frame, link: &Header, now: Instant) -> Input {
        let Some((header, extent)) = extent_of_ipv6(&frame, link) else {
            return Input::Dropped;
        };
        let next_header = header[NEXT_HEADER_AT_V6];
        if Addresses::of_v6(header).dst().is_multicast() || link.dst != self.station.mac() {
            return self.receive_group(frame, link, next_header);
        }
        let (_, payload_at, len) = extent;
        let is_solicitation = next_header == PROTOCOL_ICMPV6
            && frame[payload_at..len].first() == Some(&NEIGHBOUR_SOLICITATION);
        let packet = self.packet_of(frame, extent);
        if is_solicitation {
            return self.receive_solicitation(packet.into_frame(), link);
        }
        self.pass_on(packet, next_header, PROTOCOL_ICMPV6, now)
    }

    /// Passes a rare packet on according to its protocol. `icmp` is the ICMP protocol number of its
    /// IP version.
    fn pass_on(&mut self, packet: Packet, protocol: u8, icmp: u8, now: Instant) -> Input {
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
            _ => self.receive_other(packet, protocol, icmp, now),
        }
    }

    /// Receives an IPv6 packet with extension headers, or a packet with an unknown protocol.
    fn receive_other(&mut self, mut packet: Packet, protocol: u8, icmp: u8, now: Instant) -> Input {
        let has_extensions = icmp == PROTOCOL_ICMPV6 && options::is_extension(protocol);
        // If there are no extension headers, or if they have already been skipped, the protocol is
        // unknown.
        if !has_extensions || packet.has_options() {
            return self.refuse_protocol(packet, protocol, now);
        }
        match options::walk_ipv6(packet.ip()) {
            Ok(payload) => {
                packet.set_options_aside(payload.at - IPV6_HEADER_LEN);
                self.pass_on(packet, payload.protocol, icmp, now)
            }
            Err(refusal) => self.refuse_options(packet, refusal, now),
        }
    }

    #[cold]
    fn refuse_options(&mut self, packet: Packet, refusal: Refusal, now: Instant) -> Input {
        let (counter, problem) = match refusal {
            Refusal::Malformed => (&mut self.counters.malformed, None),
            Refusal::Fragment => (&mut self.counters.fragments, None),
            Refusal::SourceRoute => (&mut self.counters.source_routes, None),
            Refusal::RoutingHeader { report, at } => {
                let problem = report.then_some(Problem::RoutingType { at });
                (&mut self.counters.source_routes, problem)
            }
            Refusal::Option { report, at } => {
                let problem = report.then_some(Problem::Option { at });
                (&mut self.counters.options, problem)
            }
            Refusal::TooMany => (&mut self.counters.options, None),
        };
        *counter += 1;
        let error = problem.and_then(|problem| self.make_error(packet, problem, now));
        error.map_or(Input::Dropped, Input::Reply)
    }

    #[cold]
    fn refuse_protocol(&mut self, packet: Packet, protocol: u8, now: Instant) -> Input {
        self.counters.unknown_protocol += 1;
        if protocol == NO_NEXT_HEADER {
            return Input::Dropped;
        }
        let error = self.make_error(packet, Problem::Protocol, now);
        error.map_or(Input::Dropped, Input::Reply)
    }

    /// Counts a UDP datagram to a port that is not served. Returns the port unreachable error that
    /// must be sent, if any.
    #[cold]
    pub(crate) fn refuse_udp(&mut self, packet: Packet, now: Instant) -> Option<Frame> {
        self.counters.udp_not_served += 1;
        if packet.is_answerable_udp() {
            self.make_error(packet, Problem::Port, now)
        } else {
            None
        }
    }

    /// Counts a TCP segment that no transport handles. Returns the ICMP error that must be sent, if
    /// any. The error reports TCP as an unsupported protocol.
    #[cold]
    pub(crate) fn refuse_tcp(&mut self, packet: Packet, now: Instant) -> Option<Frame> {
        self.counters.tcp_not_served += 1;
        self.make_error(packet, Problem::Protocol, now)
    }

    #[cold]
    pub(crate) fn count_error_not_served(&mut self) {
        self.counters.icmp_errors_not_served += 1;
    }

    /// Turns a packet into an ICMP error about it. Returns `None` in shared mode, where the kernel
    /// sends errors. Also returns `None` if the sender has reached its rate limit, or if the frame
    /// is too small.
    #[cold]
    fn make_error(&mut self, packet: Packet, problem: Problem, now: Instant) -> Option<Frame> {
        if !self.own || !self.error_limit.take(packet.addresses().src(), now) {
            return None;
        }
        let error = errors::turn_into_error(packet, problem)?;
        self.counters.errors_sent += 1;
        Some(error)
    }

    fn receive_icmp(&mut self, mut packet: Packet, protocol: u8) -> Input {
        if packet.payload().len() < ICMP_HEADER_LEN {
            self.counters.malformed += 1;
            return Input::Dropped;
        }
        let valid = if protocol == PROTOCOL_ICMPV6 {
            packet.checksum_is_whole(protocol)
        } else {
            Sum::of(packet.payload()).is_valid()
        };
        if !valid {
            self.counters.bad_checksum += 1;
            return Input::Dropped;
        }
        if self.own && icmp::turn_echo_round(&mut packet, protocol) {
            self.counters.echo_replies += 1;
            return Input::Reply(packet.turn_around(protocol));
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

    /// Counts a frame to a MAC address other than ours.
    #[cold]
    fn count_station(&mut self, dst: Mac) {
        if dst.is_group() {
            self.counters.not_for_us += 1;
        } else {
            self.counters.other_station += 1;
        }
    }

    /// Receives an IPv6 packet whose destination is a multicast group, or whose frame is not
    /// addressed to our MAC address. In own mode, answers neighbour solicitations for our own
    /// addresses. Drops all other frames.
    fn receive_group(&mut self, frame: Frame, link: &Header, next_header: u8) -> Input {
        let is_to_us = link.dst == self.station.mac() || self.station.listens_to(link.dst);
        if !is_to_us {
            self.count_station(link.dst);
            return Input::Dropped;
        }
        if next_header == PROTOCOL_ICMPV6 {
            return self.receive_solicitation(frame, link);
        }
        self.counters.not_for_us += 1;
        Input::Dropped
    }

    fn receive_solicitation(&mut self, frame: Frame, link: &Header) -> Input {
        let reply = if self.own {
            self.station.answer_solicitation(frame, link)
        } else {
            None
        };
        self.discovery(reply)
    }

    fn receive_arp(&mut self, frame: Frame, link: &Header) -> Input {
        if link.ethertype != ETHERTYPE_ARP {
            self.counters.unknown_ethertype += 1;
            return Input::Dropped;
        }
        if link.dst != self.station.mac() && link.dst != Mac::BROADCAST {
            self.count_station(link.dst);
            return Input::Dropped;
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

/// Returns the header and the extent of an IPv6 packet, or `None` if the packet is malformed.
#[inline(always)]
fn extent_of_ipv6<'a>(
    frame: &'a Frame,
    link: &Header,
) -> Option<(&'a [u8; IPV6_HEADER_LEN], Extent)> {
    let start = link.len();
    let payload_at = start + IPV6_HEADER_LEN;
    let header = frame[start..].first_chunk::<IPV6_HEADER_LEN>()?;
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let fits = header[0] >> 4 == 6 && payload_len <= frame.len() - payload_at;
    fits.then_some((header, (start, payload_at, payload_at + payload_len)))
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
