//! Delivers arbitrary and nearly valid frames to a host. The host must count each frame once, and
//! an independent parser must accept each reply.

use std::net::{IpAddr, Ipv6Addr};

use crate::{MTU, edit, route, station};
use arbitrary::Arbitrary;
use eth::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Header, Station};
use ip::{Host, Input, PROTOCOL_TCP, PROTOCOL_UDP, Packet};
use nmio::sim::Sink;
use nmio::{Instant, Port};
use testkit::{
    CLIENT, CLIENT_MAC, End, ICMP, ICMPV6, Route, SERVER, SERVER_MAC, UDP, checksum, fill_checksum,
    read,
};

const ICMP_ECHO: [u8; 8] = [8, 0, 0, 0, 0, 1, 0, 1];
const ICMPV6_ECHO: [u8; 8] = [128, 0, 0, 0, 0, 1, 0, 1];
/// Extension headers that the host skips (RFC 8200, section 4.1).
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];
const NDP_HOP_LIMIT: u8 = 255;
/// MAC address and IPv6 address of the server's solicited-node multicast group (RFC 4291, section
/// 2.7.1).
const SOLICITED: ([u8; 6], [u8; 16]) = (
    [0x33, 0x33, 0xff, 0, 0, 1],
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1],
);

/// A frame before edits.
#[derive(Arbitrary, Debug)]
enum Template {
    /// Only the input's bytes.
    Empty,
    Arp,
    Solicitation {
        to_group: bool,
    },
    Echo {
        v6: bool,
    },
    /// An ICMP error about a packet from the server. `about` is the protocol of this packet.
    TooBig {
        v6: bool,
        about: u8,
    },
    Packet {
        v6: bool,
        protocol: u8,
    },
    Extended(Extended),
}

/// An echo request or a UDP datagram with IPv4 options or IPv6 extension headers.
#[derive(Arbitrary, Debug)]
struct Extended {
    v6: bool,
    is_echo: bool,
    /// Kinds of the extension headers.
    kinds: [u8; 3],
    options: [[u8; 8]; 3],
}

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Frame<'a> {
    is_shared: bool,
    partial_checksums: bool,
    /// Whether [`mend`] corrects the frame after the edits.
    is_mended: bool,
    vlan: Option<u16>,
    template: Template,
    edits: Vec<(u8, u8)>,
    truncated_len: Option<u8>,
    bytes: &'a [u8],
}

