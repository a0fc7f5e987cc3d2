//! Sending of lost and new data.

use nmio::Port;

use super::{Application, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Sends lost and new data, as far as the congestion window, the peer's window and the TX ring
    /// allow. If other connections already wait for the ring, this one waits for its turn.
    #[inline(always)]
    pub(super) fn transmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if !self.blocked.is_empty() {
            self.wait_for_turn(id);
            return;
        }
        self.transmit_at_most(port, id, usize::MAX, now);
    }

    /// Makes a connection with data to send wait behind those that already wait for the ring.
    #[cold]
    #[inline(never)]
    fn wait_for_turn(&mut self, id: u32) {
        if self.records[id as usize].tcb.is_recovering() || self.conn(id).has_new() {
            self.block(id);
        }
    }

    /// Like [`transmit`](Self::transmit), but sends at most `limit` packets with new data, and does
    /// not wait for other connections.
    #[inline(always)]
    pub(super) fn transmit_at_most<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        limit: usize,
        now: Moment,
    ) {
        if self.records[id as usize].tcb.is_recovering() {
            self.retransmit(port, id, now);
        }
        if !self.conn(id).has_new() {
            return;
        }
        if let Some(plan) = self.conn(id).next_mtu_probe(now) {
            // If the TX ring is full, a later call sends the probe.
            let _ = self.send(port, id, &plan, now);
        }
        let segmentation = port.capabilities().segmentation;
        let mut room = port.room().min(limit);
        let (mut conn, mut emitter) = self.conn_and_emitter(id);
        let mut burst = conn.begin_burst(segmentation, now);
        let mut is_refused = false;
        while let Some(plan) = conn.next_segment(&mut burst, room, now) {
            let counters = &mut conn.cx.counters;
            if emitter.send(port, conn.tcb, plan, counters).is_err() {
                is_refused = true;
                break;
            }
            conn.has_sent_segment(&mut burst, plan, now);
            room -= 1;
        }
        if conn.end_burst(&burst, is_refused, now) {
            self.block(id);
        }
    }

    /// Retransmits lost segments.
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
}
