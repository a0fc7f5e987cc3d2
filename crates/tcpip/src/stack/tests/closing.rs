//! Closing: RFC 9293, sections 3.6 and 3.10.7.4; RFC 5961.

use crate::Config;
use crate::stack::testing::{Habit, MSS, Rig};

/// A connection that we have closed first: our FIN is in flight.
fn closed_by_us() -> Rig {
    let mut rig = Rig::serving(&Config::default(), b"bye", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "FPA", b"bye");
    rig.take_log();
    rig
}

#[test]
fn the_peer_closes_first() {
    let mut rig = Rig::established(&Config::default());
    rig.recv(1, 1, "FA", b"");
    rig.sent(1, 2, "FA", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "half-close");
    rig.recv(2, 2, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "close(Finished)");
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn a_fin_may_come_with_data() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.recv(1, 1, "FPA", b"last words");
    rig.sent(1, 12, "FPA", b"last words");
    rig.recv(12, 12, "A", b"");
    assert_eq!(
        rig.take_log(),
        "receive(10) half-close sent close(Finished)"
    );
}

#[test]
fn we_close_first_and_remember_it() {
    let mut rig = closed_by_us();
    rig.recv(2, 5, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "sent");
    rig.recv(2, 5, "FA", b"");
    rig.sent(5, 3, "A", b"");
    assert_eq!(rig.take_log(), "close(Finished)");
    assert_eq!(rig.stack.connections(), 1);
    rig.pass_ms(9_999);
    assert_eq!(rig.stack.connections(), 1);
    rig.pass_ms(1);
    assert_eq!(rig.stack.connections(), 0);
    rig.sent_nothing();
}

#[test]
fn a_fin_that_acknowledges_ours_leads_to_time_wait_at_once() {
    let mut rig = closed_by_us();
    rig.recv(2, 5, "FA", b"");
    rig.sent(5, 3, "A", b"");
    assert_eq!(rig.take_log(), "sent close(Finished)");
    assert_eq!(rig.stack.time_waits, 1);
}

#[test]
fn both_close_at_once() {
    // RFC 9293, figure 13.
    let mut rig = closed_by_us();
    rig.recv(2, 1, "FA", b"");
    rig.sent(5, 3, "A", b"");
    assert_eq!(rig.take_log(), "");
    rig.recv(3, 5, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "sent close(Finished)");
    assert_eq!(rig.stack.time_waits, 1);
}

#[test]
fn both_close_at_once_and_our_fin_is_lost() {
    let mut rig = closed_by_us();
    rig.recv(2, 1, "FA", b"");
    rig.sent(5, 3, "A", b"");
    rig.pass_ms(200);
    rig.sent(1, 3, "FPA", b"bye");
    rig.recv(3, 5, "A", b"");
    assert_eq!(rig.stack.time_waits, 1);
}

#[test]
fn the_peer_may_go_on_sending_when_we_have_closed() {
    let mut rig = closed_by_us();
    rig.recv(2, 5, "A", b"");
    rig.recv(2, 5, "A", b"more");
    rig.sent(5, 6, "A", b"");
    rig.recv(6, 5, "FA", b"more");
    rig.sent(5, 11, "A", b"");
    assert_eq!(rig.take_log(), "sent close(Finished)");
}

#[test]
fn we_may_go_on_sending_when_the_peer_has_closed() {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.app().close_back = false;
    rig.recv(1, 1, "FPA", b"g");
    rig.sent(1, 3, "PA", b"content");
    rig.pass_ms(200);
    rig.sent(1, 3, "PA", b"content");
    rig.recv(3, 8, "A", b"");
    assert_eq!(rig.take_log(), "receive(1) half-close sent");
    assert_eq!(rig.stack.connections(), 1);
    // It is closed when it is silent for too long.
    rig.pass_ms(60_000);
    rig.sent(8, 3, "FA", b"");
    rig.recv(3, 9, "A", b"");
    assert_eq!(rig.take_log(), "close(Finished)");
}

