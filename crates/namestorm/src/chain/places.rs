//! Where the names of a chain lie in the message, and how compression pointers move.

use arrayvec::ArrayVec;

use crate::tail::{MAX_CHAIN, QUESTION_AT};

/// Where a name of the chain lies in the message.
#[derive(Clone, Copy)]
pub(super) struct NamePlace {
    /// Offset of the first labels.
    pub(super) at: usize,
    /// Length of the first labels, in bytes.
    pub(super) len: usize,
    /// Where the other labels lie: the step of an earlier name, and their offset in it. Unused if
    /// there are none.
    pub(super) rest: (usize, usize),
}

/// The places of the chain's names: the qname, and the name after each step.
pub(super) struct Names(pub(super) ArrayVec<NamePlace, { MAX_CHAIN + 1 }>);

impl Names {
    /// Returns the number of steps.
    #[inline(always)]
    pub(super) fn steps(&self) -> usize {
        // The qname is there before the first step.
        self.0.len() - 1
    }

    /// Finds the byte at `offset` in the name after `step` steps. Returns the step that wrote it, and
    /// its offset in the name of that step.
    pub(super) fn written_at(&self, mut step: usize, mut offset: usize) -> (usize, usize) {
        while let Some(beyond) = offset.checked_sub(self.0[step].len) {
            let (earlier, from) = self.0[step].rest;
            (step, offset) = (earlier, from + beyond);
        }
        (step, offset)
    }

    /// Returns the offset in the message of the byte at `offset` in the name after `step` steps.
    pub(super) fn message_offset(&self, step: usize, offset: usize) -> usize {
        let (step, offset) = self.written_at(step, offset);
        self.0[step].at + offset
    }
}

/// How compression pointers change when a part of a prepared answer is copied.
#[derive(Clone, Copy)]
pub(super) struct Move<'n> {
    pub(super) names: &'n Names,
    /// Number of steps after which the chain has reached the name of the answer.
    pub(super) step: usize,
    /// Difference in length between that name and the one that the answer was prepared for.
    pub(super) shift: usize,
    /// Whether a pointer to the start of the name leads to an ancestor of the qname, or to the qname
    /// itself.
    pub(super) is_above: bool,
    /// Where the answer's tail would begin in a message of its own.
    pub(super) old_tail_at: usize,
    pub(super) tail_at: usize,
    /// Offset in the answer of the part, and the place of the part in the message.
    pub(super) part: (usize, usize),
    /// The place in the message of the part before.
    pub(super) before_at: usize,
}

impl Move<'_> {
    /// Returns the offset in the answer's tail to which a pointer leads, if it leads there.
    #[inline(always)]
    pub(super) fn offset_in_answer(&self, to: u16) -> Option<usize> {
        usize::from(to).checked_sub(self.old_tail_at)
    }

    /// Returns the offset in the chain's name to which a pointer leads. The owner of a wildcard's
    /// records is the whole name. All other pointers lead to an ancestor of it.
    #[inline(always)]
    pub(super) fn offset_in_name(&self, to: u16) -> usize {
        match usize::from(to) - QUESTION_AT {
            0 if !self.is_above => 0,
            offset => offset + self.shift,
        }
    }

    /// Returns the new target of a pointer, as an offset in the message.
    #[inline(always)]
    pub(super) fn target(&self, to: u16) -> usize {
        let (start, at) = self.part;
        match self.offset_in_answer(to) {
            Some(offset) if offset < start => self.before_at + offset,
            Some(offset) => at + offset - start,
            None => self
                .names
                .message_offset(self.step, self.offset_in_name(to)),
        }
    }
}
