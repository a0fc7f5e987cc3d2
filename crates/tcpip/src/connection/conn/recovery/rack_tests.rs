use super::*;
use crate::connection::conn::recovery::SIZES;

const MSS: u32 = 1_000;

/// Snapshot of a connection with `segments` segments in flight.
fn in_flight(segments: u32) -> Flight {
    Flight {
        una: Seq(0),
        nxt: Seq(0) + segments * MSS,
        mss: MSS,
        all_sent: false,
        sack: false,
        min_rtt: 0,
        reordering_window: 0,
        tsval: 0,
        backdating: 0,
        now: 0,
    }
}

#[test]
fn sack_blocks_of_single_bytes_take_no_more_memory_than_whole_segments() {
    // A malicious peer can report thousands of blocks of one byte within ten segments.
    let flight = in_flight(10);
    let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[2]));
    let mut refused = false;
    for n in 0..4_000 {
        let block = (Seq(2 * n + 1), Seq(2 * n + 2));
        let delivery = rack.process_ack(&mut board, &flight, Seq(0), None, &[block]);
        refused |= delivery.board_full;
    }
    assert!(refused);
    assert!(board.ranges.len() <= 2 * 10 + 16);
}

#[test]
fn sack_blocks_without_room_cost_nothing() {
    let flight = in_flight(10);
    let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[2]));
    let ack = |rack: &mut Rack, board: &mut Scoreboard, block| {
        rack.process_ack(board, &flight, Seq(0), None, &[block])
    };
    let mut n = 0;
    while !ack(&mut rack, &mut board, (Seq(2 * n + 1), Seq(2 * n + 2))).board_full {
        n += 1;
    }
    let (pieces, ranges) = (PIECES.get(), board.ranges.len());
    let delivery = ack(&mut rack, &mut board, (Seq(0), flight.nxt));
    assert!(delivery.board_full && delivery.delivered == 0);
    assert_eq!((PIECES.get(), board.ranges.len()), (pieces, ranges));
}

#[test]
fn sack_blocks_for_every_second_segment_of_a_large_window_fit() {
    let flight = in_flight(5_000);
    let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[2]));
    for n in 0..2_500 {
        let block = (Seq((2 * n + 1) * MSS), Seq((2 * n + 2) * MSS));
        let delivery = rack.process_ack(&mut board, &flight, Seq(0), None, &[block]);
        assert!(!delivery.board_full);
    }
    assert_eq!(board.ranges.len(), 2_500);
}