#[test]
fn a_repeated_fin_is_acknowledged() {
    let mut rig = Rig::established(&Config::default());
    rig.app().close_back = false;
    rig.recv(1, 1, "FA", b"");
    rig.sent(1, 2, "A", b"");
    rig.recv(1, 1, "FA", b"");
    rig.sent(1, 2, "A", b"");
    assert_eq!(rig.take_log(), "half-close");
}

#[test]
fn our_last_fin_is_sent_again() {
    let mut rig = Rig::established(&Config::default());
    rig.recv(1, 1, "FA", b"");
    rig.sent(1, 2, "FA", b"");
    rig.pass_ms(200);
    rig.sent(1, 2, "FA", b"");
    rig.recv(2, 2, "A", b"");
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn a_peer_that_does_not_close_is_given_up() {
    let mut rig = closed_by_us();
    rig.recv(2, 5, "A", b"");
    rig.take_log();
    rig.pass_ms(15_000);
    // Sending does not keep it.
    rig.recv(2, 5, "A", b"x");
    rig.pass_ms(14_999);
    assert_eq!(rig.stack.connections(), 1);
    rig.pass_ms(1);
    assert_eq!(rig.take_log(), "close(TimedOut)");
    assert_eq!(rig.stack.connections(), 0);
}

/// A connection in TIME-WAIT.
fn time_wait() -> Rig {
    let mut rig = closed_by_us();
    rig.recv(2, 5, "FA", b"");
    rig.sent(5, 3, "A", b"");
    rig.take_log();
    rig
}

#[test]
fn time_wait_acknowledges_a_repeated_fin_and_begins_again() {
    let mut rig = time_wait();
    rig.pass_ms(6_000);
    rig.recv(2, 5, "FA", b"");
    rig.sent(5, 3, "A", b"");
    rig.pass_ms(9_999);
    assert_eq!(rig.stack.connections(), 1);
    rig.pass_ms(1);
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn time_wait_yields_to_a_later_syn() {
    // RFC 9293, section 3.6.1, MAY-2.
    let mut rig = time_wait();
    rig.recv(1000, 0, "S", b"");
    let out = rig.sent_one();
    assert_eq!((out.ack, out.control.as_str()), (1001, "SA"));
    assert_eq!((rig.stack.time_waits, rig.stack.half_open), (0, 1));
}

#[test]
fn a_reopened_connection_starts_beyond_the_old_one() {
    let mut rig = time_wait();
    let old = rig.iss;
    rig.recv(1000, 0, "S", b"");
    rig.sent_one();
    assert!(rig.iss.wrapping_sub(old) > 65_535);
    assert!(rig.iss.wrapping_sub(old) < 1 << 20);
}

#[test]
fn time_wait_does_not_yield_to_an_older_syn() {
    let mut rig = time_wait();
    rig.recv(0, 0, "S", b"");
    rig.sent(5, 3, "A", b"");
    assert_eq!(rig.stack.time_waits, 1);
}

#[test]
fn time_wait_ends_with_a_reset() {
    let mut rig = time_wait();
    rig.recv(3, 5, "R", b"");
    assert_eq!(rig.stack.connections(), 0);
    assert_eq!(rig.take_log(), "", "it has been told already");
}

#[test]
fn time_waits_are_bounded() {
    let mut rig = Rig::new(&Config {
        max_time_wait: 1,
        ..Config::default()
    });
    rig.load(b"bye", None);
    rig.app().habit = Habit::ServeOnce;
    for port in [1000, 1001] {
        (rig.peer_port, rig.iss) = (port, 0);
        rig.open(None);
        rig.recv(1, 1, "PA", b"g");
        rig.sent(1, 2, "FPA", b"bye");
        rig.recv(2, 5, "FA", b"");
        rig.sent(5, 3, "A", b"");
    }
    assert_eq!(rig.stack.connections(), 1);
    assert_eq!(rig.stack.counters().time_wait_overflow, 1);
}

#[test]
fn a_silent_connection_is_closed() {
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.pass_ms(30_000);
    rig.recv(1, 1, "A", b"still here");
    rig.sent_all();
    rig.pass_ms(59_999);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 11, "FA", b"");
    assert_eq!(rig.stack.counters().idle_closed, 1);
    rig.recv(11, 2, "FA", b"");
    assert_eq!(rig.take_log(), "receive(10) close(Finished)");
}

#[test]
fn an_abort_resets() {
    let mut rig = Rig::with_habit(Habit::Abort);
    rig.recv(1, 1, "PA", b"x");
    rig.sent(1, 2, "RA", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "receive(1) close(Aborted)");
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn an_abort_beats_a_fin_in_the_same_segment() {
    let mut rig = Rig::with_habit(Habit::Abort);
    rig.recv(1, 1, "FPA", b"x");
    assert_eq!(rig.sent_one().control, "RA");
    assert_eq!(rig.take_log(), "receive(1) close(Aborted)");
}

#[test]
fn an_aborts_reset_lies_behind_all_that_was_sent() {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"content");
    rig.app().habit = Habit::Abort;
    rig.recv(2, 1, "PA", b"x");
    rig.sent(8, 3, "RA", b"");
}

#[test]
fn a_reset_in_sequence_ends_the_connection() {
    let mut rig = Rig::established(&Config::default());
    rig.recv(1, 0, "R", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "close(Reset)");
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn a_reset_elsewhere_in_the_window_is_challenged() {
    // RFC 5961, section 3.2.
    let mut rig = Rig::established(&Config::default());
    rig.recv(2, 0, "R", b"");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "");
    // The true peer answers with the right number.
    rig.recv(1, 0, "R", b"");
    assert_eq!(rig.take_log(), "close(Reset)");
}

#[test]
fn a_reset_outside_the_window_is_dropped() {
    let mut rig = Rig::established(&Config::default());
    rig.recv(0, 0, "R", b"");
    rig.recv(1 + 16_384, 0, "R", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "");
    assert_eq!(rig.stack.counters().out_of_window, 2);
}

#[test]
fn a_syn_in_a_connection_is_challenged() {
    // RFC 5961, section 4.2.
    let mut rig = Rig::established(&Config::default());
    rig.recv(1, 0, "S", b"");
    rig.sent(1, 1, "A", b"");
    rig.pass_ms(544);
    rig.recv(5000, 1, "SA", b"");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "");
    assert_eq!(rig.stack.counters().unproven, 2);
}

