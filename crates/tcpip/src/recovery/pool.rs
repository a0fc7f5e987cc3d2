//! Recoveries lie in a pool beside the TCBs.

use super::Recovery;
use crate::congestion::CongestionControl;
use crate::scoreboard::{SIZES, Scoreboard};
use crate::wire::Seq;

/// Scoreboards of each size but the first, of which there is one for each
/// recovery. In bytes: 1,024 of 2.5 KB, and 256 of 160 KB where all of it is
/// used.
const BOARDS: [usize; SIZES.len() - 1] = if cfg!(any(test, fuzzing)) {
    // So that they run out.
    [1, 1]
} else {
    [1_024, 256]
};

/// The pool: one for each connection that needs it, so there are never more
/// than connections.
#[derive(Debug)]
pub(crate) struct Recoveries<C> {
    /// Its place is reserved. A scoreboard's is taken with the first use, and
    /// kept.
    list: Vec<Recovery<C>>,
    free: Vec<u32>,
    /// Scoreboards that none has need of, by their size: of the first those of
    /// who has a larger one.
    boards: [Vec<Scoreboard>; SIZES.len()],
}

impl<C: CongestionControl> Recoveries<C> {
    /// For so many connections.
    pub(crate) fn new(connections: u32) -> Self {
        let connections = connections as usize;
        let larger = BOARDS.map(|boards| boards.min(connections));
        let mut boards = [Vec::with_capacity(larger.iter().sum()), vec![], vec![]];
        for (size, boards) in boards.iter_mut().enumerate().skip(1) {
            boards.extend((0..larger[size - 1]).map(|_| Scoreboard::new(SIZES[size])));
        }
        Self {
            list: Vec::with_capacity(connections),
            free: Vec::with_capacity(connections),
            boards,
        }
    }

    pub(super) fn take(&mut self, una: Seq) -> u32 {
        if let Some(index) = self.free.pop() {
            let recovery = self.get_mut(index);
            let board = std::mem::replace(&mut recovery.board, Scoreboard::new(0));
            *recovery = Recovery::new(board, una);
            return index;
        }
        let board = Scoreboard::new(SIZES[0]);
        self.list.push(Recovery::new(board, una));
        self.list.len() as u32 - 1
    }

    /// After an ACK: gives back what is needed no longer. Whether that is all of
    /// it.
    pub(super) fn settle(&mut self, index: u32) -> bool {
        let recovery = self.get_mut(index);
        if !recovery.is_calm() {
            return false;
        }
        recovery.rack.forget_resent();
        let is_over = recovery.prior.is_none();
        if is_over {
            self.release(index);
        } else {
            self.give_back(index);
        }
        is_over
    }

    pub(crate) fn release(&mut self, index: u32) {
        self.give_back(index);
        self.free.push(index);
    }

    /// Nothing that is listed is needed any more, nor a larger scoreboard.
    fn give_back(&mut self, index: u32) {
        let board = &mut self.list[index as usize].board;
        board.clear();
        let size = board.size();
        if size > 0
            && let Some(least) = self.boards[0].pop()
        {
            self.boards[size].push(std::mem::replace(board, least));
        }
    }

    /// Sees to place for what an acknowledgement of so many blocks tells, where
    /// there is one. Without, some of it is not taken in, or forgotten.
    #[inline]
    pub(super) fn make_place(&mut self, index: u32, blocks: usize) {
        let board = &mut self.list[index as usize].board;
        if board.is_short_of_space(blocks) {
            let size = board.size();
            let mut larger = self.boards[size + 1..].iter_mut();
            if let Some(larger) = larger.find_map(Vec::pop) {
                self.boards[size].push(board.move_to(larger));
            }
        }
    }

    pub(crate) fn get(&self, index: u32) -> &Recovery<C> {
        &self.list[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Recovery<C> {
        &mut self.list[index as usize]
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn in_use(&self) -> usize {
        self.list.len() - self.free.len()
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
