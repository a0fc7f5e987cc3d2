//! A segment as the cases see it, and the packets that it travels in. Built
//! and taken apart by smoltcp, which has none of the stack's code.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Message, Icmpv4Packet, Icmpv6Message,
    Icmpv6Packet, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber,
};

pub(crate) const FIN: u16 = 1;
pub(crate) const SYN: u16 = 1 << 1;
pub(crate) const RST: u16 = 1 << 2;
pub(crate) const ACK: u16 = 1 << 4;
pub(crate) const ECE: u16 = 1 << 6;
pub(crate) const CWR: u16 = 1 << 7;

/// Control bits and their letters.
pub(crate) const BITS: [(char, u16); 10] = [
    ('S', SYN),
    ('F', FIN),
    ('R', RST),
    ('P', 1 << 3),
    ('A', ACK),
    ('U', 1 << 5),
    ('E', ECE),
    ('W', CWR),
    ('N', 1 << 8),
    // One of those that have no meaning yet.
    ('X', 1 << 9),
];

pub(crate) const OWN_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
pub(crate) const OWN_PORT: u16 = 80;
const ETHERNET_HEADER: usize = 14;
const TCP_HEADER: usize = 20;
const HOP_LIMIT: u8 = 64;
/// The option that fills gaps.
const NO_OPERATION: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const fn own(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(OWN_V4),
            Self::V6 => IpAddr::V6(OWN_V6),
        }
    }

    pub(crate) const fn peer(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(PEER_V4),
            Self::V6 => IpAddr::V6(PEER_V6),
        }
    }

    const fn ip_header(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// Bytes of the IP and the TCP header.
    pub(crate) const fn headers(self) -> u16 {
        (self.ip_header() + TCP_HEADER) as u16
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Opt {
    Mss(u16),
    Scale(u8),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
    Timestamps(u32, u32),
    /// Kind and data.
    Other(u8, Vec<u8>),
    /// As they stand in the header; only in what goes in.
    Raw(Vec<u8>),
}

/// Without its data, of which only the length is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) bits: u16,
    pub(crate) seq: u32,
    pub(crate) len: u32,
    /// 0 without an A.
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) ecn: u8,
    /// In the order of [`Opt`], whatever it was in the header.
    pub(crate) options: Vec<Opt>,
}

impl Segment {
    pub(crate) fn has(&self, bit: u16) -> bool {
        self.bits & bit != 0
    }

    /// What it takes of the sequence space.
    pub(crate) fn span(&self) -> u32 {
        self.len + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}

/// As the cases write it.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, bit) in BITS {
            if self.has(bit) {
                write!(f, "{letter}")?;
            }
        }
        if self.bits == 0 {
            write!(f, "-")?;
        }
        write!(f, " {}", self.seq.cast_signed())?;
        if self.len > 0 {
            write!(f, "({})", self.len)?;
        }
        if self.has(ACK) {
            write!(f, " ack {}", self.ack.cast_signed())?;
        }
        write!(f, " win {}", self.window)?;
        if self.urgent != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        for (index, option) in self.options.iter().enumerate() {
            write!(f, "{}{option}", if index == 0 { " <" } else { ", " })?;
        }
        if !self.options.is_empty() {
            write!(f, ">")?;
        }
        write!(
            f,
            "{}",
            ["", " ect1", " ect0", " ce"][usize::from(self.ecn)]
        )
    }
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::Scale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => write!(f, "sackOK"),
            Self::Timestamps(value, echo) => write!(f, "ts {value} {echo}"),
            Self::Sack(blocks) => {
                write!(f, "sack")?;
                let mut blocks = blocks.iter();
                blocks.try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            Self::Other(kind, data) => write!(f, "kind {kind} {data:02x?}"),
            Self::Raw(bytes) => write!(f, "raw {bytes:02x?}"),
        }
    }
}

