//! Tests of access to connections by id outside their own callbacks, of messages and timers, and of
//! content items that are added in callbacks.

use std::time::Duration;

use crate::stack::testing::{Habit, Rig};
use crate::{Config, ConnectionId, Deadline, MAX_WRITE_LEN, Timer, WriteError};

#[test]
fn a_response_is_written_after_the_callback() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1, 1, "PA", b"ask");
    rig.sent(1, 4, "A", b"");
    rig.pass_ms(250);
    let (id, now) = (rig.id(), rig.now);
    let reached = rig.reach(id, |_, conn| {
        assert_eq!(conn.id(), id);
        assert_eq!(conn.now(), now);
        assert_eq!(*conn.state(), 3, "its own state");
        conn.write_bytes(b"answer").unwrap();
    });
    assert!(reached);
    rig.sent(1, 4, "PA", b"answer");
    // The answer is retransmitted like any other data.
    rig.pass_ms(1_000);
    rig.sent(1, 4, "PA", b"answer");
}

#[test]
fn bytes_are_made_in_the_buffer_that_they_are_sent_from() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1, 1, "PA", b"ask");
    rig.sent(1, 4, "A", b"");
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| {
        assert_eq!(conn.write_with(|_| {}), Ok(()));
        assert_eq!(conn.write_with(|out| out.extend(b"head ")), Ok(()));
        let len = MAX_WRITE_LEN + 1;
        let too_long = conn.write_with(|out| out.resize(len, b'x'));
        assert_eq!(too_long, Err(WriteError::TooLong { len }));
        assert_eq!(conn.write_bytes(b"and more"), Ok(()));
        conn.close();
        assert_eq!(
            conn.write_with(|_| panic!("it is closed")),
            Err(WriteError::Closed)
        );
    }));
    // What failed or was empty has given its buffer back, and left no bytes in it.
    rig.check();
    rig.sent(1, 4, "FPA", b"head and more");
}

#[test]
fn a_parked_request_is_offered_again() {
    let mut rig = Rig::with_habit(Habit::Lazy);
    rig.recv(1, 1, "PA", b"ask");
    rig.sent(1, 4, "A", b"");
    rig.take_log();
    rig.app().habit = Habit::Echo;
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| conn.offer_again()));
    assert_eq!(rig.take_log(), "receive(3)");
    rig.sent(1, 4, "PA", b"ask");
    // The application has consumed all data, so nothing is offered again.
    assert!(rig.reach(id, |_, conn| conn.offer_again()));
    assert_eq!(rig.take_log(), "");
    rig.sent_nothing();
}

#[test]
fn a_parked_request_outlives_the_clients_fin() {
    let mut rig = Rig::with_habit(Habit::Lazy);
    rig.app().close_back = false;
    rig.recv(1, 1, "FPA", b"ask");
    rig.sent(1, 5, "A", b"");
    rig.take_log();
    rig.app().habit = Habit::EchoAndClose;
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| conn.offer_again()));
    rig.sent(1, 5, "FPA", b"ask");
}

#[test]
fn a_parked_connection_is_offered_nothing_until_it_is_resumed() {
    let mut rig = Rig::with_habit(Habit::Park);
    rig.recv(1, 1, "PA", b"abcde");
    assert_eq!(rig.take_log(), "receive(5)", "not the rest");
    rig.sent(1, 6, "A", b"");
    let id = rig.id();
    // The application may still write to a parked connection, and learns when the data is
    // acknowledged.
    assert!(rig.reach(id, |_, conn| conn.write_bytes(b"later").unwrap()));
    rig.sent(1, 6, "PA", b"later");
    rig.recv(6, 6, "PA", b"f");
    rig.sent(6, 7, "A", b"");
    assert_eq!(rig.take_log(), "sent");
    assert!(rig.reach(id, |_, conn| conn.offer_again()));
    assert_eq!(rig.take_log(), "");
    assert!(rig.reach(id, |_, conn| conn.resume()));
    assert_eq!(rig.take_log(), "receive(4)");
    rig.app().habit = Habit::Silent;
    assert!(rig.reach(id, |_, conn| conn.resume()));
    assert_eq!(rig.take_log(), "receive(2)");
    rig.recv(7, 6, "PA", b"g");
    assert_eq!(rig.take_log(), "receive(1)");
}

