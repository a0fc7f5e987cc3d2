//! Deadlines: RFC 6298, and the tail loss probes of RFC 8985, section 7.

use std::time::Duration;

use crate::Config;
use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::connection::{DeadlineKind, State};
use crate::wire::Timestamps;

/// A configuration without a user timeout, so that only retries count.
fn no_user_timeout() -> Config {
    Config {
        user_timeout: None,
        ..Config::default()
    }
}

#[test]
fn a_syn_ack_is_retransmitted_after_one_three_and_seven_seconds() {
    let mut bench = Offer::default().half_open();
    assert_eq!(bench.deadline(), (DeadlineKind::Handshake, 1_000));
    for next in [2_000, 4_000, 8_000] {
        assert_eq!(bench.fire(), "0:1 SA");
        assert_eq!(bench.deadline(), (DeadlineKind::Handshake, next));
    }
    assert_eq!(bench.counters().handshakes_failed, 0);
    assert_eq!(bench.fire(), "Forget");
    assert_eq!(bench.elapsed_ms(), 15_000);
    assert_eq!(bench.counters().handshakes_failed, 1);
}

#[test]
fn each_event_sets_its_kind_of_deadline() {
    let mut bench = Offer::default().open();
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 60_000));
    bench.write(3_500);
    bench.send();
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::TailProbe, 200),
        "first data"
    );
    bench.pass_ms(RTT_MS);
    bench.ack(1_001);
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::TailProbe, 200),
        "a part is acknowledged"
    );
    // After a second sample of 100 ms RTTVAR is 37.5 ms and the RTO 250 ms. That is less
    // than two round trips plus the delay of a lone segment's ACK.
    bench.ack(3_001);
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::TailProbe, 250),
        "a lone segment is left"
    );
    bench.ack(3_501);
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::Idle, 60_000),
        "all is acknowledged"
    );
    bench.close();
    assert_eq!(bench.send(), ["3501:3502 FA"]);
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::TailProbe, 250),
        "the FIN is sent"
    );
    assert_eq!(bench.tcb().state, State::FinWait1);
    bench.ack(3_502);
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::FinWait, 30_000),
        "the FIN is acknowledged"
    );
    assert_eq!(bench.tcb().state, State::FinWait2);
    assert_eq!(bench.fire(), "TimeOut");
}

#[test]
fn without_sack_the_only_deadline_is_the_rto() {
    let mut bench = Offer::plain().open();
    bench.write(3_500);
    bench.send();
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
    bench.pass_ms(RTT_MS);
    bench.ack(1_001);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 250));
    bench.ack(3_501);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 60_000));
}

/// The RTO after a first round trip of `rtt_ms`.
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
    // RFC 6298, 2.2: R + 4 * R/2; 2.4 and 2.5.
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

#[test]
fn the_timeout_follows_the_round_trip_and_its_variation() {
    // RFC 6298, 2.3: RTTVAR and then SRTT, with weights of 1/4 and 1/8.
    let mut bench = Offer::plain().open();
    let mut una = 1;
    for (rtt_ms, timeout) in [(100, 250), (180, 303), (20, 334), (100, 276)] {
        bench.write(1_000);
        bench.send();
        bench.pass_ms(rtt_ms);
        una += 1_000;
        bench.ack(una);
        assert_eq!(bench.conn().rto(), timeout, "after {rtt_ms} ms");
    }
}

/// A connection without SACK whose only segment is never acknowledged.
fn unanswered(config: Config) -> Bench {
    let plain = Offer::plain();
    let mut bench = Offer { config, ..plain }.open();
    bench.write(1_000);
    assert_eq!(bench.send(), ["1:1001 PA"]);
    bench
}

#[test]
fn the_timeout_doubles_to_its_bound_and_ends_with_the_last_retry() {
    let mut bench = unanswered(no_user_timeout());
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
    let doubled = [600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400];
    for next in doubled.into_iter().chain([60_000; 3]) {
        assert_eq!(bench.fire(), "Transmit");
        assert_eq!(bench.send(), ["1:1001 PA retransmitted"]);
        assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, next));
    }
    assert_eq!(bench.counters().timeouts, 10);
    assert_eq!(bench.fire(), "TimeOut");
    assert_eq!(bench.counters().timeouts, 10);
    assert_eq!(bench.counters().retransmits, 10);
}

#[test]
fn the_user_timeout_shortens_the_last_interval() {
    let mut bench = unanswered(Config::default());
    for _ in 0..8 {
        assert_eq!(bench.fire(), "Transmit");
        assert_eq!(bench.send(), ["1:1001 PA retransmitted"]);
    }
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 43_500));
    assert_eq!(bench.fire(), "TimeOut");
    assert_eq!(bench.elapsed_ms(), RTT_MS + 120_000);
}

