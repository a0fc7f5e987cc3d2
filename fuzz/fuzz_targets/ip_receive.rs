//! Any bytes as a frame: one thing comes of it, and it is counted; an answer
//! is one that the asker understands.
#![no_main]

use std::net::Ipv6Addr;

use eth::{ETHERTYPE_ARP, Header, Mac};
use fuzz::{MTU, OWN, PEER, host_at, mend, packet, path, station};
use ip::{
    Addresses, Host, Input, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, Packet,
    Path, Sum,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nmio::sim::Sink;
use nmio::{Instant, Port};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, Icmpv4Message, Icmpv4Packet,
    Icmpv4Repr, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, Ipv4Packet, Ipv6Packet,
};

const ICMP_ECHO: [u8; 8] = [8, 0, 0, 0, 0, 1, 0, 1];
const ICMPV6_ECHO: [u8; 8] = [128, 0, 0, 0, 0, 1, 0, 1];
const ICMP_TOO_BIG: [u8; 8] = [3, 4, 0, 0, 0, 0, 5, 0];
const ICMPV6_TOO_BIG: [u8; 8] = [2, 0, 0, 0, 0, 0, 5, 0];
const NDP_HOP_LIMIT: u8 = 255;

/// What a frame is before it is edited.
#[derive(Arbitrary, Debug)]
enum Template {
    /// Nothing but the input's bytes.
    Empty,
    Arp,
    Solicitation {
        to_group: bool,
    },
    Echo {
        v6: bool,
    },
    /// An error about a packet of ours.
    TooBig {
        v6: bool,
        about: u8,
    },
    Packet {
        v6: bool,
        protocol: u8,
    },
    /// An echo request or a datagram behind IPv4 options, or extension headers
    /// of these kinds.
    Extended {
        v6: bool,
        is_echo: bool,
        kinds: [u8; 3],
        options: [[u8; 8]; 3],
    },
}

/// The extension headers that are looked through (RFC 8200, section 4.1).
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];

#[derive(Arbitrary, Debug)]
struct Frame<'a> {
    is_shared: bool,
    partial_checksums: bool,
    /// See [`mend`].
    is_mended: bool,
    vlan: Option<u16>,
    template: Template,
    edits: Vec<(u8, u8)>,
    cut: Option<u8>,
    bytes: &'a [u8],
}

