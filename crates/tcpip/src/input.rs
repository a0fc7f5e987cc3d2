//! A segment arrives (RFC 9293, section 3.10.7).
//!
//! Most segments are what is expected next: in order, no SYN, FIN or RST, an
//! ACK of something sent. For these the checks of section 3.10.7.4 reduce to
//! a few comparisons. All others go through `admit`, which is those
//! checks in their order; from there on the way is one.

use ip::{PROTOCOL_TCP, Packet};
use nmio::{Instant, Port};

use crate::acks::Fate;
use crate::app::{Application, CloseReason};
use crate::congestion::CongestionControl;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, State};
use crate::timers::ROOM_RETRY_MS;
use crate::wire::{CHECKSUM_AT, Control, Segment, Seq};

/// The largest window a peer can tell us; an ACK older than that cannot be
/// genuine (RFC 5961, section 5.2).
const MAX_SND_WND: u32 = u16::MAX as u32;
/// A connection sends challenge ACKs, and ACKs of segments without data that
/// are outside the window, no faster than one in this time, in milliseconds
/// (RFC 5961, section 7). Counted for each connection alone: a count that all
/// share tells strangers about each other.
const CHALLENGE_INTERVAL_MS: u16 = 500;
/// The bits by which segments are told apart.
pub(crate) const KIND: Control =
    Control(Control::FIN.0 | Control::SYN.0 | Control::RST.0 | Control::ACK.0);

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
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.state == State::TimeWait {
            if self.time_waits > self.settings.max_time_wait {
                self.counters.time_wait_overflow += 1;
                self.forget(id);
            }
        } else if tcb.snd_nxt == tcb.snd_una && !tcb.flags.has(Flags::PERSIST) {
            // No ACK will come that could tell of room.
            tcb.rtt_at = now.micros;
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
