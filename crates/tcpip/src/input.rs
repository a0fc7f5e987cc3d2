//! A segment arrives (RFC 9293, section 3.10.7).
//!
//! Most segments are what is expected next: in order, no SYN, FIN or RST, an
//! ACK of something sent. For these the checks of section 3.10.7.4 reduce to
//! a few comparisons. All others go through `admit`, which is those
//! checks in their order; from there on the way is one.

use arrayvec::ArrayVec;
use eth::Link;
use ip::{Ecn, PROTOCOL_TCP, Packet};
use nmio::{Instant, Port};

use crate::acks::Fate;
use crate::app::{Application, CloseReason};
use crate::congestion::{Congestion, CongestionControl};
use crate::options::{Block, MAX_SACK_BLOCKS, Options};
use crate::recovery::{Phase, event};
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Record, State, Tcb};
use crate::timers::ROOM_RETRY_MS;
use crate::wire::{CHECKSUM_AT, Control, Segment, Seq, Timestamps};

/// A connection sends challenge ACKs, and ACKs of segments without data that
/// are outside the window, no faster than one in half a second, which are 16
/// ticks of 32 ms and one that has begun (RFC 5961, section 7). Each connection
/// has its own: a global counter would be a side channel between connections.
const CHALLENGE_TICKS: u16 = 17;
/// What a segment acknowledges selectively.
type Sacked = ArrayVec<Block, MAX_SACK_BLOCKS>;

