//! Tests the UDP layer with complete Ethernet frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{self, EndConfig, LinkConfig, SimPort, Sink};
use nmio::{Handler, Instant, Port};
use proptest::prelude::*;
use testkit::{Route, SERVER, SERVER_MAC, TCP, UDP, read};
use udpip::{Answer, AnswerCopies, Counters, Datagram, HEADER_LEN, Server, Service, Tail, Udp};

const PORT: u16 = 53;

/// A client: its number, its port and its IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    number: u8,
    port: u16,
    v6: bool,
}

impl Peer {
    const V4: Self = Self {
        number: 9,
        port: 40_000,
        v6: false,
    };
    const V6: Self = Self {
        v6: true,
        ..Self::V4
    };

    fn route(self) -> Route {
        let mut route = Route::to_server(self.v6, self.port, PORT);
        route.src.mac = [2, 0, 0, 0, 1, self.number];
        route.src.ip = match route.src.ip {
            IpAddr::V4(_) => Ipv4Addr::new(198, 51, 100, self.number).into(),
            IpAddr::V6(ip) => {
                Ipv6Addr::from_bits(ip.to_bits() + (u128::from(self.number) << 16)).into()
            }
        };
        route
    }

    /// Builds a frame with a datagram from this client to the server.
    fn datagram(self, payload: &[u8]) -> Vec<u8> {
        self.route().datagram(payload)
    }

