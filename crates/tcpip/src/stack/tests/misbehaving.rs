//! Receivers that acknowledge what has not arrived, or by the byte, or over
//! and over, to be sent more than their share (Savage et al., "TCP Congestion
//! Control with a Misbehaving Receiver"): windows grow by the rules, and what
//! is in flight stays inside them.

use proptest::prelude::*;
use testkit::{ACK, Opt};

use crate::Config;
use crate::congestion::{CongestionControl, Cubic, Event, NewReno, Reno};
use crate::stack::testing::{Rig, noise};
use crate::stack::tests::flooding::Offer;
use crate::wire::Seq;

/// Bytes of data in a full segment.
const SEGMENT: u32 = 1460;
/// Segments that one ACK may add to a window in slow start: RFC 9406, section
/// 4.2, has eight.
const MOST_GROWTH: u32 = 8;

/// A server whose client has just asked for more than it will get; with SACK.
fn serving() -> Rig {
    serving_much(1 << 20)
}

fn serving_much(bytes: usize) -> Rig {
    let mut rig = Rig::new(&Config::default());
    rig.load(&noise(bytes), None);
    rig.offer(&Offer {
        mss: Some(1472),
        timestamps: None,
        scale: Some(10),
        sack: true,
        ecn: false,
    });
    let syn_ack = rig.reply();
    rig.iss = syn_ack.seq;
    rig.complete(&syn_ack, 0, b"g");
    assert_eq!(cwnd(&rig), 10 * SEGMENT);
    assert_eq!(u32::from(rig.stack.records[0].tcb.mss), SEGMENT);
    rig
}

fn cwnd(rig: &Rig) -> u32 {
    rig.stack.records[0].window()
}

fn flight(rig: &Rig) -> u32 {
    rig.stack.records[0].tcb.view().flight
}

/// Behind all that was sent, from the first byte.
fn sent_to(rig: &Rig) -> u32 {
    let tcb = &rig.stack.records[0].tcb;
    tcb.view().snd_nxt.since(Seq(rig.iss)).wrapping_sub(1)
}

/// The client acknowledges the first `bytes`.
fn ack(rig: &mut Rig, bytes: u32) {
    ack_and_sack(rig, bytes, &[]);
}

/// The same, and selectively what lies between others.
fn ack_and_sack(rig: &mut Rig, bytes: u32, blocks: &[(u32, u32)]) {
    let first = rig.iss.wrapping_add(1);
    let edge = |offset: u32| first.wrapping_add(offset);
    let absolute = blocks.iter().map(|(start, end)| (edge(*start), edge(*end)));
    let option = [Opt::Sack(absolute.collect())];
    let options = if blocks.is_empty() { &[] } else { &option[..] };
    let seq = rig.irs.wrapping_add(2);
    rig.raw(seq, first.wrapping_add(bytes), ACK, options, b"");
    rig.port.sent.clear();
}

#[test]
fn an_ack_in_many_pieces_counts_by_its_bytes() {
    // RFC 3465: an ACK for each byte is worth no more than one for all.
    let mut rig = serving();
    for byte in 1..=SEGMENT {
        ack(&mut rig, byte);
    }
    assert_eq!(cwnd(&rig), 11 * SEGMENT);
    assert!(flight(&rig) <= cwnd(&rig));
}

#[test]
fn one_ack_of_very_much_counts_for_little() {
    let mut rig = serving_much(4 << 20);
    // A window of a few hundred segments.
    while sent_to(&rig) < 600 * SEGMENT {
        let next = sent_to(&rig) - flight(&rig) + 2 * SEGMENT;
        ack(&mut rig, next);
    }
    let before = cwnd(&rig);
    let all = sent_to(&rig);
    ack(&mut rig, all);
    assert!(cwnd(&rig) - before <= MOST_GROWTH * SEGMENT);
    assert!(flight(&rig) <= cwnd(&rig), "no burst beyond the window");
}

