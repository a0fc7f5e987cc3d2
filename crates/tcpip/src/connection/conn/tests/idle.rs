//! Zero-window probes, keep-alives, and the end of unresponsive peers.

use std::time::Duration;

use crate::Config;
use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::connection::{DeadlineKind, Flags, State};
use crate::outcome::ControlSegment;

/// A peer that closes its window before anything is sent, with `len` bytes to send.
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
    // RFC 9293, section 3.8.6.1; at least four probes in a user timeout.
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
fn a_peer_that_answers_probes_may_keep_a_zero_window() {
    // RFC 6429, section 3.
    let mut bench = zero_window(5_000, Config::default());
    for _ in 0..30 {
        assert_eq!(bench.fire(), "1:2 A probes window");
        bench.pass_ms(RTT_MS);
        bench.ack(1);
    }
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::ZeroWindow, 30_000 - RTT_MS as u32)
    );
    assert_eq!(bench.counters().window_probes, 30);
    assert_eq!(bench.tcb().retries, 0);
}

#[test]
fn ten_unanswered_probes_end_the_connection() {
    let config = Config {
        user_timeout: None,
        ..Config::default()
    };
    let mut bench = zero_window(5_000, config);
    for _ in 0..10 {
        assert_eq!(bench.fire(), "1:2 A probes window");
    }
    assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, 60_000));
    assert_eq!(bench.fire(), "Reset");
}

#[test]
fn an_opened_window_gets_the_probe_again_with_the_data_after_it() {
    let mut bench = zero_window(2_500, Config::default());
    bench.fire();
    bench.pass_ms(RTT_MS);
    bench.window = 65_535;
    bench.ack(1);
    assert_eq!(bench.send(), ["1:1001 A", "1001:2001 A", "2001:2501 PA"]);
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::Retransmit, 300),
        "no longer doubled"
    );
    assert_eq!(bench.counters().retransmits, 0);
}

#[test]
fn an_opened_window_whose_peer_took_the_probe_gets_the_rest() {
    let mut bench = zero_window(2_500, Config::default());
    bench.fire();
    bench.window = 65_535;
    bench.ack(2);
    assert_eq!(bench.send(), ["2:1001 A", "1001:2001 A", "2001:2501 PA"]);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
}

#[test]
fn probing_ends_when_everything_was_sent() {
    let mut bench = zero_window(1, Config::default());
    assert_eq!(bench.fire(), "1:2 PA probes window");
    bench.ack(2);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 60_000));
    assert_eq!(bench.conn().rto(), 300);
}

#[test]
fn a_fin_probes_a_zero_window_when_no_data_is_left() {
    let mut bench = Offer::plain().open();
    bench.window = 0;
    bench.ack(1);
    bench.close();
    assert!(bench.send().is_empty());
    assert_eq!(bench.fire(), "1:2 FA probes window");
    assert_eq!(bench.tcb().state, State::FinWait1);
    assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, 600));
}

#[test]
fn a_window_that_becomes_zero_with_data_in_flight_is_probed_at_the_timeout() {
    let mut bench = Offer::plain().open();
    bench.write(3_000);
    bench.send();
    bench.pass_ms(RTT_MS);
    bench.window = 0;
    bench.ack(1_001);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 250));
    assert_eq!(bench.fire(), "1001:1002 A probes window");
    assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, 500));
    assert_eq!(bench.counters().timeouts, 0);
    // Data beyond the window is retransmitted, without congestion.
    bench.window = 65_535;
    bench.ack(1_001);
    assert_eq!(
        bench.send(),
        ["1001:2001 A retransmitted", "2001:3001 PA retransmitted"]
    );
    assert_eq!(bench.cwnd(), 10_000);
    assert_eq!(bench.ssthresh(), u32::MAX);
}

/// A connection with keep-alives every 10 s, at most `probes` of them unanswered.
fn keep_alive(probes: u8) -> Bench {
    let config = Config {
        keep_alive: Some(Duration::from_secs(10)),
        probes,
        ..Config::default()
    };
    let plain = Offer::plain();
    Offer { config, ..plain }.open()
}

#[test]
fn a_keep_alive_begins_one_number_before_the_next() {
    // RFC 1122, section 4.2.3.6.
    let mut bench = keep_alive(3);
    bench.write(1_000);
    bench.send();
    bench.pass_ms(RTT_MS);
    bench.ack(1_001);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 10_000));
    for retries in 1..=3 {
        assert_eq!(bench.fire(), "1000:1000 A keep-alive");
        assert_eq!(bench.deadline(), (DeadlineKind::KeepAlive, 10_000));
        assert_eq!(bench.tcb().retries, retries);
    }
    assert_eq!(bench.fire(), "Reset");
    assert_eq!(bench.elapsed_ms(), 2 * RTT_MS + 40_000);
}

#[test]
fn keep_alives_end_with_the_idle_timeout() {
    let mut bench = keep_alive(3);
    for _ in 0..5 {
        assert_eq!(bench.fire(), "0:0 A keep-alive");
        bench.ack(1);
        assert_eq!(bench.tcb().retries, 0);
        assert_eq!(bench.deadline(), (DeadlineKind::KeepAlive, 10_000));
    }
    assert_eq!(bench.fire(), "CloseIdle");
    assert_eq!(bench.elapsed_ms(), RTT_MS + 60_000);
}

#[test]
fn data_ends_the_idle_period() {
    let mut bench = keep_alive(3);
    bench.fire();
    bench.fire();
    bench.recv(1, 1, "PA", 10);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 10_000));
    assert_eq!(bench.fire(), "0:0 A keep-alive");
    assert_eq!(bench.tcb().retries, 1);
}

#[test]
fn an_idle_connection_closes() {
    let mut bench = Offer::default().open();
    assert_eq!(bench.fire(), "CloseIdle");
    assert_eq!(bench.counters().idle_closed, 1);
    assert!(bench.tcb().flags.has(Flags::CLOSE));
    assert_eq!(bench.send(), ["1:2 FA"]);
    assert_eq!(bench.deadline(), (DeadlineKind::TailProbe, 300));
}

#[test]
fn an_application_without_room_is_offered_again_with_growing_delays() {
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
fn after_an_idle_period_longer_than_the_rto_the_window_is_the_initial_one() {
    // RFC 5681, section 4.1.
    for (idle_ms, window) in [(250, 20_000), (251, 10_000)] {
        let mut bench = Offer::plain().open();
        bench.write(10_000);
        bench.send();
        bench.pass_ms(RTT_MS);
        for segments in 1..=10 {
            bench.ack(1 + 1_000 * segments);
        }
        assert_eq!((bench.conn().rto(), bench.cwnd()), (250, 20_000));
        bench.pass_ms(idle_ms);
        bench.recv(1, 10_001, "PA", 100);
        assert_eq!(bench.cwnd(), window, "after {idle_ms} ms");
    }
}
