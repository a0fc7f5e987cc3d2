use super::*;
use crate::Reno;
use crate::scoreboard::Mark;

/// Lists as many selective acknowledgements as there is place for.
fn fill(pool: &mut Recoveries<Reno>, index: u32) {
    let board = &mut pool.get_mut(index).board;
    let mut at = Seq(0);
    while board.set(at, at + 1, Some(Mark::Sacked)) {
        at = at + 2;
    }
}

#[test]
fn long_boards_go_round() {
    // One for one connection.
    let mut pool = Recoveries::new(1);
    let [first, second] = [Seq(0); 2].map(|una| pool.take(una));
    for index in [first, second] {
        pool.make_place(index);
        assert!(!pool.get(index).board.is_long());
        fill(&mut pool, index);
        pool.make_place(index);
    }
    assert!(pool.get(first).board.is_long());
    assert!(pool.get(first).board.len() > RANGES / 2);
    assert!(!pool.get(second).board.is_long(), "there is no other");
    pool.release(first);
    pool.make_place(second);
    assert!(pool.get(second).board.is_long());
    // The first begins with a short one, and nothing listed.
    let again = pool.take(Seq(0));
    assert_eq!(again, first);
    assert!(pool.get(again).board.is_empty() && !pool.get(again).board.is_long());
    pool.release(second);
    pool.release(again);
    assert_eq!((pool.long.len(), pool.left.len()), (1, 0));
    assert_eq!(pool.in_use(), 0);
}
