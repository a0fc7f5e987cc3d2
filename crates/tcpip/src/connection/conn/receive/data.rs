//! Processing of a segment's data and FIN (RFC 9293, section 3.10.7.4, seventh and eighth check).

use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::conn::Conn;
use crate::connection::{DeadlineKind, Flags, NONE, State, Tcb};
use crate::outcome::Route;
use crate::pools::Owner;
use crate::wire::{Segment, Seq};

impl<C: CongestionControl> Conn<'_, C> {
    /// Processes the arrival of data or a FIN, and returns what the stack does with the data. Data
    /// that is [`Offered`](Route::Offered) to the application counts as received.
    #[inline(always)]
    pub(crate) fn on_data(&mut self, segment: Segment, now: Moment) -> Route {
        let tcb = &mut *self.tcb;
        tcb.flags |= Flags::ACK_PENDING;
        if tcb.flags.intersects(Flags::ABORT) {
            return Route::Dropped;
        }
        if !tcb.state.receives() {
            self.reborrow().drop_behind_fin(segment.len);
            return Route::Dropped;
        }
        let is_idle = tcb.state == State::Established && tcb.flight() == 0;
        if is_idle && !tcb.probes_window() {
            self.end_idle(now);
        }
        let tcb = &mut *self.tcb;
        if tcb.buffer != NONE || segment.seq != tcb.rcv_nxt {
            return Route::Buffered;
        }
        tcb.rcv_nxt = tcb.rcv_nxt + u32::from(segment.len);
        Route::Offered
    }

    /// Counts a segment with data after the peer's FIN, which violates the protocol.
    #[cold]
    fn drop_behind_fin(self, len: u16) {
        self.cx.counters.data_after_fin += u64::from(len > 0);
    }

    /// Borrows a receive buffer from the pool if the connection has none. Returns `false` if all
    /// buffers are in use.
    pub(crate) fn take_buffer(&mut self, owner: Owner) -> bool {
        if self.tcb.buffer == NONE
            && let Some(buffer) = self.cx.buffers.take(owner, &mut self.cx.peers)
        {
            self.cx.buffers[buffer].provide(self.cx.buffer_len);
            self.tcb.buffer = buffer;
        }
        self.tcb.buffer != NONE
    }

    /// Releases the receive buffer if it holds only data that is not acknowledged. Returns true if
    /// the buffer was released.
    ///
    /// The peer must keep data until a cumulative ACK covers the data, and therefore retransmits
    /// the released data (RFC 2018, section 8).
    pub(crate) fn give_up_buffer(&mut self) -> bool {
        let is_unread = !self.cx.buffers[self.tcb.buffer].ready().is_empty();
        if !is_unread {
            self.release_buffer();
        }
        !is_unread
    }

    /// Stores `unconsumed`, the part of the offered data that the application has not consumed.
    /// Returns `false` if there is no buffer, so the peer must retransmit the data.
    pub(crate) fn store_unconsumed(&mut self, unconsumed: &[u8]) -> bool {
        let tcb = &mut *self.tcb;
        if tcb.buffer == NONE {
            tcb.rcv_nxt = tcb.rcv_nxt - unconsumed.len() as u32;
            self.cx.counters.no_buffer += 1;
            return false;
        }
        // The data fits because it was within the window. A scaled window may be slightly larger
        // than the buffer, but a buffer that needs scaling is larger than any segment.
        self.cx.buffers[tcb.buffer].insert(0, unconsumed);
        true
    }

    /// Stores the data of a segment that begins at `seq`. A FIN follows the data if `has_fin` is set.
    /// Returns whether more data can be offered to the application, and whether the FIN is now in
    /// order.
    pub(crate) fn store(&mut self, data: &[u8], seq: Seq, has_fin: bool) -> (bool, bool) {
        let (has_more, is_fin_next) = self.insert(data, seq, has_fin);
        if !has_more {
            self.drop_empty_buffer();
        }
        (has_more, is_fin_next)
    }

    fn insert(&mut self, segment: &[u8], seq: Seq, has_fin: bool) -> (bool, bool) {
        let tcb = &mut *self.tcb;
        if tcb.buffer == NONE {
            self.cx.counters.no_buffer += 1;
            return (false, false);
        }
        let buffer = &mut self.cx.buffers[tcb.buffer];
        let ahead = seq.since(tcb.rcv_nxt) as usize;
        // No data can follow a FIN.
        let end = buffer.fin_ahead().unwrap_or(usize::MAX);
        let data = &segment[..segment.len().min(end.saturating_sub(ahead))];
        self.cx.counters.data_after_fin += u64::from(data.len() < segment.len());
        if !data.is_empty() && buffer.has(ahead, data.len()) {
            self.cx.dsack = Some((seq, seq + data.len() as u32));
        }
        let Some(in_order) = buffer.insert(ahead, data) else {
            self.cx.counters.no_buffer += 1;
            return (false, false);
        };
        tcb.rcv_nxt = tcb.rcv_nxt + in_order as u32;
        if has_fin {
            let fin = (ahead + data.len()).checked_sub(in_order);
            buffer.set_fin(fin.unwrap_or(0));
        }
        let fin = buffer.take_fin();
        if ahead > 0 {
            self.cx.counters.out_of_order += 1;
        }
        (in_order > 0, fin)
    }

    /// Moves the bytes out of the receive buffer, and returns them with the number of bytes in
    /// order. Returns `None` if no bytes are in order. If our side is closed or the application has
    /// aborted, the data is discarded instead.
    pub(crate) fn lend_bytes(&mut self) -> Option<(Box<[u8]>, usize)> {
        if self.tcb.buffer == NONE {
            return None;
        }
        let buffer = &mut self.cx.buffers[self.tcb.buffer];
        let ready = buffer.ready().len();
        if ready > 0 && !self.tcb.flags.intersects(Flags::CLOSE | Flags::ABORT) {
            return Some((std::mem::take(&mut buffer.bytes), ready));
        }
        self.cx.counters.data_after_close += u64::from(ready > 0);
        self.consume(ready);
        None
    }

    /// Moves the bytes back into the receive buffer after the application has consumed `consumed`
    /// of them.
    pub(crate) fn return_bytes(&mut self, bytes: Box<[u8]>, consumed: usize) {
        self.cx.buffers[self.tcb.buffer].bytes = bytes;
        self.consume(consumed);
    }

    fn consume(&mut self, bytes: usize) {
        self.cx.buffers[self.tcb.buffer].consume(bytes);
        self.drop_empty_buffer();
        self.advertise_open_window();
    }

    /// Releases the receive buffer if it is empty.
    fn drop_empty_buffer(&mut self) {
        if self.tcb.buffer != NONE && self.cx.buffers[self.tcb.buffer].is_empty() {
            self.release_buffer();
        }
    }

    /// Ends an idle period when the peer sends data while nothing is in flight. After a long idle
    /// period the congestion window may no longer be valid.
    #[inline(always)]
    fn end_idle(&mut self, now: Moment) {
        let tcb = &mut *self.tcb;
        let first_idle = self.cx.settings.first_idle_ms;
        let idle_since = tcb.deadline.wrapping_sub(first_idle);
        let mut idle_for = now.millis.wrapping_sub(idle_since).cast_signed();
        if tcb.deadline_kind == DeadlineKind::KeepAlive {
            // Each keep-alive has postponed the deadline by another interval.
            let before = first_idle.saturating_mul(tcb.backoff.into());
            idle_for = idle_for.max(i32::try_from(before).unwrap_or(i32::MAX));
            (tcb.retries, tcb.backoff) = (0, 0);
        }
        // The initial minimum RTO applies here, even if the connection's own minimum is lower.
        if idle_for > self.cx.settings.min_rto_ms.cast_signed() {
            self.reborrow().after_pause(idle_for, now);
        }
        self.tcb.arm(DeadlineKind::Idle, first_idle, now);
    }

    /// Tells the congestion control about a pause of `idle_for` milliseconds if the pause was longer
    /// than the RTO.
    #[cold]
    fn after_pause(self, idle_for: i32, now: Moment) {
        let tcb = &*self.tcb;
        let min_rto = self.cx.settings.min_rto_ms;
        let mut rtt = tcb.rtt;
        rtt.set_floor(min_rto);
        let rto = rtt.timeout(tcb.backoff, false, min_rto);
        if idle_for > rto.cast_signed() {
            let event = tcb.event(0, 0, self.cx.settings.pacing, now);
            self.congestion.on_idle(&event);
        }
    }

    /// Makes an ACK pending if our window has opened, because the peer may be waiting for a larger
    /// window.
    fn advertise_open_window(&mut self) {
        let tcb = &mut *self.tcb;
        let advertised = tcb.rcv_adv.since(tcb.rcv_nxt);
        let max = u32::from(u16::MAX) << tcb.own_scale(self.cx);
        if tcb.window_to_advertise(self.cx).min(max) > advertised {
            tcb.flags |= Flags::ACK_PENDING;
        }
    }
}

impl Tcb {
    /// Returns true if data or a FIN has arrived that the application has not consumed.
    pub(crate) fn has_unread(&self) -> bool {
        // An empty buffer is released at once.
        self.buffer != NONE
    }
}
