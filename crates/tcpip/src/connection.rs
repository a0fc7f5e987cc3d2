//! One connection: a [`Tcb`] with its congestion control, and the rules of TCP
//! for them.
//!
//! A [`Conn`] knows no application and no port. It takes a segment
//! ([`Conn::on_segment`]) or the time ([`Conn::on_deadline`]), and says what to
//! send ([`Conn::next_segment`]). The stack calls the application in between.

mod close_reason;
mod condition;
mod conn;
#[cfg(test)]
mod reordering_window_tests;

use std::ops::{BitOr, BitOrAssign, SubAssign};

use ip::{Ecn, Path};

use crate::clock::Moment;
use crate::congestion::Event;
use crate::content::NO_CLASS;
use crate::negotiated::Negotiated;
use crate::pools::NONE;
use crate::rto::Rtt;
use crate::stream::{Lists, Slice, Stream};
use crate::wire::{Block, Control, Header, Segment, Seq, Timestamps};

pub use close_reason::CloseReason;
pub use condition::Condition;
pub(crate) use conn::{Conn, Context, Record, SendInfo};
pub use conn::{Info, MAX_RANGES};

/// Where a connection stands: the states of RFC 9293, section 3.3.2. LISTEN is none,
/// as it needs no connection, and SYN-SENT is for clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// There is none, or no longer.
    #[default]
    Closed,
    /// A SYN has come, and our answer is not acknowledged yet.
    SynReceived,
    /// Both sides send.
    Established,
    /// The peer has closed its side.
    CloseWait,
    /// We have closed ours.
    FinWait1,
    /// Likewise, and the peer knows it.
    FinWait2,
    /// Both have closed at once: the peer has yet to learn it.
    Closing,
    /// We have closed after the peer, which has yet to learn it.
    LastAck,
    /// Both have closed; what is late is kept from a later connection.
    TimeWait,
}

impl State {
    /// The peer may still send data.
    #[inline(always)]
    const fn receives(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// We may still send, or send again.
    #[inline(always)]
    const fn sends(self) -> bool {
        matches!(
            self,
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck
        )
    }

    /// Our FIN has been sent.
    #[inline(always)]
    const fn fin_sent(self) -> bool {
        matches!(
            self,
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck | Self::TimeWait
        )
    }
}

/// What else is the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags(u32);

impl Flags {
    /// The application has closed: a FIN follows what is written.
    pub(crate) const CLOSE: Self = Self(1);
    /// The application has aborted.
    pub(crate) const ABORT: Self = Self(1 << 1);
    /// A write has failed for want of room: the application waits for it.
    pub(crate) const WANTS_ROOM: Self = Self(1 << 2);
    /// The peer's FIN has come in order, and the application is still to be
    /// told.
    const HALF_CLOSE: Self = Self(1 << 3);
    /// Something must be acknowledged.
    pub(crate) const ACK_PENDING: Self = Self(1 << 4);
    /// A segment is being timed: `rtt_seq` and `rtt_at` are valid.
    const TIMING: Self = Self(1 << 6);
    /// The SYN-ACK was sent more than once.
    const SYN_ACK_RETRANSMITTED: Self = Self(1 << 7);
    /// The peer has told a window of two segments or more.
    const LARGE_WINDOW: Self = Self(1 << 8);
    /// A router has marked a packet: the peer is told until it says CWR.
    const SEND_ECE: Self = Self(1 << 9);
    /// The peer has echoed a mark or something was lost: the next new segment
    /// says CWR.
    const SEND_CWR: Self = Self(1 << 10);
    /// `cwr_high` is valid: until it is acknowledged, echoes say nothing new.
    const IN_CWR: Self = Self(1 << 11);
    /// Segments have overtaken each other on the way (RFC 8985, section 6.2).
    const REORDERING: Self = Self(1 << 12);
    /// The path takes less than both ends would: it may widen again.
    const REDUCED_MTU: Self = Self(1 << 13);
    /// The window has opened at once: what it has room for is spread.
    const SPREAD_BURST: Self = Self(1 << 14);
    /// The TX ring had no room for a probe of the peer's window.
    const PROBE_PENDING: Self = Self(1 << 15);
    /// A probe of the path's width has been lost, …
    const MTU_PROBE_LOST: Self = Self(1 << 16);
    /// … and another one of the same size.
    const MTU_PROBE_LOST_TWICE: Self = Self(1 << 17);

    #[inline(always)]
    pub(crate) const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }
}

impl BitOrAssign for Flags {
    #[inline(always)]
    fn bitor_assign(&mut self, bits: Self) {
        self.0 |= bits.0;
    }
}

