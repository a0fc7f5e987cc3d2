//! What connections have planned goes to the port.

use ip::Packet;
use nmio::Port;

use super::Stack;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Conn, Flags, Plan};
use crate::emit::{Emitter, NoRoom, send_control, turn_round};
use crate::stack::Application;
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
    pub(super) fn send<P: Port>(
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

    /// A connection in hand, and what sends its segments.
    #[inline(always)]
    fn conn_and_emitter(&mut self, id: u32) -> (Conn<'_, C>, Emitter<'_, A>) {
        let (app, contents) = (&mut self.app, &mut self.contents);
        let emitter = Emitter::new(app, contents, &self.writes, self.config.mode);
        let conn = Conn::new(&mut self.records[id as usize], &mut self.cx);
        (conn, emitter)
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
}
