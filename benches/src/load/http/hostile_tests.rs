//! Tests of the client without a server. The tests write the server's segments themselves.

use std::time::Duration;

use nmio::sim::Sink;
use nmio::{Handler, Instant};
use testkit::{ACK, FIN, Layout, Opt, PSH, RST, Received, Route, SYN, Segment, read_segment};

use super::tests::{body, sample, workload};
use super::{Client, Workload};
use crate::load::link::{Generator, Place};
use crate::load::meter::Meter;

/// Initial sequence number of the server. It is so high that the sequence numbers soon wrap around.
const ISS: u32 = u32::MAX - 500;
const SACK: Opt = Opt::SackPermitted;

/// The client under test. The test plays the part of the server by hand.
struct Harness {
    sink: Sink,
    client: Client,
    now: Instant,
}

/// The segment that the client sent last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentSegment {
    port: u16,
    seq: u32,
    ack: u32,
    bits: u16,
    /// Sequence number after the end of the segment.
    end: u32,
    sack: Vec<(u32, u32)>,
}

impl Harness {
    fn new(workload: &Workload) -> Self {
        let mut meter = Meter::new(Duration::ZERO, Duration::from_hours(1));
        meter.advance(Instant::ZERO);
        meter.advance(Instant::ZERO);
        let mut harness = Self {
            sink: Sink::new(1500, 256, 0),
            client: Client::new(&Place::of_tests(), workload, meter).unwrap(),
            now: Instant::ZERO,
        };
        harness.wait(0);
        harness
    }

    /// Advances the clock by `ms` milliseconds and handles the expired timers.
    fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.client.handle_timers(&mut self.sink, self.now);
    }

    /// Advances the clock by `times` steps of 100 ms, and handles the expired timers at each step.
    fn wait_long(&mut self, times: usize) {
        (0..times).for_each(|_| self.wait(100));
    }

    fn sent(&self) -> SentSegment {
        let Received { route, segment, .. } = read_segment(self.sink.last()).unwrap();
        SentSegment {
            port: route.src.port,
            seq: segment.seq,
            ack: segment.ack,
            bits: segment.bits,
            end: segment.seq.wrapping_add(segment.len()),
            sack: segment.sack(),
        }
    }

    /// Returns the number of frames that the client has sent.
    fn count(&self) -> u64 {
        nmio::Port::counters(&self.sink).tx_frames
    }

    fn send(
        &mut self,
        port: u16,
        (seq, ack): (u32, u32),
        bits: u16,
        options: Vec<Opt>,
        data: &[u8],
    ) {
        let segment = Segment {
            bits,
            seq,
            ack,
            window: 65_000,
            options,
            data: data.to_vec(),
            ..Segment::default()
        };
        let route = Route::to_server(false, port, 80).back();
        let frame = route.segment(&segment, Layout::Dense);
        let frame = self.sink.frame_from(&frame);
        self.client.handle_frame(&mut self.sink, frame, self.now);
    }

    /// Acknowledges a request, and sends the data at `offset` of the server's stream.
    fn reply(&mut self, request: &SentSegment, offset: u32, bits: u16, data: &[u8]) {
        self.send(
            request.port,
            (at(offset), request.end),
            bits,
            Vec::new(),
            data,
        );
    }

    /// Accepts the connection that the client opens, and returns the client's request.
    fn accept(&mut self, options: &[Opt]) -> SentSegment {
        let syn = self.sent();
        assert_eq!(syn.bits, SYN);
        let ack = syn.seq.wrapping_add(1);
        self.send(syn.port, (ISS, ack), SYN | ACK, options.to_vec(), &[]);
        let request = self.sent();
        assert_eq!((request.bits, request.seq), (PSH | ACK, ack));
        assert_eq!(request.ack, at(0));
        request
    }

    fn errors(&self) -> Vec<(&'static str, u64)> {
        self.client.report().errors.into_iter().collect()
    }

    fn completed(&self) -> u64 {
        self.client.report().completed
    }
}

/// Returns the sequence number of the byte at `offset` of the server's stream.
fn at(offset: u32) -> u32 {
    ISS.wrapping_add(1).wrapping_add(offset)
}

fn response() -> Vec<u8> {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1100\r\n\r\n";
    [head, body(1100).as_slice()].concat()
}