impl SubAssign for Flags {
    #[inline(always)]
    fn sub_assign(&mut self, bits: Self) {
        self.0 &= !bits.0;
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a connection's deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeadlineKind {
    /// A SYN-ACK that may be lost (RFC 6298, 5.7).
    Handshake,
    /// The retransmission timeout (RFC 6298).
    Retransmit,
    /// A tail loss probe (RFC 8985, section 7.2).
    TailProbe,
    /// Segments that are reordered, or lost (RFC 8985, section 6.2).
    Reordering,
    /// The next paced segments.
    Pacing,
    /// A probe of the peer's window, which is shut or too small (RFC 9293,
    /// section 3.8.6.1).
    ZeroWindow,
    /// Nothing is in flight: a keep-alive, the idle timeout, or an application
    /// that waits for room.
    Idle,
    /// As `Idle`, and the peer is being asked whether it is there: `backoff`
    /// counts how often it was time for that, and `retries` how often it was
    /// since it has last answered.
    KeepAlive,
    /// The peer's FIN.
    FinWait,
    /// The end of TIME-WAIT.
    TimeWait,
}

/// Recoveries for which a wider reordering window is remembered (RFC 8985,
/// section 6.2: `RACK.reo_wnd_persist`).
const PERSIST: u8 = 15;
/// The widest reordering window, in quarters of the least round trip.
const MAX_QUARTERS: u8 = 15;

/// For how long segments may change their order on the way (RFC 8985, section 6.2,
/// step 4): quarters of the least round trip (the RFC's
/// `RACK.reo_wnd_mult`), 1 to 15, and recoveries before they are one again,
/// times 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReorderingWindow(u8);

impl ReorderingWindow {
    /// A quarter of the least round trip.
    const fn new() -> Self {
        Self(1)
    }

    /// How long a segment that was overtaken may stay out, in microseconds.
    fn window(self, rtt: Rtt) -> u32 {
        let quarters = u32::from(self.0 & 0x0f);
        let window = (rtt.min() / 4).saturating_mul(quarters);
        window.min(rtt.smoothed())
    }

    /// Something has arrived twice, sent again for nothing: segments stay out
    /// longer than was thought. (RFC 8985 leaves `RACK.reordering_seen` alone then,
    /// and goes on without a window while it recovers; where segments are late by
    /// more than a round trip that sends far more for nothing.)
    fn widen(&mut self) {
        let quarters = (self.0 & 0x0f).saturating_add(1).min(MAX_QUARTERS);
        self.0 = PERSIST << 4 | quarters;
    }

    /// A recovery has ended: after some, the reordering window is as it was.
    fn decay(&mut self) {
        let recoveries = self.0 >> 4;
        self.0 = if recoveries <= 1 {
            1
        } else {
            (recoveries - 1) << 4 | self.0 & 0x0f
        };
    }
}

/// A tail is not probed sooner, in milliseconds: the timers of many fast
/// connections would cost more than they mend.
const MIN_PROBE_MS: u32 = 10;
/// How long a peer may hold back the acknowledgement of a lone segment, in
/// milliseconds (RFC 8985, section 7.2: `TLP.max_ack_delay`).
const MAX_ACK_DELAY_MS: u32 = 200;

/// An older echo is not of anything in flight, in milliseconds.
const MAX_ECHO_MS: u32 = 600_000;

/// The granularity of pacing, in microseconds: a tick of the timers.
const PACING_TICK: u32 = 1_000;
/// However slow the rate, a segment does not hold up the next for longer, in
/// microseconds.
const MAX_PACING_DEBT: u32 = 1_000_000;

/// See the module's text. Fields are named as in RFC 9293, section 3.3.1.
#[derive(Clone, Debug)]
pub(crate) struct Tcb {
    pub(crate) path: Path,
    own_port: u16,
    peer_port: u16,
    /// What addresses, ports and protocol add to every checksum, folded.
    pub(crate) sum: u16,
    /// Most bytes of data in a segment.
    pub(crate) mss: u16,
    /// Of prepared segments, or [`NO_CLASS`].
    pub(crate) class: u8,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    /// Timeouts since the peer has last acknowledged something.
    retries: u8,
    /// Doublings of the timeout (RFC 6298, 5.5), until a round trip is
    /// measured again.
    backoff: u8,
    negotiated: Negotiated,
    /// What the deadline is for.
    deadline_kind: DeadlineKind,
    reo_wnd: ReorderingWindow,
    /// The largest segments that the peer and we could take, as `mss`.
    mss_max: u16,
    /// The least that the path was found too narrow for; 0: none.
    mss_too_big: u16,
    /// When a larger one may be tried, in seconds.
    raise_at: u16,
    /// When a challenge ACK was last sent: low bits of a clock of 32 ms, which
    /// come again after 35 minutes.
    challenged_at: u16,
    snd_una: Seq,
    /// Behind everything that was ever sent: new data begins here. What is to
    /// be sent again before it, the scoreboard tells.
    snd_nxt: Seq,
    /// The peer's window, in bytes from `snd_una`.
    snd_wnd: u32,
    /// The largest window that the peer has ever told (RFC 5961's
    /// `MAX.SND.WND`), as its field has it: scaled.
    max_snd_wnd: u16,
    /// Segment that `snd_wnd` was taken from.
    snd_wl1: Seq,
    rcv_nxt: Seq,
    /// Right edge of the window that we have told.
    rcv_adv: Seq,
    rtt: Rtt,
    /// An ACK of this ends the timing that began at `rtt_at`.
    rtt_seq: Seq,
    /// In microseconds. While the peer's window is shut, and while nothing is in
    /// flight and the application waits for room: when the peer was last heard.
    rtt_at: u32,
    /// When something is due, in milliseconds.
    pub(crate) deadline: u32,
    pub(crate) stream: Stream,
    /// Receive buffer, or [`NONE`].
    buffer: u32,
    /// What became of what is in flight, or [`NONE`] while all goes well.
    recovery: u32,
    /// The peer's latest timestamp (RFC 7323's `TS.Recent`).
    ts_recent: u32,
    /// What our timestamps are ahead of the clock's milliseconds.
    ts_offset: u32,
    /// An ACK of this ends the window in which an echo was answered.
    cwr_high: Seq,
    /// Until when, in microseconds, what has been sent lasts at the rate of
    /// pacing.
    paced_until: u32,
}

impl Tcb {
    /// Bytes and FIN sent and not acknowledged, lost ones included.
    #[inline(always)]
    fn flight(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
    }

