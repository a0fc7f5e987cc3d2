//! A connection that is being processed, and the rules of TCP that it follows.

mod acks;
mod closing;
mod context;
mod control;
mod deadlines;
mod info;
mod opening;
mod receive;
mod recovery;
mod segment;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transmit;
#[cfg(any(test, feature = "fuzzing"))]
mod view;

use super::condition::Condition;
use super::{DeadlineKind, Flags, NONE, Plan, SegmentKind, State, StateCounts, StreamSegment, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::counters::Counters;
use crate::mss::OwnMss;
use crate::pools::{LendingPool, Peers};
use crate::stream::Lists;
use crate::wire::{Block, Control, Header, Segment, Seq};
use ip::Ecn;

pub use info::Info;
pub use receive::MAX_RANGES;

use receive::Buffer;
use recovery::{Recoveries, Recovery};

/// Round-trip time in microseconds below which the minimum RTO adapts. On longer paths, the RTT
/// varies more, and the initial minimum costs fewer round trips.
const SHORT_RTT: u32 = 10_000;
/// Minimum RTO in milliseconds after a first spurious retransmission. Current systems delay ACKs by
/// 40 to 50 ms.
const DELAYED_ACK_RTO_MS: u8 = 60;

/// A TCB and its congestion control.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Record<C> {
    pub(crate) tcb: Tcb,
    congestion: C,
}

/// The part of the configuration that applies to each connection. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Settings {
    syn_ack_retries: u8,
    retries: u8,
    probes: u8,
    pacing: bool,
    time_wait_ms: u32,
    fin_wait_ms: u32,
    idle_ms: u32,
    /// User timeout. The value `u32::MAX` disables the timeout.
    user_timeout_ms: u32,
    /// Maximum interval between zero-window probes, chosen so that several probes fit into the user
    /// timeout.
    max_probe_interval_ms: u32,
    /// Idle time until the first action: a keep-alive if its interval is shorter than the idle
    /// timeout, or else the close of our side.
    first_idle_ms: u32,
    /// Initial minimum RTO of a connection.
    min_rto_ms: u32,
    /// Lowest minimum RTO of a connection. It has no effect unless it is less than `min_rto_ms`.
    quick_min_rto_ms: u32,
}

/// State that all connections of a stack share.
#[derive(Debug)]
pub(crate) struct Context<C> {
    settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) states: StateCounts,
    pub(crate) own_mss: OwnMss,
    /// The client addresses, with the pool slots that their connections hold.
    pub(crate) peers: Peers,
    /// Lists of the stream entries that do not fit into the TCBs.
    pub(crate) lists: Lists,
    pub(crate) buffers: LendingPool<Buffer>,
    /// Size of each receive buffer in bytes. A connection without a buffer advertises this size as
    /// its window.
    buffer_len: usize,
    recoveries: Recoveries<C>,
    /// Shift by which our windows are scaled on connections that use window scaling (RFC 7323,
    /// section 2.3).
    window_scale: u8,
    /// Range of duplicate bytes in the current segment. The ACK of that segment reports this range
    /// (DSACK, RFC 2883).
    pub(crate) dsack: Option<Block>,
    /// Class of prepared segments that the current connection no longer uses, because its segment
    /// size has changed.
    old_class: Option<u8>,
}

impl Tcb {
    /// Returns the shift by which our windows are scaled, or 0 if they are not scaled.
    #[inline(always)]
    fn own_scale<C>(&self, cx: &Context<C>) -> u32 {
        if self.negotiated.scaled() {
            cx.window_scale.into()
        } else {
            0
        }
    }

    /// Returns the free space in bytes in the receive buffer, or in an empty one if the connection
    /// has no buffer.
    #[inline(always)]
    fn space<C>(&self, cx: &Context<C>) -> usize {
        if self.buffer == NONE {
            cx.buffer_len
        } else {
            cx.buffers[self.buffer].space()
        }
    }

    /// The window to advertise now, in bytes. Its right edge never moves back.
    ///
    /// The edge does not advance while less than a segment and less than half of the buffer are
    /// free. So a closed window does not reopen by a few bytes (RFC 9293, section 3.8.6.2.2).
    #[inline(always)]
    fn window_to_advertise<C>(&self, cx: &Context<C>) -> u32 {
        let advertised = self.rcv_adv.since(self.rcv_nxt);
        if self.buffer == NONE {
            return advertised.max(cx.buffer_len as u32);
        }
        let space = self.space(cx);
        let worth = usize::from(self.mss).min(cx.buffer_len / 2);
        if space < worth {
            advertised
        } else {
            advertised.max(space as u32)
        }
    }

