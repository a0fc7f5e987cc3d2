//! Access to a connection for tests and invariant checks.

#[cfg(test)]
use super::Record;
use super::{Conn, NONE, Tcb};
use crate::congestion::CongestionControl;
#[cfg(test)]
use crate::negotiated::Negotiated;
use crate::wire::Seq;

/// Values of a [`Tcb`] for tests and invariant checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) own_port: u16,
    pub(crate) peer_port: u16,
    #[cfg(test)]
    pub(crate) negotiated: Negotiated,
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    #[cfg(test)]
    pub(crate) snd_wnd: u32,
    #[cfg(test)]
    pub(crate) rcv_nxt: Seq,
    #[cfg(test)]
    pub(crate) rcv_adv: Seq,
    pub(crate) mss_max: u16,
    #[cfg(test)]
    pub(crate) ts_recent: u32,
    #[cfg(test)]
    pub(crate) ts_offset: u32,
    /// Number of bytes sent but not acknowledged cumulatively. A FIN counts as one byte.
    pub(crate) flight: u32,
    pub(crate) has_buffer: bool,
    pub(crate) deadline: u32,
}

impl Tcb {
    pub(crate) fn view(&self) -> View {
        View {
            own_port: self.own_port,
            peer_port: self.peer_port,
            #[cfg(test)]
            negotiated: self.negotiated,
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            #[cfg(test)]
            snd_wnd: self.snd_wnd,
            #[cfg(test)]
            rcv_nxt: self.rcv_nxt,
            #[cfg(test)]
            rcv_adv: self.rcv_adv,
            mss_max: self.mss_max,
            #[cfg(test)]
            ts_recent: self.ts_recent,
            #[cfg(test)]
            ts_offset: self.ts_offset,
            flight: self.flight(),
            has_buffer: self.buffer != NONE,
            deadline: self.deadline,
        }
    }

    #[cfg(test)]
    pub(crate) fn set_negotiated(&mut self, negotiated: Negotiated) {
        self.negotiated = negotiated;
    }
}

#[cfg(test)]
impl<C: CongestionControl> Record<C> {
    /// Returns the congestion window that applies outside recovery, in bytes.
    pub(crate) fn window(&self) -> u32 {
        self.congestion.window()
    }
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Panics when an invariant of loss recovery or of our window is violated.
    pub(crate) fn check_invariants(&self) {
        self.check_recovery();
        assert!(
            !self.has_advertised_too_much(),
            "we have advertised more than a buffer holds"
        );
    }

    /// Returns the number of recovery states in use by all connections.
    pub(crate) fn recoveries_in_use(&self) -> usize {
        self.cx.recoveries.in_use()
    }

    /// Returns true if we have advertised more than a receive buffer can hold.
    fn has_advertised_too_much(&self) -> bool {
        let advertised = self.tcb.rcv_adv.since(self.tcb.rcv_nxt);
        advertised > self.cx.buffer_len as u32
    }
}
