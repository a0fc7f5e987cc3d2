//! The path's width: RFC 4821, RFC 8899. (What routers tell is in
//! `sending.rs`.)

use super::sending::too_big;
use crate::Config;
use crate::stack::testing::{Rig, noise};

const LEN: usize = 400_000;
/// The payload of a segment on a path of 1,280 bytes.
const BASE: usize = 1280 - 20 - 20 - 12;

/// A server in the middle of a long content, with segments of 1,460 bytes in
/// flight.
fn sending() -> Rig {
    let mut rig = Rig::serving(&Config::default(), &noise(LEN), None);
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 10);
    rig
}

/// The same when nothing has come through, and segments are small.
fn narrowed() -> Rig {
    let mut rig = sending();
    while rig.stack.counters().black_holes == 0 {
        rig.pass_ms(100);
        rig.port.sent.clear();
    }
    rig
}

/// A path that swallows what is longer than `width` bytes of data; everything
/// else is acknowledged, `millis` later. Returns the data's length when all
/// has arrived, or after so many rounds.
fn run(rig: &mut Rig, width: usize, millis: u64, rounds: usize) -> Vec<usize> {
    let mut got = vec![false; LEN];
    let mut lens = Vec::new();
    for _ in 0..rounds {
        rig.pass_ms(millis);
        let before = got.iter().position(|had| !had).unwrap_or(LEN);
        let segments = rig.sent_all();
        for segment in &segments {
            lens.push(segment.data.len());
            if segment.data.len() <= width {
                let at = segment.seq as usize - 1;
                assert!(segment.data == noise(LEN)[at..at + segment.data.len()]);
                got[at..at + segment.data.len()].fill(true);
            }
            let una = got.iter().position(|had| !had).unwrap_or(LEN);
            if una > before || !segments.is_empty() {
                rig.recv(2, una as u32 + 1, "A", b"");
            }
        }
        if got.iter().all(|had| *had) {
            break;
        }
    }
    assert!(got.iter().all(|had| *had), "all has arrived");
    lens
}

#[test]
fn a_path_that_has_become_wider_is_found_out() {
    // RFC 8899, section 5.3: with data that had to be sent anyway.
    let mut rig = sending();
    let mut sent = 0;
    // Narrow for the first second.
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
    assert_eq!(rig.stack.counters().fast_retransmits, 0);
}

#[test]
fn a_probe_that_is_too_large_costs_no_window() {
    // RFC 4821, section 7.5.
    let mut rig = narrowed();
    let before = rig.stack.counters().fast_retransmits;
    rig.window = 20_000;
    run(&mut rig, BASE + 100, 60, 2000);
    let counters = rig.stack.counters();
    // RFC 8899, section 5.1.2: one may be lost for another reason.
    assert_eq!(counters.size_probes, 3, "{counters:?}");
    assert_eq!(counters.fast_retransmits, before, "{counters:?}");
}

#[test]
fn a_probe_that_is_lost_for_another_reason_is_not_the_last() {
    let mut rig = narrowed();
    let mut ack = 1;
    let mut largest = 0;
    let mut lost = 0;
    for _ in 0..200 {
        rig.pass_ms(200);
        for segment in rig.sent_all() {
            let len = segment.data.len();
            if len > BASE && lost < 2 {
                // With what is behind it, which tells of it.
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
fn a_probe_that_went_again_in_pieces_tells_nothing() {
    let mut rig = narrowed();
    let mut ack = 1;
    while rig.stack.counters().size_probes == 0 {
        rig.pass_ms(200);
        for segment in rig.sent_all() {
            if segment.seq == ack {
                ack += segment.data.len() as u32;
            }
            rig.recv(2, ack, "A", b"");
        }
    }
    assert!(rig.sent_all().iter().any(|out| out.data.len() > BASE));
    // A router tells of less: all goes again in smaller segments, and arrives.
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

/// RFC 6298, 5.1: every time a packet with data is sent the timer runs.
#[test]
fn a_flight_that_begins_with_a_size_probe_has_a_timer() {
    let mut rig = Rig::serving(&Config::default(), &noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    // A black hole.
    rig.pass_ms(200 + 400 + 800);
    rig.sent_all();
    assert_eq!(rig.stack.counters().black_holes, 1);
    let mut at = 1;
    while at < 100_001 {
        rig.pass_ms(1);
        at = (at + 20_000).min(
            rig.stack.records[0]
                .tcb
                .view()
                .snd_nxt
                .0
                .wrapping_sub(rig.iss),
        );
        rig.recv(2, at, "A", b"");
        rig.sent_all();
    }
    rig.pass_ms(2_000);
    rig.recv(2, at, "PA", b"g");
    let lens: Vec<_> = rig.sent_all().iter().map(|out| out.data.len()).collect();
    assert_eq!(rig.stack.counters().size_probes, 1, "{lens:?}");
    let timeouts = rig.stack.counters().timeouts;
    rig.pass_ms(5_000);
    assert!(rig.stack.counters().timeouts > timeouts, "nothing in 5 s");
}
