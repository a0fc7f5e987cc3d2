//! What is told of a receive buffer: the window, and what has come out of order.

use arrayvec::ArrayVec;

use crate::congestion::CongestionControl;
use crate::connection::{Conn, Flags, NONE};
use crate::wire::{Block, MAX_SACK_BLOCKS, Written};

impl<C: CongestionControl> Conn<'_, C> {
    /// Owes an ACK if the window has opened: the peer may wait for it.
    pub(crate) fn tell_open_window(&mut self) {
        let tcb = &mut *self.tcb;
        let told = tcb.rcv_adv.since(tcb.rcv_nxt);
        let most = u32::from(u16::MAX) << tcb.own_scale(self.cx);
        if tcb.window_to_tell(self.cx).min(most) > told {
            tcb.flags.set(Flags::ACK);
        }
    }

    /// Whether more was told than a buffer holds.
    #[cfg(any(test, fuzzing))]
    pub(in crate::connection::conn) fn has_told_too_much(&self) -> bool {
        let told = self.tcb.rcv_adv.since(self.tcb.rcv_nxt);
        told > self.cx.buffer_len as u32
    }

    /// What has come out of order (RFC 2018), or twice (RFC 2883), as options.
    #[cold]
    pub(in crate::connection::conn) fn selective(&mut self) -> Written {
        let tcb = &*self.tcb;
        let twice = self.cx.twice.take();
        let mut blocks: ArrayVec<Block, MAX_SACK_BLOCKS> = twice.into_iter().collect();
        if tcb.buffer != NONE {
            let ranges = self.cx.buffers[tcb.buffer].out_of_order();
            let room = blocks.remaining_capacity();
            let block = |(start, end): (usize, usize)| {
                (tcb.rcv_nxt + start as u32, tcb.rcv_nxt + end as u32)
            };
            blocks.extend(ranges.into_iter().take(room).map(block));
        }
        Written::sack(&blocks, tcb.negotiated.timestamps())
    }
}
