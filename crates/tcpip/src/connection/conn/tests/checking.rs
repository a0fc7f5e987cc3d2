//! Acceptable segments, and the answers to others: RFC 9293, section 3.10.7.4, RFC 5961,
//! and RFC 7323, section 5.

use crate::connection::conn::testing::{Bench, Offer};
use crate::connection::{DeadlineKind, Flags, State};
use crate::outcome::Verdict;
use crate::wire::{Control, Segment, Timestamps};

/// The window of the SYN-ACK: a receive buffer.
const WINDOW: u32 = 16_384;

/// A segment without its first `bytes`.
fn without_first(mut segment: Segment, bytes: u16) -> Segment {
    segment.seq = segment.seq + u32::from(bytes);
    segment.data_at += bytes;
    segment.len -= bytes;
    segment
}

#[test]
fn a_segment_that_overlaps_the_window_is_acceptable() {
    // RFC 9293, table 6. Sequence numbers wrap within the window.
    let mut bench = Offer::default().open();
    assert!(bench.tcb().rcv_nxt.0 > bench.tcb().rcv_adv.0);
    for (seq, len) in [(1, 0), (1, 1), (2, 1), (WINDOW, 0), (WINDOW, 1)] {
        let segment = bench.segment(seq, 1, "A", len);
        let verdict = bench.check(seq, 1, "A", len);
        assert_eq!(verdict, Verdict::Process(segment), "{len} bytes at {seq}");
    }
    assert_eq!(bench.counters().out_of_window, 0);
    for (seq, len) in [(WINDOW + 1, 1), (0, 1), (0, 0), (1_u32 << 31, 5)] {
        bench.pass_ms(1_000);
        let verdict = bench.check(seq, 1, "A", len);
        assert_eq!(verdict, Verdict::Acknowledge, "{len} bytes at {seq}");
    }
    assert_eq!(bench.counters().out_of_window, 4);
}

#[test]
fn data_outside_the_window_is_trimmed() {
    let mut bench = Offer::default().open();
    let segment = bench.segment(0, 1, "PA", 2);
    let verdict = bench.check(0, 1, "PA", 2);
    assert_eq!(verdict, Verdict::Process(without_first(segment, 1)));
    // The FIN beyond the window's edge is also trimmed.
    let mut segment = bench.segment(WINDOW - 9, 1, "FA", 11);
    let verdict = bench.check(WINDOW - 9, 1, "FA", 11);
    (segment.len, segment.control) = (10, Control::ACK);
    assert_eq!(verdict, Verdict::Process(segment));
    // A segment that just fits keeps its FIN.
    let segment = bench.segment(WINDOW - 9, 1, "FA", 10);
    let verdict = bench.check(WINDOW - 9, 1, "FA", 10);
    assert_eq!(verdict, Verdict::Process(segment));
}

#[test]
fn a_zero_window_takes_the_ack_of_a_probe_and_not_its_data() {
    let mut bench = Offer::default().open();
    bench.tcb_mut().rcv_adv = bench.tcb().rcv_nxt;
    let mut segment = bench.segment(1, 1, "FA", 1);
    (segment.len, segment.control) = (0, Control::ACK);
    assert_eq!(bench.check(1, 1, "FA", 1), Verdict::Process(segment));
    assert!(
        bench.tcb().flags.has(Flags::ACK_PENDING),
        "the probe is answered"
    );
    assert_eq!(bench.counters().out_of_window, 1);
    assert_eq!(bench.check(2, 1, "A", 1), Verdict::Acknowledge);
    let segment = bench.segment(1, 1, "A", 0);
    assert_eq!(bench.check(1, 1, "A", 0), Verdict::Process(segment));
}

#[test]
fn only_the_exact_sequence_number_resets() {
    // RFC 5961, section 3.2.
    let mut bench = Offer::default().open();
    assert_eq!(bench.check(1, 0, "R", 0), Verdict::Close);
    assert_eq!(bench.check(2, 0, "R", 0), Verdict::Acknowledge);
    assert_eq!(bench.counters().challenge_acks, 1);
    assert_eq!(
        bench.check(WINDOW, 0, "R", 0),
        Verdict::Drop,
        "too soon after the last challenge ACK"
    );
    assert_eq!(bench.counters().unproven, 2);
    for seq in [0, WINDOW + 1] {
        assert_eq!(bench.check(seq, 0, "R", 0), Verdict::Drop);
    }
    assert_eq!(bench.counters().out_of_window, 2);
    assert_eq!(bench.counters().challenge_acks, 1);
}

