//! The policy on a virtual clock, without ports.

use super::*;

const STRAGGLER: Duration = Duration::from_millis(5);
const NOW: Instant = Instant::from_millis(1_000);
const MICRO: Duration = Duration::from_micros(1);
/// A port whose packets gather in a ring while nobody waits.
const GATHERS: PortHints = PortHints {
    ready: false,
    can_poll: false,
    gathers: true,
    sent: 0,
};
const POLLS: PortHints = PortHints {
    can_poll: true,
    ..GATHERS
};
/// Only a packet can cause work, and all is flushed.
const QUIET: Outlook = Outlook {
    has_messages: false,
    due: None,
    flooded: false,
    flushed: true,
};
const FLOODED: Outlook = Outlook {
    flooded: true,
    ..QUIET
};

fn idle(wait: Wait) -> Idle {
    Idle::new(wait, STRAGGLER)
}

fn due(due: Instant) -> Outlook {
    Outlook {
        due: Some(due),
        ..QUIET
    }
}

fn block(timeout: Duration) -> Rest {
    Rest::Block {
        gather: Duration::ZERO,
        timeout,
    }
}

/// What a fresh policy says.
fn rest(wait: Wait, port: PortHints, outlook: Outlook) -> Rest {
    idle(wait).rest(port, outlook, NOW)
}

#[test]
fn who_spins_never_rests() {
    for port in [PortHints::default(), GATHERS, POLLS] {
        for outlook in [QUIET, FLOODED, due(NOW), due(Instant::FAR)] {
            assert_eq!(rest(Wait::Spin, port, outlook), Rest::Spin);
        }
    }
}

#[test]
fn nobody_rests_while_messages_wait() {
    let outlook = Outlook {
        has_messages: true,
        ..QUIET
    };
    for wait in [Wait::Block, Wait::BusyPoll] {
        for port in [PortHints::default(), GATHERS, POLLS] {
            assert_eq!(rest(wait, port, outlook), Rest::Spin);
        }
    }
}

#[test]
fn frames_at_hand_are_not_waited_for() {
    let ready = PortHints {
        ready: true,
        ..POLLS
    };
    for wait in [Wait::Block, Wait::BusyPoll] {
        for outlook in [QUIET, FLOODED] {
            assert_eq!(rest(wait, ready, outlook), Rest::Spin);
        }
    }
}

#[test]
fn a_sleep_ends_when_a_timer_is_due_or_the_stop_flag_is_looked_at() {
    let rest = |outlook| rest(Wait::Block, GATHERS, outlook);
    assert_eq!(rest(QUIET), block(STOP_CHECK));
    assert_eq!(rest(due(Instant::FAR)), block(STOP_CHECK));
    assert_eq!(rest(due(NOW + MICRO)), block(MICRO));
    for past in [NOW, Instant::ZERO] {
        assert_eq!(rest(due(past)), Rest::Spin);
    }
}

#[test]
fn what_is_not_flushed_is_flushed_again_soon() {
    let rest = |outlook| {
        let flushed = false;
        rest(Wait::Block, GATHERS, Outlook { flushed, ..outlook })
    };
    assert_eq!(rest(QUIET), block(STRAGGLER));
    assert_eq!(rest(due(NOW + STRAGGLER * 2)), block(STRAGGLER));
    assert_eq!(rest(due(NOW + MICRO)), block(MICRO));
}

#[test]
fn a_flood_keeps_those_awake_who_would_sleep() {
    assert_eq!(rest(Wait::Block, GATHERS, FLOODED), Rest::Yield);
    // Work that is due does not wait either.
    let outlook = Outlook {
        due: Some(NOW),
        ..FLOODED
    };
    assert_eq!(rest(Wait::Block, GATHERS, outlook), Rest::Yield);
    // What waits by polling the device must go on with that.
    assert_eq!(rest(Wait::BusyPoll, POLLS, FLOODED), Rest::Poll);
}

#[test]
fn busy_polling_blocks_where_nothing_is_driven() {
    assert_eq!(rest(Wait::BusyPoll, POLLS, QUIET), Rest::Poll);
    assert_eq!(rest(Wait::BusyPoll, GATHERS, QUIET), block(STOP_CHECK));
    assert_eq!(rest(Wait::Block, POLLS, QUIET), block(STOP_CHECK));
    assert_eq!(rest(Wait::BusyPoll, POLLS, due(NOW)), Rest::Spin);
}

