use super::*;

/// Statistics without samples, with the default minimum.
fn rtt() -> Rtt {
    let mut rtt = Rtt::default();
    rtt.set_floor(MIN_RTO_MS);
    rtt
}

#[test]
fn the_initial_timeout_is_one_second_or_three_after_a_lost_syn() {
    // RFC 6298 specifies 1 s (section 2.1), and 3 s after a retransmitted SYN (section 5.7).
    assert_eq!(rtt().timeout(0, false, MIN_RTO_MS), 1_000);
    assert_eq!(rtt().timeout(0, true, MIN_RTO_MS), 3_000);
}

#[test]
fn the_first_sample_sets_the_mean_and_the_variation() {
    // RFC 6298, section 2.2: RTO = R + 4 * R/2.
    let mut rtt = rtt();
    rtt.sample(400_000);
    assert_eq!(rtt.timeout(0, false, MIN_RTO_MS), 1_200);
    assert_eq!(
        rtt.timeout(0, true, MIN_RTO_MS),
        1_200,
        "the lost SYN-ACK no longer counts"
    );
}

#[test]
fn later_samples_are_weighted() {
    // RFC 6298, section 2.3: RTTVAR = 3/4 * 200 + 1/4 * |400 - 800| = 250 ms. SRTT = 7/8 * 400 +
    // 1/8 * 800 = 450 ms.
    let mut rtt = rtt();
    rtt.sample(400_000);
    rtt.sample(800_000);
    assert_eq!(rtt.timeout(0, false, MIN_RTO_MS), 450 + 4 * 250);
}

#[test]
fn with_a_steady_rtt_the_timeout_is_the_rtt_plus_one_tick() {
    let mut rtt = rtt();
    for _ in 0..100 {
        rtt.sample(500_000);
    }
    assert_eq!(rtt.timeout(0, false, MIN_RTO_MS), 501, "the RTT and a tick");
}

#[test]
fn the_timeout_stays_within_its_bounds() {
    let mut rtt = rtt();
    rtt.sample(0);
    assert_eq!(rtt.timeout(0, false, MIN_RTO_MS), MIN_RTO_MS);
    for _ in 0..100 {
        rtt.sample(u32::MAX);
        assert_eq!(rtt.timeout(0, false, MIN_RTO_MS), MAX_RTO_MS);
    }
    for _ in 0..1000 {
        rtt.sample(1);
    }
    assert_eq!(
        rtt.timeout(0, false, MIN_RTO_MS),
        MIN_RTO_MS,
        "old samples fade"
    );
}

#[test]
fn each_backoff_doubles_the_timeout_up_to_a_minute() {
    // RFC 6298 doubles the timeout (section 5.5), and allows a maximum (section 2.5).
    let timeouts: Vec<u32> = (0..8)
        .map(|n| rtt().timeout(n, false, MIN_RTO_MS))
        .collect();
    assert_eq!(
        timeouts,
        [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    );
    assert_eq!(rtt().timeout(u8::MAX, false, MIN_RTO_MS), MAX_RTO_MS);
}

#[test]
fn a_quick_timeout_comes_before_the_usual_ones() {
    let mut rtt = rtt();
    rtt.sample(100);
    for (floor, expected) in [
        (10, [10, 200, 400, 800]),
        // Each timeout at least doubles (RFC 6298, section 5.5).
        (150, [150, 300, 600, 1_200]),
        (MIN_RTO_MS, [200, 400, 800, 1_600]),
    ] {
        rtt.set_floor(floor);
        let timeouts = [0, 1, 2, 3].map(|n| rtt.timeout(n, false, MIN_RTO_MS));
        assert_eq!(timeouts, expected);
    }
}