#[test]
fn challenges_are_rationed() {
    // RFC 5961, section 7.
    let mut rig = Rig::established(&Config::default());
    for _ in 0..10 {
        rig.recv(2, 0, "R", b"");
    }
    assert_eq!(rig.sent_all().len(), 1);
    rig.pass_ms(499);
    rig.recv(2, 0, "R", b"");
    rig.sent_nothing();
    rig.pass_ms(45);
    rig.recv(2, 0, "R", b"");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.stack.counters().challenge_acks, 2);
}

#[test]
fn a_minute_between_two_challenges_is_not_forgotten() {
    // RFC 9293, section 3.8.4: each keep-alive is answered, whatever the low
    // bits of the clock are.
    let mut rig = Rig::established(&Config::default());
    rig.app().habit = Habit::Silent;
    rig.recv(0, 1, "A", b"");
    rig.sent(1, 1, "A", b"");
    rig.pass_ms(33_000);
    rig.recv(1, 1, "PA", b"x");
    rig.sent_all();
    // 65.8 s, which are 264 ms in 16 bits of milliseconds.
    rig.pass_ms(32_800);
    rig.recv(1, 1, "A", b"");
    rig.sent(1, 2, "A", b"");
}

#[test]
fn an_ack_of_what_was_never_sent_is_challenged() {
    // RFC 5961, section 5.2.
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1, 2, "A", b"x");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "", "and its data is not taken");
    assert_eq!(rig.stack.counters().bad_ack, 1);
}

#[test]
fn an_ack_older_than_any_window_is_challenged() {
    // RFC 5961, section 5.2.
    let mut rig = Rig::with_habit(Habit::Silent);
    rig.recv(1, 0u32.wrapping_sub(65_535), "A", b"x");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "");
}

