//! Whole packets in and out: the three ways give the same answer, and what is
//! wrong is counted by its reason.

use std::net::{Ipv4Addr, Ipv6Addr};

use eth::{Link, Mac, Station};
use ip::{Addresses, PROTOCOL_UDP, Path};
use nmio::sim::Sink;
use proptest::prelude::*;

use super::*;
use crate::{AnswerCopies, Tail};

const OURS: (Mac, Ipv4Addr, Ipv6Addr) = (
    Mac([2, 0, 0, 0, 0, 1]),
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
);
const PEER: (Mac, Ipv4Addr, Ipv6Addr) = (
    Mac([2, 0, 0, 0, 0, 9]),
    Ipv4Addr::new(198, 51, 100, 9),
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9),
);
const OUR_PORT: u16 = 53;
const PEER_PORT: u16 = 40_000;
const MTU: usize = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    TurnRound,
    Copy,
    Resident,
}

/// Answers with the first bytes of the request, a tail and a trail.
struct Prepared {
    way: Way,
    head_len: usize,
    tail: Vec<u8>,
    trail: Vec<u8>,
    copies: AnswerCopies,
}

impl Service for Prepared {
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        assert_eq!(datagram.local().port(), OUR_PORT);
        assert_eq!(datagram.peer().port(), PEER_PORT);
        let (tail, trail) = (Tail::new(&self.tail), &self.trail);
        let _ = match self.way {
            Way::TurnRound => datagram.turn_round(self.head_len, tail, trail),
            Way::Copy => datagram.send_copy(self.head_len, tail, trail),
            Way::Resident => datagram.send_resident(self.head_len, &mut self.copies, tail, trail),
        };
    }
}

/// A server and the port that it is on.
struct Rig {
    sink: Sink,
    server: Server<Prepared>,
}

impl Rig {
    fn new(way: Way, head_len: usize, tail: &[u8], trail: &[u8]) -> Self {
        Self::with(way, head_len, tail, trail, 4, false)
    }

    fn with(
        way: Way,
        head_len: usize,
        tail: &[u8],
        trail: &[u8],
        residents: u32,
        partial: bool,
    ) -> Self {
        let mut sink = Sink::new(MTU, 4, residents);
        sink.copy_residents(true);
        let station = Station::new(OURS.0, &[OURS.1.into(), OURS.2.into()]);
        let host = Host::own(station).with_partial_checksums(partial);
        let service = Prepared {
            way,
            head_len,
            tail: tail.to_vec(),
            trail: trail.to_vec(),
            copies: AnswerCopies::default(),
        };
        Self {
            sink,
            server: Server::new(host, OUR_PORT, service),
        }
    }

    /// What is sent in answer to `packet`; empty when nothing is.
    fn ask(&mut self, packet: &[u8]) -> Vec<u8> {
        let before = self.sink.counters().tx_frames;
        let frame = self.sink.frame_from(packet);
        self.server
            .handle_frame(&mut self.sink, frame, Instant::ZERO);
        if self.sink.counters().tx_frames == before {
            return Vec::new();
        }
        self.sink.last().to_vec()
    }

    fn counters(&self) -> &Counters {
        self.server.udp().counters()
    }
}

/// From the peer to us.
fn to_us(v6: bool, vlan: Option<u16>) -> Path {
    Path {
        link: Link {
            peer: OURS.0,
            own: PEER.0,
            vlan,
        },
        addresses: if v6 {
            Addresses::V6 {
                src: PEER.2,
                dst: OURS.2,
            }
        } else {
            Addresses::V4 {
                src: PEER.1,
                dst: OURS.1,
            }
        },
    }
}

fn back(path: Path) -> Path {
    Path {
        link: Link {
            peer: path.link.own,
            own: path.link.peer,
            vlan: path.link.vlan,
        },
        addresses: path.addresses.reversed(),
    }
}

