//! Tests of the relay with virtual time.

use nmio::Instant;
use testkit::{ACK, FIN, Layout, Route, SYN};

use crate::Direction::{self, Down, Up};
use crate::relay::Relay;
use crate::segment::Segment;

fn relay(down: &str) -> Relay {
    traced(down, None)
}

fn traced(down: &str, trace: Option<Box<dyn std::io::Write>>) -> Relay {
    let paths = [down, "{}"].map(|json| json.parse().unwrap());
    Relay::new(paths, 77, trace)
}

/// Sends a segment with `len` bytes of data.
fn send(relay: &mut Relay, direction: Direction, seq: u32, bits: u16, len: usize, at: Instant) {
    let segment = testkit::Segment {
        bits,
        seq,
        ack: 1,
        window: 1_000,
        data: vec![7; len],
        ..testkit::Segment::default()
    };
    let route = Route::to_server(false, 4_000, 80);
    let route = if direction == Down {
        route.back()
    } else {
        route
    };
    relay.handle_frame(direction, &route.segment(&segment, Layout::Usual), at);
}

fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Opens a connection whose initial sequence numbers are 0.
fn open(relay: &mut Relay) {
    send(relay, Up, 0, SYN, 0, ms(0));
    send(relay, Down, 0, SYN | ACK, 0, ms(0));
    send(relay, Up, 1, ACK, 0, ms(0));
}

/// Returns the sequence numbers of the frames that leave the network by `now`. The value for a
/// frame without TCP is `u32::MAX`.
fn out(relay: &mut Relay, direction: Direction, now: Instant) -> Vec<u32> {
    let frames = std::iter::from_fn(|| relay.poll_frame(direction, now));
    frames
        .map(|frame| Segment::parse(&frame).map_or(u32::MAX, |segment| segment.seq))
        .collect()
}

