use super::*;
use crate::Reno;
use crate::connection::conn::recovery::Mark;
use crate::wire::Seq;

/// Fills the scoreboard of recovery `index` with SACK blocks.
fn fill(pool: &mut Recoveries<Reno>, index: u32) {
    let board = &mut pool[index].board;
    let mut at = Seq(0);
    while board.set(at, at + 1, Some(Mark::Sacked)) {
        at = at + 2;
    }
}

#[test]
fn larger_scoreboards_are_reused() {
    // In tests, the pool has only one scoreboard of each larger size.
    let (mut pool, _) = Recoveries::new(1);
    let mut peers = Peers::new([1; Pool::COUNT]);
    let owner = Owner {
        id: 7,
        peer: peers.join(1),
    };
    let place = |pool: &mut Recoveries<Reno>, peers: &mut Peers, index| {
        if pool.is_short_of_space(index, 1)
            && let Some(free) = pool.free_pool(index)
        {
            pool.lend(index, free, owner, peers);
        }
    };
    let size = |pool: &Recoveries<Reno>, index| pool[index].board.size();
    let [first, second, third] = [Seq(0); 3].map(|una| pool.take(una));
    for index in [first, second, third] {
        place(&mut pool, &mut peers, index);
        assert_eq!(size(&pool, index), 0);
        fill(&mut pool, index);
        place(&mut pool, &mut peers, index);
    }
    assert_eq!([first, second, third].map(|i| size(&pool, i)), [1, 2, 0]);
    assert!(pool[first].board.len() > SIZES[0] / 2);
    // The third recovery gets the scoreboard that the first one has returned.
    fill(&mut pool, first);
    place(&mut pool, &mut peers, first);
    assert_eq!(size(&pool, first), 1, "no larger scoreboard is free");
    pool.release(second, &mut peers);
    place(&mut pool, &mut peers, first);
    place(&mut pool, &mut peers, third);
    assert_eq!([first, third].map(|i| size(&pool, i)), [2, 1]);
    assert_eq!(
        peers.totals().1,
        [1, 0, 0, 0, 1, 1],
        "each board is counted once"
    );
    assert_eq!(peers.owners(Pool::Boards)[0].id, 7);
    // A reused recovery begins with a small, empty scoreboard.
    let again = pool.take(Seq(0));
    assert_eq!(again, second);
    assert!(pool[again].board.is_empty() && size(&pool, again) == 0);
    // A recovery can return its larger scoreboard and stay in use.
    pool[third].board.clear();
    pool.give_back(third, &mut peers);
    assert_eq!(size(&pool, third), 0);
    for index in [first, third, again] {
        pool.release(index, &mut peers);
    }
    assert_eq!(pool.boards.each_ref().map(Vec::len), [0, 1, 1]);
    assert_eq!(pool.in_use(), 0);
    assert_eq!(peers.totals().1, [1, 0, 0, 0, 0, 0]);
}
