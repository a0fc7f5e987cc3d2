//! Datagrams in and out, as whole frames. What comes back is taken apart by
//! smoltcp, which shares no code with the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use eth::{Link, Mac, Station};
use ip::{Addresses, Host, PROTOCOL_UDP, Path, Sum};
use nmio::sim::{self, EndConfig, LinkConfig, SimPort, Sink};
use nmio::{Handler, Instant, Port};
use proptest::prelude::*;
use smoltcp::wire::{EthernetFrame, EthernetProtocol, Ipv4Packet, Ipv6Packet, UdpPacket};
use udpip::{AnswerCopies, Counters, Datagram, HEADER_LEN, Server, Service, Tail};

const OURS: (Mac, Ipv4Addr, Ipv6Addr) = (
    Mac([2, 0, 0, 0, 0, 1]),
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
);
const PORT: u16 = 53;

/// Who asks, and over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    number: u8,
    port: u16,
    v6: bool,
    vlan: Option<u16>,
}

impl Peer {
    const V4: Self = Self {
        number: 9,
        port: 40_000,
        v6: false,
        vlan: None,
    };
    const V6: Self = Self {
        v6: true,
        ..Self::V4
    };

    fn mac(self) -> Mac {
        Mac([2, 0, 0, 0, 1, self.number])
    }

    fn path(self) -> Path {
        let addresses = if self.v6 {
            Addresses::V6 {
                src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, u16::from(self.number)),
                dst: OURS.2,
            }
        } else {
            Addresses::V4 {
                src: Ipv4Addr::new(198, 51, 100, self.number),
                dst: OURS.1,
            }
        };
        Path {
            link: Link {
                peer: OURS.0,
                own: self.mac(),
                vlan: self.vlan,
            },
            addresses,
        }
    }

    /// A datagram to us, as a whole frame.
    fn datagram(self, payload: &[u8]) -> Vec<u8> {
        self.frame(&self.udp(PORT, payload))
    }

    /// UDP header and payload.
    fn udp(self, dst_port: u16, payload: &[u8]) -> Vec<u8> {
        let len = (HEADER_LEN + payload.len()) as u16;
        let mut udp = Vec::new();
        for word in [self.port, dst_port, len, 0] {
            udp.extend(word.to_be_bytes());
        }
        udp.extend(payload);
        self.set_checksum(&mut udp);
        udp
    }

    fn set_checksum(self, udp: &mut [u8]) {
        udp[6..8].fill(0);
        let pseudo = self.path().addresses.pseudo_sum(PROTOCOL_UDP, udp.len());
        let field = pseudo.add(Sum::of(udp)).finish_udp();
        udp[6..8].copy_from_slice(&field.to_be_bytes());
    }

    fn frame(self, udp: &[u8]) -> Vec<u8> {
        let path = self.path();
        let mut frame = vec![0; path.header_len()];
        path.write(&mut frame, PROTOCOL_UDP, udp.len());
        frame.extend(udp);
        frame
    }

    /// The payload of a reply to this peer, every header of which is checked.
    fn payload(self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if let Some(tci) = self.vlan {
            let tag: Vec<u8> = frame.drain(12..16).collect();
            assert_eq!(tag, [0x81, 0, (tci >> 8) as u8, tci as u8]);
        }
        let frame = EthernetFrame::new_checked(frame.as_slice()).unwrap();
        assert_eq!(frame.dst_addr().0, self.mac().0);
        assert_eq!(frame.src_addr().0, OURS.0.0);
        let (src, dst, udp);
        if self.v6 {
            assert_eq!(frame.ethertype(), EthernetProtocol::Ipv6);
            let ip = Ipv6Packet::new_checked(frame.payload()).unwrap();
            assert_eq!(ip.total_len(), frame.payload().len());
            (src, dst) = (IpAddr::V6(ip.src_addr()), IpAddr::V6(ip.dst_addr()));
            udp = ip.payload().to_vec();
        } else {
            assert_eq!(frame.ethertype(), EthernetProtocol::Ipv4);
            let ip = Ipv4Packet::new_checked(frame.payload()).unwrap();
            assert!(ip.verify_checksum());
            assert_eq!(usize::from(ip.total_len()), frame.payload().len());
            (src, dst) = (IpAddr::V4(ip.src_addr()), IpAddr::V4(ip.dst_addr()));
            udp = ip.payload().to_vec();
        }
        let addresses = self.path().addresses;
        assert_eq!((src, dst), (addresses.dst(), addresses.src()));
        let udp = UdpPacket::new_checked(udp.as_slice()).unwrap();
        assert!(udp.verify_checksum(&src.into(), &dst.into()));
        assert_ne!(udp.checksum(), 0);
        assert_eq!((udp.src_port(), udp.dst_port()), (PORT, self.port));
        udp.payload().to_vec()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    TurnRound,
    Copy,
    Resident,
}

