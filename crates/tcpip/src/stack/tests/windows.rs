//! Sending: what the peer's window lets go.

use super::sending::{bytes_of, fetch};
use crate::Config;
use crate::stack::testing::{Habit, Rig, noise};

#[test]
fn the_peers_window_bounds_what_is_in_flight() {
    let mut rig = Rig::new(&Config::default());
    rig.load(&noise(10_000), None);
    rig.window = 4000;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 2, "and no small piece of the third");
    rig.recv(2, 1461, "A", b"");
    rig.sent(2921, 2, "PA", &noise(10_000)[2920..4380]);
    rig.sent_nothing();
}

#[test]
fn the_last_segment_that_fits_the_peers_window_is_pushed() {
    // Linux acknowledges it as soon as it is read, instead of waiting for more.
    let mut rig = Rig::new(&Config::default());
    let content = noise(20_000);
    rig.load(&content, None);
    rig.window = 5 * 1460 - 1;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "A", &content[..1460]);
    rig.sent(1461, 2, "A", &content[1460..2920]);
    rig.sent(2921, 2, "A", &content[2920..4380]);
    rig.sent(4381, 2, "PA", &content[4380..5840]);
    rig.sent_nothing();
    // One byte more, and it is the fifth.
    rig.window = 5 * 1460;
    rig.recv(2, 1, "A", b"");
    rig.sent(5841, 2, "PA", &content[5840..7300]);
    rig.sent_nothing();
}

#[test]
fn a_window_update_lets_more_go() {
    let mut rig = Rig::new(&Config::default());
    rig.load(&noise(10_000), None);
    rig.window = 3000;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 2);
    rig.window = 6000;
    rig.recv(2, 1, "A", b"");
    assert_eq!(rig.sent_all().len(), 2);
}

#[test]
fn an_older_segment_does_not_update_the_window() {
    // RFC 9293, section 3.10.7.4: SND.WL1.
    let mut rig = Rig::new(&Config::default());
    rig.load(&noise(10_000), None);
    rig.window = 3000;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 2);
    rig.recv(3, 1, "A", b"");
    rig.window = 60_000;
    rig.recv(2, 1, "A", b"");
    rig.sent_nothing();
}

#[test]
fn a_window_smaller_than_a_segment_is_used_when_nothing_is_in_flight() {
    let content = noise(1000);
    let mut rig = Rig::new(&Config::default());
    rig.load(&content, None);
    rig.window = 300;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    let segments = fetch(&mut rig);
    assert_eq!(segments.len(), 4);
    assert!(bytes_of(&segments) == content);
    assert_eq!(
        rig.stack.counters().sent_assembled,
        4,
        "none is a whole one"
    );
}

#[test]
fn a_part_for_a_peer_whose_window_was_wide_waits_for_the_timer() {
    let content = noise(6000);
    let mut rig = Rig::serving(&Config::default(), &content, None);
    rig.window = 1000;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "A", b"");
    rig.pass_ms(199);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 2, "A", &content[..1000]);
    rig.window = 65_535;
    rig.recv(2, 1001, "A", b"");
    rig.sent(1001, 2, "A", &content[1000..1460]);
    rig.sent(1461, 2, "A", &content[1460..2920]);
}

#[test]
fn a_small_window_is_enough_for_a_small_rest() {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.window = 10;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"content");
}

#[test]
fn after_a_part_the_segments_are_whole_again() {
    let content = noise(6000);
    let mut rig = Rig::new(&Config::default());
    rig.load(&content, None);
    rig.window = 1000;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", &content[..1000]);
    rig.window = 65_535;
    rig.recv(2, 1001, "A", b"");
    rig.sent(1001, 2, "A", &content[1000..1460]);
    rig.sent(1461, 2, "A", &content[1460..2920]);
}

#[test]
fn a_fin_waits_for_its_place_in_the_window() {
    let mut rig = Rig::new(&Config::default());
    rig.load(b"content", None);
    rig.app().habit = Habit::ServeOnce;
    rig.window = 7;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"content");
    rig.sent_nothing();
    rig.recv(2, 8, "A", b"");
    rig.sent(8, 2, "FA", b"");
}
