//! Tests of both sides' windows, and of the range of acceptable sequence numbers and timestamps.

use crate::Config;
use crate::connection::Flags;
use crate::connection::conn::testing::{Bench, Offer};
use crate::outcome::Verdict;
use crate::wire::Timestamps;

/// The window in the SYN-ACK: the size of a receive buffer.
const WINDOW: u32 = 16_384;

#[test]
fn a_segment_that_overlaps_the_window_is_acceptable() {
    // The cases follow RFC 9293, table 6. The sequence numbers wrap around within the window.
    let mut bench = Offer::default().open();
    assert!(bench.tcb().rcv_nxt.0 > bench.tcb().rcv_adv.0);
    for (seq, len) in [(1, 0), (1, 1), (2, 1), (WINDOW, 0), (WINDOW, 1)] {
        let verdict = bench.check(seq, 1, "A", len);
        assert_eq!(verdict, Verdict::Process, "{len} bytes at {seq}");
    }
    assert_eq!(bench.counters().out_of_window, 0);
    for (seq, len) in [(WINDOW + 1, 1), (0, 1), (0, 0), (1_u32 << 31, 5)] {
        bench.pass_ms(1_000);
        let verdict = bench.check(seq, 1, "A", len);
        assert_eq!(verdict, Verdict::Acknowledge, "{len} bytes at {seq}");
    }
    assert_eq!(bench.counters().out_of_window, 4);
}

#[test]
fn each_refused_segment_is_counted_once() {
    // An ACK of data that was never sent, a SYN, and a reset that is not at RCV.NXT.
    for (control, seq, ack, counts) in [
        ("A", 1, 2, (1, 0)),
        ("SA", 1, 1, (0, 1)),
        ("R", 2, 1, (0, 1)),
    ] {
        let mut bench = Offer::default().open();
        let verdict = bench.check(seq, ack, control, 0);
        assert_eq!(verdict, Verdict::Acknowledge, "{control}");
        let counters = bench.counters();
        assert_eq!((counters.bad_ack, counters.unproven), counts, "{control}");
    }
}

/// A connection whose peer has sent the TSval `recent`.
fn stamped(recent: u32) -> Bench {
    let mut bench = Offer::stamped().open();
    bench.tcb_mut().ts_recent = recent;
    bench
}

fn stamp(bench: &mut Bench, value: u32) {
    bench.stamps = Some(Timestamps {
        tsval: value,
        tsecr: 0,
    });
}

#[test]
fn the_ack_that_ends_the_handshake_updates_ts_recent() {
    let mut bench = Offer::stamped().half_open();
    stamp(&mut bench, 300);
    assert_eq!(bench.check(1, 1, "A", 0), Verdict::Establish);
    assert_eq!(bench.tcb_mut().ts_recent, 300);
}

#[test]
fn timestamps_are_compared_modulo_2_to_the_32() {
    // PAWS compares timestamps modulo 2^32 (RFC 7323, section 5.2).
    for (recent, value, is_timely) in [
        (5_000, 5_000, true),
        (5_000, 4_999, false),
        (u32::MAX, 3, true),
        (3, u32::MAX, false),
        (5_000, 5_000 + (1 << 31) - 1, true),
        (5_000, 5_000 + (1 << 31), false),
    ] {
        let mut bench = stamped(recent);
        stamp(&mut bench, value);
        let expected = if is_timely {
            Verdict::Process
        } else {
            Verdict::Acknowledge
        };
        let verdict = bench.check(1, 1, "PA", 5);
        assert_eq!(verdict, expected, "{value} after {recent}");
        assert_eq!(bench.counters().old_timestamps, u64::from(!is_timely));
    }
}

/// A connection with a receive buffer of `len` bytes, from which the application does not read.
fn receiving(len: usize) -> Bench {
    let mut bench = Offer {
        config: Config {
            recv_buffer: len,
            ..Config::default()
        },
        ..Offer::default()
    }
    .open();
    bench.leaves_unread = true;
    bench
}

#[test]
fn a_zero_window_opens_only_by_a_segment_or_half_of_the_buffer() {
    // A closed window opens when a segment or half of the buffer is free (RFC 9293, section
    // 3.8.6.2.2).
    let mut bench = receiving(16_384);
    bench.data(16_384);
    assert_eq!(bench.acknowledge().0.window, 0);
    for (consumed, window) in [(999, 0), (1, 1_000), (10, 1_010)] {
        bench.consume(consumed);
        assert_eq!(bench.acknowledge().0.window, window);
    }
    let mut bench = receiving(1_200);
    bench.data(1_200);
    assert_eq!(bench.acknowledge().0.window, 0);
    for (consumed, window) in [(599, 0), (1, 600)] {
        bench.consume(consumed);
        assert_eq!(bench.acknowledge().0.window, window);
    }
}

/// A connection with plenty of data to send, whose peer always advertises `window`.
fn sending(window: u16) -> Bench {
    let mut bench = Offer {
        window,
        ..Offer::plain()
    }
    .open();
    bench.write(50_000);
    bench
}

#[test]
fn a_segment_that_fills_a_small_window_is_pushed() {
    let mut bench = sending(4_000);
    let sent = ["1:1001 A", "1001:2001 A", "2001:3001 A", "3001:4001 PA"];
    assert_eq!(bench.send(), sent);
    // With a window of 16 segments or more, PSH has no benefit.
    let mut bench = sending(16_000);
    assert_eq!(bench.send().last().unwrap(), "9001:10001 A");
    bench.ack(10_001);
    assert_eq!(bench.send().last().unwrap(), "21001:22001 A");
}

#[test]
fn a_window_that_has_opened_makes_an_ack_pending() {
    let mut bench = Offer::default().open();
    bench.leaves_unread = true;
    bench.data(16_384);
    assert_eq!(bench.acknowledge().0.window, 0);
    for (consumed, is_pending) in [(999, false), (1, true)] {
        bench.consume(consumed);
        assert_eq!(bench.tcb().flags.intersects(Flags::ACK_PENDING), is_pending);
    }
}