#[test]
fn acknowledging_in_advance_wins_no_more_than_the_window_allows() {
    // The client claims all at once that has been sent, round for round. Each
    // claim is worth a window, and the window grows as it would for a client
    // near by; it is never exceeded.
    let mut rig = serving_much(16 << 20);
    let mut window = cwnd(&rig);
    for _ in 0..100 {
        let sent = sent_to(&rig);
        ack(&mut rig, sent);
        assert!(cwnd(&rig) <= window + MOST_GROWTH * SEGMENT);
        window = cwnd(&rig);
        assert!(flight(&rig) <= window);
        assert!(sent_to(&rig) - sent <= window);
    }
}

#[test]
fn selective_claims_in_advance_stay_inside_the_peers_window() {
    // All but the first segment is claimed as soon as it is sent.
    let mut rig = serving();
    let window = rig.stack.records[0].tcb.view().snd_wnd.min(64 << 20);
    for _ in 0..2_000 {
        let sent = sent_to(&rig);
        ack_and_sack(&mut rig, 0, &[(SEGMENT, sent)]);
        assert!(flight(&rig) <= window);
        assert!(cwnd(&rig) <= 10 * SEGMENT, "a loss, if anything");
    }
}

#[test]
fn a_duplicate_releases_one_segment_and_no_window() {
    // Without SACK each duplicate says that one segment has arrived (RFC 5681,
    // section 3.2, step 4): made-up ones get no more than true ones.
    let mut rig = Rig::established(&Config::default());
    rig.load(&noise(1 << 20), None);
    rig.recv(1, 1, "A", b"g");
    let in_flight = sent_to(&rig);
    rig.port.sent.clear();
    for n in 1..10_000 {
        rig.recv(2, 1, "A", b"");
        assert!(rig.port.sent.len() <= 1);
        rig.port.sent.clear();
        assert!(sent_to(&rig) <= in_flight + n * SEGMENT);
        assert!(flight(&rig) <= 65_535, "the peer's window");
        assert!(cwnd(&rig) <= 10 * SEGMENT);
    }
    assert_eq!(rig.stack.counters().retransmits, 1);
    // Afterwards the window is what it was reduced to.
    let sent = sent_to(&rig);
    ack(&mut rig, sent);
    assert!(cwnd(&rig) <= 10 * SEGMENT);
}

/// Windows of a congestion control whose receiver claims everything at once,
/// in no time.
fn growth<C: CongestionControl>(acked: u32) {
    let mut congestion = C::new(SEGMENT);
    let mut una = 0u32;
    for n in 0..100 {
        let before = congestion.window();
        let acked = acked.min(before);
        una = una.wrapping_add(acked);
        let event = Event {
            now: n * 10,
            mss: SEGMENT,
            in_flight: before,
            una,
            nxt: una.wrapping_add(before),
            srtt: 10,
            rtt: 10,
        };
        congestion.on_ack(acked, &event);
        let grown = congestion.window().saturating_sub(before);
        assert!(
            grown <= acked.min(MOST_GROWTH * SEGMENT),
            "{grown} by {acked}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_ack_is_worth_more_than_it_acknowledges(acked in 1u32..10_000_000) {
        growth::<Reno>(acked);
        growth::<NewReno>(acked);
        growth::<Cubic>(acked);
    }

    /// Whatever a client claims, no more is on its way than the windows allow.
    #[test]
    fn whatever_is_claimed_the_windows_hold(
        claims in prop::collection::vec((0u32..40, 0u32..40, 0u32..40, any::<bool>()), 1..100),
    ) {
        let mut rig = serving();
        let (mut una, mut most) = (0, cwnd(&rig));
        for (forward, start, len, in_order) in claims {
            let sent = sent_to(&rig);
            let start = una + start * SEGMENT;
            let block = (start, start + len * SEGMENT);
            if in_order {
                una = (una + forward * SEGMENT / 2).min(sent + 2);
            }
            let blocks: &[_] = if len > 0 { &[block] } else { &[] };
            ack_and_sack(&mut rig, una, blocks);
            una = una.min(sent_to(&rig) - flight(&rig));
            // A reduction may be taken back, and nothing be won by that.
            prop_assert!(cwnd(&rig) <= most + MOST_GROWTH * SEGMENT);
            most = most.max(cwnd(&rig));
            let released = sent_to(&rig) - sent;
            prop_assert!(released <= most + MOST_GROWTH * SEGMENT, "{} at once", released);
        }
    }
}
