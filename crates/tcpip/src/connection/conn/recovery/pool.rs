//! The pool of loss recovery states.

mod space;

use std::ops::{Index, IndexMut};

use super::{Recoveries, Recovery, SIZES, Scoreboard};
use crate::congestion::CongestionControl;
use crate::pools::{Owner, Peers, Pool};

/// Maximum number of scoreboards of the second and of the third size. When fully used, a scoreboard
/// occupies 2.5 KB or 160 KB, respectively.
const BOARDS: [u32; SIZES.len() - 1] = if cfg!(any(test, feature = "fuzzing")) {
    // Tests need a pool that is small enough to exhaust.
    [1, 1]
} else {
    [1_024, 256]
};

/// Pools of the larger scoreboards, from the smaller to the larger size.
const POOLS: [Pool; SIZES.len() - 1] = [Pool::Boards, Pool::LargeBoards];

impl<C: CongestionControl> Recoveries<C> {
    /// Creates the pool for `connections` connections. Also returns the number of its scoreboards of
    /// the second and of the third size.
    pub(crate) fn new(connections: u32) -> (Self, [u32; SIZES.len() - 1]) {
        let larger = BOARDS.map(|boards| boards.min(connections));
        let room = larger.iter().sum::<u32>() as usize;
        let mut boards = [Vec::with_capacity(room), vec![], vec![]];
        for (size, boards) in boards.iter_mut().enumerate().skip(1) {
            let slots = 0..larger[size - 1];
            boards.extend(slots.map(|slot| Scoreboard::numbered(SIZES[size], slot)));
        }
        let pool = Self {
            list: Vec::with_capacity(connections as usize),
            free: Vec::with_capacity(connections as usize),
            boards,
        };
        (pool, larger)
    }

    /// Releases the memory that recovery `index` no longer needs. Returns true if the whole
    /// recovery was released.
    fn release_unused(&mut self, index: u32, peers: &mut Peers) -> bool {
        let recovery = &mut self[index];
        if !recovery.is_in_order() {
            return false;
        }
        recovery.rack.forget_retransmit();
        let is_over = recovery.prior.is_none();
        if is_over {
            self.release(index, peers);
        } else {
            self.give_back(index, peers);
        }
        is_over
    }

    fn release(&mut self, index: u32, peers: &mut Peers) {
        self.give_back(index, peers);
        self.free.push(index);
    }

    /// Clears the scoreboard of a recovery. A larger scoreboard goes back to its pool.
    fn give_back(&mut self, index: u32, peers: &mut Peers) {
        let board = &mut self.list[index as usize].board;
        board.clear();
        let size = board.size();
        if size > 0
            && let Some(least) = self.boards[0].pop()
        {
            peers.give_back(POOLS[size - 1], board.slot());
            self.boards[size].push(std::mem::replace(board, least));
        }
    }

    /// Returns true if the scoreboard may be too small for an ACK with `blocks` SACK blocks, and a
    /// larger size exists. Without a larger scoreboard, some blocks may be ignored or forgotten.
    #[inline]
    fn is_short_of_space(&self, index: u32, blocks: usize) -> bool {
        let board = &self.list[index as usize].board;
        board.is_short_of_space(blocks) && board.size() + 1 < SIZES.len()
    }

    /// Returns the first pool with a free scoreboard that is larger than the scoreboard of recovery
    /// `index`. Returns `None` if there is no such pool.
    fn free_pool(&self, index: u32) -> Option<Pool> {
        let mut larger = self.larger_pools(index).iter().copied();
        larger.find(|pool| !self.boards[size_of_pool(*pool)].is_empty())
    }

    /// Returns the pools whose scoreboards are larger than the one that recovery `index` has.
    fn larger_pools(&self, index: u32) -> &'static [Pool] {
        &POOLS[self.list[index as usize].board.size()..]
    }

    /// Moves the ranges of recovery `index` to a free scoreboard from `pool`.
    fn lend(&mut self, index: u32, pool: Pool, owner: Owner, peers: &mut Peers) {
        let size = size_of_pool(pool);
        let Some(larger) = self.boards[size].pop() else {
            return;
        };
        peers.take(pool, larger.slot(), owner);
        let before = self.list[index as usize].board.move_to(larger);
        if before.size() > 0 {
            peers.give_back(POOLS[before.size() - 1], before.slot());
        }
        self.boards[before.size()].push(before);
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn in_use(&self) -> usize {
        self.list.len() - self.free.len()
    }
}

impl<C> Index<u32> for Recoveries<C> {
    type Output = Recovery<C>;
    fn index(&self, index: u32) -> &Recovery<C> {
        &self.list[index as usize]
    }
}

impl<C> IndexMut<u32> for Recoveries<C> {
    fn index_mut(&mut self, index: u32) -> &mut Recovery<C> {
        &mut self.list[index as usize]
    }
}

/// Returns the index in [`SIZES`] of the size of a pool's scoreboards.
fn size_of_pool(pool: Pool) -> usize {
    if pool == Pool::LargeBoards { 2 } else { 1 }
}

#[cfg(test)]
#[path = "pool/pool_tests.rs"]
mod tests;
