use super::*;
use crate::NewReno;
use crate::connection::conn::recovery::{Mark, SIZES, Scoreboard};
use crate::connection::conn::testing::{Bench, Offer};

/// Length of a segment.
const MSS: u32 = 1_000;
/// Number of segments that are lost in the tests, each followed by one that arrives.
const HOLES: u32 = 20;

/// A connection with more than two segments in flight per hole. Also returns the first sequence
/// number in flight.
fn sending() -> (Bench, u32) {
    let mut bench = Offer::default().open();
    bench.write(4_000 * MSS);
    let mut first = 1;
    loop {
        let sent = bench.send().len() as u32;
        assert!(sent > 0, "the window grows");
        if sent > 2 * HOLES {
            return (bench, first);
        }
        first += sent * MSS;
        bench.ack(first);
    }
}

/// Retransmits segment `2 * hole` after the next one was SACKed. Returns the range of the first.
fn lose(bench: &mut Bench, first: u32, hole: u32, una: u32) -> (u32, u32) {
    let start = first + 2 * hole * MSS;
    bench.ack_and_sack(una, &[(start + MSS, start + 2 * MSS)]);
    let expected = format!("{start}:{} A retransmitted", start + MSS);
    if !bench.send().contains(&expected) {
        assert_eq!(bench.fire(), "Transmit", "the reordering window ends");
        assert!(bench.send().contains(&expected));
    }
    (start, start + MSS)
}

#[test]
fn a_peer_pays_for_undos_with_acknowledged_data() {
    // The peer claims that all segments have arrived, and that each retransmission was needless. But
    // it acknowledges nothing cumulatively.
    let (mut bench, first) = sending();
    for hole in 0..HOLES {
        let block = lose(&mut bench, first, hole, first);
        bench.ack_and_sack(first, &[block, (first, block.1 + MSS)]);
    }
    assert_eq!(bench.una(), first);
    assert_eq!(bench.counters().undos, u64::from(MAX_OPEN_SEGMENTS));
}

#[test]
fn an_undo_follows_every_late_segment_on_a_path_that_reorders() {
    let (mut bench, first) = sending();
    for hole in 0..HOLES {
        let block = lose(&mut bench, first, hole, first + 2 * hole * MSS);
        // The late segment arrives, and then its retransmission.
        bench.ack(block.1 + MSS);
        bench.ack_and_sack(block.1 + MSS, &[block]);
    }
    assert_eq!(bench.counters().undos, u64::from(HOLES));
}

#[test]
fn an_undo_with_many_ranges_costs_many_segments() {
    let mut recovery = Recovery::<NewReno>::new(Scoreboard::new(SIZES[2]), Seq(0));
    let ranges = 3_200;
    for n in 0..ranges {
        let start = Seq(2 * n + 1);
        recovery.board.set(start, start + 1, Some(Mark::Sacked));
    }
    let mut tcb = Tcb {
        mss: MSS as u16,
        ..Tcb::default()
    };
    let mut undone_at = vec![];
    for segment in 0..250 {
        tcb.snd_una = Seq(segment * MSS);
        recovery.settle_undos(&tcb);
        if recovery.pay_for_undo(&tcb) {
            undone_at.push(segment);
        }
    }
    let price = 1 + ranges / RANGES_PER_SEGMENT;
    let first = price - MAX_OPEN_SEGMENTS + 1;
    assert_eq!(undone_at, [0, first, first + price]);
}

/// Without an undo in between, the two numbers must not drift apart.
#[test]
fn an_undo_is_granted_after_more_than_2_gib() {
    let mut recovery = Recovery::<NewReno>::new(Scoreboard::new(SIZES[0]), Seq(0));
    let mut tcb = Tcb {
        mss: MSS as u16,
        ..Tcb::default()
    };
    for gib in 1..4 {
        tcb.snd_una = Seq(gib << 30);
        recovery.settle_undos(&tcb);
    }
    assert!(recovery.pay_for_undo(&tcb));
}
