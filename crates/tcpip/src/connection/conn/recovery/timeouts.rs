//! What is lost because nothing has arrived for too long, and what is sent to
//! find out before.

use super::{Frto, Mark, Phase, Recovery, TailProbe};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Conn, DeadlineKind, Flags, Plan, SegmentKind, Tcb};
use crate::outcome::Expiry;
use crate::pools::NONE;
use crate::wire::Seq;

impl<C: CongestionControl> Conn<'_, C> {
    /// The deadline has passed which is for what is in flight.
    pub(in crate::connection::conn) fn on_loss_deadline(&mut self, now: Moment) -> Expiry {
        match self.tcb.deadline_kind {
            DeadlineKind::TailProbe => Expiry::Send(self.probe_tail(now)),
            DeadlineKind::Reordering => {
                self.on_reordering_timeout(now);
                Expiry::Transmit
            }
            _ => self.on_rto(now),
        }
    }

    /// RFC 6298, 5.4 to 5.6, and RFC 5681, section 3.1.
    fn on_rto(&mut self, now: Moment) -> Expiry {
        let tcb = &mut *self.tcb;
        debug_assert!(tcb.flight() > 0, "something is in flight");
        let stalled = self.stalled_for(now);
        let settings = &self.cx.settings;
        if self.tcb.retries >= settings.retries || stalled >= settings.user_timeout_ms {
            return Expiry::TimeOut;
        }
        self.enter_loss_on_timeout(now);
        self.cx.counters.timeouts += 1;
        let tcb = &mut *self.tcb;
        tcb.retries += 1;
        tcb.backoff = tcb.backoff.saturating_add(1);
        tcb.flags -= Flags::TIMING;
        self.suspect_black_hole(now);
        let rto = self.rto_within_user_timeout(now);
        self.tcb.arm(DeadlineKind::Retransmit, rto, now);
        Expiry::Transmit
    }

    /// For how long the first unacknowledged segment has been out, in
    /// milliseconds, when its timer has expired.
    fn stalled_for(&mut self, now: Moment) -> u32 {
        let rto = self.rto();
        let index = self.begin_recovery();
        let recovery = &mut self.cx.recoveries[index];
        if self.tcb.retries == 0 {
            recovery.stalled_at = now.millis.wrapping_sub(rto);
        }
        now.millis.wrapping_sub(recovery.stalled_at)
    }

    /// The retransmission timeout of a segment that may have timed out before,
    /// in milliseconds: at most what is left of the user timeout.
    fn rto_within_user_timeout(&self, now: Moment) -> u32 {
        let rto = self.rto();
        match self.recovery() {
            Some(recovery) if self.tcb.retries > 0 => {
                let stalled = now.millis.wrapping_sub(recovery.stalled_at);
                let most = self.cx.settings.user_timeout_ms;
                rto.min(most.saturating_sub(stalled).max(1))
            }
            _ => rto,
        }
    }

    /// The retransmission timer has expired (RFC 6298, 5.4 to 5.6; RFC 5681,
    /// section 3.1): all that has not arrived goes again.
    fn enter_loss_on_timeout(&mut self, now: Moment) {
        let index = self.begin_recovery();
        let (tcb, recovery) = (&mut *self.tcb, &mut self.cx.recoveries[index]);
        let event = tcb.event(recovery.pipe(tcb.flight(), tcb.mss), 0, now);
        let una = tcb.snd_una;
        let first = recovery.board.first_piece(una, tcb.snd_nxt);
        if first.is_some_and(|piece| piece.mark == Some(Mark::Sacked)) {
            // It has not what it told to have.
            recovery.board.forget_sacked(una, tcb.snd_nxt);
            self.cx.counters.reneged += 1;
        }
        let again = tcb.retries > 0;
        if recovery.phase == Phase::Disorder {
            recovery.frto = Frto::First;
            recovery.remember(self.congestion);
        } else {
            // RFC 5682, section 2.1, step 1: something is lost anyway.
            recovery.frto = Frto::Off;
            if !again {
                recovery.prior = None;
            }
        }
        self.congestion.on_timeout(again, &event);
        tcb.flags |= Flags::SEND_CWR;
        let mtu_probe = recovery.mtu_probe;
        recovery.enter_loss(tcb);
        if let Some(probe) = mtu_probe {
            let size = probe.end.since(probe.start);
            self.end_mtu_probe(size as u16, false);
        }
    }

    /// All that has not arrived goes again, though it is not congestion that
    /// has lost it: the peer's window was shut, or the path has become
    /// narrower.
    pub(crate) fn retransmit_all(&mut self) {
        let index = self.begin_recovery();
        let recovery = &mut self.cx.recoveries[index];
        recovery.prior = None;
        recovery.frto = Frto::Off;
        recovery.enter_loss(self.tcb);
    }

    /// The tail has been silent for two round trips: new data goes, or the last
    /// segment again, so that the peer tells what it has (RFC 8985, section
    /// 7.3). Without room for it the timeout does it.
    #[cold]
    fn probe_tail(&mut self, now: Moment) -> Plan {
        let rto = self.rto();
        let tcb = &mut *self.tcb;
        tcb.arm(DeadlineKind::Retransmit, rto, now);
        let nxt = tcb.snd_nxt;
        let mss = u32::from(tcb.mss);
        let new = nxt != tcb.limit() && tcb.flight().saturating_add(mss) <= tcb.snd_wnd;
        let (start, most) = if new {
            (nxt, mss)
        } else {
            // The peer's window may have cut it short.
            let last = tcb.last_segment(&self.cx.lists);
            (last, nxt.since(last).min(mss))
        };
        self.plan(
            SegmentKind::TailProbe {
                is_retransmission: !new,
            },
            start,
            most,
            0,
            now,
        )
    }

    /// Sets the deadline to a retransmission, or to a probe of the peer's window
    /// where that is shut.
    fn arm_timeout(&mut self, after: u32, now: Moment) {
        let kind = match self.tcb.deadline_kind {
            DeadlineKind::ZeroWindow => DeadlineKind::ZeroWindow,
            _ => DeadlineKind::Retransmit,
        };
        self.tcb.arm(kind, after, now);
    }

    /// The next segment that is lost, as far as the windows allow.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_lost(&mut self, now: Moment) -> Option<Plan> {
        let (tcb, recovery) = (&*self.tcb, self.recovery()?);
        let (start, end) = recovery.next_lost()?;
        let most = end.since(start).min(u32::from(tcb.mss));
        let pipe = recovery.pipe(tcb.flight(), tcb.mss);
        let window = recovery.window(self.congestion);
        // At least one segment, whatever its size.
        if pipe > 0 && pipe.saturating_add(most) > window {
            return None;
        }
        if start.since(tcb.snd_una) >= tcb.snd_wnd {
            // The window was shut on it: the timer probes.
            return None;
        }
        let late = recovery.backdating(tcb);
        Some(self.plan(SegmentKind::Retransmission, start, most, late, now))
    }

    /// How far from SND.UNA the congestion window reaches, while something is
    /// out of order: what is in the network no longer does not count.
    #[cold]
    pub(crate) fn reach_in_disorder(&self) -> u32 {
        let tcb = &*self.tcb;
        let recovery = &self.cx.recoveries[tcb.recovery];
        if recovery.lost_goes_first() {
            // There was no room for a whole segment of it.
            return tcb.flight();
        }
        recovery
            .window(self.congestion)
            .saturating_add(recovery.left_network(tcb.flight(), tcb.mss))
    }

    /// Bytes have been sent while something is out of order.
    pub(crate) fn has_sent_in_disorder(self, bytes: u32) {
        if self.tcb.recovery != NONE {
            self.cx.recoveries[self.tcb.recovery].has_sent(bytes);
        }
    }

    /// The port has taken a plan other than of [`next_segment`](Self::next_segment).
    pub(crate) fn has_sent(&mut self, plan: &Plan, now: Moment) {
        self.has_advertised(plan.header.window);
        let (_, end) = plan.range();
        match plan.kind {
            SegmentKind::New => self.tcb.has_sent_to(end),
            SegmentKind::Retransmission => self.has_retransmitted(plan, now),
            SegmentKind::TailProbe { is_retransmission } => {
                self.has_probed_tail(plan, is_retransmission, now);
            }
            SegmentKind::MtuProbe => self.has_probed_mtu(plan, now),
            SegmentKind::WindowProbe => {
                self.tcb.has_sent_to(end);
                self.tcb.retries = self.tcb.retries.saturating_add(1);
                self.tcb.backoff = self.tcb.backoff.saturating_add(1);
                self.cx.counters.window_probes += 1;
            }
        }
    }

    /// The probe of the tail that `plan` is has been sent.
    fn has_probed_tail(&mut self, plan: &Plan, is_retransmission: bool, now: Moment) {
        let index = self.begin_recovery();
        let (tcb, recovery) = (&mut *self.tcb, &mut self.cx.recoveries[index]);
        let (start, end) = plan.range();
        tcb.has_sent_to(end);
        recovery.tail_probe = Some(TailProbe {
            end: tcb.snd_nxt,
            is_retransmission,
        });
        if is_retransmission {
            tcb.flags -= Flags::TIMING;
            recovery.has_retransmitted(start, end, tcb, now);
            self.cx.counters.retransmits += 1;
        }
        self.cx.counters.tail_probes += 1;
    }

    /// What was lost has been sent again.
    fn has_retransmitted(&mut self, plan: &Plan, now: Moment) {
        let tcb = &mut *self.tcb;
        let recovery = &mut self.cx.recoveries[tcb.recovery];
        let (start, end) = plan.range();
        let pipe = recovery.pipe(tcb.flight(), tcb.mss);
        let event = tcb.event(pipe, 0, now);
        self.congestion.on_send(end.since(start), &event);
        recovery.has_retransmitted(start, end, tcb, now);
        let is_timed = !end.before(tcb.rtt_seq);
        if is_timed || !tcb.negotiated.sack() {
            tcb.flags -= Flags::TIMING;
        }
        self.cx.counters.retransmits += 1;
        let impatient = !tcb.negotiated.sack() && recovery.is_impatient();
        if start == tcb.snd_una && !impatient {
            let rto = self.rto_within_user_timeout(now);
            self.arm_timeout(rto, now);
        }
    }
}

