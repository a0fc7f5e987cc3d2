//! Shutdown of a stack: ends all connections, with a FIN or a reset if needed, so that peers need
//! not wait for a timeout.

use std::net::IpAddr;
use std::ops::Range;

use nmio::{Instant, Port};

use super::Stack;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Flags, State};
use crate::emit::NoRoom;
use crate::outcome::ControlSegment;
use crate::stack::Application;

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Ends all connections before the server exits. A peer that has acknowledged our FIN gets no
    /// further segment. A peer that has acknowledged all data gets a FIN, unless the application
    /// waits to write more. Any other peer gets a reset. These segments are never retransmitted.
    /// Returns `false` if the TX ring was full: flush the ring, and call this method again.
    pub fn shut_down<P: Port>(&mut self, port: &mut P, now: Instant) -> bool {
        self.now = now;
        while self.shut_down_tcbs < self.table.len() {
            let shut_down = self.shut_down_one(port, self.shut_down_tcbs, Moment::from(now));
            if shut_down.is_err() {
                return false;
            }
            self.shut_down_tcbs += 1;
        }
        self.shut_down_tcbs = 0;
        true
    }

    /// Resets the connections in the table slots `slots` whose own address does not satisfy
    /// `is_ours`, because their packets no longer arrive. Returns true if slots follow those.
    ///
    /// A reset that finds no room in the TX ring is not sent. The peer then notices the end by a
    /// timeout.
    pub fn reset_strangers<P: Port>(
        &mut self,
        port: &mut P,
        slots: Range<u32>,
        is_ours: &dyn Fn(&IpAddr) -> bool,
        now: Instant,
    ) -> bool {
        self.now = now;
        let len = self.table.len();
        for id in slots.start..slots.end.min(len) {
            let tcb = self.tcb(id);
            let state = tcb.state;
            if state == State::Closed || is_ours(&tcb.path.addresses.src()) {
                continue;
            }
            if matches!(state, State::SynReceived | State::TimeWait) {
                self.forget(id);
                continue;
            }
            self.send_reset(port, id, Moment::from(now));
            self.close(id, CloseReason::Aborted);
        }
        slots.end < len
    }

    fn shut_down_one<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) -> Result<(), NoRoom> {
        let conn = self.conn(id);
        let (state, closing_segment) = (conn.tcb.state, conn.closing_segment());
        if state == State::Closed {
            return Ok(());
        }
        let is_cut = self.is_cut(id, closing_segment);
        if let Some(segment) = closing_segment {
            self.send_control(port, id, segment, now)?;
        }
        if matches!(state, State::SynReceived | State::TimeWait) {
            // The application does not know this connection yet, or was already told of its end.
            self.forget(id);
        } else if closing_segment == Some(ControlSegment::Reset) {
            self.close(id, CloseReason::Aborted);
        } else {
            self.close(id, CloseReason::Finished);
        }
        let counters = &mut self.cx.counters;
        counters.cut += u64::from(is_cut);
        // Every connection that ends during a drain is counted as drained at first.
        let is_drained = is_cut && self.draining.is_some();
        counters.drained -= u64::from(is_drained);
        Ok(())
    }

    /// Returns true if a connection still has a message in progress, or unacknowledged data, when
    /// `closing_segment` ends it.
    fn is_cut(&mut self, id: u32, closing_segment: Option<ControlSegment>) -> bool {
        let tcb = self.tcb(id);
        let (state, is_closed) = (tcb.state, tcb.flags.intersects(Flags::CLOSE));
        match closing_segment {
            _ if state == State::SynReceived => false,
            Some(ControlSegment::Reset) => true,
            Some(_) if !is_closed => !self.connection(id).1.is_idle(),
            _ => false,
        }
    }
}