#[test]
fn the_application_learns_of_the_fin_when_a_parked_connection_is_resumed() {
    let mut rig = Rig::with_habit(Habit::Park);
    rig.recv(1, 1, "FPA", b"ab");
    rig.sent(1, 4, "A", b"");
    assert_eq!(rig.take_log(), "receive(2)");
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| {
        conn.write_bytes(b"later").unwrap();
        conn.resume();
    }));
    assert_eq!(rig.take_log(), "half-close");
    rig.sent(1, 4, "FPA", b"later");
}

#[test]
fn the_application_learns_of_the_fin_when_it_resumes_the_connection_after_an_acknowledgement() {
    let mut rig = Rig::with_habit(Habit::Park);
    rig.recv(1, 1, "FPA", b"ab");
    rig.sent(1, 4, "A", b"");
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| conn.write_bytes(b"later").unwrap()));
    rig.sent(1, 4, "PA", b"later");
    assert_eq!(rig.take_log(), "receive(2)");
    rig.app().resumes = true;
    rig.recv(4, 6, "A", b"");
    assert_eq!(rig.take_log(), "sent half-close");
    rig.sent(6, 4, "FA", b"");
}

#[test]
fn a_parked_connection_that_is_never_resumed_ends_when_it_is_idle() {
    let config = Config {
        idle_timeout: Duration::from_secs(10),
        ..Config::default()
    };
    let mut rig = Rig::established(&config);
    rig.app().habit = Habit::Park;
    rig.recv(1, 1, "PA", b"abc");
    rig.sent(1, 4, "A", b"");
    rig.pass_ms(9_999);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 4, "FA", b"");
    let id = rig.id();
    // Our side is already closed, so parking and resuming have no effect.
    assert!(rig.reach(id, |_, conn| {
        conn.park();
        conn.resume();
        assert_eq!(conn.write_bytes(b"late"), Err(WriteError::Closed));
    }));
    assert_eq!(rig.take_log(), "receive(3)");
}

#[test]
fn unconsumed_data_is_offered_again_at_once_on_request() {
    let mut rig = Rig::with_habit(Habit::SipOn);
    rig.recv(1, 1, "PA", b"abcde");
    assert_eq!(rig.take_log(), "receive(5) receive(3) receive(1)");
    rig.sent(1, 6, "A", b"");
    assert_eq!(rig.stack.cx.buffers.in_use(), 0, "nothing is kept");
    // An application that consumes nothing is called only once, although it calls `offer_again`.
    rig.app().habit = Habit::LazyOn;
    rig.recv(6, 1, "PA", b"f");
    assert_eq!(rig.take_log(), "receive(1)");
    rig.sent(1, 7, "A", b"");
    // Data in a receive buffer is also offered again immediately, because the application has
    // consumed some of it.
    rig.app().habit = Habit::SipOn;
    rig.recv(7, 1, "PA", b"gh");
    assert_eq!(rig.take_log(), "receive(3) receive(1)");
}

#[test]
fn a_callback_creates_and_writes_a_content() {
    let mut rig = Rig::with_habit(Habit::Store);
    rig.recv(1, 1, "PA", b"value");
    rig.sent(1, 6, "PA", b"value");
    // The content item was removed immediately, but its bytes are kept for retransmissions.
    rig.pass_ms(1_000);
    rig.sent(1, 6, "PA", b"value");
    rig.recv(6, 6, "A", b"");
    assert_eq!(rig.stack.contents().totals().contents, 0);
}