/// Whether packets gather before each sleep, for what ended the last one and
/// was sent then.
fn gatherings(port: PortHints, flushed: bool, sleeps: &[(bool, u64)]) -> Vec<bool> {
    let mut idle = idle(Wait::Block);
    let mut sent = 0;
    let outlook = Outlook { flushed, ..QUIET };
    idle.rest(port, outlook, NOW);
    let gathering = sleeps.iter().map(|&(woken, frames)| {
        idle.note_pass(woken);
        // A loop sleeps only after a pass that found nothing.
        idle.note_pass(false);
        sent += frames;
        let port = PortHints { sent, ..port };
        match idle.rest(port, outlook, NOW) {
            Rest::Block { gather, .. } => !gather.is_zero(),
            other => panic!("{other:?}"),
        }
    });
    gathering.collect()
}

#[test]
fn packets_gather_after_wakeups_useless_wakeups_until_something_is_sent() {
    let (vain, sent) = ((true, 0), (true, 3));
    let sleeps = [
        vain, vain, vain, sent, vain, vain, vain, vain, vain, sent, vain,
    ];
    assert_eq!(
        gatherings(GATHERS, true, &sleeps),
        [
            false, false, false, false, false, false, false, true, true, false, false
        ]
    );
    // Not in a port where they do not, nor behind a full ring.
    assert_eq!(gatherings(PortHints::default(), true, &sleeps), [false; 11]);
    assert_eq!(gatherings(GATHERS, false, &sleeps), [false; 11]);
}

#[test]
fn who_waits_for_long_waits_for_the_next_packet_alone() {
    let (vain, idle) = ((true, 0), (false, 0));
    assert_eq!(
        gatherings(
            GATHERS,
            true,
            &[vain, vain, vain, vain, idle, vain, idle, idle]
        ),
        [false, false, false, true, false, false, false, false]
    );
}

#[test]
fn packets_gather_no_longer_than_until_a_timer_is_due() {
    let mut idle = idle(Wait::Block);
    for _ in 0..=USELESS_WAKEUPS {
        idle.rest(GATHERS, QUIET, NOW);
        idle.note_pass(true);
    }
    for (until, gather) in [(MICRO, MICRO), (GATHERING * 2, GATHERING)] {
        idle.note_pass(true);
        let rest = idle.rest(GATHERS, due(NOW + until), NOW);
        let timeout = until;
        assert_eq!(rest, Rest::Block { gather, timeout });
    }
}

/// What became of packets on virtual time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Served {
    sleeps: usize,
    /// Most time from a packet's arrival until a pass took it.
    latest: Duration,
}

/// Serves packets that come `apart`, on virtual time: a pass takes a
/// microsecond, and so does waking up.
fn serve(wait: Wait, apart: Duration, answered: bool, flooded: bool) -> Served {
    const PACKETS: u32 = 1_000;
    let arrivals: Vec<Instant> = (1..=PACKETS).map(|n| NOW + apart * n).collect();
    let (mut now, mut next, mut served) = (NOW, 0, Served::default());
    let (mut idle, mut port) = (idle(wait), GATHERS);
    while next < arrivals.len() {
        let come = arrivals[next..].iter().take_while(|at| **at <= now).count();
        if come > 0 {
            served.latest = served.latest.max(now.since(arrivals[next]));
            next += come;
            port.sent += if answered { come as u64 } else { 0 };
        }
        idle.note_pass(come > 0);
        now = now + MICRO;
        if come > 0 {
            continue;
        }
        let outlook = Outlook { flooded, ..QUIET };
        if let Rest::Block { gather, timeout } = idle.rest(port, outlook, now) {
            served.sleeps += 1;
            let woken = arrivals[next].max(now + gather);
            now = woken.min(now + timeout) + MICRO;
        }
    }
    served
}

#[test]
fn requests_are_answered_at_once_and_acks_useless_wakeups_wake_seldom() {
    let apart = Duration::from_micros(10);
    let requests = serve(Wait::Block, apart, true, false);
    assert_eq!((requests.sleeps, requests.latest), (1_000, MICRO));
    let acks = serve(Wait::Block, apart, false, false);
    assert!((160..200).contains(&acks.sleeps), "{acks:?}");
    assert!(acks.latest <= GATHERING, "{acks:?}");
    // Rare ones are taken as they come, some of them after a gathering.
    let rare = serve(Wait::Block, GATHERING * 3, false, false);
    assert_eq!((rare.sleeps, rare.latest), (1_000, MICRO));
}

#[test]
fn neither_a_flood_nor_spinning_sleeps() {
    let apart = Duration::from_micros(10);
    for (wait, flooded) in [(Wait::Block, true), (Wait::Spin, false)] {
        let served = serve(wait, apart, true, flooded);
        assert_eq!(served.sleeps, 0);
        assert!(served.latest <= MICRO, "{served:?}");
    }
}
