//! Recoveries lie in a pool beside the TCBs.

use super::Recovery;
use crate::congestion::CongestionControl;
use crate::scoreboard::Scoreboard;
use crate::wire::Seq;

/// The pool: one for each connection that needs it, so there are never more
/// than connections.
#[derive(Debug)]
pub(crate) struct Recoveries<C> {
    list: Vec<Recovery<C>>,
    free: Vec<u32>,
}

impl<C: CongestionControl> Recoveries<C> {
    pub(crate) const fn new() -> Self {
        Self {
            list: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, una: Seq) -> u32 {
        if let Some(index) = self.free.pop() {
            let recovery = &mut self.list[index as usize];
            *recovery = Recovery::new(std::mem::take(&mut recovery.board), una);
            return index;
        }
        self.list.push(Recovery::new(Scoreboard::default(), una));
        self.list.len() as u32 - 1
    }

    pub(crate) fn release(&mut self, index: u32) {
        self.get_mut(index).board.clear();
        self.free.push(index);
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