    /// Checks all headers of a reply to this client, and returns its payload.
    fn payload(self, frame: &[u8]) -> Vec<u8> {
        let packet = read(frame).unwrap();
        assert_eq!(packet.route, self.route().back());
        packet.datagram().unwrap().to_vec()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyMethod {
    TurnAround,
    Copy,
    Resident,
}

const REPLY_METHODS: [ReplyMethod; 3] = [
    ReplyMethod::TurnAround,
    ReplyMethod::Copy,
    ReplyMethod::Resident,
];

/// Replaces the first byte of each request by `!`. Answers with the first `head_len` bytes of the
/// request, a tail, and a trail.
struct Answerer {
    method: ReplyMethod,
    head_len: usize,
    tail: Vec<u8>,
    trail: Vec<u8>,
    copies: AnswerCopies,
    last_datagram: Option<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl Service for Answerer {
    type Message = ();

    fn on_datagram<P: Port>(&mut self, mut datagram: Datagram<'_, P>, _now: Instant) {
        self.last_datagram = Some((
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
        let answer = Answer {
            head_len: self.head_len,
            tail: Tail::new(&self.tail),
            trail: Tail::new(&self.trail),
        };
        match self.method {
            ReplyMethod::TurnAround => datagram.turn_around(answer),
            ReplyMethod::Copy => datagram.send_copy(answer),
            ReplyMethod::Resident => datagram.send_resident(answer, &mut self.copies),
        }
    }
}

fn host() -> Host {
    Host::own(Station::new(Mac(SERVER_MAC), &SERVER), [0; 4])
}

fn answerer(method: ReplyMethod, head_len: usize, tail: &[u8], trail: &[u8]) -> Answerer {
    Answerer {
        method,
        head_len,
        tail: tail.to_vec(),
        trail: trail.to_vec(),
        copies: AnswerCopies::default(),
        last_datagram: None,
    }
}

fn server(method: ReplyMethod, head_len: usize, tail: &[u8], trail: &[u8]) -> Server<Answerer> {
    Server::new(
        host(),
        Udp::new(PORT, answerer(method, head_len, tail, trail)),
    )
}

fn sink(residents: u32) -> Sink {
    let mut sink = Sink::new(1500, 8, residents);
    sink.copy_residents(true);
    sink
}

/// Passes `frame` to the server. Returns the frame that the server sends, if any.
fn handle(server: &mut Server<Answerer>, sink: &mut Sink, frame: &[u8]) -> Option<Vec<u8>> {
    let before = sink.counters().tx_frames;
    let frame = sink.frame_from(frame);
    server.handle_frame(sink, frame, Instant::ZERO);
    (sink.counters().tx_frames > before).then(|| sink.last().to_vec())
}

fn count(server: &Server<Answerer>) -> Counters {
    *server.transports.counters()
}

proptest! {
    /// The parts have odd and even lengths, so that tail and trail start at odd and even offsets.
    #[test]
    fn every_way_to_reply_sends_the_same_bytes(
        request in prop::collection::vec(any::<u8>(), 1..60),
        max_head_len in 0usize..60,
        tail in prop::collection::vec(any::<u8>(), 0..60),
        trail in prop::collection::vec(any::<u8>(), 0..20),
        v6: bool,
    ) {
        let peer = Peer { v6, ..Peer::V4 };
        let head_len = max_head_len.min(request.len());
        let mut modified = request.clone();
        modified[0] = b'!';
        let expected = [&modified[..head_len], &tail, &trail].concat();
        for method in REPLY_METHODS {
            let (mut server, mut sink) = (server(method, head_len, &tail, &trail), sink(4));
            // With `ReplyMethod::Resident`, the second reply reuses the packet of the first.
            for _ in 0..2 {
                let reply = handle(&mut server, &mut sink, &peer.datagram(&request)).unwrap();
                prop_assert_eq!(&peer.payload(&reply), &expected, "{:?}", method);
            }
            prop_assert_eq!(count(&server).answered, 2);
        }
    }

}

#[test]
fn the_service_sees_both_addresses_and_the_payload() {
    for peer in [Peer::V4, Peer::V6] {
        let (mut server, mut sink) = (server(ReplyMethod::Copy, 0, b"", b""), sink(0));
        handle(&mut server, &mut sink, &peer.datagram(b"hello")).unwrap();
        let Route { src, dst, .. } = peer.route();
        let expected = (
            SocketAddr::new(src.ip, src.port),
            SocketAddr::new(dst.ip, dst.port),
            b"hello".to_vec(),
        );
        assert_eq!(server.transports.service().last_datagram, Some(expected));
    }
}

#[test]
fn a_head_may_be_longer_than_the_request() {
    for method in REPLY_METHODS {
        let (mut server, mut sink) = (server(method, 40, b"tail", b"end"), sink(1));
        let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"short")).unwrap();
        let payload = Peer::V4.payload(&reply);
        assert_eq!(payload.len(), 40 + 7);
        assert!(payload.starts_with(b"!hort") && payload.ends_with(b"tailend"));
    }
}

#[test]
fn extend_payload_never_shortens_the_payload() {
    struct Extending;
    impl Service for Extending {
        type Message = ();

        fn on_datagram<P: Port>(&mut self, mut datagram: Datagram<'_, P>, _now: Instant) {
            for (requested, len) in [(9, 9), (3, 9), (9, 9), (40, 40)] {
                datagram.extend_payload(requested);
                assert_eq!(datagram.payload().len(), len);
                assert!(datagram.payload().starts_with(b"hello"));
            }
        }
    }
    let (mut server, mut sink) = (Server::new(host(), Udp::new(PORT, Extending)), sink(0));
    let frame = sink.frame_from(&Peer::V4.datagram(b"hello"));
    server.handle_frame(&mut sink, frame, Instant::ZERO);
    assert_eq!(server.transports.counters().received, 1);
}

#[test]
fn residents_serve_all_peers_over_ipv4_and_ipv6() {
    let (mut server, mut sink) = (server(ReplyMethod::Resident, 2, b"answer", b""), sink(2));
    for number in 1..5 {
        for v6 in [false, true] {
            let port = 1000 + u16::from(number);
            let peer = Peer { number, port, v6 };
            let reply = handle(&mut server, &mut sink, &peer.datagram(&[1, number])).unwrap();
            assert_eq!(
                peer.payload(&reply),
                [&[b'!', number], &b"answer"[..]].concat()
            );
        }
    }
    // The sink completes each transmission immediately, so one resident packet per IP version is
    // enough.
    assert_eq!(server.transports.service().copies.packets(), 2);
    assert_eq!(count(&server).residents_exhausted, 0);
}

/// A packet of the first answer has the wrong layout for the others, so they are copied.
#[test]
fn answers_of_other_lengths_leave_the_residents_alone() {
    let (mut server, mut sink) = (server(ReplyMethod::Resident, 0, b"", b""), sink(4));
    let answers = [(2, "answer"), (4, "answer"), (2, "reply"), (2, "answer")];
    for (head_len, tail) in answers {
        let service = server.transports.service_mut();
        (service.head_len, service.tail) = (head_len, tail.into());
        let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"12345")).unwrap();
        let expected = [&b"!2345"[..head_len], tail.as_bytes()].concat();
        assert_eq!(Peer::V4.payload(&reply), expected);
        assert_eq!(server.transports.service().copies.packets(), 1);
    }
    assert_eq!(count(&server).residents_exhausted, 0);
}

/// Datagrams to another port and packets of another protocol are answered with ICMP errors that
/// quote the request.
#[test]
fn unserved_packets_are_refused() {
    let closed = Peer::V4.datagram(b"hello");
    let mut elsewhere = closed.clone();
    elsewhere[14 + 20 + 3] += 1;
    elsewhere[14 + 20 + 7] -= 1;
    let tcp = Peer::V4.route().packet(TCP, &[0; 20]);
    for (frame, code) in [(elsewhere, 3), (tcp, 2)] {
        let (mut server, mut sink) = (server(ReplyMethod::TurnAround, 0, b"tail", b""), sink(0));
        let reply = handle(&mut server, &mut sink, &frame).unwrap();
        assert_eq!(reply[14 + 20..][..2], [3, code]);
        assert_eq!(reply[14 + 20 + 8..], frame[14..]);
        assert_eq!(server.transports.counters().received, 0);
        let counters = server.host.counters();
        let refused = (counters.udp_not_served, counters.tcp_not_served);
        assert_eq!(refused, (u64::from(code == 3), u64::from(code == 2)));
    }
}

/// Lets a server answer an IPv4 datagram with a tail of `len` bytes and an empty head and trail.
/// Returns the reply, if any, and the counters.
fn answer_of(method: ReplyMethod, len: usize, sink: &mut Sink) -> (Option<Vec<u8>>, Counters) {
    let mut server = server(method, 0, &vec![7; len], b"");
    let reply = handle(&mut server, sink, &Peer::V4.datagram(b"x"));
    (reply, count(&server))
}

#[test]
fn an_answer_longer_than_the_link_allows_is_dropped_and_counted() {
    let max_tail = 1500 - 20 - HEADER_LEN;
    for method in REPLY_METHODS {
        let (reply, counters) = answer_of(method, max_tail, &mut sink(1));
        assert_eq!(
            Peer::V4.payload(&reply.unwrap()),
            vec![7; max_tail],
            "{method:?}"
        );
        assert_eq!((counters.answered, counters.too_long), (1, 0));
        let (reply, counters) = answer_of(method, max_tail + 1, &mut sink(1));
        assert_eq!(reply, None, "{method:?}");
        assert_eq!((counters.answered, counters.too_long), (0, 1));
    }
}

#[test]
fn a_head_longer_than_the_payload_is_counted_as_too_long() {
    /// Answers with a head one byte longer than the request, without extending the payload.
    struct Greedy;
    impl Service for Greedy {
        type Message = ();

        fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
            let len = datagram.payload().len() + 1;
            datagram.turn_around(Answer::head(len));
        }
    }
    let (mut server, mut sink) = (Server::new(host(), Udp::new(PORT, Greedy)), sink(0));
    let frame = sink.frame_from(&Peer::V4.datagram(b"hello"));
    server.handle_frame(&mut sink, frame, Instant::ZERO);
    let counters = server.transports.counters();
    assert_eq!((counters.answered, counters.too_long), (0, 1));
}