/// The bits by which segments are told apart.
pub(crate) const KIND: Control =
    Control(Control::FIN.0 | Control::SYN.0 | Control::RST.0 | Control::ACK.0);

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Handles a received TCP segment: updates its connection, calls the
    /// application, and queues what may be sent now.
    #[inline(always)]
    pub fn handle_segment<P: Port>(&mut self, port: &mut P, packet: Packet, now: Instant) {
        self.now = now;
        self.counters.segments_received += 1;
        let Some(segment) = Segment::parse(packet.payload()) else {
            self.counters.malformed += 1;
            return;
        };
        if !packet.checksum_ok(PROTOCOL_TCP, CHECKSUM_AT) {
            self.counters.count_bad_checksum(&packet);
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
            None => self.handle_unknown(port, packet, segment, hash, now),
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
        let mut sack = Sacked::new();
        self.twice = None;
        if segment.has_more_options() {
            let header = &packet.payload()[..usize::from(segment.data_at)];
            (segment.timestamps, sack) = self.read_options(id, header);
        }
        let tcb = &self.records[id as usize].tcb;
        let expected = tcb.state == State::Established
            && segment.control & KIND == Control::ACK
            && segment.seq == tcb.rcv_nxt
            && u32::from(segment.len) <= tcb.rcv_adv.since(tcb.rcv_nxt)
            && segment.ack.since(tcb.snd_una) <= tcb.snd_nxt.since(tcb.snd_una)
            && is_timely(tcb, segment);
        let (packet, segment) = if expected {
            (packet, segment)
        } else {
            let Some(admitted) = self.admit(port, id, packet, segment, now) else {
                return;
            };
            admitted
        };
        let tcb = &mut self.records[id as usize].tcb;
        learn(tcb, packet.path_back().link, segment);
        if tcb.flags.has(Flags::ECN) {
            self.process_congestion_marks(id, packet.ecn(), segment, now);
        }
        if self.process_ack(port, id, segment, &sack, now) == Fate::Over {
            return;
        }
        if segment.len > 0 || segment.control.has(Control::FIN) {
            self.process_data(port, id, &packet, segment, now);
        }
        let flags = self.records[id as usize].tcb.flags;
        if flags.has(Flags::ABORT) {
            self.abort(port, id, now);
            return;
        }
        self.transmit(port, id, now);
        let tcb = &self.records[id as usize].tcb;
        let waits = tcb.flags.has(Flags::WANTS_ROOM) && tcb.snd_nxt == tcb.snd_una;
        let is_unsettled = waits || tcb.state == State::TimeWait || tcb.flags.has(Flags::DUE_NEW);
        if tcb.flags.has(Flags::ACK) {
            self.acknowledge(port, id, packet, now);
        }
        self.twice = None;
        if is_unsettled {
            self.settle(id, waits, now);
        }
    }

    /// The same for the segment that has opened the connection.
    #[cold]
    #[inline(never)]
    pub(crate) fn handle_first<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) {
        self.handle_known(port, id, packet, segment, now);
    }

    /// Options other than timestamps in their usual place.
    #[cold]
    #[inline(never)]
    fn read_options(&self, id: u32, header: &[u8]) -> (Option<Timestamps>, Sacked) {
        let options = Options::read(header);
        let sack = if self.records[id as usize].tcb.flags.has(Flags::SACK) {
            options.sack
        } else {
            Sacked::new()
        };
        (options.timestamps, sack)
    }

    /// What is left to do after a pass over a connection, rarely. `waits`: the
    /// application waits for room, and nothing is in flight.
    #[cold]
    pub(crate) fn settle(&mut self, id: u32, waits: bool, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.state == State::TimeWait {
            if self.time_waits > self.settings.max_time_wait {
                self.counters.time_wait_overflow += 1;
                self.forget(id);
            }
            return;
        }
        if tcb.flags.has(Flags::DUE_NEW) {
            self.start_due(id, now);
            self.schedule(id, now);
        }
        let tcb = &mut self.records[id as usize].tcb;
        if waits && !tcb.flags.has(Flags::PERSIST) {
            // Nothing is in flight whose ACK could tell of room.
            tcb.rtt_at = now.micros;
            self.arm(id, now, ROOM_RETRY_MS);
        }
    }

    /// What routers and the peer say of congestion (RFC 3168, section 6.1).
    #[inline(never)]
    fn process_congestion_marks(&mut self, id: u32, ecn: Ecn, segment: Segment, now: Moment) {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        if segment.control.has(Control::CWR) {
            tcb.flags.clear(Flags::ECHO);
        }
        if ecn == Ecn::Ce {
            tcb.flags.set(Flags::ECHO);
            self.counters.marked += 1;
        }
        if tcb.flags.has(Flags::REDUCING) && segment.ack.after(tcb.cwr_high) {
            tcb.flags.clear(Flags::REDUCING);
        }
        if !segment.control.has(Control::ECE) {
            return;
        }
        self.counters.echoed += 1;
        // Once a window, and not when something lost has done it already.
        let mends =
            tcb.recovery != NONE && self.recoveries.get(tcb.recovery).phase != Phase::Disorder;
        if !mends && !tcb.flags.has(Flags::REDUCING) && tcb.flight() > 0 {
            congestion.on_congestion(Congestion::Ecn, &event(tcb, tcb.flight(), 0, now));
            tcb.flags.set(Flags::REDUCING | Flags::REDUCED);
            tcb.cwr_high = tcb.snd_nxt;
            self.counters.ecn_reductions += 1;
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
        mut segment: Segment,
        now: Moment,
    ) -> Option<(Packet, Segment)> {
        let tcb = &self.records[id as usize].tcb;
        let control = segment.control;
        let is_syn = control & KIND == Control::SYN;
        if is_syn && tcb.state == State::TimeWait && is_new_incarnation(tcb, segment) {
            self.reopen(port, id, packet, segment, now);
            return None;
        }
        if is_syn && tcb.state == State::SynReceived && segment.seq + 1 == tcb.rcv_nxt {
            // The same SYN: our answer may have been lost.
            let tcb = &mut self.records[id as usize].tcb;
            tcb.flags.set(Flags::SYN_AGAIN);
            tcb.flags.clear(Flags::TIMING);
            self.send_syn_ack(port, id, packet, now);
            return None;
        }

        // RFC 7323, section 5.3: before all others.
        if !control.has(Control::RST | Control::SYN) && !is_timely(tcb, segment) {
            self.refuse_untimely(port, id, packet, segment, now);
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
        } else if segment.ack.after(tcb.snd_nxt)
            || segment.ack.before(tcb.snd_una) && !tcb.is_old_ack(segment.ack)
        {
            // RFC 5961, section 5.2.
            self.counters.bad_ack += 1;
            self.challenge(port, id, packet, now);
            return None;
        } else {
            packet
        };
        let tcb = &self.records[id as usize].tcb;
        let rcv_nxt = tcb.rcv_nxt;
        if segment.len > 0 && segment.seq.before(rcv_nxt) {
            self.twice = Some((segment.seq, rcv_nxt));
        }
        Some((packet, cut_to_window(segment, rcv_nxt, window)))
    }

    /// An unacceptable segment is acknowledged and dropped.
    fn refuse<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
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
            if segment.len > 0 {
                let end = segment.seq + u32::from(segment.len);
                let tcb = &self.records[id as usize].tcb;
                self.twice = (!end.after(tcb.rcv_nxt)).then_some((segment.seq, end));
            }
            self.acknowledge(port, id, packet, now);
            self.twice = None;
        }
    }

    /// A segment whose timestamp says that it is old, or one without, though
    /// all must have them (RFC 7323, sections 3.2 and 5.3).
    ///
    /// Section 5.3, R1, answers every old segment, so that a half-open
    /// connection is found out. A pure ACK that a later one has overtaken is
    /// not answered: it is in order and acknowledges nothing new, so both ends
    /// agree, and an ACK for each reordering would only be traffic. It is
    /// dropped all the same: SACK blocks of an earlier turn of the sequence
    /// space would look like ours.
    fn refuse_untimely<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: Segment,
        now: Moment,
    ) {
        if segment.timestamps.is_none() {
            self.counters.no_timestamps += 1;
            return;
        }
        self.counters.old_timestamps += 1;
        let tcb = &self.records[id as usize].tcb;
        let is_overtaken = segment.sequence_len() == 0
            && !segment.seq.after(tcb.rcv_nxt)
            && tcb.is_old_ack(segment.ack);
        if is_overtaken {
            return;
        }
        if segment.len > 0 || segment.control.has(Control::FIN) || self.may_challenge(id, now) {
            self.acknowledge(port, id, packet, now);
        }
    }

    /// Answers what may be an attack with the truth (RFC 5961).
    fn challenge<P: Port>(&mut self, port: &mut P, id: u32, packet: Packet, now: Moment) {
        self.counters.unproven += 1;
        if self.may_challenge(id, now) {
            self.counters.challenge_acks += 1;
            self.acknowledge(port, id, packet, now);
        }
    }

    fn may_challenge(&mut self, id: u32, now: Moment) -> bool {
        let tcb = &mut self.records[id as usize].tcb;
        // 0 is "never"; the clock's 0 is taken as 1.
        let tick = ((now.millis >> 5) as u16).max(1);
        let since = tick.wrapping_sub(tcb.challenged_at);
        let may = tcb.challenged_at == 0 || since >= CHALLENGE_TICKS;
        if may {
            tcb.challenged_at = tick;
        }
        may
    }

    /// The application has aborted.
    #[cold]
    pub(crate) fn abort<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.send_reset(port, id, now);
        self.close(id, CloseReason::Aborted);
    }
}

