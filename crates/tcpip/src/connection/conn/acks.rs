//! Processing of a valid segment's header: the ACK field, SACK blocks, the window field and ECN
//! marks.

use eth::Link;
use ip::Ecn;

use super::{Conn, Context, DeadlineKind, Flags, NONE, StreamSegment, Tcb};
use crate::clock::Moment;
use crate::congestion::{Congestion, CongestionControl};
use crate::connection::condition::Condition;
use crate::stream::Source;
use crate::wire::{Block, Control, Segment};

impl<C: CongestionControl> Conn<'_, C> {
    /// Processes the header of a segment that has passed the checks. [`on_data`](Self::on_data)
    /// processes the segment's data, and [`on_fin`](Self::on_fin) its FIN.
    ///
    /// Returns the number of newly acknowledged bytes, where our FIN counts as one byte. `link` is
    /// the link back to the sender if it has changed, for example because another router has taken
    /// over. `ecn` returns the packet's ECN mark, and is called only if both sides use ECN.
    #[inline(always)]
    pub(crate) fn on_segment(
        &mut self,
        segment: Segment,
        sack: &[Block],
        (link, ecn): (Option<Link>, impl FnOnce() -> Ecn),
        now: Moment,
    ) -> u32 {
        if let Some(link) = link {
            self.tcb.path.link = link;
        }
        self.note_timestamp(segment);
        if self.tcb.negotiated.ecn() {
            self.reborrow().on_congestion_marks(ecn(), segment, now);
        }
        self.on_ack(segment, sack, now)
    }

    /// Processes ECN marks: CE from routers, ECE and CWR from the peer (RFC 3168, section 6.1).
    #[inline(never)]
    fn on_congestion_marks(self, ecn: Ecn, segment: Segment, now: Moment) {
        let tcb = &mut *self.tcb;
        if segment.control.has(Control::CWR) {
            tcb.flags -= Flags::SEND_ECE;
        }
        if ecn == Ecn::Ce {
            tcb.flags |= Flags::SEND_ECE;
            self.cx.counters.ce_received += 1;
        }
        if tcb.flags.intersects(Flags::IN_CWR) && segment.ack.after(tcb.cwr_high) {
            tcb.flags -= Flags::IN_CWR;
        }
        if !segment.control.has(Control::ECE) {
            return;
        }
        self.cx.counters.ece_received += 1;
        // ECE reduces the congestion window at most once per window of data, and never during loss
        // recovery.
        let (condition, ..) = self.recovery().map_or_else(Default::default, |recovery| {
            recovery.summary(self.congestion)
        });
        let mends = matches!(condition, Condition::Recovery | Condition::Loss);
        let tcb = &mut *self.tcb;
        if !mends && !tcb.flags.intersects(Flags::IN_CWR) && tcb.flight() > 0 {
            let event = tcb.event(tcb.flight(), 0, self.cx.settings.pacing, now);
            self.congestion.on_congestion(Congestion::Ecn, &event);
            tcb.flags |= Flags::IN_CWR | Flags::SEND_CWR;
            tcb.cwr_high = tcb.snd_nxt;
            self.cx.counters.ecn_reductions += 1;
        }
    }

    /// Processes the ACK field, SACK blocks and the window field. Returns the number of newly
    /// acknowledged bytes.
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
                // The ACK shows that the peer is alive.
                self.tcb.retries = 0;
            }
            if !sack.is_empty() || self.tcb.is_duplicate(segment) {
                self.reborrow().on_repeated_ack(segment, sack, now);
            }
            self.update_window(segment, now);
        }
        0
    }

    /// Processes an ACK that acknowledges no new data. It may report segments that arrived out of
    /// order.
    #[cold]
    fn on_repeated_ack(self, segment: Segment, sack: &[Block], now: Moment) {
        if self.tcb.flight() > 0 && !self.tcb.probes_window() {
            self.on_disorder(segment, sack, now);
        }
    }

    /// Processes `acked` newly acknowledged bytes while nothing is lost or out of order.
    #[inline(always)]
    fn advance(&mut self, segment: Segment, acked: u32, now: Moment) {
        let tcb = &mut *self.tcb;
        let in_flight = tcb.flight();
        tcb.snd_una = segment.ack;
        tcb.retries = 0;
        let rtt = tcb.measure(segment, now);
        if tcb.may_open_cwnd(segment) {
            let event = tcb.event(in_flight, rtt, self.cx.settings.pacing, now);
            self.congestion.on_ack(acked, &event);
        }
    }

    /// Updates SND.WND, unless a newer segment has already updated it. During zero-window probing,
    /// the segment also counts as an answer to the probes.
    ///
    /// RFC 9293's comparison with SND.WL2 is always true here, because older ACKs have already been
    /// filtered out.
    #[inline(always)]
    fn update_window(&mut self, segment: Segment, now: Moment) {
        let tcb = &mut *self.tcb;
        let is_newer = !segment.seq.before(tcb.snd_wl1);
        if is_newer {
            tcb.snd_wl1 = segment.seq;
            tcb.set_peer_window(segment.window);
        }
        if tcb.probes_window() {
            // A peer that answers probes is alive, even if its window stays closed (RFC 6429,
            // section 3).
            tcb.retries = 0;
            tcb.rtt_at = now.micros;
            self.reborrow()
                .end_probing(is_newer && segment.window > 0, now);
        }
    }

    /// Processes an answer to a zero-window probe. `is_open` tells whether the peer's window is now
    /// open.
    #[cold]
    fn end_probing(mut self, is_open: bool, now: Moment) {
        let tcb = &mut *self.tcb;
        if tcb.snd_una == tcb.limit() {
            // The probes have delivered all remaining data.
            tcb.backoff = 0;
            tcb.arm(DeadlineKind::Idle, self.cx.settings.first_idle_ms, now);
        } else if is_open {
            // The peer has most likely dropped the data that was sent beyond its window.
            match tcb.flight() {
                // All data within the old window has arrived.
                0 => tcb.backoff = 0,
                // If the peer's window allows the next segment, the probe's byte is retransmitted
                // together with the data after it.
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

    /// Removes the first entry of the stream if all its bytes are acknowledged, and returns the
    /// entry's source.
    #[inline(always)]
    pub(crate) fn retire(&mut self) -> Option<Source> {
        let Context { lists, peers, .. } = self.cx;
        self.tcb.stream.retire(self.tcb.snd_una, lists, peers)
    }
}

impl Tcb {
    /// Returns true if the peer's window would allow the segment at SND.UNA if nothing were in
    /// flight. [`bytes_to_send`](Self::bytes_to_send) has the same rule.
    fn fits_window(&self, segment: &StreamSegment) -> bool {
        segment.len <= self.snd_wnd || !self.has_had_large_window()
    }
}

#[cfg(test)]
#[path = "acks_tests.rs"]
mod tests;
