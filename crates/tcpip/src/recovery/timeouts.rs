//! What is lost because nothing has arrived for too long, and what is sent to
//! find out before.

use nmio::Port;

use super::{Frto, Mark, Phase, TailProbe, event};
use crate::app::Application;
use crate::congestion::CongestionControl;
use crate::output::last_segment;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Record};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// For how long the first unacknowledged segment has been out, in
    /// milliseconds, when its timer has expired.
    pub(crate) fn stalled_for(&mut self, id: u32, now: Moment) -> u32 {
        let rto = self.rto(id);
        let index = self.recovery_of(id, 0);
        let recovery = self.recoveries.get_mut(index);
        if self.records[id as usize].tcb.retries == 0 {
            recovery.stalled_at = now.millis.wrapping_sub(rto);
        }
        now.millis.wrapping_sub(recovery.stalled_at)
    }

    /// What is left of the user timeout for the first unacknowledged segment,
    /// if it has timed out before; in milliseconds.
    pub(crate) fn user_time_left(&self, id: u32, now: Moment) -> u32 {
        let tcb = &self.records[id as usize].tcb;
        if tcb.retries == 0 || tcb.recovery == NONE {
            return u32::MAX;
        }
        let since = self.recoveries.get(tcb.recovery).stalled_at;
        let stalled = now.millis.wrapping_sub(since);
        self.settings.user_timeout_ms.saturating_sub(stalled).max(1)
    }

    /// The retransmission timer has expired (RFC 6298, 5.4 to 5.6; RFC 5681,
    /// section 3.1): all that has not arrived goes again.
    pub(crate) fn lose_all_by_timeout(&mut self, id: u32, now: Moment) {
        let index = self.recovery_of(id, 0);
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let recovery = self.recoveries.get_mut(index);
        let told = event(tcb, recovery.pipe(tcb), 0, now);
        let una = tcb.snd_una;
        let first = recovery.board.pieces(una, tcb.snd_nxt).next();
        if first.is_some_and(|piece| piece.mark == Some(Mark::Sacked)) {
            // It has not what it told to have.
            recovery.board.forget_sacked(una, tcb.snd_nxt);
            self.counters.reneged += 1;
        }
        let again = tcb.retries > 0;
        if recovery.phase == Phase::Disorder {
            recovery.frto = Frto::First;
            recovery.remember(congestion);
        } else {
            // RFC 5682, section 2.1, step 1: something is lost anyway.
            recovery.frto = Frto::Off;
            if !again {
                recovery.prior = None;
            }
        }
        congestion.on_timeout(again, &told);
        tcb.flags.set(Flags::REDUCED);
        let size_probe = recovery.size_probe;
        recovery.begin_again(tcb);
        if let Some(probe) = size_probe {
            let size = probe.end.since(probe.start);
            self.end_size_probe(id, size as u16, false);
        }
    }

    /// All that has not arrived goes again, though it is not congestion that
    /// has lost it: the peer's window was shut, or the path has become
    /// narrower.
    pub(crate) fn send_all_again(&mut self, id: u32) {
        let index = self.recovery_of(id, 0);
        let tcb = &mut self.records[id as usize].tcb;
        let recovery = self.recoveries.get_mut(index);
        recovery.prior = None;
        recovery.frto = Frto::Off;
        recovery.begin_again(tcb);
    }

    /// The tail has been silent for two round trips: sends new data, or the
    /// last segment again, so that the peer tells what it has (RFC 8985,
    /// section 7.3).
    #[cold]
    pub(crate) fn probe_tail<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.clear(Flags::PROBE_TAIL);
        let nxt = tcb.snd_nxt;
        let mss = u32::from(tcb.mss);
        let new = nxt != tcb.limit() && tcb.flight().saturating_add(mss) <= tcb.snd_wnd;
        let (start, most) = if new {
            (nxt, mss)
        } else {
            // The peer's window may have cut it short.
            let last = last_segment(tcb);
            (last, nxt.since(last).min(mss))
        };
        let rto = self.rto(id);
        self.arm(id, now, rto);
        // Without room the timeout does it.
        let Ok(taken) = self.send_range(port, id, start, most, 0, now) else {
            return;
        };
        let index = self.recovery_of(id, 0);
        let tcb = &mut self.records[id as usize].tcb;
        tcb.has_sent_to(start + taken);
        let recovery = self.recoveries.get_mut(index);
        recovery.tail_probe = Some(TailProbe {
            end: tcb.snd_nxt,
            again: !new,
        });
        if !new {
            tcb.flags.clear(Flags::TIMING);
            recovery.has_resent(start, start + taken, tcb, now);
            self.counters.retransmits += 1;
        }
        self.counters.tail_probes += 1;
    }
}
