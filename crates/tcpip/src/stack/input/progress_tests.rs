//! Tests of a connection's progress, and of its lag behind the real time.

use proptest::prelude::*;

use super::*;
use crate::stack::pace_of;

/// The pace of 16,000 bytes per second.
const PACE: u64 = pace_of(16_000);

fn at(millis: u64) -> Moment {
    Moment::from(Instant::from_millis(millis))
}

#[test]
fn a_reader_at_the_minimum_rate_gains_no_lag() {
    let mut housekeeping = Housekeeping::new(at(0));
    for second in 1..100 {
        housekeeping.advance(16_000, PACE, at(second * 1_000));
        assert_eq!(housekeeping.lag(at(second * 1_000)), 0);
    }
}

#[test]
fn five_hundred_bytes_in_nine_seconds_are_little_progress() {
    let mut housekeeping = Housekeeping::new(at(0));
    for n in 1..=10 {
        housekeeping.advance(500, PACE, at(n * 9_000));
    }
    assert_eq!(housekeeping.lag(at(90_000)), 90_000 - 310);
}

#[test]
fn fast_reading_gives_twenty_seconds_of_credit() {
    let mut housekeeping = Housekeeping::new(at(0));
    housekeeping.advance(u32::MAX, PACE, at(0));
    assert_eq!(housekeeping.lag(at(20_000)), 0);
    assert_eq!(housekeeping.lag(at(20_001)), 1);
    // A renewal sets the virtual clock to the real time, but never sets it back if it is ahead.
    housekeeping.renew(at(5_000));
    assert_eq!(housekeeping.lag(at(20_001)), 1);
    housekeeping.renew(at(30_000));
    assert_eq!(housekeeping.lag(at(30_001)), 1);
}

proptest! {
    /// The lag never exceeds the time since the connection opened, even when the clock wraps.
    #[test]
    fn the_lag_never_exceeds_the_age_of_the_connection(
        start: u32,
        steps in prop::collection::vec((0u32..100_000, any::<u32>(), 1u32..1_000_000), 1..50),
    ) {
        let mut now = u64::from(start);
        let mut housekeeping = Housekeeping::new(at(now));
        for (wait, bytes, rate) in steps {
            now += u64::from(wait);
            let before = housekeeping.lag(at(now));
            housekeeping.advance(bytes, pace_of(rate), at(now));
            prop_assert!(housekeeping.lag(at(now)) <= before);
            prop_assert!(u64::from(before) <= now - u64::from(start));
            let credit = u64::from(CREDIT_MS);
            prop_assert_eq!(housekeeping.lag(at(now + credit)) >= housekeeping.lag(at(now)), true);
        }
    }
}
