//! Ethernet frames with IP packets and valid checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6Header, LinkSlice, NetSlice, SlicedPacket};

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Ethernet address of the default server.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Ethernet address of the default client.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// IPv4 and IPv6 address of the default server.
pub const SERVER: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// IPv4 and IPv6 address of the default client, in the server's network.
pub const CLIENT: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9)),
];

/// TTL or hop limit of all packets that a [`Route`] builds.
pub(crate) const HOP_LIMIT: u8 = 64;
const VLAN: [u8; 2] = [0x81, 0];

/// The sender or the receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// IP address.
    pub ip: IpAddr,
    /// TCP or UDP port, or 0 for protocols without ports.
    pub port: u16,
}

/// Sender, receiver and VLAN tag of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Sender.
    pub src: End,
    /// Receiver.
    pub dst: End,
    /// Tag control information of the 802.1Q tag (priority and VLAN ID), or `None` for untagged
    /// frames.
    pub vlan: Option<u16>,
}

impl Route {
    /// Makes a route from the default client to the default server.
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

    /// Returns the route in the opposite direction.
    #[must_use]
    pub const fn back(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            vlan: self.vlan,
        }
    }

    /// Returns true if the packets are IPv6.
    pub const fn is_v6(&self) -> bool {
        self.src.ip.is_ipv6()
    }

    /// Returns the length of the Ethernet header in bytes.
    pub const fn link_len(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Returns the length of the Ethernet and IP headers in bytes.
    pub const fn header_len(&self) -> usize {
        self.link_len() + if self.is_v6() { 40 } else { 20 }
    }

    /// Returns a frame with this payload. Fills in the payload's checksum if `protocol` has one.
    pub fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        self.marked_packet(protocol, 0, payload)
    }

    /// Like [`Route::packet`], but also sets the two ECN bits of the IP header to `ecn`.
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

    /// Returns the checksum field that a sender writes if its device completes the checksum: the
    /// sum of the pseudo-header for `len` bytes of payload.
    pub fn partial_checksum(&self, protocol: u8, len: usize) -> [u8; 2] {
        fold(pseudo_sum(len, protocol, self.src.ip, self.dst.ip)).to_be_bytes()
    }

    /// Returns a frame with a UDP datagram.
    pub fn datagram(&self, data: &[u8]) -> Vec<u8> {
        let len = 8 + data.len() as u16;
        let mut udp = Vec::from(self.src.port.to_be_bytes());
        for field in [self.dst.port, len, 0] {
            udp.extend(field.to_be_bytes());
        }
        udp.extend_from_slice(data);
        self.packet(UDP, &udp)
    }

    /// Returns a frame with an ICMP or ICMPv6 message. `rest` is the part of the message after the
    /// checksum.
    pub fn icmp(&self, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
        let message = [&[kind, code, 0, 0], rest].concat();
        self.packet(if self.is_v6() { ICMPV6 } else { ICMP }, &message)
    }

    /// Returns a frame with an ICMP error about an untagged frame. The error quotes as much as RFC
    /// 792 and RFC 4443, section 2.4, require.
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
            // ICMPv6 has no source quench. Type 100 is for private experimentation (RFC 4443,
            // section 2.1).
            (IcmpError::SourceQuench, true) => (100, 0, 0),
        };
        self.icmp(kind, code, &[&mtu.to_be_bytes(), quoted].concat())
    }
}

/// An ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet is too big for a link on the path. The value is the link's MTU in bytes.
    TooBig(u32),
    /// The destination is unreachable. The value is the code of the ICMP message.
    Unreachable(u8),
    /// The hop limit or TTL has reached zero.
    TimeExceeded,
    /// A header field is invalid.
    ParameterProblem,
    /// A router asks the sender to slow down (RFC 792).
    SourceQuench,
}

/// Returns the offset of the checksum in a payload of `protocol`, or `None` if the protocol is
/// unknown.
const fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    }
}

/// Adds up the 16-bit words of `bytes`. An odd last byte is padded with a zero byte.
fn sum(bytes: &[u8]) -> u64 {
    let (words, last) = bytes.as_chunks();
    // Wrapping addition lets the compiler vectorize this loop. With overflow checks, the loop would
    // be slow in fuzz targets, which are instrumented.
    let add = |sum: u64, word: &[u8; 2]| sum.wrapping_add(u16::from_be_bytes(*word).into());
    let last = last.iter().map(|last| u64::from(*last) << 8);
    words.iter().fold(0, add) + last.sum::<u64>()
}

