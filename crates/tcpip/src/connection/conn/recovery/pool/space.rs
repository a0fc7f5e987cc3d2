//! A connection takes what it needs of the pool, and gives it back.

use crate::congestion::CongestionControl;
use crate::connection::{Conn, Context, Tcb};
use crate::pools::{NONE, Owner, Pool};
use crate::wire::{Block, Segment, Seq};

impl Tcb {
    /// Something is lost, late or out of order, or was so lately.
    #[inline(always)]
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovery != NONE
    }
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Whether the scoreboard is nearly full, and there are larger ones. `told`: with
    /// what an acknowledgement is about to tell.
    #[cold]
    pub(crate) fn needs_larger_board(&mut self, told: Option<(Segment, &[Block])>) -> bool {
        let delivery = told.map_or(Some(0), |(segment, sack)| self.useful_blocks(segment, sack));
        let Some(blocks) = delivery else {
            return false;
        };
        if told.is_some() {
            self.begin_recovery();
        }
        let index = self.tcb.recovery;
        index != NONE && self.cx.recoveries.is_short_of_space(index, blocks)
    }

    /// How many blocks of an acknowledgement tell of what is in flight; `None` if it
    /// is too old to tell anything.
    fn useful_blocks(&self, segment: Segment, sack: &[Block]) -> Option<usize> {
        let tcb = &*self.tcb;
        let acked = segment.ack.since(tcb.snd_una).cast_signed();
        let counts = acked > 0 || acked == 0 && tcb.flight() > 0 && !tcb.probes_window();
        let is_news = |end: Seq| end.after(tcb.snd_una) && !end.after(tcb.snd_nxt);
        counts.then(|| sack.iter().filter(|(_, end)| is_news(*end)).count())
    }

    /// Goes on with a larger scoreboard that is free, as `owner`.
    ///
    /// # Errors
    /// There is none: the pools of which one would do.
    pub(crate) fn grow_board(&mut self, owner: Owner) -> Result<(), &'static [Pool]> {
        let Context {
            recoveries, peers, ..
        } = self.cx;
        let index = self.tcb.recovery;
        let larger = recoveries.larger_pools(index);
        let free = recoveries.free_pool(index).ok_or(larger)?;
        recoveries.lend(index, free, owner, peers);
        Ok(())
    }

    /// Loses a larger scoreboard and what is listed there: all that is in flight
    /// goes again.
    pub(crate) fn give_up_board(&mut self) {
        let Context {
            recoveries, peers, ..
        } = self.cx;
        recoveries.give_back(self.tcb.recovery, peers);
        self.retransmit_all();
        self.cx.counters.scoreboards_taken += 1;
    }

    /// Gives back what loss recovery needs no longer. The class of a connection
    /// whose segments have another size now, which it leaves.
    pub(crate) fn release_unused(&mut self) -> Option<u8> {
        let Context {
            recoveries, peers, ..
        } = self.cx;
        if self.tcb.is_recovering() && recoveries.release_unused(self.tcb.recovery, peers) {
            self.tcb.recovery = NONE;
        }
        self.cx.old_class.take()
    }

    /// Gives back all that the connection holds but its TCB, class and stream.
    pub(crate) fn release(&mut self) {
        self.release_buffer();
        let recovery = std::mem::replace(&mut self.tcb.recovery, NONE);
        if recovery != NONE {
            let Context {
                recoveries, peers, ..
            } = self.cx;
            recoveries.release(recovery, peers);
        }
    }
}
