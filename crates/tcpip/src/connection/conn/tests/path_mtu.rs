//! Tests of path MTU discovery (RFC 1191, RFC 4821, RFC 5927, RFC 8899).

use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::connection::{DeadlineKind, Flags};

/// Total size in bytes of the IPv4 header and the TCP header with timestamps.
const HEADERS: u32 = 52;

/// A connection with ten segments in flight, and much more data to send.
fn sending(mss: u16) -> Bench {
    let mut bench = Offer {
        mss,
        ..Offer::plain()
    }
    .open();
    bench.write(200_000);
    assert_eq!(bench.send().len(), 10);
    bench
}

#[test]
fn a_smaller_path_mtu_is_accepted_only_for_data_in_flight() {
    // A report must concern data in flight and reduce the segment size (RFC 5927).
    for (mtu, seq, mss) in [
        (900, 1, Some(848)),
        (900, 10_000, Some(848)),
        (900, 10_001, None),
        (900, 0, None),
        (1_051, 1, Some(999)),
        (1_052, 1, None),
        (1_500, 1, None),
        // A tiny MTU is raised to the minimum that every host accepts (RFC 1122).
        (68, 1, Some(524)),
    ] {
        let mut bench = sending(1_000);
        assert_eq!(bench.too_big(mtu, seq), mss.is_some(), "{mtu}, {seq}");
        assert_eq!(bench.tcb().mss, mss.unwrap_or(1_000));
    }
    let mut bench = Offer::plain().open();
    assert!(!bench.too_big(900, 1), "nothing is in flight");
}

/// A connection whose segments of 1,000 bytes were reduced to 600, with nothing in flight.
fn reduced() -> Bench {
    let mut bench = Offer::default().open();
    bench.write(10_000);
    bench.send();
    assert!(bench.too_big(600 + HEADERS, 1));
    bench.send();
    bench.pass_ms(RTT_MS);
    bench.ack(10_001);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 60_000));
    bench
}

/// The connection of [`reduced`] ten minutes later, after it has sent a probe.
fn probing() -> Bench {
    let mut bench = reduced();
    bench.pass_ms(600_000);
    bench.write(200_000);
    assert_eq!(bench.send()[0], "10001:11001 A probes path MTU");
    bench
}

#[test]
fn a_larger_path_mtu_is_probed_after_ten_minutes() {
    // After an ICMP report, a larger MTU is tried after ten minutes (RFC 1191, section 6.3).
    let mut bench = reduced();
    bench.pass_ms(590_000);
    bench.write(200_000);
    assert_eq!(bench.send()[0], "10001:10601 A");
    let mut bench = probing();
    assert_eq!(bench.counters().mtu_probes, 1);
    assert_eq!(bench.tcb().mss, 600);
    bench.pass_ms(RTT_MS);
    bench.ack(11_001);
    assert_eq!(bench.counters().path_mtu_raises, 1);
    assert_eq!(bench.tcb().mss, 1_000);
    assert_eq!(
        bench.send()[0],
        "20801:21001 A",
        "the segment ends at the next boundary"
    );
    assert!(!bench.tcb().flags.intersects(Flags::REDUCED_MTU));
}

#[test]
fn the_third_lost_probe_ends_the_search_and_no_lost_probe_signals_congestion() {
    // A size fails after three lost probes (RFC 8899: MAX_PROBES). A lost probe is not a sign of
    // congestion (RFC 4821, section 7.5).
    let mut bench = probing();
    for probes in 1..=3 {
        let una = bench.una();
        let end = una + bench.tcb().flight();
        bench.pass_ms(RTT_MS);
        bench.ack_and_sack(una, &[(una + 1_000, end)]);
        assert_eq!(bench.counters().mtu_probes, probes);
        assert_eq!(bench.ssthresh(), u32::MAX, "no congestion");
        assert_eq!(
            bench.send()[0],
            format!("{una}:{} A retransmitted", una + 600)
        );
        bench.pass_ms(RTT_MS);
        bench.ack(una + bench.tcb().flight());
        let sent = bench.send();
        let is_probe = sent[0].ends_with("probes path MTU");
        assert_eq!(is_probe, probes < 3, "{sent:?}");
    }
    assert_eq!(bench.counters().path_mtu_raises, 0);
    assert_eq!(bench.tcb().mss, 600);
    assert!(
        bench.tcb().flags.intersects(Flags::REDUCED_MTU),
        "the MTU is probed again later"
    );
}
