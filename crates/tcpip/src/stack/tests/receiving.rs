//! Receiving: RFC 9293, sections 3.8 and 3.10.7.4.

use crate::Config;
use crate::stack::testing::{Habit, Rig, noise, v6_path};

#[test]
fn what_is_in_order_is_offered_and_acknowledged() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1, 1, "PA", b"abc");
    let out = rig.sent(1, 4, "A", b"");
    assert_eq!(out.window, 16_384);
    assert_eq!(rig.take_log(), "receive(3)");
    assert_eq!(rig.stack.counters().turned_round, 2, "SYN-ACK and ACK");
}

#[test]
fn the_answer_carries_the_acknowledgement() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
    rig.sent_nothing();
    rig.recv(6, 6, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "receive(5) sent");
}

#[test]
fn ipv6_echo() {
    let mut rig = Rig::new(&Config::default());
    rig.path = v6_path();
    rig.app().habit = Habit::Echo;
    rig.open(Some(1452));
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
}

#[test]
fn a_tag_is_sent_back() {
    let mut rig = Rig::new(&Config::default());
    rig.path.link.vlan = Some(0x2005);
    rig.app().habit = Habit::Echo;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"hello");
    assert_eq!(rig.sent(1, 6, "PA", b"hello").vlan, Some(0x2005));
}

#[test]
fn answers_follow_the_peers_link() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.path.link.own = eth::Mac([2, 0, 0, 0, 0, 0x77]);
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
}

#[test]
fn what_is_not_consumed_shrinks_the_window_and_is_offered_again() {
    let mut rig = Rig::with_habit(Habit::Lazy);
    rig.recv(1, 1, "A", b"abc");
    assert_eq!(rig.sent(1, 4, "A", b"").window, 16_384 - 3);
    rig.app().habit = Habit::Sip;
    rig.recv(4, 1, "A", b"def");
    assert_eq!(rig.sent(1, 7, "A", b"").window, 16_384 - 4);
    rig.app().habit = Habit::Silent;
    rig.recv(7, 1, "A", b"g");
    assert_eq!(rig.sent(1, 8, "A", b"").window, 16_384);
    assert_eq!(rig.take_log(), "receive(3) receive(6) receive(5)");
}

#[test]
fn a_duplicate_is_acknowledged_and_not_offered() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1, 1, "A", b"abc");
    rig.sent(1, 4, "A", b"");
    rig.recv(1, 1, "A", b"abc");
    rig.sent(1, 4, "A", b"");
    assert_eq!(rig.take_log(), "receive(3)");
    assert_eq!(rig.stack.counters().out_of_window, 1);
}

#[test]
fn an_overlap_is_offered_once() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.recv(1, 1, "A", b"abc");
    rig.sent(1, 4, "PA", b"abc");
    rig.recv(2, 4, "A", b"bcde");
    rig.sent(4, 6, "PA", b"de");
}

#[test]
fn what_comes_out_of_order_is_kept_and_asked_for() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.recv(4, 1, "A", b"def");
    rig.sent(1, 1, "A", b"");
    rig.recv(7, 1, "A", b"ghi");
    rig.sent(1, 1, "A", b"");
    rig.recv(1, 1, "A", b"abc");
    rig.sent(1, 10, "PA", b"abcdefghi");
    assert_eq!(rig.take_log(), "receive(9)");
    assert_eq!(rig.stack.counters().out_of_order, 2);
}

#[test]
fn gaps_close_in_any_order() {
    let mut rig = Rig::with_habit(Habit::Echo);
    for at in [8, 4, 2, 6] {
        let letter = b'a' + at as u8;
        rig.recv(at + 1, 1, "A", &[letter, letter + 1]);
        rig.sent(1, 1, "A", b"");
    }
    rig.recv(1, 1, "A", b"ab");
    rig.sent(1, 11, "PA", b"abcdefghij");
}

#[test]
fn one_gap_too_many_is_dropped() {
    let mut rig = Rig::with_habit(Habit::Echo);
    for at in [3, 5, 7, 9, 11] {
        rig.recv(at, 1, "A", b"x");
        rig.sent(1, 1, "A", b"");
    }
    assert_eq!(rig.stack.counters().no_buffer, 1);
    for at in [1, 2, 4, 6, 8, 10] {
        rig.recv(at, 1, "A", b"y");
    }
    assert_eq!(
        rig.sent_all().last().unwrap().ack,
        11,
        "the fifth is asked for"
    );
}

#[test]
fn without_a_buffer_what_is_out_of_order_is_dropped() {
    let mut rig = Rig::established(&Config {
        max_recv_buffers: 0,
        ..Config::default()
    });
    rig.app().habit = Habit::Echo;
    rig.recv(4, 1, "A", b"def");
    rig.sent(1, 1, "A", b"");
    rig.recv(1, 1, "A", b"abc");
    rig.sent(1, 4, "PA", b"abc");
    assert_eq!(rig.stack.counters().no_buffer, 1);
}

