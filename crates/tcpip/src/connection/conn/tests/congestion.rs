//! Explicit congestion notification (RFC 3168), and pacing.

use ip::Ecn;

use crate::Config;
use crate::connection::DeadlineKind;
use crate::connection::conn::testing::{Bench, Offer, RTT_MS};
use crate::wire::Control;

/// A connection with ten segments in flight, and much more to send.
fn sending(offer: Offer) -> Bench {
    let mut bench = offer.open();
    bench.write(100_000);
    assert_eq!(bench.send().len(), 10);
    bench
}

#[test]
fn ece_reduces_the_window_once_and_is_answered_once() {
    // RFC 3168, section 6.1.2; RFC 8511: four fifths of ten.
    let mut bench = sending(Offer::marked());
    bench.ack_ece(1_001);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (8_000, 8_000));
    for ack in [2_001, 3_001] {
        bench.ack_ece(ack);
        assert_eq!(bench.cwnd(), 8_000);
    }
    assert_eq!(bench.send(), ["10001:11001 AW"]);
    bench.ack_ece(10_001);
    let sent = bench.send();
    assert_eq!(sent.len(), 7);
    assert!(sent.iter().all(|sent| sent.ends_with(" A")));
    assert_eq!(bench.counters().echoed, 4);
    assert_eq!(bench.counters().ecn_reductions, 1);
}

#[test]
fn ece_on_an_ack_beyond_the_reduction_counts_again() {
    let mut bench = sending(Offer::marked());
    bench.ack_ece(1_001);
    bench.ack(10_001);
    assert_eq!(bench.cwnd(), 9_000);
    assert_eq!(bench.send().len(), 9);
    bench.ack_ece(10_001);
    assert_eq!(bench.counters().ecn_reductions, 1);
    // It covers the first number sent after the reduction.
    bench.ack_ece(10_002);
    assert_eq!(bench.counters().ecn_reductions, 2);
    assert_eq!(bench.cwnd(), 7_200);
}

#[test]
fn ce_is_echoed_until_the_peer_sends_cwr() {
    // RFC 3168, section 6.1.3.
    let mut bench = sending(Offer::marked());
    bench.ecn = Ecn::Ce;
    bench.ack(1_001);
    bench.ecn = Ecn::Ect0;
    assert_eq!(bench.counters().marked, 1);
    assert!(bench.send().iter().all(|sent| sent.ends_with(" AE")));
    bench.ack(2_001);
    assert!(bench.acknowledge().0.control.has(Control::ECE));
    bench.recv(1, 3_001, "AW", 10);
    assert!(bench.send().iter().all(|sent| sent.ends_with(" A")));
    // CE on the very segment with CWR starts a new echo.
    bench.ecn = Ecn::Ce;
    bench.recv(11, 4_001, "AW", 10);
    assert_eq!(bench.send()[0], "16001:17001 AE");
}

#[test]
fn only_new_data_is_ecn_capable() {
    // RFC 3168, section 6.1.5.
    let mut bench = Offer::marked().open();
    bench.write(100_000);
    assert!(bench.plans().iter().all(|plan| plan.ecn == Ecn::Ect0));
    bench.ack_and_sack(1, &[(1_001, 5_001)]);
    let plans = bench.plans();
    assert_eq!((plans[0].len, plans[0].ecn), (1_000, Ecn::NotEct));
    // The first segment of new data carries CWR after the loss.
    bench.ack(10_001);
    let sent = bench.send();
    assert_eq!(sent.iter().filter(|sent| sent.ends_with(" AW")).count(), 1);
    assert_eq!(sent[0], "10001:11001 AW");
}

#[test]
fn without_negotiation_ecn_is_ignored() {
    let mut bench = Offer::plain().open();
    bench.write(100_000);
    assert!(bench.plans().iter().all(|plan| plan.ecn == Ecn::NotEct));
    bench.ecn = Ecn::Ce;
    bench.ack_ece(1_001);
    assert_eq!(bench.cwnd(), 11_000);
    assert!(bench.send().iter().all(|sent| sent.ends_with(" A")));
    let counters = bench.counters();
    assert_eq!((counters.marked, counters.echoed), (0, 0));
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

/// A paced connection with a first round trip of `rtt_ms`, and much to send.
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
    // Twice the window in 100 ms is a segment every 5 ms.
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

#[test]
fn without_pacing_acks_clock_the_transmission() {
    let bench = sending(Offer::plain());
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 300));
}