/// A whole datagram, its checksum reckoned in the plainest way.
fn datagram(path: Path, (src, dst): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut udp = vec![0; 8];
    let len = (8 + payload.len()) as u16;
    for (at, field) in [(0, src), (2, dst), (4, len)] {
        udp[at..at + 2].copy_from_slice(&field.to_be_bytes());
    }
    udp.extend_from_slice(payload);
    let pseudo = path.addresses.pseudo_sum(PROTOCOL_UDP, udp.len());
    let field = pseudo.add(ip::Sum::of(&udp)).finish_udp();
    udp[6..8].copy_from_slice(&field.to_be_bytes());
    let mut packet = vec![0; path.header_len()];
    path.write(&mut packet, PROTOCOL_UDP, udp.len());
    packet.extend_from_slice(&udp);
    packet
}

fn request(path: Path, payload: &[u8]) -> Vec<u8> {
    datagram(path, (PEER_PORT, OUR_PORT), payload)
}

fn bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), len)
}

proptest! {
    /// Byte for byte what a stack would send that reckons everything anew;
    /// again and again, and with trails of other lengths.
    #[test]
    fn each_way_gives_the_same_answer(
        v6: bool,
        vlan in prop::option::of(1u16..4095),
        payload in bytes(0..100),
        head in any::<prop::sample::Index>(),
        tail in bytes(0..200),
        trails in prop::collection::vec(bytes(0..20), 1..4),
    ) {
        let path = to_us(v6, vlan);
        let head_len = head.index(payload.len() + 1);
        for way in [Way::TurnRound, Way::Copy, Way::Resident] {
            let mut rig = Rig::new(way, head_len, &tail, &[]);
            for trail in &trails {
                rig.server.service.trail.clone_from(trail);
                let answer = [&payload[..head_len], &tail, trail].concat();
                let expected = datagram(back(path), (OUR_PORT, PEER_PORT), &answer);
                prop_assert_eq!(rig.ask(&request(path, &payload)), expected, "{:?}", way);
            }
            let residents = usize::from(way == Way::Resident && vlan.is_none());
            prop_assert_eq!(rig.server.service().copies.packets(), residents);
            prop_assert_eq!(rig.counters().answered, trails.len() as u64);
        }
    }

    /// One byte's damage is seen, wherever it is; but a checksum of 0 means
    /// that there is none, over IPv4.
    #[test]
    fn a_damaged_datagram_is_not_answered(
        v6: bool,
        way in prop::sample::select(vec![Way::TurnRound, Way::Copy, Way::Resident]),
        payload in bytes(4..60),
        at: prop::sample::Index,
        change in 1u8..,
        partial: bool,
    ) {
        let path = to_us(v6, None);
        let mut packet = request(path, &payload);
        let udp = path.header_len();
        let at = udp + at.index(packet.len() - udp);
        packet[at] ^= change;
        let field = u16::from_be_bytes([packet[udp + 6], packet[udp + 7]]);
        let pseudo = path.addresses.pseudo_sum(PROTOCOL_UDP, packet.len() - udp).fold();
        prop_assume!(v6 || field != 0);
        prop_assume!(!partial || field != pseudo);
        let mut rig = Rig::with(way, 4, b"tail", b"", 1, partial);
        prop_assert_eq!(rig.ask(&packet), Vec::<u8>::new());
        let counters = rig.counters();
        prop_assert_eq!(counters.malformed + counters.bad_checksum, 1);
    }

    #[test]
    fn any_bytes_are_survived(v6: bool, udp in bytes(0..60), partial: bool) {
        let path = to_us(v6, None);
        let mut packet = vec![0; path.header_len()];
        path.write(&mut packet, PROTOCOL_UDP, udp.len());
        packet.extend_from_slice(&udp);
        let mut rig = Rig::with(Way::TurnRound, 1, b"tail", b"", 1, partial);
        rig.ask(&packet);
        let counters = rig.counters();
        prop_assert_eq!(counters.drops().iter().map(|(_, n)| n).sum::<u64>() + counters.answered, 1);
    }
}