impl<C: CongestionControl> Recovery<C> {
    /// Milliseconds by which the timestamp of what is lost lies back when it is
    /// sent again. After a timeout, and in the probe of a tail, it may have been
    /// first sent just now.
    fn backdating(&self, tcb: &Tcb) -> u32 {
        match self.phase {
            Phase::Recovery => tcb.backdating(),
            Phase::Disorder | Phase::Loss => 0,
        }
    }

    fn enter_loss(&mut self, tcb: &Tcb) {
        self.board.lose_all(tcb.snd_una, tcb.snd_nxt);
        self.rack.recheck(tcb.snd_una);
        self.phase = Phase::Loss;
        self.high_seq = tcb.snd_nxt;
        self.dup_acks = 0;
        self.tail_probe = None;
        self.mtu_probe = None;
    }

    /// `start..end` has been sent again.
    fn has_retransmitted(&mut self, start: Seq, end: Seq, tcb: &Tcb, now: Moment) {
        let mark = Mark::Retransmitted {
            at: now.micros,
            fence: tcb.snd_nxt,
        };
        self.board.set(start, end, Some(mark));
        let earliest_retransmit = &mut self.rack.earliest_retransmit;
        earliest_retransmit.get_or_insert((tcb.snd_nxt, now.micros, end));
        let clock = tcb.ts_clock(now).wrapping_sub(self.backdating(tcb));
        self.first_retransmit_ts.get_or_insert(clock);
        self.has_sent(end.since(start));
        self.retransmitted = if self.undo_retrans == 0 {
            (start, end)
        } else {
            (
                self.retransmitted.0.earlier(start),
                self.retransmitted.1.later(end),
            )
        };
        self.undo_retrans = self.undo_retrans.saturating_add(end.since(start));
    }
}
