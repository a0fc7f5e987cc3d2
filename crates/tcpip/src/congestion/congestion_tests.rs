use proptest::prelude::*;

use super::link::{Link, MSS};
use super::*;

#[test]
fn the_initial_window_is_that_of_rfc_6928() {
    fn check<C: CongestionControl>() {
        for (mss, window) in [
            (1460, 14_600),
            (536, 5_360),
            (1000, 10_000),
            (8960, 17_920), // two segments
        ] {
            let new = C::new(mss);
            assert_eq!(new.window(), window);
            assert_eq!(new.ssthresh(), u32::MAX);
        }
    }
    check::<Reno>();
    check::<NewReno>();
    check::<Cubic>();
    check::<Bbr>();
}

/// Calls the handler that `kind` selects. The numbers 0 to 5 select one handler each, and any other
/// number selects `on_ack`.
pub(super) fn trigger<C: CongestionControl>(cc: &mut C, kind: u8, bytes: u32, event: &Event) {
    match kind {
        0 => cc.on_congestion(
            if bytes.is_multiple_of(2) {
                Congestion::Loss
            } else {
                Congestion::Ecn
            },
            event,
        ),
        1 => cc.on_recovery_ack(bytes, bytes / 3, event),
        2 => cc.on_recovered(0, event),
        3 => cc.on_timeout(bytes.is_multiple_of(2), event),
        4 => cc.on_idle(event),
        5 => cc.on_send(bytes, event),
        _ => cc.on_ack(bytes, event),
    }
}

/// Random events: most with realistic values, some with arbitrary values.
fn events() -> impl Strategy<Value = Vec<(u8, u32, Event)>> {
    let likely = (0u8..40, 1u32..50_000, 0u32..2_000_000, 0u32..100_000).prop_map(
        |(kind, bytes, in_flight, rtt)| {
            let event = Event {
                in_flight,
                rtt,
                srtt: 50_000,
                ..Event::default()
            };
            (kind, bytes, event)
        },
    );
    let any = (
        0u8..8,
        any::<u32>(),
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()),
    )
        .prop_map(|(kind, bytes, (in_flight, rtt, srtt, nxt))| {
            let event = Event {
                in_flight,
                srtt,
                rtt,
                nxt,
                ..Event::default()
            };
            (kind, bytes, event)
        });
    prop::collection::vec(prop_oneof![9 => likely, 1 => any], 0..300)
}

