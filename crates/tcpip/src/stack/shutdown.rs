//! The end of a stack: no peer is left to wait for what will never come.

use nmio::{Instant, Port};

use super::Stack;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, State};
use crate::emit::NoRoom;
use crate::outcome::ControlSegment;
use crate::stack::Application;

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Ends all connections, as nobody will answer for them any more: those
    /// whose peer has all that was written with a FIN, the others with a reset,
    /// each of which is sent once. Whether that was all; if not, the TX ring is
    /// full: flush it and call again.
    pub fn hang_up<P: Port>(&mut self, port: &mut P, now: Instant) -> bool {
        self.now = now;
        while self.hung_up < self.records.len() {
            if self
                .part(port, self.hung_up as u32, Moment::from(now))
                .is_err()
            {
                return false;
            }
            self.hung_up += 1;
        }
        self.hung_up = 0;
        true
    }

    fn part<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) -> Result<(), NoRoom> {
        let conn = self.conn(id);
        let (state, closing_segment) = (conn.tcb.state, conn.closing_segment());
        if state == State::Closed {
            return Ok(());
        }
        if let Some(segment) = closing_segment {
            self.send_control(port, id, segment, now)?;
        }
        if matches!(state, State::SynReceived | State::TimeWait) {
            // The application knows nothing of it, or no longer.
            self.forget(id);
        } else if closing_segment == Some(ControlSegment::Reset) {
            self.close(id, CloseReason::Aborted);
        } else {
            self.close(id, CloseReason::Finished);
        }
        Ok(())
    }
}
