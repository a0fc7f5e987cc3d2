//! Retransmissions (RFC 5681, 6582, 6675, 6937 and 8985), and their undo (RFC 3522, 3708
//! and 5682).

use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::connection::{DeadlineKind, Flags, NONE};
use crate::wire::Timestamps;

/// A connection with a window of ten segments in flight for a round trip, and ten more to
/// send.
fn sending(offer: Offer) -> Bench {
    let mut bench = offer.open();
    bench.write(20_000);
    assert_eq!(bench.send().len(), 10);
    bench.pass_ms(RTT_MS);
    bench
}

#[test]
fn a_segment_is_lost_when_three_later_ones_have_arrived() {
    // RFC 8985, section 6.2. Until then each ACK lets a new segment go: RFC 3042.
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(1_001, 2_001)]);
    assert_eq!(bench.send(), ["10001:11001 A"]);
    bench.ack_and_sack(1, &[(1_001, 3_001)]);
    assert_eq!(bench.send(), ["11001:12001 A"]);
    assert_eq!(bench.counters().fast_retransmits, 0);
    bench.ack_and_sack(1, &[(1_001, 4_001)]);
    assert_eq!(bench.counters().fast_retransmits, 1);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (5_000, 5_000));
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
}

#[test]
fn proportional_rate_reduction_halves_the_window() {
    // RFC 6937. Eight segments are in the network when the loss is detected.
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(1_001, 2_001)]);
    bench.send();
    bench.ack_and_sack(1, &[(1_001, 3_001)]);
    bench.send();
    let mut sent = Vec::new();
    for arrived in 4..=12 {
        bench.ack_and_sack(1, &[(1_001, 1 + arrived * 1_000)]);
        sent.push(bench.send().join(" "));
    }
    let expected = [
        "1:1001 A retransmitted",
        "",
        "12001:13001 A",
        "",
        "13001:14001 A",
        "",
        "",
        "14001:15001 A",
        "15001:16001 A",
    ];
    assert_eq!(sent, expected);
    bench.pass_ms(RTT_MS);
    bench.ack(12_001);
    assert_eq!(bench.cwnd(), 5_000);
    assert_eq!(bench.send(), ["16001:17001 A"]);
}

#[test]
fn each_gap_is_retransmitted_before_new_data() {
    let mut bench = sending(Offer::default());
    // Four have arrived, and three are lost. Three others of the window of five are in
    // flight.
    bench.ack_and_sack(1, &[(4_001, 7_001), (1_001, 2_001)]);
    assert_eq!(
        bench.send(),
        ["1:1001 A retransmitted", "2001:3001 A retransmitted"]
    );
    bench.ack_and_sack(1, &[(4_001, 9_001), (1_001, 2_001)]);
    assert_eq!(bench.send(), ["3001:4001 A retransmitted", "10001:11001 A"]);
    assert_eq!(bench.counters().retransmits, 3);
    assert_eq!(bench.counters().fast_retransmits, 1, "one reduction");
}

#[test]
fn an_overtaken_segment_is_lost_after_a_quarter_of_a_round_trip() {
    // RFC 8985, section 6.2, step 4.
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(1_001, 2_001)]);
    assert_eq!(bench.deadline(), (DeadlineKind::Reordering, 25));
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.counters().fast_retransmits, 1);
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
}

#[test]
fn a_segment_that_arrives_within_that_time_was_reordered() {
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(1_001, 2_001)]);
    bench.send();
    bench.pass_ms(20);
    bench.ack(2_001);
    assert_eq!(bench.counters().reorderings, 1);
    assert!(bench.tcb().flags.has(Flags::REORDERING));
    assert_eq!(bench.deadline(), (DeadlineKind::TailProbe, 205));
    bench.send();
    // Three SACKed segments no longer prove a loss.
    bench.ack_and_sack(2_001, &[(3_001, 7_001)]);
    assert_eq!(bench.deadline(), (DeadlineKind::Reordering, 25));
    assert_eq!(bench.counters().fast_retransmits, 0);
}

