//! Loss and silence: RFC 6298, RFC 5681, RFC 6582, RFC 9293 section 3.8.6.1.

use crate::Config;
use crate::clock::Moment;
use crate::negotiated::Negotiated;
use crate::stack::testing::{Habit, Rig, noise};
use crate::wire::{Control, Segment};

const KIB_100: usize = 100_000;

/// A server in the middle of a long content: ten segments are in flight, and
/// the round trip was measured as nothing.
fn sending() -> Rig {
    let mut rig = Rig::serving(&Config::default(), &noise(KIB_100), None);
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 10);
    rig
}

/// What lies `segment` segments into the content.
fn segment(segment: usize) -> Vec<u8> {
    noise(KIB_100)[segment * 1460..][..1460].to_vec()
}

#[test]
fn the_first_segment_is_sent_again_after_the_timeout() {
    // RFC 6298, 5.4 to 5.6; the least timeout is 200 ms. The third makes it
    // smaller (RFC 8899, section 4.3).
    let mut rig = sending();
    let mut wait = 200;
    for len in [1460, 1460, 1228] {
        rig.pass_ms(wait - 1);
        rig.sent_nothing();
        rig.pass_ms(1);
        rig.sent(1, 2, "A", &segment(0)[..len]);
        rig.sent_nothing();
        wait *= 2;
    }
    assert_eq!(rig.stack.counters().timeouts, 3);
    assert_eq!(rig.stack.counters().retransmits, 3);
}

#[test]
fn an_ack_of_something_new_restarts_the_timer() {
    // RFC 6298, 5.3.
    let mut rig = sending();
    rig.pass_ms(150);
    rig.recv(2, 1461, "A", b"");
    rig.sent_all();
    // An eighth of 150 ms, and four quarters of that as its variation, are
    // less than 200 ms.
    rig.pass_ms(199);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1461, 2, "A", &segment(1));
}

#[test]
fn after_a_timeout_sending_starts_slowly_from_what_is_missing() {
    let mut rig = sending();
    rig.pass_ms(200);
    rig.sent(1, 2, "A", &segment(0));
    // RFC 5682, section 2.1: two new segments find out whether that was
    // needless. It was not, as the next ACK is a duplicate: slow start goes on.
    rig.recv(2, 1461, "A", b"");
    rig.sent(14_601, 2, "A", &segment(10));
    rig.sent(16_061, 2, "A", &segment(11));
    rig.sent_nothing();
    rig.recv(2, 1461, "A", b"");
    rig.sent(1461, 2, "A", &segment(1));
    rig.sent_nothing();
    rig.recv(2, 1461, "A", b"");
    rig.sent(2921, 2, "A", &segment(2));
    rig.sent_nothing();
}

#[test]
fn after_a_timeout_what_has_arrived_is_not_sent_again() {
    let mut rig = sending();
    rig.pass_ms(200);
    rig.sent(1, 2, "A", &segment(0));
    rig.recv(2, 14_601, "A", b"");
    rig.sent(14_601, 2, "A", &segment(10));
    assert_eq!(rig.stack.counters().retransmits, 1);
}

#[test]
fn the_backed_off_timeout_stays_until_a_new_round_trip_is_measured() {
    // Karn's algorithm; RFC 6298, section 5.
    let mut rig = sending();
    rig.pass_ms(200);
    rig.sent_one();
    rig.recv(2, 1461, "A", b"");
    assert_eq!(rig.sent_all().len(), 2);
    rig.pass_ms(399);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1461, 2, "A", &segment(1));
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut rig = Rig::serving(
        &Config {
            retries: 3,
            ..Config::default()
        },
        b"content",
        None,
    );
    rig.recv(1, 1, "PA", b"g");
    rig.take_log();
    rig.pass_ms(200 + 400 + 800);
    assert_eq!(rig.sent_all().len(), 4);
    rig.pass_ms(1600);
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "close(TimedOut)");
    assert_eq!(rig.stack.connections(), 0);
}