fn write_option(option: &Opt, out: &mut Vec<u8>) {
    match option {
        Opt::Mss(mss) => {
            out.extend([2, 4]);
            out.extend(mss.to_be_bytes());
        }
        Opt::Scale(shift) => out.extend([3, 3, *shift]),
        Opt::SackPermitted => out.extend([4, 2]),
        Opt::Sack(blocks) => {
            out.extend([5, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                out.extend(left.to_be_bytes());
                out.extend(right.to_be_bytes());
            }
        }
        Opt::Timestamps(value, echo) => {
            out.extend([8, 10]);
            out.extend(value.to_be_bytes());
            out.extend(echo.to_be_bytes());
        }
        Opt::Other(kind, data) => {
            out.extend([*kind, 2 + data.len() as u8]);
            out.extend(data);
        }
        Opt::Raw(bytes) => out.extend(bytes),
    }
}

/// How a peer lays out its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One behind the other, as they are written in the case.
    Dense,
    /// In the order and at the places that Linux and the BSDs give them, with
    /// no-operations between.
    Usual,
}

impl Layout {
    fn write(self, options: &[Opt]) -> Vec<u8> {
        let mut options = options.to_vec();
        let is_raw = |option: &Opt| matches!(option, Opt::Raw(_));
        let usual = self == Self::Usual && !options.iter().any(is_raw);
        if usual {
            options.sort_by_key(|option| match option {
                Opt::Mss(_) => 0,
                Opt::SackPermitted => 1,
                Opt::Timestamps(..) => 2,
                Opt::Scale(_) => 3,
                _ => 4,
            });
        }
        let mut out = Vec::new();
        for option in &options {
            if usual {
                let before = match option {
                    Opt::Mss(_) | Opt::Raw(_) => 0,
                    Opt::Scale(_) => 1,
                    _ => 2,
                };
                out.extend(std::iter::repeat_n(NO_OPERATION, before));
            }
            write_option(option, &mut out);
        }
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }
}

/// Reads a header's options as RFC 9293, section 3.1, has them.
fn read_options(mut bytes: &[u8]) -> Result<Vec<Opt>, String> {
    let mut options = Vec::new();
    while let Some((&kind, rest)) = bytes.split_first() {
        match kind {
            0 => {
                if rest.iter().any(|byte| *byte != 0) {
                    return Err("padding behind the end of the options is not zero".into());
                }
                break;
            }
            1 => bytes = rest,
            _ => {
                let len = usize::from(*rest.first().ok_or("an option without a length")?);
                let data = bytes
                    .get(2..len)
                    .ok_or("an option longer than the header")?;
                bytes = &bytes[len..];
                options.push(read_option(kind, data)?);
            }
        }
    }
    options.sort();
    Ok(options)
}

fn read_option(kind: u8, data: &[u8]) -> Result<Opt, String> {
    let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
    Ok(match (kind, data.len()) {
        (2, 2) => Opt::Mss(u16::from_be_bytes([data[0], data[1]])),
        (3, 1) => Opt::Scale(data[0]),
        (4, 0) => Opt::SackPermitted,
        (5, 8 | 16 | 24 | 32) => {
            let block = |at: usize| (word(at), word(at + 4));
            Opt::Sack((0..data.len()).step_by(8).map(block).collect())
        }
        (8, 8) => Opt::Timestamps(word(0), word(4)),
        (2..=5 | 8, len) => return Err(format!("option {kind} with {len} bytes of data")),
        _ => Opt::Other(kind, data.to_vec()),
    })
}

/// How a segment that goes in is written, beside what it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) bad_checksum: bool,
    /// What the data offset field says instead of the truth.
    pub(crate) offset: Option<u8>,
    /// Our port.
    pub(crate) port: u16,
    pub(crate) layout: Layout,
}

/// The frame of a segment of the peer's, in absolute numbers.
pub(crate) fn build(
    family: Family,
    peer_port: u16,
    segment: &Segment,
    data: &[u8],
    manner: Manner,
) -> Vec<u8> {
    let options = manner.layout.write(&segment.options);
    let len = TCP_HEADER + options.len() + data.len();
    let mut packet = ip_packet(family, IpProtocol::Tcp, len, segment.ecn);
    let at = packet.len() - len;
    let offset = ((TCP_HEADER + options.len()) / 4) as u8;
    let mut tcp = TcpPacket::new_unchecked(&mut packet[at..]);
    tcp.set_src_port(peer_port);
    tcp.set_dst_port(manner.port);
    tcp.set_seq_number(TcpSeqNumber(segment.seq.cast_signed()));
    tcp.set_ack_number(TcpSeqNumber(segment.ack.cast_signed()));
    tcp.set_window_len(segment.window);
    tcp.set_urgent_at(segment.urgent);
    let bytes = tcp.into_inner();
    let field = u16::from(manner.offset.unwrap_or(offset)) << 12 | segment.bits;
    bytes[12..14].copy_from_slice(&field.to_be_bytes());
    bytes[TCP_HEADER..][..options.len()].copy_from_slice(&options);
    bytes[TCP_HEADER + options.len()..].copy_from_slice(data);
    let mut tcp = TcpPacket::new_unchecked(&mut packet[at..]);
    tcp.fill_checksum(
        &IpAddress::from(family.peer()),
        &IpAddress::from(family.own()),
    );
    if manner.bad_checksum {
        let checksum = tcp.checksum();
        tcp.set_checksum(checksum ^ 0x0101);
    }
    packet
}

