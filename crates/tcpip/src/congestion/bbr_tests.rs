use super::*;
use crate::congestion::link::{Link, MSS};
use crate::congestion::{Congestion, CongestionControl};

/// A link of 100 Mb/s with a round-trip time of 40 ms. The path holds 345 segments in flight, and
/// the queue holds 1.5 times that number.
const LINK: Link = Link::new(100, 40, 15);

/// An event at the time `millis` (in milliseconds), with `segments` segments in flight.
fn at(millis: u32, segments: u32) -> Event {
    Event {
        now: millis * 1_000,
        in_flight: segments * MSS,
        mss: MSS,
        srtt: 40_000,
        rtt: 40_000,
        una: millis,
        nxt: millis + segments * MSS,
        is_paced: false,
    }
}

/// The sequence of states on a link, each with the time in milliseconds at which the flow enters
/// it.
fn states(link: Link, millis: u64) -> Vec<(u64, BbrState)> {
    let mut states = vec![(0, BbrState::Startup)];
    link.watch(&[Bbr::new(MSS)], 0, 0, millis, |now, _, bbr| {
        if states.last().unwrap().1 != bbr.state {
            states.push((now / 1_000, bbr.state));
        }
    });
    states
}

#[test]
fn the_bbr_state_has_the_expected_size() {
    assert_eq!(size_of::<Bbr>(), 112);
}

#[test]
fn rates_keep_their_precision() {
    assert_eq!(rate_of(1_250_000, 100_000), 12_500_000 / 8);
    assert_eq!(bytes_at(12_500_000 / 8, 40_000), 500_000);
    assert_eq!(rate_of(u32::MAX, 1), u32::MAX - 1);
    assert_eq!(percent(1_000, 277), 2_770);
    // These rates are 100 Gb/s and 10 kb/s.
    assert_eq!(rate_of(12_500_000, 1_000), 1_562_500_000);
    assert_eq!(rate_of(1_250, 1_000_000), 156);
}

#[test]
fn the_first_pacing_rate_comes_from_the_initial_window() {
    // The draft defines this rate as `InitPacingRate`.
    let mut bbr = Bbr::new(MSS);
    bbr.on_send(MSS, &at(0, 0));
    let nominal = f64::from(bbr.window()) / 0.04 * 2.77;
    let rate = bbr.pacing_rate().unwrap() as f64;
    assert!((rate / nominal - 1.0).abs() < 0.01, "{rate} {nominal}");
}

#[test]
fn the_initial_pacing_rate_needs_no_round_trip() {
    let nominal = f64::from(Bbr::new(MSS).window()) / 0.001 * 2.77;
    let rate = Bbr::new(MSS).pacing_rate().unwrap() as f64;
    assert!((rate / nominal - 1.0).abs() < 0.01);
}

#[test]
fn state_transitions_are_those_of_the_draft() {
    let states = states(LINK, 12_000);
    let order: Vec<BbrState> = states.iter().map(|(_, state)| *state).collect();
    assert_eq!(order[..2], [BbrState::Startup, BbrState::Drain]);
    for pair in order[1..].windows(2) {
        let follows: &[BbrState] = match pair[0] {
            BbrState::Startup => &[BbrState::Drain],
            BbrState::Drain => &[BbrState::Down, BbrState::Cruise],
            BbrState::Down => &[BbrState::Cruise, BbrState::Refill, BbrState::ProbeRtt],
            BbrState::Cruise => &[BbrState::Refill, BbrState::ProbeRtt],
            BbrState::Refill => &[BbrState::Up, BbrState::ProbeRtt],
            BbrState::Up => &[BbrState::Down, BbrState::Cruise, BbrState::ProbeRtt],
            BbrState::ProbeRtt => &[BbrState::Cruise],
        };
        assert!(follows.contains(&pair[1]), "{pair:?}");
    }
    // The pipe is full after log2 (345 / 10) round trips. Startup needs three more round trips to
    // notice, and the queue makes these twice as long.
    let drained = states[1].0;
    assert!((8 * 40..20 * 40).contains(&drained), "{drained}");
}

