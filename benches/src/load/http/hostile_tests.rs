//! Tests of the client against a server whose segments the test writes itself.

use eth::HEADER_LEN as LINK_LEN;
use ip::{Addresses, PROTOCOL_TCP, Path, Sum};
use nmio::sim::Sink;
use nmio::{Handler, Instant};

use super::tests::{pages, place, report, workload};
use super::{Client, Workload};
use crate::load::meter::Meter;
use crate::load::tcp::{ACK, FIN, PSH, RST, SYN};

const TCP: usize = LINK_LEN + 20;
/// Initial sequence number of the server. The sequence numbers wrap around soon.
const ISS: u32 = u32::MAX - 500;

/// The client under test, and the server's part played by the test.
struct Hand {
    sink: Sink,
    client: Client,
    now: Instant,
}

/// The segment that the client sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    port: u16,
    seq: u32,
    ack: u32,
    control: u8,
    len: u32,
}

impl Hand {
    fn new(workload: &Workload) -> Self {
        let mut meter = Meter::new(
            std::time::Duration::ZERO,
            std::time::Duration::from_hours(1),
        );
        meter.advance(Instant::ZERO);
        meter.advance(Instant::ZERO);
        let client = Client::new(&place(), workload, meter).unwrap();
        let mut hand = Self {
            sink: Sink::new(1500, 256, 0),
            client,
            now: Instant::ZERO,
        };
        hand.wait(0);
        hand
    }

    /// Advances the clock by `ms` milliseconds.
    fn wait(&mut self, ms: u64) {
        self.now = self.now + std::time::Duration::from_millis(ms);
        self.client.handle_timers(&mut self.sink, self.now);
    }

    fn sent(&self) -> Sent {
        let frame = self.sink.last();
        let be32 = |at: usize| u32::from_be_bytes(*frame[at..].first_chunk().unwrap());
        let header = u32::from(frame[TCP + 12] >> 4) * 4;
        Sent {
            port: u16::from_be_bytes([frame[TCP], frame[TCP + 1]]),
            seq: be32(TCP + 4),
            ack: be32(TCP + 8),
            control: frame[TCP + 13],
            len: frame.len() as u32 - TCP as u32 - header,
        }
    }

    /// Returns the number of frames that the client has sent.
    fn count(&self) -> u64 {
        nmio::Port::counters(&self.sink).tx_frames
    }

    fn send(&mut self, port: u16, seq: u32, ack: u32, control: u8, options: &[u8], data: &[u8]) {
        let place = place();
        let path = Path {
            link: eth::Link {
                peer: place.link.own,
                own: place.link.peer,
                vlan: None,
            },
            addresses: Addresses::V4 {
                src: place.target.0,
                dst: place.addresses[0],
            },
        };
        let mut tcp = vec![0; 20];
        tcp[..2].copy_from_slice(&80u16.to_be_bytes());
        tcp[2..4].copy_from_slice(&port.to_be_bytes());
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&ack.to_be_bytes());
        tcp[12] = ((20 + options.len()) as u8 / 4) << 4;
        tcp[13] = control;
        tcp[14..16].copy_from_slice(&65_000u16.to_be_bytes());
        tcp.extend_from_slice(options);
        tcp.extend_from_slice(data);
        let pseudo = path.addresses.pseudo_sum(PROTOCOL_TCP, tcp.len());
        let sum = pseudo.add(Sum::of(&tcp)).finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![0; TCP];
        path.write(&mut frame, PROTOCOL_TCP, tcp.len());
        frame.extend_from_slice(&tcp);
        let frame = self.sink.frame_from(&frame);
        self.client.handle_frame(&mut self.sink, frame, self.now);
    }

    /// Accepts the connection that the client opens, and returns the client's request.
    fn accept(&mut self, options: &[u8]) -> Sent {
        let syn = self.sent();
        assert_eq!(syn.control, SYN);
        let ack = syn.seq.wrapping_add(1);
        self.send(syn.port, ISS, ack, SYN | ACK, options, &[]);
        let request = self.sent();
        assert_eq!((request.control, request.seq), (PSH | ACK, ack));
        assert_eq!(request.ack, ISS.wrapping_add(1));
        request
    }

    fn errors(&self) -> Vec<(&'static str, u64)> {
        report(&self.client).errors.into_iter().collect()
    }

    fn completed(&self) -> u64 {
        report(&self.client).completed
    }
}