#[test]
fn each_bad_response_is_counted_as_its_kind_of_error() {
    let head = |text: &str| format!("HTTP/1.1 {text}\r\n\r\n").into_bytes();
    let long = head("200 OK\r\nContent-Length: 1101");
    let mut corrupt = response();
    *corrupt.last_mut().unwrap() ^= 0x80;
    // Each case holds the bytes that the server sends, and the additional control bit of its last
    // segment. The last column is the error that the client must count, if any.
    let cases = [
        (response(), 0, ""),
        (response(), FIN, ""),
        (corrupt, 0, "wrong checksum"),
        (vec![0x16; 300], 0, "malformed head"),
        ([&long[..], &body(1100), b"x"].concat(), 0, "wrong length"),
        ([&response()[..], b"x"].concat(), 0, "wrong length"),
        (
            head("404 Not Found\r\nContent-Length: 0"),
            0,
            "wrong status",
        ),
        (head("200 OK"), 0, "malformed head"),
        (response()[..600].to_vec(), FIN, "closed early"),
        (Vec::new(), FIN, "closed early"),
        (b"HTTP/1.1 20".to_vec(), FIN, "closed early"),
    ];
    for (number, (bytes, fin, error)) in cases.into_iter().enumerate() {
        let mut harness = Harness::new(&workload(&[1100], 1));
        let request = harness.accept(&[SACK]);
        let (first, last) = bytes.split_at(bytes.len().min(700));
        if last.is_empty() {
            harness.reply(&request, 0, ACK | fin, first);
        } else {
            harness.reply(&request, 0, ACK, first);
            harness.reply(&request, first.len() as u32, ACK | fin, last);
        }
        let expected: Vec<_> = (!error.is_empty())
            .then_some((error, 1))
            .into_iter()
            .collect();
        assert_eq!(harness.errors(), expected, "case {number}");
        assert_eq!(
            harness.completed(),
            u64::from(error.is_empty()),
            "case {number}"
        );
        // The client continues after each of these responses.
        harness.wait(60);
        let next = harness.sent();
        let continues = next.bits == SYN || next.seq == request.end;
        assert!(continues, "case {number}: {next:?}");
    }
}

#[test]
fn refused_reset_and_silent_connections_are_counted_as_errors() {
    let mut harness = Harness::new(&workload(&[1100], 1));
    let syn = harness.sent();
    harness.send(syn.port, (0, syn.seq), RST | ACK, Vec::new(), &[]);
    assert_eq!(
        harness.errors(),
        [],
        "the reset does not acknowledge this SYN"
    );
    harness.send(
        syn.port,
        (0, syn.seq.wrapping_add(1)),
        RST | ACK,
        Vec::new(),
        &[],
    );
    assert_eq!(harness.errors(), [("refused", 1)]);
    harness.wait(60);
    let again = harness.sent();
    assert_eq!(again.bits, SYN);
    assert_ne!(again.port, syn.port);

    let request = harness.accept(&[]);
    harness.reply(&request, 5, RST, &[]);
    let errors = harness.errors().len();
    assert_eq!(
        errors, 1,
        "a reset elsewhere in the window gets a challenge ACK"
    );
    assert_eq!(harness.sent().bits, ACK);
    harness.reply(&request, 0, RST, &[]);
    assert_eq!(harness.errors(), [("refused", 1), ("reset", 1)]);

    harness.wait(60);
    let before = harness.count();
    harness.wait_long(400);
    let errors = harness.errors();
    assert!(errors.contains(&("connect timeout", 1)), "{errors:?}");
    assert!(
        harness.count() - before < 20,
        "the retransmission interval grows"
    );
}

#[test]
fn a_request_is_retransmitted_until_it_is_acknowledged() {
    let mut harness = Harness::new(&workload(&[1100], 1));
    let request = harness.accept(&[]);
    harness.wait(199);
    assert_eq!(harness.count(), 3, "a SYN, an ACK and a request");
    for (wait, count) in [(2, 4), (399, 4), (2, 5)] {
        harness.wait(wait);
        assert_eq!((harness.count(), harness.sent()), (count, request.clone()));
    }
    harness.reply(&request, 0, ACK, &[]);
    harness.wait_long(90);
    assert_eq!((harness.count(), harness.errors()), (5, vec![]));
    harness.wait_long(20);
    assert_eq!(harness.errors(), [("timeout", 1)], "no response arrived");
}