/// Three duplicate ACKs: two let one new segment each go (RFC 3042), the third
/// sends the missing one again (RFC 5681, section 3.2).
fn recovering() -> Rig {
    let mut rig = sending();
    for n in 10..12 {
        rig.recv(2, 1, "A", b"");
        rig.sent(1 + 1460 * n, 2, "A", &segment(n as usize));
        rig.sent_nothing();
    }
    rig.recv(2, 1, "A", b"");
    rig.sent(1, 2, "A", &segment(0));
    rig.sent_nothing();
    rig
}

#[test]
fn three_duplicate_acks_send_the_missing_segment_again() {
    let rig = recovering();
    assert_eq!(rig.stack.counters().fast_retransmits, 1);
    assert_eq!(rig.stack.counters().retransmits, 1);
}

#[test]
fn further_duplicate_acks_let_new_segments_go() {
    // RFC 6937: the window goes from ten to five, so one segment leaves for
    // two that have arrived, the retransmission counted, until no more than
    // five are in flight.
    let mut rig = recovering();
    let mut sent = Vec::new();
    for _ in 0..8 {
        rig.recv(2, 1, "A", b"");
        sent.push(rig.sent_all().len());
    }
    assert_eq!(sent, [0, 1, 0, 1, 0, 0, 1, 1]);
}

#[test]
fn a_full_ack_ends_the_recovery() {
    // RFC 6582, section 3.2, step 3: the window is half of what it was.
    let mut rig = recovering();
    rig.recv(2, 17_521, "A", b"");
    let segments = rig.sent_all();
    assert_eq!(segments.len(), 5);
    assert_eq!(segments[0].seq, 17_521);
}

#[test]
fn a_partial_ack_sends_the_next_missing_segment() {
    // RFC 6582, section 3.2, step 3.
    let mut rig = recovering();
    rig.recv(2, 2921, "A", b"");
    rig.sent(2921, 2, "A", &segment(2));
    rig.recv(2, 5841, "A", b"");
    rig.sent(5841, 2, "A", &segment(4));
    assert_eq!(rig.stack.counters().timeouts, 0);
}

#[test]
fn data_and_window_updates_are_no_duplicate_acks() {
    // RFC 5681, section 2.
    let mut rig = sending();
    rig.app().habit = Habit::Silent;
    for at in 2..6 {
        rig.recv(at, 1, "A", b"x");
        rig.sent(14_601, at + 1, "A", b"");
    }
    for window in [60_000, 50_000, 40_000, 30_000] {
        rig.window = window;
        rig.recv(6, 1, "A", b"");
    }
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().fast_retransmits, 0);
}

#[test]
fn duplicate_acks_after_a_timeout_start_nothing() {
    // RFC 6582, section 3.2, step 4.
    let mut rig = sending();
    rig.pass_ms(200);
    rig.sent(1, 2, "A", &segment(0));
    for _ in 0..5 {
        rig.recv(2, 1, "A", b"");
    }
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().fast_retransmits, 0);
}

#[test]
fn a_lost_retransmission_waits_for_the_timeout() {
    let mut rig = recovering();
    rig.pass_ms(199);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 2, "A", &segment(0));
}

#[test]
fn a_fast_retransmit_waits_for_the_ring() {
    let mut rig = sending();
    rig.port.room = 0;
    for _ in 0..3 {
        rig.recv(2, 1, "A", b"");
    }
    rig.sent_nothing();
    rig.port.room = 10;
    rig.timers();
    rig.sent(1, 2, "A", &segment(0));
}

#[test]
fn the_fin_is_sent_again_with_its_data() {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "FPA", b"content");
    rig.pass_ms(200);
    rig.sent(1, 2, "FPA", b"content");
    // Only the data has arrived; the timeout is doubled still.
    rig.recv(2, 8, "A", b"");
    rig.pass_ms(399);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(8, 2, "FA", b"");
    rig.recv(2, 9, "A", b"");
    rig.pass_ms(5000);
    rig.sent_nothing();
}