#[test]
fn probes_for_bandwidth_are_two_to_three_seconds_after_the_last() {
    let refills: Vec<u64> = states(LINK, 40_000)
        .iter()
        .filter(|(_, state)| *state == BbrState::Refill)
        .map(|(at, _)| *at)
        .collect();
    assert!(refills.len() > 8, "{refills:?}");
    for pair in refills.windows(2) {
        let apart = pair[1] - pair[0];
        // ProbeRTT restarts the wait, so the time between two probes may double.
        assert!((2_000..6_500).contains(&apart), "{apart}");
    }
}

#[test]
fn the_minimum_rtt_is_probed_every_five_seconds_for_200_ms() {
    let states = states(LINK, 40_000);
    let probes: Vec<(u64, u64)> = states
        .windows(2)
        .filter(|pair| pair[0].1 == BbrState::ProbeRtt)
        .map(|pair| (pair[0].0, pair[1].0 - pair[0].0))
        .collect();
    assert!((6..=8).contains(&probes.len()), "{probes:?}");
    for (_, lasts) in &probes {
        assert!((200..400).contains(lasts), "{lasts}");
    }
    for pair in probes.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= 5_000, "{pair:?}");
    }
}

#[test]
fn probe_rtt_halves_the_data_in_flight() {
    let mut min_window = u32::MAX;
    LINK.watch(&[Bbr::new(MSS)], 0, 0, 12_000, |_, _, bbr| {
        if bbr.state == BbrState::ProbeRtt {
            min_window = min_window.min(bbr.window());
        }
    });
    let half = 500_000 / 2;
    assert!(min_window.abs_diff(half) < half / 50, "{min_window}");
}

#[test]
fn bbr_fills_the_link_without_a_queue() {
    for link in [LINK, Link::new(10, 100, 20), Link::new(1_000, 5, 20)] {
        let outcome = link.run(&[Bbr::new(MSS)], 0, 3_000, 13_000)[0];
        let share = link.share(outcome.delivered, 10_000);
        assert!(share > 0.93, "{link:?} {share}");
        assert!(outcome.rtt < link.rtt * 5 / 4, "{link:?} {}", outcome.rtt);
    }
}

#[test]
fn bbr_holds_its_rate_at_one_percent_loss() {
    for seed in 1..=5 {
        let link = Link {
            loss: 10_000,
            seed,
            ..LINK
        };
        let outcome = link.run(&[Bbr::new(MSS)], 0, 2_000, 12_000)[0];
        let share = link.share(outcome.delivered, 10_000);
        assert!(share > 0.8, "seed {seed}: {share}");
    }
}

#[test]
fn too_much_loss_reduces_the_rate() {
    // BBR reduces its rate when more than 2 % of the bytes in flight are lost.
    let link = Link {
        loss: 100_000,
        ..LINK
    };
    let outcome = link.run(&[Bbr::new(MSS)], 0, 2_000, 22_000)[0];
    let share = link.share(outcome.delivered, 20_000);
    assert!(share < 0.5, "{share}");
    assert!(share > 0.005, "{share}");
}

#[test]
fn bbr_keeps_its_rate_with_little_loss_at_a_shallow_queue() {
    let link = Link::new(100, 40, 2);
    let outcome = link.run(&[Bbr::new(MSS)], 0, 2_000, 32_000)[0];
    let share = link.share(outcome.delivered, 30_000);
    assert!(share > 0.85, "{share}");
    let lost = outcome.lost as f64 / outcome.delivered as f64;
    assert!(lost < 0.03, "{lost}");
}

#[test]
fn flows_converge_to_a_fair_share() {
    let flows = [Bbr::new(MSS); 2];
    let outcomes = LINK.run(&flows, 3_000, 30_000, 60_000);
    let shares: Vec<f64> = outcomes
        .iter()
        .map(|outcome| LINK.share(outcome.delivered, 30_000))
        .collect();
    let sum: f64 = shares.iter().sum();
    assert!(sum > 0.9, "{shares:?}");
    assert!(shares.iter().all(|share| *share > 0.3), "{shares:?}");
}

