//! Tests of the boundaries of segments and runs, and of the segments that carry PSH or FIN.

use crate::connection::conn::testing::{Bench, Offer};
use crate::connection::{DeadlineKind, Plan};

/// Total size in bytes of the IPv4 header and the TCP header with timestamps.
const HEADERS: usize = 52;

/// Sends all segments that may be sent now. Returns each segment's offset in its content item, its
/// length, and the index of its prepared segment.
fn segments(bench: &mut Bench) -> Vec<(u32, u32, Option<u32>)> {
    let plans = bench.plans();
    let from = |plan: &Plan| plan.slice.from;
    plans
        .iter()
        .map(|plan| (from(plan), plan.len, plan.prepared))
        .collect()
}

#[test]
fn a_whole_content_consists_of_prepared_segments() {
    let mut bench = Offer::default().open();
    bench.write(2_500);
    let expected = [
        (0, 1_000, Some(0)),
        (1_000, 1_000, Some(1)),
        (2_000, 500, Some(2)),
    ];
    assert_eq!(segments(&mut bench), expected);
}

#[test]
fn a_slice_has_the_boundaries_of_its_content() {
    // All but the first and the last segment of the slice are prepared.
    let mut bench = Offer::default().open();
    bench.write_slice(300..3_500, 5_000);
    let expected = [
        (300, 700, None),
        (1_000, 1_000, Some(1)),
        (2_000, 1_000, Some(2)),
        (3_000, 500, None),
    ];
    assert_eq!(segments(&mut bench), expected);
    // If a slice begins at a segment boundary, and ends at one or with its content item, all its
    // segments are prepared.
    bench.write_slice(3_000..4_000, 4_500);
    bench.write_slice(4_000..4_500, 4_500);
    let expected = [(3_000, 1_000, Some(3)), (4_000, 500, Some(4))];
    assert_eq!(segments(&mut bench), expected);
}

#[test]
fn a_slice_within_a_segment_is_sent_as_one_segment() {
    // A slice within a segment is, for example, the head of a response without its body.
    let mut bench = Offer::default().open();
    bench.write_slice(0..300, 5_000);
    bench.write_slice(1_200..1_201, 5_000);
    assert_eq!(segments(&mut bench), [(0, 300, None), (1_200, 1, None)]);
}

#[test]
fn bytes_outside_any_content_are_never_prepared() {
    let mut bench = Offer::default().open();
    bench.write_bytes(1_500);
    assert_eq!(segments(&mut bench), [(0, 1_000, None), (1_000, 500, None)]);
}

#[test]
fn more_than_two_stream_entries_use_a_list_and_are_sent_in_order() {
    let mut bench = Offer::default().open();
    for len in [100, 200, 300, 400, 500] {
        bench.write(len);
    }
    let sent = [
        "1:101 PA",
        "101:301 PA",
        "301:601 PA",
        "601:1001 PA",
        "1001:1501 PA",
    ];
    assert_eq!(bench.send(), sent);
    // Entries move from the list into the TCB when earlier entries are acknowledged.
    bench.ack(350);
    bench.write(50);
    assert_eq!(bench.send(), ["1501:1551 PA"]);
    assert_eq!(bench.fire(), "1501:1551 PA retransmits tail");
    bench.ack(1_551);
    assert!(bench.tcb().stream.is_empty());
}

/// A connection with a content item of 20,000 bytes to send, on a port that accepts super-segments
/// of up to `max` bytes.
fn running(max: usize) -> Bench {
    let mut bench = Offer::marked().open();
    bench.segmentation = max;
    bench.write(20_000);
    bench
}

#[test]
fn a_run_has_as_many_whole_segments_as_fit_into_a_packet() {
    for (max, runs) in [
        (65_535, vec!["1:10001 A"]),
        (
            3 * 1_000 + HEADERS,
            vec!["1:3001 A", "3001:6001 A", "6001:9001 A", "9001:10001 A"],
        ),
        (
            4 * 1_000 + HEADERS - 1,
            vec!["1:3001 A", "3001:6001 A", "6001:9001 A", "9001:10001 A"],
        ),
        (5 * 1_000 + HEADERS, vec!["1:5001 A", "5001:10001 A"]),
    ] {
        let mut bench = running(max);
        let plans = bench.plans();
        let is_run: Vec<bool> = plans.iter().map(|plan| plan.len > 1_000).collect();
        assert!(plans.iter().map(|plan| plan.is_run).eq(is_run));
        let mut bench = running(max);
        assert_eq!(bench.send(), runs, "packets of {max} bytes");
    }
    assert_eq!(running(2 * 1_000 + HEADERS - 1).send().len(), 10);
}