#[test]
fn data_is_lost_and_a_handshake_is_not() {
    let mut relay = relay(r#"{"loss": 1}"#);
    open(&mut relay);
    assert_eq!(out(&mut relay, Up, ms(0)), [0, 1]);
    assert_eq!(out(&mut relay, Down, ms(0)), [0]);
    send(&mut relay, Down, 1, ACK, 100, ms(1));
    send(&mut relay, Down, 101, FIN | ACK, 0, ms(1));
    assert_eq!(out(&mut relay, Down, ms(9)), [101]);
    let report = relay.report();
    assert_eq!((report.connections, report.down.path.lost), (1, 1));
    assert_eq!(report.down.sent.bytes, 100);
}

#[test]
fn both_servers_lose_the_same_segments() {
    let losses = |len: usize| -> Vec<usize> {
        let mut relay = relay(r#"{"loss": 0.3}"#);
        open(&mut relay);
        out(&mut relay, Down, ms(0));
        let sent = (0..100).filter(|n| {
            send(&mut relay, Down, 1 + (n * len) as u32, ACK, len, ms(1));
            // Only one of the two senders also sends ACKs, which must not change the losses.
            if len == 1_448 {
                send(&mut relay, Down, 1, ACK, 0, ms(1));
            }
            let arrived = out(&mut relay, Down, ms(1));
            arrived.len() == usize::from(len == 1_448)
        });
        sent.collect()
    };
    let lost = losses(1_448);
    assert!((15..45).contains(&lost.len()), "{lost:?}");
    assert_eq!(lost, losses(1_460));
}

#[test]
fn retransmissions_are_counted_before_they_are_lost() {
    let mut relay = relay(r#"{"every": 2}"#);
    open(&mut relay);
    for (seq, at) in [(1, 1), (101, 2), (101, 3), (101, 4), (1, 300)] {
        send(&mut relay, Down, seq, ACK, 100, ms(at));
    }
    let sent = relay.report().down.sent;
    assert_eq!((sent.bytes, sent.retransmitted), (500, 300));
    // The second segment was lost, so its first retransmission was necessary. The last two segments
    // were spurious retransmissions.
    assert_eq!(sent.spurious, 200);
    assert_eq!(sent.longest_stall_us, 296_000);
}

#[test]
fn a_reused_port_is_a_new_connection() {
    let mut relay = relay("{}");
    for _ in 0..3 {
        open(&mut relay);
        send(&mut relay, Down, 1, ACK, 100, ms(1));
    }
    let report = relay.report();
    assert_eq!(report.connections, 3);
    let sent = report.down.sent;
    assert_eq!((sent.bytes, sent.retransmitted), (300, 0));
}

#[test]
fn connections_of_an_earlier_run_are_not_counted() {
    let mut relay = relay(r#"{"loss": 1}"#);
    send(&mut relay, Down, 9, ACK, 100, ms(0));
    send(&mut relay, Up, 1, ACK, 0, ms(0));
    assert_eq!(out(&mut relay, Down, ms(0)), [9]);
    open(&mut relay);
    let report = relay.report();
    assert_eq!(report.connections, 1);
    assert_eq!(report.down.sent.bytes, 0);
}

#[test]
fn each_segment_has_its_line_in_the_trace() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut relay = traced(r#"{"every": 1}"#, Some(Box::new(writer)));
    open(&mut relay);
    send(&mut relay, Down, 1, ACK, 100, ms(3));
    drop(relay);
    let trace = std::io::read_to_string(reader).unwrap();
    assert_eq!(trace.lines().count(), 4);
    let last = "0.003000 Down #0 0:100 . ack 0 win 1000 sack [] Lost\n";
    assert!(trace.ends_with(last), "{trace}");
}

#[test]
fn only_a_marked_segment_of_an_ecn_sender_is_changed() {
    for (ecn, marked) in [(0, 0), (2, 1)] {
        let mut relay = relay(r#"{"mark": 1}"#);
        open(&mut relay);
        out(&mut relay, Down, ms(0));
        let segment = testkit::Segment {
            bits: ACK,
            seq: 1,
            ecn,
            data: vec![1],
            ..testkit::Segment::default()
        };
        let route = Route::to_server(false, 4_000, 80).back();
        relay.handle_frame(Down, &route.segment(&segment, Layout::Usual), ms(1));
        let frame = relay.poll_frame(Down, ms(1)).unwrap();
        // `read_segment` also verifies the checksums.
        let received = testkit::read_segment(&frame).unwrap().segment;
        assert_eq!(received.ecn, if marked == 1 { testkit::CE } else { 0 });
        assert_eq!(relay.report().down.path.marked, marked);
    }
}

#[test]
fn a_frame_above_the_path_mtu_is_dropped_with_or_without_icmp() {
    for (json, errors) in [(r#"{"mtu": 900}"#, 0), (r#"{"mtu": 900, "icmp": true}"#, 1)] {
        let mut relay = relay(json);
        open(&mut relay);
        out(&mut relay, Up, ms(0));
        out(&mut relay, Down, ms(0));
        send(&mut relay, Down, 1, ACK, 861, ms(1));
        send(&mut relay, Down, 1, ACK, 860, ms(2));
        assert_eq!(out(&mut relay, Down, ms(2)), [1]);
        assert_eq!(out(&mut relay, Up, ms(2)).len(), errors);
        let down = relay.report().down;
        assert_eq!(down.too_big, 1);
        // The retransmission of the dropped bytes was necessary, so it is not spurious.
        assert_eq!(down.sent.spurious, 0);
    }
}

#[test]
fn frames_without_tcp_pass_and_late_frames_are_counted() {
    let mut relay = relay(r#"{"loss": 1, "delay_us": 5000}"#);
    relay.handle_frame(Down, &[0xff; 60], ms(0));
    assert_eq!(relay.next_arrival(), Some(ms(5)));
    assert!(relay.poll_frame(Down, ms(4)).is_none());
    assert!(relay.poll_frame(Down, ms(7)).is_some());
    let report = relay.report();
    assert_eq!((report.down.late, report.down.latest_us), (1, 2_000));
    assert_eq!(report.connections, 0);
}
