//! Arrival of a segment (RFC 9293, section 3.10.7).
//!
//! Most segments are the expected ones: in order, without SYN or RST, and with an ACK of data that we
//! have sent. For expected segments, the checks of section 3.10.7.4 reduce to the few
//! comparisons of [`Conn::expects`]. All other segments go through [`Conn::check`], which performs
//! these checks in the RFC's order.

use arrayvec::ArrayVec;

use super::{Conn, DeadlineKind, Flags, State, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::outcome::Verdict;
use crate::wire::{Block, Control, MAX_SACK_BLOCKS, Options, Segment, Seq, Timestamps};

/// Minimum interval between challenge ACKs, in ticks of 32 ms: half a second, and one tick for
/// rounding (RFC 5961, section 7).
///
/// The same limit applies to ACKs that answer refused segments without data or a FIN: segments
/// outside the window or with an old timestamp. Each connection has its own limit, because a global
/// counter would be a side channel between connections.
const CHALLENGE_TICKS: u16 = 17;

/// The bits that determine the kind of a segment, without FIN.
const KIND_BUT_FIN: Control = Control(Control::KIND.0 & !Control::FIN.0);

/// The SACK blocks of a segment.
type Sacked = ArrayVec<Block, MAX_SACK_BLOCKS>;

impl<C: CongestionControl> Conn<'_, C> {
    /// Returns a segment's timestamps, and its SACK blocks if both sides use SACK. The fast path
    /// reads timestamps in their usual place without this function.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_options(&self, header: &[u8]) -> (Option<Timestamps>, Sacked) {
        let options = Options::read(header);
        let sack = if self.tcb.negotiated.sack() {
            options.sack
        } else {
            Sacked::new()
        };
        (options.timestamps, sack)
    }

    /// Returns true if a segment is an expected one, and none of our data is lost or out of order.
    /// Such a segment passes all checks of [`check`](Self::check).
    #[inline(always)]
    pub(crate) fn expects(&self, segment: Segment) -> bool {
        let tcb = &*self.tcb;
        tcb.state.is_synchronized()
            && segment.control & KIND_BUT_FIN == Control::ACK
            && segment.seq == tcb.rcv_nxt
            && segment.sequence_len() <= tcb.rcv_adv.since(tcb.rcv_nxt)
            && segment.ack.since(tcb.snd_una) <= tcb.snd_nxt.since(tcb.snd_una)
            && is_timely(tcb, segment)
            && !tcb.is_recovering()
    }

    /// Performs the checks of RFC 9293, section 3.10.7.4, in the RFC's order, and those of RFC 5961
    /// and RFC 7323. Trims the segment to the window, and returns what to do with it.
    #[inline(always)]
    pub(crate) fn check(&mut self, segment: &mut Segment, now: Moment) -> Verdict {
        let control = segment.control;
        let is_syn = control & Control::KIND == Control::SYN;
        if is_syn && self.tcb.state == State::TimeWait && is_new_incarnation(self.tcb, *segment) {
            return Verdict::Reopen;
        }
        if is_syn && self.tcb.state == State::SynReceived && segment.seq + 1 == self.tcb.rcv_nxt {
            // The peer has retransmitted its SYN, so our SYN-ACK may have been lost.
            self.tcb.flags |= Flags::SYN_ACK_RETRANSMITTED;
            self.tcb.flags -= Flags::TIMING;
            return Verdict::SynAck;
        }

        // Timestamps are checked before the sequence number (RFC 7323, section 5.3).
        if !control.has(Control::RST | Control::SYN) && !is_timely(self.tcb, *segment) {
            return self.refuse_untimely(*segment, now);
        }

        // First check: the sequence number.
        let window = self.tcb.rcv_adv.since(self.tcb.rcv_nxt);
        if window == 0 && segment.seq == self.tcb.rcv_nxt && segment.sequence_len() > 0 {
            // The segment probes our zero window. Its data does not fit, but its ACK and RST are
            // valid, and the probe must be answered.
            segment.len = 0;
            segment.control = Control(control.0 & !Control::FIN.0);
            self.cx.counters.out_of_window += 1;
            self.tcb.flags |= Flags::ACK_PENDING;
        } else if !is_acceptable(*segment, self.tcb.rcv_nxt, window) {
            return self.refuse(*segment, now);
        }

        // Second check: the RST bit (RFC 5961, section 3.2).
        if control.has(Control::RST) {
            return self.check_reset(*segment, now);
        }

        // The third check concerns IP security compartments, which we do not use. Fourth check: the
        // SYN bit (RFC 5961, section 4.2).
        if control.has(Control::SYN) {
            self.cx.counters.unproven += 1;
            return self.challenge(now);
        }

        // Fifth check: the ACK field.
        if !control.has(Control::ACK) {
            self.cx.counters.bad_ack += 1;
            return Verdict::Drop;
        }
        let establishes = self.tcb.state == State::SynReceived;
        if establishes {
            if segment.ack != self.tcb.snd_nxt {
                self.cx.counters.bad_ack += 1;
                return Verdict::Reset;
            }
            self.establish(*segment, now);
        } else if segment.ack.after(self.tcb.snd_nxt)
            || segment.ack.before(self.tcb.snd_una) && !self.tcb.is_old_ack(segment.ack)
        {
            // An unacceptable ACK is answered with a challenge ACK, and dropped (RFC 5961, section
            // 5.2).
            self.cx.counters.bad_ack += 1;
            return self.challenge(now);
        }
        self.trim(segment, window);
        if establishes {
            Verdict::Establish
        } else {
            Verdict::Process
        }
    }

    /// Trims a segment to the window, and records its duplicate data for a DSACK.
    #[inline(always)]
    fn trim(&mut self, segment: &mut Segment, window: u32) {
        let rcv_nxt = self.tcb.rcv_nxt;
        if segment.len > 0 && segment.seq.before(rcv_nxt) {
            self.cx.dsack = Some((segment.seq, rcv_nxt));
        }
        trim_to_window(segment, rcv_nxt, window);
    }

    fn check_reset(&mut self, segment: Segment, now: Moment) -> Verdict {
        if segment.seq != self.tcb.rcv_nxt {
            self.cx.counters.unproven += 1;
            return self.challenge(now);
        }
        match self.tcb.state {
            State::SynReceived => {
                self.cx.counters.handshakes_failed += 1;
                Verdict::Forget
            }
            State::TimeWait => Verdict::Forget,
            _ => Verdict::Close,
        }
    }

    /// Establishes the connection when the third segment of the handshake arrives.
    #[inline(always)]
    fn establish(&mut self, segment: Segment, now: Moment) {
        self.enter(State::Established);
        self.note_timestamp(segment);
        let tcb = &mut *self.tcb;
        tcb.snd_una = segment.ack;
        tcb.set_peer_window(segment.window);
        if tcb.snd_wnd < 2 * u32::from(tcb.mss) && tcb.has_had_large_window() {
            // The SYN's window was much larger. A middlebox that removes the window scale of one side
            // makes all later windows small, so the SYN's window does not count.
            tcb.max_snd_wnd = segment.window;
        }
        tcb.snd_wl1 = segment.seq;
        if tcb.flags.intersects(Flags::TIMING) {
            self.cx.counters.handshake_rtts.count(tcb.end_timing(now));
        }
        if tcb.retries > 1 {
            // If the SYN-ACK timed out at least twice, the initial window is one segment (RFC 6928,
            // section 2).
            *self.congestion = C::with_window(tcb.mss.into());
        }
        tcb.retries = 0;
        tcb.backoff = 0;
        tcb.arm(DeadlineKind::Idle, self.cx.settings.first_idle_ms, now);
    }

    /// Drops an unacceptable segment, and answers with an ACK if one is needed.
    fn refuse(&mut self, segment: Segment, now: Moment) -> Verdict {
        self.cx.counters.out_of_window += 1;
        if segment.control.has(Control::RST) {
            return Verdict::Drop;
        }
        if self.tcb.state == State::TimeWait && segment.control.has(Control::FIN) {
            // The peer has sent its FIN again, so our last ACK was probably lost. Therefore
            // TIME-WAIT starts again.
            let time_wait = self.cx.settings.time_wait_ms;
            self.tcb.arm(DeadlineKind::TimeWait, time_wait, now);
        }
        // The rate of answers to segments without data or a FIN is limited. Otherwise two sides
        // that disagree would answer each other forever. A sender of data or of a FIN needs every
        // answer.
        if segment.len == 0 && !segment.control.has(Control::FIN) && !self.may_challenge(now) {
            return Verdict::Drop;
        }
        if segment.len > 0 {
            let end = segment.seq + u32::from(segment.len);
            let is_old = !end.after(self.tcb.rcv_nxt);
            self.cx.dsack = is_old.then_some((segment.seq, end));
        }
        Verdict::Acknowledge
    }

    /// Refuses a segment with an old timestamp, or without the timestamp that it must have
    /// (RFC 7323, sections 3.2 and 5.3).
    ///
    /// Section 5.3, R1, requires an ACK for every old segment, so that a half-open connection is
    /// detected. The rate of these ACKs is limited if the segment has no data or FIN. A pure ACK
    /// that a later segment has overtaken gets no answer at all. Such an ACK is in order and
    /// acknowledges nothing new, so both sides agree. An answer to every reordered ACK would only
    /// add traffic.
    ///
    /// The overtaken ACK is still dropped, because SACK blocks from before a wrap of the sequence
    /// numbers would look valid.
    fn refuse_untimely(&mut self, segment: Segment, now: Moment) -> Verdict {
        if segment.timestamps.is_none() {
            self.cx.counters.no_timestamps += 1;
            return Verdict::Drop;
        }
        self.cx.counters.old_timestamps += 1;
        let is_overtaken = segment.sequence_len() == 0
            && !segment.seq.after(self.tcb.rcv_nxt)
            && self.tcb.is_old_ack(segment.ack);
        let waits = segment.len > 0 || segment.control.has(Control::FIN);
        if !is_overtaken && (waits || self.may_challenge(now)) {
            Verdict::Acknowledge
        } else {
            Verdict::Drop
        }
    }

    /// Answers a possible attack with a challenge ACK (RFC 5961) if the rate limit allows one.
    fn challenge(&mut self, now: Moment) -> Verdict {
        if self.may_challenge(now) {
            self.cx.counters.challenge_acks += 1;
            Verdict::Acknowledge
        } else {
            Verdict::Drop
        }
    }

    fn may_challenge(&mut self, now: Moment) -> bool {
        // The value 0 means "never", so tick 0 is recorded as 1.
        let tick = ((now.millis >> 5) as u16).max(1);
        let since = tick.wrapping_sub(self.tcb.challenged_at);
        let may = self.tcb.challenged_at == 0 || since >= CHALLENGE_TICKS;
        if may {
            self.tcb.challenged_at = tick;
        }
        may
    }
}

