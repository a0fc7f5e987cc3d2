//! Retransmissions, their timeouts, and tail loss probes.

use super::{Frto, Mark, Phase, Recovery, TailProbe};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::conn::Conn;
use crate::connection::{DeadlineKind, Flags, Plan, SegmentKind, Tcb};
use crate::outcome::Expiry;
use crate::pools::NONE;
use crate::wire::Seq;

impl<C: CongestionControl> Recovery<C> {
    /// Returns the next range to retransmit, or `None` if nothing is lost or new data goes first.
    fn next_lost(&mut self) -> Option<(Seq, Seq)> {
        if self.lost_goes_first() {
            self.board.first_lost()
        } else {
            None
        }
    }

    /// Returns true if data is lost and must be retransmitted before new data is sent. In the
    /// second step of F-RTO, new data goes first.
    fn lost_goes_first(&self) -> bool {
        self.board.lost() > 0 && self.frto != Frto::Second
    }
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Processes an expired deadline for data in flight.
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

    /// Processes a retransmission timeout (RFC 6298, 5.4 to 5.6; RFC 5681, section 3.1).
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

    /// Returns how long the data in flight has waited for an ACK, in milliseconds. This time begins
    /// with the last start of the retransmission timer before the first timeout. Called when the
    /// timer expires.
    fn stalled_for(&mut self, now: Moment) -> u32 {
        let rto = self.rto();
        let index = self.begin_recovery();
        let recovery = &mut self.cx.recoveries[index];
        if self.tcb.retries == 0 {
            recovery.stalled_at = now.millis.wrapping_sub(rto);
        }
        now.millis.wrapping_sub(recovery.stalled_at)
    }

    /// Returns the RTO in milliseconds. After a first timeout, the result is at most the time left
    /// until the user timeout.
    fn rto_within_user_timeout(&self, now: Moment) -> u32 {
        let rto = self.rto();
        match self.recovery() {
            Some(recovery) if self.tcb.retries > 0 => {
                let stalled = now.millis.wrapping_sub(recovery.stalled_at);
                let user_timeout = self.cx.settings.user_timeout_ms;
                rto.min(user_timeout.saturating_sub(stalled).max(1))
            }
            _ => rto,
        }
    }

    /// Enters the loss phase after a timeout. All data in flight that is not SACKed counts as lost,
    /// and the congestion window shrinks (RFC 6298, 5.4 to 5.6; RFC 5681, section 3.1).
    fn enter_loss_on_timeout(&mut self, now: Moment) {
        let index = self.begin_recovery();
        let (tcb, recovery) = (&mut *self.tcb, &mut self.cx.recoveries[index]);
        let event = tcb.event(
            recovery.pipe(tcb.flight(), tcb.mss),
            0,
            self.cx.settings.pacing,
            now,
        );
        let una = tcb.snd_una;
        let first = recovery.board.first_piece(una, tcb.snd_nxt);
        if first.is_some_and(|piece| piece.mark == Some(Mark::Sacked)) {
            // The first segment is SACKed but not acknowledged, so the peer must have discarded
            // SACKed data.
            recovery.board.forget_sacked(una);
            self.cx.counters.sack_reneging += 1;
        }
        let is_repeated = tcb.retries > 0;
        if recovery.phase == Phase::Disorder {
            recovery.frto = Frto::First;
            recovery.save_prior(self.congestion);
        } else {
            // F-RTO is not used during recovery, because the loss is certain (RFC 5682, section
            // 2.1, step 1).
            recovery.frto = Frto::Off;
            if !is_repeated {
                recovery.prior = None;
            }
        }
        self.congestion.on_timeout(is_repeated, &event);
        tcb.flags |= Flags::SEND_CWR;
        let mtu_probe = recovery.mtu_probe;
        recovery.enter_loss(tcb);
        if let Some(probe) = mtu_probe {
            let size = probe.end.since(probe.start);
            self.end_mtu_probe(size as u16, false);
        }
    }

