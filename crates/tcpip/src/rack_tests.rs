use nmio::Instant;

use super::*;
use crate::scoreboard::SIZES;

const MSS: u16 = 1_000;

/// A connection with `segments` segments in flight.
fn in_flight(segments: u32) -> Tcb {
    Tcb {
        mss: MSS,
        snd_nxt: Seq(0) + segments * u32::from(MSS),
        ..Tcb::closed()
    }
}

#[test]
fn blocks_of_single_bytes_take_no_more_memory_than_honest_ones() {
    // Thousands of them fit ten segments, and a peer may invent them.
    let tcb = in_flight(10);
    let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[2]));
    let now = Moment::new(Instant::ZERO);
    let mut refused = false;
    for n in 0..4_000 {
        let block = (Seq(2 * n + 1), Seq(2 * n + 2));
        let news = rack.take_in(&mut board, &tcb, Seq(0), None, &[block], now);
        refused |= news.no_place;
    }
    assert!(refused);
    assert!(board.ranges().count() <= 2 * 10 + 16);
}

#[test]
fn every_second_segment_of_a_wide_window_finds_place() {
    let tcb = in_flight(5_000);
    let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[2]));
    let now = Moment::new(Instant::ZERO);
    let mss = u32::from(MSS);
    for n in 0..2_500 {
        let block = (Seq((2 * n + 1) * mss), Seq((2 * n + 2) * mss));
        let news = rack.take_in(&mut board, &tcb, Seq(0), None, &[block], now);
        assert!(!news.no_place);
    }
    assert_eq!(board.ranges().count(), 2_500);
}
