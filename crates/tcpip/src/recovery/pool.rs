//! Recoveries lie in a pool beside the TCBs.

use super::Recovery;
use crate::congestion::CongestionControl;
use crate::scoreboard::{LONG_RANGES, RANGES, Scoreboard};
use crate::wire::Seq;

/// Long scoreboards, of 160 KB each where all of it is used.
const LONG_BOARDS: usize = 256;

/// The pool: one for each connection that needs it, so there are never more
/// than connections.
#[derive(Debug)]
pub(crate) struct Recoveries<C> {
    /// Its place is reserved. A scoreboard's is taken with the first use, and
    /// kept.
    list: Vec<Recovery<C>>,
    free: Vec<u32>,
    /// Long scoreboards that none has need of, …
    long: Vec<Scoreboard>,
    /// … and the short ones of those that have one.
    left: Vec<Scoreboard>,
}

impl<C: CongestionControl> Recoveries<C> {
    /// For so many connections.
    pub(crate) fn new(connections: u32) -> Self {
        let connections = connections as usize;
        let long = connections.min(LONG_BOARDS);
        Self {
            list: Vec::with_capacity(connections),
            free: Vec::with_capacity(connections),
            long: (0..long).map(|_| Scoreboard::new(LONG_RANGES)).collect(),
            left: Vec::with_capacity(long),
        }
    }

    pub(super) fn take(&mut self, una: Seq) -> u32 {
        if let Some(index) = self.free.pop() {
            let recovery = self.get_mut(index);
            let board = std::mem::replace(&mut recovery.board, Scoreboard::new(0));
            *recovery = Recovery::new(board, una);
            return index;
        }
        self.list.push(Recovery::new(Scoreboard::new(RANGES), una));
        self.list.len() as u32 - 1
    }

    pub(crate) fn release(&mut self, index: u32) {
        let board = &mut self.list[index as usize].board;
        board.clear();
        if board.is_long()
            && let Some(short) = self.left.pop()
        {
            self.long.push(std::mem::replace(board, short));
        }
        self.free.push(index);
    }

    /// Sees to place for what an acknowledgement tells, where there is one.
    /// Without, some of it is not taken in, and comes again.
    #[inline]
    pub(super) fn make_place(&mut self, index: u32) {
        let board = &mut self.list[index as usize].board;
        if board.is_short_of_space()
            && !board.is_long()
            && let Some(long) = self.long.pop()
        {
            self.left.push(board.move_to(long));
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
