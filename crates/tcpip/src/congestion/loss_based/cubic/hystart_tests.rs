use super::*;

const MSS: u32 = 1000;

/// A sender in slow start. Each segment is acknowledged separately, so there are `acks` ACKs per
/// round.
struct Rounds {
    start: HyStart,
    una: u32,
    exits: u32,
    now: u32,
    /// Time between two ACKs, in microseconds.
    spacing: u32,
    in_flight: u32,
    srtt: u32,
    /// Number of ACKs per round.
    acks: u32,
    is_paced: bool,
}

impl Rounds {
    fn new() -> Self {
        Self {
            start: HyStart::default(),
            // Start close to the end of the sequence space, so that the tests cover the
            // wrap-around.
            una: u32::MAX - 20 * MSS,
            exits: 0,
            now: u32::MAX - 50_000,
            spacing: 3_500,
            in_flight: 20 * MSS,
            srtt: u32::MAX,
            acks: 10,
            is_paced: false,
        }
    }

    fn ack(&mut self, rtt: u32) -> u32 {
        self.now = self.now.wrapping_add(self.spacing);
        self.una = self.una.wrapping_add(MSS);
        let step = self.start.on_ack(
            MSS,
            &Event {
                mss: MSS,
                rtt,
                srtt: self.srtt,
                una: self.una,
                nxt: self.una.wrapping_add((self.acks - 1) * MSS),
                in_flight: self.in_flight,
                now: self.now,
                is_paced: self.is_paced,
            },
        );
        self.exits += u32::from(step.exit);
        step.growth
    }

    /// Acknowledges one window, and returns the window's growth in bytes.
    fn round(&mut self, rtt: u32) -> u32 {
        (0..self.acks).map(|_| self.ack(rtt)).sum()
    }
}

#[test]
fn slow_start_continues_at_steady_delay() {
    let mut rounds = Rounds::new();
    for _ in 0..30 {
        assert_eq!(rounds.round(20_000), 10 * MSS);
    }
    assert_eq!(rounds.exits, 0);
}

#[test]
fn increased_delay_starts_conservative_slow_start_for_five_rounds() {
    // Conservative slow start lasts for five rounds, in which the window grows at a quarter of the
    // rate at most (RFC 9406, section 4.2).
    let mut rounds = Rounds::new();
    for _ in 0..3 {
        rounds.round(20_000);
    }
    // Eight samples reveal the delay, and growth stops for this round.
    assert_eq!(rounds.round(24_000), 8 * MSS);
    let mut rounds_of_css = 0;
    while rounds.exits == 0 {
        assert_eq!(rounds.round(24_000), 10 * MSS / 4);
        rounds_of_css += 1;
        assert!(rounds_of_css < 10);
    }
    // The five rounds include the one in which conservative slow start began. Slow start therefore
    // ends with the first ACK after four more rounds.
    assert_eq!(rounds_of_css, 5);
}

#[test]
fn jitter_returns_to_slow_start() {
    let mut rounds = Rounds::new();
    rounds.round(20_000);
    rounds.round(20_000);
    rounds.round(27_000);
    assert_eq!(rounds.round(27_000), 10 * MSS / 4);
    // The next eight samples reveal that the delay was only jitter.
    assert_eq!(rounds.round(21_000), 8 * MSS / 4 + 2 * MSS);
    assert_eq!(rounds.round(21_000), 10 * MSS);
    assert_eq!(rounds.exits, 0);
    // A real queue is still detected afterwards.
    rounds.round(27_000);
    assert_eq!(rounds.round(27_000), 10 * MSS / 4);
}

