use proptest::prelude::*;

use super::*;
use crate::connection::conn::recovery::{SIZES, STEPS};

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

/// Ranges that the tests of the cost of an ACK need: every second segment of a window.
const HOLES: u32 = 4_000;

/// Returns a connection whose peer has SACKed every second segment, one for each ACK. The segments
/// between them are late until `window` microseconds are over.
fn with_holes(window: u32) -> (Rack, Scoreboard, Flight) {
    let flight = Flight {
        sack: true,
        min_rtt: 1_000_000,
        reordering_window: window,
        ..in_flight(2 * HOLES + 10)
    };
    let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[2]));
    for n in 0..HOLES {
        let block = (Seq((2 * n + 1) * MSS), Seq((2 * n + 2) * MSS));
        receive(&mut rack, &mut board, &flight, block);
    }
    assert_eq!(board.len(), 2 * HOLES as usize);
    (rack, board, flight)
}

/// Processes an ACK with one SACK block. Returns the losses that it reveals, and the number of
/// ranges that were read or moved.
fn receive(
    rack: &mut Rack,
    board: &mut Scoreboard,
    flight: &Flight,
    block: Block,
) -> (Losses, usize) {
    let before = STEPS.get();
    rack.process_ack(board, flight, flight.una, None, &[block]);
    let losses = rack.find_lost(board, flight, false);
    (losses, STEPS.get() - before)
}

#[test]
fn a_repeated_block_costs_no_walk_over_late_ranges() {
    let (mut rack, mut board, mut flight) = with_holes(1_000);
    flight.now = 400;
    let middle = Seq((HOLES + 1) * MSS);
    for block in [(middle, middle + MSS), (middle + 1, middle + 2)] {
        let (losses, steps) = receive(&mut rack, &mut board, &flight, block);
        assert_eq!((losses.lost, losses.recheck_in), (0, Some(600)));
        assert!(steps <= 2, "{steps} steps");
    }
    flight.now = 1_000;
    let (losses, _) = receive(&mut rack, &mut board, &flight, (middle, middle + MSS));
    assert_eq!((losses.lost, losses.recheck_in), (HOLES * MSS, None));
}

#[test]
fn the_time_of_the_next_check_follows_the_range_that_is_late_for_longest() {
    let (mut rack, mut board, mut flight) = with_holes(1_000);
    flight.now = 100;
    let end = Seq((2 * HOLES + 1) * MSS);
    receive(&mut rack, &mut board, &flight, (end, end + MSS));
    flight.now = 200;
    // All ranges arrive that are late since the time 0.
    let (losses, _) = receive(
        &mut rack,
        &mut board,
        &flight,
        (Seq(1), Seq(2 * HOLES * MSS)),
    );
    assert_eq!(losses.recheck_in, Some(800));
    let (losses, _) = receive(&mut rack, &mut board, &flight, (Seq(0), Seq(1)));
    assert_eq!(losses.recheck_in, Some(900));
    let last = (Seq(2 * HOLES * MSS), end);
    let (losses, _) = receive(&mut rack, &mut board, &flight, last);
    assert_eq!(losses.recheck_in, None);
}

#[test]
fn a_further_sacked_byte_costs_no_walk_over_all_ranges() {
    for window in [0, 1_000] {
        let (mut rack, mut board, flight) = with_holes(window);
        let start = Seq((2 * HOLES + 1) * MSS);
        for n in 1..10 {
            let block = (start, start + n);
            let (losses, steps) = receive(&mut rack, &mut board, &flight, block);
            let lost = if n == 1 && window == 0 { MSS } else { 0 };
            assert_eq!(losses.lost, lost);
            assert!(steps <= 8, "{steps} steps");
        }
    }
}

#[test]
fn one_pass_marks_all_gaps_after_an_undo() {
    for window in [0, 1_000] {
        let (mut rack, mut board, flight) = with_holes(window);
        board.unmark_lost(Seq(0));
        rack.recheck(Seq(0));
        let before = STEPS.get();
        let losses = rack.find_lost(&mut board, &flight, false);
        let steps = STEPS.get() - before;
        assert!(steps <= 2 * SIZES[2], "{steps} steps");
        assert_eq!(losses.lost, if window == 0 { HOLES * MSS } else { 0 });
        assert_eq!(board.lost(), losses.lost);
        assert_eq!(board.len(), 2 * HOLES as usize);
    }
}

