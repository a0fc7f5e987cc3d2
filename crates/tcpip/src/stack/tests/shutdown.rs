//! Tests of closing connections (RFC 9293, sections 3.6 and 3.10.7.4), and of the stack's shutdown.

use std::net::IpAddr;

use crate::Config;
use crate::stack::testing::{Habit, MSS, Rig};

/// Makes a connection that our side has closed first, with our FIN in flight.
fn closed_by_us() -> Rig {
    let mut rig = Rig::serving(&Config::default(), b"bye", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "FPA", b"bye");
    rig.take_log();
    rig
}

/// After our FIN, the connection waits for the peer's FIN, even if the last write has failed.
#[test]
fn a_half_closed_connection_waits_for_the_peers_fin_after_a_failed_write() {
    let config = Config {
        max_write_buffers: 0,
        ..Config::default()
    };
    let mut rig = Rig::established(&config);
    rig.app().habit = Habit::EchoAndClose;
    rig.recv(1, 1, "PA", b"x");
    rig.sent(1, 2, "FA", b"");
    rig.recv(2, 2, "A", b"");
    rig.pass_ms(1_000);
    assert_eq!(rig.take_log(), "receive(1)");
    rig.recv(2, 2, "FA", b"");
    rig.sent(2, 3, "A", b"");
}

#[test]
fn shutdown_sends_one_fin_to_a_peer_without_unacknowledged_data() {
    // A peer that has acknowledged all written data gets a FIN.
    let mut rig = Rig::serving(&Config::default(), b"all", None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"all");
    rig.recv(2, 4, "A", b"");
    rig.port.room = 0;
    assert!(!rig.stack.shut_down(&mut rig.port, rig.now));
    assert_eq!(
        (rig.stack.connections(), rig.stack.open_connections()),
        (1, 1)
    );
    rig.port.room = 10;
    assert!(rig.stack.shut_down(&mut rig.port, rig.now));
    rig.sent(4, 2, "FA", b"");
    assert!(rig.take_log().ends_with("close(Finished)"));
    assert_eq!(rig.stack.connections(), 0);
    assert!(rig.stack.shut_down(&mut rig.port, rig.now));
    rig.sent_nothing();
}

#[test]
fn shutdown_resets_half_open_connections_and_peers_with_unacknowledged_data() {
    let mut rig = Rig::serving(&Config::default(), b"all", None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"all");
    assert!(rig.stack.shut_down(&mut rig.port, rig.now));
    rig.sent(4, 2, "RA", b"");
    assert!(rig.take_log().ends_with("close(Aborted)"));

    // A half-open connection is reset without a callback.
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(MSS));
    rig.sent_one();
    assert_eq!(
        (rig.stack.connections(), rig.stack.open_connections()),
        (1, 0)
    );
    assert!(rig.stack.shut_down(&mut rig.port, rig.now));
    rig.sent(1, 1, "RA", b"");
    assert_eq!((rig.take_log().as_str(), rig.stack.connections()), ("", 0));

    // If the peer's window is still zero after a probe, the reset must have the sequence number
    // that the peer expects (RFC 5961, section 3.2).
    let mut rig = Rig::serving(&Config::default(), b"all of it", None);
    rig.window = 0;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "A", b"");
    rig.pass_ms(200);
    rig.sent(1, 2, "A", b"a");
    assert!(rig.stack.shut_down(&mut rig.port, rig.now));
    rig.sent(1, 2, "RA", b"");
}

#[test]
fn shutdown_retransmits_our_fin_only_if_it_is_unacknowledged() {
    let mut rig = Rig::serving(&Config::default(), b"bye", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "FPA", b"bye");
    rig.recv(2, 4, "A", b"");
    let mut again = closed_by_us();
    again.recv(2, 4, "A", b"");
    assert!(again.stack.shut_down(&mut again.port, again.now));
    again.sent(4, 2, "FA", b"");
    rig.recv(2, 5, "A", b"");
    assert!(rig.stack.shut_down(&mut rig.port, rig.now));
    rig.sent_nothing();
    assert!(rig.take_log().ends_with("close(Finished)"));
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn connections_to_a_removed_address_are_reset() {
    let mut rig = Rig::serving(&Config::default(), b"all", None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"all");
    rig.take_log();
    let slots = rig.stack.table.records.len() as u32;
    let visit = |rig: &mut Rig, slots, is_ours: bool| {
        let is_ours = |_: &IpAddr| is_ours;
        rig.stack
            .reset_strangers(&mut rig.port, slots, &is_ours, rig.now)
    };
    assert!(!visit(&mut rig, 0..slots, true));
    assert!(visit(&mut rig, slots - 1..slots - 1, false), "one follows");
    rig.sent_nothing();
    assert_eq!(rig.stack.connections(), 1);
    assert!(!visit(&mut rig, 0..u32::MAX, false));
    rig.sent(4, 2, "RA", b"");
    assert_eq!(rig.take_log(), "close(Aborted)");
    assert_eq!(rig.stack.connections(), 0);

    // A half-open connection ends without a word, because the client will ask again.
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(MSS));
    rig.sent_one();
    assert!(!visit(&mut rig, 0..u32::MAX, false));
    rig.sent_nothing();
    assert_eq!((rig.take_log().as_str(), rig.stack.connections()), ("", 0));
}
