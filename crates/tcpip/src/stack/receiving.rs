//! A segment's data and FIN: in order out of the received frame, otherwise
//! through a receive buffer.

use ip::Packet;
use nmio::Port;

use super::Stack;
use crate::app::{Application, Connection};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Due, Flags, Sight, State};
use crate::pools::NONE;
use crate::wire::{Control, Segment, Seq};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// The segment's data and FIN.
    #[inline(always)]
    pub(super) fn receive<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: &Packet,
        segment: Segment,
        now: Moment,
    ) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.set(Flags::ACK);
        if tcb.flags.has(Flags::ABORT) {
            return;
        }
        if !tcb.state.receives() {
            self.drop_behind_fin(segment.len);
            return;
        }
        let is_silent = tcb.state == State::Established && tcb.flight() == 0;
        if is_silent && !tcb.probes_window() {
            self.conn(id).end_silence(now);
        }
        let data = &packet.payload()[usize::from(segment.data_at)..][..usize::from(segment.len)];
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.buffer != NONE || segment.seq != tcb.rcv_nxt {
            self.process_buffered(port, id, data, segment, now);
            return;
        }
        tcb.rcv_nxt = tcb.rcv_nxt + data.len() as u32;
        let consumed = self.offer(port, id, data, now);
        if consumed < data.len() && !self.keep(port, id, &data[consumed..], now) {
            return;
        }
        if segment.control.has(Control::FIN) {
            self.process_fin(id, now);
        }
    }

    /// Offers data in order to the application; how much it has consumed. When
    /// it finds nothing free of a pool, and another connection gives way, it is asked
    /// again.
    #[inline(always)]
    fn offer<P: Port>(&mut self, port: &mut P, id: u32, data: &[u8], now: Moment) -> usize {
        let flags = self.records[id as usize].tcb.flags;
        if data.is_empty() || flags.has(Flags::CLOSE | Flags::ABORT) {
            return self.discard(data);
        }
        let mut consumed = self.offer_once(id, data, now);
        while consumed < data.len() && self.free_what_was_refused(port, id, now) {
            consumed += self.offer_once(id, &data[consumed..], now);
        }
        let flags = self.records[id as usize].tcb.flags;
        if flags.has(Flags::CLOSE | Flags::ABORT) {
            // What it has left it never takes.
            data.len()
        } else {
            consumed
        }
    }

    /// Asks the application, and takes note of the connection's progress.
    #[inline(always)]
    fn offer_once(&mut self, id: u32, data: &[u8], now: Moment) -> usize {
        self.refused = None;
        let tcb = &self.records[id as usize].tcb;
        let (una, end) = (tcb.snd_una, tcb.stream.end());
        let (app, mut connection) = self.connection(id);
        let consumed = app.on_receive(&mut connection, data).min(data.len());
        self.has_consumed(id, consumed, (una, end), now);
        consumed
    }

    /// The application has consumed `bytes`; what it had written before was
    /// acknowledged up to `una` and ended at `end`.
    #[inline(always)]
    fn has_consumed(&mut self, id: u32, bytes: usize, (una, end): (Seq, Seq), now: Moment) {
        let is_answered = self.records[id as usize].tcb.stream.end() != end;
        let standing = &mut self.standings[id as usize];
        if una == end && is_answered {
            standing.renew(now);
        } else {
            standing.advance(bytes as u32, self.cx.settings.pace, now);
        }
    }

    /// What comes from a peer that has closed.
    #[cold]
    fn drop_behind_fin(&mut self, len: u16) {
        self.cx.counters.behind_fin += u64::from(len > 0);
    }

    /// What nobody is there for any more; all of it.
    #[cold]
    fn discard(&mut self, data: &[u8]) -> usize {
        self.cx.counters.after_close += u64::from(!data.is_empty());
        data.len()
    }

    /// Keeps what the application has not consumed. `false` when there is no
    /// buffer: then the peer must send it again.
    #[cold]
    fn keep<P: Port>(&mut self, port: &mut P, id: u32, rest: &[u8], now: Moment) -> bool {
        let stored = self.take_buffer(port, id, now).inspect(|buffer| {
            // No more than the window arrives. It may be told a little larger
            // than a buffer where it is scaled, and there no segment is as long.
            self.cx.buffers.get_mut(*buffer).insert(0, rest);
        });
        let tcb = &mut self.records[id as usize].tcb;
        if let Some(buffer) = stored {
            tcb.buffer = buffer;
            return true;
        }
        tcb.rcv_nxt = Seq(tcb.rcv_nxt.0.wrapping_sub(rest.len() as u32));
        self.cx.counters.no_buffer += 1;
        false
    }

    /// Data that is out of order, or comes behind what is not consumed yet.
    #[cold]
    fn process_buffered<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        data: &[u8],
        segment: Segment,
        now: Moment,
    ) {
        if self.records[id as usize].tcb.buffer == NONE {
            let Some(buffer) = self.take_buffer(port, id, now) else {
                self.cx.counters.no_buffer += 1;
                return;
            };
            self.records[id as usize].tcb.buffer = buffer;
        }
        let tcb = &mut self.records[id as usize].tcb;
        let buffer = self.cx.buffers.get_mut(tcb.buffer);
        let ahead = segment.seq.since(tcb.rcv_nxt) as usize;
        // Nothing comes behind a FIN.
        let end = buffer.fin_ahead().unwrap_or(usize::MAX);
        let data = &data[..data.len().min(end.saturating_sub(ahead))];
        self.cx.counters.behind_fin += u64::from(data.len() < usize::from(segment.len));
        if !data.is_empty() && buffer.has(ahead, data.len()) {
            let end = segment.seq + data.len() as u32;
            self.cx.twice = Some((segment.seq, end));
        }
        let in_order = buffer.insert(ahead, data);
        let Some(in_order) = in_order else {
            self.cx.counters.no_buffer += 1;
            return;
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
        if in_order > 0 {
            self.offer_buffered(port, id, now);
        }
        self.drop_empty_buffer(id);
        if fin {
            self.process_fin(id, now);
        }
    }

    /// Something written has arrived as a whole.
    #[inline(always)]
    pub(super) fn tell_sent<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.flags.has(Flags::WANTS_ROOM) {
            self.offer_again(port, id, now);
        } else if tcb.stream.is_empty() {
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
        }
    }

    /// A write that found no room may be tried again.
    #[cold]
    pub(super) fn offer_again<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.clear(Flags::WANTS_ROOM);
        loop {
            self.refused = None;
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
            if !self.free_what_was_refused(port, id, now) {
                break;
            }
        }
        self.offer_buffered(port, id, now);
        let conn = self.conn(id);
        let told = conn.tcb.rcv_adv.since(conn.tcb.rcv_nxt);
        let most = u32::from(u16::MAX) << conn.own_scale();
        if conn.window_to_tell().min(most) > told {
            // The window has opened, and the peer may wait for it.
            conn.tcb.flags.set(Flags::ACK);
        }
        self.tell_half_close(id);
    }

    /// Offers all that is in order and not consumed, as [`offer`](Self::offer).
    pub(super) fn offer_buffered<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.offer_buffered_once(id, now);
        while self.free_what_was_refused(port, id, now) {
            self.offer_buffered_once(id, now);
        }
    }

    fn offer_buffered_once(&mut self, id: u32, now: Moment) {
        self.refused = None;
        let sight = Sight::of(&self.conn(id));
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.buffer == NONE {
            return;
        }
        let buffer = tcb.buffer;
        let ready = self.cx.buffers.get(buffer).ready();
        let consumed = if tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            self.cx.counters.after_close += u64::from(!ready.is_empty());
            ready.len()
        } else if ready.is_empty() {
            0
        } else {
            let mut connection = Connection {
                sight,
                id,
                standing: &mut self.standings[id as usize],
                peers: &mut self.cx.peers,
                tcb: &mut self.records[id as usize].tcb,
                state: &mut self.states[id as usize],
                contents: &mut self.contents,
                writes: &mut self.writes,
                lists: &mut self.cx.lists,
                refused: &mut self.refused,
            };
            let stream = (connection.tcb.snd_una, connection.tcb.stream.end());
            let consumed = self.app.on_receive(&mut connection, ready);
            let consumed = consumed.min(ready.len());
            self.has_consumed(id, consumed, stream, now);
            consumed
        };
        self.cx.buffers.get_mut(buffer).consume(consumed);
        self.drop_empty_buffer(id);
    }

    fn drop_empty_buffer(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.buffer != NONE && self.cx.buffers.get(tcb.buffer).is_empty() {
            self.release_buffer(id);
        }
    }

    /// The peer's FIN, in order.
    #[cold]
    fn process_fin(&mut self, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.rcv_nxt = tcb.rcv_nxt + 1;
        if tcb.rcv_adv.before(tcb.rcv_nxt) {
            tcb.rcv_adv = tcb.rcv_nxt;
        }
        match tcb.state {
            State::Established => tcb.state = State::CloseWait,
            State::FinWait1 => tcb.state = State::Closing,
            State::FinWait2 => return self.enter_time_wait(id, now),
            _ => return,
        }
        tcb.flags.set(Flags::HALF_CLOSE);
        self.tell_half_close(id);
    }

    /// Tells the application that the peer has closed, once all that came
    /// before has had its chance.
    fn tell_half_close(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if !tcb.flags.has(Flags::HALF_CLOSE) || tcb.flags.has(Flags::WANTS_ROOM) {
            return;
        }
        tcb.flags.clear(Flags::HALF_CLOSE);
        if !tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            let (app, mut connection) = self.connection(id);
            app.on_half_close(&mut connection);
        }
    }

    pub(super) fn enter_time_wait(&mut self, id: u32, now: Moment) {
        self.finish(id, CloseReason::Finished);
        self.count_out(id);
        self.records[id as usize].tcb.state = State::TimeWait;
        self.time_waits += 1;
        let time_wait = self.cx.settings.time_wait_ms;
        let tcb = &mut self.records[id as usize].tcb;
        tcb.arm(Due::TimeWait, time_wait, now);
    }
}