#[test]
fn one_pass_marks_all_gaps_of_a_full_scoreboard() {
    let mut flight = in_flight(20_000);
    flight.sack = true;
    let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[2]));
    let mut sacked = 0;
    while board.takes_sacked() {
        sacked += 1;
        let block = (Seq((2 * sacked - 1) * MSS), Seq(2 * sacked * MSS));
        rack.process_ack(&mut board, &flight, Seq(0), None, &[block]);
    }
    rack.recheck(Seq(0));
    let before = STEPS.get();
    let losses = rack.find_lost(&mut board, &flight, false);
    let steps = STEPS.get() - before;
    assert!(steps <= 3 * SIZES[2], "{steps} steps");
    assert!(board.len() <= SIZES[2]);
    // All data counts as SACKed or as lost, and as many blocks as possible are kept.
    assert_eq!(board.sacked() + board.lost(), 2 * sacked * MSS);
    assert_eq!(losses.lost, board.lost());
    assert!(board.sacked() > 4_000 * MSS);
    let (_, steps) = receive(&mut rack, &mut board, &flight, (Seq(MSS), Seq(2 * MSS)));
    assert!(steps <= 2, "{steps} steps");
}

#[test]
fn the_next_lost_range_costs_no_walk_over_retransmissions() {
    let (_, mut board, flight) = with_holes(0);
    let mut before = STEPS.get();
    for n in 0..HOLES {
        let (start, end) = board.first_lost().expect("a range is lost");
        assert_eq!(start, Seq(2 * n * MSS));
        let mark = Mark::Retransmitted {
            at: n,
            fence: flight.nxt,
        };
        board.set(start, end, Some(mark));
        let steps = STEPS.get() - std::mem::replace(&mut before, STEPS.get());
        assert!(steps <= 3, "{steps} steps");
    }
    assert_eq!(board.first_lost(), None);
}

#[test]
fn the_left_part_of_a_retransmission_is_lost_when_the_right_part_arrives() {
    // All data was sent, and its end is SACKed. So no later data can reveal the loss.
    for parts in [1, 2] {
        let mut flight = in_flight(4);
        let end = flight.nxt;
        flight.sack = true;
        let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(SIZES[0]));
        let (losses, _) = receive(&mut rack, &mut board, &flight, (Seq(2 * MSS), end));
        assert_eq!(losses.lost, 2 * MSS);
        flight.now = 10;
        for part in 1..=parts {
            let last = Seq(2 * MSS / parts * part);
            let mark = Mark::Retransmitted { at: 10, fence: end };
            board.set(Seq(0), last, Some(mark));
            rack.note_retransmit(end, 10, last);
        }
        rack.check_all(&mut board, &flight, 0);
        let (losses, _) = receive(&mut rack, &mut board, &flight, (Seq(MSS), end));
        assert_eq!((losses.lost, losses.lost_retransmission), (MSS, true));
        assert_eq!(board.first_lost(), Some((Seq(0), Seq(MSS))));
    }
}

