//! Tests of the application's deadlines, and of the idle timeout.

use std::time::Duration;

use crate::connection::Flags;
use crate::stack::testing::{Habit, Rig, noise};
use crate::{Config, Deadline};

const LONG: Duration = Duration::from_hours(24);

/// Settings with a long idle timeout, so that only the application's deadlines take effect.
fn patient() -> Config {
    Config {
        idle_timeout: LONG,
        ..Config::default()
    }
}

/// Makes a rig whose application has set a deadline at the first byte, and waits for the remaining
/// bytes of the request.
fn waiting(config: &Config, after: Duration) -> Rig {
    let mut rig = Rig::established(config);
    rig.app().habit = Habit::Lazy;
    rig.app().deadline = Some(after);
    rig.recv(1, 1, "PA", b"G");
    rig.sent(1, 2, "A", b"");
    rig.take_log();
    rig
}

#[test]
fn a_deadline_calls_the_application_when_it_passes() {
    let mut rig = waiting(&patient(), Duration::from_secs(30));
    // More bytes of the request do not extend the deadline.
    for at in 2..32 {
        rig.pass_ms(967);
        rig.recv(at, 1, "PA", b"x");
        rig.sent(1, at + 1, "A", b"");
    }
    rig.pass_ms(30_000 - 30 * 967 - 1);
    rig.sent_nothing();
    rig.take_log();
    rig.pass_ms(1);
    rig.sent(1, 32, "FA", b"");
    assert_eq!(rig.take_log(), "deadline(Request)");
    assert_eq!(rig.stack.counters().deadlines_missed, 1);
    assert_eq!(
        rig.stack.cx.buffers.in_use(),
        0,
        "unconsumed data is dropped"
    );
}

#[test]
fn a_deadline_that_was_cleared_never_passes() {
    let mut rig = waiting(&patient(), Duration::from_secs(30));
    rig.pass_ms(29_999);
    rig.app().habit = Habit::Echo;
    rig.app().deadline = None;
    rig.recv(2, 1, "PA", b"x");
    rig.sent(1, 3, "PA", b"Gx");
    rig.recv(3, 3, "A", b"");
    rig.take_log();
    rig.pass_ms(1_000_000);
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "");
}

#[test]
fn a_new_deadline_replaces_the_old_one() {
    let mut rig = waiting(&patient(), Duration::from_secs(30));
    rig.pass_ms(10_000);
    rig.app().deadline = Some(Duration::from_secs(5));
    rig.recv(2, 1, "PA", b"x");
    rig.sent(1, 3, "A", b"");
    rig.pass_ms(4_999);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 3, "FA", b"");
}

#[test]
fn the_idle_timeout_may_come_first() {
    let config = Config {
        idle_timeout: Duration::from_secs(20),
        ..Config::default()
    };
    let mut rig = waiting(&config, Duration::from_secs(30));
    rig.pass_ms(19_999);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 2, "FA", b"");
    rig.recv(2, 2, "A", b"");
    rig.pass_ms(15_000);
    rig.sent_nothing();
    assert_eq!(
        rig.stack.counters().deadlines_missed,
        0,
        "the idle timeout closed the connection first"
    );
}

#[test]
fn a_deadline_does_not_interrupt_data_being_sent() {
    let mut rig = Rig::serving(&patient(), &noise(20_000), None);
    rig.app().deadline = Some(Duration::from_secs(1));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 10);
    let mut at = 1;
    while at < 20_001 {
        rig.pass_ms(150);
        at = (at + 1460).min(20_001);
        rig.recv(2, at, "A", b"");
    }
    assert_eq!(rig.stack.counters().deadlines_missed, 1);
    assert_eq!(rig.stack.counters().retransmits, 0);
    let last = rig.sent_all().pop().unwrap();
    assert!(
        last.control.contains('F'),
        "the FIN follows all written data"
    );
}

#[test]
fn a_connection_reports_the_purpose_of_its_deadline() {
    let mut rig = waiting(&patient(), Duration::from_secs(30));
    assert_eq!(
        rig.stack.connection(0).1.deadline(),
        Some(Deadline::Request)
    );
    rig.stack.connection(0).1.clear_deadline();
    assert_eq!(rig.stack.connection(0).1.deadline(), None);
}

#[test]
fn an_inherited_timer_does_not_count_as_a_needless_one() {
    let mut rig = waiting(&patient(), Duration::from_millis(600));
    rig.recv(2, 1, "R", b"");
    rig.pass_ms(500);
    rig.app().deadline = None;
    rig.open(Some(1_460));
    // Now the timer of the first connection expires, and the second one adds its own.
    let flags = |rig: &Rig| rig.stack.tcb(0).flags;
    assert!(flags(&rig).intersects(Flags::INHERITED_TIMER));
    rig.pass_ms(100);
    assert!(!flags(&rig).intersects(Flags::INHERITED_TIMER | Flags::NEEDLESS_TIMER));
}

#[test]
fn a_connection_that_ends_with_a_new_alarm_leaves_its_timer() {
    let mut rig = waiting(&patient(), Duration::from_mins(1));
    let id = rig.id();
    rig.reach(id, |_, conn| {
        conn.set_deadline(Deadline::Request, Duration::from_secs(90));
        conn.abort();
    });
    assert_eq!(rig.stack.connections(), 0);
    rig.sent_all();
    rig.app().deadline = None;
    rig.syn(Some(1_460));
    assert_eq!(rig.sent_one().control, "SA");
    rig.pass_ms(999);
    rig.sent_nothing();
    rig.pass_ms(1);
    assert_eq!(
        rig.sent_one().control,
        "SA",
        "the handshake has its own timer"
    );
}

#[test]
fn a_connection_inherits_the_timer_of_its_tcb() {
    // The timer of the first connection expires before, between or after the deadlines of the second.
    for (after, passed) in [
        (1, 0),
        (1, 400),
        (1, 1_500),
        (2, 0),
        (60, 0),
        (60, 59_500),
        (60, 70_000),
    ] {
        let mut rig = waiting(&patient(), Duration::from_secs(after));
        rig.recv(2, 1, "R", b"");
        assert_eq!(rig.take_log(), "close(Reset)");
        rig.pass_ms(passed);
        assert_eq!(rig.take_log(), "", "an ended connection has no deadline");
        rig.sent_nothing();
        rig.app().deadline = None;
        rig.syn(Some(1_460));
        for timeout in [1_000, 2_000] {
            assert_eq!(rig.sent_one().control, "SA");
            rig.pass_ms(timeout - 1);
            rig.sent_nothing();
            rig.pass_ms(1);
        }
        rig.sent_all();
        rig.pass_ms(1_000_000);
        assert_eq!(rig.stack.connections(), 0);
        assert_eq!(rig.stack.poll_timeout(), None);
    }
}
