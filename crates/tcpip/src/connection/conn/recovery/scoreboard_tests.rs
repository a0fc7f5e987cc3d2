use proptest::prelude::*;

use super::*;
use crate::connection::conn::recovery::SIZES;

/// The reference model: a list with one mark for each byte.
#[derive(Clone, Debug)]
struct Naive {
    una: usize,
    byte_marks: Vec<Option<Mark>>,
}

fn marks() -> impl Strategy<Value = Option<Mark>> {
    prop_oneof![
        Just(None),
        Just(Some(Mark::Sacked)),
        Just(Some(Mark::Lost)),
        (0u32..3).prop_map(|at| Some(Mark::Late { at })),
        (0u32..3).prop_map(|at| Some(Mark::LateRetransmit { at })),
        (0u32..3).prop_map(|at| Some(Mark::Retransmitted { at, fence: Seq(7) })),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, usize, Option<Mark>),
    Advance(usize),
    MarkAllLost,
    UnmarkLost,
    ForgetSacked,
}

const SPAN: usize = 120;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..SPAN, 0..SPAN, marks()).prop_map(|(a, b, mark)| Step::Set(a, b, mark)),
        1 => (0..10usize).prop_map(Step::Advance),
        1 => Just(Step::MarkAllLost),
        1 => Just(Step::UnmarkLost),
        1 => Just(Step::ForgetSacked),
    ];
    prop::collection::vec(step, 1..60)
}

fn check(board: &mut Scoreboard, naive: &Naive, base: Seq) {
    let seq = |at: usize| base + at as u32;
    let mut at = naive.una;
    for piece in board.pieces(seq(naive.una), seq(SPAN)) {
        assert_eq!(piece.start, seq(at));
        assert!(piece.len() > 0);
        for _ in 0..piece.len() {
            assert_eq!(piece.mark, naive.byte_marks[at], "byte {at}");
            at += 1;
        }
    }
    assert_eq!(at, SPAN);
    let count = |mark: Mark| {
        naive.byte_marks[naive.una..]
            .iter()
            .filter(|m| **m == Some(mark))
            .count()
    };
    assert_eq!(board.sacked() as usize, count(Mark::Sacked));
    assert_eq!(board.lost() as usize, count(Mark::Lost));
    let marks = || naive.byte_marks[naive.una..].iter().flatten();
    let is_retransmission = |mark: &&Mark| {
        matches!(
            mark,
            Mark::Retransmitted { .. } | Mark::LateRetransmit { .. }
        )
    };
    assert_eq!(
        board.any_retransmitted(),
        marks().any(|mark| is_retransmission(&mark))
    );
    let late_since = |mark: &Mark| match mark {
        Mark::Late { at } | Mark::LateRetransmit { at } => Some(*at),
        _ => None,
    };
    let first_late = marks().filter_map(late_since).min();
    if board.knows_late() {
        assert_eq!(board.late_since(), first_late);
    } else {
        assert!(board.late_since() < first_late);
    }
    let first = naive.byte_marks[naive.una..]
        .iter()
        .position(|m| *m == Some(Mark::Lost));
    assert_eq!(
        board.first_lost().map(|(start, _)| start),
        first.map(|n| seq(naive.una + n))
    );
    let ranges: Vec<_> = board.ranges.iter().collect();
    for pair in ranges.windows(2) {
        assert!(!pair[1].start.before(pair[0].end));
        assert!(
            pair[1].start != pair[0].end || pair[0].mark != pair[1].mark,
            "equal neighbours are merged"
        );
    }
}

proptest! {
    #[test]
    fn the_scoreboard_agrees_with_a_mark_for_each_byte(steps in steps(), base: u32) {
        // The first sequence number is arbitrary, so that the numbers may wrap around.
        let base = Seq(base);
        let mut board = Scoreboard::new(SIZES[2]);
        let mut naive = Naive { una: 0, byte_marks: vec![None; SPAN] };
        for step in steps {
            let una = base + naive.una as u32;
            let nxt = base + SPAN as u32;
            match step {
                Step::Set(a, b, mark) => {
                    let (from, to) = (a.min(b).max(naive.una), a.max(b).max(naive.una));
                    prop_assert!(board.set(base + from as u32, base + to as u32, mark));
                    naive.byte_marks[from..to].fill(mark);
                }
                Step::Advance(by) => {
                    naive.una = (naive.una + by).min(SPAN);
                    board.advance(base + naive.una as u32);
                }
                Step::MarkAllLost => {
                    board.mark_all_lost(una, nxt);
                    for mark in &mut naive.byte_marks[naive.una..] {
                        if *mark != Some(Mark::Sacked) {
                            *mark = Some(Mark::Lost);
                        }
                    }
                }
                Step::UnmarkLost => {
                    board.unmark_lost(una);
                    for mark in &mut naive.byte_marks[naive.una..] {
                        if !matches!(mark, Some(Mark::Sacked | Mark::Retransmitted { .. })) {
                            *mark = None;
                        }
                    }
                }
                Step::ForgetSacked => {
                    board.forget_sacked(una);
                    for mark in &mut naive.byte_marks[naive.una..] {
                        if *mark == Some(Mark::Sacked) {
                            *mark = None;
                        }
                    }
                }
            }
            check(&mut board, &naive, base);
        }
    }
}

