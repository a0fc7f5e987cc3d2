//! The relay on virtual time.

use std::time::Duration;

use nmio::Instant;

use super::Direction::{self, Down, Up};
use super::relay::{Relay, RelayConfig};
use super::segment::{Segment, flags};
use crate::{CLIENT, SERVER};

fn relay(down: &str, up: &str, seed: u64) -> Relay {
    let config = RelayConfig {
        down: down.parse().unwrap(),
        up: up.parse().unwrap(),
        seed,
        silence: Duration::from_millis(200),
    };
    Relay::new(&config, None)
}

/// A frame from the client; turned round when it goes down.
fn frame(direction: Direction, seq: u32, ack: u32, flags: u8, len: usize) -> Vec<u8> {
    let segment = crate::Segment {
        port: 4_000,
        seq,
        ack,
        flags,
        window: 1_000,
    };
    let mut frame = segment.frame(&vec![7; len]);
    if direction == Down {
        frame[26..30].copy_from_slice(&SERVER.1.octets());
        frame[30..34].copy_from_slice(&CLIENT.1.octets());
        frame[34..36].copy_from_slice(&80u16.to_be_bytes());
        frame[36..38].copy_from_slice(&4_000u16.to_be_bytes());
    }
    frame
}

fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Opens a connection whose ISNs are 0.
fn open(relay: &mut Relay) {
    relay.handle_frame(Up, &frame(Up, 0, 0, flags::SYN, 0), ms(0));
    let syn_ack = flags::SYN | flags::ACK;
    relay.handle_frame(Down, &frame(Down, 0, 1, syn_ack, 0), ms(0));
    relay.handle_frame(Up, &frame(Up, 1, 1, flags::ACK, 0), ms(0));
}

/// Sequence numbers of what comes out by `now`.
fn out(relay: &mut Relay, direction: Direction, now: Instant) -> Vec<u32> {
    let frames = std::iter::from_fn(|| relay.poll_frame(direction, now));
    frames
        .map(|frame| Segment::parse(&frame).map_or(u32::MAX, |segment| segment.seq))
        .collect()
}

#[test]
fn a_handshake_is_never_lost_and_data_is() {
    let mut relay = relay("loss=1", "loss=1", 1);
    open(&mut relay);
    assert_eq!(out(&mut relay, Up, ms(0)), [0, 1]);
    assert_eq!(out(&mut relay, Down, ms(0)), [0]);
    relay.handle_frame(Down, &frame(Down, 1, 1, flags::ACK, 100), ms(1));
    relay.handle_frame(
        Down,
        &frame(Down, 101, 1, flags::FIN | flags::ACK, 0),
        ms(1),
    );
    assert_eq!(out(&mut relay, Down, ms(9)), [101]);
    let report = relay.report();
    assert_eq!((report.connections, report.down.path.lost), (1, 1));
    assert_eq!(report.down.sent.bytes, 100);
}

#[test]
fn both_servers_lose_the_same_segments() {
    let losses = |len: usize| -> Vec<usize> {
        let mut relay = relay("loss=0.3", "", 77);
        open(&mut relay);
        out(&mut relay, Down, ms(0));
        let sent = (0..100).filter(|n| {
            let seq = 1 + (n * len) as u32;
            relay.handle_frame(Down, &frame(Down, seq, 1, flags::ACK, len), ms(1));
            // A sender with habits of its own.
            if len == 1_448 {
                relay.handle_frame(Down, &frame(Down, seq, 1, flags::ACK, 0), ms(1));
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
fn repeated_bytes_are_counted_before_they_are_lost() {
    let mut relay = relay("every=2", "", 1);
    open(&mut relay);
    for (seq, at) in [(1, 1), (101, 2), (101, 3), (101, 4), (1, 300)] {
        relay.handle_frame(Down, &frame(Down, seq, 1, flags::ACK, 100), ms(at));
    }
    let sent = relay.report().down.sent;
    assert_eq!((sent.bytes, sent.repeated_bytes), (500, 300));
    // The second was lost, and needed once; the fourth came too often, the
    // last for nothing.
    assert_eq!(sent.needless_bytes, 200);
    assert_eq!((sent.silences, sent.longest_silence_us), (1, 296_000));
}

#[test]
fn a_port_that_comes_back_is_a_new_connection() {
    let mut relay = relay("", "", 1);
    for _ in 0..3 {
        open(&mut relay);
        relay.handle_frame(Down, &frame(Down, 1, 1, flags::ACK, 100), ms(1));
    }
    let report = relay.report();
    assert_eq!(report.connections, 3);
    assert_eq!(report.down.sent.bytes, 300);
    assert_eq!(report.down.sent.repeated_bytes, 0);
}

#[test]
fn what_is_left_of_a_run_before_has_no_number() {
    let mut relay = relay("loss=1", "", 1);
    relay.handle_frame(Down, &frame(Down, 9, 1, flags::ACK, 100), ms(0));
    relay.handle_frame(Up, &frame(Up, 1, 109, flags::ACK, 0), ms(0));
    assert_eq!(out(&mut relay, Down, ms(0)), [9]);
    open(&mut relay);
    let report = relay.report();
    assert_eq!((report.connections, report.strays), (1, 2));
    assert_eq!(report.down.sent.bytes, 0);
}

#[test]
fn every_segment_has_its_line_in_the_trace() {
    let (reader, writer) = std::io::pipe().unwrap();
    let config = RelayConfig {
        down: "every=1".parse().unwrap(),
        up: "".parse().unwrap(),
        seed: 1,
        silence: Duration::from_millis(200),
    };
    let mut relay = Relay::new(&config, Some(Box::new(writer)));
    open(&mut relay);
    relay.handle_frame(Down, &frame(Down, 1, 1, flags::ACK, 100), ms(3));
    drop(relay);
    let trace = std::io::read_to_string(reader).unwrap();
    assert_eq!(trace.lines().count(), 4);
    assert!(
        trace.ends_with("0.003000 Down #0 0:100 . ack 0 win 1000 sack [] Lost\n"),
        "{trace}"
    );
}

#[test]
fn a_narrow_path_is_silent_or_answers() {
    for (words, answers) in [("mtu=900", 0), ("mtu=900,answer=yes", 1)] {
        let mut relay = relay(words, "", 1);
        open(&mut relay);
        out(&mut relay, Up, ms(0));
        out(&mut relay, Down, ms(0));
        relay.handle_frame(Down, &frame(Down, 1, 1, flags::ACK, 861), ms(1));
        relay.handle_frame(Down, &frame(Down, 1, 1, flags::ACK, 860), ms(2));
        assert_eq!(out(&mut relay, Down, ms(2)), [1]);
        assert_eq!(out(&mut relay, Up, ms(2)).len(), answers);
        assert_eq!(relay.report().down.too_big, 1);
        // What was too large was lost: to send it again is no waste.
        assert_eq!(relay.report().down.sent.needless_bytes, 0);
    }
}

#[test]
fn what_is_no_segment_passes_and_lateness_is_told() {
    let mut relay = relay("loss=1,delay=5ms", "", 1);
    relay.handle_frame(Down, &[0xff; 60], ms(0));
    assert_eq!(relay.next_arrival(), Some(ms(5)));
    assert!(relay.poll_frame(Down, ms(4)).is_none());
    assert!(relay.poll_frame(Down, ms(7)).is_some());
    let report = relay.report();
    assert_eq!((report.down.late, report.down.latest_us), (1, 2_000));
    assert_eq!(report.connections, 0);
}