#[test]
fn a_copy_that_finds_no_free_frame_is_dropped_and_counted() {
    let (mut server, mut sink) = (server(ReplyMethod::Copy, 0, b"tail", b""), sink(0));
    let request = sink.frame_from(&Peer::V4.datagram(b"x"));
    let frames: Vec<_> = std::iter::from_fn(|| sink.pool().take()).collect();
    server.handle_frame(&mut sink, request, Instant::ZERO);
    assert_eq!((count(&server).answered, count(&server).ring_full), (0, 1));
    drop(frames);
}

#[test]
fn without_memory_for_a_resident_a_copy_is_sent_and_counted() {
    let (mut server, mut sink) = (server(ReplyMethod::Resident, 0, b"tail", b""), sink(0));
    for sent in 1..3 {
        let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"x")).unwrap();
        assert_eq!(Peer::V4.payload(&reply), b"tail");
        let counters = count(&server);
        assert_eq!(
            (counters.answered, counters.residents_exhausted),
            (sent, sent)
        );
    }
}

#[test]
fn the_service_sees_how_many_residents_are_left() {
    /// Answers with a resident packet. Before that, records how many more resident packets the port
    /// has memory for.
    #[derive(Default)]
    struct Recorder {
        residents_left: Vec<u32>,
        copies: AnswerCopies,
    }
    impl Service for Recorder {
        type Message = ();

        fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
            self.residents_left.push(datagram.residents_left());
            let answer = Answer::head(0).with_tail(Tail::new(b"tail"));
            datagram.send_resident(answer, &mut self.copies);
        }
    }
    let (mut server, mut sink) = (
        Server::new(host(), Udp::new(PORT, Recorder::default())),
        sink(3),
    );
    for peer in [Peer::V4, Peer::V6, Peer::V4] {
        let frame = sink.frame_from(&peer.datagram(b"x"));
        server.handle_frame(&mut sink, frame, Instant::ZERO);
    }
    assert_eq!(server.transports.service().residents_left, [3, 2, 1]);
    assert_eq!(server.transports.counters().answered, 3);
}

