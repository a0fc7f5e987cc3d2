//! Received data, in order and out of order, and the peer's FIN.

use crate::connection::conn::testing::{Bench, Offer};
use crate::connection::{DeadlineKind, Flags, State};
use crate::outcome::Verdict;

#[test]
fn data_in_order_is_acknowledged_and_needs_no_buffer() {
    let mut bench = Offer::default().open();
    bench.data(500);
    assert!(bench.tcb().flags.has(Flags::ACK_PENDING));
    let (header, options) = bench.acknowledge();
    assert_eq!(header.ack, bench.tcb().rcv_nxt);
    assert_eq!(header.window, 16_384);
    assert!(options.bytes().is_empty());
    assert!(!bench.tcb().flags.has(Flags::ACK_PENDING));
    assert!(!bench.tcb().view().has_buffer);
}

#[test]
fn ranges_out_of_order_are_reported_latest_first() {
    // RFC 2018, section 4.
    let mut bench = Offer::default().open();
    bench.recv(201, 1, "A", 100);
    assert_eq!(bench.sacked(), [(201, 301)]);
    bench.recv(401, 1, "A", 100);
    assert_eq!(bench.sacked(), [(401, 501), (201, 301)]);
    bench.recv(301, 1, "A", 50);
    assert_eq!(bench.sacked(), [(201, 351), (401, 501)]);
    bench.recv(1, 1, "A", 200);
    assert_eq!(bench.sacked(), [(401, 501)]);
    assert_eq!(bench.received(), 350);
    bench.recv(351, 1, "A", 50);
    assert_eq!(bench.sacked(), []);
    assert_eq!(bench.received(), 500);
    assert_eq!(bench.counters().out_of_order, 3);
    assert!(!bench.tcb().view().has_buffer, "the buffer is released");
}

#[test]
fn a_duplicate_is_reported_first() {
    // RFC 2883.
    let mut bench = Offer::default().open();
    bench.data(500);
    bench.acknowledge();
    let verdict = bench.recv(101, 1, "A", 100);
    assert_eq!(verdict, Verdict::Acknowledge);
    assert_eq!(bench.sacked(), [(101, 201)]);
    bench.recv(701, 1, "A", 100);
    assert_eq!(bench.sacked(), [(701, 801)]);
    bench.recv(721, 1, "A", 10);
    assert_eq!(bench.sacked(), [(721, 731), (701, 801)]);
    // A part of this overlap is new.
    bench.recv(401, 1, "A", 200);
    assert_eq!(bench.sacked(), [(401, 501), (701, 801)]);
    assert_eq!(bench.received(), 600);
}

#[test]
fn a_fifth_gap_is_dropped() {
    let mut bench = Offer::default().open();
    for gap in 1..=5 {
        bench.recv(1 + gap * 200, 1, "A", 100);
    }
    assert_eq!(bench.counters().no_buffer, 1);
    let ranges = [(801, 901), (601, 701), (401, 501), (201, 301)];
    assert_eq!(bench.sacked(), ranges);
}

#[test]
fn without_sack_ranges_out_of_order_are_not_reported() {
    let mut bench = Offer::plain().open();
    bench.recv(201, 1, "A", 100);
    assert_eq!(bench.sacked(), []);
    bench.recv(1, 1, "A", 200);
    assert_eq!(bench.received(), 300);
}

#[test]
fn a_fin_changes_the_state() {
    // RFC 9293, section 3.10.7.4, eighth.
    let closed = |bench: &mut Bench| {
        bench.close();
        assert_eq!(bench.send(), ["1:2 FA"]);
    };
    let mut bench = Offer::default().open();
    bench.recv(1, 1, "FA", 10);
    assert_eq!(bench.tcb().state, State::CloseWait);
    assert_eq!(bench.received(), 11, "data and FIN");
    assert!(bench.conn().takes_half_close());
    assert!(!bench.conn().takes_half_close(), "only once");
    closed(&mut bench);
    assert_eq!(bench.tcb().state, State::LastAck);

    let mut bench = Offer::default().open();
    closed(&mut bench);
    bench.recv(1, 1, "FA", 0);
    assert_eq!(bench.tcb().state, State::Closing);

    let mut bench = Offer::default().open();
    closed(&mut bench);
    bench.recv(1, 2, "A", 0);
    assert_eq!(bench.tcb().state, State::FinWait2);
    bench.recv(1, 2, "FA", 0);
    assert_eq!(bench.tcb().state, State::TimeWait);
    assert_eq!(bench.deadline(), (DeadlineKind::TimeWait, 10_000));
}

#[test]
fn a_fin_counts_when_everything_before_it_has_arrived() {
    let mut bench = Offer::default().open();
    bench.recv(101, 1, "FA", 100);
    assert_eq!(bench.tcb().state, State::Established);
    assert_eq!(bench.sacked(), [(101, 201)]);
    bench.recv(1, 1, "A", 100);
    assert_eq!(bench.tcb().state, State::CloseWait);
    assert_eq!(bench.received(), 201);
}

#[test]
fn data_after_a_fin_is_ignored() {
    let mut bench = Offer::default().open();
    bench.recv(101, 1, "FA", 100);
    bench.recv(201, 1, "A", 50);
    assert_eq!(bench.counters().behind_fin, 1);
    bench.recv(1, 1, "A", 100);
    assert_eq!(bench.received(), 201);
    bench.recv(202, 1, "A", 50);
    assert_eq!(bench.counters().behind_fin, 2);
    assert_eq!(bench.received(), 201);
}

#[test]
fn unread_data_is_kept_and_offered_with_later_data() {
    let mut bench = Offer::default().open();
    bench.leaves = true;
    bench.data(300);
    bench.data(200);
    assert_eq!(bench.ready(), 500);
    bench.consume(350);
    assert_eq!(bench.ready(), 150);
    bench.consume(150);
    assert_eq!(bench.ready(), 0);
    assert!(!bench.tcb().view().has_buffer);
}

#[test]
fn after_close_unread_data_is_dropped() {
    let mut bench = Offer::default().open();
    bench.leaves = true;
    bench.data(300);
    bench.close();
    bench.consume(0);
    assert!(!bench.tcb().view().has_buffer);
    assert_eq!(bench.counters().after_close, 1);
    assert_eq!(bench.acknowledge().0.window, 16_384);
}

#[test]
fn a_window_that_has_opened_makes_an_ack_pending() {
    let mut bench = Offer::default().open();
    bench.leaves = true;
    bench.data(16_384);
    assert_eq!(bench.acknowledge().0.window, 0);
    for (consumed, is_pending) in [(999, false), (1, true)] {
        bench.consume(consumed);
        assert_eq!(bench.tcb().flags.has(Flags::ACK_PENDING), is_pending);
    }
}
