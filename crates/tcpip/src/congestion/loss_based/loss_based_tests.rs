use super::*;

const MS: u32 = 1_000;

fn at(now: u32, in_flight: u32) -> Event {
    Event {
        now,
        in_flight,
        mss: 1000,
        srtt: 100 * MS,
        ..Event::default()
    }
}

fn ack(validation: &mut Validation, event: &Event) {
    validation.record_flight(event);
    if validation.may_end_half_period(event) {
        validation.end_half_period(100_000, event);
    }
}

#[test]
fn pipe_ack_is_the_maximum_of_a_sampling_period() {
    // The sampling period lasts for at least a second (RFC 7661, section 4.3).
    let mut validation = Validation::default();
    ack(&mut validation, &at(0, 40_000));
    let mut forgotten = None;
    for ms in 1..3_000 {
        ack(&mut validation, &at(ms * MS, 10_000));
        if validation.pipe_ack() < 40_000 && forgotten.is_none() {
            forgotten = Some(ms);
        }
    }
    assert!((900..=1_100).contains(&forgotten.unwrap()), "{forgotten:?}");
    assert_eq!(validation.pipe_ack(), 10_000);
}

#[test]
fn the_sampling_period_is_three_round_trips_on_long_paths() {
    let mut validation = Validation::default();
    let far = |now, in_flight| Event {
        srtt: 1_000 * MS,
        ..at(now, in_flight)
    };
    ack(&mut validation, &far(0, 40_000));
    for ms in 1..2_900 {
        ack(&mut validation, &far(ms * MS, 10_000));
    }
    assert_eq!(validation.pipe_ack(), 40_000);
    for ms in 2_900..3_200 {
        ack(&mut validation, &far(ms * MS, 10_000));
    }
    assert_eq!(validation.pipe_ack(), 10_000);
}

#[test]
fn pipe_ack_forgets_a_flight_older_than_a_sampling_period() {
    let mut validation = Validation::default();
    ack(&mut validation, &at(0, 40_000));
    ack(&mut validation, &at(5_000 * MS, 1_000));
    assert_eq!(validation.pipe_ack(), 1_000);
}

#[test]
fn a_window_is_validated_if_half_of_it_is_used() {
    // A window is validated if at least half of it is used (RFC 7661, section 4.4). Congestion
    // avoidance requires three quarters.
    let mut validation = Validation::default();
    ack(&mut validation, &at(0, 10_000));
    assert!(validation.allows_slow_start(20_000));
    assert!(!validation.allows_slow_start(20_002));
    assert!(validation.allows_avoidance(13_333, 0));
    assert!(!validation.allows_avoidance(13_337, 0));
}

#[test]
fn a_window_of_two_segments_in_flight_may_grow() {
    // The window is nearly three segments, but only two whole segments fit into it.
    let mut validation = Validation::default();
    let event = Event {
        in_flight: 2 * 1448,
        ..Event::default()
    };
    validation.record_flight(&event);
    assert!(validation.allows_avoidance(2 * 1448 + 1447, 1448));
    assert!(!validation.allows_avoidance(4 * 1448, 1448));
}

#[test]
fn a_recovery_without_a_reported_end_does_not_shrink_an_unvalidated_window() {
    let mut validation = Validation::default();
    validation.on_congestion(100_000, &at(0, 10_000), true);
    for second in 1..10 {
        let event = at(second * 1_000 * MS, 1_000);
        validation.record_flight(&event);
        assert!(validation.may_end_half_period(&event));
        assert!(!validation.end_half_period(100_000, &event), "{second} s");
    }
}