/// Ethernet and IP headers to us, and room for `len` bytes behind them.
fn ip_packet(family: Family, protocol: IpProtocol, len: usize, ecn: u8) -> Vec<u8> {
    let mut packet = vec![0; ETHERNET_HEADER + family.ip_header() + len];
    let mut ethernet = EthernetFrame::new_unchecked(&mut packet[..]);
    ethernet.set_dst_addr(OWN_MAC);
    ethernet.set_src_addr(PEER_MAC);
    let (ethertype, ip) = match family {
        Family::V4 => (EthernetProtocol::Ipv4, ETHERNET_HEADER),
        Family::V6 => (EthernetProtocol::Ipv6, ETHERNET_HEADER),
    };
    ethernet.set_ethertype(ethertype);
    write_ip(&mut packet[ip..], family, protocol, len, ecn, false);
    packet
}

fn write_ip(
    bytes: &mut [u8],
    family: Family,
    protocol: IpProtocol,
    len: usize,
    ecn: u8,
    ours: bool,
) {
    match family {
        Family::V4 => {
            let (src, dst) = if ours {
                (OWN_V4, PEER_V4)
            } else {
                (PEER_V4, OWN_V4)
            };
            let mut ip = Ipv4Packet::new_unchecked(bytes);
            ip.set_version(4);
            ip.set_header_len(20);
            ip.set_ecn(ecn);
            ip.set_total_len((20 + len) as u16);
            ip.set_dont_frag(true);
            ip.set_hop_limit(HOP_LIMIT);
            ip.set_next_header(protocol);
            ip.set_src_addr(src);
            ip.set_dst_addr(dst);
            ip.fill_checksum();
        }
        Family::V6 => {
            let (src, dst) = if ours {
                (OWN_V6, PEER_V6)
            } else {
                (PEER_V6, OWN_V6)
            };
            let mut ip = Ipv6Packet::new_unchecked(bytes);
            ip.set_version(6);
            ip.set_traffic_class(ecn);
            ip.set_payload_len(len as u16);
            ip.set_hop_limit(HOP_LIMIT);
            ip.set_next_header(protocol);
            ip.set_src_addr(src);
            ip.set_dst_addr(dst);
        }
    }
}

/// What an ICMP error says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    TooBig(u32),
    Unreachable(u8),
    TimeExceeded,
}

/// An ICMP error about the segment at `seq`, an absolute number, that we have
/// sent to `peer_port`.
pub(crate) fn build_icmp(family: Family, peer_port: u16, message: Message, seq: u32) -> Vec<u8> {
    // As much of it as every router sends back: eight bytes of TCP.
    let embedded = family.ip_header() + 8;
    let len = 8 + embedded;
    let protocol = match family {
        Family::V4 => IpProtocol::Icmp,
        Family::V6 => IpProtocol::Icmpv6,
    };
    let mut packet = ip_packet(family, protocol, len, 0);
    let at = packet.len() - len;
    let quoted = &mut packet[at + 8..];
    write_ip(quoted, family, IpProtocol::Tcp, TCP_HEADER + 1000, 0, true);
    let tcp = &mut quoted[family.ip_header()..];
    tcp[..2].copy_from_slice(&OWN_PORT.to_be_bytes());
    tcp[2..4].copy_from_slice(&peer_port.to_be_bytes());
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    match family {
        Family::V4 => {
            let mut icmp = Icmpv4Packet::new_unchecked(&mut packet[at..]);
            let (kind, code) = match message {
                Message::TooBig(_) => (Icmpv4Message::DstUnreachable, 4),
                Message::Unreachable(code) => (Icmpv4Message::DstUnreachable, code),
                Message::TimeExceeded => (Icmpv4Message::TimeExceeded, 0),
            };
            icmp.set_msg_type(kind);
            icmp.set_msg_code(code);
            if let Message::TooBig(mtu) = message {
                let bytes = icmp.into_inner();
                bytes[6..8].copy_from_slice(&(mtu as u16).to_be_bytes());
                icmp = Icmpv4Packet::new_unchecked(bytes);
            }
            icmp.fill_checksum();
        }
        Family::V6 => {
            let mut icmp = Icmpv6Packet::new_unchecked(&mut packet[at..]);
            let (kind, code) = match message {
                Message::TooBig(_) => (Icmpv6Message::PktTooBig, 0),
                Message::Unreachable(code) => (Icmpv6Message::DstUnreachable, code),
                Message::TimeExceeded => (Icmpv6Message::TimeExceeded, 0),
            };
            icmp.set_msg_type(kind);
            icmp.set_msg_code(code);
            if let Message::TooBig(mtu) = message {
                icmp.set_pkt_too_big_mtu(mtu);
            }
            icmp.fill_checksum(&PEER_V6, &OWN_V6);
        }
    }
    packet
}

