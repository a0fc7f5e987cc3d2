//! Silence: probes of a shut window, keep-alives, and when a peer is given up.

use std::time::Duration;

use crate::Config;
use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::connection::{DeadlineKind, Flags, State};
use crate::outcome::ControlSegment;

/// A peer that shuts its window before anything is sent to it, and `len` bytes
/// for it.
fn shut(len: u32, config: Config) -> Bench {
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
fn a_shut_window_is_probed_with_one_byte_ever_more_rarely() {
    // RFC 9293, section 3.8.6.1; at least four probes in a user timeout.
    let mut bench = shut(5_000, Config::default());
    let doubled = [600, 1_200, 2_400, 4_800, 9_600, 19_200];
    for next in doubled.into_iter().chain([30_000, 30_000, 21_900]) {
        assert_eq!(bench.fire(), "1:2 A probes window");
        assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, next));
    }
    assert_eq!(bench.counters().window_probes, 9);
    assert_eq!(bench.counters().timeouts, 0);
    assert_eq!(bench.cwnd(), 10_000, "it is no congestion");
    assert_eq!(bench.fire(), "Reset");
    assert_eq!(bench.elapsed_ms(), RTT_MS + 120_000);
    let now = bench.moment();
    let reset = bench.conn().control_segment(ControlSegment::Reset, now).0;
    assert_eq!(reset.seq, bench.tcb().snd_una, "the probe was dropped");
}

#[test]
fn a_peer_that_answers_probes_may_keep_its_window_shut() {
    // RFC 6429, section 3.
    let mut bench = shut(5_000, Config::default());
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
fn ten_probes_without_an_answer_are_the_last() {
    let config = Config {
        user_timeout: None,
        ..Config::default()
    };
    let mut bench = shut(5_000, config);
    for _ in 0..10 {
        assert_eq!(bench.fire(), "1:2 A probes window");
    }
    assert_eq!(bench.deadline(), (DeadlineKind::ZeroWindow, 60_000));
    assert_eq!(bench.fire(), "Reset");
}

#[test]
fn an_opened_window_gets_the_probe_again_with_what_lies_behind_it() {
    let mut bench = shut(2_500, Config::default());
    bench.fire();
    bench.pass_ms(RTT_MS);
    bench.window = 65_535;
    bench.ack(1);
    assert_eq!(bench.send(), ["1:1001 A", "1001:2001 A", "2001:2501 PA"]);
    assert_eq!(
        bench.deadline(),
        (DeadlineKind::Retransmit, 300),
        "not doubled any more"
    );
    assert_eq!(bench.counters().retransmits, 0);
}

#[test]
fn an_opened_window_that_has_taken_the_probe_gets_the_rest() {
    let mut bench = shut(2_500, Config::default());
    bench.fire();
    bench.window = 65_535;
    bench.ack(2);
    assert_eq!(bench.send(), ["2:1001 A", "1001:2001 A", "2001:2501 PA"]);
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
}

#[test]
fn probes_that_have_sent_everything_end() {
    let mut bench = shut(1, Config::default());
    assert_eq!(bench.fire(), "1:2 PA probes window");
    bench.ack(2);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 60_000));
    assert_eq!(bench.conn().rto(), 300);
}

#[test]
fn a_fin_probes_a_shut_window_when_nothing_else_is_left() {
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
fn a_window_shut_on_what_is_in_flight_is_probed_at_the_timeout() {
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
    // What was sent beyond the window goes again, without congestion.
    bench.window = 65_535;
    bench.ack(1_001);
    assert_eq!(
        bench.send(),
        ["1001:2001 A retransmitted", "2001:3001 PA retransmitted"]
    );
    assert_eq!(bench.cwnd(), 10_000);
    assert_eq!(bench.ssthresh(), u32::MAX);
}

/// Keep-alives after every 10 s, and `probes` of them without an answer.
fn keeping(probes: u8) -> Bench {
    let config = Config {
        keep_alive: Some(Duration::from_secs(10)),
        probes,
        ..Config::default()
    };
    let plain = Offer::plain();
    Offer { config, ..plain }.open()
}

#[test]
fn a_silent_peer_is_asked_with_the_number_before_the_next() {
    // RFC 1122, section 4.2.3.6.
    let mut bench = keeping(3);
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
fn a_peer_that_answers_is_asked_until_the_idle_timeout() {
    let mut bench = keeping(3);
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
fn data_ends_the_silence() {
    let mut bench = keeping(3);
    bench.fire();
    bench.fire();
    bench.recv(1, 1, "PA", 10);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 10_000));
    assert_eq!(bench.fire(), "0:0 A keep-alive");
    assert_eq!(bench.tcb().retries, 1);
}

#[test]
fn a_silent_connection_closes() {
    let mut bench = Offer::default().open();
    assert_eq!(bench.fire(), "CloseIdle");
    assert_eq!(bench.counters().idle_closed, 1);
    assert!(bench.tcb().flags.has(Flags::CLOSE));
    assert_eq!(bench.send(), ["1:2 FA"]);
    assert_eq!(bench.deadline(), (DeadlineKind::TailProbe, 300));
}

#[test]
fn an_application_without_room_is_asked_again_ever_more_rarely() {
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
    // As long as for any silence.
    bench.pass_ms(60_000);
    let now = bench.moment();
    bench.conn().has_offered_again(now);
    assert_eq!(bench.counters().idle_closed, 1);
}

#[test]
fn after_a_silence_longer_than_the_timeout_the_window_is_the_initial_one() {
    // RFC 5681, section 4.1.
    for (first_idle_ms, window) in [(250, 20_000), (251, 10_000)] {
        let mut bench = Offer::plain().open();
        bench.write(10_000);
        bench.send();
        bench.pass_ms(RTT_MS);
        for segments in 1..=10 {
            bench.ack(1 + 1_000 * segments);
        }
        assert_eq!((bench.conn().rto(), bench.cwnd()), (250, 20_000));
        bench.pass_ms(first_idle_ms);
        bench.recv(1, 10_001, "PA", 100);
        assert_eq!(bench.cwnd(), window, "after {first_idle_ms} ms");
    }
}