    /// Marks all data in flight that is not SACKed for retransmission, without a window reduction.
    /// Called when the reason is not congestion but, for example, a zero window or a smaller path
    /// MTU.
    pub(crate) fn retransmit_all(&mut self) {
        let index = self.begin_recovery();
        let recovery = &mut self.cx.recoveries[index];
        recovery.prior = None;
        recovery.frto = Frto::Off;
        recovery.enter_loss(self.tcb);
    }

    /// Returns the tail loss probe to send after two round trips without an ACK (RFC 8985, section
    /// 7.3).
    ///
    /// The probe is a segment of new data, or else a retransmission of the last segment. If the TX
    /// ring has no room for the probe, the connection waits for the retransmission timeout instead.
    #[cold]
    fn probe_tail(&mut self, now: Moment) -> Plan {
        let rto = self.rto();
        let tcb = &mut *self.tcb;
        tcb.arm(DeadlineKind::Retransmit, rto, now);
        let nxt = tcb.snd_nxt;
        let mss = u32::from(tcb.mss);
        let new = nxt != tcb.limit() && tcb.flight().saturating_add(mss) <= tcb.snd_wnd;
        let (start, max_len) = if new {
            (nxt, mss)
        } else {
            // The peer's window may have cut the last segment short, so the probe ends where that
            // segment ended.
            let last = tcb.last_segment(&self.cx.lists);
            (last, nxt.since(last).min(mss))
        };
        self.plan(
            SegmentKind::TailProbe {
                is_retransmission: !new,
            },
            start,
            max_len,
            0,
            now,
        )
    }

    /// Sets the deadline to `after` milliseconds from now: for a window probe during zero-window
    /// probing, and otherwise for a retransmission.
    fn arm_timeout(&mut self, after: u32, now: Moment) {
        let kind = match self.tcb.deadline_kind {
            DeadlineKind::ZeroWindow => DeadlineKind::ZeroWindow,
            _ => DeadlineKind::Retransmit,
        };
        self.tcb.arm(kind, after, now);
    }

