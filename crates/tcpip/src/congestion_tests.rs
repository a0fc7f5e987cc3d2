use proptest::prelude::*;

use super::*;

const MSS: u32 = 1460;

fn flight(in_flight: u32) -> Flight {
    Flight {
        in_flight,
        mss: MSS,
    }
}

#[test]
fn the_initial_window_is_that_of_rfc_6928() {
    assert_eq!(Reno::new(1460).window(), 14_600);
    assert_eq!(Reno::new(536).window(), 5_360);
    assert_eq!(Reno::new(1000).window(), 10_000);
    assert_eq!(Reno::new(8960).window(), 17_920, "two segments");
}

#[test]
fn slow_start_grows_by_what_is_acknowledged_up_to_two_segments() {
    // RFC 3465, section 2.2.
    let mut reno = Reno::new(MSS);
    reno.on_ack(1000, flight(14_600));
    assert_eq!(reno.window(), 15_600);
    reno.on_ack(14_600, flight(14_600));
    assert_eq!(reno.window(), 15_600 + 2 * MSS);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut reno = Reno::new(MSS);
    for _ in 0..1000 {
        reno.on_ack(1000, flight(1000));
    }
    assert_eq!(reno.window(), 14_600);
}

#[test]
fn a_loss_halves_the_window_and_recovery_deflates_it() {
    // RFC 5681, section 3.2, and RFC 6582, section 3.2.
    let mut reno = Reno::new(MSS);
    reno.on_fast_retransmit(flight(20 * MSS));
    assert_eq!(reno.window(), 13 * MSS, "half and three");
    reno.on_duplicate_ack(flight(20 * MSS));
    assert_eq!(reno.window(), 14 * MSS);
    reno.on_partial_ack(3 * MSS, flight(20 * MSS));
    assert_eq!(reno.window(), 12 * MSS);
    reno.on_recovered(flight(20 * MSS));
    assert_eq!(reno.window(), 10 * MSS);
}

#[test]
fn recovery_ends_without_a_burst() {
    let mut reno = Reno::new(MSS);
    reno.on_fast_retransmit(flight(20 * MSS));
    reno.on_recovered(flight(0));
    assert_eq!(reno.window(), 2 * MSS);
}

#[test]
fn congestion_avoidance_grows_by_a_segment_a_round_trip() {
    // RFC 5681, equation 3.
    let mut reno = Reno::new(MSS);
    reno.on_fast_retransmit(flight(20 * MSS));
    reno.on_recovered(flight(20 * MSS));
    for _ in 0..10 {
        reno.on_ack(MSS, flight(10 * MSS));
    }
    let grown = reno.window() - 10 * MSS;
    assert!((MSS * 9 / 10..=MSS).contains(&grown), "{grown}");
}

#[test]
fn a_timeout_leaves_one_segment() {
    // RFC 5681, section 3.1.
    let mut reno = Reno::new(MSS);
    reno.on_timeout(false, flight(20 * MSS));
    assert_eq!(reno.window(), MSS);
    // Another for the same data does not halve again: slow start ends at ten.
    reno.on_timeout(true, flight(MSS));
    for _ in 0..9 {
        reno.on_ack(MSS, flight(20 * MSS));
    }
    assert_eq!(reno.window(), 10 * MSS);
    reno.on_ack(MSS, flight(20 * MSS));
    assert_eq!(reno.window(), 10 * MSS + MSS / 10, "congestion avoidance");
}

#[test]
fn after_silence_the_window_is_at_most_the_initial_one() {
    // RFC 5681, section 4.1.
    let mut reno = Reno::new(MSS);
    for _ in 0..10 {
        reno.on_ack(2 * MSS, flight(u32::MAX));
    }
    reno.on_idle(MSS);
    assert_eq!(reno.window(), 14_600);
    reno.on_timeout(false, flight(MSS));
    reno.on_idle(MSS);
    assert_eq!(reno.window(), MSS);
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_it(
        mss in 88u32..=65_535,
        events in prop::collection::vec((0u8..7, any::<u32>(), any::<u32>()), 0..200),
    ) {
        let mut reno = Reno::new(mss);
        for (event, acked, in_flight) in events {
            let flight = Flight { in_flight, mss };
            match event {
                0 => reno.on_ack(acked, flight),
                1 => reno.on_fast_retransmit(flight),
                2 => reno.on_duplicate_ack(flight),
                3 => reno.on_partial_ack(acked, flight),
                4 => reno.on_recovered(flight),
                5 => reno.on_timeout(acked % 2 == 0, flight),
                _ => reno.on_idle(mss),
            }
            prop_assert!(reno.window() >= mss);
        }
    }
}
