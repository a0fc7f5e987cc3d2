//! The end of a stack: no peer is left to wait for what will never come.

use nmio::{Instant, Port};

use crate::app::{Application, CloseReason};
use crate::congestion::CongestionControl;
use crate::options::Written;
use crate::output::{NoRoom, send_control};
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, State};
use crate::wire::Control;

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
        let is_owed = tcb.state == State::SynReceived
            || tcb.flags.has(Flags::WANTS_ROOM)
            || tcb.snd_una != tcb.limit();
        let (control, reason) = match tcb.state {
            State::Closed => return Ok(()),
            State::TimeWait => {
                self.forget(id);
                return Ok(());
            }
            _ if is_owed => (Some(Control::RST), CloseReason::Aborted),
            state if state.fin_sent() => (None, CloseReason::Finished),
            _ => (Some(Control::FIN), CloseReason::Finished),
        };
        if let Some(control) = control {
            let (mut header, _) = self.acknowledgement(id, now);
            header.control = control | Control::ACK;
            let tcb = &self.records[id as usize].tcb;
            send_control(port, tcb, &header, &Written::default())?;
            self.counters.segments_sent += 1;
            self.counters.resets_sent += u64::from(control.has(Control::RST));
        }
        self.close(id, reason);
        Ok(())
    }
}