impl Frame<'_> {
    fn frame(&self) -> Vec<u8> {
        let path = |v6| path(v6, self.vlan);
        let with = |start: &[u8]| [start, self.bytes].concat();
        let mut frame = match self.template {
            Template::Empty => self.bytes.to_vec(),
            Template::Arp => self.arp(),
            Template::Solicitation { to_group } => self.solicitation(to_group),
            Template::Echo { v6: false } => packet(&path(false), PROTOCOL_ICMP, &with(&ICMP_ECHO)),
            Template::Echo { v6: true } => {
                packet(&path(true), PROTOCOL_ICMPV6, &with(&ICMPV6_ECHO))
            }
            Template::TooBig { v6, about } => {
                let back = Path {
                    addresses: path(v6).addresses.reversed(),
                    ..path(v6)
                };
                let quoted = packet(&back, about, self.bytes);
                let quoted = &quoted[back.link.header_len()..];
                let (protocol, head) = if v6 {
                    (PROTOCOL_ICMPV6, ICMPV6_TOO_BIG)
                } else {
                    (PROTOCOL_ICMP, ICMP_TOO_BIG)
                };
                packet(&path(v6), protocol, &[&head, quoted].concat())
            }
            Template::Packet { v6, protocol } => packet(&path(v6), protocol, self.bytes),
            Template::Extended {
                v6,
                is_echo,
                kinds,
                options,
            } => self.extended(v6, is_echo, kinds, options),
        };
        for (at, byte) in &self.edits {
            if let Some(place) = frame.get_mut(usize::from(*at)) {
                *place = *byte;
            }
        }
        if self.is_mended {
            mend(&mut frame);
        }
        frame.truncate(self.cut.map_or(MTU + 18, usize::from));
        frame
    }

    fn extended(
        &self,
        v6: bool,
        is_echo: bool,
        kinds: [u8; 3],
        mut options: [[u8; 8]; 3],
    ) -> Vec<u8> {
        let path = path(v6, self.vlan);
        let (protocol, head) = match (v6, is_echo) {
            (_, false) => (PROTOCOL_UDP, [0x30, 0x39, 0, 53, 0, 0, 0, 0]),
            (false, true) => (PROTOCOL_ICMP, ICMP_ECHO),
            (true, true) => (PROTOCOL_ICMPV6, ICMPV6_ECHO),
        };
        let mut frame = packet(&path, protocol, &[&head, self.bytes].concat());
        let at = path.link.header_len();
        if v6 {
            let mut next = protocol;
            for (option, kind) in options.iter_mut().zip(kinds).rev() {
                // One of eight bytes, so that they follow one another.
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
        let options_at = path.header_len();
        frame.splice(options_at..options_at, options.into_iter().flatten());
        if !v6 {
            frame[at + 10..at + 12].fill(0);
            let sum = Sum::of(&frame[at..options_at + 24]).finish();
            frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    }

    fn arp(&self) -> Vec<u8> {
        let mut frame = vec![0; 18];
        let start = path(false, self.vlan).link.write(&mut frame, ETHERTYPE_ARP);
        frame.truncate(start);
        frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(PEER.0.0);
        frame.extend(PEER.1.octets());
        frame.extend([0; 6]);
        frame.extend(OWN.1.octets());
        [&frame, self.bytes].concat()
    }

    fn solicitation(&self, to_group: bool) -> Vec<u8> {
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        message.extend(OWN.2.octets());
        message.extend(self.bytes);
        let mut path = path(true, self.vlan);
        if to_group {
            path.link.peer = Mac([0x33, 0x33, 0xff, 0, 0, 1]);
            path.addresses = Addresses::V6 {
                src: PEER.2,
                dst: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
            };
        }
        let mut frame = packet(&path, PROTOCOL_ICMPV6, &message);
        frame[path.link.header_len() + 7] = NDP_HOP_LIMIT;
        frame
    }
}

fuzz_target!(|input: Frame| {
    let bytes = input.frame();
    refuses(&input, &bytes);
    let host = if input.is_shared {
        Host::shared(station(OWN))
    } else {
        Host::own(station(OWN))
    };
    let mut host = host.with_partial_checksums(input.partial_checksums);
    let sink = Sink::new(MTU, 2, 0);
    let free = sink.pool().available();
    match host.receive(sink.frame_from(&bytes), Instant::ZERO) {
        Input::Tcp(packet) => goes_back(&sink, packet, PROTOCOL_TCP),
        Input::Udp(packet) => goes_back(&sink, packet, PROTOCOL_UDP),
        Input::Reply(reply) => {
            assert!(!input.is_shared, "the kernel answers for itself");
            is_understood(&bytes, &reply);
        }
        Input::Error(error) => {
            let ours = error.addresses.src();
            assert!(host.station().addresses().contains(&ours));
        }
        Input::Dropped => {}
    }
    assert_eq!(counted(&host), 1, "{:?}", host.counters());
    assert_eq!(sink.pool().available(), free, "a frame has leaked");
});

/// A host without transports answers for itself, if at all.
fn refuses(input: &Frame, bytes: &[u8]) {
    let mut host = Host::own(station(OWN)).with_partial_checksums(input.partial_checksums);
    let mut sink = Sink::new(MTU, 2, 0);
    let frame = sink.frame_from(bytes);
    host.handle_frame(&mut sink, frame, &mut (), Instant::ZERO);
    if sink.counters().tx_frames > 0 {
        is_understood(bytes, sink.last());
    }
}

fn counted(host: &Host) -> u64 {
    let c = host.counters();
    let kept = c.tcp + c.udp + c.discovery_replies + c.echo_replies + c.icmp_errors;
    kept + c.drops().iter().map(|(_, count)| count).sum::<u64>()
}

/// Turned round, the packet is one for the peer, with the same payload.
fn goes_back(sink: &Sink, packet: Packet, protocol: u8) {
    let sent = packet.payload().to_vec();
    let path = packet.path_back();
    let reply = packet.turn_around(protocol);
    assert_eq!(reply.len(), path.header_len() + sent.len());
    let mut peer = host_at(path.link.peer, path.addresses.dst());
    match peer.receive(sink.frame_from(&reply), Instant::ZERO) {
        Input::Tcp(packet) if protocol == PROTOCOL_TCP => assert_eq!(packet.payload(), sent),
        Input::Udp(packet) if protocol == PROTOCOL_UDP => assert_eq!(packet.payload(), sent),
        other => panic!("the peer refuses it: {other:?}"),
    }
}

/// An error carries what was received, unchanged and not too much of it.
fn is_quoted(quoted: &[u8], request: &[u8], message_len: usize) {
    assert!(request.starts_with(quoted));
    assert!(!quoted.is_empty() && message_len <= 1280 - 40);
}

/// An independent reader takes the reply for what it should be, with right
/// checksums and to whoever has asked.
fn is_understood(request: &[u8], reply: &[u8]) {
    let (asked, link) = (
        Header::parse(request).expect("it was answered"),
        Header::parse(reply).expect("a reply has a header"),
    );
    assert_eq!(link.vlan, asked.vlan);
    let mut untagged = reply.to_vec();
    if link.vlan.is_some() {
        untagged.drain(12..16);
    }
    let frame = EthernetFrame::new_checked(&untagged[..]).expect("an Ethernet frame");
    let request = &request[asked.len()..];
    let checksums = ChecksumCapabilities::default();
    match frame.ethertype() {
        EthernetProtocol::Arp => {
            let packet = ArpPacket::new_checked(frame.payload()).expect("an ARP packet");
            let reply = ArpRepr::parse(&packet).expect("ARP for Ethernet and IPv4");
            let ArpRepr::EthernetIpv4 {
                operation,
                source_hardware_addr,
                source_protocol_addr,
                target_protocol_addr,
                ..
            } = reply
            else {
                panic!("sent {reply:?}");
            };
            assert_eq!(operation, ArpOperation::Reply);
            assert_eq!(source_hardware_addr.0, OWN.0.0);
            assert_eq!(source_protocol_addr, OWN.1);
            assert_eq!(target_protocol_addr.octets(), request[14..18]);
            assert_eq!(link.dst, asked.src);
        }
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(frame.payload()).expect("an IPv4 packet");
            assert!(packet.verify_checksum());
            assert_eq!(packet.src_addr(), OWN.1);
            assert_eq!(packet.dst_addr().octets(), request[12..16]);
            let icmp = Icmpv4Packet::new_checked(packet.payload()).expect("an ICMP message");
            match icmp.msg_type() {
                Icmpv4Message::EchoReply => {
                    Icmpv4Repr::parse(&icmp, &checksums).expect("an echo reply");
                }
                Icmpv4Message::DstUnreachable => {
                    assert!(icmp.verify_checksum());
                    is_quoted(icmp.data(), request, packet.payload().len());
                }
                other => panic!("sent {other}"),
            }
            assert_eq!(link.dst, asked.src);
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(frame.payload()).expect("an IPv6 packet");
            let (src, dst) = (packet.src_addr(), packet.dst_addr());
            assert_eq!(src, OWN.2);
            let icmp = Icmpv6Packet::new_checked(packet.payload()).expect("an ICMPv6 message");
            assert!(icmp.verify_checksum(&src, &dst));
            let to_asker = dst.octets() == request[8..24];
            match icmp.msg_type() {
                Icmpv6Message::EchoReply => {
                    Icmpv6Repr::parse(&src, &dst, &icmp, &checksums).expect("a reply");
                    assert!(to_asker);
                }
                Icmpv6Message::NeighborAdvert => {
                    Icmpv6Repr::parse(&src, &dst, &icmp, &checksums).expect("a reply");
                    assert!(to_asker || dst.is_multicast());
                }
                Icmpv6Message::DstUnreachable | Icmpv6Message::ParamProblem => {
                    is_quoted(&packet.payload()[8..], request, packet.payload().len());
                    assert!(to_asker);
                }
                other => panic!("sent {other}"),
            }
            assert_eq!(link.dst == asked.src, to_asker);
        }
        other @ EthernetProtocol::Unknown(_) => panic!("sent {other}"),
    }
}
