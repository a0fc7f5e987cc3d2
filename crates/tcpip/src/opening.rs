//! Opening a connection: CLOSED, LISTEN and SYN-RECEIVED (RFC 9293, sections
//! 3.10.7.1 to 3.10.7.4).

use ip::Packet;
use nmio::Port;

use crate::app::Application;
use crate::congestion::CongestionControl;
use crate::input::KIND;
use crate::options::{Options, Written};
use crate::output::turn_round;
use crate::segments::Family;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, State, Tcb};
use crate::wire::{Control, Header, Segment, Seq};

/// When a SYN reopens a connection in TIME-WAIT, its sequence numbers begin
/// this far behind the old ones: beyond any window.
const REOPEN_DISTANCE: u32 = 1 << 17;

/// What both sides of a new connection take part in.
struct Offered {
    flags: Flags,
    scales: u8,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// A segment to no connection (RFC 9293, sections 3.10.7.1 and 3.10.7.2).
    #[inline(never)]
    pub(crate) fn handle_unknown<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: &Segment,
        hash: u32,
        now: Moment,
    ) {
        let control = segment.control;
        let is_syn = control & KIND == Control::SYN;
        let contradicts = control.has(Control::SYN) && control.has(Control::FIN | Control::RST);
        if contradicts || segment.src_port == 0 {
            self.counters.malformed += 1;
        } else if is_syn && self.serves(segment.dst_port) {
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
    fn reset_unknown<P: Port>(&mut self, port: &mut P, packet: Packet, segment: &Segment) {
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
        segment: &Segment,
        hash: u32,
        isn: Option<Seq>,
        now: Moment,
    ) {
        if self.half_open >= self.settings.max_half_open {
            self.counters.half_open_full += 1;
            return;
        }
        let addresses = packet.addresses();
        let family = Family::of(&addresses);
        let options = Options::read(&packet.payload()[..usize::from(segment.data_at)]);
        let capacity = port.pool().layout().capacity;
        let Some(mss) = self.effective_mss(family, options.mss, capacity) else {
            self.counters.connections_full += 1;
            return;
        };
        let Some(id) = self.take_tcb() else {
            self.counters.connections_full += 1;
            return;
        };
        let (own_port, peer_port) = (segment.dst_port, segment.src_port);
        let iss = isn.unwrap_or_else(|| {
            self.keys
                .initial_sequence(&addresses, peer_port, own_port, now.whole_micros)
        });
        let path = packet.path_back();
        let offered = self.agree(&options, segment);
        let ts_offset = self.keys.timestamp_offset(&addresses, peer_port, own_port);
        let record = &mut self.records[id as usize];
        record.congestion = C::new(u32::from(mss));
        let tcb = &mut record.tcb;
        // A TCB may have been freed while it waited for the ring.
        let mut flags = Flags::TIMING | offered.flags;
        if tcb.flags.has(Flags::BLOCKED) {
            flags.set(Flags::BLOCKED);
        }
        *tcb = Tcb {
            path,
            own_port,
            peer_port,
            sum: Tcb::connection_sum(&path, own_port, peer_port),
            mss,
            mss_most: mss,
            state: State::SynReceived,
            flags,
            scales: offered.scales,
            ts_recent: options.timestamps.map_or(0, |timestamps| timestamps.value),
            ts_offset,
            snd_una: iss,
            snd_nxt: iss + 1,
            snd_end: iss + 1,
            snd_wnd: u32::from(segment.window),
            snd_wl1: segment.seq,
            rcv_nxt: segment.seq + 1,
            rcv_adv: segment.seq + 1,
            rtt_seq: iss + 1,
            rtt_at: now.micros,
            // The wheel has no entry yet.
            scheduled: now.millis.wrapping_add(i32::MAX.cast_unsigned()),
            next_blocked: tcb.next_blocked,
            ..Tcb::closed()
        };
        self.half_open += 1;
        self.table.insert(hash, id);
        let rto = self.rto(id);
        self.arm(id, now, rto);
        self.send_syn_ack(port, id, packet, now);
    }

    /// What of a SYN's offers is taken.
    fn agree(&self, options: &Options, segment: &Segment) -> Offered {
        let settings = &self.settings;
        let mut offered = Offered {
            flags: Flags::default(),
            scales: 0,
        };
        if settings.timestamps && options.timestamps.is_some() {
            offered.flags.set(Flags::TIMESTAMPS);
        }
        if settings.sack && options.sack_permitted {
            offered.flags.set(Flags::SACK);
        }
        if let Some(scale) = options.window_scale.filter(|_| settings.window_scaling) {
            offered.flags.set(Flags::SCALED);
            offered.scales = self.buffers.scale() << 4 | scale;
        }
        // RFC 3168, section 6.1.1.
        let both = Control(segment.control.0 & (Control::ECE | Control::CWR).0);
        if settings.ecn && both == Control::ECE | Control::CWR {
            offered.flags.set(Flags::ECN);
        }
        offered
    }

    /// If the ring is full, the retransmission timer sends it.
    pub(crate) fn send_syn_ack<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        now: Moment,
    ) {
        let (header, options) = self.syn_ack(id, now);
        if packet.payload_capacity() < header.len() + options.bytes().len() {
            return;
        }
        let tcb = &mut self.records[id as usize].tcb;
        if turn_round(port, packet, &header, &options, tcb.ports()).is_ok() {
            tcb.has_told_unscaled(header.window);
            self.counters.segments_sent += 1;
            self.counters.turned_round += 1;
        }
    }

    /// A SYN reopens a connection in TIME-WAIT (RFC 9293, section 3.6.1).
    pub(crate) fn reopen<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: &Segment,
        now: Moment,
    ) {
        let isn = self.records[id as usize].tcb.snd_nxt + REOPEN_DISTANCE;
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
        segment: &Segment,
        now: Moment,
    ) -> Option<Packet> {
        let tcb = &mut self.records[id as usize].tcb;
        if segment.ack != tcb.snd_nxt {
            self.counters.bad_ack += 1;
            self.reset_unknown(port, packet, segment);
            return None;
        }
        tcb.state = State::Established;
        tcb.snd_una = segment.ack;
        tcb.snd_wnd = tcb.peer_window(segment.window);
        tcb.snd_wl1 = segment.seq;
        if tcb.flags.has(Flags::TIMING) {
            tcb.flags.clear(Flags::TIMING);
            let rtt = now.micros.wrapping_sub(tcb.rtt_at);
            tcb.rtt.sample(rtt);
        }
        tcb.retries = 0;
        tcb.backoff = 0;
        let mss = tcb.mss;
        let family = Family::of(&tcb.path.addresses);
        tcb.class = self.contents.acquire_class(family, mss);
        self.half_open -= 1;
        self.arm(id, now, self.settings.idle_ms);
        let (app, mut connection) = self.connection(id);
        if !app.on_accept(&mut connection) {
            self.counters.refused += 1;
            self.release_all(id);
            self.forget(id);
            self.reset_unknown(port, packet, segment);
            return None;
        }
        self.counters.accepted += 1;
        Some(packet)
    }
}