    /// Behind the last thing to be sent: what was written, and the FIN if the
    /// application has closed.
    #[inline(always)]
    fn limit(&self) -> Seq {
        self.stream.end() + u32::from(self.flags.has(Flags::CLOSE))
    }

    /// The retransmission timeout in milliseconds, at least `min_rto_ms` before
    /// it is doubled.
    #[inline(always)]
    fn rto(&self, min_rto_ms: u32) -> u32 {
        let after_loss = self.flags.has(Flags::SYN_ACK_RETRANSMITTED);
        self.rtt.timeout(self.backoff, after_loss, min_rto_ms)
    }

    /// Sets the deadline to `after` milliseconds from now. A later one than
    /// before costs no more: the wheel's entry expires early and is set again
    /// then.
    #[inline(always)]
    fn arm(&mut self, kind: DeadlineKind, after: u32, now: Moment) {
        self.deadline_kind = kind;
        self.deadline = now.millis.wrapping_add(after);
    }

    /// The peer's window is shut, or too small: the timer probes it.
    #[inline(always)]
    fn probes_window(&self) -> bool {
        self.deadline_kind == DeadlineKind::ZeroWindow
    }

    /// What is in flight, if anything, is no probe of the peer's window any
    /// more. The deadline stays.
    fn stop_probing(&mut self) {
        self.deadline_kind = DeadlineKind::Retransmit;
        (self.retries, self.backoff) = (0, 0);
    }

