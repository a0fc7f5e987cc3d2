//! A segment arrives (RFC 9293, section 3.10.7).
//!
//! Most segments are what is expected next: in order, no SYN, FIN or RST, an
//! ACK of something sent. For these the checks of section 3.10.7.4 reduce to
//! a few comparisons. All others go through `admit`, which is those
//! checks in their order; from there on the way is one.

use ip::{PROTOCOL_TCP, Packet};
use nmio::{Instant, Port};

use crate::app::{Application, CloseReason, Connection};
use crate::congestion::{CongestionControl, Flight};
use crate::output::{turn_round, window_to_tell};
use crate::segments::Family;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Record, State, Tcb};
use crate::timers::ROOM_RETRY_MS;
use crate::wire::{CHECKSUM_AT, Control, HEADER_LEN, Header, Segment, Seq, max_segment_size};

/// Duplicate ACKs that mean a loss (RFC 5681, section 3.2).
const DUP_ACKS: u8 = 3;
/// The largest window a peer can tell us; an ACK older than that cannot be
/// genuine (RFC 5961, section 5.2).
const MAX_SND_WND: u32 = u16::MAX as u32;
/// A connection sends challenge ACKs, and ACKs of segments without data that
/// are outside the window, no faster than one in this time, in milliseconds
/// (RFC 5961, section 7). Counted for each connection alone: a count that all
/// share tells strangers about each other.
const CHALLENGE_INTERVAL_MS: u16 = 500;
/// When a SYN reopens a connection in TIME-WAIT, its sequence numbers begin
/// this far behind the old ones: beyond any window.
const REOPEN_DISTANCE: u32 = 1 << 17;
/// The bits by which segments are told apart.
const KIND: Control = Control(Control::FIN.0 | Control::SYN.0 | Control::RST.0 | Control::ACK.0);