/// Returns each drop reason that occurred, with its count.
fn drops(server: &Server<Answerer>) -> Vec<(&'static str, u64)> {
    let drops = count(server).drops();
    drops.into_iter().filter(|(_, n)| *n > 0).collect()
}

#[test]
fn invalid_datagrams_are_dropped_and_counted_by_reason() {
    for peer in [Peer::V4, Peer::V6] {
        let udp = peer.route().header_len();
        let valid = peer.datagram(b"hello");
        let with_bytes = |at: usize, bytes: [u8; 2]| {
            let mut frame = valid.clone();
            frame[udp + at..][..2].copy_from_slice(&bytes);
            frame
        };
        let length = HEADER_LEN as u8 + 5;
        let frames = [
            (with_bytes(4, [0, length + 1]), "malformed UDP header"),
            (
                with_bytes(4, [0, HEADER_LEN as u8 - 1]),
                "malformed UDP header",
            ),
            (with_bytes(HEADER_LEN, *b"jj"), "bad UDP checksum"),
            (with_bytes(6, [0x12, 0x34]), "bad UDP checksum"),
        ];
        for (frame, reason) in frames {
            let (mut server, mut sink) = (server(ReplyMethod::Copy, 0, b"tail", b""), sink(0));
            for n in 1..3 {
                assert_eq!(handle(&mut server, &mut sink, &frame), None);
                assert_eq!(drops(&server), [(reason, n)]);
            }
            assert_eq!(count(&server).received, 0);
        }
    }
}

/// Only IPv4 allows a missing checksum (RFC 8200, section 8.1).
#[test]
fn a_datagram_without_a_checksum_is_answered_over_ipv4_only() {
    for (peer, answers) in [(Peer::V4, true), (Peer::V6, false)] {
        let (mut server, mut sink) = (server(ReplyMethod::Copy, 0, b"tail", b""), sink(0));
        let mut frame = peer.datagram(b"hello");
        frame[peer.route().header_len() + 6..][..2].fill(0);
        let reply = handle(&mut server, &mut sink, &frame);
        assert_eq!(reply.is_some(), answers, "{peer:?}");
        let expected: &[_] = if answers {
            &[]
        } else {
            &[("bad UDP checksum", 1)]
        };
        assert_eq!(drops(&server), expected);
    }
}

#[test]
fn a_server_with_only_udp_has_no_timers() {
    let server = server(ReplyMethod::Copy, 0, b"", b"");
    assert_eq!(Handler::<Sink>::poll_timeout(&server), None);
}

/// Source port 0 means that the sender expects no reply (RFC 768).
#[test]
fn source_port_0_is_dropped_and_counted() {
    for v6 in [false, true] {
        let (mut server, mut sink) = (server(ReplyMethod::TurnAround, 0, b"tail", b""), sink(0));
        for (port, answers) in [(0, false), (1, true), (u16::MAX, true)] {
            let peer = Peer {
                port,
                v6,
                ..Peer::V4
            };
            let reply = handle(&mut server, &mut sink, &peer.datagram(b"hello"));
            assert_eq!(reply.is_some(), answers, "from port {port}");
        }
        let counters = count(&server);
        assert_eq!((counters.bad_source, counters.received), (1, 2));
    }
}

