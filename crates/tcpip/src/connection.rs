//! One connection: a [`Tcb`] with its congestion control, and the rules of TCP.
//!
//! A [`Conn`](conn::Conn) is independent of the application and of the port. It processes a segment's header
//! ([`Conn::on_segment`]), a segment's data ([`Conn::on_data`]), and an expired deadline
//! ([`Conn::on_deadline`]). It also chooses what to send ([`Conn::next_segment`]). Between these
//! calls, the stack calls the application.

mod close_reason;
mod condition;
pub(crate) mod conn;
#[cfg(test)]
mod reordering_window_tests;
mod state_counts;

use bitflags::bitflags;
use ip::{Ecn, Path};

use crate::clock::Moment;
use crate::congestion::Event;
use crate::content::Contents;
use crate::negotiated::Negotiated;
use crate::pools::NONE;
use crate::rto::Rtt;
use crate::stream::{Lists, Slice, Stream};
use crate::wire::{Block, Control, Header, Segment, Seq, Timestamps};

pub use close_reason::CloseReason;
pub use condition::Condition;
pub use conn::{Info, MAX_RANGES};
pub use state_counts::StateCounts;

/// Connection state (RFC 9293, section 3.3.2). LISTEN is missing because a listening port is not a
/// connection, and SYN-SENT because only clients need it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// The connection does not exist, or no longer exists.
    #[default]
    Closed,
    /// A SYN has arrived, but our SYN-ACK is not acknowledged yet.
    SynReceived,
    /// Both sides may send data.
    Established,
    /// The peer has closed its side.
    CloseWait,
    /// We have closed our side, but our FIN is not acknowledged yet.
    FinWait1,
    /// We have closed our side, and the peer has acknowledged our FIN.
    FinWait2,
    /// Both sides have closed simultaneously, but our FIN is not acknowledged yet.
    Closing,
    /// We have closed after the peer, but our FIN is not acknowledged yet.
    LastAck,
    /// Both sides have closed. The TCB is kept for [`Config::time_wait`](crate::Config::time_wait),
    /// so that late segments of this connection do not reach a new one with the same addresses and
    /// ports.
    TimeWait,
}

impl State {
    /// Returns true if both sides know each other's sequence numbers.
    #[inline(always)]
    const fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::SynReceived)
    }

    /// Returns true if the peer may still send data.
    #[inline(always)]
    const fn receives(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Returns true if we may still send or retransmit data or our FIN.
    #[inline(always)]
    const fn sends(self) -> bool {
        matches!(
            self,
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck
        )
    }

    /// Returns true if our FIN has been sent.
    #[inline(always)]
    const fn fin_sent(self) -> bool {
        matches!(
            self,
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck | Self::TimeWait
        )
    }
}

bitflags! {
    /// Flags of a connection, for conditions that its [`State`] does not express.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Flags: u32 {
        /// Whether our side is closed, by the application or by the idle timeout. A FIN then
        /// follows the written data.
        const CLOSE = 1;
        /// Whether the application has aborted the connection.
        const ABORT = 1 << 1;
        /// Whether the application waits for room to write, because a write found no room.
        const WANTS_ROOM = 1 << 2;
        /// Whether the peer's FIN has arrived in order, but the application does not know yet.
        const HALF_CLOSE = 1 << 3;
        /// Whether an ACK is pending.
        const ACK_PENDING = 1 << 4;
        /// Whether the entry in the timer wheel still belongs to the TCB's previous connection.
        const INHERITED_TIMER = 1 << 5;
        /// Whether the round trip of a segment is being measured, so `rtt_seq` and `rtt_at` are
        /// valid.
        const TIMING = 1 << 6;
        /// Whether the SYN-ACK was retransmitted.
        const SYN_ACK_RETRANSMITTED = 1 << 7;
        /// Whether our segments carry ECE. The flag is set when a packet with CE arrives, and
        /// cleared when the peer sends CWR.
        const SEND_ECE = 1 << 9;
        /// Whether the congestion window was reduced after the last segment with new data. If both
        /// sides use ECN, the next such segment carries CWR.
        const SEND_CWR = 1 << 10;
        /// Whether ECE has reduced the congestion window. Until an ACK exceeds `cwr_high`, ECE then
        /// has no further effect.
        const IN_CWR = 1 << 11;
        /// Whether the path has reordered segments (RFC 8985, section 6.2), or a retransmission was
        /// spurious.
        const REORDERING = 1 << 12;
        /// Whether the path MTU keeps segments smaller than both sides accept, so larger segments
        /// may be probed.
        const REDUCED_MTU = 1 << 13;
        /// Whether new segments are paced, because the congestion window has opened suddenly.
        const SPREAD_BURST = 1 << 14;
        /// Whether a zero-window probe waits for room in the TX ring.
        const PROBE_PENDING = 1 << 15;
        /// Whether at least one path MTU probe of the current size was lost.
        const MTU_PROBE_LOST = 1 << 16;
        /// Whether two path MTU probes of the current size were lost.
        const MTU_PROBE_LOST_TWICE = 1 << 17;
        /// Whether at least one timer has expired needlessly.
        const NEEDLESS_TIMER = 1 << 18;
        /// Whether at least two timers have expired needlessly.
        const NEEDLESS_TIMER_TWICE = 1 << 19;
        /// Whether the handshake was completed during a drain.
        const OPENED_LATE = 1 << 20;
    }
}

