//! Keep-alive (RFC 1122, section 4.2.3.6), the user timeout (RFC 5482, as
//! configuration), pacing, and what a connection tells of itself.

use std::time::Duration;

use crate::Negotiated;
use crate::stack::testing::{Habit, Rig, noise};
use crate::{Condition, Config};

fn keeping() -> Config {
    Config {
        keep_alive: Some(Duration::from_secs(10)),
        idle_timeout: Duration::from_mins(1),
        probes: 3,
        ..Config::default()
    }
}

#[test]
fn a_silent_peer_is_asked_and_given_up() {
    let mut rig = Rig::established(&keeping());
    rig.pass_ms(9_999);
    rig.sent_nothing();
    for _ in 0..3 {
        rig.pass_ms(1);
        // Just before what the peer expects, so that it must answer.
        rig.sent(0, 1, "A", b"");
        rig.pass_ms(9_999);
        rig.sent_nothing();
    }
    rig.pass_ms(1);
    rig.sent(1, 1, "RA", b"");
    assert_eq!(rig.take_log(), "close(TimedOut)");
    assert_eq!(rig.stack.counters().keep_alives, 3);
}

#[test]
fn one_that_could_not_be_asked_is_not_given_up() {
    let mut rig = Rig::established(&keeping());
    rig.port.room = 0;
    rig.pass_ms(49_999);
    rig.sent_nothing();
    rig.port.room = 1;
    rig.pass_ms(1);
    rig.sent(0, 1, "A", b"");
    assert_eq!(rig.take_log(), "");
}

#[test]
fn one_that_answers_is_kept_until_the_idle_timeout() {
    let mut rig = Rig::established(&keeping());
    for _ in 0..5 {
        rig.pass_ms(10_000);
        rig.sent(0, 1, "A", b"");
        rig.recv(1, 1, "A", b"");
        rig.sent_nothing();
    }
    rig.pass_ms(10_000);
    rig.sent(1, 1, "FA", b"");
    assert_eq!(rig.stack.counters().idle_closed, 1);
}

#[test]
fn data_ends_the_silence() {
    let mut rig = Rig::established(&keeping());
    rig.app().habit = Habit::Silent;
    for at in 0..20 {
        rig.pass_ms(10_000);
        rig.sent(0, at + 1, "A", b"");
        rig.recv(at + 1, 1, "PA", b"x");
        rig.sent(1, at + 2, "A", b"");
    }
    assert_eq!(rig.stack.counters().idle_closed, 0);
}

#[test]
fn without_keep_alive_nobody_is_asked() {
    let mut rig = Rig::established(&Config::default());
    rig.pass_ms(59_999);
    rig.sent_nothing();
}

#[test]
fn data_unacknowledged_for_the_user_timeout_ends_the_connection() {
    let mut rig = Rig::serving(
        &Config {
            user_timeout: Some(Duration::from_secs(1)),
            ..Config::default()
        },
        b"content",
        None,
    );
    rig.recv(1, 1, "PA", b"g");
    rig.take_log();
    rig.pass_ms(999);
    assert_eq!(rig.sent_all().len(), 3, "at once, after 200 and 600 ms");
    assert_eq!(rig.take_log(), "");
    rig.pass_ms(1);
    assert_eq!(rig.take_log(), "close(TimedOut)");
}

#[test]
fn an_acknowledgement_ends_the_user_timeout() {
    let mut rig = Rig::serving(
        &Config {
            user_timeout: Some(Duration::from_millis(500)),
            ..Config::default()
        },
        &noise(100_000),
        None,
    );
    rig.recv(1, 1, "PA", b"g");
    rig.take_log();
    for n in 1..8 {
        rig.pass_ms(450);
        rig.recv(2, 1 + 1460 * n, "A", b"");
    }
    assert_eq!(rig.take_log(), "");
}

#[test]
fn paced_segments_are_spread_over_the_round_trip() {
    let mut rig = Rig::new(&Config {
        pacing: true,
        ..Config::default()
    });
    rig.load(&noise(100_000), None);
    rig.syn(Some(1472));
    rig.sent_one();
    // A round trip of 100 ms: ten segments in half of it, in slow start.
    rig.pass_ms(100);
    rig.recv(1, 1, "A", b"");
    rig.recv(1, 1, "PA", b"g");
    let mut times = Vec::new();
    for millis in 0..100 {
        if millis == 1 {
            // It has looked, and knows when to look again.
            let due = rig.stack.poll_timeout().unwrap();
            assert!(due.since(rig.now).as_millis() >= 2);
        }
        for _ in rig.sent_all() {
            times.push(millis);
        }
        rig.pass_ms(1);
    }
    assert_eq!(times.len(), 10, "{times:?}");
    assert_eq!(times[0], 0);
    let last = times[9];
    assert!((35..=55).contains(&last), "{times:?}");
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] <= 7),
        "{times:?}"
    );
}

#[test]
fn a_connection_tells_how_it_goes() {
    let mut rig = Rig::serving(&Config::default(), &noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent_all();
    let info = rig.info();
    assert_eq!(info.condition, Condition::Open);
    assert_eq!((info.unacked, info.unsent), (14_600, 85_400));
    assert_eq!(
        (info.mss, info.cwnd, info.ssthresh),
        (1460, 14_600, u32::MAX)
    );
    assert_eq!((info.snd_wnd, info.rcv_wnd), (65_535, 16_384));
    assert_eq!(info.negotiated, Negotiated::default());
    assert_eq!(
        format!("{:?}", info.negotiated),
        "Negotiated { sack: false, timestamps: false, peer_scale: None, ecn: false }"
    );
    for _ in 0..3 {
        rig.recv(2, 1, "A", b"");
    }
    let info = rig.info();
    assert_eq!(info.condition, Condition::Recovery);
    assert_eq!(info.ssthresh, 7_300);
    rig.pass_ms(500);
    let info = rig.info();
    assert_eq!((info.condition, info.retries), (Condition::Loss, 1));
    assert!(info.lost > 0);
}

/// RFC 5681, section 4.1, with keep-alives.
#[test]
fn keep_alives_do_not_hide_a_silence() {
    let config = Config {
        keep_alive: Some(Duration::from_secs(1)),
        ..Config::default()
    };
    let mut rig = Rig::serving(&config, &noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    let mut at = 1;
    while at < 100_001 {
        rig.pass_ms(1);
        at = rig.stack.records[0]
            .tcb
            .view()
            .snd_nxt
            .0
            .wrapping_sub(rig.iss);
        rig.recv(2, at, "A", b"");
        rig.sent_all();
    }
    for _ in 0..30 {
        rig.pass_ms(1_000);
        rig.sent_one();
        rig.recv(2, at, "A", b"");
        rig.sent_nothing();
    }
    rig.pass_ms(50);
    rig.recv(2, at, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 10);
}
