//! One connection: a [`Tcb`] with its congestion control, and the rules of TCP
//! for them.
//!
//! A [`Conn`] knows no application and no port. It takes a segment
//! ([`Conn::on_segment`]) or the time ([`Conn::on_deadline`]), and says what to
//! send ([`Conn::next`]). The stack calls the application in between.

mod acks;
mod close_reason;
mod context;
mod deadlines;
mod info;
mod opening;
pub(crate) mod outcome;
mod pacing;
mod plan;
mod receive;
mod recovery;
mod segment;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transmit;
#[cfg(any(test, fuzzing))]
mod view;

use ip::{Ecn, Path};

use crate::clock::Moment;
use crate::congestion::{CongestionControl, Event};
use crate::content::NO_CLASS;
use crate::counters::Counters;
use crate::mss::OwnMss;
use crate::negotiated::Negotiated;
use crate::pools::{NONE, Peers};
use crate::rto::Rtt;
use crate::stream::{Lists, Slice, Stream};
use crate::wire::{Block, Control, Header, Seq, Timestamps};

pub use close_reason::CloseReason;
pub(crate) use info::Sight;
pub use info::{Condition, Info};
pub use receive::MAX_RANGES;

use receive::Buffers;
use recovery::{Recoveries, Recovery, Reorder};

/// The states of RFC 9293, section 3.3.2, that a server's connection can be
/// in; CLOSED is a free TCB, and LISTEN needs none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Closed,
    SynReceived,
    Established,
    CloseWait,
    FinWait1,
    FinWait2,
    Closing,
    LastAck,
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
    pub(crate) const ACK: Self = Self(1 << 4);
    /// On the list of those that the TX ring had no room for.
    pub(crate) const BLOCKED: Self = Self(1 << 5);
    /// A segment is being timed: `rtt_seq` and `rtt_at` are valid.
    const TIMING: Self = Self(1 << 6);
    /// The SYN-ACK was sent more than once.
    const SYN_AGAIN: Self = Self(1 << 7);
    /// The peer has told a window of two segments or more.
    const WIDE: Self = Self(1 << 8);
    /// A router has marked a packet: the peer is told until it says CWR.
    const ECHO: Self = Self(1 << 9);
    /// The peer has echoed a mark or something was lost: the next new segment
    /// says CWR.
    const REDUCED: Self = Self(1 << 10);
    /// `cwr_high` is valid: until it is acknowledged, echoes say nothing new.
    const REDUCING: Self = Self(1 << 11);
    /// Segments have overtaken each other on the way (RFC 8985, section 6.2).
    const REORDERING: Self = Self(1 << 12);
    /// The path takes less than both ends would: it may widen again.
    const NARROW: Self = Self(1 << 13);
    /// The window has opened at once: what it has room for is spread.
    const SPREAD: Self = Self(1 << 14);
    /// The TX ring had no room for a probe of the peer's window.
    const OWES_PROBE: Self = Self(1 << 15);
    /// A probe of the path's width has been lost, …
    const SIZE_LOST: Self = Self(1 << 16);
    /// … and another one of the same size.
    const SIZE_LOST_TWICE: Self = Self(1 << 17);

    /// The application has set a deadline: see
    /// its standing.
    pub(crate) const DUE: Self = Self(1 << 18);
    /// It has just set one, which does not run yet.
    pub(crate) const DUE_NEW: Self = Self(1 << 19);

    #[inline(always)]
    pub(crate) const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    #[inline(always)]
    pub(crate) const fn set(&mut self, bits: Self) {
        self.0 |= bits.0;
    }

    #[inline(always)]
    pub(crate) const fn clear(&mut self, bits: Self) {
        self.0 &= !bits.0;
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a connection's deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// A SYN-ACK that may be lost (RFC 6298, 5.7).
    Handshake,
    /// The retransmission timeout (RFC 6298).
    Retransmit,
    /// A tail loss probe (RFC 8985, section 7.2).
    TailProbe,
    /// Segments that are reordered, or lost (RFC 8985, section 6.2).
    Reorder,
    /// The next paced segments.
    Pacing,
    /// A probe of the peer's window, which is shut or too small (RFC 9293,
    /// section 3.8.6.1).
    ZeroWindow,
    /// Nothing is in flight: a keep-alive, the idle timeout, or an application
    /// that waits for room.
    Silence,
    /// As `Silence`, and the peer is being asked whether it is there: `backoff`
    /// counts how often it was time for that, and `retries` how often it was
    /// since it has last answered.
    KeepAlive,
    /// The peer's FIN.
    FinWait,
    /// The end of TIME-WAIT.
    TimeWait,
}

