//! Ethernet frames with an IP packet, whose transport checksum is right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6Header, LinkSlice, NetSlice, SlicedPacket};

/// IP protocol number.
pub const ICMP: u8 = 1;
/// IP protocol number.
pub const TCP: u8 = 6;
/// IP protocol number.
pub const UDP: u8 = 17;
/// IP protocol number.
pub const ICMPV6: u8 = 58;

/// The usual server's Ethernet address.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The usual client's Ethernet address.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The usual server's IPv4 and IPv6 address.
pub const SERVER: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// The usual client's IPv4 and IPv6 address, on the server's network.
pub const CLIENT: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9)),
];

/// TTL or hop limit of TCP and UDP packets.
pub(crate) const HOP_LIMIT: u8 = 64;
const VLAN: [u8; 2] = [0x81, 0];

/// One end of a conversation. The port is 0 for protocols without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// IP address.
    pub ip: IpAddr,
    /// TCP or UDP port.
    pub port: u16,
}

/// The two ends of a packet, and the tag of its VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sender.
    pub src: End,
    /// The receiver.
    pub dst: End,
    /// Priority and VLAN, as the 802.1Q tag has them.
    pub vlan: Option<u16>,
}

impl Route {
    /// From the usual client's port to the usual server's.
    pub const fn to_server(v6: bool, client_port: u16, server_port: u16) -> Self {
        Self {
            src: End {
                mac: CLIENT_MAC,
                ip: CLIENT[v6 as usize],
                port: client_port,
            },
            dst: End {
                mac: SERVER_MAC,
                ip: SERVER[v6 as usize],
                port: server_port,
            },
            vlan: None,
        }
    }

    /// The way back.
    #[must_use]
    pub const fn back(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            vlan: self.vlan,
        }
    }

    /// Whether the packets are IPv6.
    pub const fn is_v6(&self) -> bool {
        self.src.ip.is_ipv6()
    }

    /// Bytes of the Ethernet header.
    pub const fn link_len(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Bytes of the Ethernet and the IP header.
    pub const fn header_len(&self) -> usize {
        self.link_len() + if self.is_v6() { 40 } else { 20 }
    }

    /// A whole frame. The payload's checksum is written where `protocol` has one.
    pub fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        self.marked_packet(protocol, 0, payload)
    }

    /// The same with the two ECN bits of the IP header.
    pub fn marked_packet(&self, protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = [self.dst.mac, self.src.mac].concat();
        if let Some(tag) = self.vlan {
            frame.extend(VLAN);
            frame.extend(tag.to_be_bytes());
        }
        match (self.src.ip, self.dst.ip) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Ipv4Header {
                    ecn: IpEcn::try_new(ecn).expect("two bits"),
                    total_len: 20 + payload.len() as u16,
                    dont_fragment: true,
                    time_to_live: HOP_LIMIT,
                    protocol: IpNumber(protocol),
                    source: src.octets(),
                    destination: dst.octets(),
                    ..Ipv4Header::default()
                };
                header.header_checksum = header.calc_header_checksum();
                frame.extend([8, 0]);
                frame.extend(header.to_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = Ipv6Header {
                    traffic_class: ecn,
                    payload_length: payload.len() as u16,
                    next_header: IpNumber(protocol),
                    hop_limit: HOP_LIMIT,
                    source: src.octets(),
                    destination: dst.octets(),
                    ..Ipv6Header::default()
                };
                frame.extend([0x86, 0xdd]);
                frame.extend(header.to_bytes());
            }
            mixed => panic!("addresses of two families: {mixed:?}"),
        }
        let at = frame.len();
        frame.extend_from_slice(payload);
        fill_checksum(&mut frame[at..], protocol, self.src.ip, self.dst.ip);
        frame
    }

    /// The checksum field of a sender that leaves the sum of a payload of `len`
    /// bytes to its device: only the pseudo-header is summed.
    pub fn partial_checksum(&self, protocol: u8, len: usize) -> [u8; 2] {
        let sum = pseudo_sum(len, protocol, self.src.ip, self.dst.ip);
        (!sum.ones_complement()).to_ne_bytes()
    }

    /// A frame with a UDP datagram.
    pub fn datagram(&self, data: &[u8]) -> Vec<u8> {
        let len = 8 + data.len() as u16;
        let mut udp = Vec::from(self.src.port.to_be_bytes());
        for field in [self.dst.port, len, 0] {
            udp.extend(field.to_be_bytes());
        }
        udp.extend_from_slice(data);
        self.packet(UDP, &udp)
    }

    /// A frame with an ICMP or ICMPv6 message, `rest` from its fifth byte on.
    pub fn icmp(&self, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
        let message = [&[kind, code, 0, 0], rest].concat();
        self.packet(if self.is_v6() { ICMPV6 } else { ICMP }, &message)
    }

    /// A frame with an error about an untagged frame, of which it quotes as
    /// much as every router does (RFC 792; RFC 4443, section 2.4).
    pub fn icmp_error(&self, error: IcmpError, frame: &[u8]) -> Vec<u8> {
        let most = if self.is_v6() { 1280 - 40 - 8 } else { 20 + 8 };
        let quoted = &frame[14..frame.len().min(14 + most)];
        let (kind, code, mtu) = match (error, self.is_v6()) {
            (IcmpError::TooBig(mtu), false) => (3, 4, mtu),
            (IcmpError::TooBig(mtu), true) => (2, 0, mtu),
            (IcmpError::Unreachable(code), false) => (3, code, 0),
            (IcmpError::Unreachable(code), true) => (1, code, 0),
            (IcmpError::TimeExceeded, false) => (11, 0, 0),
            (IcmpError::TimeExceeded, true) => (3, 0, 0),
            (IcmpError::ParameterProblem, false) => (12, 0, 0),
            (IcmpError::ParameterProblem, true) | (IcmpError::SourceQuench, false) => (4, 0, 0),
            // IPv6 has none: a message for private experimentation.
            (IcmpError::SourceQuench, true) => (100, 0, 0),
        };
        self.icmp(kind, code, &[&mtu.to_be_bytes(), quoted].concat())
    }
}