#[test]
fn a_dsack_inside_a_block_of_data_that_was_never_sent_proves_nothing() {
    let mut flight = in_flight(4);
    flight.una = Seq(MSS);
    let dsack = (Seq(2 * MSS), Seq(3 * MSS));
    for (outer_end, expected) in [(flight.nxt, Some(dsack)), (flight.nxt + 1, None)] {
        let outer = (Seq(2 * MSS), outer_end);
        assert_eq!(dsack_block(&[dsack, outer], &flight), expected);
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Sack(u32, u32),
    Ack(u32),
    Retransmit(u32),
    ProbeTail(u32),
    Send(u32),
    Wait(u32),
    Undo,
    TimeOut,
}

fn events() -> impl Strategy<Value = Vec<(Event, bool)>> {
    let event = prop_oneof![
        8 => (0..200u32, 1..30u32).prop_map(|(start, len)| Event::Sack(start, len)),
        2 => (0..20u32).prop_map(Event::Ack),
        6 => (1..10u32).prop_map(Event::Retransmit),
        1 => (1..10u32).prop_map(Event::ProbeTail),
        3 => (1..50u32).prop_map(Event::Send),
        3 => (0..60u32).prop_map(Event::Wait),
        1 => Just(Event::Undo),
        1 => Just(Event::TimeOut),
    ];
    prop::collection::vec((event, prop::bool::weighted(0.2)), 1..80)
}

/// Returns the mark of every byte in flight.
fn marks_of(board: &Scoreboard, flight: &Flight) -> Vec<Option<Mark>> {
    let pieces = board.pieces(flight.una, flight.nxt);
    let marks = pieces.flat_map(|piece| (0..piece.len()).map(move |_| piece.mark));
    marks.collect()
}

/// Checks all bytes in flight. Returns their marks, the number of bytes that are newly lost, and the
/// time until the next check.
fn check_naively(
    rack: &Rack,
    board: &Scoreboard,
    flight: &Flight,
    window: u32,
) -> (Vec<Option<Mark>>, u32, Option<u32>) {
    let (mut marks, mut lost, mut recheck_in) = (vec![], 0, None);
    for piece in board.pieces(flight.una, flight.nxt) {
        for n in 0..piece.len() {
            let since = match piece.mark {
                None if (piece.start + n).before(rack.overtaken) => Some(flight.now),
                Some(Mark::Late { at } | Mark::LateRetransmit { at }) => Some(at),
                Some(Mark::Retransmitted { at, fence }) => {
                    let is_late = rack.fack.after(fence) || rack.is_later(at, piece.end);
                    is_late.then_some(flight.now)
                }
                _ => None,
            };
            let mark = since.map_or(piece.mark, |at| {
                if flight.now - at >= window {
                    lost += 1;
                    return Some(Mark::Lost);
                }
                let delay = window - (flight.now - at);
                recheck_in = Some(recheck_in.map_or(delay, |min: u32| min.min(delay)));
                Some(match piece.mark {
                    None | Some(Mark::Late { .. }) => Mark::Late { at },
                    _ => Mark::LateRetransmit { at },
                })
            });
            marks.push(mark);
        }
    }
    (marks, lost, recheck_in)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The check skips only the ranges whose marks cannot change.
    #[test]
    fn checks_agree_with_checks_of_every_byte(events in events(), base: u32) {
        let base = Seq(base);
        let mut flight = Flight {
            una: base,
            nxt: base + 100,
            sack: true,
            mss: 1,
            reordering_window: 40,
            now: 1_000,
            ..in_flight(0)
        };
        let (mut rack, mut board) = (Rack::new(base), Scoreboard::new(SIZES[2]));
        for (event, skip_window) in events {
            let una = flight.una;
            let mut blocks = vec![];
            match event {
                Event::Sack(start, len) => blocks.push((una + start, una + start + len)),
                Event::Ack(len) => flight.una = una + len.min(flight.len()),
                Event::Retransmit(max_len) => {
                    if let Some((start, end)) = board.first_lost() {
                        let end = end.earlier(start + max_len);
                        let mark = Mark::Retransmitted { at: flight.now, fence: flight.nxt };
                        board.set(start, end, Some(mark));
                        rack.note_retransmit(flight.nxt, flight.now, end);
                    }
                    continue;
                }
                Event::ProbeTail(len) => {
                    let start = flight.nxt + 0u32.wrapping_sub(len.min(flight.len()));
                    if start.before(flight.nxt) {
                        let mark = Mark::Retransmitted { at: flight.now, fence: flight.nxt };
                        board.set(start, flight.nxt, Some(mark));
                        rack.note_retransmit(flight.nxt, flight.now, flight.nxt);
                    }
                    continue;
                }
                Event::Send(len) => {
                    flight.nxt = flight.nxt + len;
                    continue;
                }
                Event::Wait(time) => flight.now += time,
                Event::Undo => {
                    board.unmark_lost(una);
                    rack.recheck(una);
                }
                Event::TimeOut => {
                    board.mark_all_lost(una, flight.nxt);
                    rack.recheck(una);
                    continue;
                }
            }
            rack.process_ack(&mut board, &flight, una, None, &blocks);
            let window = if skip_window { 0 } else { flight.reordering_window };
            let expected = check_naively(&rack, &board, &flight, window);
            let losses = rack.find_lost(&mut board, &flight, skip_window);
            let found = (marks_of(&board, &flight), losses.lost, losses.recheck_in);
            prop_assert_eq!(found, expected);
        }
    }
}
