//! What connections have planned goes to the port.

use ip::Packet;
use nmio::Port;

use super::Stack;
use crate::app::Application;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Flags, Kind, Plan};
use crate::emit::{NoRoom, send_control, turn_round};
use crate::segments::Family;
use crate::wire::Written;

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Sends what is lost and what is new, as far as the congestion window,
    /// the peer's window and the TX ring allow.
    #[inline(always)]
    pub(super) fn transmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if self.records[id as usize].tcb.is_recovering() {
            self.retransmit(port, id, now);
        }
        if !self.conn(id).has_new() {
            return;
        }
        if let Some(plan) = self.conn(id).next_size_probe(now) {
            // Without room it goes another time.
            let _ = self.send(port, id, &plan, now);
        }
        let segmentation = port.capabilities().segmentation;
        let mut room = port.room();
        let (mut conn, mut emitter) = self.conn_and_emitter(id);
        let mut burst = conn.begin(segmentation, now);
        while let Some(plan) = conn.next(&mut burst, room, now) {
            let counters = &mut conn.cx.counters;
            if emitter.send(port, conn.tcb, plan, counters).is_err() {
                burst.block();
                break;
            }
            conn.has_sent_next(&mut burst, plan, now);
            room -= 1;
        }
        if conn.end(&burst, now) {
            self.block(id);
        }
    }

    /// Sends again what is lost.
    #[cold]
    #[inline(never)]
    fn retransmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.ensure_space(id);
        while let Some(plan) = self.conn(id).next_lost(now) {
            if self.send(port, id, &plan, now).is_err() {
                self.block(id);
                return;
            }
            self.ensure_space(id);
        }
    }

    /// Sends a segment that is not the next of new data.
    #[cold]
    #[inline(never)]
    fn send<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        plan: &Plan,
        now: Moment,
    ) -> Result<(), NoRoom> {
        if port.room() == 0 {
            return Err(NoRoom);
        }
        let (mut conn, mut emitter) = self.conn_and_emitter(id);
        emitter.send(port, conn.tcb, *plan, &mut conn.cx.counters)?;
        conn.has_sent(plan, now);
        Ok(())
    }

    /// Sends a probe that a deadline asks for.
    pub(super) fn send_probe<P: Port>(&mut self, port: &mut P, id: u32, plan: &Plan, now: Moment) {
        let sent = self.send(port, id, plan, now);
        if plan.kind == Kind::WindowProbe {
            if sent.is_err() {
                self.block(id);
            }
            self.conn(id).arm_window_probe(sent.is_ok(), now);
        }
    }

    /// Sends what a full ring has held up.
    pub(super) fn resume<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.transmit(port, id, now);
        if self.records[id as usize].tcb.flags.has(Flags::ACK) {
            self.acknowledge_from_scratch(port, id, now);
        }
    }

    /// Acknowledges with the received frame itself.
    #[inline(always)]
    pub(super) fn acknowledge<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        now: Moment,
    ) {
        let mut conn = self.conn(id);
        let (header, options) = conn.acknowledgement(now);
        let fits = packet.payload_capacity() >= header.len() + options.bytes().len();
        if fits && turn_round(port, packet, &header, &options, conn.tcb.ports()).is_ok() {
            conn.has_told(header.window);
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_round += 1;
        } else {
            conn.tcb.flags.set(Flags::ACK);
            self.block(id);
        }
    }

    /// Acknowledges when no received frame is in hand.
    #[cold]
    fn acknowledge_from_scratch<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let mut conn = self.conn(id);
        let (header, options) = conn.acknowledgement(now);
        if send_control(port, conn.tcb, &header, &options).is_ok() {
            conn.has_told(header.window);
            self.cx.counters.segments_sent += 1;
        } else {
            conn.tcb.flags.set(Flags::ACK);
            self.block(id);
        }
    }

    /// Asks a silent peer whether it is there.
    #[cold]
    pub(super) fn send_keep_alive<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let mut conn = self.conn(id);
        let (header, options) = conn.keep_alive(now);
        if send_control(port, conn.tcb, &header, &options).is_ok() {
            conn.has_sent_keep_alive();
            self.cx.counters.segments_sent += 1;
        }
    }

    /// If the ring is full, the retransmission timer sends it.
    pub(super) fn send_syn_ack<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        now: Moment,
    ) {
        let tcb = &mut self.records[id as usize].tcb;
        let (header, options) = tcb.syn_ack(&self.cx, now);
        if packet.payload_capacity() < header.len() + options.bytes().len() {
            return;
        }
        if turn_round(port, packet, &header, &options, tcb.ports()).is_ok() {
            tcb.has_told_unscaled(header.window);
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_round += 1;
        } else {
            self.cx.counters.blocked += 1;
        }
    }

    /// The same when no received frame is in hand.
    #[cold]
    pub(super) fn send_syn_ack_from_scratch<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        now: Moment,
    ) {
        let tcb = &mut self.records[id as usize].tcb;
        let (header, options) = tcb.syn_ack(&self.cx, now);
        if send_control(port, tcb, &header, &options).is_ok() {
            tcb.has_told_unscaled(header.window);
            self.cx.counters.segments_sent += 1;
        }
    }

    /// Resets a connection, without waiting for room.
    #[cold]
    pub(super) fn send_reset<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let conn = self.conn(id);
        let header = conn.reset(now);
        if send_control(port, conn.tcb, &header, &Written::default()).is_ok() {
            self.cx.counters.segments_sent += 1;
            self.cx.counters.resets_sent += 1;
        } else {
            self.cx.counters.ring_full += 1;
        }
    }

    /// The application has aborted.
    #[cold]
    pub(super) fn abort<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.send_reset(port, id, now);
        self.close(id, CloseReason::Aborted);
    }

    /// Sees to space on a scoreboard that is nearly full.
    pub(super) fn ensure_space(&mut self, id: u32) {
        if self.conn(id).lacks_space() {
            self.lend_larger_board(id);
        }
    }

    /// Gives back what loss recovery needs no longer, and finds a class for a
    /// connection whose segments have another size now.
    pub(super) fn settle_losses(&mut self, id: u32) {
        if let Some(left) = self.conn(id).settle() {
            self.contents.release_class(left);
            self.find_class(id);
        }
    }

    /// Finds a class for the segments of a connection.
    pub(super) fn find_class(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        let family = Family::of(&tcb.path.addresses);
        tcb.class = self.contents.acquire_class(family, tcb.mss);
    }
}