#[test]
fn thresholds_are_an_eighth_within_bounds() {
    // The threshold is an eighth of the RTT, but at least 4 ms and at most 16 ms (RFC 9406, section
    // 4.3).
    for (rtt, thresh) in [(1_000, 4_000), (64_000, 8_000), (400_000, 16_000)] {
        for (more, css) in [(thresh - 1, false), (thresh, true)] {
            let mut rounds = Rounds::new();
            rounds.round(rtt);
            rounds.round(rtt);
            rounds.round(rtt + more);
            assert_eq!(rounds.start.css_baseline != 0, css, "{rtt} {more}");
        }
    }
}

#[test]
fn fewer_than_eight_samples_are_not_evaluated() {
    let mut rounds = Rounds::new();
    rounds.round(20_000);
    for _ in 0..10 {
        for ack in 0..10 {
            rounds.ack(if ack % 2 == 0 { 90_000 } else { 0 });
        }
    }
    assert_eq!(rounds.start.css_baseline, 0);
}

#[test]
fn only_the_minimum_rtt_of_a_round_is_evaluated() {
    let mut rounds = Rounds::new();
    rounds.round(20_000);
    for _ in 0..10 {
        for ack in 0..10 {
            rounds.ack(if ack == 4 { 20_000 } else { 90_000 });
        }
    }
    assert_eq!(rounds.start.css_baseline, 0);
}

#[test]
fn growth_per_ack_is_limited_to_eight_segments_or_the_data_just_delivered() {
    // The limit of eight segments is the constant L of RFC 9406, section 4.3.
    let growth = |acked: u32, arrived: u32| {
        let event = Event {
            mss: MSS,
            in_flight: arrived + 10 * MSS,
            nxt: 10 * MSS,
            ..Event::default()
        };
        HyStart::default().on_ack(acked, &event).growth
    };
    assert_eq!(growth(8 * MSS, MSS), 8 * MSS);
    assert_eq!(growth(44 * MSS, MSS), 8 * MSS, "the ACK fills a gap");
    assert_eq!(growth(44 * MSS, 44 * MSS), 44 * MSS, "an aggregated ACK");
    assert_eq!(growth(200 * MSS, 200 * MSS), 45 * MSS);
}

#[test]
fn delay_below_the_baseline_but_above_earlier_rounds_is_a_queue() {
    let mut rounds = Rounds::new();
    rounds.round(20_000);
    rounds.round(20_000);
    for ack in 0..10 {
        rounds.ack(if ack < 8 { 27_000 } else { 20_000 });
    }
    assert_eq!(rounds.start.css_baseline, ticks_of(27_000));
    assert_eq!(rounds.round(25_000), 8 * MSS / 4);
    assert_eq!(rounds.start.css_baseline, ticks_of(25_000));
}

#[test]
fn a_train_of_half_a_round_trip_ends_slow_start() {
    // A round of ten ACKs, 1.2 ms apart, lasts for 10.8 ms.
    for (rtt, exits) in [(30_000, false), (18_000, true)] {
        let mut rounds = Rounds::new();
        rounds.spacing = 1_200;
        for _ in 0..5 {
            rounds.round(rtt);
        }
        assert_eq!(rounds.exits > 0, exits, "{rtt}");
    }
    // ACKs that are farther apart do not form a train, and with few segments in flight a train
    // indicates nothing.
    for (spacing, in_flight) in [(3_100, 20), (1_200, 10)] {
        let mut rounds = Rounds::new();
        (rounds.spacing, rounds.in_flight) = (spacing, in_flight * MSS);
        for _ in 0..5 {
            rounds.round(18_000);
        }
        assert_eq!(rounds.exits, 0);
    }
}

#[test]
fn a_train_of_paced_data_ends_slow_start_only_after_a_whole_round_trip() {
    // A round of ten ACKs, 1.2 ms apart, lasts for 10.8 ms.
    for (rtt, exits) in [(18_000, false), (12_000, false), (10_000, true)] {
        let mut rounds = Rounds::new();
        (rounds.spacing, rounds.is_paced) = (1_200, true);
        for _ in 0..5 {
            rounds.round(rtt);
        }
        assert_eq!(rounds.exits > 0, exits, "{rtt}");
    }
}

