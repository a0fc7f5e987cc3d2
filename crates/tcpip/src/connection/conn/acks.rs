//! The ACK field: what has arrived, and how much more may be sent.

use super::{Conn, Context, Cut, Due, Flags, NONE, State, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::outcome::AfterFin;
use crate::stream::Source;
use crate::wire::{Block, Control, Segment};

impl<C: CongestionControl> Conn<'_, C> {
    /// The ACK field, and what the segment acknowledges selectively. Returns
    /// what it acknowledges for the first time.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, segment: Segment, sack: &[Block], now: Moment) -> u32 {
        let acked = segment.ack.since(self.tcb.snd_una);
        if acked.cast_signed() > 0 {
            if self.tcb.recovery == NONE && sack.is_empty() {
                self.advance(segment, acked, now);
                self.arm_after_ack(true, now);
            } else {
                self.again().on_disorder(segment, sack, now);
            }
            self.update_window(segment, now);
            return acked;
        }
        if acked == 0 {
            if self.tcb.due == Due::KeepAlive {
                // It is there.
                self.tcb.retries = 0;
            }
            if !sack.is_empty() || self.tcb.is_duplicate(segment) {
                self.again().on_same_ack(segment, sack, now);
            }
            self.update_window(segment, now);
        }
        0
    }

    /// An ACK of nothing new, which says that something else has arrived.
    #[cold]
    fn on_same_ack(self, segment: Segment, sack: &[Block], now: Moment) {
        if self.tcb.flight() > 0 && !self.tcb.probes_window() {
            self.on_disorder(segment, sack, now);
        }
    }

    /// `acked` bytes are acknowledged for the first time, and nothing is out of
    /// order.
    #[inline(always)]
    fn advance(&mut self, segment: Segment, acked: u32, now: Moment) {
        let tcb = &mut *self.tcb;
        let in_flight = tcb.flight();
        tcb.snd_una = segment.ack;
        tcb.retries = 0;
        let rtt = tcb.measure(segment, now);
        // RFC 3168, section 6.1.2: an echo of congestion opens no window.
        if !segment.control.has(Control::ECE) || !tcb.negotiated.ecn() {
            let event = tcb.event(in_flight, rtt, now);
            self.congestion.on_ack(acked, &event);
        }
    }

    /// SND.WND, unless the segment is older than the one it was taken from.
    /// (RFC 9293's comparison of SND.WL2 is always true here, as older ACKs
    /// do not come this far.)
    #[inline(always)]
    fn update_window(&mut self, segment: Segment, now: Moment) {
        let tcb = &mut *self.tcb;
        let is_newer = !segment.seq.before(tcb.snd_wl1);
        if is_newer {
            tcb.snd_wl1 = segment.seq;
            tcb.set_peer_window(segment.window);
            if tcb.snd_wnd >= 2 * u32::from(tcb.mss) {
                tcb.flags.set(Flags::WIDE);
            }
        }
        if tcb.probes_window() {
            // It is there (RFC 6429, section 3).
            tcb.retries = 0;
            tcb.rtt_at = now.micros;
            self.again()
                .end_probing(is_newer && segment.window > 0, now);
        }
    }

    /// The peer's window was shut; `is_open`: it is no longer.
    #[cold]
    fn end_probing(mut self, is_open: bool, now: Moment) {
        let tcb = &mut *self.tcb;
        if tcb.snd_una == tcb.limit() {
            // Probes have sent all that there was.
            tcb.backoff = 0;
            tcb.arm(Due::Silence, self.cx.settings.silence_ms, now);
        } else if is_open {
            // What was sent beyond the window has most likely been dropped.
            match tcb.flight() {
                // What it had place for has arrived.
                0 => tcb.backoff = 0,
                // A probe: it goes again with what lies behind it, if that may go.
                1 if tcb.recovery == NONE => {
                    let next = Cut::at(tcb, tcb.snd_una, &self.cx.lists);
                    if next.is_none_or(|cut| tcb.fits_window(&cut)) {
                        tcb.snd_nxt = tcb.snd_una;
                    }
                }
                _ => {
                    tcb.stop_probing();
                    self.send_all_again();
                }
            }
        }
    }

    /// Takes the first entry out of the stream if all of it is acknowledged.
    #[inline(always)]
    pub(crate) fn retire(&mut self) -> Option<Source> {
        let Context { lists, peers, .. } = self.cx;
        self.tcb.stream.retire(self.tcb.snd_una, lists, peers)
    }

    /// Takes the first entry out of the stream, acknowledged or not.
    pub(crate) fn discard(&mut self) -> Option<Source> {
        let Context { lists, peers, .. } = self.cx;
        self.tcb.stream.discard(lists, peers)
    }

    /// After close: has our FIN been acknowledged?
    #[cold]
    pub(crate) fn on_fin_acked(&mut self, now: Moment) -> AfterFin {
        let tcb = &mut *self.tcb;
        let acked = tcb.state.fin_sent() && tcb.snd_una == tcb.stream.end() + 1;
        if !acked || tcb.flags.has(Flags::ABORT) {
            return AfterFin::Open;
        }
        match tcb.state {
            State::FinWait1 => {
                tcb.state = State::FinWait2;
                tcb.arm(Due::FinWait, self.cx.settings.fin_wait_ms, now);
                AfterFin::Open
            }
            State::Closing => AfterFin::TimeWait,
            State::LastAck => AfterFin::Finished,
            _ => AfterFin::Open,
        }
    }
}

impl Tcb {
    /// Whether the peer's window, which is open, lets the segment at SND.UNA go
    /// when nothing is in flight, see [`bytes_to_send`](Self::bytes_to_send).
    fn fits_window(&self, cut: &Cut) -> bool {
        cut.whole <= self.snd_wnd || !self.flags.has(Flags::WIDE)
    }
}

#[cfg(test)]
#[path = "acks_tests.rs"]
mod tests;