const WAYS: [Way; 3] = [Way::TurnRound, Way::Copy, Way::Resident];

/// Answers with the first bytes of the request, a tail, and a trail.
struct Answerer {
    way: Way,
    head_len: usize,
    tail: Vec<u8>,
    trail: Vec<u8>,
    copies: AnswerCopies,
    seen: Option<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl Service for Answerer {
    fn on_datagram<P: Port>(&mut self, mut datagram: Datagram<'_, P>, _now: Instant) {
        self.seen = Some((
            datagram.peer(),
            datagram.local(),
            datagram.payload().to_vec(),
        ));
        if self.head_len <= datagram.max_reply() {
            datagram.extend_payload(self.head_len);
        }
        if let Some(first) = datagram.payload_mut().first_mut() {
            *first = b'!';
        }
        let (len, tail) = (self.head_len, Tail::new(&self.tail));
        match self.way {
            Way::TurnRound => datagram.turn_round(len, tail, &self.trail),
            Way::Copy => datagram.send_copy(len, tail, &self.trail),
            Way::Resident => datagram.send_resident(len, &mut self.copies, tail, &self.trail),
        };
    }
}

fn host() -> Host {
    Host::own(Station::new(OURS.0, &[OURS.1.into(), OURS.2.into()]))
}

fn answerer(way: Way, head_len: usize, tail: &[u8], trail: &[u8]) -> Answerer {
    Answerer {
        way,
        head_len,
        tail: tail.to_vec(),
        trail: trail.to_vec(),
        copies: AnswerCopies::default(),
        seen: None,
    }
}

fn server(way: Way, head_len: usize, tail: &[u8], trail: &[u8]) -> Server<Answerer> {
    Server::new(host(), PORT, answerer(way, head_len, tail, trail))
}

fn sink(residents: u32) -> Sink {
    let mut sink = Sink::new(1500, 8, residents);
    sink.copy_residents(true);
    sink
}

/// The frame that the server sends when it gets `frame`, if it does.
fn handle(server: &mut Server<Answerer>, sink: &mut Sink, frame: &[u8]) -> Option<Vec<u8>> {
    let before = sink.counters().tx_frames;
    let frame = sink.frame_from(frame);
    server.handle_frame(sink, frame, Instant::ZERO);
    (sink.counters().tx_frames > before).then(|| sink.last().to_vec())
}

fn count(server: &Server<Answerer>) -> Counters {
    *server.udp().counters()
}

proptest! {
    /// Parts of odd and even lengths, so that each starts at any offset.
    #[test]
    fn all_ways_send_the_same(
        request in prop::collection::vec(any::<u8>(), 1..60),
        head_cut in 0usize..60,
        tail in prop::collection::vec(any::<u8>(), 0..60),
        trail in prop::collection::vec(any::<u8>(), 0..20),
        v6: bool,
    ) {
        let peer = Peer { v6, ..Peer::V4 };
        let head_len = head_cut.min(request.len());
        let mut changed = request.clone();
        changed[0] = b'!';
        let expected = [&changed[..head_len], &tail, &trail].concat();
        for way in WAYS {
            let (mut server, mut sink) = (server(way, head_len, &tail, &trail), sink(4));
            // The second time a resident packet is there already.
            for _ in 0..2 {
                let reply = handle(&mut server, &mut sink, &peer.datagram(&request)).unwrap();
                prop_assert_eq!(&peer.payload(&reply), &expected, "{:?}", way);
            }
            prop_assert_eq!(count(&server).answered, 2);
        }
    }

    #[test]
    fn damaged_datagrams_are_survived(
        payload in prop::collection::vec(any::<u8>(), 0..40),
        v6: bool,
        at: prop::sample::Index,
        value: u8,
        cut: prop::sample::Index,
    ) {
        let peer = Peer { v6, ..Peer::V4 };
        let mut udp = peer.udp(PORT, &payload);
        let at = at.index(udp.len());
        udp[at] = value;
        udp.truncate(cut.index(udp.len() + 1));
        let (mut server, mut sink) = (server(Way::TurnRound, 0, b"tail", &[]), sink(0));
        handle(&mut server, &mut sink, &peer.frame(&udp));
        let c = count(&server);
        let fates = c.received + c.malformed + c.bad_checksum + c.no_service + c.bad_source;
        prop_assert_eq!(fates, 1, "{:?}", c);
    }
}

#[test]
fn the_service_sees_who_asks_whom() {
    for peer in [Peer::V4, Peer::V6] {
        let (mut server, mut sink) = (server(Way::Copy, 0, b"", b""), sink(0));
        handle(&mut server, &mut sink, &peer.datagram(b"hello")).unwrap();
        let addresses = peer.path().addresses;
        let expected = (
            SocketAddr::new(addresses.src(), peer.port),
            SocketAddr::new(addresses.dst(), PORT),
            b"hello".to_vec(),
        );
        assert_eq!(server.service().seen, Some(expected));
    }
}

#[test]
fn a_head_may_be_longer_than_the_request() {
    for way in WAYS {
        let (mut server, mut sink) = (server(way, 40, b"tail", b"end"), sink(1));
        let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"short")).unwrap();
        let payload = Peer::V4.payload(&reply);
        assert_eq!(payload.len(), 40 + 7);
        assert!(payload.starts_with(b"!hort") && payload.ends_with(b"tailend"));
    }
}

