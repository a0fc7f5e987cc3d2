//! Closing of a connection by either side (RFC 9293, section 3.6).

use super::{Conn, DeadlineKind, Flags, State};
use crate::clock::Moment;
use crate::congestion::CongestionControl;

impl<C: CongestionControl> Conn<'_, C> {
    /// Processes the peer's FIN, which must be in order. Returns true if TIME-WAIT begins.
    #[inline(always)]
    pub(crate) fn on_fin(&mut self, now: Moment) -> bool {
        let tcb = &mut *self.tcb;
        tcb.rcv_nxt = tcb.rcv_nxt + 1;
        if tcb.rcv_adv.before(tcb.rcv_nxt) {
            tcb.rcv_adv = tcb.rcv_nxt;
        }
        match tcb.state {
            State::Established => self.enter(State::CloseWait),
            State::FinWait1 => self.enter(State::Closing),
            State::FinWait2 => {
                self.enter_time_wait(now);
                return true;
            }
            _ => return false,
        }
        self.tcb.flags |= Flags::HALF_CLOSE;
        false
    }

    /// Checks whether our FIN is acknowledged, and changes the state accordingly. Called only after
    /// our side was closed. Returns the state, or [`State::Closed`] if both sides have closed and
    /// TIME-WAIT is not needed.
    #[cold]
    pub(crate) fn on_fin_acked(&mut self, now: Moment) -> State {
        let tcb = &mut *self.tcb;
        let acked = tcb.state.fin_sent() && tcb.snd_una == tcb.stream.end() + 1;
        if acked && !tcb.flags.intersects(Flags::ABORT) {
            match tcb.state {
                State::FinWait1 => {
                    self.enter(State::FinWait2);
                    let fin_wait = self.cx.settings.fin_wait_ms;
                    self.tcb.arm(DeadlineKind::FinWait, fin_wait, now);
                }
                State::Closing => self.enter_time_wait(now),
                State::LastAck => return State::Closed,
                _ => {}
            }
        }
        self.tcb.state
    }

    /// Returns true if the application must now be told that the peer has closed. An application
    /// that waits for room is told later, because it may not have consumed all data before the FIN.
    /// Nothing is told if our side is closed or the application has aborted.
    pub(crate) fn takes_half_close(&mut self) -> bool {
        let flags = &mut self.tcb.flags;
        if !flags.intersects(Flags::HALF_CLOSE) || flags.intersects(Flags::WANTS_ROOM) {
            return false;
        }
        *flags -= Flags::HALF_CLOSE;
        !flags.intersects(Flags::CLOSE | Flags::ABORT)
    }

    /// Starts TIME-WAIT.
    fn enter_time_wait(&mut self, now: Moment) {
        self.enter(State::TimeWait);
        let time_wait = self.cx.settings.time_wait_ms;
        self.tcb.arm(DeadlineKind::TimeWait, time_wait, now);
    }
}