/// Returns the sequence number of the server's stream at `offset`.
fn at(offset: u32) -> u32 {
    ISS.wrapping_add(1).wrapping_add(offset)
}

/// Returns the body of the only page.
fn body() -> Vec<u8> {
    (0..1100u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes())
        .take(1100)
        .collect()
}

fn response() -> Vec<u8> {
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1100\r\n\r\n",
        body().as_slice(),
    ]
    .concat()
}

/// A name, the bytes that the server sends, the control bits of the last segment, and the errors
/// that the client must count.
type Case = (&'static str, Vec<u8>, u8, &'static [(&'static str, u64)]);

const SACK: &[u8] = &[4, 2, 1, 1];

#[test]
fn the_test_knows_the_page() {
    assert_eq!(pages(&[1100])[0].crc, crc32fast::hash(&body()));
}

#[test]
fn responses_and_the_errors_they_cause() {
    let head = |text: &str| format!("HTTP/1.1 {text}\r\n\r\n").into_bytes();
    let long = head("200 OK\r\nContent-Length: 1101");
    let cases: [Case; 10] = [
        ("all right", response(), 0, &[]),
        ("and closed", response(), FIN, &[]),
        ("garbage", vec![0x16; 300], 0, &[("malformed head", 1)]),
        (
            "too long",
            [&long[..], &body(), b"x"].concat(),
            0,
            &[("wrong length", 1)],
        ),
        (
            "more",
            [&response()[..], b"x"].concat(),
            0,
            &[("wrong length", 1)],
        ),
        (
            "not found",
            head("404 Not Found\r\nContent-Length: 0"),
            0,
            &[("wrong status", 1)],
        ),
        ("no length", head("200 OK"), 0, &[("malformed head", 1)]),
        (
            "cut",
            response()[..600].to_vec(),
            FIN,
            &[("closed early", 1)],
        ),
        ("nothing", Vec::new(), FIN, &[("closed early", 1)]),
        (
            "cut head",
            b"HTTP/1.1 20".to_vec(),
            FIN,
            &[("closed early", 1)],
        ),
    ];
    for (name, bytes, control, errors) in cases {
        let mut hand = Hand::new(&workload(&[1100], 1));
        let request = hand.accept(SACK);
        let ack = request.seq.wrapping_add(request.len);
        let mut seq = at(0);
        let chunks: Vec<&[u8]> = bytes.chunks(700).collect();
        for (i, chunk) in chunks.iter().enumerate() {
            let fin = if i + 1 == chunks.len() { control } else { 0 };
            hand.send(request.port, seq, ack, ACK | fin, &[], chunk);
            seq = seq.wrapping_add(chunk.len() as u32);
        }
        if chunks.is_empty() {
            hand.send(request.port, seq, ack, ACK | control, &[], &[]);
        }
        assert_eq!(hand.errors(), errors, "{name}");
        assert_eq!(hand.completed(), u64::from(errors.is_empty()), "{name}");
        // The client continues after each of these responses.
        hand.wait(60);
        let next = hand.sent();
        let continues = next.control == SYN || next.seq == ack;
        assert!(continues, "{name}: {next:?}");
    }
}

#[test]
fn a_corrupt_body_has_a_wrong_checksum() {
    let mut hand = Hand::new(&workload(&[1100], 1));
    let request = hand.accept(&[]);
    let mut bytes = response();
    *bytes.last_mut().unwrap() ^= 0x80;
    let ack = request.seq.wrapping_add(request.len);
    hand.send(request.port, at(0), ack, ACK, &[], &bytes);
    assert_eq!(hand.errors(), [("wrong checksum", 1)]);
}

#[test]
fn refused_reset_and_silent_servers() {
    let mut hand = Hand::new(&workload(&[1100], 1));
    let syn = hand.sent();
    hand.send(syn.port, 0, syn.seq, RST | ACK, &[], &[]);
    assert_eq!(hand.errors(), [], "the reset does not acknowledge this SYN");
    hand.send(syn.port, 0, syn.seq.wrapping_add(1), RST | ACK, &[], &[]);
    assert_eq!(hand.errors(), [("refused", 1)]);
    hand.wait(60);
    let again = hand.sent();
    assert_eq!(again.control, SYN);
    assert_ne!(again.port, syn.port);

    let request = hand.accept(&[]);
    hand.send(request.port, at(5), 0, RST, &[], &[]);
    assert_eq!(
        hand.errors().len(),
        1,
        "a reset elsewhere in the window gets a challenge ACK"
    );
    assert_eq!(hand.sent().control, ACK);
    hand.send(request.port, at(0), 0, RST, &[], &[]);
    assert_eq!(hand.errors(), [("refused", 1), ("reset", 1)]);

    hand.wait(60);
    let before = hand.count();
    for _ in 0..400 {
        hand.wait(100);
    }
    let errors = hand.errors();
    assert!(errors.contains(&("connect timeout", 1)), "{errors:?}");
    assert!(
        hand.count() - before < 20,
        "the retransmission interval grows"
    );
}

#[test]
fn a_request_is_retransmitted_until_it_is_acknowledged() {
    let mut hand = Hand::new(&workload(&[1100], 1));
    let request = hand.accept(&[]);
    hand.wait(199);
    assert_eq!(hand.count(), 3, "a SYN, an ACK and a request");
    for (wait, count) in [(2, 4), (399, 4), (2, 5)] {
        hand.wait(wait);
        assert_eq!(hand.count(), count);
        assert_eq!(hand.sent(), request);
    }
    let ack = request.seq.wrapping_add(request.len);
    hand.send(request.port, at(0), ack, ACK, &[], &[]);
    for _ in 0..90 {
        hand.wait(100);
    }
    assert_eq!(hand.count(), 5);
    assert_eq!(hand.errors(), []);
    for _ in 0..20 {
        hand.wait(100);
    }
    assert_eq!(hand.errors(), [("timeout", 1)], "no response arrived");
}

#[test]
fn in_order_data_gets_a_delayed_ack_and_out_of_order_data_an_immediate_one() {
    let mut hand = Hand::new(&workload(&[1100], 1));
    let request = hand.accept(SACK);
    let ack = request.seq.wrapping_add(request.len);
    let bytes = response();
    hand.send(request.port, at(0), ack, ACK, &[], &bytes[..100]);
    let count = hand.count();
    hand.wait(39);
    assert_eq!(hand.count(), count);
    hand.wait(2);
    assert_eq!(hand.sent().ack, at(100));
    // The ACK reports the hole of 100 bytes and the data behind it.
    hand.send(request.port, at(200), ack, ACK, &[], &bytes[200..300]);
    assert_eq!(hand.sent().ack, at(100));
    let option = &hand.sink.last()[TCP + 20..];
    assert_eq!(option[..4], [1, 1, 5, 10]);
    assert_eq!(option[4..8], at(200).to_be_bytes());
    assert_eq!(option[8..12], at(300).to_be_bytes());
    // The segment that fills the hole overlaps the data on both sides.
    hand.send(request.port, at(50), ack, ACK, &[], &bytes[50..250]);
    assert_eq!(hand.sent().ack, at(300));
    hand.send(request.port, at(300), ack, ACK, &[], &bytes[300..]);
    assert_eq!((hand.completed(), hand.errors()), (1, vec![]));
    assert_eq!(
        hand.sent().control,
        PSH | ACK,
        "the next request acknowledges"
    );
    assert_eq!(hand.sent().ack, at(bytes.len() as u32));
}

/// Opens a connection for one request and answers it in one segment with these control bits.
/// Returns the request, its acknowledgement number and the end of the response.
fn answer_the_only_request(control: u8) -> (Hand, Sent, u32, u32) {
    let mut workload = workload(&[1100], 1);
    workload.requests = 1;
    let mut hand = Hand::new(&workload);
    let request = hand.accept(&[]);
    let ack = request.seq.wrapping_add(request.len);
    let bytes = response();
    let end = at(bytes.len() as u32);
    hand.send(request.port, at(0), ack, control, &[], &bytes);
    (hand, request, ack, end)
}

#[test]
fn both_sides_close() {
    let (mut hand, request, ack, end) = answer_the_only_request(ACK | FIN);
    assert_eq!(hand.completed(), 1);
    let first = hand.sent();
    assert_eq!(first.control, FIN | ACK);
    // The lane opens another connection, and the client retransmits the FIN.
    hand.wait(0);
    assert_eq!(hand.sent().control, SYN);
    hand.wait(150);
    let next = hand.accept(&[]);
    assert_ne!(next.port, request.port);
    hand.wait(60);
    let fin = hand.sent();
    assert_eq!(fin, first);
    assert_eq!((fin.seq, fin.ack), (ack, end.wrapping_add(1)));
    hand.send(
        request.port,
        end.wrapping_add(1),
        ack.wrapping_add(1),
        ACK,
        &[],
        &[],
    );
    let used = |hand: &Hand| hand.client.connections.len() - hand.client.free.len();
    assert_eq!(used(&hand), 1);
    // A late FIN is acknowledged as in TIME-WAIT.
    hand.send(request.port, end, ack.wrapping_add(1), ACK | FIN, &[], &[]);
    let late = hand.sent();
    assert_eq!((late.control, late.port), (ACK, request.port));
    assert_eq!(
        (late.seq, late.ack),
        (ack.wrapping_add(1), end.wrapping_add(1))
    );
    assert_eq!(hand.errors(), []);
}

#[test]
fn the_client_closes_if_the_server_does_not() {
    let (mut hand, request, ack, end) = answer_the_only_request(ACK);
    for _ in 0..11 {
        hand.wait(100);
    }
    assert_eq!(
        hand.sent().control,
        SYN,
        "the lane opens another connection"
    );
    let fin_ack = ack.wrapping_add(1);
    hand.send(request.port, end, fin_ack, ACK, &[], &[]);
    hand.send(request.port, end, fin_ack, ACK | FIN, &[], &[]);
    let last = hand.sent();
    assert_eq!((last.control, last.seq), (ACK, fin_ack));
    assert_eq!(last.ack, end.wrapping_add(1));
    assert_eq!((hand.completed(), hand.errors()), (1, vec![]));
}

#[test]
fn random_segments_cause_no_panic_and_no_leak() {
    let pieces: [&[u8]; 6] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1100\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"ngth: 1100\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nNo!",
        &[b'x'; 1100],
        &[0; 10],
    ];
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut workload = workload(&[1100, 0], 4);
        workload.requests = rng.u32(..3);
        workload.idle = rng.u32(..3);
        let mut hand = Hand::new(&workload);
        for _ in 0..600 {
            // Most segments are almost correct, so that they reach deep into the client.
            let id = rng.usize(..hand.client.connections.len().min(12));
            let connection = &hand.client.connections[id];
            let port = match rng.u8(..20) {
                0 => rng.u16(..),
                _ => connection.port,
            };
            let near = |rng: &mut fastrand::Rng, right: u32| match rng.u8(..10) {
                0 => rng.u32(..),
                1 | 2 => right.wrapping_add(rng.u32(..2000)),
                3 => right.wrapping_sub(rng.u32(..2000)),
                _ => right,
            };
            let (seq, ack) = (
                near(&mut rng, connection.rcv_nxt),
                near(&mut rng, connection.snd_nxt),
            );
            let opening = connection.state == super::connection::State::Opening;
            let control = match rng.u8(..20) {
                0 => rng.u8(..),
                1 => RST | ACK,
                2 | 3 => ACK | FIN,
                _ if opening => SYN | ACK,
                _ => ACK,
            };
            let mut options: Vec<u8> = (0..4 * rng.usize(..3)).map(|_| rng.u8(..6)).collect();
            if opening && rng.bool() {
                options = SACK.to_vec();
            }
            let piece = pieces[rng.usize(..pieces.len())];
            let end = rng.usize(..=piece.len());
            let data = if rng.bool() { piece } else { &piece[..end] };
            hand.send(port, seq, ack, control, &options, data);
            if rng.u8(..4) == 0 {
                hand.wait(rng.u64(..120));
            }
        }
        let client = &hand.client;
        let mut free = client.free.clone();
        free.sort_unstable();
        free.dedup();
        assert_eq!(free.len(), client.free.len(), "seed {seed}: freed twice");
        let closed = (client.connections.iter())
            .filter(|c| c.state == super::connection::State::Closed)
            .count();
        assert_eq!(closed, free.len(), "seed {seed}: entries are lost");
        let used = client.connections.len() - closed;
        assert_eq!(client.slots.used(), used, "seed {seed}: ports are lost");
        client.lanes.check(&client.connections);
    }
}