/// What has become of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Lives,
    Over,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Handles a received TCP segment: updates its connection, calls the
    /// application, and queues what may be sent now.
    ///
    /// `partial_checksums`: see
    /// [`Capabilities::partial_checksums`](nmio::Capabilities::partial_checksums).
    #[inline(always)]
    pub fn handle_segment<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        partial_checksums: bool,
        now: Instant,
    ) {
        self.now = now;
        self.counters.segments_received += 1;
        let Some(segment) = Segment::parse(packet.payload()) else {
            self.counters.malformed += 1;
            return;
        };
        if !packet.checksum_ok(PROTOCOL_TCP, CHECKSUM_AT, partial_checksums) {
            self.counters.bad_checksum += 1;
            return;
        }
        let addresses = packet.addresses();
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        let hash = self.keys.hash(&addresses, src_port, dst_port);
        let found = self.table.find(hash, |id| {
            let tcb = &self.records[id as usize].tcb;
            tcb.is_of(&addresses, src_port, dst_port)
        });
        let now = Moment::new(now);
        match found {
            Some(id) => self.handle_known(port, id, packet, segment, now),
            None => self.handle_unknown(port, packet, &segment, hash, now),
        }
    }

    #[inline(always)]
    fn handle_known<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        mut segment: Segment,
        now: Moment,
    ) {
        let tcb = &self.records[id as usize].tcb;
        let expected = tcb.state == State::Established
            && segment.control & KIND == Control::ACK
            && segment.seq == tcb.rcv_nxt
            && u32::from(segment.len) <= tcb.rcv_adv.since(tcb.rcv_nxt)
            && segment.ack.since(tcb.snd_una) <= tcb.snd_max.since(tcb.snd_una);
        let packet = if expected {
            packet
        } else {
            let Some(packet) = self.admit(port, id, packet, &mut segment, now) else {
                return;
            };
            packet
        };
        self.learn_link(id, &packet);
        if self.process_ack(id, &segment, now) == Fate::Over {
            return;
        }
        if segment.len > 0 || segment.control.has(Control::FIN) {
            self.process_data(id, &packet, &segment, now);
        }
        let flags = self.records[id as usize].tcb.flags;
        if flags.has(Flags::ABORT) {
            self.abort(port, id);
            return;
        }
        self.transmit(port, id, now);
        let tcb = &self.records[id as usize].tcb;
        if tcb.flags.has(Flags::ACK) {
            self.acknowledge(port, id, packet);
        }
        let tcb = &self.records[id as usize].tcb;
        if tcb.flags.has(Flags::WANTS_ROOM) || tcb.state == State::TimeWait {
            self.settle(id, now);
        }
    }

    /// What is left to do after a pass over a connection, rarely.
    #[cold]
    fn settle(&mut self, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.state == State::TimeWait {
            if self.time_waits > self.settings.max_time_wait {
                self.counters.time_wait_overflow += 1;
                self.forget(id);
            }
        } else if tcb.snd_nxt == tcb.snd_una && !tcb.flags.has(Flags::PERSIST) {
            // No ACK will come that could tell of room.
            self.arm(id, now, ROOM_RETRY_MS);
        }
    }

    /// The way back may change: a router that takes over has an address of
    /// its own.
    #[inline(always)]
    fn learn_link(&mut self, id: u32, packet: &Packet) {
        let link = packet.path_back().link;
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.path.link != link {
            tcb.path.link = link;
        }
    }

    /// A segment to no connection (RFC 9293, sections 3.10.7.1 and 3.10.7.2).
    #[inline(never)]
    fn handle_unknown<P: Port>(
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
        } else if control.has(Control::RST) || !self.settings.reset_unknown {
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
                mss: None,
            }
        } else {
            Header {
                seq: Seq(0),
                ack: segment.seq + segment.sequence_len(),
                control: Control::RST | Control::ACK,
                window: 0,
                mss: None,
            }
        };
        let ports = (segment.dst_port, segment.src_port);
        if turn_round(port, packet, &header, ports).is_ok() {
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
        let told = max_segment_size(&packet.payload()[..usize::from(segment.data_at)]);
        let capacity = port.pool().layout().capacity;
        let Some(mss) = self.effective_mss(family, told, capacity) else {
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
                .initial_sequence(&addresses, peer_port, own_port, now.micros)
        });
        let path = packet.path_back();
        let record = &mut self.records[id as usize];
        record.congestion = C::new(u32::from(mss));
        let tcb = &mut record.tcb;
        // A TCB may have been freed while it waited for the ring.
        let mut flags = Flags::TIMING;
        if tcb.flags.has(Flags::BLOCKED) {
            flags.set(Flags::BLOCKED);
        }
        *tcb = Tcb {
            path,
            own_port,
            peer_port,
            sum: Tcb::connection_sum(&path, own_port, peer_port),
            mss,
            state: State::SynReceived,
            flags,
            snd_una: iss,
            snd_nxt: iss + 1,
            snd_max: iss + 1,
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
        let rto = Self::rto(tcb);
        self.half_open += 1;
        self.table.insert(hash, id);
        self.arm(id, now, rto);
        self.send_syn_ack(port, id, packet);
    }

    /// If the ring is full, the retransmission timer sends it.
    fn send_syn_ack<P: Port>(&mut self, port: &mut P, id: u32, packet: Packet) {
        if packet.payload_capacity() < HEADER_LEN + crate::wire::MSS_OPTION_LEN {
            return;
        }
        let header = self.syn_ack_header(id);
        let tcb = &mut self.records[id as usize].tcb;
        let ports = (tcb.own_port, tcb.peer_port);
        if turn_round(port, packet, &header, ports).is_ok() {
            tcb.has_told(header.window);
            self.counters.segments_sent += 1;
            self.counters.turned_round += 1;
        }
    }

    /// The checks of RFC 9293, section 3.10.7.4, in their order, with those
    /// of RFC 5961. Gives the packet back when the segment is to be
    /// processed, cut to the window; otherwise it has been answered or
    /// dropped.
    #[cold]
    #[inline(never)]
    fn admit<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: &mut Segment,
        now: Moment,
    ) -> Option<Packet> {
        let tcb = &self.records[id as usize].tcb;
        let control = segment.control;
        let is_syn = control & KIND == Control::SYN;
        if is_syn && tcb.state == State::TimeWait && segment.seq.after(tcb.rcv_nxt) {
            // RFC 9293, section 3.6.1 (MAY-2): a new incarnation.
            self.reopen(port, id, packet, segment, now);
            return None;
        }
        if is_syn && tcb.state == State::SynReceived && segment.seq + 1 == tcb.rcv_nxt {
            // The same SYN: our answer may have been lost.
            let tcb = &mut self.records[id as usize].tcb;
            tcb.flags.set(Flags::SYN_AGAIN);
            tcb.flags.clear(Flags::TIMING);
            self.send_syn_ack(port, id, packet);
            return None;
        }

        // First, the sequence number.
        let window = tcb.rcv_adv.since(tcb.rcv_nxt);
        if window == 0 && segment.seq == tcb.rcv_nxt && segment.sequence_len() > 0 {
            // A probe of our shut window: nothing of it fits, but its ACK and
            // a reset are good, and it must be answered.
            segment.len = 0;
            segment.control = Control(control.0 & !Control::FIN.0);
            self.counters.out_of_window += 1;
            self.records[id as usize].tcb.flags.set(Flags::ACK);
        } else if !is_acceptable(segment, tcb.rcv_nxt, window) {
            self.refuse(port, id, packet, segment, now);
            return None;
        }

        // Second, the RST bit (RFC 5961, section 3.2).
        let tcb = &self.records[id as usize].tcb;
        if control.has(Control::RST) {
            if segment.seq != tcb.rcv_nxt {
                self.challenge(port, id, packet, now);
            } else if tcb.state == State::SynReceived {
                self.counters.handshakes_failed += 1;
                self.forget(id);
            } else if tcb.state == State::TimeWait {
                self.forget(id);
            } else {
                self.close(id, CloseReason::Reset);
            }
            return None;
        }

        // Fourth, the SYN bit (RFC 5961, section 4.2).
        if control.has(Control::SYN) {
            self.challenge(port, id, packet, now);
            return None;
        }

        // Fifth, the ACK field.
        if !control.has(Control::ACK) {
            self.counters.bad_ack += 1;
            return None;
        }
        let packet = if tcb.state == State::SynReceived {
            self.establish(port, id, packet, segment, now)?
        } else if segment.ack.after(tcb.snd_max) || (segment.ack + MAX_SND_WND).before(tcb.snd_una)
        {
            // RFC 5961, section 5.2.
            self.counters.bad_ack += 1;
            self.challenge(port, id, packet, now);
            return None;
        } else {
            packet
        };
        let tcb = &self.records[id as usize].tcb;
        cut_to_window(segment, tcb.rcv_nxt, window);
        Some(packet)
    }

    /// An unacceptable segment is acknowledged and dropped.
    fn refuse<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: &Segment,
        now: Moment,
    ) {
        self.counters.out_of_window += 1;
        if segment.control.has(Control::RST) {
            return;
        }
        let tcb = &self.records[id as usize].tcb;
        if tcb.state == State::TimeWait && segment.control.has(Control::FIN) {
            // The peer has not got our last ACK.
            self.arm(id, now, self.settings.time_wait_ms);
        }
        // Two ends that disagree must not answer each other for ever; one
        // that sends data waits for the answer.
        if segment.len > 0 || segment.control.has(Control::FIN) || self.may_challenge(id, now) {
            self.acknowledge(port, id, packet);
        }
    }

    /// Answers what may be an attack with the truth (RFC 5961).
    fn challenge<P: Port>(&mut self, port: &mut P, id: u32, packet: Packet, now: Moment) {
        self.counters.unproven += 1;
        if self.may_challenge(id, now) {
            self.counters.challenge_acks += 1;
            self.acknowledge(port, id, packet);
        }
    }

    fn may_challenge(&mut self, id: u32, now: Moment) -> bool {
        let tcb = &mut self.records[id as usize].tcb;
        // 0 is "never"; the clock's 0 is taken as 1.
        let millis = (now.millis as u16).max(1);
        let since = millis.wrapping_sub(tcb.challenged_at);
        let may = tcb.challenged_at == 0 || since >= CHALLENGE_INTERVAL_MS;
        if may {
            tcb.challenged_at = millis;
        }
        may
    }

    /// A SYN reopens a connection in TIME-WAIT (RFC 9293, section 3.6.1).
    fn reopen<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: &Segment,
        now: Moment,
    ) {
        let isn = self.records[id as usize].tcb.snd_max + REOPEN_DISTANCE;
        self.forget(id);
        let hash = self
            .keys
            .hash(&packet.addresses(), segment.src_port, segment.dst_port);
        self.open(port, packet, segment, hash, Some(isn), now);
    }

    /// SYN-RECEIVED: the third segment of the handshake.
    fn establish<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: &Segment,
        now: Moment,
    ) -> Option<Packet> {
        let tcb = &mut self.records[id as usize].tcb;
        if segment.ack != tcb.snd_max {
            self.counters.bad_ack += 1;
            self.reset_unknown(port, packet, segment);
            return None;
        }
        tcb.state = State::Established;
        tcb.snd_una = segment.ack;
        tcb.snd_wnd = u32::from(segment.window);
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

    /// The ACK field: what has arrived, and how much more may be sent.
    #[inline(always)]
    fn process_ack(&mut self, id: u32, segment: &Segment, now: Moment) -> Fate {
        let tcb = &mut self.records[id as usize].tcb;
        let acked = segment.ack.since(tcb.snd_una);
        if acked.cast_signed() > 0 {
            let retired = self.advance(id, segment.ack, acked, now);
            self.update_window(id, segment);
            if retired {
                self.tell_sent(id);
            }
            if self.records[id as usize].tcb.flags.has(Flags::CLOSE) {
                return self.process_fin_ack(id, now);
            }
        } else if acked == 0 {
            let is_duplicate = segment.len == 0
                && tcb.snd_max != tcb.snd_una
                && u32::from(segment.window) == tcb.snd_wnd
                && !segment.control.has(Control::FIN);
            if is_duplicate {
                self.process_duplicate_ack(id);
            }
            self.update_window(id, segment);
        }
        Fate::Lives
    }

    /// `acked` bytes are acknowledged for the first time. Whether an entry of
    /// the stream is done with.
    #[inline(always)]
    fn advance(&mut self, id: u32, ack: Seq, acked: u32, now: Moment) -> bool {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let flight = Flight {
            in_flight: tcb.flight(),
            mss: u32::from(tcb.mss),
        };
        tcb.snd_una = ack;
        if tcb.snd_nxt.before(ack) {
            // Sent again were only the gaps.
            tcb.snd_nxt = ack;
        }
        tcb.retries = 0;
        tcb.dup_acks = 0;
        if tcb.flags.has(Flags::PERSIST) && ack == tcb.limit() {
            // Probes have sent all that there was.
            tcb.flags.clear(Flags::PERSIST);
            tcb.backoff = 0;
        }
        if tcb.flags.has(Flags::TIMING) && !ack.before(tcb.rtt_seq) {
            tcb.flags.clear(Flags::TIMING);
            tcb.rtt.sample(now.micros.wrapping_sub(tcb.rtt_at));
            tcb.backoff = 0;
        }
        if tcb.flags.has(Flags::RECOVERY | Flags::WENT_BACK) {
            recover(tcb, congestion, acked, flight);
        } else {
            congestion.on_ack(acked, flight);
        }
        let mut retired = false;
        loop {
            let tcb = &mut self.records[id as usize].tcb;
            let Some(source) = tcb.retire() else {
                break;
            };
            self.release_source(source);
            retired = true;
        }
        // RFC 6298, 5.2 and 5.3.
        let tcb = &self.records[id as usize].tcb;
        let probing = tcb.flags.has(Flags::PERSIST);
        let after = if tcb.snd_nxt == tcb.snd_una && !probing {
            self.settings.idle_ms
        } else {
            Self::rto(tcb)
        };
        self.arm(id, now, after);
        retired
    }

    /// RFC 5681, section 3.2.
    #[cold]
    fn process_duplicate_ack(&mut self, id: u32) {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let flight = Flight {
            in_flight: tcb.flight(),
            mss: u32::from(tcb.mss),
        };
        if tcb.flags.has(Flags::RECOVERY) {
            congestion.on_duplicate_ack(flight);
            return;
        }
        if tcb.flags.has(Flags::WENT_BACK | Flags::PERSIST) {
            return;
        }
        tcb.dup_acks = tcb.dup_acks.saturating_add(1);
        if tcb.dup_acks == DUP_ACKS {
            congestion.on_fast_retransmit(flight);
            tcb.flags.set(Flags::RECOVERY);
            tcb.flags.set(Flags::RETRANSMIT);
            tcb.recover = tcb.snd_max;
            self.counters.fast_retransmits += 1;
        }
    }

    /// SND.WND, unless the segment is older than the one it was taken from.
    /// (RFC 9293's comparison of SND.WL2 is always true here, as older ACKs
    /// do not come this far.)
    #[inline(always)]
    fn update_window(&mut self, id: u32, segment: &Segment) {
        let tcb = &mut self.records[id as usize].tcb;
        if segment.seq.before(tcb.snd_wl1) {
            return;
        }
        tcb.snd_wl1 = segment.seq;
        tcb.snd_wnd = u32::from(segment.window);
        if tcb.snd_wnd >= 2 * u32::from(tcb.mss) {
            tcb.flags.set(Flags::WIDE);
        }
        if tcb.flags.has(Flags::PERSIST) && segment.window > 0 {
            // What was sent beyond the window has most likely been dropped.
            tcb.snd_nxt = tcb.snd_una;
        }
    }

    /// After close: has our FIN been acknowledged?
    #[cold]
    fn process_fin_ack(&mut self, id: u32, now: Moment) -> Fate {
        let tcb = &mut self.records[id as usize].tcb;
        let acked = tcb.state.fin_sent() && tcb.snd_una == tcb.snd_end + 1;
        if !acked || tcb.flags.has(Flags::ABORT) {
            return Fate::Lives;
        }
        match tcb.state {
            State::FinWait1 => {
                tcb.state = State::FinWait2;
                self.arm(id, now, self.settings.fin_wait_ms);
            }
            State::Closing => self.enter_time_wait(id, now),
            State::LastAck => {
                self.close(id, CloseReason::Finished);
                return Fate::Over;
            }
            _ => {}
        }
        Fate::Lives
    }

    /// Something written has arrived as a whole.
    #[inline(always)]
    fn tell_sent(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.flags.has(Flags::WANTS_ROOM) {
            self.offer_again(id);
        } else if tcb.entries().is_empty() {
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
        }
    }

    /// A write that found no room may be tried again.
    #[cold]
    pub(crate) fn offer_again(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.clear(Flags::WANTS_ROOM);
        let (app, mut connection) = self.connection(id);
        app.on_sent(&mut connection);
        self.offer_buffered(id);
        let tcb = &mut self.records[id as usize].tcb;
        let told = tcb.rcv_adv.since(tcb.rcv_nxt);
        if u32::from(window_to_tell(tcb, &self.buffers)) > told {
            // The window has opened, and the peer may wait for it.
            tcb.flags.set(Flags::ACK);
        }
        self.tell_half_close(id);
    }

    /// The segment's data and FIN.
    #[inline(always)]
    fn process_data(&mut self, id: u32, packet: &Packet, segment: &Segment, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.set(Flags::ACK);
        if !tcb.state.receives() || tcb.flags.has(Flags::ABORT) {
            return;
        }
        self.restart_idle(id, now);
        let data = &packet.payload()[usize::from(segment.data_at)..][..usize::from(segment.len)];
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.buffer != NONE || segment.seq != tcb.rcv_nxt {
            self.process_buffered(id, data, segment, now);
            return;
        }
        tcb.rcv_nxt = tcb.rcv_nxt + data.len() as u32;
        let consumed = self.offer(id, data);
        if consumed < data.len() && !self.keep(id, &data[consumed..]) {
            return;
        }
        if segment.control.has(Control::FIN) {
            self.process_fin(id, now);
        }
    }

    /// The peer is alive. After a long silence the congestion window is no
    /// longer known to be right.
    #[inline(always)]
    fn restart_idle(&mut self, id: u32, now: Moment) {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let idle = self.settings.idle_ms;
        if tcb.snd_nxt != tcb.snd_una
            || tcb.state != State::Established
            || tcb.flags.has(Flags::PERSIST)
        {
            return;
        }
        let silent_since = tcb.deadline.wrapping_sub(idle);
        if now.millis.wrapping_sub(silent_since).cast_signed() > Self::rto(tcb).cast_signed() {
            congestion.on_idle(u32::from(tcb.mss));
        }
        self.arm(id, now, idle);
    }

    /// Offers data in order to the application; how much it has consumed.
    #[inline(always)]
    fn offer(&mut self, id: u32, data: &[u8]) -> usize {
        let flags = self.records[id as usize].tcb.flags;
        if data.is_empty() || flags.has(Flags::CLOSE | Flags::ABORT) {
            return data.len();
        }
        let (app, mut connection) = self.connection(id);
        app.on_receive(&mut connection, data).min(data.len())
    }

    /// Keeps what the application has not consumed. `false` when there is no
    /// buffer: then the peer must send it again.
    #[cold]
    fn keep(&mut self, id: u32, rest: &[u8]) -> bool {
        let tcb = &mut self.records[id as usize].tcb;
        let stored = self.buffers.take().inspect(|buffer| {
            // No more than the window arrives, and that is a buffer's size.
            self.buffers.get_mut(*buffer).insert(0, rest);
        });
        if let Some(buffer) = stored {
            tcb.buffer = buffer;
            return true;
        }
        tcb.rcv_nxt = Seq(tcb.rcv_nxt.0.wrapping_sub(rest.len() as u32));
        self.counters.no_buffer += 1;
        false
    }

    /// Data that is out of order, or comes behind what is not consumed yet.
    #[cold]
    fn process_buffered(&mut self, id: u32, data: &[u8], segment: &Segment, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.buffer == NONE {
            let Some(buffer) = self.buffers.take() else {
                self.counters.no_buffer += 1;
                return;
            };
            tcb.buffer = buffer;
        }
        let buffer = self.buffers.get_mut(tcb.buffer);
        let ahead = segment.seq.since(tcb.rcv_nxt) as usize;
        // Nothing comes behind a FIN.
        let end = buffer.fin_ahead().unwrap_or(usize::MAX);
        let data = &data[..data.len().min(end.saturating_sub(ahead))];
        let in_order = buffer.insert(ahead, data);
        let Some(in_order) = in_order else {
            self.counters.no_buffer += 1;
            return;
        };
        tcb.rcv_nxt = tcb.rcv_nxt + in_order as u32;
        if segment.control.has(Control::FIN) {
            let fin = (ahead + data.len()).checked_sub(in_order);
            buffer.set_fin(fin.unwrap_or(0));
        }
        let fin = buffer.take_fin();
        if ahead > 0 {
            self.counters.out_of_order += 1;
        }
        if in_order > 0 {
            self.offer_buffered(id);
        }
        self.drop_empty_buffer(id);
        if fin {
            self.process_fin(id, now);
        }
    }

    /// Offers all that is in order and not consumed.
    fn offer_buffered(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.buffer == NONE {
            return;
        }
        let buffer = tcb.buffer;
        let ready = self.buffers.get(buffer).ready();
        let consumed = if tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            ready.len()
        } else if ready.is_empty() {
            0
        } else {
            let mut connection = Connection {
                tcb,
                state: &mut self.states[id as usize],
                contents: &mut self.contents,
                writes: &mut self.writes,
            };
            self.app.on_receive(&mut connection, ready)
        };
        self.buffers.get_mut(buffer).consume(consumed);
        self.drop_empty_buffer(id);
    }

    fn drop_empty_buffer(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.buffer != NONE && self.buffers.get(tcb.buffer).is_empty() {
            self.buffers.release(tcb.buffer);
            tcb.buffer = NONE;
        }
    }

    /// The peer's FIN, in order.
    #[cold]
    fn process_fin(&mut self, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.rcv_nxt = tcb.rcv_nxt + 1;
        if tcb.rcv_adv.before(tcb.rcv_nxt) {
            tcb.rcv_adv = tcb.rcv_nxt;
        }
        match tcb.state {
            State::Established => tcb.state = State::CloseWait,
            State::FinWait1 => tcb.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(id, now),
            _ => return,
        }
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.set(Flags::HALF_CLOSE);
        self.tell_half_close(id);
    }

    /// Tells the application that the peer has closed, once all that came
    /// before has had its chance.
    fn tell_half_close(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if !tcb.flags.has(Flags::HALF_CLOSE) || tcb.flags.has(Flags::WANTS_ROOM) {
            return;
        }
        tcb.flags.clear(Flags::HALF_CLOSE);
        if !tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            let (app, mut connection) = self.connection(id);
            app.on_half_close(&mut connection);
        }
    }

    fn enter_time_wait(&mut self, id: u32, now: Moment) {
        self.finish(id, CloseReason::Finished);
        self.records[id as usize].tcb.state = State::TimeWait;
        self.time_waits += 1;
        self.arm(id, now, self.settings.time_wait_ms);
    }

    /// The application has aborted.
    #[cold]
    pub(crate) fn abort<P: Port>(&mut self, port: &mut P, id: u32) {
        self.send_reset(port, id);
        self.close(id, CloseReason::Aborted);
    }
}