/// An ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet is too big for a link with this MTU.
    TooBig(u32),
    /// The destination is unreachable, with this code.
    Unreachable(u8),
    /// The hop limit is used up.
    TimeExceeded,
    /// A field of the header is wrong.
    ParameterProblem,
    /// The sender is asked to slow down (RFC 792).
    SourceQuench,
}

/// Where the checksum lies in a payload of `protocol`.
const fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    }
}

/// The sum of a payload and its pseudo-header.
fn sum(payload: &[u8], protocol: u8, src: IpAddr, dst: IpAddr) -> Sum16BitWords {
    let sum = match protocol {
        ICMP => Sum16BitWords::new(),
        _ => pseudo_sum(payload.len(), protocol, src, dst),
    };
    sum.add_slice(payload)
}

/// The sum of a pseudo-header.
fn pseudo_sum(len: usize, protocol: u8, src: IpAddr, dst: IpAddr) -> Sum16BitWords {
    let ends = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => [src.octets(), dst.octets()].concat(),
        (IpAddr::V6(src), IpAddr::V6(dst)) => [src.octets(), dst.octets()].concat(),
        mixed => panic!("addresses of two families: {mixed:?}"),
    };
    Sum16BitWords::new()
        .add_slice(&ends)
        .add_slice(&(len as u32).to_be_bytes())
        .add_2bytes([0, protocol])
}

/// The Internet checksum of some bytes, such as an IPv4 header: 0 when the
/// field is among them and right.
pub fn checksum(bytes: &[u8]) -> u16 {
    let sum = Sum16BitWords::new().add_slice(bytes);
    sum.ones_complement().to_be()
}

/// Writes the checksum of an IP payload, if `protocol` has one and the payload
/// is long enough.
pub fn fill_checksum(payload: &mut [u8], protocol: u8, src: IpAddr, dst: IpAddr) {
    let Some(at) = checksum_at(protocol).filter(|at| payload.len() >= at + 2) else {
        return;
    };
    payload[at..at + 2].fill(0);
    let sum = sum(payload, protocol, src, dst);
    let field = match protocol {
        UDP => sum.to_ones_complement_with_no_zero(),
        _ => sum.ones_complement(),
    };
    payload[at..at + 2].copy_from_slice(&field.to_ne_bytes());
}

/// An IP packet in a frame, with right checksums.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// Who has sent it, and to whom.
    pub route: Route,
    /// The two ECN bits.
    pub ecn: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The payload's protocol.
    pub protocol: u8,
    /// Bytes behind the IP header.
    pub payload: &'a [u8],
}

