//! A segment that has passed the checks: its ACK field tells what has arrived, and how
//! much more may be sent.

use eth::Link;
use ip::Ecn;

use super::{Conn, Context, DeadlineKind, Flags, NONE, StreamSegment, Tcb};
use crate::clock::Moment;
use crate::congestion::{Congestion, CongestionControl};
use crate::connection::condition::Condition;
use crate::stream::Source;
use crate::wire::{Block, Control, Segment};

impl<C: CongestionControl> Conn<'_, C> {
    /// Takes in a segment that has passed the checks, but for its data and FIN.
    /// Returns what it acknowledges for the first time: bytes, and our FIN. `ecn` is
    /// read only where both sides take part.
    #[inline(always)]
    pub(crate) fn on_segment(
        &mut self,
        segment: Segment,
        sack: &[Block],
        (link, ecn): (Link, impl FnOnce() -> Ecn),
        now: Moment,
    ) -> u32 {
        update_peer(self.tcb, link, segment);
        if self.tcb.negotiated.ecn() {
            self.reborrow().on_congestion_marks(ecn(), segment, now);
        }
        self.on_ack(segment, sack, now)
    }

    /// What routers and the peer say of congestion (RFC 3168, section 6.1).
    #[inline(never)]
    fn on_congestion_marks(self, ecn: Ecn, segment: Segment, now: Moment) {
        let tcb = &mut *self.tcb;
        if segment.control.has(Control::CWR) {
            tcb.flags -= Flags::SEND_ECE;
        }
        if ecn == Ecn::Ce {
            tcb.flags |= Flags::SEND_ECE;
            self.cx.counters.marked += 1;
        }
        if tcb.flags.has(Flags::IN_CWR) && segment.ack.after(tcb.cwr_high) {
            tcb.flags -= Flags::IN_CWR;
        }
        if !segment.control.has(Control::ECE) {
            return;
        }
        self.cx.counters.echoed += 1;
        // Once a window, and not when something lost has done it already.
        let (condition, ..) = self.recovery().map_or_else(Default::default, |recovery| {
            recovery.summary(self.congestion)
        });
        let mends = matches!(condition, Condition::Recovery | Condition::Loss);
        let tcb = &mut *self.tcb;
        if !mends && !tcb.flags.has(Flags::IN_CWR) && tcb.flight() > 0 {
            let event = tcb.event(tcb.flight(), 0, now);
            self.congestion.on_congestion(Congestion::Ecn, &event);
            tcb.flags |= Flags::IN_CWR | Flags::SEND_CWR;
            tcb.cwr_high = tcb.snd_nxt;
            self.cx.counters.ecn_reductions += 1;
        }
    }

    /// The ACK field, and what the segment acknowledges selectively. Returns
    /// what it acknowledges for the first time.
    #[inline(always)]
    fn on_ack(&mut self, segment: Segment, sack: &[Block], now: Moment) -> u32 {
        let acked = segment.ack.since(self.tcb.snd_una);
        if acked.cast_signed() > 0 {
            if self.tcb.recovery == NONE && sack.is_empty() {
                self.advance(segment, acked, now);
                self.arm_after_ack(true, now);
            } else {
                self.reborrow().on_disorder(segment, sack, now);
            }
            self.update_window(segment, now);
            return acked;
        }
        if acked == 0 {
            if self.tcb.deadline_kind == DeadlineKind::KeepAlive {
                // It is there.
                self.tcb.retries = 0;
            }
            if !sack.is_empty() || self.tcb.is_duplicate(segment) {
                self.reborrow().on_repeated_ack(segment, sack, now);
            }
            self.update_window(segment, now);
        }
        0
    }

    /// An ACK of nothing new, which says that something else has arrived.
    #[cold]
    fn on_repeated_ack(self, segment: Segment, sack: &[Block], now: Moment) {
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
                tcb.flags |= Flags::LARGE_WINDOW;
            }
        }
        if tcb.probes_window() {
            // It is there (RFC 6429, section 3).
            tcb.retries = 0;
            tcb.rtt_at = now.micros;
            self.reborrow()
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
            tcb.arm(DeadlineKind::Idle, self.cx.settings.first_idle_ms, now);
        } else if is_open {
            // What was sent beyond the window has most likely been dropped.
            match tcb.flight() {
                // What it had place for has arrived.
                0 => tcb.backoff = 0,
                // A probe: it goes again with what lies behind it, if that may go.
                1 if tcb.recovery == NONE => {
                    let next = StreamSegment::at(tcb, tcb.snd_una, &self.cx.lists);
                    if next.is_none_or(|segment| tcb.fits_window(&segment)) {
                        tcb.snd_nxt = tcb.snd_una;
                    }
                }
                _ => {
                    tcb.stop_probing();
                    self.retransmit_all();
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
}

impl Tcb {
    /// Whether the peer's window, which is open, lets the segment at SND.UNA go
    /// when nothing is in flight, see [`bytes_to_send`](Self::bytes_to_send).
    fn fits_window(&self, segment: &StreamSegment) -> bool {
        segment.len <= self.snd_wnd || !self.flags.has(Flags::LARGE_WINDOW)
    }
}

/// The way back may change: a router that takes over has an address of its own.
/// The peer's clock goes on (RFC 7323, section 4.3; what is in order has been
/// acknowledged up to RCV.NXT).
#[inline(always)]
fn update_peer(tcb: &mut Tcb, link: Link, segment: Segment) {
    // Ours stays.
    if tcb.path.link.peer != link.peer || tcb.path.link.vlan != link.vlan {
        tcb.path.link = link;
    }
    if let Some(timestamps) = segment.timestamps
        && !segment.seq.after(tcb.rcv_nxt)
    {
        tcb.ts_recent = timestamps.value;
    }
}

#[cfg(test)]
#[path = "acks_tests.rs"]
mod tests;
