//! A segment's data and FIN: in order out of the received frame, otherwise
//! through a receive buffer.

use ip::Packet;
use nmio::Port;

use super::Stack;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::Flags;
use crate::outcome::Route;
use crate::stack::Application;
use crate::wire::{Control, Segment};

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
        let data = &packet.payload()[usize::from(segment.data_at)..][..usize::from(segment.len)];
        match self.conn(id).on_data(segment, now) {
            Route::Dropped => return,
            Route::Buffered => return self.receive_buffered(port, id, data, segment, now),
            Route::Offered => {}
        }
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
        consumed
    }

    /// Asks the application, and takes note of the connection's progress.
    #[inline(always)]
    fn offer_once(&mut self, id: u32, data: &[u8], now: Moment) -> usize {
        self.refused = None;
        let pace = self.pace;
        let (app, mut connection) = self.connection(id);
        let owed_nothing = connection.tcb.stream.is_empty();
        let consumed = app.on_receive(&mut connection, data).min(data.len());
        if owed_nothing && !connection.tcb.stream.is_empty() {
            connection.standing.renew(now);
        } else {
            connection.standing.advance(consumed as u32, pace, now);
        }
        if connection.tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            // What it has left it never takes.
            data.len()
        } else {
            consumed
        }
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
        self.take_buffer(port, id, now);
        self.conn(id).keep(rest)
    }

    /// Data that is out of order, or comes behind what is not consumed yet.
    #[cold]
    fn receive_buffered<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        data: &[u8],
        segment: Segment,
        now: Moment,
    ) {
        self.take_buffer(port, id, now);
        let (has_more, is_fin_next) = self.conn(id).store(data, segment);
        if has_more {
            self.offer_buffered(port, id, now);
        }
        if is_fin_next {
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
        self.conn(id).tell_open_window();
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
        if let Some((bytes, ready)) = self.conn(id).lend_bytes() {
            let consumed = self.offer_once(id, &bytes[..ready], now);
            self.conn(id).return_bytes(bytes, consumed);
        }
    }

    /// The peer's FIN, in order.
    #[cold]
    fn process_fin(&mut self, id: u32, now: Moment) {
        if self.conn(id).on_fin() {
            self.enter_time_wait(id, now);
        } else {
            self.tell_half_close(id);
        }
    }

    /// Tells the application that the peer has closed, once all that came
    /// before has had its chance.
    fn tell_half_close(&mut self, id: u32) {
        if self.conn(id).takes_half_close() {
            let (app, mut connection) = self.connection(id);
            app.on_half_close(&mut connection);
        }
    }
}