#[test]
fn a_syn_in_a_connection_gets_a_challenge_ack_at_any_number() {
    // RFC 5961, section 4.2.
    for seq in [1, 2, WINDOW - 1] {
        let mut bench = Offer::default().open();
        assert_eq!(bench.check(seq, 0, "S", 0), Verdict::Acknowledge);
        assert_eq!(bench.counters().challenge_acks, 1);
        assert_eq!(bench.tcb().state, State::Established);
    }
}

#[test]
fn challenge_acks_are_half_a_second_apart() {
    // RFC 5961, section 7. The current tick of 32 ms has begun 4 ms before.
    let mut bench = Offer::default().open();
    assert_eq!(bench.check(1, 1, "S", 0), Verdict::Acknowledge);
    bench.pass_ms(539);
    assert_eq!(bench.check(1, 1, "S", 0), Verdict::Drop);
    bench.pass_ms(1);
    assert_eq!(bench.check(1, 1, "S", 0), Verdict::Acknowledge);
    assert_eq!(
        bench.check(2, 1, "R", 0),
        Verdict::Drop,
        "all challenge ACKs share one limit"
    );
    assert_eq!(bench.counters().challenge_acks, 2);
    assert_eq!(bench.counters().unproven, 4);
}

#[test]
fn data_outside_the_window_is_always_answered_and_a_bare_ack_is_rate_limited() {
    let mut bench = Offer::default().open();
    assert_eq!(bench.check(0, 1, "A", 0), Verdict::Acknowledge);
    assert_eq!(bench.check(0, 1, "A", 0), Verdict::Drop);
    assert_eq!(bench.check(0, 1, "A", 1), Verdict::Acknowledge);
    assert_eq!(bench.check(0, 1, "FA", 0), Verdict::Acknowledge);
    assert_eq!(bench.counters().challenge_acks, 0);
    assert_eq!(bench.counters().out_of_window, 4);
}

#[test]
fn an_ack_is_valid_from_the_largest_window_below_snd_una_to_snd_nxt() {
    // RFC 5961, section 5.2.
    let mut bench = Offer {
        window: 4_000,
        ..Offer::default()
    }
    .open();
    bench.write(8_000);
    bench.send();
    bench.ack(4_001);
    bench.send();
    for (ack, is_good) in [(8_001, true), (8_002, false), (1, true), (0, false)] {
        bench.pass_ms(1_000);
        let segment = bench.segment(1, ack, "A", 0);
        let expected = if is_good {
            Verdict::Process(segment)
        } else {
            Verdict::Acknowledge
        };
        assert_eq!(bench.check(1, ack, "A", 0), expected, "an ACK of {ack}");
    }
    assert_eq!(bench.counters().bad_ack, 2);
    assert_eq!(bench.counters().challenge_acks, 2);
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut bench = Offer::default().open();
    assert_eq!(bench.check(1, 0, "P", 3), Verdict::Drop);
    assert_eq!(bench.counters().bad_ack, 1);
}

/// A connection that has received the timestamp `recent`.
fn stamped(recent: u32) -> Bench {
    let mut bench = Offer::stamped().open();
    bench.tcb_mut().ts_recent = recent;
    bench
}

fn stamp(bench: &mut Bench, value: u32) {
    bench.stamps = Some(Timestamps { value, echo: 0 });
}

#[test]
fn timestamps_are_compared_modulo_2_to_the_32() {
    // RFC 7323, section 5.2: PAWS.
    for (recent, value, is_timely) in [
        (5_000, 5_000, true),
        (5_000, 4_999, false),
        (u32::MAX, 3, true),
        (3, u32::MAX, false),
        (5_000, 5_000 + (1 << 31) - 1, true),
        (5_000, 5_000 + (1 << 31), false),
    ] {
        let mut bench = stamped(recent);
        stamp(&mut bench, value);
        let expected = if is_timely {
            Verdict::Process(bench.segment(1, 1, "PA", 5))
        } else {
            Verdict::Acknowledge
        };
        let verdict = bench.check(1, 1, "PA", 5);
        assert_eq!(verdict, expected, "{value} after {recent}");
        assert_eq!(bench.counters().old_timestamps, u64::from(!is_timely));
    }
}

#[test]
fn an_old_timestamp_is_checked_before_the_sequence_number_and_not_for_a_reset() {
    let mut bench = stamped(5_000);
    stamp(&mut bench, 4_999);
    assert_eq!(bench.check(1, 0, "R", 0), Verdict::Close);
    assert_eq!(bench.check(0, 1, "PA", 1), Verdict::Acknowledge);
    assert_eq!(bench.counters().old_timestamps, 1);
    assert_eq!(bench.counters().out_of_window, 0);
    assert_eq!(bench.check(1, 1, "A", 0), Verdict::Drop, "an overtaken ACK");
    assert_eq!(bench.counters().old_timestamps, 2);
}