#[test]
fn write_once_sends_shared_bytes_and_then_releases_them() {
    let mut rig = Rig::with_habit(Habit::Silent);
    let (id, bytes) = (rig.id(), std::sync::Arc::<[u8]>::from(*b"shared"));
    assert!(rig.reach(id, |_, conn| {
        conn.write_once(bytes.clone()).unwrap();
        conn.close();
        assert_eq!(conn.write_once(bytes.clone()), Err(WriteError::Closed));
    }));
    rig.sent(1, 1, "FPA", b"shared");
    // The bytes are kept as long as they may be retransmitted.
    rig.pass_ms(1_000);
    rig.sent(1, 1, "FPA", b"shared");
    rig.recv(1, 8, "A", b"");
    assert_eq!(rig.stack.contents().totals().contents, 0);
    assert_eq!(std::sync::Arc::strong_count(&bytes), 1);
}

#[test]
fn connection_ids_are_not_reused() {
    let config = Config {
        max_time_wait: 0,
        ..Config::default()
    };
    let mut rig = Rig::established(&config);
    let first = rig.id();
    rig.recv(1, 1, "R", b"");
    assert!(!rig.reach(first, |_, _| panic!("it is over")));
    rig.open(Some(1460));
    let second = rig.id();
    assert_eq!(rig.stack.table.records.len(), 1, "the place is the same");
    assert_ne!(first, second);
    assert!(!rig.reach(first, |_, _| panic!("it is over")));
    assert!(rig.reach(second, |_, _| ()));
}

#[test]
fn a_connection_is_accessible_from_its_acceptance_until_both_sides_have_closed() {
    let mut rig = Rig::with_habit(Habit::Silent);
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| conn.close()));
    rig.sent(1, 1, "FA", b"");
    assert!(rig.reach(id, |_, conn| {
        assert_eq!(conn.write_bytes(b"x"), Err(WriteError::Closed));
        assert_eq!(conn.room(), 0);
    }));
    rig.recv(1, 2, "FA", b"");
    rig.sent(2, 2, "A", b"");
    // Both sides have closed, and the application cannot access a connection in TIME-WAIT.
    assert!(!rig.reach(id, |_, _| panic!("it is over")));
    // The application cannot access a half-open connection either.
    rig.route.src.port += 1;
    rig.syn(Some(1460));
    let half_open = ConnectionId {
        index: 1,
        serial: 2,
    };
    assert!(!rig.reach(half_open, |_, _| panic!("it is half-open")));
}

#[test]
fn a_connection_is_aborted_outside_a_callback() {
    let mut rig = Rig::with_habit(Habit::Lazy);
    rig.recv(1, 1, "PA", b"ask");
    rig.sent(1, 4, "A", b"");
    rig.take_log();
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| conn.abort()));
    assert_eq!(rig.sent_one().control, "RA");
    assert_eq!(rig.take_log(), "close(Aborted)");
    assert!(!rig.reach(id, |_, _| panic!("it is over")));
}

#[test]
fn for_each_visits_all_open_connections() {
    let mut rig = Rig::with_habit(Habit::Silent);
    let first = rig.id();
    assert!(rig.reach(first, |_, conn| conn.abort()));
    rig.sent_one();
    let mut open = Vec::new();
    for _ in 0..2 {
        rig.route.src.port += 1;
        rig.open(Some(1460));
        open.push(rig.id());
    }
    let last = rig.id();
    let Rig {
        stack, port, now, ..
    } = &mut rig;
    let mut seen = Vec::new();
    stack.reach(port, *now, |_, connections| {
        connections.for_each(|mut conn| {
            seen.push(conn.id());
            if conn.id() == last {
                conn.write_bytes(b"to the last").unwrap();
            }
        });
    });
    seen.sort_by_key(|id| id.serial);
    assert_eq!(seen, open);
    rig.sent(1, 1, "PA", b"to the last");
}

#[test]
fn a_deadline_is_set_outside_a_callback() {
    let mut rig = Rig::with_habit(Habit::Silent);
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| {
        conn.set_deadline(Deadline::Request, Duration::from_millis(300));
    }));
    rig.pass_ms(299);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 1, "FA", b"");
    assert_eq!(rig.take_log(), "deadline(Request)");
}

