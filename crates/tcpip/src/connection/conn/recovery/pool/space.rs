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
    /// Whether an acknowledgement may tell more than the scoreboard has place
    /// for.
    #[cold]
    pub(crate) fn is_short_of_space(&mut self, segment: Segment, sack: &[Block]) -> bool {
        let tcb = &*self.tcb;
        let acked = segment.ack.since(tcb.snd_una).cast_signed();
        let counts = acked > 0 || acked == 0 && tcb.flight() > 0 && !tcb.probes_window();
        let is_news = |end: Seq| end.after(tcb.snd_una) && !end.after(tcb.snd_nxt);
        let news = sack.iter().filter(|(_, end)| is_news(*end)).count();
        if !counts {
            return false;
        }
        let index = self.begin_recovery();
        self.cx.losses.is_short_of_space(index, news)
    }

    /// Whether the scoreboard is nearly full, and there are larger ones.
    pub(crate) fn lacks_space(&self) -> bool {
        let index = self.tcb.recovery;
        index != NONE && self.cx.losses.is_short_of_space(index, 0)
    }

    /// The pool of larger scoreboards that has a free one, and all such pools.
    pub(crate) fn larger_boards(&self) -> (Option<Pool>, &'static [Pool]) {
        let (losses, index) = (&self.cx.losses, self.tcb.recovery);
        (losses.free_pool(index), losses.larger_pools(index))
    }

    /// Goes on with a free scoreboard of `pool`.
    pub(crate) fn take_board(&mut self, pool: Pool, owner: Owner) {
        let Context { losses, peers, .. } = self.cx;
        losses.lend(self.tcb.recovery, pool, owner, peers);
    }

    /// Loses a larger scoreboard and what is listed there: all that is in flight
    /// goes again.
    pub(crate) fn lose_board(&mut self) {
        let Context { losses, peers, .. } = self.cx;
        losses.give_back(self.tcb.recovery, peers);
        self.send_all_again();
        self.cx.counters.scoreboards_taken += 1;
    }

    /// Gives back what loss recovery needs no longer. The class of a connection
    /// whose segments have another size now, which it leaves.
    pub(crate) fn settle(&mut self) -> Option<u8> {
        let Context { losses, peers, .. } = self.cx;
        if self.tcb.is_recovering() && losses.settle(self.tcb.recovery, peers) {
            self.tcb.recovery = NONE;
        }
        self.cx.left_class.take()
    }

    /// Gives back all that the connection holds but its TCB, class and stream.
    pub(crate) fn release(&mut self) {
        self.release_buffer();
        let recovery = std::mem::replace(&mut self.tcb.recovery, NONE);
        if recovery != NONE {
            let Context { losses, peers, .. } = self.cx;
            losses.release(recovery, peers);
        }
    }
}
