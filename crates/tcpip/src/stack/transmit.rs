//! Sending of lost and new data.

use nmio::Port;

use super::{Application, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::Flags;
use crate::wire::TIMESTAMPED_HEADER_LEN;

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
        if self.tcb(id).is_recovering() || self.conn(id).has_new() {
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
        let conn = self.conn(id);
        if conn.tcb.is_recovering() {
            return self.transmit_in_recovery(port, id, limit, now);
        }
        if conn.has_new() {
            if conn.tcb.flags.intersects(Flags::REDUCED_MTU) {
                self.probe_mtu(port, id, now);
            }
            self.transmit_new(port, id, limit, now);
        }
    }

    /// Retransmits lost segments, and then sends new data.
    #[cold]
    #[inline(never)]
    fn transmit_in_recovery<P: Port>(&mut self, port: &mut P, id: u32, limit: usize, now: Moment) {
        self.retransmit(port, id, now);
        if self.conn(id).has_new() {
            self.transmit_new(port, id, limit, now);
        }
    }

    /// Sends a path MTU probe if one is due and enough data follows.
    #[cold]
    #[inline(never)]
    fn probe_mtu<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if let Some(plan) = self.conn(id).next_mtu_probe(now) {
            // If the TX ring is full, a later call sends the probe.
            let _ = self.send(port, id, &plan, now);
        }
    }

    #[inline(always)]
    fn transmit_new<P: Port>(&mut self, port: &mut P, id: u32, limit: usize, now: Moment) {
        match self.segmentation(port, id) {
            0 => self.send_burst(port, id, limit, 0, now),
            segmentation => self.send_burst_of_runs(port, id, limit, segmentation, now),
        }
    }

    /// Returns the maximum size in bytes of a super-segment over IPv4 to this peer, or 0 if there can
    /// be none.
    #[inline(always)]
    fn segmentation<P: Port>(&self, port: &P, id: u32) -> usize {
        let capabilities = port.capabilities();
        if capabilities.segmentation == 0 {
            return 0;
        }
        // The port may cut super-segments into packets of a fixed length. The peer and the path must
        // accept them.
        let tcb = self.tcb(id);
        let longest =
            tcb.path.addresses.header_len() + TIMESTAMPED_HEADER_LEN + usize::from(tcb.mss);
        if longest < capabilities.min_segment {
            return 0;
        }
        capabilities.segmentation
    }

    /// Sends new data to a port that accepts super-segments. The compiler makes two copies of
    /// [`send_burst`](Self::send_burst), so that runs cost nothing on a port that accepts none.
    #[inline(never)]
    fn send_burst_of_runs<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        limit: usize,
        segmentation: usize,
        now: Moment,
    ) {
        self.send_burst(port, id, limit, segmentation, now);
    }

    /// Sends new data in at most `limit` packets. `segmentation` is the maximum size in bytes of a
    /// super-segment over IPv4, or 0.
    #[inline(always)]
    fn send_burst<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        limit: usize,
        segmentation: usize,
        now: Moment,
    ) {
        let mut room = port.room().min(limit);
        let min_run = port.capabilities().min_run;
        let (mut conn, mut emitter) = self.conn_and_emitter(id);
        let mut burst = conn.begin_burst(segmentation, min_run, now);
        let mut is_refused = false;
        while let Some(plan) = conn.next_segment(&mut burst, room, now) {
            if emitter.send(port, conn.tcb, plan, conn.cx).is_err() {
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