/// Checks that the byte counters match the pieces, and that ranges are in order.
fn check_sums(board: &Scoreboard, una: Seq, nxt: Seq) {
    let sum = |mark: Mark| -> u32 {
        let pieces = board.pieces(una, nxt);
        let marked = pieces.filter(|piece| piece.mark == Some(mark));
        marked.map(|piece| piece.len()).sum()
    };
    assert_eq!(board.sacked(), sum(Mark::Sacked));
    assert_eq!(board.lost(), sum(Mark::Lost));
    assert!(board.ranges.len() <= board.limit);
    let mut at = una;
    for range in &board.ranges {
        assert!(!range.start.before(at) && range.start.before(range.end));
        at = range.end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A full scoreboard ignores new SACK blocks, and forgets old ones to make room for losses.
    #[test]
    fn byte_counts_stay_correct_near_the_capacity(
        steps in steps(),
        (limit, fill) in prop::sample::select(&SIZES[..2])
            .prop_flat_map(|limit| (Just(limit), limit / 4 * 3 - 4..limit)),
        base: u32,
        places in prop::collection::vec(0u32.., 60),
    ) {
        let base = Seq(base);
        let span = 4 * limit as u32;
        let nxt = base + span;
        let mut una = base;
        let mut board = Scoreboard::new(limit);
        for n in 0..fill as u32 {
            let mark = if n % 2 == 0 { Mark::Sacked } else { Mark::Lost };
            board.set(base + 4 * n, base + 4 * n + 2, Some(mark));
        }
        for (step, place) in steps.into_iter().zip(places) {
            match step {
                Step::Set(a, b, mark) => {
                    let start = (base + place % span).later(una);
                    let end = start + a.abs_diff(b) as u32 % 8;
                    let end = if end.after(nxt) { nxt } else { end };
                    let before = board.clone();
                    if board.set(start, end, mark) {
                        let mut pieces = board.pieces(start, end);
                        prop_assert!(pieces.all(|piece| piece.mark == mark));
                    } else {
                        prop_assert_eq!(mark, Some(Mark::Sacked));
                        prop_assert!(board.ranges.iter().eq(before.ranges.iter()));
                    }
                }
                Step::Advance(by) => {
                    una = una + by as u32;
                    board.advance(una);
                }
                Step::MarkAllLost => board.mark_all_lost(una, nxt),
                Step::UnmarkLost => board.unmark_lost(una),
                Step::ForgetSacked => board.forget_sacked(una),
            }
            check_sums(&board, una, nxt);
        }
    }
}

#[test]
fn a_larger_board_takes_over_the_ranges_of_a_small_one() {
    for size in [0, 1] {
        let (mut board, count) = full(size);
        assert!(board.is_short_of_space(0) && board.size() == size);
        let (before, sacked) = (board.clone(), board.sacked());
        let small = board.move_to(Scoreboard::new(SIZES[size + 1]));
        assert!(board.ranges.iter().eq(before.ranges.iter()) && board.sacked() == sacked);
        assert!(board.size() == size + 1 && !board.is_short_of_space(0));
        assert!(small.is_empty() && small.sacked() == 0 && small.size() == size);
        let start = Seq(10 * count + 5);
        assert!(board.set(start, start + 5, Some(Mark::Sacked)));
    }
}

#[test]
fn a_scoreboard_with_space_left_has_room_for_the_blocks_of_an_ack() {
    // In the worst case each block divides a retransmission, and all gaps turn out to be lost.
    for limit in SIZES {
        for blocks in 1..4 {
            let mut board = Scoreboard::new(limit);
            let mut nxt = Seq(0);
            while !board.is_short_of_space(blocks) {
                let next = nxt + 100;
                for n in 0..blocks as u32 {
                    let at = nxt + 30 * n;
                    assert!(board.set(at + 10, at + 20, Some(Mark::Sacked)));
                }
                let lost: Vec<_> = board
                    .pieces(nxt, next)
                    .filter(|p| p.mark.is_none())
                    .collect();
                for piece in lost {
                    assert!(board.len() + 2 <= limit);
                    board.set(piece.start, piece.end, Some(Mark::Lost));
                }
                nxt = next;
            }
            assert!(nxt != Seq(0) || limit == SIZES[0] && blocks == 3);
        }
    }
}

/// Returns a scoreboard with as many SACKed ranges as it accepts, and their number.
fn full(size: usize) -> (Scoreboard, u32) {
    let mut board = Scoreboard::new(SIZES[size]);
    let mut count = 0;
    while board.set(
        Seq(10 * count + 5),
        Seq(10 * count + 10),
        Some(Mark::Sacked),
    ) {
        count += 1;
    }
    assert_eq!(count as usize, [11, 95][size]);
    (board, count)
}

#[test]
fn a_full_scoreboard_ignores_sack_blocks_and_stays_consistent() {
    for size in [0, 1] {
        let (mut board, count) = full(size);
        let nxt = Seq(10 * count + 100);
        assert!(!board.set(Seq(10 * count + 50), nxt, Some(Mark::Sacked)));
        assert_eq!(board.ranges.len() as u32, count);
        assert_eq!(board.sacked(), 5 * count);
    }
}

#[test]
fn losses_fit_into_a_full_scoreboard() {
    for size in [0, 1] {
        let (mut board, count) = full(size);
        for n in 0..count {
            assert!(board.set(Seq(10 * n), Seq(10 * n + 5), Some(Mark::Lost)));
            assert!(board.ranges.len() <= SIZES[size]);
        }
        assert_eq!(board.first_lost(), Some((Seq(0), Seq(5))));
        let (mut board, count) = full(size);
        board.mark_all_lost(Seq(0), Seq(10 * count));
        assert!(board.ranges.len() <= SIZES[size]);
        assert_eq!(board.first_lost().map(|(start, _)| start), Some(Seq(0)));
        assert_eq!(board.lost() + board.sacked(), 10 * count);
    }
}

#[test]
fn marks_for_all_gaps_fit_into_a_full_scoreboard() {
    for limit in SIZES {
        for shift in 0..10 {
            // Every range has gaps on both sides. Those beyond `end` are lost.
            let count = limit as u32;
            let end = Seq(10 * (count - 5) + shift);
            let mut board = Scoreboard::new(limit);
            for n in 0..count {
                let mark = if n < count - 5 {
                    Mark::Sacked
                } else {
                    Mark::Lost
                };
                board.append(Seq(10 * n + 5), Seq(10 * n + 8), Some(mark));
            }
            board.remark(Seq(0), end, |piece| {
                piece.mark.or(Some(Mark::Late { at: 1 }))
            });
            let last = Seq(10 * count - 2);
            check_sums(&board, Seq(0), last);
            for piece in board.pieces(Seq(0), last) {
                assert!(piece.mark.is_some(), "{piece:?}");
                assert_eq!(piece.mark == Some(Mark::Lost), !piece.start.before(end));
            }
            assert!(board.sacked() > 3 * (count / 2 - 3));
        }
    }
}

#[test]
fn retransmissions_do_not_displace_losses() {
    // Each retransmission has a different time, so that the ranges are not merged.
    let mut board = Scoreboard::new(SIZES[0]);
    let nxt = Seq(1_000);
    board.set(Seq(0), nxt, Some(Mark::Lost));
    for n in 0..40 {
        let start = Seq(10 * n);
        let mark = Mark::Retransmitted { at: n, fence: nxt };
        assert!(board.set(start, start + 10, Some(mark)));
        assert!(board.len() <= SIZES[0]);
        assert_eq!(board.first_lost(), Some((start + 10, nxt)));
    }
}

#[test]
fn a_timeout_keeps_sacked_ranges_if_there_is_room_for_the_gaps() {
    let mut board = Scoreboard::new(SIZES[0]);
    for n in 0..10 {
        let mark = [Mark::Lost, Mark::Sacked][n as usize % 2];
        assert!(board.set(Seq(10 * n), Seq(10 * n + 10), Some(mark)));
    }
    board.mark_all_lost(Seq(0), Seq(200));
    assert_eq!((board.sacked(), board.lost()), (50, 150));
}