#[test]
fn a_message_callback_may_write_to_any_connection() {
    let mut rig = Rig::with_habit(Habit::Silent);
    let first = rig.id();
    rig.route.src.port += 1;
    rig.open(Some(1460));
    let second = rig.id();
    rig.take_log();
    let Rig {
        stack, port, now, ..
    } = &mut rig;
    stack.handle_message(port, (second, b"to the second"), *now);
    assert_eq!(rig.take_log(), "message");
    rig.sent(1, 1, "PA", b"to the second");
    let Rig {
        stack, port, now, ..
    } = &mut rig;
    // A callback may look up a connection several times. The stack sends only after the callback
    // has returned, so both pieces of plain bytes leave in one segment.
    let written = stack.reach(port, *now, |_, connections| {
        for (id, bytes) in [
            (first, &b""[..]),
            (second, b"b"),
            (first, b""),
            (second, b"c"),
        ] {
            let mut conn = connections.get(id).unwrap();
            *conn.state() += 1;
            conn.write_bytes(bytes).unwrap();
        }
        let content = connections.contents_mut().add((*b"xyz").into(), None);
        let mut conn = connections.get(second).unwrap();
        conn.write(content.unwrap(), 0)
    });
    assert_eq!(written, Ok(()));
    rig.check();
    let sent = rig.sent_all();
    let data: Vec<_> = sent.iter().map(|out| &*out.data).collect();
    assert_eq!(data, [&b"bc"[..], b"xyz"]);
    for id in [first, second] {
        assert!(rig.reach(id, |_, conn| assert_eq!(*conn.state(), 2)));
    }
}

/// Sets timers of the application. Each pair is a timer's number and its delay in milliseconds.
fn set_timers(rig: &mut Rig, after_ms: &[(usize, u64)]) {
    let Rig {
        stack, port, now, ..
    } = rig;
    stack.reach(port, *now, |_, connections| {
        for &(number, after) in after_ms {
            connections.set_timer(Timer::new(number), Duration::from_millis(after));
        }
    });
}

#[test]
fn timers_expire_in_order_and_once() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.take_log();
    set_timers(
        &mut rig,
        &[(0, 300), (3, 100), (1, 300), (2, 500), (2, 200)],
    );
    let due = |rig: &Rig| rig.stack.poll_timeout().map(|due| due - rig.now);
    assert_eq!(due(&rig), Some(Duration::from_millis(100)));
    for (step, log) in [
        (99, ""),
        (1, "timer(3)"),
        (99, ""),
        (1, "timer(2)"),
        (100, "timer(0) timer(1)"),
        (10_000, ""),
    ] {
        rig.pass_ms(step);
        assert_eq!(rig.take_log(), log);
    }
}

#[test]
fn a_timer_can_be_cleared_and_set_again() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.take_log();
    rig.app().timer_again = Some(Duration::ZERO);
    set_timers(&mut rig, &[(0, 100), (1, 100)]);
    let Rig {
        stack, port, now, ..
    } = &mut rig;
    stack.reach(port, *now, |_, connections| {
        connections.clear_timer(Timer::new(1));
    });
    *now = *now + Duration::from_millis(100);
    stack.handle_timers(port, *now);
    // A timer that a callback sets to expire immediately still waits for the next call of
    // `handle_timers`.
    assert_eq!(std::mem::take(&mut stack.app_mut().log), "timer(0)");
    stack.app_mut().timer_again = Some(Duration::from_secs(1));
    stack.handle_timers(port, *now);
    assert_eq!(rig.take_log(), "timer(0)");
    rig.pass_ms(999);
    assert_eq!(rig.take_log(), "");
    rig.pass_ms(1);
    assert_eq!(rig.take_log(), "timer(0)");
}

#[test]
fn a_timer_outlives_the_connection_that_set_it() {
    let mut rig = Rig::with_habit(Habit::Silent);
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| {
        conn.set_timer(Timer::new(0), Duration::from_millis(50));
        conn.abort();
    }));
    rig.sent_one();
    rig.take_log();
    assert!(rig.stack.poll_timeout().is_some());
    rig.pass_ms(50);
    assert_eq!(rig.take_log(), "timer(0)");
}
