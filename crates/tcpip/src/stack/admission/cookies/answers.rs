//! Answers SYNs with cookies, and opens connections when peers return valid cookies.

use ip::Packet;
use nmio::Port;

use super::{Bearer, Terms};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::Tcb;
use crate::content::Family;
use crate::emit::turn_around;
use crate::mss::OwnMss;
use crate::outcome::ControlSegment;
use crate::stack::{Application, Stack};
use crate::wire::{Options, Segment, Seq, Timestamps};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Answers a SYN with a cookie and keeps no state. The answer is never retransmitted, so a
    /// spoofed SYN causes no amplification.
    #[inline(never)]
    pub(in crate::stack::admission) fn send_cookie<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: &Segment,
        options: &Options,
        mss: u16,
        now: Moment,
    ) {
        let addresses = packet.addresses();
        let advertised_mss = OwnMss::advertised_or_default(Family::of(&addresses), options.mss);
        let terms = Terms::new(self.agree(options, *segment));
        let bearer = Bearer {
            addresses: &addresses,
            ports: (segment.src_port, segment.dst_port),
            irs: segment.seq,
        };
        let iss = bearer.bake(&self.keys, advertised_mss, self.cx.own_mss, terms, now);
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        let (_, ts_offset) = self.keys.offsets(&addresses, src_port, dst_port);
        let (path, negotiated) = (packet.path_back(), terms.negotiated());
        let (timestamps, offsets) = (options.timestamps, (iss, ts_offset));
        let tcb = Tcb::half_open(path, *segment, timestamps, negotiated, mss, offsets, now);
        let (mut header, options) = tcb.syn_ack(&self.cx, now);
        if let Some(Timestamps { tsval, .. }) = &mut header.timestamps {
            *tsval = terms.stamp(*tsval);
        }
        if packet.payload_capacity() < header.len() + options.len() {
            return;
        }
        if turn_around(port, packet, &header, &options, tcb.ends()).is_ok() {
            self.flood.has_baked(now);
            self.cx.counters.cookies_sent += 1;
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_round += 1;
        } else {
            self.cx.counters.ring_full += 1;
        }
    }

    /// Checks a segment for a valid cookie. If the cookie is valid, opens a connection and
    /// processes the segment as the final ACK of its handshake. Returns the packet if the cookie is
    /// invalid, or if the address has reached its limit. Drops the segment if no TCB is available. Resets the
    /// connection during a drain.
    #[inline(never)]
    pub(in crate::stack::admission) fn redeem<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: &Segment,
        hash: u32,
        now: Moment,
    ) -> Option<Packet> {
        let addresses = packet.addresses();
        let family = Family::of(&addresses);
        let options = Options::read(&packet.payload()[..usize::from(segment.data_at)]);
        let terms = Terms::from_tsecr(options.timestamps);
        let irs = Seq(segment.seq.0.wrapping_sub(1));
        let iss = Seq(segment.ack.0.wrapping_sub(1));
        let bearer = Bearer {
            addresses: &addresses,
            ports: (segment.src_port, segment.dst_port),
            irs,
        };
        let advertised_mss = bearer.check(&self.keys, iss, self.cx.own_mss, terms, now);
        let capacity = port.pool().layout().capacity;
        let mss = advertised_mss.and_then(|advertised| {
            self.cx
                .own_mss
                .effective(family, Some(advertised), capacity)
        });
        let Some(mss) = mss else {
            self.cx.counters.cookies_bad += 1;
            return Some(packet);
        };
        if self.is_draining() {
            self.refuse(port, packet, segment);
            return None;
        }
        if self.has_too_many(addresses.src()) {
            self.cx.counters.per_address_full += 1;
            return Some(packet);
        }
        let Some(id) = self.take_tcb_or_evict(port, addresses.src(), now) else {
            // No reset is sent: the client will retransmit its data, and a TCB may be free by then.
            self.cx.counters.connections_full += 1;
            return None;
        };
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        let (_, ts_offset) = self.keys.offsets(&addresses, src_port, dst_port);
        let (path, negotiated) = (packet.path_back(), terms.negotiated());
        let (timestamps, offsets) = (options.timestamps, (iss, ts_offset));
        let tcb = Tcb::half_open(path, *segment, timestamps, negotiated, mss, offsets, now);
        self.insert(id, hash, tcb, now);
        let mut conn = self.conn(id);
        let (syn_ack, _) = conn.control_segment(ControlSegment::SynAck, now);
        conn.has_sent_control(ControlSegment::SynAck, &syn_ack);
        self.cx.counters.cookies_accepted += 1;
        self.handle_other(port, id, packet, now);
        None
    }
}
