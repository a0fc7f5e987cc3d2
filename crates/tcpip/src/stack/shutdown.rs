//! Shutdown of a stack: ends all connections, with a FIN or a reset if needed, so that peers need
//! not wait for a timeout.

use nmio::{Instant, Port};

use super::Stack;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, State};
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
        while self.shut_down_records < self.records.len() {
            if self
                .shut_down_one(port, self.shut_down_records as u32, Moment::from(now))
                .is_err()
            {
                return false;
            }
            self.shut_down_records += 1;
        }
        self.shut_down_records = 0;
        true
    }

    fn shut_down_one<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) -> Result<(), NoRoom> {
        let conn = self.conn(id);
        let (state, closing_segment) = (conn.tcb.state, conn.closing_segment());
        if state == State::Closed {
            return Ok(());
        }
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
        Ok(())
    }
}
