//! Tests of the policy on virtual time, without ports.

use super::*;

const STRAGGLER: Duration = Duration::from_millis(5);
pub(super) const NOW: Instant = Instant::from_millis(1_000);
pub(super) const MICRO: Duration = Duration::from_micros(1);
/// A port whose packets accumulate in a ring while the loop sleeps.
pub(super) const GATHERS: PortHints = PortHints {
    ready: false,
    can_poll: false,
    gathers: true,
    sent: 0,
};
const POLLS: PortHints = PortHints {
    can_poll: true,
    ..GATHERS
};
/// No timer is set, and all packets are flushed.
pub(super) const QUIET: LoopStatus = LoopStatus {
    has_messages: false,
    due: None,
    flooded: false,
    flushed: true,
};
const FLOODED: LoopStatus = LoopStatus {
    flooded: true,
    ..QUIET
};

pub(super) fn idle(wait: Wait) -> Idle {
    Idle::new(wait, STRAGGLER)
}

fn due(due: Instant) -> LoopStatus {
    LoopStatus {
        due: Some(due),
        ..QUIET
    }
}

pub(super) fn block(timeout: Duration) -> IdleAction {
    IdleAction::Block {
        gather: Duration::ZERO,
        timeout,
    }
}

fn poll(timeout: Duration) -> IdleAction {
    IdleAction::Poll { timeout }
}

/// Returns what a newly created policy decides.
pub(super) fn action(wait: Wait, port: PortHints, status: LoopStatus) -> IdleAction {
    idle(wait).action(port, status, NOW)
}

#[test]
fn a_spinning_loop_never_sleeps() {
    for port in [PortHints::default(), GATHERS, POLLS] {
        for status in [QUIET, FLOODED, due(NOW), due(Instant::FAR)] {
            assert_eq!(action(Wait::Spin, port, status), IdleAction::Spin);
        }
    }
}

#[test]
fn a_loop_with_messages_does_not_sleep() {
    let status = LoopStatus {
        has_messages: true,
        ..QUIET
    };
    for wait in [Wait::Adaptive, Wait::Block, Wait::BusyPoll] {
        for port in [PortHints::default(), GATHERS, POLLS] {
            assert_eq!(action(wait, port, status), IdleAction::Spin);
        }
    }
}

#[test]
fn a_loop_with_available_frames_does_not_sleep() {
    let ready = PortHints {
        ready: true,
        ..POLLS
    };
    for wait in [Wait::Adaptive, Wait::Block, Wait::BusyPoll] {
        for status in [QUIET, FLOODED] {
            assert_eq!(action(wait, ready, status), IdleAction::Spin);
        }
    }
}

#[test]
fn a_sleep_ends_at_a_timer_or_the_next_check_of_the_stop_flag() {
    let action = |status| action(Wait::Block, GATHERS, status);
    assert_eq!(action(QUIET), block(STOP_CHECK));
    assert_eq!(action(due(Instant::FAR)), block(STOP_CHECK));
    assert_eq!(action(due(NOW + MICRO)), block(MICRO));
    for past in [NOW, Instant::ZERO] {
        assert_eq!(action(due(past)), IdleAction::Spin);
    }
}

#[test]
fn the_wait_before_the_next_flush_doubles_up_to_a_limit() {
    const UNFLUSHED: LoopStatus = LoopStatus {
        flushed: false,
        ..QUIET
    };
    let mut idle = idle(Wait::Block);
    let mut action = |received, status| {
        idle.note_pass(received);
        idle.action(GATHERS, status, NOW)
    };
    let after = |micros| block(Duration::from_micros(micros));
    for micros in [50, 100, 200, 400, 800, 1_600, 3_200] {
        assert_eq!(action(false, UNFLUSHED), after(micros));
    }
    for _ in 0..100 {
        assert_eq!(action(false, UNFLUSHED), block(STRAGGLER));
    }
    let soon = LoopStatus {
        due: Some(NOW + MICRO),
        ..UNFLUSHED
    };
    assert_eq!(action(false, soon), block(MICRO));
    assert_eq!(action(true, UNFLUSHED), after(50), "the device is alive");
    assert_eq!(action(false, UNFLUSHED), after(100));
    assert_eq!(action(false, QUIET), block(STOP_CHECK));
    assert_eq!(action(false, UNFLUSHED), after(50));
}

#[test]
fn a_flooded_loop_yields_instead_of_sleeping() {
    for wait in [Wait::Adaptive, Wait::Block] {
        assert_eq!(action(wait, GATHERS, FLOODED), IdleAction::Yield);
    }
    // A flooded loop yields even if a timer has expired.
    let status = LoopStatus {
        due: Some(NOW),
        ..FLOODED
    };
    assert_eq!(action(Wait::Block, GATHERS, status), IdleAction::Yield);
    // A busy-polling loop must keep polling the device, even during a flood.
    assert_eq!(action(Wait::BusyPoll, POLLS, FLOODED), poll(STOP_CHECK));
}

#[test]
fn busy_polling_blocks_if_the_port_cannot_poll() {
    assert_eq!(action(Wait::BusyPoll, POLLS, QUIET), poll(STOP_CHECK));
    assert_eq!(action(Wait::BusyPoll, GATHERS, QUIET), block(STOP_CHECK));
    assert_eq!(action(Wait::Block, POLLS, QUIET), block(STOP_CHECK));
    assert_eq!(action(Wait::BusyPoll, POLLS, due(NOW)), IdleAction::Spin);
}