#[test]
fn residents_serve_all_peers_and_both_families() {
    let (mut server, mut sink) = (server(Way::Resident, 2, b"answer", b""), sink(2));
    for number in 1..5 {
        for v6 in [false, true] {
            let port = 1000 + u16::from(number);
            let peer = Peer {
                number,
                port,
                v6,
                vlan: None,
            };
            let reply = handle(&mut server, &mut sink, &peer.datagram(&[1, number])).unwrap();
            assert_eq!(
                peer.payload(&reply),
                [&[b'!', number], &b"answer"[..]].concat()
            );
        }
    }
    // Complete at once: one of each family was enough.
    assert_eq!(server.service().copies.packets(), 2);
    assert_eq!(count(&server).residents_exhausted, 0);
}

#[test]
fn a_trail_may_differ_from_reply_to_reply() {
    let (mut server, mut sink) = (server(Way::Resident, 1, b"odd", b""), sink(1));
    let first = handle(&mut server, &mut sink, &Peer::V4.datagram(b"x")).unwrap();
    assert_eq!(Peer::V4.payload(&first), b"!odd");
    server.service_mut().trail = b"trail!".to_vec();
    let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"x")).unwrap();
    assert_eq!(Peer::V4.payload(&reply), b"!oddtrail!");
    assert_eq!(server.service().copies.packets(), 1);
}

#[test]
fn without_memory_for_residents_a_copy_is_sent() {
    let (mut server, mut sink) = (server(Way::Resident, 1, b"tail", b""), sink(0));
    let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"x")).unwrap();
    assert_eq!(Peer::V4.payload(&reply), b"!tail");
    assert_eq!(count(&server).residents_exhausted, 1);
    assert_eq!(count(&server).answered, 1);
}

#[test]
fn tagged_links_are_answered_with_their_tag() {
    let peer = Peer {
        vlan: Some(0x6123),
        ..Peer::V4
    };
    for way in WAYS {
        let (mut server, mut sink) = (server(way, 3, b"tail", b""), sink(4));
        let reply = handle(&mut server, &mut sink, &peer.datagram(b"abc")).unwrap();
        assert_eq!(peer.payload(&reply), b"!bctail");
        assert_eq!(
            server.service().copies.packets(),
            0,
            "no resident has a tag"
        );
    }
}

#[test]
fn the_largest_reply_is_what_the_link_takes() {
    for (peer, header) in [(Peer::V4, 20), (Peer::V6, 40)] {
        let most = 1500 - header - HEADER_LEN;
        for way in WAYS {
            for (len, fits) in [(most, true), (most + 1, false)] {
                let tail = vec![7; len - 1];
                let (mut server, mut sink) = (server(way, 1, &tail, b""), sink(1));
                let reply = handle(&mut server, &mut sink, &peer.datagram(b"x"));
                assert_eq!(reply.is_some(), fits, "{way:?}: {len} bytes");
                assert_eq!(count(&server).too_long, u64::from(!fits));
                if let Some(reply) = reply {
                    assert_eq!(peer.payload(&reply).len(), len);
                }
            }
        }
    }
}