#[test]
fn a_run_ends_before_a_long_entry() {
    // The second entry is one byte longer than the entries that are sent together with others.
    let mut bench = Offer::default().open();
    bench.segmentation = 65_535;
    bench.write(2_500);
    bench.write_slice(300..16_685, 20_000);
    bench.write(100);
    let plans = bench.plans();
    let runs: Vec<_> = plans.iter().map(|plan| (plan.len, plan.is_run)).collect();
    // A run of an entry that is a part of its content begins at any byte.
    assert_eq!(runs, [(2_500, true), (7_000, true)]);
    bench.ack(9_501);
    // The end of the long entry is short enough.
    assert_eq!(bench.send(), ["9501:18986 PA"]);
    assert_eq!(bench.tcb().snd_nxt, bench.tcb().limit());
}

/// A connection with entries of these lengths to send, on a port that accepts super-segments of up
/// to `max` bytes.
fn with_entries(max: usize, lens: &[u32]) -> Bench {
    let mut bench = Offer::default().open();
    bench.segmentation = max;
    for len in lens {
        bench.write(*len);
    }
    bench
}

#[test]
fn short_entries_are_sent_as_one_run() {
    let mut bench = with_entries(65_535, &[100, 2_200]);
    bench.write_bytes(1_300);
    bench.write_slice(300..500, 5_000);
    bench.close();
    assert_eq!(bench.send(), ["1:3802 FPA"]);
    assert!(with_entries(65_535, &[100, 200]).plans()[0].is_run);
    assert_eq!(with_entries(0, &[100, 200]).send().len(), 2);
}

#[test]
fn a_run_of_short_entries_ends_where_the_window_or_the_packet_does() {
    let mut bench = with_entries(65_535, &[1_500; 8]);
    // The congestion window has room for six entries, and for the first segment of the seventh.
    assert_eq!(bench.send(), ["1:9001 PA", "9001:10001 A"]);
    bench.ack(10_001);
    assert_eq!(bench.send(), ["10001:12001 PA"]);
    let mut bench = with_entries(4_000 + HEADERS, &[1_500, 1_500, 1_000, 1, 999]);
    assert_eq!(bench.send(), ["1:4001 PA", "4001:5001 PA"]);
    let mut bench = with_entries(3_999 + HEADERS, &[1_500, 1_500, 1_000, 1, 999]);
    assert_eq!(bench.send(), ["1:3001 PA", "3001:5001 PA"]);
}

#[test]
fn a_run_of_short_entries_is_retransmitted_entry_by_entry() {
    let mut bench = Offer::plain().open();
    bench.segmentation = 65_535;
    for _ in 0..5 {
        bench.write(600);
    }
    assert_eq!(bench.send(), ["1:3001 PA"]);
    // The first 1,000 bytes, a whole segment, have arrived.
    bench.ack(1_001);
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.send(), ["1001:1201 PA retransmitted"]);
    bench.ack(1_201);
    assert_eq!(bench.send(), ["1201:1801 PA retransmitted"]);
    bench.ack(1_801);
    let retransmitted = ["1801:2401 PA retransmitted", "2401:3001 PA retransmitted"];
    assert_eq!(bench.send(), retransmitted);
}

#[test]
fn a_segment_with_cwr_is_not_part_of_a_run() {
    let mut bench = running(65_535);
    bench.send();
    bench.ack_ece(5_001);
    assert_eq!(bench.cwnd(), 8_000);
    bench.ack(10_001);
    let plans = bench.plans();
    let runs: Vec<_> = plans.iter().map(|plan| (plan.len, plan.is_run)).collect();
    assert_eq!(runs, [(1_000, false), (7_000, true)]);
}

#[test]
fn a_run_is_retransmitted_in_segments() {
    let mut bench = Offer::plain().open();
    bench.segmentation = 65_535;
    bench.write(10_000);
    assert_eq!(bench.send(), ["1:10001 PA"]);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
}

#[test]
fn the_first_segment_of_a_run_is_timed() {
    let mut bench = running(65_535);
    bench.send();
    bench.pass_ms(100);
    bench.ack(1_001);
    assert_eq!(bench.tcb().rtt.variation(), 37_500);
}
