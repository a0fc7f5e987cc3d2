//! What is told of a receive buffer: the window, and what has come out of order.

use arrayvec::ArrayVec;

use crate::congestion::CongestionControl;
use crate::connection::{Conn, Context, Flags, NONE, Tcb};
use crate::wire::{Block, MAX_SACK_BLOCKS, Written};

impl Tcb {
    /// How our windows are shifted.
    #[inline(always)]
    pub(in crate::connection) fn own_scale<C>(&self, cx: &Context<C>) -> u32 {
        if self.negotiated.scaled() {
            cx.window_scale.into()
        } else {
            0
        }
    }

    /// Bytes that there is place for.
    #[inline(always)]
    fn space<C>(&self, cx: &Context<C>) -> usize {
        if self.buffer == NONE {
            cx.buffers.capacity()
        } else {
            cx.buffers[self.buffer].space()
        }
    }

    /// The window to tell now, in bytes. It never takes back what was told
    /// before, and does not open by small steps (RFC 9293, section 3.8.6.2.2).
    #[inline(always)]
    pub(in crate::connection) fn window_to_tell<C>(&self, cx: &Context<C>) -> u32 {
        let space = self.space(cx);
        let told = self.rcv_adv.since(self.rcv_nxt);
        let worth = usize::from(self.mss).min(cx.buffers.capacity() / 2);
        if space < worth {
            told
        } else {
            told.max(space as u32)
        }
    }

    /// What was told, perhaps rounded up, is no reason to round up again: the
    /// space is.
    #[cold]
    fn scaled<C>(&self, cx: &Context<C>, window: u32, scale: u32) -> u32 {
        let space = self.space(cx) as u32;
        if window >= space {
            window.min(space).div_ceil(1 << scale)
        } else {
            window.div_ceil(1 << scale)
        }
    }
}

impl<C: CongestionControl> Conn<'_, C> {
    /// The window to tell now as the field of a header has it (RFC 7323, section
    /// 2.3), rounded up: what was told stays told, but for less than one unit of
    /// the scale (section 2.4).
    #[inline(always)]
    pub(in crate::connection) fn window_field(&self) -> u16 {
        let window = self.tcb.window_to_tell(self.cx);
        let field = match self.tcb.own_scale(self.cx) {
            0 => window,
            scale => self.tcb.scaled(self.cx, window, scale),
        };
        field.min(u32::from(u16::MAX)) as u16
    }

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
    pub(in crate::connection) fn has_told_too_much(&self) -> bool {
        let told = self.tcb.rcv_adv.since(self.tcb.rcv_nxt);
        told > self.cx.buffers.capacity() as u32
    }

    /// What has come out of order (RFC 2018), or twice (RFC 2883), as options.
    #[cold]
    pub(in crate::connection) fn selective(&mut self) -> Written {
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
