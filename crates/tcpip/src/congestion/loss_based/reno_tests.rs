use proptest::prelude::*;

use super::super::NewReno;
use super::*;

const MSS: u32 = 1000;
const SECOND: u32 = 1_000_000;

fn flight(in_flight: u32) -> Event {
    Event {
        in_flight,
        mss: MSS,
        srtt: 50_000,
        nxt: in_flight,
        ..Event::default()
    }
}

/// Reno in congestion avoidance, with a window of `segments` segments.
fn avoiding(segments: u32) -> Reno {
    let mut reno = Reno::new(MSS);
    reno.cwnd = 2 * segments * MSS;
    let event = flight(2 * segments * MSS);
    reno.validation.record_flight(&event);
    reno.on_congestion(Congestion::Loss, &event);
    reno.on_recovered(0, &event);
    assert_eq!(reno.window(), segments * MSS);
    reno
}

#[test]
fn slow_start_grows_by_the_acknowledged_bytes_up_to_two_segments() {
    // An ACK opens the window by the acknowledged bytes, but at most two segments (RFC 3465,
    // section 2.2).
    let mut reno = Reno::new(MSS);
    reno.on_ack(700, &flight(10 * MSS));
    assert_eq!(reno.window(), 10_700);
    reno.on_ack(10 * MSS, &flight(10 * MSS));
    assert_eq!(reno.window(), 12_700);
}

#[test]
fn slow_start_continues_while_half_of_the_window_is_used() {
    // Slow start continues only while at least half of the window is used (RFC 7661, section 4.1).
    let mut reno = Reno::new(MSS);
    reno.on_ack(MSS, &flight(5 * MSS - 1));
    assert_eq!(reno.window(), 10 * MSS, "not validated");
    reno.on_ack(MSS, &flight(5 * MSS));
    assert_eq!(reno.window(), 11 * MSS, "validated");
    reno.on_ack(MSS, &flight(5 * MSS));
    assert_eq!(reno.window(), 11 * MSS, "not validated again");
}

#[test]
fn a_loss_halves_the_used_part() {
    // A loss halves the used part of the window (RFC 5681, equation 4).
    let mut reno = Reno::new(MSS);
    reno.on_congestion(Congestion::Loss, &flight(10 * MSS));
    assert_eq!((reno.window(), reno.ssthresh()), (5 * MSS, 5 * MSS));
    reno.on_recovered(0, &flight(5 * MSS));
    assert_eq!(reno.window(), 5 * MSS);
}

#[test]
fn congestion_never_reduces_the_window_below_two_segments() {
    // The window is at least two segments (RFC 5681, equation 4).
    for cause in [Congestion::Loss, Congestion::Ecn] {
        let mut reno = Reno::new(MSS);
        reno.on_congestion(cause, &flight(MSS));
        assert_eq!(reno.window(), 2 * MSS);
    }
}

#[test]
fn flight_size_includes_selectively_acknowledged_bytes() {
    // `FlightSize` is everything sent and not yet cumulatively acknowledged (RFC 5681, section 2).
    let mut reno = Reno::new(MSS);
    let event = Event {
        una: 5_000,
        nxt: 15_000,
        ..flight(6 * MSS)
    };
    reno.on_congestion(Congestion::Loss, &event);
    assert_eq!(reno.window(), 5 * MSS);
}

#[test]
fn an_ecn_mark_reduces_the_window_to_four_fifths() {
    // An ECN mark reduces the window to 0.8 of its used part (RFC 8511, section 3).
    let mut reno = Reno::new(MSS);
    reno.on_congestion(Congestion::Ecn, &flight(10 * MSS));
    assert_eq!((reno.window(), reno.ssthresh()), (8 * MSS, 8 * MSS));
    // No recovery follows an ECN mark, so the window continues to grow while it is used.
    for _ in 0..8 {
        reno.on_ack(MSS, &flight(8 * MSS));
    }
    assert_eq!(reno.window(), 9 * MSS);
}

#[test]
fn congestion_avoidance_grows_by_a_segment_per_window() {
    // Growth is exact to the byte, for ACKs of several sizes (RFC 3465, section 2.1).
    for step in [1, 100, MSS, 10 * MSS] {
        let mut reno = avoiding(10);
        for _ in 0..10 * MSS / step {
            assert_eq!(reno.window(), 10 * MSS, "{step}");
            reno.on_ack(step, &flight(10 * MSS));
        }
        assert_eq!(reno.window(), 11 * MSS, "{step}");
    }
}

#[test]
fn congestion_avoidance_continues_while_three_quarters_of_the_window_are_used() {
    let mut reno = avoiding(12);
    for _ in 0..24 {
        reno.on_ack(MSS, &flight(9 * MSS - 1));
    }
    assert_eq!(reno.window(), 12 * MSS);
    for _ in 0..12 {
        reno.on_ack(MSS, &flight(9 * MSS));
    }
    assert_eq!(reno.window(), 13 * MSS);
}