/// What happens when a connection's deadline expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeadlineKind {
    /// SYN-ACK retransmission (RFC 6298, 5.7).
    Handshake,
    /// Retransmission timeout (RFC 6298).
    Retransmit,
    /// Tail loss probe (RFC 8985, section 7.2).
    TailProbe,
    /// End of the reordering window: segments that are still late now count as lost (RFC 8985,
    /// section 6.2).
    Reordering,
    /// Transmission of the next paced segments.
    Pacing,
    /// Probe of a peer's window that is zero or too small (RFC 9293, section 3.8.6.1).
    ZeroWindow,
    /// An event while nothing is in flight: a keep-alive, the idle timeout, another attempt to
    /// send, or another call to an application waiting for room.
    Idle,
    /// Like `Idle`, but after the first keep-alive interval. `backoff` counts keep-alive intervals,
    /// and `retries` counts keep-alives that the peer has not answered.
    KeepAlive,
    /// End of the wait for the peer's FIN.
    FinWait,
    /// End of TIME-WAIT.
    TimeWait,
}

/// Number of recoveries from the last widening until the reordering window returns to its initial
/// size (RFC 8985, section 6.2: `RACK.reo_wnd_persist`).
const PERSIST: u8 = 15;
/// Maximum size of the reordering window, in quarters of the minimum RTT. The size is stored in
/// four bits.
const MAX_QUARTERS: u8 = 15;

/// The reordering window: the time by which a segment may be late before it counts as lost (RFC
/// 8985, section 6.2, step 4).
///
/// The low four bits are the size of the window, 1 to 15 quarters of the minimum RTT
/// (`RACK.reo_wnd_mult`). The high four bits count down the recoveries until the window is reset to
/// one quarter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReorderingWindow(u8);

impl ReorderingWindow {
    /// Returns the initial window, a quarter of the minimum RTT.
    const fn new() -> Self {
        Self(1)
    }

    /// Returns the window in microseconds, at most the smoothed RTT. An overtaken segment counts as
    /// lost when it has been late for this time.
    fn window(self, rtt: Rtt) -> u32 {
        let quarters = u32::from(self.0 & 0x0f);
        let window = (rtt.min() / 4).saturating_mul(quarters);
        window.min(rtt.smoothed())
    }

    /// Widens the window after a spurious retransmission, which shows that segments are delayed for
    /// longer than assumed.
    ///
    /// The caller also sets [`Flags::REORDERING`]. RFC 8985 does not set the equivalent
    /// `RACK.reordering_seen` after a spurious retransmission, and thus uses no window during
    /// recovery. The RFC's rule causes far more spurious retransmissions if segments are late by
    /// more than a round trip.
    fn widen(&mut self) {
        let quarters = (self.0 & 0x0f).saturating_add(1).min(MAX_QUARTERS);
        self.0 = PERSIST << 4 | quarters;
    }

    /// Counts the end of a recovery. [`PERSIST`] recoveries after the last widening, the window is
    /// reset to its initial size.
    fn decay(&mut self) {
        let recoveries = self.0 >> 4;
        self.0 = if recoveries <= 1 {
            1
        } else {
            (recoveries - 1) << 4 | self.0 & 0x0f
        };
    }
}

/// Minimum delay of a tail loss probe, in milliseconds. With shorter delays, the timers of many
/// connections would cost more than the probes save.
const MIN_PROBE_MS: u32 = 10;
/// Maximum time for which a peer may delay the ACK of a single segment, in milliseconds (RFC 8985,
/// section 7.2: `TLP.max_ack_delay`).
const MAX_ACK_DELAY_MS: u32 = 200;

