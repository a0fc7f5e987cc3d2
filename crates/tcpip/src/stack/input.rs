//! Received segments find their connection.

use arrayvec::ArrayVec;
use ip::{ErrorKind, IcmpError, PROTOCOL_TCP, Packet};
use nmio::{Instant, Port};

use super::Stack;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Flags};
use crate::outcome::{AfterFin, Bare, Verdict};
use crate::stack::Application;
use crate::wire::{Block, CHECKSUM_AT, Control, Segment};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Handles a received TCP segment: updates its connection, calls the
    /// application, and queues what may be sent now.
    #[inline(always)]
    pub fn handle_segment<P: Port>(&mut self, port: &mut P, packet: Packet, now: Instant) {
        self.now = now;
        self.cx.counters.segments_received += 1;
        let Some(segment) = Segment::parse(packet.payload()) else {
            self.cx.counters.malformed += 1;
            return;
        };
        if !packet.checksum_ok(PROTOCOL_TCP, CHECKSUM_AT) {
            self.cx.counters.count_bad_checksum(&packet);
            return;
        }
        let addresses = packet.addresses();
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        let hash = self.keys.hash(&addresses, src_port, dst_port);
        let found = self.table.find(hash, |id| {
            let tcb = &self.records[id as usize].tcb;
            tcb.is_of(&addresses, src_port, dst_port)
        });
        let now = Moment::from(now);
        match found {
            Some(id) => self.handle_known(port, id, packet, segment, now),
            None => self.handle_unknown(port, packet, segment, hash, now),
        }
    }

    /// Most segments are what their connection expects, and tell nothing in
    /// options but timestamps.
    #[inline(always)]
    fn handle_known<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) {
        if segment.has_more_options() || !self.conn(id).expects(segment) {
            self.handle_other(port, id, packet, segment, now);
            return;
        }
        self.cx.twice = None;
        self.process(port, id, packet, segment, &[], now);
        self.keep_time(id, now);
    }

    /// A segment with any options, expected or not.
    #[cold]
    #[inline(never)]
    pub(super) fn handle_other<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        mut segment: Segment,
        now: Moment,
    ) {
        let mut sack = ArrayVec::new();
        self.cx.twice = None;
        if segment.has_more_options() {
            let header = &packet.payload()[..usize::from(segment.data_at)];
            (segment.timestamps, sack) = self.conn(id).read_options(header);
        }
        let admitted = if self.conn(id).expects(segment) {
            Some((packet, segment))
        } else {
            self.admit(port, id, packet, segment, now)
        };
        if let Some((packet, segment)) = admitted {
            self.process(port, id, packet, segment, &sack, now);
        }
        self.keep_time(id, now);
    }

    /// Checks a segment that is not what was expected. Gives the packet back when
    /// it is to be processed, cut to the window; otherwise it has been answered or
    /// dropped.
    #[inline(always)]
    fn admit<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) -> Option<(Packet, Segment)> {
        match self.conn(id).check(segment, now) {
            Verdict::Process(segment) => return Some((packet, segment)),
            Verdict::Establish(cut) => {
                let packet = self.establish(port, id, packet, segment, now)?;
                return Some((packet, cut));
            }
            Verdict::Drop => {}
            Verdict::Acknowledge => {
                self.answer(port, id, packet, Bare::Ack, now);
                self.cx.twice = None;
            }
            Verdict::SynAck => self.answer(port, id, packet, Bare::SynAck, now),
            Verdict::Reset => self.reset_unknown(port, packet, segment),
            Verdict::Reopen => self.reopen(port, id, packet, segment, now),
            Verdict::Forget => self.forget(id),
            Verdict::Close => self.close(id, CloseReason::Reset),
        }
        None
    }

    /// A segment that has passed the checks.
    #[inline(always)]
    fn process<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        sack: &[Block],
        now: Moment,
    ) {
        let in_disorder = self.records[id as usize].tcb.is_recovering() || !sack.is_empty();
        if in_disorder && self.conn(id).is_short_of_space(segment, sack) {
            self.lend_larger_board(id);
        }
        let link = packet.link_back();
        let mut conn = self.conn(id);
        let acked = conn.on_segment(segment, sack, (link, packet.ecn()), now);
        if conn.tcb.is_recovering() {
            self.settle_losses(id);
        }
        if acked > 0 && self.handle_acked(port, id, acked, now) == AfterFin::Finished {
            self.close(id, CloseReason::Finished);
            return;
        }
        if segment.len > 0 || segment.control.has(Control::FIN) {
            self.receive(port, id, &packet, segment, now);
        }
        if self.records[id as usize].tcb.flags.has(Flags::ABORT) {
            self.abort(port, id, now);
            return;
        }
        self.transmit(port, id, now);
        let tcb = &self.records[id as usize].tcb;
        let is_unsettled = tcb.is_unsettled();
        if tcb.flags.has(Flags::ACK) {
            self.answer(port, id, packet, Bare::Ack, now);
        }
        self.cx.twice = None;
        if is_unsettled {
            self.settle(id, now);
        }
    }

    /// `acked` bytes were acknowledged for the first time: the application is
    /// told what has arrived as a whole.
    #[inline(always)]
    fn handle_acked<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        acked: u32,
        now: Moment,
    ) -> AfterFin {
        let pace = self.pace;
        self.standings[id as usize].advance(acked, pace, now);
        if self.retire(id) {
            self.tell_sent(port, id, now);
        }
        if !self.records[id as usize].tcb.flags.has(Flags::CLOSE) {
            return AfterFin::Open;
        }
        let after = self.conn(id).on_fin_acked(now);
        if after == AfterFin::TimeWait {
            self.enter_time_wait(id, now);
        }
        after
    }

    /// Takes what has been acknowledged out of the stream. Whether an entry
    /// of it is done with.
    #[inline(always)]
    fn retire(&mut self, id: u32) -> bool {
        let Some(first) = self.conn(id).retire() else {
            return false;
        };
        self.release_source(first);
        while let Some(source) = self.conn(id).retire() {
            self.release_source(source);
        }
        true
    }

    /// Takes in what somebody says about a segment of ours. Only a smaller
    /// path MTU changes anything (RFC 5927: a connection survives all other
    /// errors), and only when it is about something in flight. What is to be
    /// sent again because of it is sent by the next
    /// [`handle_timers`](Self::handle_timers).
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
        let addresses = error.addresses.reversed();
        let (src_port, dst_port) = (error.dst_port, error.src_port);
        let hash = self.keys.hash(&addresses, src_port, dst_port);
        let found = self.table.find(hash, |id| {
            let tcb = &self.records[id as usize].tcb;
            tcb.is_of(&addresses, src_port, dst_port)
        });
        let Some(id) = found else {
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
