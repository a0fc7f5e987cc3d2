//! The end of a stack: no peer is left to wait for what will never come.

use nmio::{Instant, Port};

use super::Stack;
use crate::app::Application;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Flags, State};
use crate::emit::{NoRoom, send_control};
use crate::wire::{Control, Written};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Ends all connections, as nobody will answer for them any more: those
    /// whose peer has all that was written with a FIN, the others with a reset,
    /// each of which is sent once. Whether that was all; if not, the TX ring is
    /// full: flush it and call again.
    pub fn hang_up<P: Port>(&mut self, port: &mut P, now: Instant) -> bool {
        self.now = now;
        while self.hung_up < self.records.len() {
            if self
                .part(port, self.hung_up as u32, Moment::new(now))
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
        let tcb = &self.records[id as usize].tcb;
        let is_half_open = tcb.state == State::SynReceived;
        let has_all = tcb.snd_una == tcb.limit() && tcb.state.fin_sent();
        let is_owed = tcb.snd_una.before(tcb.stream.end()) || tcb.flags.has(Flags::WANTS_ROOM);
        if tcb.state == State::Closed {
            return Ok(());
        }
        if tcb.state != State::TimeWait && !has_all {
            let is_reset = is_half_open || is_owed;
            let (mut header, _) = self.conn(id).acknowledgement(now);
            let tcb = &self.records[id as usize].tcb;
            (header.seq, header.control) = if is_reset {
                (tcb.reset_at(), Control::RST | Control::ACK)
            } else {
                (tcb.stream.end(), Control::FIN | Control::ACK)
            };
            send_control(port, tcb, &header, &Written::default())?;
            self.cx.counters.segments_sent += 1;
            self.cx.counters.resets_sent += u64::from(is_reset);
        }
        if is_half_open || self.records[id as usize].tcb.state == State::TimeWait {
            // The application knows nothing of it, or no longer.
            self.forget(id);
        } else if is_owed {
            self.close(id, CloseReason::Aborted);
        } else {
            self.close(id, CloseReason::Finished);
        }
        Ok(())
    }
}