#[test]
fn in_order_data_gets_a_delayed_ack_and_out_of_order_data_an_immediate_one() {
    let mut harness = Harness::new(&workload(&[1100], 1));
    let request = harness.accept(&[SACK]);
    let bytes = response();
    harness.reply(&request, 0, ACK, &bytes[..100]);
    let count = harness.count();
    harness.wait(39);
    assert_eq!(harness.count(), count);
    harness.wait(2);
    assert_eq!(harness.sent().ack, at(100));
    // The ACK reports the hole of 100 bytes and the data after the hole.
    harness.reply(&request, 200, ACK, &bytes[200..300]);
    let sent = harness.sent();
    assert_eq!((sent.ack, sent.sack), (at(100), vec![(at(200), at(300))]));
    // The segment that fills the hole overlaps the data on both sides.
    harness.reply(&request, 50, ACK, &bytes[50..250]);
    assert_eq!(harness.sent().ack, at(300));
    harness.reply(&request, 300, ACK, &bytes[300..]);
    assert_eq!((harness.completed(), harness.errors()), (1, vec![]));
    assert_eq!(
        harness.sent().bits,
        PSH | ACK,
        "the next request carries the ACK"
    );
    assert_eq!(harness.sent().ack, at(bytes.len() as u32));
}

/// Opens a connection for one request. Answers the request in one segment whose control bits are
/// `bits`. Returns the client under test, the request, and the length of the response.
fn answer_the_only_request(bits: u16) -> (Harness, SentSegment, u32) {
    let mut workload = workload(&[1100], 1);
    workload.requests = 1;
    let mut harness = Harness::new(&workload);
    let request = harness.accept(&[]);
    harness.reply(&request, 0, bits, &response());
    assert_eq!(harness.completed(), 1);
    (harness, request, response().len() as u32)
}

#[test]
fn the_client_closes_after_the_server_closes() {
    let (mut harness, mut request, len) = answer_the_only_request(ACK | FIN);
    let first = harness.sent();
    assert_eq!(first.bits, FIN | ACK);
    // The lane opens another connection, and the client retransmits the FIN.
    harness.wait(0);
    assert_eq!(harness.sent().bits, SYN);
    harness.wait(150);
    let next = harness.accept(&[]);
    assert_ne!(next.port, request.port);
    harness.wait(60);
    let fin = harness.sent();
    assert_eq!(fin, first);
    assert_eq!((fin.seq, fin.ack), (request.end, at(len + 1)));
    request.end = request.end.wrapping_add(1);
    harness.reply(&request, len + 1, ACK, &[]);
    let used = harness.client.connections.len() - harness.client.free.len();
    assert_eq!(used, 1);
    // A late FIN is acknowledged as in TIME-WAIT.
    harness.reply(&request, len, ACK | FIN, &[]);
    let late = harness.sent();
    assert_eq!((late.bits, late.port), (ACK, request.port));
    assert_eq!((late.seq, late.ack), (request.end, at(len + 1)));
    assert_eq!(harness.errors(), []);
}

#[test]
fn the_client_closes_if_the_server_does_not() {
    let (mut harness, mut request, len) = answer_the_only_request(ACK);
    harness.wait_long(11);
    assert_eq!(
        harness.sent().bits,
        SYN,
        "the lane opens another connection"
    );
    request.end = request.end.wrapping_add(1);
    harness.reply(&request, len, ACK, &[]);
    harness.reply(&request, len, ACK | FIN, &[]);
    let last = harness.sent();
    assert_eq!((last.bits, last.seq), (ACK, request.end));
    assert_eq!(last.ack, at(len + 1));
    assert_eq!((harness.completed(), harness.errors()), (1, vec![]));
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
    for seed in 0..sample(300, 100) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut workload = workload(&[1100, 0], 4);
        workload.requests = rng.u32(..3);
        workload.idle = rng.u32(..3);
        let mut harness = Harness::new(&workload);
        for _ in 0..600 {
            // Most segments are almost correct, so that they pass the client's first checks.
            let id = rng.usize(..harness.client.connections.len().min(12));
            let connection = &harness.client.connections[id];
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
                0 => rng.u8(..).into(),
                1 => RST | ACK,
                2 | 3 => ACK | FIN,
                _ if opening => SYN | ACK,
                _ => ACK,
            };
            let random = (0..4 * rng.usize(..3)).map(|_| rng.u8(..6)).collect();
            let options = if opening && rng.bool() {
                SACK
            } else {
                Opt::Raw(random)
            };
            let piece = pieces[rng.usize(..pieces.len())];
            let end = rng.usize(..=piece.len());
            let data = if rng.bool() { piece } else { &piece[..end] };
            harness.send(port, (seq, ack), control, vec![options], data);
            if rng.u8(..4) == 0 {
                harness.wait(rng.u64(..120));
            }
        }
        let client = &harness.client;
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