/// Maximum age of a TSecr in milliseconds. An older TSecr cannot belong to a segment in flight.
const MAX_TSECR_AGE_MS: u32 = 600_000;

/// Granularity of pacing in microseconds: one timer tick.
const PACING_TICK: u32 = 1_000;
/// Maximum time in microseconds for which pacing delays the next segment, even at the lowest rate.
const MAX_PACING_DEBT: u32 = 1_000_000;

/// Transmission control block: see [the module](self). The variables of RFC 9293, section 3.3.1,
/// have the same names here.
#[derive(Clone, Debug)]
pub(crate) struct Tcb {
    pub(crate) path: Path,
    own_port: u16,
    peer_port: u16,
    /// Folded sum of the addresses, ports and protocol. Every TCP checksum of the connection starts
    /// with this sum.
    sum: u16,
    /// Maximum payload of a segment, in bytes.
    pub(crate) mss: u16,
    /// Class of prepared segments that match this connection's segment size, or [`Contents::NO_CLASS`].
    pub(crate) class: u8,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    /// Number of timeouts since the peer last acknowledged new data. During zero-window probing,
    /// and between keep-alives: the number of probes or keep-alives that the peer has not answered.
    retries: u8,
    /// Number of times that the RTO was doubled (RFC 6298, 5.5) since the last RTT sample.
    /// [`DeadlineKind::KeepAlive`] uses this field to count intervals.
    backoff: u8,
    negotiated: Negotiated,
    /// What happens at `deadline`.
    deadline_kind: DeadlineKind,
    reo_wnd: ReorderingWindow,
    /// Longest RTO that any RTT sample has given, without a minimum, in milliseconds. A spurious
    /// retransmission raises this value. 255 keeps the minimum RTO at its initial value.
    longest_rto: u8,
    /// Largest value of `mss` that both sides accept.
    mss_max: u16,
    /// Smallest value of `mss` that is known to be too large for the path, or 0 if none is known.
    mss_too_big: u16,
    /// Earliest time of a probe for a larger path MTU, in seconds.
    raise_at: u16,
    /// Time of the last challenge ACK, or of another ACK under the same rate limit, in ticks of 32
    /// ms. It is 0 if there was none. The clock wraps around after 35 minutes.
    challenged_at: u16,
    snd_una: Seq,
    /// Next sequence number of new data. Retransmissions do not change this number.
    snd_nxt: Seq,
    /// The peer's window, in bytes from `snd_una`.
    snd_wnd: u32,
    /// Largest window that the peer has ever advertised (`MAX.SND.WND` of RFC 5961), in the units
    /// of the header's window field.
    max_snd_wnd: u16,
    /// Sequence number of the segment that last updated `snd_wnd`.
    snd_wl1: Seq,
    rcv_nxt: Seq,
    /// Right edge of the window that we last advertised.
    rcv_adv: Seq,
    rtt: Rtt,
    /// Sequence number whose ACK ends the measurement that began at `rtt_at`.
    rtt_seq: Seq,
    /// Start of the RTT measurement, in microseconds. During zero-window probing, this field holds
    /// the time of the peer's last answer, or at first the start of probing. While the application
    /// waits for room with nothing in flight, it holds the start of that wait.
    rtt_at: u32,
    /// Time of the next event, in milliseconds.
    pub(crate) deadline: u32,
    pub(crate) stream: Stream,
    /// Index of the receive buffer in its pool, or [`NONE`].
    buffer: u32,
    /// Index of the loss recovery state in its pool, or [`NONE`] if the connection has no such
    /// state.
    recovery: u32,
    /// The peer's latest TSval (`TS.Recent` of RFC 7323).
    ts_recent: u32,
    /// Number that is added to the current time in milliseconds to compute our TSval.
    ts_offset: u32,
    /// SND.NXT at the last window reduction because of ECE. Until an ACK exceeds this number, ECE
    /// has no effect.
    cwr_high: Seq,
    /// Time up to which the data already sent uses up the pacing rate, in microseconds.
    paced_until: u32,
}

impl Tcb {
    /// Returns the number of bytes sent but not acknowledged cumulatively, including lost bytes. A
    /// FIN counts as one byte.
    #[inline(always)]
    fn flight(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
    }

    /// Returns the sequence number after the written data, and after the FIN if our side is closed.
    #[inline(always)]
    fn limit(&self) -> Seq {
        self.stream.end() + u32::from(self.flags.intersects(Flags::CLOSE))
    }

