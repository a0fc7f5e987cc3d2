//! Tests of explicit congestion notification (RFC 3168) and of pacing.

use crate::Config;
use crate::connection::DeadlineKind;
use crate::connection::conn::testing::{Bench, Offer, RTT_MS};

/// A connection with ten segments in flight, and much more data to send.
fn sending(offer: Offer) -> Bench {
    let mut bench = offer.open();
    bench.write(100_000);
    assert_eq!(bench.send().len(), 10);
    bench
}

#[test]
fn a_loss_and_ece_in_one_window_are_one_reduction() {
    let mut bench = sending(Offer::marked());
    bench.ack_and_sack(1, &[(1_001, 5_001)]);
    assert_eq!(bench.cwnd(), 5_000);
    bench.send();
    bench.pass_ms(RTT_MS);
    bench.ack_ece(5_001);
    assert_eq!(bench.counters().ecn_reductions, 0);
    assert_eq!(bench.ssthresh(), 5_000);
}

#[test]
fn an_ack_with_ece_does_not_open_the_window_after_a_timeout() {
    let mut bench = sending(Offer::marked());
    assert_eq!(bench.fire(), "10001:11001 A probes tail");
    bench.send();
    // After a single timeout, such an ACK would prove the timeout spurious.
    for _ in 0..2 {
        assert_eq!(bench.fire(), "Transmit");
        assert_eq!(bench.send(), ["1:1001 A retransmitted"]);
    }
    assert_eq!(bench.cwnd(), 1_000);
    bench.ack_ece(1_001);
    assert_eq!(bench.cwnd(), 1_000);
    bench.send();
    bench.ack(2_001);
    assert_eq!(bench.cwnd(), 2_000, "an ACK without ECE opens the window");
}

/// A paced connection whose handshake took `rtt_ms` milliseconds, with plenty of data to send.
fn paced(rtt_ms: u64) -> Bench {
    let config = Config {
        pacing: true,
        ..Config::default()
    };
    let plain = Offer::plain();
    let mut bench = Offer { config, ..plain }.half_open();
    bench.establish(rtt_ms);
    bench.write(100_000);
    bench
}

#[test]
fn paced_segments_are_spread_over_half_a_round_trip_in_slow_start() {
    // Pacing sends twice the window in 100 ms: one segment every 5 ms.
    let mut bench = paced(RTT_MS);
    let start = bench.elapsed_ms();
    assert_eq!(bench.send(), ["1:1001 A"]);
    assert_eq!(bench.deadline(), (DeadlineKind::Pacing, 1));
    let mut times = Vec::new();
    while bench.tcb().snd_nxt != bench.tcb().snd_una + 10_000 {
        if bench.fire() == "Wait" {
            assert_eq!(bench.deadline(), (DeadlineKind::Pacing, 4));
        } else {
            assert_eq!(bench.send().len(), 1);
            times.push(bench.elapsed_ms() - start);
        }
    }
    assert_eq!(times, [5, 10, 15, 20, 25, 30, 35, 40, 45]);
    assert_eq!(
        bench.deadline().0,
        DeadlineKind::Retransmit,
        "the window is full"
    );
}

#[test]
fn a_fast_path_is_paced_once_per_tick() {
    // The rate is 2,000 bytes per millisecond.
    let mut bench = paced(10);
    for first in [1, 2_001, 4_001, 6_001] {
        let second = first + 1_000;
        let sent = [
            format!("{first}:{second} A"),
            format!("{second}:{} A", second + 1_000),
        ];
        assert_eq!(bench.send(), sent);
        assert_eq!(bench.deadline(), (DeadlineKind::Pacing, 1));
        assert_eq!(bench.fire(), "Transmit");
    }
}