/// The way back may change: a router that takes over has an address of its own.
/// The peer's clock goes on (RFC 7323, section 4.3; what is in order has been
/// acknowledged up to RCV.NXT).
#[inline(always)]
fn learn(tcb: &mut Tcb, link: Link, segment: Segment) {
    // Ours stays.
    if tcb.path.link.peer != link.peer || tcb.path.link.vlan != link.vlan {
        tcb.path.link = link;
    }
    if let Some(timestamps) = segment.timestamps
        && !segment.seq.after(tcb.rcv_nxt)
    {
        tcb.ts_recent = timestamps.value;
    }
}

/// Whether a segment is not older than one that was received, by its
/// timestamp (RFC 7323, section 5: PAWS).
#[inline(always)]
fn is_timely(tcb: &Tcb, segment: Segment) -> bool {
    if !tcb.flags.has(Flags::TIMESTAMPS) {
        return true;
    }
    segment.timestamps.is_some_and(|timestamps| {
        let ahead = timestamps.value.wrapping_sub(tcb.ts_recent);
        ahead.cast_signed() >= 0
    })
}

/// Whether a SYN in TIME-WAIT is of a new connection (RFC 9293, section 3.6.1,
/// MAY-2; RFC 6191, section 2): by its clock where both have one, otherwise by
/// its sequence number. Timestamps where there were none are of a new
/// connection, too.
fn is_new_incarnation(tcb: &Tcb, segment: Segment) -> bool {
    let by_number = !segment.seq.before(tcb.rcv_nxt);
    match segment.timestamps {
        None => by_number,
        Some(_) if !tcb.flags.has(Flags::TIMESTAMPS) => true,
        Some(timestamps) => {
            let ahead = timestamps.value.wrapping_sub(tcb.ts_recent).cast_signed();
            ahead > 0 || ahead == 0 && by_number
        }
    }
}

/// RFC 9293, section 3.10.7.4, table 6.
fn is_acceptable(segment: Segment, rcv_nxt: Seq, window: u32) -> bool {
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
fn cut_to_window(mut segment: Segment, rcv_nxt: Seq, window: u32) -> Segment {
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
    segment
}