    /// Returns the retransmission timeout in milliseconds. `min_rto_ms` is the initial minimum of
    /// the timeout, before the backoff doubles it.
    #[inline(always)]
    fn rto(&self, min_rto_ms: u32) -> u32 {
        if self.backoff > 0 {
            return self.rto_with_backoff(min_rto_ms);
        }
        let after_loss = self.flags.intersects(Flags::SYN_ACK_RETRANSMITTED);
        self.rtt.timeout(0, after_loss, min_rto_ms)
    }

    /// Returns the retransmission timeout in milliseconds after any number of timeouts.
    #[cold]
    #[inline(never)]
    fn rto_with_backoff(&self, min_rto_ms: u32) -> u32 {
        let after_loss = self.flags.intersects(Flags::SYN_ACK_RETRANSMITTED);
        self.rtt.timeout(self.backoff, after_loss, min_rto_ms)
    }

    #[inline(always)]
    fn add_rtt(&mut self, rtt: u32) {
        let timeout = self.rtt.sample(rtt);
        if timeout > self.longest_rto.into() {
            self.longest_rto = timeout.min(u8::MAX.into()) as u8;
        }
    }

    /// Sets the deadline to `after` milliseconds from now.
    ///
    /// Postponing the deadline costs no timer operation. The connection's entry in the timer wheel
    /// then expires early, and the stack reinserts it.
    #[inline(always)]
    fn arm(&mut self, kind: DeadlineKind, after: u32, now: Moment) {
        self.deadline_kind = kind;
        self.deadline = now.millis.wrapping_add(after);
    }

    /// Returns true if zero-window probing is active.
    #[inline(always)]
    fn probes_window(&self) -> bool {
        self.deadline_kind == DeadlineKind::ZeroWindow
    }

    /// Ends zero-window probing, without changing the time of the deadline.
    fn stop_probing(&mut self) {
        self.deadline_kind = DeadlineKind::Retransmit;
        (self.retries, self.backoff) = (0, 0);
    }

