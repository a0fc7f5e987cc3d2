//! Tests of deadlines and their bounds (RFC 6298; RFC 8985, section 7; RFC 9293, section 3.8.6.1).

use std::time::Duration;

use crate::Config;
use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::connection::{DeadlineKind, Flags};
use crate::outcome::ControlSegment;
use crate::wire::Timestamps;

/// The RTO in milliseconds after a first round trip of `rtt_ms` milliseconds.
fn first_timeout(rtt_ms: u64, config: Config) -> u32 {
    let plain = Offer::plain();
    let mut bench = Offer { config, ..plain }.half_open();
    bench.establish(rtt_ms);
    bench.write(1);
    bench.send();
    let (kind, after) = bench.deadline();
    assert_eq!(kind, DeadlineKind::Retransmit);
    after
}

#[test]
fn the_first_timeout_is_three_round_trips_within_its_bounds() {
    // RFC 6298, 2.2: the first RTO is R + 4 * R/2. Rules 2.4 and 2.5 define the bounds.
    for (rtt_ms, timeout) in [
        (1, 200),
        (66, 200),
        (67, 201),
        (500, 1_500),
        (20_000, 60_000),
        (30_000, 60_000),
    ] {
        let after = first_timeout(rtt_ms, Config::default());
        assert_eq!(after, timeout, "a round trip of {rtt_ms} ms");
    }
    let min_rto = |millis| Config {
        min_rto: Duration::from_millis(millis),
        ..Config::default()
    };
    assert_eq!(first_timeout(10, min_rto(5)), 30);
    assert_eq!(first_timeout(10, min_rto(1_000)), 1_000);
}

/// A connection without SACK, with a single segment in flight.
fn with_one_segment(config: Config) -> Bench {
    let plain = Offer::plain();
    let mut bench = Offer { config, ..plain }.open();
    bench.write(1_000);
    assert_eq!(bench.send(), ["1:1001 PA"]);
    bench
}

#[test]
fn a_timestamp_echo_measures_the_rtt_of_a_retransmission() {
    // The TSecr tells which transmission was received (RFC 7323, section 4).
    let mut bench = Offer::stamped().open();
    bench.write(1_000);
    bench.send();
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.send(), ["1:1001 PA retransmitted"]);
    let echo = bench.moment().millis;
    bench.pass_ms(80);
    bench.stamps = Some(Timestamps {
        tsval: 1,
        tsecr: echo,
    });
    bench.ack(1_001);
    assert_eq!(bench.tcb().rtt.smoothed(), 97_500);
    assert_eq!(bench.tcb().rtt.variation(), 42_500);
    assert_eq!(bench.conn().rto(), 268);
}

/// Delay in milliseconds of the tail loss probe for `segments` segments in flight, after a first
/// round trip of `rtt_ms` milliseconds.
fn probe_after(rtt_ms: u64, segments: u32) -> u32 {
    let mut bench = Offer::default().half_open();
    bench.establish(rtt_ms);
    bench.write(segments * 1_000);
    bench.send();
    let (kind, after) = bench.deadline();
    assert_eq!(kind, DeadlineKind::TailProbe);
    after
}

#[test]
fn a_tail_is_probed_after_two_round_trips() {
    // The probe is sent after two round trips without an ACK (RFC 8985, section 7.2).
    assert_eq!(probe_after(400, 2), 800);
    assert_eq!(probe_after(400, 1), 1_000, "its ACK may be delayed");
    assert_eq!(probe_after(100, 1), 300, "never later than the timeout");
    assert_eq!(probe_after(3, 2), 10, "never sooner than 10 ms");
}

