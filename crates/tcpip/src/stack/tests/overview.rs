//! Tests of what an operator sees of each connection.

use std::time::Duration;

use crate::stack::testing::{Habit, MSS, Rig, noise};
use crate::{Config, Overview, Sending, State};

impl Rig {
    fn overview(&mut self) -> Overview {
        self.stack.overview(0, self.now).unwrap()
    }
}

#[test]
fn only_places_with_a_connection_have_an_overview() {
    let mut rig = Rig::new(&Config::default());
    assert_eq!(rig.stack.places(), 0);
    assert_eq!(rig.stack.overview(0, rig.now), None);
    rig.open(Some(MSS));
    assert_eq!(rig.stack.places(), 1);
    let peer = rig.overview().peer;
    assert_eq!(peer.ip(), rig.addresses().src());
    rig.recv(1, 1, "RA", b"");
    assert_eq!(rig.stack.overview(0, rig.now), None);
    assert_eq!(rig.stack.places(), 1, "a place is used again");
}

#[test]
fn bytes_are_counted_without_syn_and_fin() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(MSS));
    rig.sent_one();
    let bytes = |seen: Overview| (seen.bytes_sent, seen.bytes_acked, seen.bytes_received);
    assert_eq!(rig.overview().info.state, State::SynReceived);
    assert_eq!(bytes(rig.overview()), (0, 0, 0));
    rig.recv(1, 1, "A", b"");
    assert_eq!(bytes(rig.overview()), (0, 0, 0));
    rig.load(&noise(100), None);
    rig.recv(1, 1, "PA", b"r");
    assert_eq!(bytes(rig.overview()), (100, 0, 1));
    let content = rig.overview().sending.unwrap();
    assert!(content.content.is_some());
    assert_eq!((content.at, content.len), (0, 100));
    rig.port.sent.clear();
    rig.recv(2, 41, "A", b"");
    assert_eq!(bytes(rig.overview()), (100, 40, 1));
    assert_eq!(rig.overview().sending.unwrap().at, 40);
    rig.recv(2, 101, "FA", b"");
    rig.port.sent.clear();
    let seen = rig.overview();
    assert_eq!(seen.info.state, State::LastAck, "{seen:?}");
    assert_eq!(bytes(seen), (100, 100, 1));
    assert_eq!(seen.sending, None);
}

#[test]
fn own_bytes_are_no_content() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.recv(1, 1, "PA", b"echo");
    let sending = rig.overview().sending;
    let expected = Sending {
        content: None,
        at: 0,
        len: 4,
    };
    assert_eq!(sending, Some(expected));
}

#[test]
fn ages_and_retransmissions_are_those_of_the_connection() {
    let mut rig = Rig::serving(&Config::default(), &noise(100), None);
    rig.pass_ms(5_000);
    let seen = rig.overview();
    assert!(seen.age >= Duration::from_secs(5), "{seen:?}");
    assert!(seen.idle >= Duration::from_secs(4), "{seen:?}");
    assert_eq!(seen.retransmits, 0);
    rig.recv(1, 1, "PA", b"r");
    assert_eq!(rig.overview().idle, Duration::ZERO);
    rig.pass_ms(3_000);
    let seen = rig.overview();
    assert!(seen.retransmits >= 1, "{seen:?}");
    assert_eq!(
        u64::from(seen.retransmits),
        rig.stack.counters().retransmits
    );
    assert_eq!(seen.bytes_sent, 100, "retransmissions do not count");
    assert!(seen.rto > Duration::from_millis(200), "{seen:?}");
}

/// Sequence numbers wrap around after 4 GiB. Those of both sides begin just below that.
#[test]
fn bytes_are_counted_beyond_a_wrap_of_sequence_numbers() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(MSS));
    rig.sent_one();
    let iss = rig.stack.tcb(0).edges().0.0;
    // Our initial sequence number grows by 1 in 4 µs.
    let wait = Duration::from_micros(4) * (u32::MAX - 2_000 - iss);
    let mut rig = Rig::new(&Config::default());
    rig.irs = u32::MAX - 3;
    rig.now = rig.now + wait;
    rig.timers();
    rig.open(Some(MSS));
    assert_eq!(rig.stack.tcb(0).edges().0.0, u32::MAX - 1_999);
    rig.load(&noise(1_000), None);
    for round in 0..6 {
        rig.recv(1 + round, 1 + round * 1_000, "PA", b"r");
        rig.port.sent.clear();
        rig.recv(2 + round, 1_001 + round * 1_000, "A", b"");
        let seen = rig.overview();
        assert_eq!(seen.bytes_received, u64::from(round + 1));
        assert_eq!(seen.bytes_acked, u64::from(round + 1) * 1_000);
    }
}