fn check_bounds<C: CongestionControl>(
    mss: u32,
    steps: &[u32],
    events: &[(u8, u32, Event)],
) -> Result<(), TestCaseError> {
    let mut cc = C::new(mss);
    let mut now = 0_u32;
    let mut una = 0_u32;
    for (index, (kind, bytes, event)) in events.iter().enumerate() {
        now = now.wrapping_add(steps[index % steps.len()]);
        una = una.wrapping_add(bytes % 10_000);
        let event = Event {
            now,
            mss,
            una,
            nxt: event.nxt.wrapping_add(una).wrapping_add(event.in_flight),
            ..*event
        };
        let before = cc.window();
        trigger(&mut cc, *kind, *bytes, &event);
        let window = cc.window();
        prop_assert!((mss..=MAX_WINDOW).contains(&window), "{window}");
        if *kind == 0 {
            prop_assert!(window >= 2 * mss, "{window} after congestion");
            prop_assert!(window <= before.max(2 * mss), "{before} -> {window}");
        }
        if cc.ssthresh() != u32::MAX {
            prop_assert!(cc.ssthresh() >= 2 * mss);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn reno_handles_any_order_of_events(
        mss in 88u32..=65_535,
        steps in prop::collection::vec(prop_oneof![0u32..2_000, any::<u32>()], 1..20),
        events in events(),
    ) {
        check_bounds::<Reno>(mss, &steps, &events)?;
    }

    #[test]
    fn cubic_handles_any_order_of_events(
        mss in 88u32..=65_535,
        steps in prop::collection::vec(prop_oneof![0u32..2_000, any::<u32>()], 1..20),
        events in events(),
    ) {
        check_bounds::<Cubic>(mss, &steps, &events)?;
    }
}

proptest! {
    #[test]
    fn bbr_handles_any_order_of_events(
        mss in 88u32..=65_535,
        steps in prop::collection::vec(prop_oneof![0u32..2_000, any::<u32>()], 1..20),
        events in events(),
    ) {
        check_bounds::<Bbr>(mss, &steps, &events)?;
    }
}

/// One of two algorithms, so that flows with different algorithms can share a link.
#[derive(Clone, Copy)]
enum Either {
    Cubic(Cubic),
    NewReno(NewReno),
}

macro_rules! either {
    ($self:ident, $cc:ident => $call:expr) => {
        match $self {
            Either::Cubic($cc) => $call,
            Either::NewReno($cc) => $call,
        }
    };
}

impl CongestionControl for Either {
    const NAME: &'static str = "either";

    fn with_window(window: u32) -> Self {
        Self::Cubic(Cubic::with_window(window))
    }

    fn window(&self) -> u32 {
        either!(self, cc => cc.window())
    }

    fn ssthresh(&self) -> u32 {
        either!(self, cc => cc.ssthresh())
    }

    fn on_send(&mut self, bytes: u32, event: &Event) {
        either!(self, cc => cc.on_send(bytes, event));
    }

    fn on_ack(&mut self, acked: u32, event: &Event) {
        either!(self, cc => cc.on_ack(acked, event));
    }

    fn on_congestion(&mut self, cause: Congestion, event: &Event) {
        either!(self, cc => cc.on_congestion(cause, event));
    }

    fn on_recovery_ack(&mut self, delivered: u32, lost: u32, event: &Event) {
        either!(self, cc => cc.on_recovery_ack(delivered, lost, event));
    }

    fn on_recovered(&mut self, delivered: u32, event: &Event) {
        either!(self, cc => cc.on_recovered(delivered, event));
    }

    fn on_timeout(&mut self, is_repeated: bool, event: &Event) {
        either!(self, cc => cc.on_timeout(is_repeated, event));
    }

    fn on_idle(&mut self, event: &Event) {
        either!(self, cc => cc.on_idle(event));
    }
}

/// The part of the link's capacity that each flow uses in the last two thirds of `millis`
/// milliseconds.
fn shares<C: CongestionControl>(link: Link, flows: &[C], millis: u64) -> Vec<f64> {
    link.run(flows, 2_000, millis / 3, millis)
        .iter()
        .map(|outcome| link.share(outcome.delivered, millis - millis / 3))
        .collect()
}

#[test]
fn one_flow_fills_the_link() {
    fn check<C: CongestionControl>() {
        for link in [
            Link::new(10, 20, 10),
            Link::new(50, 40, 10),
            Link::new(20, 100, 10),
        ] {
            let share = shares(link, &[C::new(MSS)], 90_000)[0];
            assert!(share > 0.93, "{link:?} {share}");
        }
    }
    check::<Reno>();
    check::<NewReno>();
    check::<Cubic>();
}

#[test]
fn flows_of_one_algorithm_share_fairly() {
    fn check<C: CongestionControl>() {
        for link in [Link::new(10, 20, 10), Link::new(40, 20, 10)] {
            let shares = shares(link, &[C::new(MSS); 2], 180_000);
            let sum: f64 = shares.iter().sum();
            let squares: f64 = shares.iter().map(|share| share * share).sum();
            let fairness = sum * sum / (2.0 * squares);
            assert!(sum > 0.9 && fairness > 0.95, "{link:?} {shares:?}");
        }
    }
    check::<Reno>();
    check::<Cubic>();
}

#[test]
fn cubic_does_not_starve_reno_on_small_paths() {
    // On small paths CUBIC is in its Reno-friendly region (RFC 9438, section 5.1).
    let link = Link::new(10, 20, 10);
    let flows = [
        Either::Cubic(Cubic::new(MSS)),
        Either::NewReno(NewReno::new(MSS)),
    ];
    let shares = shares(link, &flows, 180_000);
    assert!(shares.iter().sum::<f64>() > 0.9, "{shares:?}");
    let ratio = shares[0] / shares[1];
    assert!((0.5..2.0).contains(&ratio), "{shares:?}");
}

#[test]
fn cubic_is_faster_than_reno_on_a_long_fast_path() {
    // The loss rate is 5 in 10^5 segments, and the RTT is 100 ms. CUBIC's mean window is then 316
    // segments (RFC 9438, section 5.1), and Reno's is at most 185.
    let share = |flow: Either| {
        let of_seed = |seed| {
            let link = Link {
                loss: 50,
                seed,
                ..Link::new(200, 100, 10)
            };
            shares(link, &[flow], 60_000)[0]
        };
        (1..=12).map(of_seed).sum::<f64>() / 12.0
    };
    let cubic = share(Either::Cubic(Cubic::new(MSS)));
    let reno = share(Either::NewReno(NewReno::new(MSS)));
    assert!(cubic > 1.3 * reno, "{cubic} {reno}");
}

#[test]
fn hystart_does_not_fill_the_queue() {
    // HyStart++ ends slow start before it fills a deep queue (RFC 9406).
    let link = Link::new(50, 60, 60);
    let cubic = link.run(&[Cubic::new(MSS)], 0, 0, 3_000)[0];
    let reno = link.run(&[NewReno::new(MSS)], 0, 0, 3_000)[0];
    assert_eq!(cubic.lost, 0);
    assert!(reno.lost > 0);
    assert!(link.share(cubic.delivered, 3_000) > 0.6);
}
