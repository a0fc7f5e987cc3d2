use proptest::prelude::*;

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
}

/// Lets something of a `kind` (0 to 5, or any other) happen.
pub(super) fn happen<C: CongestionControl>(cc: &mut C, kind: u8, bytes: u32, event: &Event) {
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
        2 => cc.on_recovered(event),
        3 => cc.on_timeout(bytes.is_multiple_of(2), event),
        4 => cc.on_idle(event),
        5 => cc.on_send(bytes, event),
        _ => cc.on_ack(bytes, event),
    }
}

/// An event with times and sizes near each other, or anything at all.
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
        happen(&mut cc, *kind, *bytes, &event);
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
    fn no_order_of_events_breaks_reno(
        mss in 88u32..=65_535,
        steps in prop::collection::vec(prop_oneof![0u32..2_000, any::<u32>()], 1..20),
        events in events(),
    ) {
        check_bounds::<Reno>(mss, &steps, &events)?;
    }

    #[test]
    fn no_order_of_events_breaks_cubic(
        mss in 88u32..=65_535,
        steps in prop::collection::vec(prop_oneof![0u32..2_000, any::<u32>()], 1..20),
        events in events(),
    ) {
        check_bounds::<Cubic>(mss, &steps, &events)?;
    }
}