/// `fin_wait` is 30 s.
#[test]
fn half_closed_after_a_failed_write_waits_for_the_peers_fin() {
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

/// What is left unconsumed at `close` is discarded, as what comes after it.
#[test]
fn unread_data_does_not_shut_the_window_after_close() {
    let config = Config {
        recv_buffer: 536,
        ..Config::default()
    };
    let mut rig = Rig::serving(&config, b"bye", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "PA", &[b'g'; 536]);
    rig.sent(1, 537, "FPA", b"bye");
    // The peer has taken ours and closes its side.
    rig.recv(537, 5, "FA", b"");
    rig.sent(5, 538, "A", b"");
    assert!(rig.take_log().ends_with("close(Finished)"));
}

/// What is not read any more must not hold up the peer's FIN.
#[test]
fn unread_data_at_the_idle_timeout() {
    let config = Config {
        recv_buffer: 536,
        ..Config::default()
    };
    let mut rig = Rig::established(&config);
    rig.app().habit = Habit::Lazy;
    rig.recv(1, 1, "PA", &[b'g'; 536]);
    rig.sent(1, 537, "A", b"");
    rig.pass_ms(60_000);
    rig.sent(1, 537, "FA", b"");
    rig.recv(537, 2, "FA", b"");
    rig.sent(2, 538, "A", b"");
}

#[test]
fn at_the_end_of_the_stack_each_peer_is_told_once() {
    // Nothing is owed: all has arrived.
    let mut rig = Rig::serving(&Config::default(), b"all", None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"all");
    rig.recv(2, 4, "A", b"");
    rig.port.room = 0;
    assert!(!rig.stack.hang_up(&mut rig.port, rig.now));
    assert_eq!(rig.stack.connections(), 1);
    rig.port.room = 10;
    assert!(rig.stack.hang_up(&mut rig.port, rig.now));
    rig.sent(4, 2, "FA", b"");
    assert!(rig.take_log().ends_with("close(Finished)"));
    assert_eq!(rig.stack.connections(), 0);
    assert!(rig.stack.hang_up(&mut rig.port, rig.now));
    rig.sent_nothing();
}

#[test]
fn who_is_owed_something_at_the_end_of_the_stack_is_reset() {
    let mut rig = Rig::serving(&Config::default(), b"all", None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"all");
    assert!(rig.stack.hang_up(&mut rig.port, rig.now));
    rig.sent(4, 2, "RA", b"");
    assert!(rig.take_log().ends_with("close(Aborted)"));

    // Half open.
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(MSS));
    rig.sent_one();
    assert!(rig.stack.hang_up(&mut rig.port, rig.now));
    rig.sent(1, 1, "RA", b"");
    assert_eq!((rig.take_log().as_str(), rig.stack.connections()), ("", 0));

    // The window was shut on a probe: the reset is where the peer expects it.
    let mut rig = Rig::serving(&Config::default(), b"all of it", None);
    rig.window = 0;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "A", b"");
    rig.pass_ms(200);
    rig.sent(1, 2, "A", b"a");
    assert!(rig.stack.hang_up(&mut rig.port, rig.now));
    rig.sent(1, 2, "RA", b"");
}

#[test]
fn who_has_our_fin_at_the_end_of_the_stack_is_told_nothing() {
    let mut rig = Rig::serving(&Config::default(), b"bye", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "FPA", b"bye");
    rig.recv(2, 4, "A", b"");
    let mut again = closed_by_us();
    again.recv(2, 4, "A", b"");
    assert!(again.stack.hang_up(&mut again.port, again.now));
    again.sent(4, 2, "FA", b"");
    rig.recv(2, 5, "A", b"");
    assert!(rig.stack.hang_up(&mut rig.port, rig.now));
    rig.sent_nothing();
    assert!(rig.take_log().ends_with("close(Finished)"));
    assert_eq!(rig.stack.connections(), 0);
}