    /// Returns our port and the peer's port.
    #[inline(always)]
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.own_port, self.peer_port)
    }

    /// Converts `field`, the window field of one of the peer's segments, to bytes.
    #[inline(always)]
    fn peer_window(&self, field: u16) -> u32 {
        u32::from(field) << self.negotiated.peer_scale()
    }

    /// Updates the peer's window from the window field of a segment.
    #[inline(always)]
    fn set_peer_window(&mut self, field: u16) {
        self.snd_wnd = self.peer_window(field);
        self.max_snd_wnd = self.max_snd_wnd.max(field);
    }

    /// Returns true if the peer has ever advertised a window of two segments or more.
    fn has_had_large_window(&self) -> bool {
        self.peer_window(self.max_snd_wnd) >= 2 * u32::from(self.mss)
    }

    /// Returns the timestamps for a segment that is sent now, or `None` unless both sides use
    /// timestamps.
    #[inline(always)]
    fn timestamps(&self, now: Moment) -> Option<Timestamps> {
        self.negotiated.timestamps().then(|| Timestamps {
            tsval: self.tsval_at(now),
            tsecr: self.ts_recent,
        })
    }

    /// Returns the TSval of a segment that is sent now, in milliseconds (RFC 7323, section 5.4).
    #[inline(always)]
    fn tsval_at(&self, now: Moment) -> u32 {
        now.millis.wrapping_add(self.ts_offset)
    }

    /// Returns the control bits that every data segment and every ACK carries: ACK, and ECE while a
    /// CE mark must be echoed (RFC 3168, section 6.1).
    #[inline(always)]
    fn control(&self) -> Control {
        if self.flags.intersects(Flags::SEND_ECE) {
            Control::ACK | Control::ECE
        } else {
            Control::ACK
        }
    }

    /// Returns true if an ACK may open the congestion window. One with ECE may not (RFC 3168, section
    /// 6.1.2).
    #[inline(always)]
    fn may_open_cwnd(&self, segment: Segment) -> bool {
        !segment.control.has(Control::ECE) || !self.negotiated.ecn()
    }

    /// Ends the measurement of the timed segment, which also ends the backoff. Adds the measured
    /// RTT as a sample, and returns it in microseconds.
    #[inline(always)]
    fn end_timing(&mut self, now: Moment) -> u32 {
        self.flags -= Flags::TIMING;
        self.backoff = 0;
        let rtt = now.micros.wrapping_sub(self.rtt_at);
        self.add_rtt(rtt);
        rtt
    }

    /// Returns the kind of the next deadline for data in flight, and its delay in milliseconds.
    ///
    /// A tail loss probe requires SACK, an RTT sample, no backoff, and a flight that `is_in_order`.
    /// Otherwise the deadline is for a retransmission. During zero-window probing, the deadline is
    /// for the next window probe.
    #[inline(always)]
    fn timeout(&self, is_in_order: bool, min_rto_ms: u32) -> (DeadlineKind, u32) {
        if self.probes_window() {
            return (DeadlineKind::ZeroWindow, self.probe_interval(min_rto_ms));
        }
        let rto = self.rto(min_rto_ms);
        let is_measured = self.rtt.smoothed() > 0;
        if !self.negotiated.sack() || !is_measured || self.backoff > 0 || !is_in_order {
            return (DeadlineKind::Retransmit, rto);
        }
        // The probe follows after two round trips (RFC 8985, section 7.2).
        let mut probe = (self.rtt.smoothed() / 500).max(MIN_PROBE_MS);
        if self.flight() <= u32::from(self.mss) {
            probe += MAX_ACK_DELAY_MS;
        }
        (DeadlineKind::TailProbe, probe.min(rto))
    }

    /// Returns the interval between zero-window probes in milliseconds: the RTO without its lower
    /// minimum, because the probes are not urgent.
    #[cold]
    #[inline(never)]
    fn probe_interval(&self, min_rto_ms: u32) -> u32 {
        let after_loss = self.flags.intersects(Flags::SYN_ACK_RETRANSMITTED);
        let mut rtt = self.rtt;
        rtt.set_floor(min_rto_ms);
        rtt.timeout(self.backoff, after_loss, min_rto_ms)
    }

    /// Returns the [`Event`] that describes the connection to the congestion control algorithm.
    #[inline(always)]
    fn event(&self, in_flight: u32, rtt: u32, is_paced: bool, now: Moment) -> Event {
        Event {
            now: now.micros,
            in_flight,
            mss: u32::from(self.mss),
            srtt: self.rtt.smoothed(),
            rtt,
            una: self.snd_una.0,
            nxt: self.snd_nxt.0,
            is_paced,
        }
    }

    /// Returns the first sequence number of the last segment sent. Data or a FIN must be in flight.
    fn last_segment(&self, lists: &Lists) -> Seq {
        // A FIN is retransmitted together with the data before it.
        let last = if self.snd_nxt == self.stream.end() + 1 {
            self.stream.end()
        } else {
            self.snd_nxt
        };
        let last = last - 1;
        if last.before(self.snd_una) {
            return self.snd_una;
        }
        let Some(slice) = self.stream.locate(last, lists) else {
            return self.snd_una;
        };
        let ahead = slice.from % u32::from(self.mss);
        // A slice may begin in the middle of one of its content's segments.
        let ahead = ahead.min(last.since(self.stream.entry_start(last, lists)));
        (last - ahead).later(self.snd_una)
    }

    /// Measures the round trip with an ACK of new data. Returns microseconds, or 0 if the ACK
    /// yields no sample.
    #[inline(always)]
    fn measure(&mut self, segment: Segment, now: Moment) -> u32 {
        if self.flags.intersects(Flags::TIMING) && !segment.ack.before(self.rtt_seq) {
            return self.end_timing(now);
        }
        // A TSecr has only millisecond resolution, so it updates the RTT only while no segment is
        // timed.
        match segment.timestamps {
            Some(timestamps) if self.negotiated.timestamps() => {
                self.measure_tsecr(timestamps.tsecr, now)
            }
            _ => 0,
        }
    }

    /// Measures the round trip of the timed segment if a SACK block reports its delivery. The TSecr
    /// cannot measure it, because the TSecr does not belong to the SACKed data. Returns
    /// microseconds, or 0 if the blocks yield no sample.
    fn measure_selective(&mut self, sack: &[Block], now: Moment) -> u32 {
        let timed = self.rtt_seq;
        let mut blocks = sack.iter();
        if self.flags.intersects(Flags::TIMING)
            && blocks.any(|(start, end)| start.before(timed) && !end.before(timed))
        {
            return self.end_timing(now);
        }
        0
    }

    /// Measures the round trip with the TSecr `tsecr`. Returns microseconds, or 0 if the TSecr
    /// yields no sample.
    ///
    /// The returned value is up to a millisecond too long, but the minimum of several values is
    /// nearly exact.
    #[inline]
    fn measure_tsecr(&mut self, tsecr: u32, now: Moment) -> u32 {
        let millis = self.tsval_at(now).wrapping_sub(tsecr);
        if tsecr == 0 || millis == 0 || millis > MAX_TSECR_AGE_MS {
            return 0;
        }
        if !self.flags.intersects(Flags::TIMING) {
            self.backoff = 0;
            self.add_rtt(millis * 1000);
        }
        millis * 1000 + now.micros.wrapping_sub(now.millis.wrapping_mul(1000))
    }

    /// Returns true if an ACK that acknowledges no new data is a duplicate (RFC 5681, section 2).
    #[inline(always)]
    fn is_duplicate(&self, segment: Segment) -> bool {
        segment.len == 0
            && self.snd_nxt != self.snd_una
            && self.peer_window(segment.window) == self.snd_wnd
            && !segment.control.has(Control::FIN)
    }

    /// Returns the time in microseconds until the data sent so far no longer exceeds the pacing
    /// rate.
    fn pacing_debt(&self, now: Moment) -> u32 {
        let ahead = self.paced_until.wrapping_sub(now.micros);
        // A larger value is a negative difference that has wrapped around, so `paced_until` has
        // passed.
        if ahead > MAX_PACING_DEBT { 0 } else { ahead }
    }
}