/// A service that answers anything would answer our answer, and we its answer.
#[test]
fn a_datagram_from_a_port_that_answers_anything_is_dropped_and_counted() {
    for v6 in [false, true] {
        let (mut server, mut sink) = (server(ReplyMethod::TurnAround, 0, b"tail", b""), sink(0));
        let mut ask = |port| {
            let peer = Peer {
                port,
                v6,
                ..Peer::V4
            };
            handle(&mut server, &mut sink, &peer.datagram(b"hello")).is_some()
        };
        for port in [7, 13, 17, 19, 37, 464, 11_211] {
            assert!(!ask(port), "from port {port}");
        }
        for port in [9, 53, 123, 161, 389, 1023, 1024, 1900, 11_210, 11_212] {
            assert!(ask(port), "from port {port}");
        }
        assert_eq!(drops(&server), [("UDP source port of a reflector", 7)]);
        assert_eq!(count(&server).received, 10);
    }
}

/// Builds two datagrams whose checksums cover only the pseudo-header, as a peer with checksum
/// offload sends them. The second datagram's checksum is wrong.
fn partial_checksums() -> [Vec<u8>; 2] {
    let (route, mut datagram) = (Peer::V4.route(), Peer::V4.datagram(b"hello"));
    let [high, low] = route.partial_checksum(UDP, HEADER_LEN + 5);
    [low, low ^ 1].map(|low| {
        datagram[route.header_len() + 6..][..2].copy_from_slice(&[high, low]);
        datagram.clone()
    })
}

#[test]
fn a_checksum_left_to_a_device_is_accepted_if_the_host_accepts_it() {
    for (datagram, accepted) in partial_checksums().iter().zip([true, false]) {
        let answerer = answerer(ReplyMethod::TurnAround, 0, b"tail", b"");
        let mut server = Server::new(
            host().with_partial_checksums(true),
            Udp::new(PORT, answerer),
        );
        let reply = handle(&mut server, &mut sink(0), datagram);
        assert_eq!(reply.is_some(), accepted);
    }
}

#[test]
fn a_checksum_left_to_a_device_has_its_own_counter() {
    for (datagram, (partial, bad)) in partial_checksums().iter().zip([(1, 0), (0, 1)]) {
        let (mut server, mut sink) = (server(ReplyMethod::Copy, 0, b"", b""), sink(0));
        assert!(handle(&mut server, &mut sink, datagram).is_none());
        let counters = count(&server);
        assert_eq!(
            (counters.partial_checksum, counters.bad_checksum),
            (partial, bad)
        );
    }
}

/// A checksum that is computed as zero is sent as all ones, because zero means that there is no
/// checksum (RFC 768).
#[test]
fn a_checksum_of_zero_is_sent_as_all_ones() {
    let mut found = false;
    for word in 0..=u16::MAX {
        let (mut server, mut sink) = (
            server(ReplyMethod::Copy, 0, &word.to_be_bytes(), b""),
            sink(0),
        );
        let reply = handle(&mut server, &mut sink, &Peer::V4.datagram(b"")).unwrap();
        let field = &reply[14 + 20 + 6..][..2];
        assert_ne!(field, [0, 0]);
        found |= field == [0xff, 0xff];
    }
    assert!(found, "some word makes the sum zero");
}

#[test]
fn a_reply_that_finds_the_ring_full_is_dropped_and_counted() {
    let end = EndConfig {
        tx_ring: 1,
        ..EndConfig::default()
    };
    for method in REPLY_METHODS {
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
        let mut server = server(method, 0, b"tail", b"");
        for _ in 0..2 {
            let mut frame = port.pool().take().unwrap();
            let bytes = Peer::V4.datagram(b"x");
            frame.set_len(bytes.len());
            frame.copy_from_slice(&bytes);
            server.handle_frame(&mut port, frame, Instant::ZERO);
        }
        assert_eq!(count(&server).answered, 1, "{method:?}");
        assert_eq!(count(&server).ring_full, 1, "{method:?}");
        if method == ReplyMethod::Resident {
            // The first resident packet was still in flight, so a second one was created.
            assert_eq!(server.transports.service().copies.packets(), 2);
        }
    }
}
