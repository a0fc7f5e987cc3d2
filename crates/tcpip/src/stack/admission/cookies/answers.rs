//! Answers SYNs with cookies, and opens connections when peers return valid cookies.

use ip::{Addresses, Packet};
use nmio::Port;

use super::{Syn, TsOptions};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Opening, Tcb};
use crate::content::Family;
use crate::emit::turn_around;
use crate::mss::OwnMss;
use crate::outcome::ControlSegment;
use crate::stack::{Application, Stack};
use crate::wire::{Options, Segment, Timestamps};

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
        let kept = TsOptions::new(self.agree(options, *segment));
        let ports = (segment.src_port, segment.dst_port);
        let syn = Syn::new(&self.keys, &addresses, ports, segment.seq);
        let iss = syn.cookie(&self.keys, advertised_mss, self.cx.own_mss, kept, now);
        let opening = Opening {
            negotiated: kept.negotiated(),
            mss,
            iss,
            ts_offset: syn.ts_offset,
        };
        let tcb = Tcb::half_open(*segment, packet.path_back(), opening, now);
        let (mut header, options) = tcb.syn_ack(&self.cx, now);
        if let Some(Timestamps { tsval, .. }) = &mut header.timestamps {
            *tsval = kept.stamp(*tsval);
        }
        if packet.payload_capacity() < header.len() + options.len() {
            return;
        }
        if turn_around(port, packet, &header, &options, tcb.ends()).is_ok() {
            self.flood.has_sent_cookie(now);
            self.cx.counters.cookies_sent += 1;
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_around += 1;
        } else {
            self.cx.counters.ring_full += 1;
        }
    }

    /// Accepts the cookie of a segment: opens a connection, and processes the segment as the final
    /// ACK of its handshake. Returns the packet if the cookie is invalid, or if the address has
    /// reached its limit. Drops the segment if no TCB is available. Resets the connection during a
    /// drain.
    #[inline(never)]
    pub(in crate::stack::admission) fn accept_cookie<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: &Segment,
        hash: u32,
        now: Moment,
    ) -> Option<Packet> {
        let options = Options::read(&packet.payload()[..usize::from(segment.data_at)]);
        let segment = Segment {
            timestamps: options.timestamps,
            ..*segment
        };
        let capacity = port.pool().layout().capacity;
        let Some(opening) = self.check_cookie(&packet.addresses(), &segment, capacity, now) else {
            self.cx.counters.cookies_failed += 1;
            return Some(packet);
        };
        let peer = packet.addresses().src();
        if self.is_draining() {
            self.refuse(port, packet, &segment);
            return None;
        }
        if self.has_too_many(peer) {
            self.cx.counters.per_address_full += 1;
            return Some(packet);
        }
        let Some(id) = self.take_tcb_or_evict(port, peer, now) else {
            // No reset is sent: the client will retransmit its data, and a TCB may be free by then.
            self.cx.counters.connections_full += 1;
            return None;
        };
        let tcb = Tcb::half_open(segment, packet.path_back(), opening, now);
        self.insert(id, hash, tcb, now);
        let mut conn = self.conn(id);
        let (syn_ack, _) = conn.control_segment(ControlSegment::SynAck, now);
        conn.has_sent_control(ControlSegment::SynAck, &syn_ack);
        self.cx.counters.cookies_accepted += 1;
        self.handle_other(port, id, packet, now);
        None
    }

    /// Returns the parameters of the connection that a segment opens, or `None` if its cookie is
    /// invalid. In `addresses` the peer is the source. `capacity` is the size of the port's frames.
    fn check_cookie(
        &self,
        addresses: &Addresses,
        segment: &Segment,
        capacity: usize,
        now: Moment,
    ) -> Option<Opening> {
        let kept = TsOptions::from_tsecr(segment.timestamps);
        let iss = segment.ack - 1;
        let ports = (segment.src_port, segment.dst_port);
        let syn = Syn::new(&self.keys, addresses, ports, segment.seq - 1);
        let own_mss = self.cx.own_mss;
        let advertised = syn.check(&self.keys, iss, own_mss, kept, now)?;
        Some(Opening {
            negotiated: kept.negotiated(),
            mss: own_mss.effective(syn.family(), Some(advertised), capacity)?,
            iss,
            ts_offset: syn.ts_offset,
        })
    }
}