/// Folds a sum into 16 bits by adding the carries.
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// Sums a payload and its pseudo-header. ICMP over IPv4 has no pseudo-header.
fn payload_sum(payload: &[u8], protocol: u8, src: IpAddr, dst: IpAddr) -> u64 {
    let pseudo = match protocol {
        ICMP => 0,
        _ => pseudo_sum(payload.len(), protocol, src, dst),
    };
    pseudo + sum(payload)
}

/// Sums a pseudo-header.
fn pseudo_sum(len: usize, protocol: u8, src: IpAddr, dst: IpAddr) -> u64 {
    let ends = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => [src.octets(), dst.octets()].concat(),
        (IpAddr::V6(src), IpAddr::V6(dst)) => [src.octets(), dst.octets()].concat(),
        mixed => panic!("addresses of two families: {mixed:?}"),
    };
    sum(&ends) + len as u64 + u64::from(protocol)
}

/// Computes the Internet checksum of `bytes`, such as an IPv4 header. The result is 0 if the bytes
/// include a correct checksum field.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Fills in the checksum of an IP payload if `protocol` has one and the payload is long enough.
pub fn fill_checksum(payload: &mut [u8], protocol: u8, src: IpAddr, dst: IpAddr) {
    let Some(at) = checksum_at(protocol).filter(|at| payload.len() >= at + 2) else {
        return;
    };
    payload[at..at + 2].fill(0);
    let field = match !fold(payload_sum(payload, protocol, src, dst)) {
        // In UDP, 0 means that there is no checksum.
        0 if protocol == UDP => 0xffff,
        field => field,
    };
    payload[at..at + 2].copy_from_slice(&field.to_be_bytes());
}

/// An IP packet from a frame, with verified checksums.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// Sender and receiver.
    pub route: Route,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IP protocol number of the payload.
    pub protocol: u8,
    /// The bytes after the IP header.
    pub payload: &'a [u8],
}

/// Reads an IP header. Returns the source and destination addresses, the ECN bits, the hop limit,
/// the protocol and the header length.
fn read_ip(net: Option<&NetSlice<'_>>) -> Result<(IpAddr, IpAddr, u8, u8, u8, usize), String> {
    match net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            if checksum(header.slice()) != 0 {
                return Err("the IPv4 header has a wrong checksum".into());
            }
            let is_plain = header.ihl() == 5
                && header.dont_fragment()
                && !header.is_fragmenting_payload()
                && header.dcp().value() == 0;
            if !is_plain {
                return Err(format!("an unexpected IPv4 header: {header:?}"));
            }
            let (src, dst) = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            let (ecn, protocol) = (header.ecn().value(), header.protocol().0);
            Ok((src, dst, ecn, header.ttl(), protocol, 20))
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            if header.traffic_class() > 3 || header.flow_label().value() != 0 {
                return Err(format!("an unexpected IPv6 header: {header:?}"));
            }
            let (src, dst) = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            let (ecn, protocol) = (header.traffic_class(), header.next_header().0);
            Ok((src, dst, ecn, header.hop_limit(), protocol, 40))
        }
        other => Err(format!("not an IP packet: {other:?}")),
    }
}

/// Reads a frame, and accepts only what our stack sends. IPv4 packets must have DF set. IP options,
/// extension headers, fragments, DSCP values, flow labels and padding are errors.
///
/// # Errors
/// The error describes what is wrong with the frame.
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
        return Err(format!("the length is {len:?} for {} bytes", payload.len()));
    }
    if let Some(at) = checksum_at(protocol) {
        let field = payload.get(at..at + 2).ok_or("a truncated header")?;
        let is_right = fold(payload_sum(payload, protocol, src, dst)) == 0xffff;
        if !is_right || protocol == UDP && field == [0, 0] {
            return Err(format!("protocol {protocol} has a wrong checksum"));
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
    /// Returns the data of a UDP datagram.
    ///
    /// # Errors
    /// Fails if the packet is not a UDP datagram, or if its length field is wrong.
    pub fn datagram(&self) -> Result<&'a [u8], String> {
        let len = u16::from_be_bytes([self.payload[4], self.payload[5]]);
        if self.protocol != UDP || usize::from(len) != self.payload.len() {
            return Err(format!("not a UDP datagram: {self:?}"));
        }
        Ok(&self.payload[8..])
    }
}

/// Sets the congestion mark of a valid, untagged frame if its sender supports ECN (RFC 3168,
/// section 5). Always returns `true`: a simulated link that calls this function then delivers the
/// frame.
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
