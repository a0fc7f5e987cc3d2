//! How a connection uses the pool of loss recovery states.

use crate::congestion::CongestionControl;
use crate::connection::Tcb;
use crate::connection::conn::{Conn, Context};
use crate::pools::{NONE, Owner, Pool};
use crate::wire::{Block, Segment, Seq};

impl Tcb {
    /// Returns true if the connection has loss recovery state, for example because data is lost,
    /// late or out of order.
    #[inline(always)]
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovery != NONE
    }
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Returns true if the scoreboard may be too small for the next change, and a larger size
    /// exists. Called before the ACK `ack` is processed, or with `None` before a deadline or a
    /// retransmission.
    #[cold]
    pub(crate) fn needs_larger_board(&mut self, ack: Option<(Segment, &[Block])>) -> bool {
        let useful = ack.map_or(Some(0), |(segment, sack)| self.useful_blocks(segment, sack));
        let Some(blocks) = useful else {
            return false;
        };
        if ack.is_some() {
            self.begin_recovery();
        }
        let index = self.tcb.recovery;
        index != NONE && self.cx.recoveries.is_short_of_space(index, blocks)
    }

    /// Returns the number of SACK blocks that concern data in flight, or `None` if loss recovery
    /// ignores the ACK.
    fn useful_blocks(&self, segment: Segment, sack: &[Block]) -> Option<usize> {
        let tcb = &*self.tcb;
        let acked = segment.ack.since(tcb.snd_una).cast_signed();
        let counts = acked > 0 || acked == 0 && tcb.flight() > 0 && !tcb.probes_window();
        let is_useful = |end: Seq| end.after(tcb.snd_una) && !end.after(tcb.snd_nxt);
        counts.then(|| sack.iter().filter(|(_, end)| is_useful(*end)).count())
    }

    /// Moves the ranges to a larger free scoreboard, which `owner` then holds.
    ///
    /// # Errors
    ///
    /// All larger scoreboards are in use. The error lists their pools.
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

    /// Returns a larger scoreboard to its pool. The ranges in that scoreboard are discarded, so all
    /// unacknowledged data is retransmitted.
    pub(crate) fn give_up_board(&mut self) {
        let Context {
            recoveries, peers, ..
        } = self.cx;
        recoveries.give_back(self.tcb.recovery, peers);
        self.retransmit_all();
        self.cx.counters.scoreboards_taken += 1;
    }

    /// Releases memory that loss recovery no longer needs. If the segment size has changed, returns
    /// the class of prepared segments that the connection no longer uses.
    pub(crate) fn release_unused(&mut self) -> Option<u8> {
        let Context {
            recoveries, peers, ..
        } = self.cx;
        if self.tcb.is_recovering() && recoveries.release_unused(self.tcb.recovery, peers) {
            self.tcb.recovery = NONE;
        }
        self.cx.old_class.take()
    }

    /// Releases everything that the connection holds, except for its TCB, class and stream.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if self.tcb.buffer != NONE {
            self.release_buffer();
        }
        if self.tcb.is_recovering() {
            self.release_recovery();
        }
    }

    #[cold]
    fn release_recovery(&mut self) {
        let Context {
            recoveries, peers, ..
        } = self.cx;
        let recovery = std::mem::replace(&mut self.tcb.recovery, NONE);
        recoveries.release(recovery, peers);
    }
}
