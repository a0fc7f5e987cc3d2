//! The receive path: finds the connection of a segment, and offers the segment's data to the
//! application. Data that is next in order is offered directly from the received frame, unless the
//! connection already has a receive buffer. All other data is stored in that buffer first.

use arrayvec::ArrayVec;
use ip::{Addresses, ErrorKind, IcmpError, PROTOCOL_TCP, Packet};
use nmio::{Instant, Port};

use super::{Housekeeping, PACE_BITS, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::conn::Conn;
use crate::connection::{CloseReason, Flags, State};
use crate::outcome::{ControlSegment, Route, Verdict};
use crate::stack::Application;
use crate::stream::Source;
use crate::wire::{Block, CHECKSUM_AT, Control, Segment, Seq};

/// Maximum time in milliseconds by which a connection's virtual clock may be ahead of the real
/// time.
const CREDIT_MS: u32 = 20_000;

/// What remains to do after a segment was processed.
#[derive(Clone, Copy, Default)]
struct After {
    /// Whether an ACK must be sent.
    acks: bool,
    /// Whether [`Stack::settle`] must be called.
    is_unsettled: bool,
}

impl Housekeeping {
    /// Advances the virtual clock by the time that `bytes` bytes take at [`Stack::pace`], but to at
    /// most [`CREDIT_MS`] after `now`. Called when that many bytes were acknowledged or consumed.
    #[inline(always)]
    fn advance(&mut self, bytes: u32, pace: u64, now: Moment) {
        let max_gain = now
            .millis
            .wrapping_add(CREDIT_MS)
            .wrapping_sub(self.progress);
        let gained = (u64::from(bytes) * pace) >> PACE_BITS;
        let gained = gained.min(max_gain.into()) as u32;
        self.progress = self.progress.wrapping_add(gained);
    }
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Handles a received TCP segment: updates its connection, calls the application, and sends
    /// everything that may be sent now.
    #[inline(always)]
    pub fn handle_segment<P: Port>(&mut self, port: &mut P, packet: Packet, now: Instant) {
        self.now = now;
        let Some(segment) = self.parse(&packet) else {
            return;
        };
        self.handle_valid(port, packet, segment, Moment::from(now));
    }

    /// Counts a packet, and returns its segment if it is well-formed.
    #[inline(always)]
    fn parse(&mut self, packet: &Packet) -> Option<Segment> {
        self.cx.counters.segments_received += 1;
        if !packet.checksum_ok(PROTOCOL_TCP, CHECKSUM_AT) {
            self.count_bad_checksum(packet.has_partial_checksum(PROTOCOL_TCP, CHECKSUM_AT));
            return None;
        }
        let segment = Segment::parse(packet.payload());
        self.cx.counters.malformed += u64::from(segment.is_none());
        segment
    }

    /// Handles a segment to an own address on which the application does not serve the segment's port:
    /// answers with a reset (RFC 9293, section 3.10.7.1).
    #[cold]
    pub fn refuse_segment<P: Port>(&mut self, port: &mut P, packet: Packet) {
        let Some(segment) = self.parse(&packet) else {
            return;
        };
        let is_reset = segment.control.has(Control::RST);
        if is_reset || segment.src_port == 0 || !self.config.reset_unknown {
            self.cx.counters.no_connection += 1;
        } else {
            self.reset_unknown(port, packet, &segment);
        }
    }

    /// Handles a segment with a correct checksum. The fast path is for expected segments that have
    /// no options or only timestamps. Nearly all segments are of this kind.
    ///
    /// The other functions are not inlined. They get a packet of their own and parse the segment again,
    /// so that those of the fast path stay in registers.
    #[inline(always)]
    fn handle_valid<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) {
        let ports = (segment.src_port, segment.dst_port);
        let (hash, found) = self.find_tcb(packet.addresses(), ports);
        match found {
            Some(id) if !segment.has_more_options() && self.conn(id).expects(segment) => {
                let after = self.process(port, id, &packet, segment, &[], now);
                self.finish_segment(port, id, packet, after, now);
            }
            Some(id) => self.handle_other(port, id, packet.moved(), now),
            None => self.handle_unknown(port, packet.moved(), hash, now),
        }
    }

    /// Returns the hash of these addresses and ports, of which the peer's come first, and their
    /// connection.
    #[inline(always)]
    fn find_tcb(&self, addresses: Addresses, (src, dst): (u16, u16)) -> (u32, Option<u32>) {
        let hash = self.keys.hash(&addresses, src, dst);
        let is_it = |id| self.tcb(id).matches(&addresses, src, dst);
        (hash, self.table.index.find(hash, is_it))
    }

    #[cold]
    fn count_bad_checksum(&mut self, is_partial: bool) {
        if is_partial {
            self.cx.counters.partial_checksum += 1;
        } else {
            self.cx.counters.bad_checksum += 1;
        }
    }

    /// The slow path: handles any segment, expected or not, with any options.
    #[cold]
    #[inline(never)]
    pub(super) fn handle_other<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        now: Moment,
    ) {
        let Some(mut segment) = Segment::parse(packet.payload()) else {
            return;
        };
        let mut sack = ArrayVec::new();
        if segment.has_more_options() {
            let header = &packet.payload()[..usize::from(segment.data_at)];
            (segment.timestamps, sack) = self.conn(id).read_options(header);
        }
        let admitted = if self.conn(id).expects(segment) {
            Some(packet)
        } else {
            self.admit(port, id, packet, &mut segment, now)
        };
        if let Some(packet) = admitted {
            let in_disorder = self.tcb(id).is_recovering() || !sack.is_empty();
            if in_disorder && self.conn(id).needs_larger_board(Some((segment, &sack))) {
                self.lend_larger_board(id);
            }
            let after = self.process(port, id, &packet, segment, &sack, now);
            self.finish_segment(port, id, packet, after, now);
        } else {
            self.cx.dsack = None;
            self.reschedule_if_late(id, now);
        }
    }

    /// Checks an unexpected segment. If the segment is acceptable, trims it to the window and returns
    /// the packet. Otherwise, does what the [`Verdict`] says and returns `None`. Also returns `None`
    /// after the usual end of a handshake, an ACK without data, because nothing is left to do.
    #[inline(always)]
    fn admit<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: &mut Segment,
        now: Moment,
    ) -> Option<Packet> {
        match self.conn(id).check(segment, now) {
            Verdict::Process => return Some(packet),
            Verdict::Establish => {
                let packet = self.establish(port, id, packet, now)?;
                let has_work = segment.sequence_len() > 0 || self.has_work(id, &packet);
                return has_work.then_some(packet);
            }
            Verdict::Drop => {}
            Verdict::Acknowledge => {
                self.answer(port, id, packet, ControlSegment::Ack, now);
            }
            Verdict::SynAck => self.answer(port, id, packet, ControlSegment::SynAck, now),
            Verdict::Reset => self.reset_unknown(port, packet, segment),
            Verdict::Reopen => self.reopen(port, id, packet, *segment, now),
            Verdict::Forget => self.forget(id),
            Verdict::Close => self.close(id, CloseReason::Reset),
        }
        None
    }

    /// Returns true if the connection that `packet` has just established has something to do. It may
    /// have something to send, or `on_accept` has called for something. The packet may also have come
    /// from another router than the SYN.
    #[inline(always)]
    fn has_work(&mut self, id: u32, packet: &Packet) -> bool {
        let conn = self.conn(id);
        let flags = Flags::ABORT | Flags::WANTS_ROOM | Flags::ACK_PENDING;
        conn.has_new() || conn.tcb.flags.intersects(flags) || !packet.came_over(&conn.tcb.path.link)
    }

    /// Processes an acceptable segment: its acknowledgement, its data and its FIN. Returns what
    /// [`finish_segment`](Self::finish_segment) must do.
    #[inline(always)]
    fn process<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: &Packet,
        segment: Segment,
        sack: &[Block],
        now: Moment,
    ) -> After {
        let mut conn = Conn::new(&mut self.table.records[id as usize], &mut self.cx);
        // Our own link address is not compared, because `Stack::set_own_mac` changes it.
        let has_moved = !packet.came_over(&conn.tcb.path.link);
        let link = has_moved.then(|| packet.link_back());
        let acked = conn.on_segment(segment, sack, (link, || packet.ecn()), now);
        let mut first = None;
        if acked > 0 {
            self.table.housekeeping[id as usize].advance(acked, self.pace, now);
            let (snd_una, _) = conn.tcb.edges();
            if snd_una.0 < acked {
                self.table.histories[id as usize].add(1, 0, 0);
            }
            first = conn.retire();
        }
        if conn.tcb.is_recovering() {
            self.settle_losses(id);
        }
        if let Some(first) = first {
            self.retire_from(id, first);
            self.report_sent(port, id, now);
        }
        if acked > 0 && self.tcb(id).flags.intersects(Flags::CLOSE) {
            match self.conn(id).on_fin_acked(now) {
                State::TimeWait => self.enter_time_wait(id),
                State::Closed => {
                    self.close(id, CloseReason::Finished);
                    return After::default();
                }
                _ => {}
            }
        }
        if segment.len > 0 || segment.control.has(Control::FIN) {
            let (_, before) = self.tcb(id).edges();
            self.receive(port, id, packet, segment, now);
            let (_, rcv_nxt) = self.tcb(id).edges();
            if rcv_nxt.0 < before.0 {
                self.table.histories[id as usize].add(0, 1, 0);
            }
        }
        if self.tcb(id).flags.intersects(Flags::ABORT) {
            self.abort(port, id, now);
            return After::default();
        }
        self.transmit(port, id, now);
        let tcb = self.tcb(id);
        let flags = tcb.flags;
        let waits_for_room = flags.intersects(Flags::WANTS_ROOM) && tcb.stream.is_empty();
        After {
            acks: flags.intersects(Flags::ACK_PENDING),
            is_unsettled: waits_for_room || tcb.state == State::TimeWait,
        }
    }

    /// Finishes the processing of a segment: sends an ACK in its frame if nothing else has carried
    /// the ACK.
    #[inline(always)]
    fn finish_segment<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        after: After,
        now: Moment,
    ) {
        if after.acks {
            self.answer(port, id, packet, ControlSegment::Ack, now);
        }
        self.cx.dsack = None;
        if after.is_unsettled {
            self.settle(id, now);
        }
        self.reschedule_if_late(id, now);
    }

    /// Does rarely needed work after a segment. In TIME-WAIT, forgets the connection if more than
    /// `max_time_wait` connections are in that state. In other states, sets a deadline to call an
    /// application that waits for room.
    #[cold]
    fn settle(&mut self, id: u32, now: Moment) {
        let tcb = self.tcb(id);
        if tcb.state == State::TimeWait {
            if self.cx.states.of(State::TimeWait) > self.config.max_time_wait {
                self.cx.counters.time_wait_overflow += 1;
                self.forget(id);
            }
            return;
        }
        self.conn(id).wait_for_room(now);
    }

    /// Releases the stream entry with the source `first`, and all entries behind it that are
    /// acknowledged.
    #[inline(always)]
    fn retire_from(&mut self, id: u32, first: Source) {
        self.sources.release(first, &mut self.cx.peers);
        while let Some(source) = self.conn(id).retire() {
            self.sources.release(source, &mut self.cx.peers);
        }
    }

    /// Handles a segment's data and FIN.
    #[inline(always)]
    fn receive<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: &Packet,
        segment: Segment,
        now: Moment,
    ) {
        let data = &packet.payload()[usize::from(segment.data_at)..][..usize::from(segment.len)];
        let (seq, has_fin) = (segment.seq, segment.control.has(Control::FIN));
        match self.conn(id).on_data(segment, now) {
            Route::Dropped => return,
            Route::Buffered => return self.receive_buffered(port, id, data, (seq, has_fin), now),
            Route::Offered => {}
        }
        let consumed = self.offer(port, id, data, now);
        if consumed < data.len() && !self.store_unconsumed(port, id, &data[consumed..], now) {
            return;
        }
        if has_fin {
            self.process_fin(port, id, now);
        }
    }

    /// Offers in-order data to the application, and returns the number of bytes consumed. Offers
    /// unconsumed data again as long as [`should_offer_again`](Self::should_offer_again) returns
    /// true. If our side is closed, discards the data instead.
    #[inline(always)]
    fn offer<P: Port>(&mut self, port: &mut P, id: u32, data: &[u8], now: Moment) -> usize {
        let flags = self.tcb(id).flags;
        if data.is_empty() || flags.intersects(Flags::CLOSE | Flags::ABORT) {
            return self.discard(data);
        }
        if self.housekeeping(id).is_parked {
            return 0;
        }
        let mut taken = self.offer_once(id, data, now);
        let mut consumed = taken;
        while consumed < data.len() && self.should_offer_again(port, id, taken, now) {
            taken = self.offer_once(id, &data[consumed..], now);
            consumed += taken;
        }
        consumed
    }

    /// Returns true if the unconsumed data must be offered again immediately, after `taken` bytes
    /// were consumed. There are two reasons: the application has requested another offer, or
    /// another connection was evicted to free a pool slot.
    #[cold]
    fn should_offer_again<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        taken: usize,
        now: Moment,
    ) -> bool {
        let housekeeping = self.housekeeping(id);
        if housekeeping.is_parked {
            return false;
        }
        let is_requested = housekeeping.offers_again && taken > 0;
        is_requested || self.free_exhausted_pool(port, id, now)
    }

    /// Calls `on_receive` once, and updates the connection's progress.
    #[inline(always)]
    fn offer_once(&mut self, id: u32, data: &[u8], now: Moment) -> usize {
        self.requests.exhausted_pool = None;
        let pace = self.pace;
        let (app, mut connection) = self.connection(id);
        connection.housekeeping.offers_again = false;
        let was_empty = connection.tcb.stream.is_empty();
        let consumed = app.on_receive(&mut connection, data).min(data.len());
        if was_empty && !connection.tcb.stream.is_empty() {
            connection.housekeeping.renew(now);
        } else {
            connection.housekeeping.advance(consumed as u32, pace, now);
        }
        if connection.tcb.flags.intersects(Flags::CLOSE | Flags::ABORT) {
            // The application has closed or aborted, so it will not be offered the remaining data.
            data.len()
        } else {
            consumed
        }
    }

    /// Counts a segment whose data the application will never read, and returns the length of that
    /// data as the number of bytes consumed.
    #[cold]
    fn discard(&mut self, data: &[u8]) -> usize {
        self.cx.counters.data_after_close += u64::from(!data.is_empty());
        data.len()
    }

    /// Stores unconsumed data in a receive buffer. Returns `false` if no buffer is available. The
    /// peer must then retransmit the data.
    #[cold]
    fn store_unconsumed<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        unconsumed: &[u8],
        now: Moment,
    ) -> bool {
        self.take_buffer(port, id, now);
        self.conn(id).store_unconsumed(unconsumed)
    }

    /// Stores a segment's data in the receive buffer: see `Conn::store`. If more data is in order
    /// now, offers it. Then processes the peer's FIN if the FIN is in order.
    #[cold]
    fn receive_buffered<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        data: &[u8],
        (seq, has_fin): (Seq, bool),
        now: Moment,
    ) {
        self.take_buffer(port, id, now);
        let (has_more, is_fin_next) = self.conn(id).store(data, seq, has_fin);
        if has_more {
            self.offer_buffered(port, id, now);
        }
        if is_fin_next {
            self.process_fin(port, id, now);
        }
    }

    /// Calls the application if an earlier write found no room, or if all written data has been
    /// acknowledged.
    #[inline(always)]
    fn report_sent<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = self.tcb_mut(id);
        if tcb.flags.intersects(Flags::WANTS_ROOM) {
            self.offer_again(port, id, now);
        } else if tcb.stream.is_empty() {
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
            if connection.housekeeping.offers_again {
                self.offer_rest(port, id, now);
            }
        }
    }

    /// Calls `on_sent` and offers unconsumed data, after an earlier write found no room.
    #[cold]
    pub(super) fn offer_again<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = self.tcb_mut(id);
        tcb.flags -= Flags::WANTS_ROOM;
        loop {
            self.requests.exhausted_pool = None;
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
            if !self.free_exhausted_pool(port, id, now) {
                break;
            }
        }
        self.offer_rest(port, id, now);
    }

    /// Offers all unconsumed in-order data, or discards that data if our side is closed. Then
    /// reports the peer's FIN, if it has arrived.
    pub(super) fn offer_rest<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.offer_buffered(port, id, now);
        self.report_half_close(port, id, now);
    }

    /// Offers the unconsumed in-order data in the receive buffer, repeatedly if
    /// [`should_offer_again`](Self::should_offer_again) returns true.
    fn offer_buffered<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let mut taken = self.offer_buffered_once(id, now);
        while self.should_offer_again(port, id, taken, now) {
            taken = self.offer_buffered_once(id, now);
        }
    }

    /// Offers the data in the receive buffer once, and returns the number of bytes consumed.
    fn offer_buffered_once(&mut self, id: u32, now: Moment) -> usize {
        self.requests.exhausted_pool = None;
        let flags = self.tcb(id).flags;
        if self.housekeeping(id).is_parked && !flags.intersects(Flags::CLOSE) {
            return 0;
        }
        let Some((bytes, ready)) = self.conn(id).lend_bytes() else {
            return 0;
        };
        let consumed = self.offer_once(id, &bytes[..ready], now);
        self.conn(id).return_bytes(bytes, consumed);
        consumed
    }

    /// Handles the start of TIME-WAIT: tells the application that the connection has ended, and
    /// no longer counts it for its client.
    fn enter_time_wait(&mut self, id: u32) {
        self.finish(id, CloseReason::Finished);
        self.uncount_peer(id);
    }

    /// Handles the peer's FIN after all earlier data has arrived.
    #[cold]
    fn process_fin<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if self.conn(id).on_fin(now) {
            self.enter_time_wait(id);
        } else {
            self.report_half_close(port, id, now);
        }
    }

    /// Tells the application that the peer has closed its side, if the peer's FIN has arrived and
    /// the application does not know yet. Does nothing while the connection is parked, or while the
    /// application waits for room.
    fn report_half_close<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if !self.housekeeping(id).is_parked && self.conn(id).takes_half_close() {
            let (app, mut connection) = self.connection(id);
            app.on_half_close(&mut connection);
            if connection.housekeeping.offers_again {
                self.offer_buffered(port, id, now);
            }
        }
    }

    /// Handles an ICMP error about one of our segments. The only error that has an effect is a
    /// smaller path MTU, provided that the segment is in flight. All other errors are ignored (RFC
    /// 5927). After a reduction of the path MTU, the next call of
    /// [`handle_timers`](Self::handle_timers) retransmits the data in flight in smaller segments.
    #[cold]
    pub fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) {
        self.now = now;
        if self.reduce_mss(error, Moment::from(now)) {
            self.cx.counters.path_mtu_reductions += 1;
        } else {
            self.cx.counters.icmp_ignored += 1;
        }
    }

    fn reduce_mss(&mut self, error: &IcmpError, now: Moment) -> bool {
        let ErrorKind::TooBig { mtu } = error.kind else {
            return false;
        };
        if error.protocol != PROTOCOL_TCP {
            return false;
        }
        // The error quotes a segment of ours.
        let ports = (error.dst_port, error.src_port);
        let (_, Some(id)) = self.find_tcb(error.addresses.reversed(), ports) else {
            return false;
        };
        if !self.conn(id).on_too_big(mtu, error.sequence, now) {
            return false;
        }
        self.settle_losses(id);
        self.block(id);
        true
    }
}

#[cfg(test)]
#[path = "input/progress_tests.rs"]
mod tests;