#[test]
fn without_a_buffer_what_is_not_consumed_is_not_acknowledged() {
    let mut rig = Rig::established(&Config {
        max_recv_buffers: 0,
        ..Config::default()
    });
    rig.app().habit = Habit::Sip;
    rig.recv(1, 1, "FA", b"abc");
    rig.sent(1, 3, "A", b"");
    rig.app().habit = Habit::Silent;
    rig.recv(3, 1, "FA", b"c");
    rig.sent(1, 5, "FA", b"");
    assert_eq!(rig.take_log(), "receive(3) receive(1) half-close");
}

#[test]
fn a_fin_out_of_order_counts_when_the_gap_is_closed() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(4, 1, "FA", b"def");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "");
    rig.recv(1, 1, "A", b"abc");
    rig.sent(1, 8, "FA", b"");
    assert_eq!(rig.take_log(), "receive(6) half-close");
}

#[test]
fn nothing_is_taken_from_behind_a_fin() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(4, 1, "FA", b"def");
    rig.recv(7, 1, "A", b"ghi");
    rig.recv(1, 1, "A", b"abc");
    assert_eq!(rig.sent_all().last().unwrap().ack, 8);
    assert_eq!(rig.take_log(), "receive(6) half-close");
    assert_eq!(rig.stack.counters().behind_fin, 1);
}

#[test]
fn nothing_is_taken_from_who_has_closed() {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.app().close_back = false;
    rig.recv(1, 1, "FA", b"");
    rig.sent(1, 2, "A", b"");
    rig.recv(2, 1, "A", b"g");
    rig.sent(1, 2, "A", b"");
    assert_eq!(rig.take_log(), "half-close");
    assert_eq!(rig.stack.counters().behind_fin, 1);
}

#[test]
fn what_is_beyond_the_window_is_cut_off() {
    let mut rig = Rig::established(&Config {
        recv_buffer: 536,
        ..Config::default()
    });
    rig.app().habit = Habit::Lazy;
    rig.recv(1, 1, "FA", &noise(1000));
    assert_eq!(rig.sent(1, 537, "A", b"").window, 0);
    assert_eq!(rig.take_log(), "receive(536)", "and no FIN");
}

#[test]
fn a_segment_outside_the_window_is_acknowledged_and_dropped() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1 + 16_384, 1, "A", b"x");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "");
}

#[test]
fn a_probe_of_our_shut_window_is_answered() {
    let mut rig = Rig::established(&Config {
        recv_buffer: 536,
        ..Config::default()
    });
    rig.app().habit = Habit::Lazy;
    rig.recv(1, 1, "A", &noise(536));
    assert_eq!(rig.sent(1, 537, "A", b"").window, 0);
    for _ in 0..3 {
        rig.recv(537, 1, "A", b"x");
        assert_eq!(rig.sent(1, 537, "A", b"").window, 0);
    }
    assert_eq!(rig.take_log(), "receive(536)");
}

#[test]
fn a_shut_window_still_takes_acks_and_resets() {
    let mut rig = Rig::established(&Config {
        recv_buffer: 536,
        ..Config::default()
    });
    rig.app().greeting = true;
    rig.app().habit = Habit::Lazy;
    rig.recv(1, 1, "A", &noise(536));
    rig.sent_one();
    rig.recv(537, 1, "RA", b"");
    assert_eq!(rig.take_log(), "receive(536) close(Reset)");
}

#[test]
fn the_window_opens_by_whole_segments_only() {
    // RFC 9293, section 3.8.6.2.2.
    let mut rig = Rig::established(&Config {
        recv_buffer: 4000,
        ..Config::default()
    });
    rig.app().habit = Habit::Lazy;
    for at in [1, 1001, 2001, 3001] {
        rig.recv(at, 1, "A", &noise(1000));
    }
    assert_eq!(rig.sent_all().last().unwrap().window, 0);
    // Two bytes are consumed, which is not worth telling.
    rig.app().habit = Habit::Sip;
    rig.recv(4001, 1, "A", b"x");
    assert_eq!(rig.sent_one().window, 0);
}

#[test]
fn a_keep_alive_probe_is_answered() {
    // RFC 9293, section 3.8.4: a sequence number one too low.
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(0, 1, "A", b"");
    rig.sent(1, 1, "A", b"");
    rig.pass_ms(1000);
    rig.recv(0, 1, "A", b"x");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "");
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1, 1, "P", b"abc");
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().bad_ack, 1);
    assert_eq!(rig.take_log(), "");
}

#[test]
fn an_old_ack_does_not_keep_data_out() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.recv(1, 1, "A", b"abc");
    rig.sent(1, 4, "PA", b"abc");
    rig.recv(4, 4, "A", b"d");
    rig.sent(4, 5, "PA", b"d");
    rig.recv(5, 1, "A", b"e");
    rig.sent(5, 6, "PA", b"e");
}

#[test]
fn what_arrives_after_close_is_discarded_and_acknowledged() {
    let mut rig = Rig::with_habit(Habit::ServeOnce);
    rig.load(b"content", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "A", b"g");
    rig.sent(1, 2, "FPA", b"content");
    rig.recv(2, 9, "A", b"more");
    rig.sent(9, 6, "A", b"");
    assert_eq!(rig.take_log(), "receive(1) sent");
    assert_eq!(rig.stack.counters().after_close, 1);
}
