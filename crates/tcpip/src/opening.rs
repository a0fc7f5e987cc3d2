//! Opening a connection: CLOSED, LISTEN and SYN-RECEIVED (RFC 9293, sections
//! 3.10.7.1 to 3.10.7.4).

use std::net::IpAddr;

use ip::Packet;
use nmio::Port;

use crate::acks::end_timing;
use crate::admission::Admitted;
use crate::app::Application;
use crate::congestion::CongestionControl;
use crate::cookies::Terms;
use crate::input::KIND;
use crate::options::{Options, Written};
use crate::output::turn_round;
use crate::progress::Standing;
use crate::segments::Family;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, Record, State, Tcb};
use crate::wire::{Control, Header, Segment, Seq};

/// When a SYN reopens a connection in TIME-WAIT, its sequence numbers begin
/// this far behind the old ones: beyond any window.
const REOPEN_DISTANCE: u32 = 1 << 17;

/// What a SYN, or the cookie of one, says of a new connection.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) terms: Terms,
    /// The most bytes of data in a segment.
    pub(crate) mss: u16,
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    /// As the segment's field has it.
    pub(crate) window: u16,
    pub(crate) ts_recent: u32,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// A segment to no connection (RFC 9293, sections 3.10.7.1 and 3.10.7.2).
    #[inline(never)]
    pub(crate) fn handle_unknown<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: Segment,
        hash: u32,
        now: Moment,
    ) {
        let control = segment.control;
        let is_syn = control & KIND == Control::SYN;
        let contradicts = control.has(Control::SYN) && control.has(Control::FIN | Control::RST);
        let mut packet = packet;
        if contradicts || segment.src_port == 0 {
            self.counters.malformed += 1;
            return;
        }
        let completes = control.has(Control::ACK) && !control.has(Control::SYN | Control::RST);
        if completes && self.awaits_cookies(now) && self.serves(segment.dst_port) {
            match self.redeem(port, packet, segment, hash, now) {
                Some(other) => packet = other,
                None => return,
            }
        }
        if is_syn && self.serves(segment.dst_port) {
            self.open(port, packet, segment, hash, None, now);
        } else if control.has(Control::RST)
            || !self.settings.reset_unknown
            || !control.has(Control::ACK | Control::SYN) && self.serves(segment.dst_port)
        {
            self.counters.no_connection += 1;
        } else {
            self.reset_unknown(port, packet, segment);
        }
    }

    /// Answers a segment that no connection expects with a reset.
    #[cold]
    fn reset_unknown<P: Port>(&mut self, port: &mut P, packet: Packet, segment: Segment) {
        let header = if segment.control.has(Control::ACK) {
            Header {
                seq: segment.ack,
                ack: Seq(0),
                control: Control::RST,
                window: 0,
                timestamps: None,
            }
        } else {
            Header {
                seq: Seq(0),
                ack: segment.seq + segment.sequence_len(),
                control: Control::RST | Control::ACK,
                window: 0,
                timestamps: None,
            }
        };
        let ports = (segment.dst_port, segment.src_port);
        if turn_round(port, packet, &header, &Written::default(), ports).is_ok() {
            self.counters.segments_sent += 1;
            self.counters.turned_round += 1;
            self.counters.resets_sent += 1;
        } else {
            self.counters.ring_full += 1;
        }
    }

    /// LISTEN: a SYN opens a connection. `isn`: ours, where it must not be
    /// chosen freely.
    fn open<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: Segment,
        hash: u32,
        isn: Option<Seq>,
        now: Moment,
    ) {
        let addresses = packet.addresses();
        let family = Family::of(&addresses);
        let options = Options::read(&packet.payload()[..usize::from(segment.data_at)]);
        let capacity = port.pool().layout().capacity;
        let Some(mss) = self.effective_mss(family, options.mss, capacity) else {
            self.counters.no_segment_fits += 1;
            return;
        };
        if self.has_too_many(addresses.src()) {
            self.counters.per_address_full += 1;
            return;
        }
        let id = match self.admit_syn(port, addresses.src(), isn.is_some(), now) {
            Admitted::Keep(id) => id,
            Admitted::Bake => {
                self.send_cookie(port, packet, segment, &options, mss, now);
                return;
            }
            Admitted::Drop => return,
        };
        let (own_port, peer_port) = (segment.dst_port, segment.src_port);
        let iss = isn.unwrap_or_else(|| {
            self.keys
                .initial_sequence(&addresses, peer_port, own_port, now.whole_micros)
        });
        let opening = Opening {
            terms: self.agree(&options, segment),
            mss,
            iss,
            irs: segment.seq,
            window: segment.window,
            ts_recent: options.timestamps.map_or(0, |timestamps| timestamps.value),
        };
        let mut tcb = self.half_open_tcb(&packet, segment, &opening);
        tcb.flags.set(Flags::TIMING);
        tcb.rtt_seq = iss + 1;
        tcb.rtt_at = now.micros;
        tcb.paced_until = now.micros;
        self.insert(id, hash, tcb, now);
        self.send_syn_ack(port, id, packet, now);
    }

    /// A connection in SYN-RECEIVED, which nobody knows of yet.
    pub(crate) fn half_open_tcb(
        &self,
        packet: &Packet,
        segment: Segment,
        opening: &Opening,
    ) -> Tcb {
        let (own_port, peer_port) = (segment.dst_port, segment.src_port);
        let path = packet.path_back();
        let &Opening {
            terms,
            mss,
            iss,
            irs,
            window,
            ts_recent,
        } = opening;
        let own_scale = if terms.flags.has(Flags::SCALED) {
            self.buffers.scale()
        } else {
            0
        };
        Tcb {
            path,
            own_port,
            peer_port,
            sum: Tcb::connection_sum(&path, own_port, peer_port),
            mss,
            mss_most: mss,
            state: State::SynReceived,
            flags: terms.flags,
            scales: own_scale << 4 | terms.peer_scale,
            ts_recent,
            ts_offset: self
                .keys
                .timestamp_offset(&packet.addresses(), peer_port, own_port),
            snd_una: iss,
            snd_nxt: iss + 1,
            snd_end: iss + 1,
            snd_wnd: u32::from(window),
            // A SYN's window is not scaled.
            max_snd_wnd: window.div_ceil(1 << terms.peer_scale),
            snd_wl1: irs,
            rcv_nxt: irs + 1,
            rcv_adv: irs + 1,
            ..Tcb::closed()
        }
    }

    /// Puts a connection in SYN-RECEIVED in a free TCB's place.
    pub(crate) fn insert(&mut self, id: u32, hash: u32, mut tcb: Tcb, now: Moment) {
        let record = &mut self.records[id as usize];
        // A TCB may have been freed while it waited for the ring.
        if record.tcb.flags.has(Flags::BLOCKED) {
            tcb.flags.set(Flags::BLOCKED);
        }
        // The wheel has no entry yet.
        tcb.scheduled = now.millis.wrapping_add(i32::MAX.cast_unsigned());
        record.congestion = C::new(u32::from(tcb.mss));
        record.tcb = tcb;
        self.standings[id as usize] = Standing::new(now);
        self.half_open += 1;
        self.table.insert(hash, id);
        let rto = self.rto(id);
        self.arm(id, now, rto);
    }

    /// What of a SYN's offers is taken.
    pub(crate) fn agree(&self, options: &Options, segment: Segment) -> Terms {
        let settings = &self.settings;
        let mut terms = Terms::default();
        if settings.timestamps && options.timestamps.is_some() {
            terms.flags.set(Flags::TIMESTAMPS);
        }
        if settings.sack && options.sack_permitted {
            terms.flags.set(Flags::SACK);
        }
        if let Some(scale) = options.window_scale.filter(|_| settings.window_scaling) {
            terms.flags.set(Flags::SCALED);
            terms.peer_scale = scale;
        }
        // RFC 3168, section 6.1.1.
        let both = Control(segment.control.0 & (Control::ECE | Control::CWR).0);
        if settings.ecn && both == Control::ECE | Control::CWR {
            terms.flags.set(Flags::ECN);
        }
        terms
    }

    /// If the ring is full, the retransmission timer sends it.
    pub(crate) fn send_syn_ack<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        now: Moment,
    ) {
        let (header, options) = self.syn_ack(&self.records[id as usize].tcb, now);
        if packet.payload_capacity() < header.len() + options.bytes().len() {
            return;
        }
        let tcb = &mut self.records[id as usize].tcb;
        if turn_round(port, packet, &header, &options, tcb.ports()).is_ok() {
            tcb.has_told_unscaled(header.window);
            self.counters.segments_sent += 1;
            self.counters.turned_round += 1;
        } else {
            self.counters.blocked += 1;
        }
    }

    /// A SYN reopens a connection in TIME-WAIT (RFC 9293, section 3.6.1), which
    /// stays if there is no place among those that are half open. A cookie,
    /// whose number is not free, is one only to a peer that tells old segments
    /// from new ones by their timestamps.
    pub(crate) fn reopen<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) {
        let tcb = &self.records[id as usize].tcb;
        let isn = tcb.snd_nxt + REOPEN_DISTANCE;
        let both_stamp = tcb.flags.has(Flags::TIMESTAMPS) && segment.timestamps.is_some();
        if self.half_open >= self.settings.max_half_open && !(both_stamp && self.bakes_cookies()) {
            self.counters.half_open_full += 1;
            return;
        }
        self.forget(id);
        let hash = self
            .keys
            .hash(&packet.addresses(), segment.src_port, segment.dst_port);
        self.open(port, packet, segment, hash, Some(isn), now);
    }

    /// SYN-RECEIVED: the third segment of the handshake.
    pub(crate) fn establish<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) -> Option<Packet> {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        if segment.ack != tcb.snd_nxt {
            self.counters.bad_ack += 1;
            self.reset_unknown(port, packet, segment);
            return None;
        }
        tcb.state = State::Established;
        tcb.snd_una = segment.ack;
        tcb.set_peer_window(segment.window);
        tcb.snd_wl1 = segment.seq;
        if tcb.flags.has(Flags::TIMING) {
            end_timing(tcb, now);
        }
        let mss = tcb.mss;
        if tcb.retries > 1 {
            // RFC 6928, section 2: two losses are no accident.
            *congestion = C::with_window(mss.into());
        }
        tcb.retries = 0;
        tcb.backoff = 0;
        let family = Family::of(&tcb.path.addresses);
        tcb.class = self.contents.acquire_class(family, mss);
        self.half_open -= 1;
        self.standings[id as usize].renew(now);
        self.arm(id, now, self.settings.silence_ms);
        if !self.admits(id, packet.addresses().src()) {
            self.release_all(id);
            self.forget(id);
            self.reset_unknown(port, packet, segment);
            return None;
        }
        self.counters.accepted += 1;
        Some(packet)
    }

    /// Whether connection `id` from `peer`, now established, may stay.
    fn admits(&mut self, id: u32, peer: IpAddr) -> bool {
        // Many of one address may have been half open.
        let too_many = self.has_too_many(peer);
        self.count_in(id);
        if too_many {
            self.counters.per_address_full += 1;
            return false;
        }
        let (app, mut connection) = self.connection(id);
        let accepted = app.on_accept(&mut connection);
        self.counters.refused += u64::from(!accepted);
        accepted
    }
}