#[test]
fn a_lost_fin_is_found_by_duplicate_acks_too() {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.app().habit = Habit::ServeOnce;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "FPA", b"content");
    rig.recv(2, 8, "A", b"");
    rig.sent_nothing();
    for _ in 0..3 {
        rig.recv(2, 8, "A", b"");
    }
    rig.sent(8, 2, "FA", b"");
}

/// A server whose peer has shut its window before the response.
fn shut() -> Rig {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.window = 0;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "A", b"");
    rig
}

#[test]
fn a_shut_window_is_probed_with_one_octet_ever_more_rarely() {
    // RFC 9293, section 3.8.6.1, SHLD-29 and SHLD-30.
    let mut rig = shut();
    let mut wait = 200;
    for _ in 0..4 {
        rig.pass_ms(wait - 1);
        rig.sent_nothing();
        rig.pass_ms(1);
        rig.sent(1, 2, "A", b"c");
        rig.recv(2, 1, "A", b"");
        rig.sent_nothing();
        wait *= 2;
    }
    assert_eq!(rig.stack.counters().window_probes, 4);
    assert_eq!(rig.stack.counters().fast_retransmits, 0);
}

#[test]
fn a_probe_without_room_goes_when_there_is_some() {
    let mut rig = shut();
    rig.port.room = 0;
    rig.pass_ms(5_000);
    rig.sent_nothing();
    rig.port.room = 1;
    rig.pass_ms(1);
    rig.sent(1, 2, "A", b"c");
    // As after the first one, a moment ago.
    rig.port.room = 1;
    rig.pass_ms(398);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 2, "A", b"c");
    assert_eq!(rig.stack.counters().window_probes, 2);
}

#[test]
fn a_window_that_has_opened_meanwhile_is_not_probed() {
    let mut rig = shut();
    rig.port.room = 0;
    rig.pass_ms(200);
    rig.window = 1000;
    rig.recv(2, 1, "A", b"");
    rig.sent_nothing();
    rig.port.room = 10;
    rig.pass_ms(1);
    rig.sent(1, 2, "PA", b"content");
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().window_probes, 0);
}

#[test]
fn an_opened_window_gets_the_whole_segment() {
    let mut rig = shut();
    rig.pass_ms(200);
    rig.sent(1, 2, "A", b"c");
    rig.window = 1000;
    rig.recv(2, 1, "A", b"");
    rig.sent(1, 2, "PA", b"content");
    rig.recv(2, 8, "A", b"");
    rig.pass_ms(5000);
    rig.sent_nothing();
}

#[test]
fn a_probe_may_be_taken() {
    let mut rig = shut();
    rig.pass_ms(200);
    rig.sent(1, 2, "A", b"c");
    rig.recv(2, 2, "A", b"");
    rig.sent_nothing();
    // The interval is not shortened by that.
    rig.pass_ms(399);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(2, 2, "A", b"o");
    rig.window = 1000;
    rig.recv(2, 3, "A", b"");
    rig.sent(3, 2, "PA", b"ntent");
}

#[test]
fn probes_end_when_they_have_sent_everything() {
    let mut rig = Rig::serving(&Config::default(), b"xy", None);
    rig.window = 0;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "A", b"");
    for (data, control) in [(b"x", "A"), (b"y", "PA")] {
        rig.pass_ms(400);
        let out = rig.sent_one();
        assert_eq!((out.control.as_str(), &out.data[..]), (control, &data[..]));
        rig.recv(2, out.seq + 1, "A", b"");
    }
    rig.pass_ms(50_000);
    rig.sent_nothing();
}

#[test]
fn silence_behind_a_shut_window_ends_the_connection() {
    // RFC 6429.
    let mut rig = Rig::serving(
        &Config {
            probes: 3,
            ..Config::default()
        },
        b"content",
        None,
    );
    rig.window = 0;
    rig.recv(1, 1, "PA", b"g");
    rig.sent_all();
    rig.take_log();
    for wait in [200, 400, 800] {
        rig.pass_ms(wait);
        rig.sent(1, 2, "A", b"c");
    }
    rig.pass_ms(1600);
    assert_eq!(rig.sent_one().control, "RA");
    assert_eq!(rig.take_log(), "close(TimedOut)");
}

