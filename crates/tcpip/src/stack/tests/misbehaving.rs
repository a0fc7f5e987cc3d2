//! Tests with misbehaving receivers. They acknowledge data before it arrives, acknowledge each byte
//! separately, or acknowledge the same data repeatedly. With these ACKs, a receiver tries to get
//! more than its share of bandwidth (Savage et al., "TCP Congestion Control with a Misbehaving
//! Receiver"). The congestion window must still grow by the rules, and limit the data in flight.

use proptest::prelude::*;
use testkit::{ACK, Opt};

use crate::Config;
use crate::congestion::{CongestionControl, Cubic, Event, NewReno, Reno};
use crate::stack::testing::{Rig, noise};
use crate::stack::tests::flooding::Offer;
use crate::wire::Seq;

/// Number of data bytes in a full segment.
const SEGMENT: u32 = 1460;
/// Maximum number of segments that one ACK may add to the congestion window in slow start. RFC
/// 9406, section 4.3, calls this limit L.
const MAX_GROWTH: u32 = 8;

/// Makes a server whose client uses SACK and has just requested more data than the congestion
/// window allows.
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
    assert_eq!(u32::from(rig.stack.tcb(0).mss), SEGMENT);
    rig
}

fn cwnd(rig: &Rig) -> u32 {
    rig.stack.table.records[0].window()
}

fn flight(rig: &Rig) -> u32 {
    rig.stack.tcb(0).view().flight
}

/// Returns the number of bytes of the stream sent so far.
fn sent_to(rig: &Rig) -> u32 {
    let tcb = rig.stack.tcb(0);
    tcb.view().snd_nxt.since(Seq(rig.iss)).wrapping_sub(1)
}

/// Acknowledges the first `bytes` bytes of the stream.
fn ack(rig: &mut Rig, bytes: u32) {
    ack_and_sack(rig, bytes, &[]);
}

/// Acknowledges the first `bytes` bytes of the stream, and selectively acknowledges `blocks`.
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
fn an_ack_split_into_many_counts_by_its_bytes() {
    // RFC 3465: if each byte is acknowledged separately, the window must not grow more than after
    // one ACK for all bytes.
    let mut rig = serving();
    for byte in 1..=SEGMENT {
        ack(&mut rig, byte);
    }
    assert_eq!(cwnd(&rig), 11 * SEGMENT);
    assert!(flight(&rig) <= cwnd(&rig));
}

#[test]
fn an_ack_of_many_segments_adds_at_most_eight_to_the_window() {
    let mut rig = serving_much(4 << 20);
    // Grow the window to a few hundred segments.
    while sent_to(&rig) < 600 * SEGMENT {
        let next = sent_to(&rig) - flight(&rig) + 2 * SEGMENT;
        ack(&mut rig, next);
    }
    let before = cwnd(&rig);
    let all = sent_to(&rig);
    ack(&mut rig, all);
    assert!(cwnd(&rig) - before <= MAX_GROWTH * SEGMENT);
    assert!(flight(&rig) <= cwnd(&rig), "no burst beyond the window");
}

#[test]
fn optimistic_acks_gain_no_more_than_the_window_allows() {
    // In each round, the client acknowledges all data sent so far, before the data can have
    // arrived. The congestion window grows as it would for a nearby client, and the data in flight
    // never exceeds the congestion window.
    let mut rig = serving_much(16 << 20);
    let mut window = cwnd(&rig);
    for _ in 0..100 {
        let sent = sent_to(&rig);
        ack(&mut rig, sent);
        assert!(cwnd(&rig) <= window + MAX_GROWTH * SEGMENT);
        window = cwnd(&rig);
        assert!(flight(&rig) <= window);
        assert!(sent_to(&rig) - sent <= window);
    }
}

#[test]
fn optimistic_sack_blocks_send_no_more_than_the_peers_window() {
    // As soon as segments are sent, the client selectively acknowledges all of them except the
    // first.
    let mut rig = serving();
    let window = rig.stack.tcb(0).view().snd_wnd.min(64 << 20);
    for _ in 0..2_000 {
        let sent = sent_to(&rig);
        ack_and_sack(&mut rig, 0, &[(SEGMENT, sent)]);
        assert!(flight(&rig) <= window);
        assert!(cwnd(&rig) <= 10 * SEGMENT, "the window does not grow");
    }
}

#[test]
fn a_duplicate_ack_releases_at_most_one_segment_and_grows_no_window() {
    // Without SACK, each duplicate ACK means that one segment has arrived (RFC 5681, section 3.2,
    // step 4). Forged duplicate ACKs must not gain the client more than genuine ones.
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
    // After recovery, the window is no larger than the initial window.
    let sent = sent_to(&rig);
    ack(&mut rig, sent);
    assert!(cwnd(&rig) <= 10 * SEGMENT);
}

/// Passes a hundred ACKs to a congestion control. Each is for `acked` bytes, but at most for the
/// whole window. Checks that an ACK adds no more bytes to the window than it acknowledges, and at
/// most [`MAX_GROWTH`] segments.
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
            is_paced: false,
        };
        congestion.on_ack(acked, &event);
        let grown = congestion.window().saturating_sub(before);
        assert!(
            grown <= acked.min(MAX_GROWTH * SEGMENT),
            "{grown} by {acked}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_ack_grows_the_window_by_more_than_it_acknowledges(acked in 1u32..10_000_000) {
        growth::<Reno>(acked);
        growth::<NewReno>(acked);
        growth::<Cubic>(acked);
    }

    /// No matter what a client acknowledges, the congestion window and the data sent per ACK stay
    /// limited.
    #[test]
    fn the_windows_stay_limited_whatever_is_acknowledged(
        claims in prop::collection::vec((0u32..40, 0u32..40, 0u32..40, any::<bool>()), 1..100),
    ) {
        let mut rig = serving();
        let (mut una, mut max_cwnd) = (0, cwnd(&rig));
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
            // Undoing a reduction must not raise the window above its previous maximum plus the
            // growth by this ACK.
            prop_assert!(cwnd(&rig) <= max_cwnd + MAX_GROWTH * SEGMENT);
            max_cwnd = max_cwnd.max(cwnd(&rig));
            let released = sent_to(&rig) - sent;
            prop_assert!(released <= max_cwnd + MAX_GROWTH * SEGMENT, "{} at once", released);
        }
    }
}
