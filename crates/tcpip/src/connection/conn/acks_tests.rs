use std::time::Duration;

use nmio::Instant;

use super::*;

#[test]
fn the_minimum_of_several_echoes_is_about_the_round_trip() {
    // With millisecond clocks alone, the result would be 50 or 51 ms. An error of a millisecond is
    // not negligible against the delay that HyStart++ looks for (RFC 9406, section 4.3). The
    // microsecond clock wraps around during this test.
    let start = Instant::ZERO + Duration::from_micros(u64::from(u32::MAX) - 2_000);
    let mut tcb = Tcb {
        ts_offset: u32::MAX - 5,
        ..Tcb::default()
    };
    let rtts: Vec<u32> = (0..40)
        .map(|n| {
            let sent = start + Duration::from_micros(120 * n);
            let tsecr = tcb.tsval_at(Moment::from(sent));
            let now = Moment::from(sent + Duration::from_micros(50_600));
            tcb.measure_tsecr(tsecr, now)
        })
        .collect();
    assert!(rtts.iter().all(|rtt| (50_600..51_600).contains(rtt)));
    assert!(
        rtts.windows(9)
            .all(|nine| nine.iter().min() < Some(&50_720))
    );
    assert_eq!(tcb.rtt.min(), 50_000);
}