#[test]
fn deadlines_survive_the_wrap_of_their_clock() {
    let mut bench = with_one_segment(Config::default());
    // The millisecond clock wraps around after 49 days.
    bench.pass_ms(RTT_MS);
    bench.ack(1_001);
    let left = u64::from(u32::MAX - bench.moment().millis);
    bench.pass_ms(left - 99);
    bench.write(1_000);
    bench.send();
    assert_eq!(bench.deadline().0, DeadlineKind::Retransmit);
    let before = bench.elapsed_ms();
    let after = u64::from(bench.deadline().1);
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.elapsed_ms() - before, after);
    assert_eq!(after, 250);
    assert_eq!(bench.moment().millis, 150);
}

/// A connection with ten segments that were sent a round trip ago, and with ten more to send.
fn sending(offer: Offer) -> Bench {
    let mut bench = offer.open();
    bench.write(20_000);
    assert_eq!(bench.send().len(), 10);
    bench.pass_ms(RTT_MS);
    bench
}

#[test]
fn after_a_timeout_earlier_segments_give_no_rtt_sample() {
    // The round trip of data beyond a gap would include the timeout.
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

/// A connection with `len` bytes to send, whose peer has closed its window before any data was
/// sent.
fn zero_window(len: u32, config: Config) -> Bench {
    let plain = Offer::plain();
    let mut bench = Offer { config, ..plain }.open();
    bench.window = 0;
    bench.ack(1);
    bench.write(len);
    assert!(bench.send().is_empty());
    assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, 300));
    bench
}

#[test]
fn a_zero_window_is_probed_with_one_byte_and_exponential_backoff() {
    // A zero window must be probed (RFC 9293, section 3.8.6.1). At least four probes fit into a
    // user timeout.
    let mut bench = zero_window(5_000, Config::default());
    let doubled = [600, 1_200, 2_400, 4_800, 9_600, 19_200];
    for next in doubled.into_iter().chain([30_000, 30_000, 21_900]) {
        assert_eq!(bench.fire(), "1:2 A probes window");
        assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, next));
    }
    assert_eq!(bench.counters().window_probes, 9);
    assert_eq!(bench.counters().timeouts, 0);
    assert_eq!(bench.cwnd(), 10_000, "a zero window is no congestion");
    assert_eq!(bench.fire(), "Reset");
    assert_eq!(bench.elapsed_ms(), RTT_MS + 120_000);
    let now = bench.moment();
    let reset = bench.conn().control_segment(ControlSegment::Reset, now).0;
    assert_eq!(
        reset.seq,
        bench.tcb().snd_una,
        "the peer has dropped the probe"
    );
}

#[test]
fn data_is_offered_with_growing_delays_to_an_application_without_room() {
    let mut bench = Offer::default().open();
    bench.tcb_mut().flags |= Flags::WANTS_ROOM;
    let now = bench.moment();
    bench.conn().wait_for_room(now);
    let mut waits = vec![bench.deadline().1];
    while bench.fire() == "OfferAgain" && waits.len() < 10 {
        let now = bench.moment();
        bench.conn().has_offered_again(now);
        assert_eq!(bench.deadline().0, DeadlineKind::Idle);
        waits.push(bench.deadline().1);
    }
    assert_eq!(waits, [20, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    // The wait for room ends with the idle timeout.
    bench.pass_ms(60_000);
    let now = bench.moment();
    bench.conn().has_offered_again(now);
    assert_eq!(bench.counters().idle_closed, 1);
}

#[test]
fn the_round_trip_of_a_handshake_is_counted() {
    let mut bench = Offer::plain().half_open();
    bench.establish(100);
    let rtts = bench.counters().handshake_rtts;
    assert_eq!(rtts.micros(), 100_000);
    assert_eq!(rtts.ranges().iter().sum::<u64>(), 1);
    bench.write(1_000);
    bench.send();
    bench.pass_ms(50);
    bench.ack(1_001);
    assert_eq!(bench.counters().handshake_rtts, rtts);

    // The ACK may answer either SYN-ACK, so the round trip is unknown.
    let mut bench = Offer::plain().half_open();
    bench.fire();
    bench.establish(100);
    assert_eq!(bench.counters().handshake_rtts.micros(), 0);
}