    /// Ours and the peer's.
    #[inline(always)]
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.own_port, self.peer_port)
    }

    /// The window that a field of a segment of the peer's tells, in bytes.
    #[inline(always)]
    fn peer_window(&self, field: u16) -> u32 {
        u32::from(field) << self.negotiated.peer_scale()
    }

    /// Takes the peer's window from a segment's field.
    #[inline(always)]
    fn set_peer_window(&mut self, field: u16) {
        self.snd_wnd = self.peer_window(field);
        self.max_snd_wnd = self.max_snd_wnd.max(field);
    }

    /// The timestamps of a segment that is sent now, if both sides send them.
    #[inline(always)]
    fn timestamps(&self, now: Moment) -> Option<Timestamps> {
        self.negotiated.timestamps().then(|| Timestamps {
            value: self.ts_clock(now),
            echo: self.ts_recent,
        })
    }

    /// The clock of our timestamps: milliseconds (RFC 7323, section 5.4).
    #[inline(always)]
    fn ts_clock(&self, now: Moment) -> u32 {
        now.millis.wrapping_add(self.ts_offset)
    }

    /// The control bits of every segment (RFC 3168, section 6.1).
    #[inline(always)]
    fn control(&self) -> Control {
        if self.flags.has(Flags::SEND_ECE) {
            Control::ACK | Control::ECE
        } else {
            Control::ACK
        }
    }

    /// What was timed has arrived.
    #[inline(always)]
    fn end_timing(&mut self, now: Moment) -> u32 {
        self.flags -= Flags::TIMING;
        self.backoff = 0;
        let rtt = now.micros.wrapping_sub(self.rtt_at);
        self.rtt.sample(rtt);
        rtt
    }

    /// What must be done about what is in flight, and when, in milliseconds:
    /// it is sent again or, while all `is_in_order`, its tail is probed.
    #[inline(always)]
    fn timeout(&self, is_in_order: bool, min_rto_ms: u32) -> (DeadlineKind, u32) {
        let rto = self.rto(min_rto_ms);
        if self.probes_window() {
            return (DeadlineKind::ZeroWindow, rto);
        }
        let is_measured = self.rtt.smoothed() > 0;
        if !self.negotiated.sack() || !is_measured || self.backoff > 0 || !is_in_order {
            return (DeadlineKind::Retransmit, rto);
        }
        // RFC 8985, section 7.2.
        let mut probe = (self.rtt.smoothed() / 500).max(MIN_PROBE_MS);
        if self.flight() <= u32::from(self.mss) {
            probe += MAX_ACK_DELAY_MS;
        }
        (DeadlineKind::TailProbe, probe.min(rto))
    }

    /// What an algorithm of congestion control is told.
    #[inline(always)]
    fn event(&self, in_flight: u32, rtt: u32, now: Moment) -> Event {
        Event {
            now: now.micros,
            in_flight,
            mss: u32::from(self.mss),
            srtt: self.rtt.smoothed(),
            rtt,
            una: self.snd_una.0,
            nxt: self.snd_nxt.0,
        }
    }

    /// Everything before `seq` has been sent, the FIN perhaps too.
    #[inline(always)]
    fn has_sent_to(&mut self, seq: Seq) {
        if seq.after(self.snd_nxt) {
            self.snd_nxt = seq;
        }
        if seq == self.stream.end() + 1 {
            self.state = match self.state {
                State::Established => State::FinWait1,
                State::CloseWait => State::LastAck,
                other => other,
            };
        }
    }

    /// Where the last segment that was sent begins; something is in flight.
    fn last_segment(&self, lists: &Lists) -> Seq {
        // Data that a FIN went with, or might have, goes again with it.
        let last = if self.snd_nxt == self.stream.end() + 1 {
            self.stream.end()
        } else {
            self.snd_nxt
        };
        let last = Seq(last.0.wrapping_sub(1));
        if last.before(self.snd_una) {
            return self.snd_una;
        }
        let Some(slice) = self.stream.locate(last, lists) else {
            return self.snd_una;
        };
        let ahead = slice.from % u32::from(self.mss);
        // A slice may begin within a segment of its content.
        let ahead = ahead.min(last.since(self.stream.entry_start(last, lists)));
        Seq(last.0.wrapping_sub(ahead)).later(self.snd_una)
    }

    /// Takes a measurement of the round trip from an acknowledgement of
    /// something new, if it tells one; in microseconds, or 0.
    #[inline(always)]
    fn measure(&mut self, segment: Segment, now: Moment) -> u32 {
        if self.flags.has(Flags::TIMING) && !segment.ack.before(self.rtt_seq) {
            return self.end_timing(now);
        }
        // The echo is as fine as its clock, and there is one for each
        // acknowledgement: it only helps out where nothing else is timed.
        match segment.timestamps {
            Some(timestamps) if self.negotiated.timestamps() => {
                self.measure_echo(timestamps.echo, now)
            }
            _ => 0,
        }
    }

    /// The same from a selective acknowledgement, of which the echo tells
    /// nothing.
    fn measure_selective(&mut self, sack: &[Block], now: Moment) -> u32 {
        let timed = self.rtt_seq;
        let mut blocks = sack.iter();
        if self.flags.has(Flags::TIMING)
            && blocks.any(|(start, end)| start.before(timed) && !end.before(timed))
        {
            return self.end_timing(now);
        }
        0
    }

    /// The round trip that an echo tells, in microseconds; 0 when it tells none.
    /// It was up to a millisecond shorter, and the shortest of several is about
    /// right.
    #[inline]
    fn measure_echo(&mut self, echo: u32, now: Moment) -> u32 {
        let millis = self.ts_clock(now).wrapping_sub(echo);
        if echo == 0 || millis == 0 || millis > MAX_ECHO_MS {
            return 0;
        }
        if !self.flags.has(Flags::TIMING) {
            self.backoff = 0;
            self.rtt.sample(millis * 1000);
        }
        millis * 1000 + now.micros.wrapping_sub(now.millis.wrapping_mul(1000))
    }

    /// Whether an ACK of nothing new is a duplicate (RFC 5681, section 2).
    #[inline(always)]
    fn is_duplicate(&self, segment: Segment) -> bool {
        segment.len == 0
            && self.snd_nxt != self.snd_una
            && self.peer_window(segment.window) == self.snd_wnd
            && !segment.control.has(Control::FIN)
    }

    /// Microseconds that what has left is worth yet.
    fn pacing_debt(&self, now: Moment) -> u32 {
        let ahead = self.paced_until.wrapping_sub(now.micros);
        // More than that is a clock that has wrapped meanwhile.
        if ahead > MAX_PACING_DEBT { 0 } else { ahead }
    }

    /// Whole milliseconds until there is a budget again, when there is none.
    #[cold]
    fn pacing_delay(&self, now: Moment) -> Option<u32> {
        let pause = self.pacing_debt(now) / PACING_TICK;
        (pause > 0).then_some(pause)
    }
}

