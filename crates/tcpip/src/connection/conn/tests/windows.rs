//! Our window and the peer's.

use crate::Config;
use crate::connection::DeadlineKind;
use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::negotiated::Negotiated;

/// A connection with a receive buffer of `len` bytes that its application does not read.
/// `scales` enables window scaling.
fn receiving(len: usize, scales: bool) -> Bench {
    let mut bench = Offer {
        config: Config {
            recv_buffer: len,
            ..Config::default()
        },
        negotiated: Negotiated::new(true, false, scales.then_some(0), false),
        ..Offer::default()
    }
    .open();
    bench.leaves = true;
    bench
}

#[test]
fn a_window_shrinks_by_unread_data_and_its_edge_stays() {
    let mut bench = receiving(16_384, false);
    let edge = bench.tcb().rcv_adv;
    for (len, window) in [(1_000, 15_384), (15_000, 384), (384, 0)] {
        bench.data(len);
        assert_eq!(bench.acknowledge().0.window, window);
        assert_eq!(bench.tcb().rcv_adv, edge);
    }
}

#[test]
fn a_window_does_not_open_by_less_than_a_segment() {
    // RFC 9293, section 3.8.6.2.2: a segment, or half of the buffer.
    let mut bench = receiving(16_384, false);
    bench.data(16_384);
    assert_eq!(bench.acknowledge().0.window, 0);
    for (consumed, window) in [(999, 0), (1, 1_000), (10, 1_010)] {
        bench.consume(consumed);
        assert_eq!(bench.acknowledge().0.window, window);
    }
    let mut bench = receiving(1_200, false);
    bench.data(1_200);
    assert_eq!(bench.acknowledge().0.window, 0);
    for (consumed, window) in [(599, 0), (1, 600)] {
        bench.consume(consumed);
        assert_eq!(bench.acknowledge().0.window, window);
    }
}

#[test]
fn an_advertised_window_does_not_shrink() {
    // RFC 9293, section 3.8.6: an advertised window does not shrink, even if less than a
    // segment fits.
    let mut bench = receiving(16_384, false);
    bench.data(16_000);
    assert_eq!(bench.acknowledge().0.window, 384);
    bench.consume(100);
    assert_eq!(bench.acknowledge().0.window, 384);
    bench.data(384);
    assert_eq!(bench.acknowledge().0.window, 0);
}

#[test]
fn a_scaled_window_is_rounded_up_to_less_than_a_unit() {
    // RFC 7323, sections 2.3 and 2.4: 200,000 bytes in units of 4.
    let mut bench = receiving(200_000, true);
    let advertised = |bench: &mut Bench| {
        let field = bench.acknowledge().0.window;
        (field, bench.tcb().rcv_adv.since(bench.tcb().rcv_nxt))
    };
    assert_eq!(advertised(&mut bench), (50_000, 200_000));
    bench.data(1_001);
    assert_eq!(
        advertised(&mut bench),
        (49_750, 199_000),
        "198,999 bytes are rounded up"
    );
    bench.data(3);
    assert_eq!(advertised(&mut bench), (49_749, 198_996), "rounded once");
    bench.data(4);
    assert_eq!(advertised(&mut bench), (49_748, 198_992));
}

#[test]
fn the_window_of_a_syn_ack_is_not_scaled() {
    // RFC 7323, section 2.2.
    let mut bench = Offer {
        config: Config {
            recv_buffer: 200_000,
            ..Config::default()
        },
        negotiated: Negotiated::new(false, false, Some(7), false),
        ..Offer::default()
    }
    .half_open();
    assert_eq!(bench.tcb().rcv_adv.since(bench.tcb().rcv_nxt), 65_535);
    // The SYN's window is not scaled either.
    assert_eq!(bench.tcb().snd_wnd, 65_535);
    bench.window = 600;
    bench.establish(RTT_MS);
    assert_eq!(bench.tcb().snd_wnd, 600 << 7);
}

#[test]
fn a_window_is_taken_from_the_newest_segment() {
    let mut bench = Offer::default().open();
    bench.window = 9_000;
    bench.recv(101, 1, "PA", 100);
    assert_eq!(bench.tcb().snd_wnd, 9_000);
    bench.window = 3_000;
    bench.recv(1, 1, "PA", 100);
    assert_eq!(
        bench.tcb().snd_wnd,
        9_000,
        "an overtaken segment does not count"
    );
}

/// A connection whose peer always advertises this window, and much to send.
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
fn a_partial_segment_waits_for_a_large_window() {
    // RFC 9293, section 3.8.6.2.1.
    let mut bench = sending(2_500);
    assert_eq!(bench.send(), ["1:1001 A", "1001:2001 PA"]);
    bench.pass_ms(RTT_MS);
    bench.window = 600;
    bench.ack(2_001);
    assert!(bench.send().is_empty());
    assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, 250));
    bench.pass_ms(200);
    bench.window = 999;
    bench.ack(2_001);
    assert!(bench.send().is_empty());
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::ZeroWindow, 50),
        "the timer continues"
    );
    assert_eq!(bench.fire(), "2001:3000 A probes window");
    bench.pass_ms(RTT_MS);
    bench.window = 1_000;
    bench.ack(3_000);
    assert_eq!(bench.send(), ["3000:3001 PA"], "to the next boundary");
}

#[test]
fn a_window_that_was_never_large_gets_one_partial_segment_at_a_time() {
    let mut bench = sending(1_700);
    assert_eq!(bench.send(), ["1:1001 PA"]);
    bench.ack(1_001);
    assert_eq!(bench.send(), ["1001:2001 PA"]);
    let mut bench = sending(600);
    assert_eq!(bench.send(), ["1:601 PA"]);
    bench.ack(601);
    assert_eq!(bench.send(), ["601:1001 PA"]);
    bench.ack(1_001);
    assert_eq!(bench.send(), ["1001:1601 PA"]);
}

#[test]
fn a_segment_that_fills_a_small_window_is_pushed() {
    let mut bench = sending(4_000);
    let sent = ["1:1001 A", "1001:2001 A", "2001:3001 A", "3001:4001 PA"];
    assert_eq!(bench.send(), sent);
    // A window of 16 segments or more needs no PSH.
    let mut bench = sending(16_000);
    assert_eq!(bench.send().last().unwrap(), "9001:10001 A");
    bench.ack(10_001);
    assert_eq!(bench.send().last().unwrap(), "21001:22001 A");
}

#[test]
fn the_smaller_window_limits_the_flight() {
    for (window, segments) in [(65_535, 10), (9_999, 9), (3_000, 3)] {
        let mut bench = sending(window);
        assert_eq!(bench.send().len(), segments);
        assert!(bench.send().is_empty());
    }
}

#[test]
fn a_fin_needs_room_in_the_window() {
    let mut bench = Offer {
        window: 2_000,
        ..Offer::plain()
    }
    .open();
    bench.write(2_000);
    bench.close();
    assert_eq!(bench.send(), ["1:1001 A", "1001:2001 PA"]);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
    bench.pass_ms(RTT_MS);
    bench.ack(1_001);
    assert_eq!(bench.send(), ["2001:2002 FA"]);
}
