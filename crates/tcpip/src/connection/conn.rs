//! A connection in hand, with all that it shares with the others.

use super::{NONE, Tcb};
use crate::config::Settings;
use crate::congestion::CongestionControl;
use crate::counters::Counters;
use crate::mss::OwnMss;
use crate::options::Block;
use crate::recovery::{Recoveries, Recovery};
use crate::recv::Buffers;
use crate::stream::Lists;

/// What all connections of a stack share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) own_mss: OwnMss,
    /// Entries of streams that have no place in their TCBs.
    pub(crate) lists: Lists,
    /// The shift of our windows, where they are scaled (RFC 7323, section 2.3).
    pub(crate) window_scale: u8,
    /// What the segment in hand has brought that was here already: told with
    /// its acknowledgement (RFC 2883).
    pub(crate) twice: Option<Block>,
    /// The class of the connection in hand while its segments had another size.
    pub(crate) left_class: Option<u8>,
}

/// A connection in hand: see [the module's text](super).
pub(crate) struct Conn<'a, C> {
    pub(crate) tcb: &'a mut Tcb,
    pub(crate) congestion: &'a mut C,
    pub(crate) losses: &'a mut Recoveries<C>,
    pub(crate) buffers: &'a Buffers,
    pub(crate) cx: &'a mut Context,
}

impl<C: CongestionControl> Conn<'_, C> {
    /// What became of what is in flight, unless all goes well.
    #[inline(always)]
    pub(crate) fn recovery(&self) -> Option<&Recovery<C>> {
        match self.tcb.recovery {
            NONE => None,
            index => Some(self.losses.get(index)),
        }
    }

    /// The same connection for a call that is not inlined, so that this one can
    /// stay in registers.
    #[inline(always)]
    pub(super) fn again(&mut self) -> Conn<'_, C> {
        Conn {
            tcb: self.tcb,
            congestion: self.congestion,
            losses: self.losses,
            buffers: self.buffers,
            cx: self.cx,
        }
    }

    /// Takes a recovery from the pool if there is none.
    pub(crate) fn begin_recovery(&mut self) -> u32 {
        if self.tcb.recovery == NONE {
            self.tcb.recovery = self.losses.take(self.tcb.snd_una);
        }
        self.tcb.recovery
    }
}