impl Frame<'_> {
    fn frame(&self) -> Vec<u8> {
        let route = |v6| route(v6, self.vlan);
        let bytes = self.bytes;
        let mut frame = match &self.template {
            Template::Empty => bytes.to_vec(),
            Template::Arp => self.arp(),
            Template::Solicitation { to_group } => self.solicitation(*to_group),
            Template::Echo { v6: false } => {
                route(false).packet(ICMP, &[&ICMP_ECHO, bytes].concat())
            }
            Template::Echo { v6: true } => {
                route(true).packet(ICMPV6, &[&ICMPV6_ECHO, bytes].concat())
            }
            Template::TooBig { v6, about } => {
                let route = route(*v6);
                let quoted = &route.back().packet(*about, bytes)[route.link_len()..];
                let (kind, code) = if *v6 { (2, 0) } else { (3, 4) };
                route.icmp(kind, code, &[&[0, 0, 5, 0], quoted].concat())
            }
            Template::Packet { v6, protocol } => route(*v6).packet(*protocol, bytes),
            Template::Extended(extended) => self.extended(extended),
        };
        edit(&mut frame, &self.edits);
        if self.is_mended {
            mend(&mut frame);
        }
        frame.truncate(self.truncated_len.map_or(MTU + 18, usize::from));
        frame
    }

    fn extended(&self, extended: &Extended) -> Vec<u8> {
        let (v6, mut options) = (extended.v6, extended.options);
        let route = route(v6, self.vlan);
        let (protocol, head) = match (v6, extended.is_echo) {
            (_, false) => (UDP, [0x30, 0x39, 0, 53, 0, 0, 0, 0]),
            (false, true) => (ICMP, ICMP_ECHO),
            (true, true) => (ICMPV6, ICMPV6_ECHO),
        };
        let mut frame = route.packet(protocol, &[&head, self.bytes].concat());
        let at = route.link_len();
        if v6 {
            let mut next = protocol;
            for (option, kind) in options.iter_mut().zip(extended.kinds).rev() {
                // Each extension header names the next one. Length 0 means eight bytes.
                (option[0], option[1]) = (next, 0);
                next = EXTENSIONS[usize::from(kind) % EXTENSIONS.len()];
            }
            frame[at + 6] = next;
        } else {
            frame[at] += 6;
        }
        let len_at = at + if v6 { 4 } else { 2 };
        let len = u16::from_be_bytes([frame[len_at], frame[len_at + 1]]) + 24;
        frame[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
        let options_at = route.header_len();
        frame.splice(options_at..options_at, options.into_iter().flatten());
        if !v6 {
            fill_ipv4_checksum(&mut frame[at..options_at + 24]);
        }
        frame
    }

    fn arp(&self) -> Vec<u8> {
        let route = route(false, self.vlan);
        let mut frame = route.packet(0, &[]);
        frame.truncate(route.link_len() - 2);
        frame.extend(ETHERTYPE_ARP.to_be_bytes());
        frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(CLIENT_MAC);
        frame.extend(octets(CLIENT[0]));
        frame.extend([0; 6]);
        frame.extend(octets(SERVER[0]));
        frame.extend_from_slice(self.bytes);
        frame
    }

    fn solicitation(&self, to_group: bool) -> Vec<u8> {
        let mut route = route(true, self.vlan);
        if to_group {
            let (mac, group) = SOLICITED;
            let (ip, port) = (group.into(), 0);
            route.dst = End { mac, ip, port };
            if self.bytes.is_empty() {
                // Duplicate address detection (RFC 4862, section 5.4.2).
                route.src.ip = Ipv6Addr::UNSPECIFIED.into();
            }
        }
        let mut frame = route.icmp(
            135,
            0,
            &[&[0; 4], &octets(SERVER[1])[..], self.bytes].concat(),
        );
        frame[route.link_len() + 7] = NDP_HOP_LIMIT;
        frame
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn fill_ipv4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the destination of an IP packet to the server's address and corrects the checksums. The
/// fuzzer would hardly find the correct values by chance.
fn mend(frame: &mut [u8]) {
    let Some(link) = Header::parse(frame) else {
        return;
    };
    let packet = &mut frame[link.len()..];
    let (v6, addresses_at) = match (link.ethertype, packet.len()) {
        (ETHERTYPE_IPV4, 20..) => (false, 12..20),
        (ETHERTYPE_IPV6, 40..) => (true, 8..40),
        _ => return,
    };
    let addresses = &mut packet[addresses_at];
    let (src, dst) = addresses.split_at_mut(addresses.len() / 2);
    // Neighbour discovery also uses multicast groups, so a multicast destination stays.
    if !v6 || dst[0] != 0xff {
        dst.copy_from_slice(&octets(SERVER[usize::from(v6)]));
    }
    let address = |octets: &[u8]| -> IpAddr {
        match <[u8; 4]>::try_from(octets) {
            Ok(octets) => octets.into(),
            Err(_) => <[u8; 16]>::try_from(octets).expect("16 bytes").into(),
        }
    };
    let (src, dst) = (address(src), address(dst));
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (protocol, header_len, len) = if v6 {
        (packet[6], 40, 40 + word(4))
    } else {
        let header_len = (usize::from(packet[0] & 15) * 4).clamp(20, packet.len());
        (packet[9], header_len, word(2))
    };
    if !v6 {
        fill_ipv4_checksum(&mut packet[..header_len]);
    }
    if let Some(payload) = packet.get_mut(header_len..len) {
        fill_checksum(payload, protocol, src, dst);
    }
}

/// Runs the target.
pub fn run(input: &Frame<'_>) {
    let bytes = input.frame();
    check_host_without_transports(&input, &bytes);
    let make = [Host::own, Host::shared][usize::from(input.is_shared)];
    let host = make(station(), [0; 4]);
    let mut host = host.with_partial_checksums(input.partial_checksums);
    let sink = Sink::new(MTU, 2, 0);
    let free = sink.pool().available();
    match host.receive(sink.frame_from(&bytes), Instant::ZERO) {
        Input::Tcp(packet) => check_turn_round(&sink, packet, PROTOCOL_TCP),
        Input::Udp(packet) => check_turn_round(&sink, packet, PROTOCOL_UDP),
        Input::Reply(reply) => {
            assert!(
                !input.is_shared,
                "a reply from a host shared with the kernel"
            );
            check_reply(&bytes, &reply);
        }
        Input::Error(error) => {
            let ours = error.addresses.src();
            assert!(host.station().addresses().contains(&ours));
        }
        Input::Dropped => {}
    }
    let c = host.counters();
    let kept = c.tcp + c.udp + c.discovery_replies + c.echo_replies + c.icmp_errors;
    let dropped: u64 = c.drops().iter().map(|(_, count)| count).sum();
    assert_eq!(kept + dropped, 1, "{c:?}");
    assert_eq!(sink.pool().available(), free, "a frame has leaked");
}

fn check_host_without_transports(input: &Frame, bytes: &[u8]) {
    let mut host = Host::own(station(), [0; 4]).with_partial_checksums(input.partial_checksums);
    let mut sink = Sink::new(MTU, 2, 0);
    let frame = sink.frame_from(bytes);
    host.handle_frame(&mut sink, frame, &mut (), Instant::ZERO);
    if sink.counters().tx_frames > 0 {
        check_reply(bytes, sink.last());
    }
}

/// Sends a packet back to its sender. The sender must receive the same payload.
fn check_turn_round(sink: &Sink, packet: Packet, protocol: u8) {
    let sent = packet.payload().to_vec();
    let path = packet.path_back();
    let reply = packet.turn_around(protocol);
    assert_eq!(reply.len(), path.header_len() + sent.len());
    let peer = Station::new(path.link.peer, &[path.addresses.dst()]);
    let mut peer = Host::own(peer.with_vlans(&[0, 1, 2]), [0; 4]);
    match peer.receive(sink.frame_from(&reply), Instant::ZERO) {
        Input::Tcp(packet) if protocol == PROTOCOL_TCP => assert_eq!(packet.payload(), sent),
        Input::Udp(packet) if protocol == PROTOCOL_UDP => assert_eq!(packet.payload(), sent),
        other => panic!("the peer rejects the packet: {other:?}"),
    }
}

/// Checks a reply with independent readers: addresses, checksums and type.
fn check_reply(request: &[u8], reply: &[u8]) {
    let request_link = Header::parse(request).expect("a request with a header");
    let link = Header::parse(reply).expect("a reply with a header");
    assert_eq!(link.vlan, request_link.vlan);
    assert_eq!(link.src.0, SERVER_MAC);
    let request = &request[request_link.len()..];
    if link.ethertype == ETHERTYPE_ARP {
        let sender = &request[8..18];
        let own = [&SERVER_MAC, &octets(SERVER[0])[..]].concat();
        let expected = [&[0, 1, 8, 0, 6, 4, 0, 2], &own[..], sender].concat();
        assert_eq!(reply[link.len()..], expected);
        assert_eq!(link.dst, request_link.src);
        return;
    }
    let packet = read(reply).expect("a valid packet");
    let Route { src, dst, .. } = packet.route;
    let v6 = packet.route.is_v6();
    assert_eq!(src.ip, SERVER[usize::from(v6)]);
    let sender = if v6 { 8..24 } else { 12..16 };
    let to_sender = octets(dst.ip) == request[sender];
    match (packet.protocol, packet.payload[0]) {
        (ICMP, 0) | (ICMPV6, 129) => assert!(to_sender && packet.payload.len() >= 8),
        (ICMPV6, 136) => {
            let flags = if to_sender { 0x60 } else { 0x20 };
            let option = [&[2, 1], &SERVER_MAC[..]].concat();
            let expected = [&[flags, 0, 0, 0], &octets(SERVER[1])[..], &option].concat();
            assert_eq!(packet.payload[4..], expected);
            assert_eq!(packet.hop_limit, NDP_HOP_LIMIT);
            assert!(to_sender || dst.ip.is_multicast());
        }
        (ICMP, 3) | (ICMPV6, 1 | 4) => {
            let quoted = &packet.payload[8..];
            assert!(to_sender && !quoted.is_empty() && request.starts_with(quoted));
            assert!(packet.payload.len() <= 1280 - 40);
        }
        other => panic!("an unexpected reply: {other:?}"),
    }
    assert_eq!(link.dst == request_link.src, to_sender);
}