#[test]
fn a_retransmission_is_lost_when_later_data_has_arrived() {
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(1_001, 10_001)]);
    assert_eq!(bench.send()[0], "1:1001 A retransmitted");
    assert_eq!(bench.tcb().flight(), 14_000, "new data follows it");
    bench.pass_ms(RTT_MS);
    bench.ack_and_sack(1, &[(1_001, 11_001)]);
    assert_eq!(bench.counters().lost_again, 1);
    assert_eq!(bench.send()[0], "1:1001 A retransmitted");
    assert_eq!(bench.counters().fast_retransmits, 1, "no second reduction");
}

/// A connection in recovery: two duplicate ACKs let a new segment go each, and the third
/// retransmits the first segment.
fn recovering() -> Bench {
    let mut bench = sending(Offer::plain());
    for sent in ["10001:11001 A", "11001:12001 A", "1:1001 A retransmitted"] {
        bench.ack(1);
        assert_eq!(bench.send(), [sent]);
    }
    bench
}

#[test]
fn three_duplicate_acks_indicate_a_loss_without_sack() {
    let bench = recovering();
    assert_eq!(bench.counters().fast_retransmits, 1);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (5_000, 5_000));
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
}

#[test]
fn a_partial_ack_retransmits_the_next_gap_and_a_full_one_ends_recovery() {
    // RFC 6582, section 3.2.
    let mut bench = recovering();
    for una in [2_001, 5_001, 9_001] {
        bench.pass_ms(RTT_MS);
        bench.ack(una);
        assert_eq!(
            bench.send()[0],
            format!("{una}:{} A retransmitted", una + 1_000)
        );
        assert_eq!(bench.deadline().0, DeadlineKind::Retransmit);
    }
    bench.ack(9_001 + bench.tcb().flight());
    assert_eq!(bench.cwnd(), 5_000);
    assert_eq!(bench.tcb().recovery, NONE);
    assert_eq!(bench.counters().retransmits, 4);
    assert_eq!(bench.counters().timeouts, 0);
}

#[test]
fn only_bare_acks_with_the_same_window_are_duplicates() {
    // RFC 5681, section 2.
    let mut bench = sending(Offer::plain());
    for seq in [1, 2, 3, 4] {
        bench.recv(seq, 1, "PA", 1);
    }
    for window in [60_000, 50_000, 40_000, 30_000] {
        bench.window = window;
        bench.ack(1);
    }
    assert!(bench.send().is_empty());
    assert_eq!(bench.counters().fast_retransmits, 0);
}

#[test]
fn after_a_timeout_slow_start_begins_at_the_first_gap() {
    // RFC 5681, section 3.1; RFC 6298, 5.4.
    let mut bench = sending(Offer::plain());
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!((bench.cwnd(), bench.ssthresh()), (1_000, 5_000));
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 600));
    // The duplicate shows that the timeout was not spurious (RFC 5682).
    bench.ack(1);
    assert!(bench.send().is_empty());
    bench.ack(1_001);
    assert_eq!(
        bench.send(),
        ["1001:2001 A retransmitted", "2001:3001 A retransmitted"]
    );
    bench.ack(3_001);
    assert_eq!(bench.cwnd(), 3_000);
    let sent = [
        "3001:4001 A retransmitted",
        "4001:5001 A retransmitted",
        "5001:6001 A retransmitted",
    ];
    assert_eq!(bench.send(), sent);
}

#[test]
fn after_a_timeout_sacked_data_is_not_retransmitted() {
    // RFC 6675, section 5.1.
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(3_001, 5_001)]);
    while bench.counters().timeouts == 0 {
        bench.fire();
    }
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
    bench.ack_and_sack(2_001, &[(3_001, 5_001)]);
    assert_eq!(
        bench.send(),
        ["2001:3001 A retransmitted", "5001:6001 A retransmitted"]
    );
    assert_eq!(bench.counters().reneged, 0);
}