#[test]
fn a_shut_window_is_probed_with_the_fin_when_nothing_else_is_left() {
    let mut rig = Rig::established(&Config::default());
    rig.window = 0;
    rig.recv(1, 1, "FA", b"");
    rig.sent(1, 2, "A", b"");
    rig.pass_ms(200);
    rig.sent(1, 2, "FA", b"");
    rig.recv(2, 2, "A", b"");
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn a_window_shut_on_what_is_in_flight_is_probed() {
    // RFC 9293, section 3.8.6: a shrunk window.
    let mut rig = sending();
    rig.window = 0;
    rig.recv(2, 1, "A", b"");
    rig.pass_ms(200);
    rig.sent(1, 2, "A", &segment(0)[..1]);
    rig.sent_nothing();
    rig.window = 65_535;
    rig.recv(2, 14_601, "A", b"");
    rig.sent(14_601, 2, "A", &segment(10));
    assert_eq!(rig.stack.counters().timeouts, 0);
}

#[test]
fn after_a_long_silence_the_window_is_the_initial_one_again() {
    // RFC 5681, section 4.1.
    let mut rig = Rig::serving(&Config::default(), &noise(40_000), None);
    let mut seq = 1;
    for (silence, burst) in [(0, 10), (10, 20), (1000, 10)] {
        rig.pass_ms(silence);
        rig.recv(1 + seq / 40_000, seq, "PA", b"g");
        let mut sent = rig.sent_all();
        assert!(sent.len() >= burst, "{} segments", sent.len());
        if burst == 10 {
            assert_eq!(sent.len(), 10);
        }
        while !sent.is_empty() {
            for out in sent {
                seq = out.seq + out.data.len() as u32;
                rig.recv(1 + (seq + 39_998) / 40_000, seq, "A", b"");
            }
            sent = rig.sent_all();
        }
    }
}

/// RFC 6582, section 3.2, step 3: an ACK of all of `recover` is a full one.
#[test]
fn a_full_ack_with_new_data_behind_it_resends_nothing() {
    let mut rig = Rig::serving(&Config::default(), &noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent_all();
    for _ in 0..11 {
        rig.recv(2, 1, "A", b"");
    }
    let last = rig.sent_all().last().unwrap().seq;
    assert!(last > 1 + 12 * 1460, "new data in recovery");
    // All of the twelve that were out when recovery began.
    rig.recv(2, 1 + 12 * 1460, "A", b"");
    for out in rig.sent_all() {
        assert!(out.seq > last, "{} again", (out.seq - 1) / 1460);
    }
}

#[test]
fn a_larger_scoreboard_is_given_back_though_the_loss_is_remembered() {
    let mut rig = sending();
    let tcb = &mut rig.stack.records[0].tcb;
    tcb.set_negotiated(Negotiated::new(true, false, None, false));
    let una = tcb.view().snd_una;
    let acknowledgement = Segment {
        src_port: tcb.view().peer_port,
        dst_port: tcb.view().own_port,
        seq: tcb.view().rcv_nxt,
        ack: una,
        control: Control::ACK,
        window: u16::MAX,
        data_at: 20,
        len: 0,
        timestamps: None,
    };
    let blocks = [2, 5, 8].map(|n| (una + n * 1460, una + (n + 1) * 1460));
    let now = Moment::from(rig.now);
    let mut conn = rig.stack.conn(0);
    assert!(conn.needs_larger_board(Some((acknowledgement, &blocks))));
    rig.stack.lend_larger_board(0);
    let conn = rig.stack.conn(0);
    conn.on_disorder(acknowledgement, &blocks, now);
    let size = |rig: &mut Rig| rig.stack.conn(0).board_size();
    assert_eq!(size(&mut rig), Some(1));
    rig.recv(2, 1, "A", b"");
    assert!(!rig.sent_all().is_empty(), "something goes again");
    rig.pass_ms(20);
    rig.recv(2, 1 + 10 * 1460, "A", b"");
    // The peer may tell yet that some of it has arrived twice.
    assert_eq!(size(&mut rig), Some(0));
}