/// Why a segment is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SegmentKind {
    /// For the first time.
    New,
    /// It was lost.
    Retransmission,
    /// It probes the tail (RFC 8985, section 7.3); `again`: it is no new data.
    TailProbe { is_retransmission: bool },
    /// It probes a window that is shut or too small.
    WindowProbe,
    /// It probes the path MTU (RFC 4821, RFC 8899).
    MtuProbe,
}

/// A segment, or a run of segments, to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    kind: SegmentKind,
    pub(crate) header: Header,
    pub(crate) ecn: Ecn,
    /// Where its data begins, to the entry's end.
    pub(crate) slice: Slice,
    /// Bytes of data; 0: it is a FIN alone.
    pub(crate) len: u32,
    /// Number of the prepared segment that it is, if it is one.
    pub(crate) prepared: Option<u32>,
    /// It is more than one segment.
    pub(crate) is_run: bool,
}

impl Plan {
    /// What it takes of sequence space: from its first number to behind the
    /// last.
    #[inline(always)]
    fn range(&self) -> (Seq, Seq) {
        let fin = u32::from(self.header.control.has(Control::FIN));
        (self.header.seq, self.header.seq + self.len + fin)
    }

    /// A segment without data.
    #[inline(always)]
    fn of_control(kind: SegmentKind, header: Header) -> Self {
        Self {
            kind,
            header,
            ecn: Ecn::NotEct,
            slice: Slice::default(),
            len: 0,
            prepared: None,
            is_run: false,
        }
    }
}

/// Where a segment is cut that begins at some place of the stream.
#[derive(Clone, Copy, Debug, Default)]
struct StreamSegment {
    slice: Slice,
    /// Bytes to the next boundary: of a segment of the class, or the entry's
    /// end.
    len: u32,
    /// Number of the prepared segment that begins here, if one does.
    prepared: Option<u32>,
}

impl StreamSegment {
    /// `None` where the stream ends.
    #[inline(always)]
    fn at(tcb: &Tcb, seq: Seq, lists: &Lists) -> Option<Self> {
        let slice = tcb.stream.locate(seq, lists)?;
        let mss = u32::from(tcb.mss);
        let index = slice.from / mss;
        let ahead = slice.from - index * mss;
        let len = (mss - ahead).min(slice.len);
        let prepared = ahead == 0
            && tcb.class != NO_CLASS
            && (slice.source.ends_content() || len == mss && slice.source.buffer().is_none());
        Some(Self {
            slice,
            len,
            prepared: prepared.then_some(index),
        })
    }

    /// What the segment at `seq` of the stream takes of sequence space: its bytes
    /// of data, or the FIN's one.
    fn segment_len(tcb: &Tcb, seq: Seq, lists: &Lists) -> u32 {
        Self::at(tcb, seq, lists).map_or(1, |segment| segment.len)
    }

    /// Bytes of the run of segments that begins here, as long as may be sent:
    /// `usable` bytes, in one packet of at most `most` bytes of data. 0: it
    /// would be no more than a segment, or not be cut as the class is.
    #[inline(always)]
    fn run(&self, mss: u32, usable: u32, most: u32) -> u32 {
        let left = self.slice.len;
        let bytes = left.min(usable).min(most);
        if bytes <= mss || self.prepared.is_none() {
            return 0;
        }
        let run = if bytes == left {
            left
        } else {
            bytes - bytes % mss
        };
        if run > mss { run } else { 0 }
    }
}

const _: () = assert!(size_of::<Tcb>() <= 208);