/// Returns for each sleep whether the loop first lets packets accumulate.
///
/// For each sleep, `sleeps` tells whether packets ended the previous sleep, and how many frames
/// were sent afterwards.
fn gathers_before(port: PortHints, flushed: bool, sleeps: &[(bool, u64)]) -> Vec<bool> {
    let mut idle = idle(Wait::Block);
    let mut sent = 0;
    let status = LoopStatus { flushed, ..QUIET };
    idle.action(port, status, NOW);
    let gathers = sleeps.iter().map(|&(woken, frames)| {
        idle.note_pass(woken);
        // A loop sleeps only after a pass without packets.
        idle.note_pass(false);
        sent += frames;
        let port = PortHints { sent, ..port };
        match idle.action(port, status, NOW) {
            IdleAction::Block { gather, .. } => !gather.is_zero(),
            other => panic!("{other:?}"),
        }
    });
    gathers.collect()
}

#[test]
fn packets_accumulate_after_useless_wakeups_until_a_packet_is_sent() {
    let (useless, sent) = ((true, 0), (true, 3));
    let sleeps = [
        useless, useless, useless, sent, useless, useless, useless, useless, useless, sent, useless,
    ];
    assert_eq!(
        gathers_before(GATHERS, true, &sleeps),
        [
            false, false, false, false, false, false, false, true, true, false, false
        ]
    );
    // The loop does not let packets accumulate if the port has no ring, or while unsent packets
    // wait for a flush.
    assert_eq!(
        gathers_before(PortHints::default(), true, &sleeps),
        [false; 11]
    );
    assert_eq!(gathers_before(GATHERS, false, &sleeps), [false; 11]);
}

#[test]
fn a_long_wait_without_packets_is_not_a_useless_wakeup() {
    let (useless, idle) = ((true, 0), (false, 0));
    assert_eq!(
        gathers_before(
            GATHERS,
            true,
            &[
                useless, useless, useless, useless, idle, useless, idle, idle
            ]
        ),
        [false, false, false, true, false, false, false, false]
    );
}

#[test]
fn packets_do_not_accumulate_beyond_a_timer() {
    let mut idle = idle(Wait::Block);
    for _ in 0..=USELESS_WAKEUPS {
        idle.action(GATHERS, QUIET, NOW);
        idle.note_pass(true);
    }
    for (until, gather) in [(MICRO, MICRO), (GATHERING * 2, GATHERING)] {
        idle.note_pass(true);
        let action = idle.action(GATHERS, due(NOW + until), NOW);
        let timeout = until;
        assert_eq!(action, IdleAction::Block { gather, timeout });
    }
}

/// Result of handling packets on virtual time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Served {
    sleeps: usize,
    /// Maximum time from a packet's arrival to the pass that received it.
    latest: Duration,
}

/// Simulates a loop that receives one packet every `interval`, on virtual time. A pass and a
/// wake-up take one microsecond each.
fn serve(wait: Wait, interval: Duration, answered: bool, flooded: bool) -> Served {
    const PACKETS: u32 = 1_000;
    let arrivals: Vec<Instant> = (1..=PACKETS).map(|n| NOW + interval * n).collect();
    let (mut now, mut next, mut served) = (NOW, 0, Served::default());
    let (mut idle, mut port) = (idle(wait), GATHERS);
    while next < arrivals.len() {
        let arrived = arrivals[next..].iter().take_while(|at| **at <= now).count();
        if arrived > 0 {
            served.latest = served.latest.max(now.since(arrivals[next]));
            next += arrived;
            port.sent += if answered { arrived as u64 } else { 0 };
        }
        idle.note_pass(arrived > 0);
        now = now + MICRO;
        if arrived > 0 {
            continue;
        }
        let status = LoopStatus { flooded, ..QUIET };
        if let IdleAction::Block { gather, timeout } = idle.action(port, status, now) {
            served.sleeps += 1;
            let woken = arrivals[next].max(now + gather);
            now = woken.min(now + timeout) + MICRO;
        }
    }
    served
}

#[test]
fn requests_are_answered_at_once_and_pure_acks_rarely_cause_wakeups() {
    let interval = Duration::from_micros(10);
    let requests = serve(Wait::Block, interval, true, false);
    assert_eq!((requests.sleeps, requests.latest), (1_000, MICRO));
    let acks = serve(Wait::Block, interval, false, false);
    assert!((160..200).contains(&acks.sleeps), "{acks:?}");
    assert!(acks.latest <= GATHERING, "{acks:?}");
    // Packets that arrive only after the loop has finished accumulating are handled without delay.
    let rare = serve(Wait::Block, GATHERING * 3, false, false);
    assert_eq!((rare.sleeps, rare.latest), (1_000, MICRO));
}

#[test]
fn the_loop_never_sleeps_during_a_flood_or_while_spinning() {
    let interval = Duration::from_micros(10);
    for (wait, flooded) in [(Wait::Block, true), (Wait::Spin, false)] {
        let served = serve(wait, interval, true, flooded);
        assert_eq!(served.sleeps, 0);
        assert!(served.latest <= MICRO, "{served:?}");
    }
}
