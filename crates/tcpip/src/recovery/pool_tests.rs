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
fn larger_boards_go_round() {
    // One of each size for one connection.
    let mut pool = Recoveries::new(1);
    let size = |pool: &Recoveries<Reno>, index| pool.get(index).board.size();
    let [first, second, third] = [Seq(0); 3].map(|una| pool.take(una));
    for index in [first, second, third] {
        pool.make_place(index, 1);
        assert_eq!(size(&pool, index), 0);
        fill(&mut pool, index);
        pool.make_place(index, 1);
    }
    assert_eq!([first, second, third].map(|i| size(&pool, i)), [1, 2, 0]);
    assert!(pool.get(first).board.len() > SIZES[0] / 2);
    // What was the first's is the third's when that moves on.
    fill(&mut pool, first);
    pool.make_place(first, 1);
    assert_eq!(size(&pool, first), 1, "there is no other");
    pool.release(second);
    pool.make_place(first, 1);
    pool.make_place(third, 1);
    assert_eq!([first, third].map(|i| size(&pool, i)), [2, 1]);
    // The second begins with a small one, and nothing listed.
    let again = pool.take(Seq(0));
    assert_eq!(again, second);
    assert!(pool.get(again).board.is_empty() && size(&pool, again) == 0);
    // A larger one goes back alone, too.
    pool.get_mut(third).board.clear();
    pool.give_back(third);
    assert_eq!(size(&pool, third), 0);
    for index in [first, third, again] {
        pool.release(index);
    }
    assert_eq!(pool.boards.each_ref().map(Vec::len), [0, 1, 1]);
    assert_eq!(pool.in_use(), 0);
}