#[test]
fn after_a_long_train_the_window_grows_by_a_quarter_until_the_round_is_over() {
    let mut rounds = Rounds::new();
    rounds.spacing = 1_200;
    let whole = (0..20).take_while(|_| rounds.ack(18_000) == MSS).count();
    assert_eq!(whole, 8, "8.4 ms, then 9.6 ms: half of 18 ms");
    assert_eq!((rounds.ack(18_000), rounds.exits), (MSS / 4, 0));
    assert_eq!((rounds.ack(18_000), rounds.exits), (MSS / 4, 1));
}

#[test]
fn delay_and_then_a_long_train_end_slow_start_immediately() {
    let mut rounds = Rounds::new();
    for rtt in [18_000, 18_000, 22_000] {
        rounds.round(rtt);
    }
    assert_eq!((rounds.exits, rounds.start.css_rounds), (0, 1));
    rounds.spacing = 1_200;
    rounds.round(22_000);
    assert!(rounds.exits > 0);
}

#[test]
fn a_pause_before_each_burst_does_not_hide_a_train() {
    // A pause before each burst does not prevent the detection of a train.
    let mut rounds = Rounds::new();
    rounds.spacing = 1_200;
    for _ in 0..3 {
        rounds.round(18_000);
        rounds.now = rounds.now.wrapping_add(30_000);
    }
    assert!(rounds.exits > 0);
}

#[test]
fn a_train_is_detected_without_rtt_samples() {
    let mut rounds = Rounds::new();
    rounds.spacing = 1_200;
    rounds.round(18_000);
    rounds.srtt = 18_000;
    for _ in 0..3 {
        rounds.round(0);
    }
    assert!(rounds.exits > 0);
}

#[test]
fn a_queue_that_keeps_growing_ends_conservative_slow_start() {
    let mut rounds = Rounds::new();
    rounds.round(20_000);
    rounds.round(20_000);
    rounds.round(24_000);
    assert_eq!(rounds.round(27_900), 10 * MSS / 4);
    assert_eq!(rounds.exits, 0);
    rounds.round(28_000);
    rounds.round(28_000);
    assert!(rounds.exits > 0);
}

#[test]
fn a_queue_that_has_grown_by_twice_the_threshold_ends_slow_start() {
    for (rtt, exits) in [(27_900, 0), (28_000, 1)] {
        let mut rounds = Rounds::new();
        rounds.round(20_000);
        rounds.round(20_000);
        rounds.round(rtt);
        assert_eq!(rounds.exits, exits, "{rtt}");
    }
}

#[test]
fn a_queue_that_grows_within_a_round_ends_conservative_slow_start() {
    let mut rounds = Rounds::new();
    rounds.acks = 30;
    rounds.round(20_000);
    rounds.round(20_000);
    for _ in 0..8 {
        assert_eq!(rounds.ack(24_000), MSS);
    }
    for _ in 0..7 {
        assert_eq!((rounds.ack(28_000), rounds.exits), (0, 0));
    }
    assert_eq!((rounds.ack(28_000), rounds.exits), (0, 1));
}

#[test]
fn trains_are_detected_on_round_trips_from_one_millisecond() {
    for (rtt, exits) in [(900, false), (1_000, true), (2_000, true), (5_000, false)] {
        let mut rounds = Rounds::new();
        rounds.spacing = 120;
        for _ in 0..5 {
            rounds.round(rtt);
        }
        assert_eq!(rounds.exits > 0, exits, "{rtt}");
    }
}

/// A slowly growing queue builds up when several connections start simultaneously.
#[test]
fn a_queue_that_grows_slowly_is_detected() {
    let mut rounds = Rounds::new();
    for rtt in [20_000, 21_500, 23_000] {
        assert_eq!(rounds.round(rtt), 10 * MSS);
    }
    assert_eq!(rounds.round(24_500), 8 * MSS);
}