/// A tail is not probed sooner, in milliseconds: the timers of many fast
/// connections would cost more than they mend.
const MIN_PROBE_MS: u32 = 10;
/// How long a peer may hold back the acknowledgement of a lone segment, in
/// milliseconds (RFC 8985, section 7.2: `TLP.max_ack_delay`).
const MAX_ACK_DELAY_MS: u32 = 200;

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
    due: Due,
    reorder: Reorder,
    /// The largest segments that the peer and we could take, as `mss`.
    mss_most: u16,
    /// The least that the path was found too narrow for; 0: none.
    mss_fails: u16,
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
    deadline: u32,
    /// When the wheel's entry expires: not later than `deadline`.
    scheduled: u32,
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

    /// The retransmission timeout in milliseconds, at least `least_ms` before
    /// it is doubled.
    #[inline(always)]
    fn rto(&self, least_ms: u32) -> u32 {
        let after_loss = self.flags.has(Flags::SYN_AGAIN);
        self.rtt.timeout(self.backoff, after_loss, least_ms)
    }

    /// Sets the deadline to `after` milliseconds from now. A later one than
    /// before costs no more: the wheel's entry expires early and is set again
    /// then.
    #[inline(always)]
    fn arm(&mut self, due: Due, after: u32, now: Moment) {
        self.due = due;
        self.deadline = now.millis.wrapping_add(after);
    }

    /// The peer's window is shut, or too small: the timer probes it.
    #[inline(always)]
    fn probes_window(&self) -> bool {
        self.due == Due::ZeroWindow
    }

    /// What is in flight, if anything, is no probe of the peer's window any
    /// more. The deadline stays.
    fn stop_probing(&mut self) {
        self.due = Due::Retransmit;
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
        if self.flags.has(Flags::ECHO) {
            Control::ACK | Control::ECE
        } else {
            Control::ACK
        }
    }

    /// What was timed has arrived.
    #[inline(always)]
    fn end_timing(&mut self, now: Moment) -> u32 {
        self.flags.clear(Flags::TIMING);
        self.backoff = 0;
        let rtt = now.micros.wrapping_sub(self.rtt_at);
        self.rtt.sample(rtt);
        rtt
    }

    /// What must be done about what is in flight, and when, in milliseconds:
    /// it is sent again or, while all `is_calm`, its tail is probed.
    #[inline(always)]
    fn timeout(&self, is_calm: bool, min_rto_ms: u32) -> (Due, u32) {
        let rto = self.rto(min_rto_ms);
        if self.probes_window() {
            return (Due::ZeroWindow, rto);
        }
        let is_measured = self.rtt.smoothed() > 0;
        if !self.negotiated.sack() || !is_measured || self.backoff > 0 || !is_calm {
            return (Due::Retransmit, rto);
        }
        // RFC 8985, section 7.2.
        let mut probe = (self.rtt.smoothed() / 500).max(MIN_PROBE_MS);
        if self.flight() <= u32::from(self.mss) {
            probe += MAX_ACK_DELAY_MS;
        }
        (Due::TailProbe, probe.min(rto))
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
        let Some(place) = self.stream.locate(last, lists) else {
            return self.snd_una;
        };
        let ahead = place.from % u32::from(self.mss);
        // A slice may begin within a segment of its content.
        let ahead = ahead.min(last.since(self.stream.entry_start(last, lists)));
        Seq(last.0.wrapping_sub(ahead)).later(self.snd_una)
    }
}

/// Why a segment is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// For the first time.
    New,
    /// It was lost.
    Lost,
    /// It probes the tail (RFC 8985, section 7.3); `again`: it is no new data.
    TailProbe { again: bool },
    /// It probes a window that is shut or too small.
    WindowProbe,
    /// It probes the path MTU (RFC 4821, RFC 8899).
    SizeProbe,
}

/// A segment, or a run of segments, to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) header: Header,
    pub(crate) ecn: Ecn,
    /// Where its data begins, to the entry's end.
    pub(crate) place: Slice,
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
    fn of_control(kind: Kind, header: Header) -> Self {
        Self {
            kind,
            header,
            ecn: Ecn::NotEct,
            place: Slice::default(),
            len: 0,
            prepared: None,
            is_run: false,
        }
    }
}

/// Where a segment is cut that begins at some place of the stream.
#[derive(Clone, Copy, Debug)]
struct Cut {
    place: Slice,
    /// Bytes to the next boundary: of a segment of the class, or the entry's
    /// end.
    whole: u32,
    /// Number of the prepared segment that begins here, if one does.
    prepared: Option<u32>,
}

impl Cut {
    /// `None` where the stream ends.
    #[inline(always)]
    fn at(tcb: &Tcb, seq: Seq, lists: &Lists) -> Option<Self> {
        let place = tcb.stream.locate(seq, lists)?;
        let mss = u32::from(tcb.mss);
        let segment = place.from / mss;
        let ahead = place.from - segment * mss;
        let whole = (mss - ahead).min(place.len);
        let prepared = ahead == 0
            && tcb.class != NO_CLASS
            && (place.source.ends_content() || whole == mss && place.source.buffer().is_none());
        Some(Self {
            place,
            whole,
            prepared: prepared.then_some(segment),
        })
    }

    /// What the segment at `seq` of the stream takes of sequence space: its bytes
    /// of data, or the FIN's one.
    fn segment_len(tcb: &Tcb, seq: Seq, lists: &Lists) -> u32 {
        Self::at(tcb, seq, lists).map_or(1, |cut| cut.whole)
    }