/// One change to a good datagram, and the counter that must count it.
#[test]
fn drops_are_counted_by_reason() {
    type Case = (&'static str, bool, fn(&mut Vec<u8>), fn(&Counters) -> u64);
    let cases: [Case; 9] = [
        ("cut header", false, |u| u.truncate(7), |c| c.malformed),
        (
            "length below a header",
            false,
            |u| u[5] = 7,
            |c| c.malformed,
        ),
        (
            "length beyond the packet",
            false,
            |u| u[4] = 1,
            |c| c.malformed,
        ),
        ("payload", false, |u| u[9] ^= 1, |c| c.bad_checksum),
        ("checksum", true, |u| u[6] ^= 1, |c| c.bad_checksum),
        ("no checksum", false, |u| u[6..8].fill(0), |c| c.received),
        ("no checksum", true, |u| u[6..8].fill(0), |c| c.bad_checksum),
        (
            "other port",
            false,
            |u| {
                u[3] = 54;
                Peer::V4.set_checksum(u);
            },
            |c| c.no_service,
        ),
        (
            "source port 0",
            true,
            |u| {
                u[..2].fill(0);
                Peer::V6.set_checksum(u);
            },
            |c| c.bad_source,
        ),
    ];
    for (what, v6, change, counter) in cases {
        let peer = Peer { v6, ..Peer::V4 };
        let mut udp = peer.udp(PORT, b"payload");
        change(&mut udp);
        let (mut server, mut sink) = (server(Way::TurnRound, 0, b"", b""), sink(0));
        let reply = handle(&mut server, &mut sink, &peer.frame(&udp));
        let counters = count(&server);
        assert_eq!(counter(&counters), 1, "{what}: {counters:?}");
        assert_eq!(reply.is_some(), counters.received == 1, "{what}");
        let dropped: u64 = counters.drops().iter().map(|(_, count)| count).sum();
        assert_eq!(dropped + counters.answered, 1, "{what}: {counters:?}");
    }
}

#[test]
fn what_is_behind_the_datagram_is_cut_off() {
    let mut udp = Peer::V4.udp(PORT, b"payload");
    udp.extend(b"behind it");
    let (mut server, mut sink) = (server(Way::TurnRound, 0, b"", b""), sink(0));
    handle(&mut server, &mut sink, &Peer::V4.frame(&udp)).unwrap();
    let (_, _, payload) = server.service().seen.clone().unwrap();
    assert_eq!(payload, b"payload");
}

#[test]
fn a_partial_checksum_is_right_only_where_it_is_allowed() {
    for peer in [Peer::V4, Peer::V6] {
        let mut udp = peer.udp(PORT, b"payload");
        let pseudo = peer.path().addresses.pseudo_sum(PROTOCOL_UDP, udp.len());
        udp[6..8].copy_from_slice(&pseudo.fold().to_be_bytes());
        for allowed in [false, true] {
            let answerer = answerer(Way::TurnRound, 0, b"", b"");
            let mut server = Server::new(host().with_partial_checksums(allowed), PORT, answerer);
            let reply = handle(&mut server, &mut sink(0), &peer.frame(&udp));
            assert_eq!(reply.is_some(), allowed);
        }
    }
}

/// A checksum that comes out as zero is sent as all ones (RFC 768).
#[test]
fn zero_is_no_checksum() {
    let mut found = false;
    for word in 0..=u16::MAX {
        let (mut server, mut sink) = (server(Way::Copy, 0, &word.to_be_bytes(), b""), sink(0));
        let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"")).unwrap();
        let field = &reply[14 + 20 + 6..][..2];
        assert_ne!(field, [0, 0]);
        found |= field == [0xff, 0xff];
    }
    assert!(found, "some word makes the sum zero");
}

#[test]
fn a_full_ring_drops_the_reply_and_is_counted() {
    let end = EndConfig {
        tx_ring: 1,
        ..EndConfig::default()
    };
    for way in WAYS {
        let slow = sim::PathConfig {
            delay: Duration::from_millis(1),
            ..sim::PathConfig::default()
        };
        let config = LinkConfig {
            a: end,
            b: end,
            ..LinkConfig::symmetric(slow)
        };
        let (mut port, _client, _clock): (SimPort, SimPort, _) = sim::link(&config, 1);
        let mut server = server(way, 0, b"tail", b"");
        for _ in 0..2 {
            let mut frame = port.pool().take().unwrap();
            let bytes = Peer::V4.datagram(b"x");
            frame.set_len(bytes.len());
            frame.copy_from_slice(&bytes);
            server.handle_frame(&mut port, frame, Instant::ZERO);
        }
        assert_eq!(count(&server).answered, 1, "{way:?}");
        assert_eq!(count(&server).ring_full, 1, "{way:?}");
        if way == Way::Resident {
            // The first copy is in flight, so that a second was made.
            assert_eq!(server.service().copies.packets(), 2);
        }
    }
}
