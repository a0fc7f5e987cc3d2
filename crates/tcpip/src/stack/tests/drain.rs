//! Tests of the drain: which connections hold it up, and how much a call does. What it sends is in
//! `rfc9293-draining.seg`.

use std::time::Duration;

use nmio::Drain;

use crate::stack::testing::{Habit, MSS, Rig};
use crate::{Config, Deadline};

impl Rig {
    /// Calls `drain` once.
    fn drain(&mut self) -> Drain {
        let drain = self.stack.drain(&mut self.port, self.now);
        self.check();
        drain
    }

    /// Drains for `millis` milliseconds, like an event loop.
    fn drain_ms(&mut self, millis: u64) -> Drain {
        let end = self.now + Duration::from_millis(millis);
        loop {
            match self.drain() {
                Drain::Busy(due) if due <= end => {
                    self.now = due.max(self.now + Duration::from_micros(1));
                    self.timers();
                }
                drain => return drain,
            }
        }
    }

    fn is_busy(&mut self) -> bool {
        self.drain_ms(50) != Drain::Done
    }

    /// Opens `count` connections.
    fn open_many(&mut self, count: u16) {
        for _ in 0..count {
            self.route.src.port += 1;
            self.open(Some(MSS));
        }
    }
}

#[test]
fn a_call_closes_at_most_64_connections() {
    let mut rig = Rig::new(&Config::default());
    rig.open_many(150);
    let mut closed = Vec::new();
    let begin = rig.now;
    while closed.iter().sum::<usize>() < 150 {
        assert_eq!(
            rig.drain(),
            Drain::Busy(rig.now + Duration::from_millis(10) * u32::from(closed.len() == 2))
        );
        closed.push(rig.port.sent.len());
        rig.port.sent.clear();
    }
    assert_eq!(closed, [64, 64, 22]);
    assert_eq!(rig.now, begin, "the next slice need not wait");
    // The next round begins later.
    assert_eq!(rig.drain(), Drain::Busy(begin + Duration::from_millis(10)));
    assert!(rig.port.sent.is_empty());
    let counters = rig.stack.counters();
    assert_eq!(counters.drained, 0, "the FINs are not acknowledged");
}

#[test]
fn a_parked_connection_holds_up_the_drain_until_it_is_answered() {
    let mut rig = Rig::with_habit(Habit::Park);
    rig.recv(1, 1, "PA", b"ab");
    rig.sent(1, 3, "A", b"");
    let id = rig.id();
    assert!(rig.is_busy());
    rig.sent_nothing();
    assert!(rig.reach(id, |_, conn| {
        assert!(!conn.is_between_messages());
        conn.write_bytes(b"later").unwrap();
        conn.resume();
        assert!(conn.is_between_messages() && !conn.is_idle());
    }));
    rig.sent(1, 3, "PA", b"later");
    assert!(rig.is_busy());
    rig.sent_nothing();
    rig.recv(3, 6, "A", b"");
    assert!(rig.is_busy());
    rig.sent(6, 3, "FA", b"");
    rig.recv(3, 7, "A", b"");
    assert!(!rig.is_busy());
    assert!(rig.stack.shut_down(&mut rig.port, rig.now));
    rig.sent_nothing();
    let counters = rig.stack.counters();
    assert_eq!((counters.drained, counters.cut), (1, 0));
}

#[test]
fn a_deadline_means_that_a_request_is_in_progress() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.app().deadline = Some(Duration::from_secs(2));
    rig.recv(1, 1, "PA", b"ab");
    rig.sent(1, 3, "A", b"");
    assert!(rig.is_busy());
    rig.sent_nothing();
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| {
        assert_eq!(conn.deadline(), Some(Deadline::Request));
        conn.clear_deadline();
    }));
    assert!(rig.is_busy());
    rig.sent(1, 3, "FA", b"");
}

#[test]
fn a_request_that_waits_for_room_is_answered_first() {
    let config = Config {
        max_write_buffers: 0,
        ..Config::default()
    };
    let mut rig = Rig::established(&config);
    rig.app().habit = Habit::Echo;
    rig.recv(1, 1, "PA", b"x");
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| assert!(!conn.is_between_messages())));
    rig.port.sent.clear();
    assert!(rig.is_busy());
    rig.sent_nothing();
}

#[test]
fn an_application_may_end_its_streams() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.app().farewell = Some(b"bye");
    assert!(rig.is_busy());
    rig.sent(1, 1, "FPA", b"bye");
    rig.recv(1, 5, "A", b"");
    assert!(!rig.is_busy());
}

#[test]
fn a_full_ring_delays_the_fins() {
    let mut rig = Rig::new(&Config::default());
    rig.open_many(3);
    rig.port.room = 1;
    assert!(matches!(rig.drain(), Drain::Busy(_)));
    assert_eq!(rig.port.sent.len(), 1);
    rig.port.room = 10;
    rig.pass_ms(1);
    assert_eq!(rig.port.sent.len(), 3);
}

#[test]
fn a_connection_in_time_wait_is_not_reopened() {
    let mut rig = Rig::with_habit(Habit::Silent);
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| conn.close()));
    rig.sent(1, 1, "FA", b"");
    rig.recv(1, 2, "FA", b"");
    rig.sent(2, 2, "A", b"");
    let first = rig.route.src.port;
    rig.open_many(1);
    rig.app().habit = Habit::Lazy;
    rig.recv(1, 1, "PA", b"ask");
    rig.port.sent.clear();
    assert!(rig.is_busy());
    rig.route.src.port = first;
    let syn = rig.irs.wrapping_add(1_000_000);
    rig.send_raw(syn, 0, "S", b"", Some(MSS));
    let reset = rig.reply();
    assert_eq!((reset.seq, reset.ack), (0, syn.wrapping_add(1)));
    assert_eq!(rig.stack.counters().refused_in_drain, 1);
    assert_eq!(rig.stack.connections(), 2, "TIME-WAIT stays");
}
