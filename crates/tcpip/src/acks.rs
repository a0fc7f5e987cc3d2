//! The ACK field: what has arrived, what is lost, how much more may be sent.

use crate::app::{Application, CloseReason};
use crate::congestion::{Congestion, CongestionControl, Event};
use crate::output::window_to_tell;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, Record, State, Tcb};
use crate::wire::{Control, Segment, Seq};

/// Duplicate ACKs that mean a loss (RFC 5681, section 3.2).
const DUP_ACKS: u8 = 3;

/// What has become of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Lives,
    Over,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// The ACK field: what has arrived, and how much more may be sent.
    #[inline(always)]
    pub(crate) fn process_ack(&mut self, id: u32, segment: &Segment, now: Moment) -> Fate {
        let tcb = &mut self.records[id as usize].tcb;
        let acked = segment.ack.since(tcb.snd_una);
        if acked.cast_signed() > 0 {
            let retired = self.advance(id, segment.ack, acked, now);
            self.update_window(id, segment);
            if retired {
                self.tell_sent(id);
            }
            if self.records[id as usize].tcb.flags.has(Flags::CLOSE) {
                return self.process_fin_ack(id, now);
            }
        } else if acked == 0 {
            let is_duplicate = segment.len == 0
                && tcb.snd_max != tcb.snd_una
                && u32::from(segment.window) == tcb.snd_wnd
                && !segment.control.has(Control::FIN);
            if is_duplicate {
                self.process_duplicate_ack(id, now);
            }
            self.update_window(id, segment);
        }
        Fate::Lives
    }

    /// `acked` bytes are acknowledged for the first time. Whether an entry of
    /// the stream is done with.
    #[inline(always)]
    fn advance(&mut self, id: u32, ack: Seq, acked: u32, now: Moment) -> bool {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let mut flight = tcb.event(now);
        tcb.snd_una = ack;
        flight.una = ack.0;
        if tcb.snd_nxt.before(ack) {
            // Sent again were only the gaps.
            tcb.snd_nxt = ack;
        }
        tcb.retries = 0;
        tcb.dup_acks = 0;
        if tcb.flags.has(Flags::PERSIST) && ack == tcb.limit() {
            // Probes have sent all that there was.
            tcb.flags.clear(Flags::PERSIST);
            tcb.backoff = 0;
        }
        if tcb.flags.has(Flags::TIMING) && !ack.before(tcb.rtt_seq) {
            tcb.flags.clear(Flags::TIMING);
            flight.rtt = now.micros.wrapping_sub(tcb.rtt_at).max(1);
            tcb.rtt.sample(flight.rtt);
            tcb.backoff = 0;
        }
        if tcb.flags.has(Flags::RECOVERY | Flags::WENT_BACK) {
            recover(tcb, congestion, acked, flight);
        } else {
            congestion.on_ack(acked, &flight);
        }
        let mut retired = false;
        loop {
            let tcb = &mut self.records[id as usize].tcb;
            let Some(source) = tcb.retire() else {
                break;
            };
            self.release_source(source);
            retired = true;
        }
        // RFC 6298, 5.2 and 5.3.
        let tcb = &self.records[id as usize].tcb;
        let probing = tcb.flags.has(Flags::PERSIST);
        let after = if tcb.snd_nxt == tcb.snd_una && !probing {
            self.settings.idle_ms
        } else {
            Self::rto(tcb)
        };
        self.arm(id, now, after);
        retired
    }

    /// RFC 5681, section 3.2.
    #[cold]
    fn process_duplicate_ack(&mut self, id: u32, now: Moment) {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let flight = tcb.event(now);
        if tcb.flags.has(Flags::RECOVERY) {
            congestion.on_recovery_ack(flight.mss, 0, &flight);
            return;
        }
        if tcb.flags.has(Flags::WENT_BACK | Flags::PERSIST) {
            return;
        }
        tcb.dup_acks = tcb.dup_acks.saturating_add(1);
        if tcb.dup_acks == DUP_ACKS {
            congestion.on_congestion(Congestion::Loss, &flight);
            tcb.flags.set(Flags::RECOVERY);
            tcb.flags.set(Flags::RETRANSMIT);
            tcb.recover = tcb.snd_max;
            self.counters.fast_retransmits += 1;
        }
    }

    /// SND.WND, unless the segment is older than the one it was taken from.
    /// (RFC 9293's comparison of SND.WL2 is always true here, as older ACKs
    /// do not come this far.)
    #[inline(always)]
    fn update_window(&mut self, id: u32, segment: &Segment) {
        let tcb = &mut self.records[id as usize].tcb;
        if segment.seq.before(tcb.snd_wl1) {
            return;
        }
        tcb.snd_wl1 = segment.seq;
        tcb.snd_wnd = u32::from(segment.window);
        if tcb.snd_wnd >= 2 * u32::from(tcb.mss) {
            tcb.flags.set(Flags::WIDE);
        }
        if tcb.flags.has(Flags::PERSIST) && segment.window > 0 {
            // What was sent beyond the window has most likely been dropped.
            tcb.snd_nxt = tcb.snd_una;
        }
    }

    /// After close: has our FIN been acknowledged?
    #[cold]
    fn process_fin_ack(&mut self, id: u32, now: Moment) -> Fate {
        let tcb = &mut self.records[id as usize].tcb;
        let acked = tcb.state.fin_sent() && tcb.snd_una == tcb.snd_end + 1;
        if !acked || tcb.flags.has(Flags::ABORT) {
            return Fate::Lives;
        }
        match tcb.state {
            State::FinWait1 => {
                tcb.state = State::FinWait2;
                self.arm(id, now, self.settings.fin_wait_ms);
            }
            State::Closing => self.enter_time_wait(id, now),
            State::LastAck => {
                self.close(id, CloseReason::Finished);
                return Fate::Over;
            }
            _ => {}
        }
        Fate::Lives
    }

    /// Something written has arrived as a whole.
    #[inline(always)]
    fn tell_sent(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.flags.has(Flags::WANTS_ROOM) {
            self.offer_again(id);
        } else if tcb.entries().is_empty() {
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
        }
    }

    /// A write that found no room may be tried again.
    #[cold]
    pub(crate) fn offer_again(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.clear(Flags::WANTS_ROOM);
        let (app, mut connection) = self.connection(id);
        app.on_sent(&mut connection);
        self.offer_buffered(id);
        let tcb = &mut self.records[id as usize].tcb;
        let told = tcb.rcv_adv.since(tcb.rcv_nxt);
        if u32::from(window_to_tell(tcb, &self.buffers)) > told {
            // The window has opened, and the peer may wait for it.
            tcb.flags.set(Flags::ACK);
        }
        self.tell_half_close(id);
    }
}

/// An ACK of new data after a loss.
#[cold]
fn recover<C: CongestionControl>(tcb: &mut Tcb, congestion: &mut C, acked: u32, flight: Event) {
    let all = !tcb.snd_una.before(tcb.recover);
    if tcb.flags.has(Flags::RECOVERY) {
        if all {
            tcb.flags.clear(Flags::RECOVERY | Flags::RETRANSMIT);
            congestion.on_recovered(&flight);
        } else {
            // RFC 6582: the next gap begins here.
            tcb.flags.set(Flags::RETRANSMIT);
            congestion.on_recovery_ack(acked, 0, &flight);
        }
    } else {
        if all {
            tcb.flags.clear(Flags::WENT_BACK);
        }
        congestion.on_ack(acked, &flight);
    }
}