/// A frame that came out, checked: the segment in absolute numbers, our and
/// the peer's port, and the data.
pub(crate) fn parse(family: Family, packet: &[u8]) -> Result<(Segment, u16, u16, Vec<u8>), String> {
    let ethernet = EthernetFrame::new_checked(packet).map_err(|_| "a cut Ethernet header")?;
    if ethernet.dst_addr() != PEER_MAC || ethernet.src_addr() != OWN_MAC {
        return Err("other Ethernet addresses than the received ones turned round".into());
    }
    let (tcp, ecn) = match family {
        Family::V4 => {
            let ip =
                Ipv4Packet::new_checked(ethernet.payload()).map_err(|_| "a cut IPv4 header")?;
            let right = ip.version() == 4
                && ip.header_len() == 20
                && usize::from(ip.total_len()) == ethernet.payload().len()
                && ip.dont_frag()
                && !ip.more_frags()
                && ip.frag_offset() == 0
                && ip.hop_limit() == HOP_LIMIT
                && ip.dscp() == 0
                && ip.next_header() == IpProtocol::Tcp
                && (ip.src_addr(), ip.dst_addr()) == (OWN_V4, PEER_V4);
            if !right {
                return Err(format!("an unexpected IPv4 header: {ip}"));
            }
            if !ip.verify_checksum() {
                return Err("a wrong IPv4 header checksum".into());
            }
            (ip.payload(), ip.ecn())
        }
        Family::V6 => {
            let ip =
                Ipv6Packet::new_checked(ethernet.payload()).map_err(|_| "a cut IPv6 header")?;
            let right = ip.version() == 6
                && ip.total_len() == ethernet.payload().len()
                && ip.hop_limit() == HOP_LIMIT
                && ip.traffic_class() & 0xfc == 0
                && ip.next_header() == IpProtocol::Tcp
                && (ip.src_addr(), ip.dst_addr()) == (OWN_V6, PEER_V6);
            if !right {
                return Err(format!("an unexpected IPv6 header: {ip}"));
            }
            (ip.payload(), ip.traffic_class() & 3)
        }
    };
    parse_tcp(family, tcp, ecn)
}

fn parse_tcp(
    family: Family,
    bytes: &[u8],
    ecn: u8,
) -> Result<(Segment, u16, u16, Vec<u8>), String> {
    let tcp = TcpPacket::new_checked(bytes).map_err(|_| "a cut TCP header")?;
    let (own, peer) = (
        IpAddress::from(family.own()),
        IpAddress::from(family.peer()),
    );
    if !tcp.verify_checksum(&own, &peer) {
        return Err("a wrong TCP checksum".into());
    }
    let field = u16::from_be_bytes([bytes[12], bytes[13]]);
    if field & 0x0e00 != 0 {
        return Err("reserved bits are set".into());
    }
    let segment = Segment {
        bits: field & 0x1ff,
        seq: tcp.seq_number().0.cast_unsigned(),
        len: tcp.payload().len() as u32,
        ack: tcp.ack_number().0.cast_unsigned(),
        window: tcp.window_len(),
        urgent: tcp.urgent_at(),
        ecn,
        options: read_options(tcp.options())?,
    };
    Ok((
        segment,
        tcp.src_port(),
        tcp.dst_port(),
        tcp.payload().to_vec(),
    ))
}