#[test]
fn a_segment_that_lacks_its_timestamp_is_dropped() {
    // RFC 7323, section 3.2.
    let mut bench = stamped(5_000);
    bench.stamps = None;
    assert_eq!(bench.check(1, 1, "PA", 5), Verdict::Drop);
    assert_eq!(bench.counters().no_timestamps, 1);
    assert_eq!(bench.check(1, 0, "R", 0), Verdict::Close);
}

#[test]
fn only_a_segment_in_order_updates_the_timestamp() {
    // RFC 7323, section 4.3.
    let mut bench = stamped(5_000);
    stamp(&mut bench, 5_010);
    bench.recv(1, 1, "PA", 100);
    assert_eq!(bench.tcb().ts_recent, 5_010);
    let (header, _) = bench.acknowledge();
    assert_eq!(header.timestamps.map(|stamps| stamps.echo), Some(5_010));
    // A segment beyond a gap does not update the timestamp.
    stamp(&mut bench, 5_020);
    bench.recv(301, 1, "PA", 100);
    assert_eq!(bench.tcb().ts_recent, 5_010);
}

#[test]
fn a_half_open_connection_accepts_only_its_ack() {
    let half_open = || Offer::default().half_open();
    let mut bench = half_open();
    let segment = bench.segment(1, 1, "A", 3);
    assert_eq!(bench.check(1, 1, "A", 3), Verdict::Establish(segment));
    assert_eq!(bench.tcb().state, State::Established);
    assert_eq!(bench.deadline(), (DeadlineKind::Idle, 60_000));
    for ack in [0, 2] {
        let mut bench = half_open();
        assert_eq!(bench.check(1, ack, "A", 0), Verdict::Reset);
        assert_eq!(bench.counters().bad_ack, 1);
        assert_eq!(bench.tcb().state, State::SynReceived);
    }
    let mut bench = half_open();
    assert_eq!(bench.check(1, 0, "R", 0), Verdict::Forget);
    assert_eq!(bench.counters().handshakes_failed, 1);
    assert_eq!(half_open().check(2, 0, "R", 0), Verdict::Acknowledge);
    assert_eq!(half_open().check(1, 0, "S", 0), Verdict::Acknowledge);
}

#[test]
fn a_repeated_syn_is_answered_again_and_gives_no_rtt_sample() {
    let mut bench = Offer::plain().half_open();
    bench.pass_ms(400);
    assert_eq!(bench.check(0, 0, "S", 0), Verdict::SynAck);
    bench.establish(100);
    assert_eq!(bench.tcb().rtt.smoothed(), 0);
    bench.write(1);
    bench.send();
    // RFC 6298, 5.7.
    assert_eq!(bench.deadline(), (DeadlineKind::Retransmit, 3_000));
}

/// A connection in TIME-WAIT.
fn time_wait(offer: Offer) -> Bench {
    let mut bench = offer.open();
    bench.tcb_mut().state = State::TimeWait;
    let now = bench.moment();
    bench.tcb_mut().arm(DeadlineKind::TimeWait, 10_000, now);
    bench
}

#[test]
fn time_wait_ends_with_a_later_syn() {
    // RFC 9293, section 3.6.1: by sequence number, or by timestamp.
    let plain = || time_wait(Offer::plain());
    assert_eq!(plain().check(1, 0, "S", 0), Verdict::Reopen);
    assert_eq!(plain().check(0, 0, "S", 0), Verdict::Acknowledge);
    for (seq, value, reopens) in [
        (1, 5_000, true),
        (0, 5_000, false),
        (0, 5_001, true),
        (1, 4_999, false),
    ] {
        let mut bench = time_wait(Offer::stamped());
        bench.tcb_mut().ts_recent = 5_000;
        stamp(&mut bench, value);
        let verdict = bench.check(seq, 0, "S", 0);
        assert_eq!(verdict == Verdict::Reopen, reopens, "{seq}, {value}");
    }
}

#[test]
fn time_wait_restarts_with_a_repeated_fin_and_ends_with_a_reset() {
    let mut bench = time_wait(Offer::default());
    bench.pass_ms(4_000);
    assert_eq!(bench.check(0, 1, "FA", 0), Verdict::Acknowledge);
    assert_eq!(bench.deadline(), (DeadlineKind::TimeWait, 10_000));
    assert_eq!(bench.check(1, 0, "R", 0), Verdict::Forget);
    assert_eq!(bench.fire(), "Forget");
}