    /// Scales a window for the header, rounded up. If earlier rounding has made the window larger
    /// than the free space, only the free space is rounded up.
    #[cold]
    fn scale_window<C>(&self, cx: &Context<C>, window: u32, scale: u32) -> u32 {
        let space = self.space(cx) as u32;
        if window >= space {
            window.min(space).div_ceil(1 << scale)
        } else {
            window.div_ceil(1 << scale)
        }
    }
}

/// Values of [`Info`] that are not stored in the TCB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendInfo {
    cwnd: u32,
    ssthresh: u32,
    own_scale: u8,
    condition: Condition,
    sacked: u32,
    lost: u32,
}

/// A connection that is being processed: see [the module](self).
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

    /// Returns the loss recovery state, or `None` if the connection has none.
    #[inline(always)]
    fn recovery(&self) -> Option<&Recovery<C>> {
        match self.tcb.recovery {
            NONE => None,
            index => Some(&self.cx.recoveries[index]),
        }
    }

    /// Reborrows the connection for a call that is not inlined, so that `self` can stay in
    /// registers.
    #[inline(always)]
    fn reborrow(&mut self) -> Conn<'_, C> {
        Conn {
            tcb: self.tcb,
            congestion: self.congestion,
            cx: self.cx,
        }
    }

    /// Updates the peer's latest TSval. A segment that begins after RCV.NXT does not, because the
    /// data before the segment is missing (RFC 7323, section 4.3).
    #[inline(always)]
    fn note_timestamp(&mut self, segment: Segment) {
        if let Some(timestamps) = segment.timestamps
            && !segment.seq.after(self.tcb.rcv_nxt)
        {
            self.tcb.ts_recent = timestamps.tsval;
        }
    }

    /// Changes the state.
    #[inline(always)]
    fn enter(&mut self, state: State) {
        self.cx.states.change(self.tcb.state, state);
        self.tcb.state = state;
    }

    /// Advances SND.NXT to `seq`, and changes the state if the FIN is now sent.
    #[inline(always)]
    fn has_sent_to(&mut self, seq: Seq) {
        if seq.after(self.tcb.snd_nxt) {
            self.tcb.snd_nxt = seq;
        }
        if seq == self.tcb.stream.end() + 1 {
            match self.tcb.state {
                State::Established => self.enter(State::FinWait1),
                State::CloseWait => self.enter(State::LastAck),
                _ => {}
            }
        }
    }

    /// Sets the deadline for the data in flight (RFC 6298, 5.3), or the idle deadline if nothing is
    /// in flight (5.2). Called after an ACK of new data, and when a wait for pacing or for late
    /// segments has ended.
    #[inline(always)]
    fn arm_after_ack(&mut self, is_in_order: bool, now: Moment) {
        let tcb = &mut *self.tcb;
        if tcb.snd_nxt == tcb.snd_una && !tcb.probes_window() {
            tcb.arm(DeadlineKind::Idle, self.cx.settings.first_idle_ms, now);
        } else {
            let (kind, after) = tcb.timeout(is_in_order, self.cx.settings.min_rto_ms);
            tcb.arm(kind, after, now);
        }
    }

    /// Returns true if there is no sign of loss or reordering, and no tail loss probe or MTU probe
    /// is outstanding.
    #[inline(always)]
    fn is_in_order(&self) -> bool {
        self.recovery().is_none_or(Recovery::is_in_order)
    }

    /// Returns the kind of the next deadline for data in flight, and its delay in milliseconds: see
    /// [`Tcb::timeout`].
    #[inline(always)]
    fn timeout(&self) -> (DeadlineKind, u32) {
        self.tcb
            .timeout(self.is_in_order(), self.cx.settings.min_rto_ms)
    }

    /// Returns the retransmission timeout, in milliseconds.
    #[inline(always)]
    fn rto(&self) -> u32 {
        self.tcb.rto(self.cx.settings.min_rto_ms)
    }

    /// Sets the minimum RTO to the longest RTO that any RTT sample has given, within its bounds.
    ///
    /// On a path of 100 us, a minimum of 200 ms delays the repair of a lost tail by 2,000 round
    /// trips. But an early retransmission is useless if the peer merely delays its ACK. Single
    /// segments are always timed, so the longest RTO covers the delays that the peer has shown. A
    /// peer that hides its delays causes at most one early probe and one early retransmission per
    /// timeout.
    ///
    /// The minimum changes only on short paths, and only with SACK. Without a DSACK, a spurious
    /// retransmission of a single segment would not be noticed.
    #[cold]
    fn adapt_min_rto(&mut self) {
        let (tcb, settings) = (&mut *self.tcb, &self.cx.settings);
        if !tcb.negotiated.sack() || !(1..SHORT_RTT).contains(&tcb.rtt.min()) {
            return;
        }
        let floor = if tcb.longest_rto == u8::MAX {
            settings.min_rto_ms
        } else {
            u32::from(tcb.longest_rto).max(settings.quick_min_rto_ms)
        };
        tcb.rtt.set_floor(floor.min(settings.min_rto_ms));
    }

    /// Raises the minimum RTO after a timer has caused a spurious retransmission. At first it covers
    /// common delayed ACKs, and then it returns to its initial value.
    #[cold]
    fn raise_min_rto(&mut self) {
        let tcb = &mut *self.tcb;
        tcb.longest_rto = if tcb.longest_rto < DELAYED_ACK_RTO_MS {
            DELAYED_ACK_RTO_MS
        } else {
            u8::MAX
        };
        if tcb.flags.intersects(Flags::NEEDLESS_TIMER_TWICE) {
            self.adapt_min_rto();
        }
    }

    /// Returns the window to advertise now, as the value of the header field (RFC 7323, section
    /// 2.3). The window is rounded up, so its right edge may later move back by less than one unit
    /// of the scale (section 2.4).
    #[inline(always)]
    fn window_field(&self) -> u16 {
        let window = self.tcb.window_to_advertise(self.cx);
        let field = match self.tcb.own_scale(self.cx) {
            0 => window,
            scale => self.tcb.scale_window(self.cx, window, scale),
        };
        field.min(u32::from(u16::MAX)) as u16
    }

    /// Returns the header of a data segment or an ACK with this sequence number.
    #[inline(always)]
    fn header(&self, seq: Seq, now: Moment) -> Header {
        Header {
            seq,
            ack: self.tcb.rcv_nxt,
            control: self.tcb.control(),
            window: self.window_field(),
            timestamps: self.tcb.timestamps(now),
        }
    }

    /// Returns a segment of at most `max_len` bytes that begins at `seq`, or the FIN if `seq` is
    /// the end of the data. The segment's TSval lies `backdating` milliseconds in the past.
    fn plan(
        &self,
        kind: SegmentKind,
        seq: Seq,
        max_len: u32,
        backdating: u32,
        now: Moment,
    ) -> Plan {
        let tcb = &*self.tcb;
        let mut header = self.header(seq, now);
        if let Some(timestamps) = &mut header.timestamps {
            timestamps.tsval = timestamps.tsval.wrapping_sub(backdating);
        }
        let Some(segment) = StreamSegment::at(tcb, seq, &self.cx.lists) else {
            debug_assert!(tcb.flags.intersects(Flags::CLOSE), "only a FIN has no data");
            header.control = header.control | Control::FIN;
            return Plan::of_control(kind, header);
        };
        let len = segment.len.min(max_len);
        if len == segment.slice.len {
            header.control = header.control | Control::PSH;
        }
        // If the FIN was already sent, it is retransmitted with the last segment of data.
        if seq + len == tcb.stream.end() && tcb.snd_nxt == tcb.stream.end() + 1 {
            header.control = header.control | Control::FIN;
        }
        Plan {
            kind,
            header,
            // Retransmissions (RFC 3168, section 6.1.5) and window probes (section 6.1.6) must not
            // be marked as ECN-capable.
            ecn: Ecn::NotEct,
            slice: segment.slice,
            len,
            prepared: segment.prepared.filter(|_| len == segment.len),
            is_run: false,
        }
    }

    /// Records that a segment with `window` in its window field was sent. The segment acknowledges
    /// all received data, so no ACK is pending any more.
    #[inline(always)]
    fn has_advertised(&mut self, window: u16) {
        let window = u32::from(window) << self.tcb.own_scale(self.cx);
        self.tcb.rcv_adv = self.tcb.rcv_nxt + window;
        self.tcb.flags -= Flags::ACK_PENDING;
    }

    /// Releases the receive buffer with its data, if the connection has one.
    fn release_buffer(&mut self) {
        let buffer = std::mem::replace(&mut self.tcb.buffer, NONE);
        if buffer != NONE {
            self.cx.buffers.release(buffer, &mut self.cx.peers);
        }
    }

    /// Returns the index of the recovery state, and takes one from the pool if the connection has
    /// none.
    fn begin_recovery(&mut self) -> u32 {
        if self.tcb.recovery == NONE {
            self.tcb.recovery = self.cx.recoveries.take(self.tcb.snd_una);
        }
        self.tcb.recovery
    }
}

// A record fits into four cache lines with CUBIC, the default congestion control, and into five
// with BBR.
const _: () = assert!(size_of::<Record<crate::Cubic>>() <= 256);
const _: () = assert!(size_of::<Record<crate::Bbr>>() <= 320);