#[test]
fn what_is_wrong_is_counted_by_its_reason() {
    type Case = (&'static str, bool, fn(&mut Vec<u8>), fn(&Counters) -> u64);
    // The UDP header's place in IPv4 and IPv6.
    const V4: usize = 34;
    const V6: usize = 54;
    let cases: [Case; 7] = [
        (
            "length beyond the packet",
            false,
            |p| p[V4 + 5] = 200,
            |c| c.malformed,
        ),
        (
            "length below a header",
            false,
            |p| p[V4 + 5] = 7,
            |c| c.malformed,
        ),
        ("payload", false, |p| p[V4 + 8] ^= 1, |c| c.bad_checksum),
        (
            "none over IPv6",
            true,
            |p| p[V6 + 6..V6 + 8].fill(0),
            |c| c.bad_checksum,
        ),
        (
            "another port",
            false,
            |p| {
                *p = datagram(to_us(false, None), (PEER_PORT, 54), b"x");
            },
            |c| c.no_service,
        ),
        (
            "source port 0",
            false,
            |p| {
                *p = datagram(to_us(false, None), (0, OUR_PORT), b"x");
            },
            |c| c.bad_source,
        ),
        (
            "a cut header",
            false,
            |p| {
                *p = request(to_us(false, None), b"");
                p.truncate(V4 + 7);
                // Let IP believe it.
                let path = to_us(false, None);
                path.write(p, PROTOCOL_UDP, 7);
            },
            |c| c.malformed,
        ),
    ];
    for (name, v6, change, counter) in cases {
        let mut rig = Rig::new(Way::TurnRound, 1, b"", b"");
        let mut packet = request(to_us(v6, None), b"question");
        change(&mut packet);
        assert!(rig.ask(&packet).is_empty(), "{name}");
        assert_eq!(counter(rig.counters()), 1, "{name}: {:?}", rig.counters());
    }
}

#[test]
fn no_checksum_is_right_over_ipv4() {
    let mut rig = Rig::new(Way::TurnRound, 1, b"", b"");
    let mut packet = request(to_us(false, None), b"question");
    packet[40..42].fill(0);
    assert!(!rig.ask(&packet).is_empty());
}

#[test]
fn a_checksum_of_the_pseudo_header_alone_is_right_where_that_was_asked_for() {
    for (v6, at) in [(false, 40), (true, 60)] {
        let path = to_us(v6, None);
        let mut packet = request(path, b"question");
        let pseudo = path.addresses.pseudo_sum(PROTOCOL_UDP, 16).fold();
        packet[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        for partial in [false, true] {
            let mut rig = Rig::with(Way::TurnRound, 8, b"", b"", 0, partial);
            assert_eq!(!rig.ask(&packet).is_empty(), partial);
            assert_eq!(rig.counters().bad_checksum, u64::from(!partial));
        }
    }
}

#[test]
fn what_lies_behind_the_datagram_is_cut_off() {
    let mut rig = Rig::new(Way::TurnRound, 8, b"", b"");
    let path = to_us(false, None);
    let mut packet = request(path, b"question and more");
    // Inside the IP packet, behind the end that UDP tells.
    let whole = request(path, b"question");
    packet[34..whole.len()].copy_from_slice(&whole[34..]);
    let expected = datagram(back(path), (OUR_PORT, PEER_PORT), b"question");
    assert_eq!(rig.ask(&packet), expected);
}

#[test]
fn an_answer_fills_the_link_and_no_more() {
    for (v6, headers) in [(false, 28), (true, 48)] {
        for way in [Way::TurnRound, Way::Copy, Way::Resident] {
            let tail = vec![7; MTU - headers - 3];
            let mut rig = Rig::new(way, 3, &tail, b"");
            assert_eq!(rig.ask(&request(to_us(v6, None), b"abc")).len(), 14 + MTU);
            rig.server.service.trail = vec![0];
            assert!(rig.ask(&request(to_us(v6, None), b"abc")).is_empty());
            assert_eq!(rig.counters().too_long, 1, "{way:?}");
        }
    }
}

#[test]
fn without_memory_for_residents_a_copy_is_sent() {
    let mut rig = Rig::with(Way::Resident, 1, b"tail", b"", 0, false);
    let path = to_us(false, None);
    let expected = datagram(back(path), (OUR_PORT, PEER_PORT), b"qtail");
    assert_eq!(rig.ask(&request(path, b"question")), expected);
    assert_eq!(rig.counters().residents_exhausted, 1);
    assert_eq!(rig.counters().answered, 1);
}