    /// Bytes of the run of segments that begins here, as long as may be sent:
    /// `usable` bytes, in one packet of at most `most` bytes of data. 0: it
    /// would be no more than a segment, or not be cut as the class is.
    #[inline(always)]
    fn run(&self, mss: u32, usable: u32, most: u32) -> u32 {
        let left = self.place.len;
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

/// What a new connection begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    negotiated: Negotiated,
    /// The most bytes of data in a segment.
    mss: u16,
    iss: Seq,
    /// What our timestamps are ahead of the clock's milliseconds.
    ts_offset: u32,
}

/// A TCB and its congestion control.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Record<C> {
    pub(crate) tcb: Tcb,
    congestion: C,
}

/// What of the configuration concerns one connection. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Settings {
    syn_ack_retries: u8,
    retries: u8,
    probes: u8,
    pacing: bool,
    time_wait_ms: u32,
    fin_wait_ms: u32,
    idle_ms: u32,
    /// `u32::MAX`: none.
    user_timeout_ms: u32,
    /// Between probes of a shut window: some are to go before the user timeout.
    most_probe_interval_ms: u32,
    /// The silence after which something is done: a keep-alive is sent, or the
    /// connection closed.
    silence_ms: u32,
    min_rto_ms: u32,
}

/// What all connections of a stack share.
#[derive(Debug)]
pub(crate) struct Context<C> {
    settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) own_mss: OwnMss,
    /// What each client address holds.
    pub(crate) peers: Peers,
    /// Entries of streams that have no place in their TCBs.
    pub(crate) lists: Lists,
    pub(crate) buffers: Buffers,
    losses: Recoveries<C>,
    /// The shift of our windows, where they are scaled (RFC 7323, section 2.3).
    window_scale: u8,
    /// What the segment in hand has brought that was here already: told with
    /// its acknowledgement (RFC 2883).
    pub(crate) twice: Option<Block>,
    /// The class of the connection in hand while its segments had another size.
    left_class: Option<u8>,
}

/// A connection in hand: see [the module's text](self).
pub(crate) struct Conn<'a, C> {
    pub(crate) tcb: &'a mut Tcb,
    congestion: &'a mut C,
    pub(crate) cx: &'a mut Context<C>,
}

impl<'a, C: CongestionControl> Conn<'a, C> {
    pub(crate) fn new(record: &'a mut Record<C>, cx: &'a mut Context<C>) -> Self {
        let Record { tcb, congestion } = record;
        Self {
            tcb,
            congestion,
            cx,
        }
    }

    /// What became of what is in flight, unless all goes well.
    #[inline(always)]
    fn recovery(&self) -> Option<&Recovery<C>> {
        match self.tcb.recovery {
            NONE => None,
            index => Some(&self.cx.losses[index]),
        }
    }

    /// The same connection for a call that is not inlined, so that this one can
    /// stay in registers.
    #[inline(always)]
    fn again(&mut self) -> Conn<'_, C> {
        Conn {
            tcb: self.tcb,
            congestion: self.congestion,
            cx: self.cx,
        }
    }

    /// Sets the deadline after an ACK of something new (RFC 6298, 5.2 and 5.3).
    /// `is_calm`: nothing of what is in flight is known to be out of order.
    #[inline(always)]
    fn arm_after_ack(&mut self, is_calm: bool, now: Moment) {
        let tcb = &mut *self.tcb;
        if tcb.snd_nxt == tcb.snd_una && !tcb.probes_window() {
            tcb.arm(Due::Silence, self.cx.settings.silence_ms, now);
        } else {
            let (due, after) = tcb.timeout(is_calm, self.cx.settings.min_rto_ms);
            tcb.arm(due, after, now);
        }
    }

    /// Whether nothing of what is in flight is known to be out of order.
    #[inline(always)]
    fn is_calm(&self) -> bool {
        self.recovery().is_none_or(Recovery::is_calm)
    }

    /// As [`Tcb::timeout`].
    #[inline(always)]
    fn timeout(&self) -> (Due, u32) {
        self.tcb
            .timeout(self.is_calm(), self.cx.settings.min_rto_ms)
    }

    /// The retransmission timeout, in milliseconds.
    #[inline(always)]
    fn rto(&self) -> u32 {
        self.tcb.rto(self.cx.settings.min_rto_ms)
    }

    /// Takes a recovery from the pool if there is none.
    fn begin_recovery(&mut self) -> u32 {
        if self.tcb.recovery == NONE {
            self.tcb.recovery = self.cx.losses.take(self.tcb.snd_una);
        }
        self.tcb.recovery
    }
}

// Four cache lines, with the congestion control that is the default.
const _: () = assert!(size_of::<Record<crate::Cubic>>() <= 256);
const _: () = assert!(size_of::<Record<crate::Bbr>>() <= 320);
const _: () = assert!(size_of::<Tcb>() <= 208);