/// RFC 9293, section 3.10.7.4, table 6.
fn is_acceptable(segment: &Segment, rcv_nxt: Seq, window: u32) -> bool {
    let first = segment.seq.since(rcv_nxt);
    match segment.sequence_len() {
        0 => first < window || first == 0,
        len => {
            let last = (segment.seq + (len - 1)).since(rcv_nxt);
            window > 0 && (first < window || last < window)
        }
    }
}

/// Cuts off what was received before and what is beyond the window.
fn cut_to_window(segment: &mut Segment, rcv_nxt: Seq, window: u32) {
    let before = rcv_nxt.since(segment.seq);
    if segment.seq.before(rcv_nxt) {
        let cut = before.min(u32::from(segment.len)) as u16;
        segment.seq = segment.seq + u32::from(cut);
        segment.data_at += cut;
        segment.len -= cut;
    }
    let end = segment.seq.since(rcv_nxt) + u32::from(segment.len);
    if end > window {
        let over = (end - window).min(u32::from(segment.len)) as u16;
        segment.len -= over;
        segment.control = Control(segment.control.0 & !Control::FIN.0);
    }
}

/// An ACK of new data after a loss.
#[cold]
fn recover<C: CongestionControl>(tcb: &mut Tcb, congestion: &mut C, acked: u32, flight: Flight) {
    let all = !tcb.snd_una.before(tcb.recover);
    if tcb.flags.has(Flags::RECOVERY) {
        if all {
            tcb.flags.clear(Flags::RECOVERY | Flags::RETRANSMIT);
            congestion.on_recovered(Flight {
                in_flight: tcb.flight(),
                ..flight
            });
        } else {
            // RFC 6582: the next gap begins here.
            tcb.flags.set(Flags::RETRANSMIT);
            congestion.on_partial_ack(acked, flight);
        }
    } else {
        if all {
            tcb.flags.clear(Flags::WENT_BACK);
        }
        congestion.on_ack(acked, flight);
    }
}
