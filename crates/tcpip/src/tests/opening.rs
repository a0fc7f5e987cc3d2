//! Opening a connection.

use crate::Config;
use crate::testing::{Habit, Rig};

#[test]
fn a_syn_is_answered_with_a_syn_ack_that_tells_our_mss() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1460));
    let out = rig.sent(0, 1, "SA", b"");
    assert_eq!(out.mss, Some(1460));
    assert_eq!(out.window, 16_384);
    rig.sent_nothing();
    rig.recv(1, 1, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "accept");
}

#[test]
fn echo() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
    rig.recv(6, 6, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "receive(5) sent");
    rig.recv(6, 6, "FA", b"");
    rig.sent(6, 7, "FA", b"");
    rig.recv(7, 7, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "half-close close(Finished)");
    assert_eq!(rig.stack.connections(), 0);
}