/// The fields of an IP header that is plain: addresses, ECN, hop limit, protocol
/// and its length.
fn read_ip(net: Option<&NetSlice<'_>>) -> Result<(IpAddr, IpAddr, u8, u8, u8, usize), String> {
    match net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            if checksum(header.slice()) != 0 {
                return Err("a wrong checksum of the IPv4 header".into());
            }
            let is_plain = header.ihl() == 5
                && header.dont_fragment()
                && !header.is_fragmenting_payload()
                && header.dcp().value() == 0;
            if !is_plain {
                return Err(format!("an IPv4 header that is not plain: {header:?}"));
            }
            let (src, dst) = (header.source_addr(), header.destination_addr());
            let (ecn, ttl) = (header.ecn().value(), header.ttl());
            Ok((src.into(), dst.into(), ecn, ttl, header.protocol().0, 20))
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            if header.traffic_class() > 3 || header.flow_label().value() != 0 {
                return Err(format!("an IPv6 header that is not plain: {header:?}"));
            }
            let (src, dst) = (header.source_addr(), header.destination_addr());
            let (ecn, hops) = (header.traffic_class(), header.hop_limit());
            Ok((
                src.into(),
                dst.into(),
                ecn,
                hops,
                header.next_header().0,
                40,
            ))
        }
        other => Err(format!("no IP packet, but {other:?}")),
    }
}

/// Reads a frame as strictly as every packet of ours has to be: no options or
/// extension headers, no fragments, DF set, no DSCP, exact lengths.
///
/// # Errors
/// What is wrong.
pub fn read(frame: &[u8]) -> Result<Packet<'_>, String> {
    let sliced = SlicedPacket::from_ethernet(frame).map_err(|error| error.to_string())?;
    let Some(LinkSlice::Ethernet2(link)) = &sliced.link else {
        return Err("no Ethernet header".into());
    };
    let is_tagged = frame[12..14] == VLAN;
    let (src, dst, ecn, hop_limit, protocol, ip_len) = read_ip(sliced.net.as_ref())?;
    let payload = &frame[ip_len + if is_tagged { 18 } else { 14 }..];
    let len = sliced.ip_payload().map(|payload| payload.payload.len());
    if len != Some(payload.len()) {
        return Err(format!("a length of {len:?} for {} bytes", payload.len()));
    }
    if let Some(at) = checksum_at(protocol) {
        let field = payload.get(at..at + 2).ok_or("a cut header")?;
        let is_right = sum(payload, protocol, src, dst).ones_complement() == 0;
        if !is_right || protocol == UDP && field == [0, 0] {
            return Err(format!("a wrong checksum, protocol {protocol}"));
        }
    }
    let end = |mac, ip, at: usize| End {
        mac,
        ip,
        port: match protocol {
            TCP | UDP => u16::from_be_bytes([payload[at], payload[at + 1]]),
            _ => 0,
        },
    };
    let route = Route {
        src: end(link.source(), src, 0),
        dst: end(link.destination(), dst, 2),
        vlan: is_tagged.then(|| u16::from_be_bytes([frame[14], frame[15]])),
    };
    Ok(Packet {
        route,
        ecn,
        hop_limit,
        protocol,
        payload,
    })
}

impl<'a> Packet<'a> {
    /// The data of a UDP datagram.
    ///
    /// # Errors
    /// What is wrong.
    pub fn datagram(&self) -> Result<&'a [u8], String> {
        let len = u16::from_be_bytes([self.payload[4], self.payload[5]]);
        if self.protocol != UDP || usize::from(len) != self.payload.len() {
            return Err(format!("no UDP datagram: {self:?}"));
        }
        Ok(&self.payload[8..])
    }
}

/// Marks a valid, untagged frame as having met congestion, if its sender
/// allows that (RFC 3168, section 5). Always returns `true`: no frame is lost
/// for want of a mark.
pub fn mark_congestion(frame: &mut [u8]) -> bool {
    let is_v4 = frame[12] == 8;
    let both = if is_v4 { 3 } else { 3 << 4 };
    if frame[15] & both != 0 {
        frame[15] |= both;
        if is_v4 {
            frame[24..26].fill(0);
            let field = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&field.to_be_bytes());
        }
    }
    true
}