#[test]
fn after_a_timeout_earlier_segments_give_no_rtt_sample() {
    // The delay of data behind a gap would include the timeout.
    let mut bench = sending(Offer::default());
    bench.ack(1_001);
    assert_eq!(bench.send(), ["10001:11001 A", "11001:12001 A"]);
    while bench.counters().timeouts == 0 {
        bench.fire();
    }
    assert_eq!(bench.send(), ["1001:2001 A retransmitted"]);
    bench.pass_ms(RTT_MS);
    bench.ack(12_001);
    assert_eq!(bench.tcb().rtt.smoothed(), 100_000);
}

#[test]
fn a_peer_may_discard_data_that_it_has_sacked() {
    // RFC 2018, section 8.
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(1, 3_001)]);
    while bench.counters().timeouts == 0 {
        bench.fire();
    }
    assert_eq!(bench.counters().reneged, 1);
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
    bench.pass_ms(RTT_MS);
    bench.ack(1_001);
    assert_eq!(bench.send()[0], "1001:2001 A retransmitted");
}

#[test]
fn a_timeout_is_spurious_when_the_next_two_acks_advance() {
    // RFC 5682, section 2.1.
    let mut bench = sending(Offer::plain());
    bench.fire();
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
    bench.ack(1_001);
    assert_eq!(bench.send(), ["10001:11001 A", "11001:12001 A"]);
    bench.ack(2_001);
    assert_eq!(bench.counters().undone_by_arrival, 1);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (10_000, u32::MAX));
    assert_eq!(bench.counters().retransmits, 1);
}

#[test]
fn a_duplicate_ack_after_new_data_confirms_the_timeout() {
    let mut bench = sending(Offer::plain());
    bench.fire();
    bench.send();
    bench.ack(1_001);
    assert_eq!(bench.send(), ["10001:11001 A", "11001:12001 A"]);
    bench.ack(1_001);
    assert_eq!(bench.counters().undone, 0);
    assert_eq!(bench.send(), ["1001:2001 A retransmitted"]);
}

#[test]
fn an_echo_of_the_original_undoes_a_timeout() {
    // RFC 3522.
    let mut bench = Offer::stamped().open();
    bench.write(20_000);
    bench.send();
    let echo = bench.moment().millis;
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
    bench.stamps = Some(Timestamps { value: 1, echo });
    bench.ack(1_001);
    assert_eq!(bench.counters().undone_by_echo, 1);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (10_000, u32::MAX));
    assert_eq!(bench.send(), ["10001:11001 A"]);
    assert_eq!(bench.counters().retransmits, 1);
}

#[test]
fn an_echo_of_the_retransmission_undoes_nothing() {
    let mut bench = Offer::stamped().open();
    bench.write(20_000);
    bench.send();
    assert_eq!(bench.fire(), "Transmit");
    bench.send();
    let echo = bench.moment().millis;
    bench.pass_ms(RTT_MS);
    bench.stamps = Some(Timestamps { value: 1, echo });
    bench.ack(1_001);
    assert_eq!(bench.counters().undone, 0);
    assert_eq!(bench.ssthresh(), 5_000);
}

#[test]
fn a_reduction_is_undone_when_all_retransmissions_were_duplicates() {
    // RFC 3708.
    let mut bench = sending(Offer::default());
    bench.ack_and_sack(1, &[(1_001, 4_001)]);
    assert_eq!(bench.send()[0], "1:1001 A retransmitted");
    assert_eq!(bench.ssthresh(), 5_000);
    let end = 1 + bench.tcb().flight();
    bench.pass_ms(RTT_MS);
    bench.ack(end);
    assert_eq!(bench.ssthresh(), 5_000);
    bench.send();
    bench.ack_and_sack(end, &[(1, 1_001)]);
    assert_eq!(bench.counters().undone_by_duplicates, 1);
    assert_eq!(bench.ssthresh(), u32::MAX);
}

#[test]
fn nothing_is_retransmitted_beyond_the_peers_window() {
    let mut bench = sending(Offer::plain());
    bench.window = 1_500;
    bench.ack(1);
    bench.fire();
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
    bench.ack(1);
    bench.window = 0;
    bench.ack(1_001);
    assert!(bench.send().is_empty());
}