#[test]
fn a_timeout_reduces_the_window_to_one_segment_and_slow_start_adds_one_per_ack() {
    // A timeout leaves one segment (RFC 5681, section 3.1), and then the limit per ACK is one
    // segment (RFC 3465, section 2.3).
    let mut reno = Reno::new(MSS);
    reno.on_timeout(false, &flight(10 * MSS));
    assert_eq!((reno.window(), reno.ssthresh()), (MSS, 5 * MSS));
    // A repeated timeout for the same data does not halve the threshold again.
    reno.on_timeout(true, &flight(MSS));
    assert_eq!((reno.window(), reno.ssthresh()), (MSS, 5 * MSS));
    for segments in 2..=5 {
        reno.on_ack(2 * MSS, &flight(reno.window()));
        assert_eq!(reno.window(), segments * MSS);
    }
    for _ in 0..5 {
        reno.on_ack(MSS, &flight(5 * MSS));
    }
    assert_eq!(reno.window(), 6 * MSS, "congestion avoidance");
    // A timeout for other data reduces the threshold again.
    reno.on_timeout(false, &flight(3 * MSS));
    assert_eq!((reno.window(), reno.ssthresh()), (MSS, 2_500.max(2 * MSS)));
}

#[test]
fn a_timeout_in_recovery_does_not_reduce_the_threshold_again() {
    let mut reno = Reno::new(MSS);
    reno.on_congestion(Congestion::Loss, &flight(10 * MSS));
    reno.on_timeout(false, &flight(5 * MSS));
    assert_eq!((reno.window(), reno.ssthresh()), (MSS, 5 * MSS));
    reno.on_timeout(false, &flight(MSS));
    assert_eq!(
        reno.ssthresh(),
        2 * MSS,
        "after recovery it is reduced again"
    );
}

#[test]
fn after_an_idle_period_the_window_is_at_most_the_initial_one() {
    // After an idle period the window restarts from the initial window (RFC 5681, section 4.1).
    let mut reno = Reno::new(MSS);
    for _ in 0..15 {
        reno.on_ack(2 * MSS, &flight(40 * MSS));
    }
    assert_eq!(reno.window(), 40 * MSS);
    reno.on_idle(&flight(0));
    assert_eq!((reno.window(), reno.ssthresh()), (10 * MSS, u32::MAX));
    // The threshold remembers at least three quarters of the old window.
    let mut reno = avoiding(40);
    reno.on_idle(&flight(0));
    assert_eq!((reno.window(), reno.ssthresh()), (10 * MSS, 40 * MSS));
    reno.ssthresh = 2 * MSS;
    reno.cwnd = 40 * MSS;
    reno.on_idle(&flight(0));
    assert_eq!((reno.window(), reno.ssthresh()), (10 * MSS, 30 * MSS));
    // A window that is smaller than the initial window does not change.
    reno.on_timeout(false, &flight(MSS));
    reno.on_idle(&flight(0));
    assert_eq!(reno.window(), MSS);
}

#[test]
fn congestion_of_an_unused_window_reduces_the_used_part_without_losses() {
    // The new window is (max (`pipeACK`, `FlightSize`) - R) / 2, where R is the lost part (RFC
    // 7661, section 4.4.1).
    let mut reno = avoiding(40);
    reno.validation.record_flight(&flight(12 * MSS));
    reno.on_congestion(Congestion::Loss, &flight(8 * MSS));
    assert_eq!(reno.window(), 6 * MSS, "half of the used part");
    reno.on_recovery_ack(MSS, 3 * MSS, &flight(8 * MSS));
    reno.on_recovery_ack(MSS, MSS, &flight(8 * MSS));
    assert_eq!(reno.window(), 6 * MSS);
    reno.on_recovered(0, &flight(6 * MSS));
    assert_eq!((reno.window(), reno.ssthresh()), (4 * MSS, 4 * MSS));
    // If the window was validated, the lost bytes are not subtracted.
    let mut reno = avoiding(40);
    reno.on_congestion(Congestion::Loss, &flight(40 * MSS));
    reno.on_recovery_ack(MSS, 8 * MSS, &flight(40 * MSS));
    reno.on_recovered(0, &flight(20 * MSS));
    assert_eq!(reno.window(), 20 * MSS);
}

#[test]
fn a_window_not_validated_for_five_minutes_is_halved() {
    // The non-validated phase lasts for at most five minutes (RFC 7661, section 4.4.2).
    let mut reno = avoiding(40);
    let mut now = 0_u32;
    let mut halved_after = None;
    for second in 1..=310 {
        now = now.wrapping_add(SECOND);
        reno.on_ack(MSS, &Event { now, ..flight(MSS) });
        if reno.window() < 40 * MSS && halved_after.is_none() {
            halved_after = Some(second);
        }
    }
    assert_eq!((reno.window(), reno.ssthresh()), (20 * MSS, 40 * MSS));
    assert!((300..=306).contains(&halved_after.unwrap()));
    for _ in 0..1300 {
        now = now.wrapping_add(SECOND);
        reno.on_ack(MSS, &Event { now, ..flight(MSS) });
    }
    assert_eq!(reno.window(), 10 * MSS, "the initial window is kept");
}

proptest! {
    #[test]
    fn newreno_computes_the_same_windows_as_reno(
        events in prop::collection::vec((0u8..6, 0u32..100_000, 0u32..100_000), 0..100),
    ) {
        let mut reno = Reno::new(MSS);
        let mut newreno = NewReno::new(MSS);
        for (kind, acked, in_flight) in events {
            let event = flight(in_flight);
            crate::congestion::tests::trigger(&mut reno, kind, acked, &event);
            crate::congestion::tests::trigger(&mut newreno, kind, acked, &event);
            prop_assert_eq!(reno.window(), newreno.window());
            prop_assert_eq!(reno.ssthresh(), newreno.ssthresh());
        }
    }
}

#[test]
fn only_newreno_stays_in_recovery_after_a_partial_ack() {
    const { assert!(NewReno::PARTIAL_ACK_RECOVERY && !Reno::PARTIAL_ACK_RECOVERY) };
}