    /// Returns the next retransmission, or `None` if there is nothing to retransmit or the windows
    /// allow nothing.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_lost(&mut self, now: Moment) -> Option<Plan> {
        if self.tcb.recovery == NONE {
            return None;
        }
        let (tcb, recovery) = (&*self.tcb, &mut self.cx.recoveries[self.tcb.recovery]);
        let (start, end) = recovery.next_lost()?;
        let max_len = end.since(start).min(u32::from(tcb.mss));
        let pipe = recovery.pipe(tcb.flight(), tcb.mss);
        let window = recovery.window(self.congestion);
        // If nothing is in flight, one segment may be sent even if the window is smaller.
        if pipe > 0 && pipe.saturating_add(max_len) > window {
            return None;
        }
        if start.since(tcb.snd_una) >= tcb.snd_wnd {
            // The peer's window has shrunk and no longer covers the segment, so the segment must
            // wait until the window opens or the retransmission timer expires.
            return None;
        }
        let backdating = recovery.backdating(tcb);
        Some(self.plan(SegmentKind::Retransmission, start, max_len, backdating, now))
    }

    /// Returns the number of bytes from SND.UNA up to which the congestion window allows new data,
    /// if the connection has loss recovery state. Bytes that have left the network do not count
    /// against the window.
    #[cold]
    pub(crate) fn reach_in_disorder(self) -> u32 {
        let tcb = &*self.tcb;
        let recovery = &self.cx.recoveries[tcb.recovery];
        if recovery.lost_goes_first() {
            // Retransmissions are sent first. The next one must wait for the window, so no new data
            // is allowed.
            return tcb.flight();
        }
        recovery
            .window(self.congestion)
            .saturating_add(recovery.left_network(tcb.flight(), tcb.mss))
    }

    /// Counts `bytes` as sent if the connection has loss recovery state.
    pub(crate) fn has_sent_in_disorder(self, bytes: u32) {
        if self.tcb.recovery != NONE {
            self.cx.recoveries[self.tcb.recovery].has_sent(bytes);
        }
    }

    /// Records that the port has accepted a segment that was not planned by
    /// [`next_segment`](Self::next_segment). Returns true if it is a retransmission.
    pub(crate) fn has_sent(&mut self, plan: &Plan, now: Moment) -> bool {
        self.has_advertised(plan.header.window);
        let (_, end) = plan.range();
        let before = self.cx.counters.retransmits;
        match plan.kind {
            SegmentKind::New => self.has_sent_to(end),
            SegmentKind::Retransmission => self.has_retransmitted(plan, now),
            SegmentKind::TailProbe { is_retransmission } => {
                self.has_probed_tail(plan, is_retransmission, now);
            }
            SegmentKind::MtuProbe => self.has_probed_mtu(plan, now),
            SegmentKind::WindowProbe => {
                self.has_sent_to(end);
                self.tcb.retries = self.tcb.retries.saturating_add(1);
                self.tcb.backoff = self.tcb.backoff.saturating_add(1);
                self.cx.counters.window_probes += 1;
            }
        }
        self.cx.counters.retransmits > before
    }

    /// Records that the tail loss probe `plan` was sent.
    fn has_probed_tail(&mut self, plan: &Plan, is_retransmission: bool, now: Moment) {
        let index = self.begin_recovery();
        let (start, end) = plan.range();
        self.has_sent_to(end);
        let (tcb, recovery) = (&mut *self.tcb, &mut self.cx.recoveries[index]);
        recovery.tail_probe = Some(TailProbe {
            end: tcb.snd_nxt,
            is_retransmission,
        });
        if is_retransmission {
            tcb.flags -= Flags::TIMING;
            recovery.has_retransmitted(start, end, tcb, now);
            self.cx.counters.retransmits += 1;
        }
        self.cx.counters.tail_loss_probes += 1;
    }

    /// Records that a retransmission was sent.
    fn has_retransmitted(&mut self, plan: &Plan, now: Moment) {
        let tcb = &mut *self.tcb;
        let recovery = &mut self.cx.recoveries[tcb.recovery];
        let (start, end) = plan.range();
        let pipe = recovery.pipe(tcb.flight(), tcb.mss);
        let event = tcb.event(pipe, 0, self.cx.settings.pacing, now);
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
    /// Returns the time in milliseconds by which to backdate the TSval of a retransmission.
    ///
    /// TSvals are backdated only in fast recovery. After a timeout, or for a tail loss probe, the
    /// original may have been sent only recently. A backdated TSval could then be older than the
    /// original's.
    fn backdating(&self, tcb: &Tcb) -> u32 {
        match self.phase {
            Phase::Recovery => tcb.backdating(),
            Phase::Disorder | Phase::Loss => 0,
        }
    }

    fn enter_loss(&mut self, tcb: &Tcb) {
        self.board.mark_all_lost(tcb.snd_una, tcb.snd_nxt);
        self.rack.recheck(tcb.snd_una);
        self.phase = Phase::Loss;
        self.high_seq = tcb.snd_nxt;
        self.dup_acks = 0;
        self.tail_probe = None;
        self.mtu_probe = None;
    }

    /// Marks `start..end` as retransmitted.
    fn has_retransmitted(&mut self, start: Seq, end: Seq, tcb: &Tcb, now: Moment) {
        let mark = Mark::Retransmitted {
            at: now.micros,
            fence: tcb.snd_nxt,
        };
        self.board.set(start, end, Some(mark));
        self.rack.note_retransmit(tcb.snd_nxt, now.micros, end);
        let tsval = tcb.tsval_at(now).wrapping_sub(self.backdating(tcb));
        self.first_retransmit_ts.get_or_insert(tsval);
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