/// Returns true if a segment's TSval is not older than `TS.Recent`, or if the connection does not
/// use timestamps (PAWS: RFC 7323, section 5).
#[inline(always)]
fn is_timely(tcb: &Tcb, segment: Segment) -> bool {
    if !tcb.negotiated.timestamps() {
        return true;
    }
    segment.timestamps.is_some_and(|timestamps| {
        let ahead = timestamps.tsval.wrapping_sub(tcb.ts_recent);
        ahead.cast_signed() >= 0
    })
}

/// Returns true if a SYN in TIME-WAIT opens a new connection (RFC 9293, section 3.6.1, MAY-2; RFC
/// 6191, section 2).
///
/// If both connections use timestamps, the SYN's TSval decides. If that TSval has not changed, the
/// SYN's sequence number decides. If only the new connection uses timestamps, the SYN opens a new
/// connection. If the new connection does not use timestamps, the SYN's sequence number decides.
fn is_new_incarnation(tcb: &Tcb, segment: Segment) -> bool {
    let by_number = !segment.seq.before(tcb.rcv_nxt);
    match segment.timestamps {
        None => by_number,
        Some(_) if !tcb.negotiated.timestamps() => true,
        Some(timestamps) => {
            let ahead = timestamps.tsval.wrapping_sub(tcb.ts_recent).cast_signed();
            ahead > 0 || ahead == 0 && by_number
        }
    }
}

/// Returns true if a segment is acceptable by RFC 9293, section 3.10.7.4, table 6.
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

/// Removes data that was already received, and data and a FIN beyond the window.
#[inline(always)]
fn trim_to_window(segment: &mut Segment, rcv_nxt: Seq, window: u32) {
    let before = rcv_nxt.since(segment.seq);
    if segment.seq.before(rcv_nxt) {
        let duplicate = before.min(u32::from(segment.len)) as u16;
        segment.seq = segment.seq + u32::from(duplicate);
        segment.data_at += duplicate;
        segment.len -= duplicate;
    }
    let end = segment.seq.since(rcv_nxt) + u32::from(segment.len);
    if end > window {
        let excess = (end - window).min(u32::from(segment.len)) as u16;
        segment.len -= excess;
        segment.control = Control(segment.control.0 & !Control::FIN.0);
    }
}

impl Tcb {
    /// Returns true if an ACK below SND.UNA is merely old: the distance to SND.UNA is at most the
    /// peer's largest window (RFC 5961, section 5.2).
    fn is_old_ack(&self, ack: Seq) -> bool {
        self.snd_una.since(ack) <= self.peer_window(self.max_snd_wnd)
    }
}