/// What a new connection gets from its handshake, besides the segment that opens it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) negotiated: Negotiated,
    /// Maximum payload of a segment, in bytes.
    pub(crate) mss: u16,
    /// Our initial sequence number.
    pub(crate) iss: Seq,
    /// Number that is added to the time in milliseconds to compute our TSval.
    pub(crate) ts_offset: u32,
}

/// Purpose of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SegmentKind {
    /// New data.
    New,
    /// Retransmission of lost data.
    Retransmission,
    /// Tail loss probe (RFC 8985, section 7.3): new data or a retransmission.
    TailProbe { is_retransmission: bool },
    /// Probe of a window that is zero or too small.
    WindowProbe,
    /// Path MTU probe (RFC 4821, RFC 8899).
    MtuProbe,
}

/// A segment, or a run of segments, that the connection has chosen to send next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    kind: SegmentKind,
    pub(crate) header: Header,
    pub(crate) ecn: Ecn,
    /// Remaining part of the stream entry, from the segment's first byte.
    pub(crate) slice: Slice,
    /// Length of the data in bytes, or 0 for a FIN without data.
    pub(crate) len: u32,
    /// Index of the prepared segment with this data, if there is one.
    pub(crate) prepared: Option<u32>,
    /// Whether this is a run of more than one segment or stream entry. If `len` exceeds the length
    /// of `slice`, the run consists of several whole entries.
    pub(crate) is_run: bool,
}

impl Plan {
    /// Returns the sequence numbers of the segment as `(start, end)`, `end` excluded.
    #[inline(always)]
    fn range(&self) -> (Seq, Seq) {
        let fin = u32::from(self.header.control.has(Control::FIN));
        (self.header.seq, self.header.seq + self.len + fin)
    }

    /// Creates a plan for a segment without data.
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

/// A segment that begins at a given sequence number of the send stream.
#[derive(Clone, Copy, Debug, Default)]
struct StreamSegment {
    slice: Slice,
    /// Number of bytes up to the next segment boundary of the slice's source, or to the end of the
    /// stream entry if nearer.
    len: u32,
    /// Index of the prepared segment with this data, if there is one.
    prepared: Option<u32>,
}

impl StreamSegment {
    /// Returns the segment at `seq`, or `None` at the end of the stream.
    #[inline(always)]
    fn at(tcb: &Tcb, seq: Seq, lists: &Lists) -> Option<Self> {
        let slice = tcb.stream.locate(seq, lists)?;
        let mss = u32::from(tcb.mss);
        let index = slice.from / mss;
        let ahead = slice.from - index * mss;
        let len = (mss - ahead).min(slice.len);
        let prepared = ahead == 0
            && tcb.class != Contents::NO_CLASS
            && (slice.source.ends_content() || len == mss && slice.source.buffer().is_none());
        Some(Self {
            slice,
            len,
            prepared: prepared.then_some(index),
        })
    }

    /// Returns the number of sequence numbers that the segment at `seq` occupies: its bytes of
    /// data, or 1 for the FIN.
    fn segment_len(tcb: &Tcb, seq: Seq, lists: &Lists) -> u32 {
        Self::at(tcb, seq, lists).map_or(1, |segment| segment.len)
    }
}

const _: () = assert!(size_of::<Tcb>() <= 208);