#[test]
fn a_retransmission_gives_no_rtt_sample() {
    // Karn's algorithm: RFC 6298, section 3. The RTO stays doubled until a round trip is
    // measured (5.7).
    let mut bench = unanswered(Config::default());
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.send(), ["1:1001 PA retransmitted"]);
    bench.pass_ms(50);
    bench.ack(1_001);
    assert_eq!(bench.tcb().rtt.smoothed(), 100_000);
    bench.write(1_000);
    bench.send();
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 600));
    bench.pass_ms(RTT_MS);
    bench.ack(2_001);
    bench.write(1_000);
    bench.send();
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 250));
}

#[test]
fn an_echo_measures_a_retransmission() {
    // RFC 7323, section 4: timestamps identify the transmission.
    let mut bench = Offer::stamped().open();
    bench.write(1_000);
    bench.send();
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.send(), ["1:1001 PA retransmitted"]);
    let echo = bench.moment().millis;
    bench.pass_ms(80);
    bench.stamps = Some(Timestamps { value: 1, echo });
    bench.ack(1_001);
    assert_eq!(bench.tcb().rtt.smoothed(), 97_500);
    assert_eq!(bench.tcb().rtt.variation(), 42_500);
    assert_eq!(bench.conn().rto(), 268);
}

#[test]
fn acks_of_no_new_data_do_not_restart_the_timer() {
    // RFC 6298, 5.3: only an ACK of new data does.
    let mut bench = Offer::plain().open();
    bench.write(3_000);
    bench.send();
    bench.pass_ms(RTT_MS);
    bench.ack(1);
    bench.ack(1);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 200));
}

/// Time to the tail loss probe of some segments, after a first round trip of `rtt_ms`.
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
    // RFC 8985, section 7.2.
    assert_eq!(probe_after(400, 2), 800);
    assert_eq!(probe_after(400, 1), 1_000, "its ACK may be delayed");
    assert_eq!(probe_after(100, 1), 300, "never later than the timeout");
    assert_eq!(probe_after(3, 2), 10, "never sooner than 10 ms");
}

#[test]
fn a_second_segment_brings_the_probe_forward() {
    let mut bench = Offer::default().half_open();
    bench.establish(400);
    bench.write(1_000);
    bench.send();
    bench.pass_ms(50);
    assert_eq!(bench.deadline(), (DeadlineKind::TailProbe, 950));
    bench.write(1_000);
    bench.send();
    assert_eq!(bench.deadline(), (DeadlineKind::TailProbe, 800));
    bench.pass_ms(50);
    bench.write(1_000);
    bench.send();
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::TailProbe, 750),
        "never delayed"
    );
}

#[test]
fn a_tail_is_probed_with_new_data_beyond_the_congestion_window() {
    // RFC 8985, section 7.3.
    let mut bench = Offer::default().open();
    bench.write(20_000);
    assert_eq!(bench.send().len(), 10);
    assert_eq!(bench.fire(), "10001:11001 A probes tail");
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
    assert_eq!(bench.counters().tail_probes, 1);
    assert_eq!(bench.counters().retransmits, 0);
    assert_eq!(bench.fire(), "Transmit");
    assert_eq!(bench.counters().timeouts, 1);
}

#[test]
fn a_tail_without_new_data_is_probed_with_its_last_segment() {
    let mut bench = Offer::default().open();
    bench.write(3_500);
    bench.close();
    bench.send();
    assert_eq!(bench.fire(), "3001:3502 FPA retransmits tail");
    assert_eq!(bench.counters().retransmits, 1);
    assert_eq!(bench.tcb().snd_nxt, bench.tcb().limit());
}

#[test]
fn new_data_beyond_the_peers_window_is_no_tail_probe() {
    let mut bench = Offer {
        window: 5_500,
        ..Offer::default()
    }
    .open();
    bench.write(20_000);
    assert_eq!(bench.send().len(), 5);
    assert_eq!(bench.fire(), "4001:5001 A retransmits tail");
}

#[test]
fn a_probe_that_repairs_a_loss_is_congestion() {
    // RFC 8985, section 7.4.2.
    let mut bench = Offer::default().open();
    bench.write(10_000);
    bench.send();
    assert_eq!(bench.fire(), "9001:10001 PA retransmits tail");
    bench.pass_ms(RTT_MS);
    bench.ack(10_001);
    assert_eq!(bench.counters().tail_losses, 1);
    assert_eq!(bench.ssthresh(), 5_000);
    // More than a window was acknowledged at once.
    assert_eq!(bench.cwnd(), 6_000);
}

#[test]
fn a_probe_with_a_dsack_is_no_congestion() {
    let mut bench = Offer::default().open();
    bench.write(10_000);
    bench.send();
    assert_eq!(bench.fire(), "9001:10001 PA retransmits tail");
    bench.pass_ms(RTT_MS);
    bench.ack_and_sack(10_001, &[(9_001, 10_001)]);
    assert_eq!(bench.counters().tail_losses, 0);
    assert_eq!(bench.counters().duplicates_reported, 1);
    assert_eq!(bench.ssthresh(), u32::MAX);
    assert_eq!(bench.cwnd(), 12_000);
}

#[test]
fn deadlines_survive_the_wrap_of_their_clock() {
    let mut bench = unanswered(Config::default());
    // Milliseconds wrap after 49 days.
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
