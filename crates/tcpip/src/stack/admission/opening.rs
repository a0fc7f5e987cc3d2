//! Opening a connection: the states CLOSED, LISTEN and SYN-RECEIVED (RFC 9293, sections 3.10.7.1 to
//! 3.10.7.4).

use std::net::IpAddr;

use ip::{PROTOCOL_TCP, Packet};
use nmio::Port;

use super::{Admitted, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Flags, Opening, State, Tcb};
use crate::content::Family;
use crate::emit::turn_around;
use crate::outcome::ControlSegment;
use crate::stack::Application;
use crate::wire::{Control, Header, Options, Segment, Seq, Written};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Handles a segment that belongs to no connection (RFC 9293, sections 3.10.7.1 and 3.10.7.2).
    /// Rarely called functions get a copy of the segment, so that the original stays in registers.
    #[inline(never)]
    pub(in crate::stack) fn handle_unknown<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        hash: u32,
        now: Moment,
    ) {
        let Some(segment) = Segment::parse(packet.payload()) else {
            return;
        };
        let control = segment.control;
        let is_syn = control & Control::KIND == Control::SYN;
        let contradicts = control.has(Control::SYN) && control.has(Control::FIN | Control::RST);
        let mut packet = packet;
        if contradicts || segment.src_port == 0 {
            self.cx.counters.malformed += 1;
            return;
        }
        let completes = control.has(Control::ACK) && !control.has(Control::SYN | Control::RST);
        if completes && self.flood.awaits_cookies(now) && self.serves(segment.dst_port) {
            let copy = segment;
            match self.accept_cookie(port, packet, &copy, hash, now) {
                Some(other) => packet = other,
                None => return,
            }
        }
        if is_syn && self.serves(segment.dst_port) {
            if self.is_draining() {
                let copy = segment;
                return self.refuse(port, packet, &copy);
            }
            self.open(port, packet, segment, hash, None, now);
        } else if control.has(Control::RST)
            || !self.config.reset_unknown
            || !control.has(Control::ACK | Control::SYN) && self.serves(segment.dst_port)
        {
            self.cx.counters.no_connection += 1;
        } else {
            let copy = segment;
            self.reset_unknown(port, packet, &copy);
        }
    }

    /// Sends a reset in reply to a segment, as if the segment belonged to no connection.
    #[cold]
    pub(in crate::stack) fn reset_unknown<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: &Segment,
    ) {
        let (seq, ack, control) = if segment.control.has(Control::ACK) {
            (segment.ack, Seq(0), Control::RST)
        } else {
            let ack = segment.seq + segment.sequence_len();
            (Seq(0), ack, Control::RST | Control::ACK)
        };
        let header = Header {
            seq,
            ack,
            control,
            window: 0,
            timestamps: None,
        };
        let ports = (segment.dst_port, segment.src_port);
        let back = packet.addresses().reversed();
        let sum = back.pseudo_sum(PROTOCOL_TCP, 0);
        let ends = (sum.word(ports.0).word(ports.1), back, ports);
        if turn_around(port, packet, &header, &Written::default(), ends).is_ok() {
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_around += 1;
            self.cx.counters.resets_sent += 1;
        } else {
            self.cx.counters.ring_full += 1;
        }
    }

    /// Handles a SYN: opens a connection, answers with a cookie, or drops the SYN. If the SYN
    /// reopens a connection, `isn` is our initial sequence number, unless the answer is a cookie.
    #[inline(always)]
    fn open<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        mut segment: Segment,
        hash: u32,
        isn: Option<Seq>,
        now: Moment,
    ) {
        let addresses = packet.addresses();
        let family = Family::of(&addresses);
        let options = Options::read(&packet.payload()[..usize::from(segment.data_at)]);
        segment.timestamps = options.timestamps;
        let capacity = port.pool().layout().capacity;
        let Some(mss) = self.cx.own_mss.effective(family, options.mss, capacity) else {
            self.cx.counters.no_segment_fits += 1;
            return;
        };
        if self.has_too_many(addresses.src()) {
            self.cx.counters.per_address_full += 1;
            return;
        }
        let id = match self.admit_syn(port, addresses.src(), isn.is_some(), now) {
            Admitted::Keep(id) => id,
            Admitted::SendCookie => {
                let copy = segment;
                self.send_cookie(port, packet, &copy, &options, mss, now);
                return;
            }
            Admitted::Drop => return,
        };
        let (own_port, peer_port) = (segment.dst_port, segment.src_port);
        let (offset, ts_offset) = self.keys.offsets(&addresses, peer_port, own_port);
        let iss = isn.unwrap_or_else(|| initial_sequence(offset, now.whole_micros));
        let negotiated = self.agree(&options, segment);
        let opening = Opening {
            negotiated,
            mss,
            iss,
            ts_offset,
        };
        let tcb = Tcb::half_open(segment, packet.path_back(), opening, now);
        self.insert(id, hash, tcb, now);
        self.answer(port, id, packet, ControlSegment::SynAck, now);
    }

    /// Handles a SYN that reopens a connection in TIME-WAIT (RFC 9293, section 3.6.1).
    ///
    /// If the half-open limit is reached, the answer must be a cookie. The cookie is our initial
    /// sequence number, which may then lie among the old connection's sequence numbers. So a cookie
    /// is sent only if both connections use timestamps, by which the peer recognizes old segments.
    /// Otherwise the SYN is dropped, and the old connection stays.
    pub(in crate::stack) fn reopen<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) {
        if self.is_draining() {
            return self.refuse(port, packet, &segment);
        }
        let (isn, both_use_timestamps) = self.tcb(id).reopens(segment);
        if self.cx.states.of(State::SynReceived) >= self.config.max_half_open
            && !(both_use_timestamps && self.may_send_cookies())
        {
            self.cx.counters.half_open_full += 1;
            return;
        }
        self.forget(id);
        let hash = self
            .keys
            .hash(&packet.addresses(), segment.src_port, segment.dst_port);
        self.open(port, packet, segment, hash, Some(isn), now);
    }

    /// Completes the handshake after its final ACK. Returns the packet if the connection
    /// [may stay](Self::admits). Otherwise resets the connection.
    pub(in crate::stack) fn establish<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        now: Moment,
    ) -> Option<Packet> {
        self.find_class(id);
        self.housekeeping(id).renew(now);
        if !self.admits(id, packet.addresses().src()) {
            self.release_all(id);
            self.forget(id);
            if let Some(segment) = Segment::parse(packet.payload()) {
                self.reset_unknown(port, packet, &segment);
            }
            return None;
        }
        self.cx.counters.accepted += 1;
        if self.is_draining() {
            self.tcb_mut(id).flags |= Flags::OPENED_LATE;
        }
        Some(packet)
    }

    /// Returns true if the newly established connection `id` from `peer` may stay. Checks the limit
    /// per address, then asks the application.
    #[inline(always)]
    fn admits(&mut self, id: u32, peer: IpAddr) -> bool {
        // Half-open connections do not count towards the limit per address. So the address may have
        // reached its limit since the SYN.
        let too_many = self.has_too_many(peer);
        self.count_peer(id);
        if too_many {
            self.cx.counters.per_address_full += 1;
            return false;
        }
        let (app, mut connection) = self.connection(id);
        let accepted = app.on_accept(&mut connection);
        self.cx.counters.refused += u64::from(!accepted);
        accepted
    }
}

/// Returns the initial sequence number of a connection (RFC 9293, section 3.4.1; RFC 6528). It is
/// the sum of `offset`, from `Keys::offsets`, and a clock that ticks every 4 µs.
fn initial_sequence(offset: Seq, now_micros: u64) -> Seq {
    offset + (now_micros / 4) as u32
}
