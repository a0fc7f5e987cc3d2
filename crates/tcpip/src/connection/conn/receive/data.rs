//! A segment's data and FIN (RFC 9293, section 3.10.7.4, seventh and eighth).

use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Conn, DeadlineKind, Flags, NONE, State};
use crate::outcome::Route;
use crate::pools::Owner;
use crate::wire::{Control, Segment, Seq};

impl<C: CongestionControl> Conn<'_, C> {
    /// A segment has data or a FIN, which are to be acknowledged. What is
    /// [`Offered`](Route::Offered) counts as received.
    #[inline(always)]
    pub(crate) fn on_data(&mut self, segment: Segment, now: Moment) -> Route {
        let tcb = &mut *self.tcb;
        tcb.flags |= Flags::ACK_PENDING;
        if tcb.flags.has(Flags::ABORT) {
            return Route::Dropped;
        }
        if !tcb.state.receives() {
            self.reborrow().drop_behind_fin(segment.len);
            return Route::Dropped;
        }
        let is_silent = tcb.state == State::Established && tcb.flight() == 0;
        if is_silent && !tcb.probes_window() {
            self.end_idle(now);
        }
        let tcb = &mut *self.tcb;
        if tcb.buffer != NONE || segment.seq != tcb.rcv_nxt {
            return Route::Buffered;
        }
        tcb.rcv_nxt = tcb.rcv_nxt + u32::from(segment.len);
        Route::Offered
    }

    /// What comes from a peer that has closed.
    #[cold]
    fn drop_behind_fin(self, len: u16) {
        self.cx.counters.behind_fin += u64::from(len > 0);
    }

    /// Takes a receive buffer, unless there is one. `false` when all are in use.
    pub(crate) fn take_buffer(&mut self, owner: Owner) -> bool {
        if self.tcb.buffer == NONE
            && let Some(buffer) = self.cx.buffers.take(owner, &mut self.cx.peers)
        {
            self.cx.buffers[buffer].provide(self.cx.buffer_len);
            self.tcb.buffer = buffer;
        }
        self.tcb.buffer != NONE
    }

    /// Gives the receive buffer back if nothing in it is acknowledged: the peer
    /// has all of it still, and sends it again (RFC 2018, section 8). Whether it
    /// did.
    pub(crate) fn give_up_buffer(&mut self) -> bool {
        let is_unread = !self.cx.buffers[self.tcb.buffer].ready().is_empty();
        if !is_unread {
            self.release_buffer();
        }
        !is_unread
    }

    /// Keeps the `rest` of what was offered, which the application has not
    /// consumed. `false` when there is no buffer: then the peer must send it
    /// again.
    pub(crate) fn keep(&mut self, rest: &[u8]) -> bool {
        let tcb = &mut *self.tcb;
        if tcb.buffer == NONE {
            tcb.rcv_nxt = Seq(tcb.rcv_nxt.0.wrapping_sub(rest.len() as u32));
            self.cx.counters.no_buffer += 1;
            return false;
        }
        // No more than the window arrives. It may be told a little larger
        // than a buffer where it is scaled, and there no segment is as long.
        self.cx.buffers[tcb.buffer].insert(0, rest);
        true
    }

    /// Stores the data and the FIN of a segment. Whether more can be offered, and
    /// whether the FIN is next.
    pub(crate) fn store(&mut self, data: &[u8], segment: Segment) -> (bool, bool) {
        let (has_more, is_fin_next) = self.insert(data, segment);
        if !has_more {
            self.drop_empty_buffer();
        }
        (has_more, is_fin_next)
    }

    fn insert(&mut self, data: &[u8], segment: Segment) -> (bool, bool) {
        let tcb = &mut *self.tcb;
        if tcb.buffer == NONE {
            self.cx.counters.no_buffer += 1;
            return (false, false);
        }
        let buffer = &mut self.cx.buffers[tcb.buffer];
        let ahead = segment.seq.since(tcb.rcv_nxt) as usize;
        // Nothing comes behind a FIN.
        let end = buffer.fin_ahead().unwrap_or(usize::MAX);
        let data = &data[..data.len().min(end.saturating_sub(ahead))];
        self.cx.counters.behind_fin += u64::from(data.len() < usize::from(segment.len));
        if !data.is_empty() && buffer.has(ahead, data.len()) {
            let end = segment.seq + data.len() as u32;
            self.cx.dsack = Some((segment.seq, end));
        }
        let Some(in_order) = buffer.insert(ahead, data) else {
            self.cx.counters.no_buffer += 1;
            return (false, false);
        };
        tcb.rcv_nxt = tcb.rcv_nxt + in_order as u32;
        if segment.control.has(Control::FIN) {
            let fin = (ahead + data.len()).checked_sub(in_order);
            buffer.set_fin(fin.unwrap_or(0));
        }
        let fin = buffer.take_fin();
        if ahead > 0 {
            self.cx.counters.out_of_order += 1;
        }
        (in_order > 0, fin)
    }

    /// The bytes of the receive buffer while they are offered, and how many of
    /// them are in order and not consumed: `None` if none are. What nobody waits
    /// for any more is consumed here.
    pub(crate) fn lend_bytes(&mut self) -> Option<(Box<[u8]>, usize)> {
        if self.tcb.buffer == NONE {
            return None;
        }
        let buffer = &mut self.cx.buffers[self.tcb.buffer];
        let ready = buffer.ready().len();
        if ready > 0 && !self.tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            return Some((std::mem::take(&mut buffer.bytes), ready));
        }
        self.cx.counters.after_close += u64::from(ready > 0);
        self.consume(ready);
        None
    }

    /// The bytes come back, some of them consumed.
    pub(crate) fn return_bytes(&mut self, bytes: Box<[u8]>, consumed: usize) {
        self.cx.buffers[self.tcb.buffer].bytes = bytes;
        self.consume(consumed);
    }

    fn consume(&mut self, bytes: usize) {
        self.cx.buffers[self.tcb.buffer].consume(bytes);
        self.drop_empty_buffer();
        self.advertise_open_window();
    }

    /// Gives the receive buffer back if nothing is in it.
    fn drop_empty_buffer(&mut self) {
        if self.tcb.buffer != NONE && self.cx.buffers[self.tcb.buffer].is_empty() {
            self.release_buffer();
        }
    }

    /// The peer has said something while nothing was in flight. After a long
    /// silence the congestion window is no longer known to be right.
    #[inline(always)]
    fn end_idle(&mut self, now: Moment) {
        let tcb = &mut *self.tcb;
        let idle = self.cx.settings.first_idle_ms;
        let silent_since = tcb.deadline.wrapping_sub(idle);
        let mut silence = now.millis.wrapping_sub(silent_since).cast_signed();
        if tcb.deadline_kind == DeadlineKind::KeepAlive {
            // Each keep-alive has put the deadline off.
            let before = idle.saturating_mul(tcb.backoff.into());
            silence = silence.max(i32::try_from(before).unwrap_or(i32::MAX));
            (tcb.retries, tcb.backoff) = (0, 0);
        }
        let least = self.cx.settings.min_rto_ms;
        let rto = tcb.rtt.timeout(tcb.backoff, false, least);
        if silence > rto.cast_signed() {
            self.congestion.on_idle(&tcb.event(0, 0, now));
        }
        tcb.arm(DeadlineKind::Idle, idle, now);
    }

    /// Owes an ACK if the window has opened: the peer may wait for it.
    fn advertise_open_window(&mut self) {
        let tcb = &mut *self.tcb;
        let told = tcb.rcv_adv.since(tcb.rcv_nxt);
        let most = u32::from(u16::MAX) << tcb.own_scale(self.cx);
        if tcb.window_to_advertise(self.cx).min(most) > told {
            tcb.flags |= Flags::ACK_PENDING;
        }
    }
}
