//! Tests of path MTU discovery with the stack's own probes (RFC 4821, RFC 8899).

use super::sending::too_big;
use crate::Config;
use crate::stack::testing::{Rig, noise};

const LEN: usize = 400_000;
/// Number of data bytes in a segment at a path MTU of 1,280 bytes.
const BASE: usize = 1280 - 20 - 20 - 12;

/// Makes a server that sends a long content item. Segments with 1,460 bytes of data are in flight.
fn sending() -> Rig {
    let mut rig = Rig::serving(&Config::default(), &noise(LEN), None);
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 10);
    rig
}

/// Makes a server whose path was a black hole for large segments. Because no acknowledgements
/// arrived, the server has switched to small segments.
fn narrowed() -> Rig {
    let mut rig = sending();
    while rig.stack.counters().black_holes == 0 {
        rig.pass_ms(100);
        rig.port.sent.clear();
    }
    rig
}

/// Simulates a path that drops segments with more than `width` bytes of data, in rounds of `millis`
/// milliseconds. The peer sends an ACK for each segment of the server, even for a dropped one. All
/// data must arrive within `rounds` rounds. Returns the number of data bytes in each segment sent.
fn run(rig: &mut Rig, width: usize, millis: u64, rounds: usize) -> Vec<usize> {
    let mut received = vec![false; LEN];
    let mut lens = Vec::new();
    for _ in 0..rounds {
        rig.pass_ms(millis);
        let before = received
            .iter()
            .position(|is_received| !is_received)
            .unwrap_or(LEN);
        let segments = rig.sent_all();
        for segment in &segments {
            lens.push(segment.data.len());
            if segment.data.len() <= width {
                let at = segment.seq as usize - 1;
                assert!(segment.data == noise(LEN)[at..at + segment.data.len()]);
                received[at..at + segment.data.len()].fill(true);
            }
            let una = received
                .iter()
                .position(|is_received| !is_received)
                .unwrap_or(LEN);
            if una > before || !segments.is_empty() {
                rig.recv(2, una as u32 + 1, "A", b"");
            }
        }
        if received.iter().all(|is_received| *is_received) {
            break;
        }
    }
    assert!(
        received.iter().all(|is_received| *is_received),
        "all has arrived"
    );
    lens
}

#[test]
fn a_larger_path_mtu_is_found_by_probes() {
    // The probes carry data that must be sent anyway (RFC 8899, section 4.1).
    let mut rig = sending();
    let mut sent = 0;
    // At first, the path drops all segments.
    while rig.stack.counters().black_holes == 0 {
        rig.pass_ms(100);
        rig.port.sent.clear();
    }
    let mut ack = 1;
    let mut largest = 0;
    for _ in 0..200 {
        rig.pass_ms(200);
        for segment in rig.sent_all() {
            largest = largest.max(segment.data.len());
            ack = ack.max(segment.seq + segment.data.len() as u32);
            sent += 1;
            rig.recv(2, ack, "A", b"");
        }
    }
    assert!(sent > 100);
    assert_eq!(largest, 1460, "{:?}", rig.stack.counters());
    assert!(rig.stack.counters().path_mtu_raises >= 2);
    assert_eq!(rig.stack.counters().fast_recoveries, 0);
}

#[test]
fn the_loss_of_an_mtu_probe_does_not_reduce_the_window() {
    // RFC 4821, section 7.5: the loss of a probe does not indicate congestion.
    let mut rig = narrowed();
    let before = rig.stack.counters().fast_recoveries;
    rig.window = 20_000;
    run(&mut rig, BASE + 100, 60, 2000);
    let counters = rig.stack.counters();
    // RFC 8899, section 5.1.2: a probe may be lost for other reasons, so three probes are sent.
    assert_eq!(counters.mtu_probes, 3, "{counters:?}");
    assert_eq!(counters.fast_recoveries, before, "{counters:?}");
}

#[test]
fn a_probe_lost_for_another_reason_is_repeated() {
    let mut rig = narrowed();
    let mut ack = 1;
    let mut largest = 0;
    let mut lost = 0;
    for _ in 0..200 {
        rig.pass_ms(200);
        for segment in rig.sent_all() {
            let len = segment.data.len();
            if len > BASE && lost < 2 {
                // Drop the first two large segments, as if they were lost for another reason than
                // their size.
                lost += 1;
            } else if segment.seq == ack {
                largest = largest.max(len);
                ack += len as u32;
            }
            rig.recv(2, ack, "A", b"");
        }
    }
    assert_eq!((lost, largest), (2, 1460), "{:?}", rig.stack.counters());
    assert!(rig.stack.counters().path_mtu_raises >= 2);
}

#[test]
fn a_probe_retransmitted_in_smaller_segments_does_not_raise_the_path_mtu() {
    let mut rig = narrowed();
    let mut ack = 1;
    while rig.stack.counters().mtu_probes == 0 {
        rig.pass_ms(200);
        for segment in rig.sent_all() {
            if segment.seq == ack {
                ack += segment.data.len() as u32;
            }
            rig.recv(2, ack, "A", b"");
        }
    }
    assert!(rig.sent_all().iter().any(|out| out.data.len() > BASE));
    // A router reports a smaller MTU, so all data in flight is retransmitted in smaller segments.
    // These segments arrive.
    rig.icmp(&too_big(&rig, 1000, ack));
    for _ in 0..10 {
        for segment in rig.sent_all() {
            assert!(segment.data.len() <= 1000 - 52, "{}", segment.data.len());
            ack = ack.max(segment.seq + segment.data.len() as u32);
        }
        rig.recv(2, ack, "A", b"");
        rig.pass_ms(50);
    }
    assert_eq!(rig.stack.counters().path_mtu_raises, 0);
}

/// RFC 6298, section 5.1: the retransmission timer runs whenever data is in flight.
#[test]
fn the_retransmission_timer_runs_if_the_flight_begins_with_a_probe() {
    let mut rig = Rig::serving(&Config::default(), &noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    // The path drops all large segments.
    rig.pass_ms(200 + 400 + 800);
    rig.sent_all();
    assert_eq!(rig.stack.counters().black_holes, 1);
    let mut at = 1;
    while at < 100_001 {
        rig.pass_ms(1);
        at = (at + 20_000).min(rig.stack.tcb(0).view().snd_nxt.0.wrapping_sub(rig.iss));
        rig.recv(2, at, "A", b"");
        rig.sent_all();
    }
    rig.pass_ms(2_000);
    rig.recv(2, at, "PA", b"g");
    let lens: Vec<_> = rig.sent_all().iter().map(|out| out.data.len()).collect();
    assert_eq!(rig.stack.counters().mtu_probes, 1, "{lens:?}");
    let timeouts = rig.stack.counters().timeouts;
    rig.pass_ms(5_000);
    assert!(rig.stack.counters().timeouts > timeouts, "nothing in 5 s");
}