#[test]
fn a_tenfold_increase_in_bandwidth_is_found() {
    let link = Link {
        later: Some((5_000, 12_500_000)),
        buffer: 500_000,
        ..Link::new(10, 40, 15)
    };
    let outcome = link.run(&[Bbr::new(MSS)], 0, 35_000, 45_000)[0];
    let share = link.share(outcome.delivered, 10_000) / 10.0;
    assert!(share > 0.8, "{share}");
}

#[test]
fn a_drop_to_a_tenth_of_the_bandwidth_is_found() {
    let link = Link {
        later: Some((5_000, 1_250_000)),
        ..LINK
    };
    let outcome = link.run(&[Bbr::new(MSS)], 0, 15_000, 45_000)[0];
    let share = link.share(outcome.delivered, 30_000) * 10.0;
    assert!(share > 0.85, "{share}");
    assert!(outcome.rtt < 200_000, "{}", outcome.rtt);
}

/// A flow with a settled model of the path.
fn settled() -> Bbr {
    let mut settled = None;
    LINK.watch(&[Bbr::new(MSS)], 0, 0, 1_500, |_, _, bbr| {
        settled = Some(*bbr);
    });
    let settled = settled.unwrap();
    assert_eq!(settled.state, BbrState::Cruise);
    settled
}

#[test]
fn application_limited_rounds_do_not_lower_the_bandwidth() {
    let mut bbr = settled();
    let known = bbr.max_bw();
    for round in 0..20 {
        let millis = 1_500 + 40 * round;
        bbr.on_send(MSS, &at(millis, 0));
        bbr.on_ack(MSS, &at(millis + 40, 1));
    }
    assert_eq!(bbr.max_bw(), known);
    assert_eq!(bbr.bw(), known);
}

#[test]
fn a_restart_after_idle_is_paced_at_the_bandwidth() {
    let mut bbr = settled();
    let window = bbr.window();
    bbr.on_idle(&at(9_000, 0));
    bbr.on_send(MSS, &at(9_000, 0));
    assert_eq!(bbr.window(), window);
    let rate = bbr.pacing_rate().unwrap();
    assert!((12_200_000..=12_500_000).contains(&rate), "{rate}");
    // The queue has drained during the idle time, and the first ACK refreshes the minimum RTT.
    // Therefore ProbeRTT is not needed.
    bbr.on_ack(MSS, &at(9_040, 1));
    assert_ne!(bbr.state, BbrState::ProbeRtt);
}

#[test]
fn a_timeout_reduces_the_window_to_one_segment() {
    let mut bbr = settled();
    let known = bbr.max_bw();
    bbr.on_timeout(false, &at(2_000, 300));
    assert_eq!(bbr.window(), MSS);
    bbr.on_send(MSS, &at(2_000, 0));
    for round in 1..8 {
        let segments = bbr.window() / MSS;
        bbr.on_ack(segments * MSS, &at(2_000 + 40 * round, segments));
        bbr.on_send(segments * MSS, &at(2_000 + 40 * round, 0));
    }
    assert!(bbr.window() > 200 * MSS, "{}", bbr.window() / MSS);
    assert_eq!(bbr.max_bw(), known);
}

#[test]
fn an_ecn_echo_reduces_the_window() {
    // A sender reacts to an ECN echo as to a loss (RFC 3168, section 6.1.2). BBR reduces the window
    // to 70 %, and leaves Startup.
    let mut bbr = settled();
    let window = bbr.window();
    bbr.on_congestion(Congestion::Ecn, &at(1_600, 345));
    assert!(bbr.window() <= window / 10 * 7 + 1, "{}", bbr.window());
    let mut bbr = Bbr::new(MSS);
    bbr.on_congestion(Congestion::Ecn, &at(1_600, 10));
    assert_eq!(bbr.state, BbrState::Drain);
}

#[test]
fn loss_while_probing_limits_the_data_in_flight() {
    let link = Link::new(100, 40, 1);
    let mut limited = 0;
    link.watch(&[Bbr::new(MSS)], 0, 0, 20_000, |_, _, bbr| {
        if bbr.state == BbrState::Cruise && bbr.inflight_longterm != NONE {
            limited += 1;
            assert!(bbr.window() <= bbr.with_headroom(MSS).max(4 * MSS));
        }
    });
    assert!(limited > 1_000, "{limited}");
}
