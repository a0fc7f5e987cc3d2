//! Transmission of new data within the windows, and pacing.

use ip::{Addresses, Ecn};
use nmio::super_segment::MAX_OVER_V6;

use super::{Conn, DeadlineKind, Flags, NONE, Plan, SegmentKind, StreamSegment, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{MAX_PACING_DEBT, PACING_TICK};
use crate::stream::Lists;
use crate::wire::{Control, Header, Seq, TIMESTAMPED_HEADER_LEN};

/// Maximum length in bytes of a stream entry that is sent in one run with others. The run copies its
/// bytes. For longer entries, the copies cost more than the packets that they save.
const MAX_JOINED_ENTRY: u32 = 16 << 10;

/// State of a burst: new data that is sent between [`Conn::begin_burst`] and [`Conn::end_burst`].
pub(crate) struct Burst {
    /// SND.NXT before the burst.
    first: Seq,
    /// Next sequence number to send.
    seq: Seq,
    /// Number of bytes from SND.UNA that the peer's window and the congestion window allow.
    open: u32,
    /// Number of bytes from SND.UNA that the peer's window, the congestion window and pacing allow.
    usable: u32,
    rate: Option<u64>,
    is_paced: bool,
    /// Maximum payload of a super-segment in bytes, or 0 if super-segments are not possible.
    max_run: u32,
    /// Payload in bytes below which single segments are cheaper than a super-segment.
    min_run: u32,
    window: u16,
    ecn: Ecn,
    control: Control,
    /// Whether the next segment has found no room: see [`Conn::next_segment`].
    is_blocked: bool,
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Returns true if there is new data or a FIN to send.
    #[inline(always)]
    pub(crate) fn has_new(&self) -> bool {
        self.tcb.snd_nxt != self.tcb.limit()
    }

    /// Begins a burst of new data. `segmentation` is the maximum size in bytes of a super-segment
    /// over IPv4 that the port accepts, or 0 if the port accepts none. `min_run` is the number of segments
    /// from which a super-segment is worth its cost.
    #[inline(always)]
    pub(crate) fn begin_burst(
        &mut self,
        segmentation: usize,
        min_run: usize,
        now: Moment,
    ) -> Burst {
        let reach = if self.tcb.recovery == NONE {
            self.congestion.window()
        } else {
            self.reborrow().reach_in_disorder()
        };
        let tcb = &*self.tcb;
        let max_run = max_run(segmentation, tcb);
        let first = tcb.snd_nxt;
        let open = tcb.snd_wnd.min(reach);
        let is_paced = self.cx.settings.pacing || tcb.flags.intersects(Flags::SPREAD_BURST);
        let rate = pacing_rate(tcb, self.congestion, is_paced);
        let usable = match rate {
            None => open,
            Some(rate) => open.min(tcb.flight().saturating_add(budget(tcb, rate, now))),
        };
        Burst {
            first,
            seq: first,
            open,
            usable,
            rate,
            is_paced,
            max_run,
            min_run: shortest_run(min_run, max_run, tcb.mss),
            window: self.window_field(),
            ecn: if tcb.negotiated.ecn() {
                Ecn::Ect0
            } else {
                Ecn::NotEct
            },
            control: tcb.control(),
            is_blocked: false,
        }
    }

    /// Returns the next segment, or run of segments, of new data. `room` is the number of slots in
    /// the TX ring that the connection may still use. Returns `None` if no more may be sent, or if
    /// `room` is 0.
    #[inline(always)]
    pub(crate) fn next_segment(
        &mut self,
        burst: &mut Burst,
        room: usize,
        now: Moment,
    ) -> Option<Plan> {
        let tcb = &mut *self.tcb;
        let (seq, limit) = (burst.seq, tcb.limit());
        if seq == limit {
            return None;
        }
        let flight = seq.since(tcb.snd_una);
        if flight >= burst.usable && flight > 0 && tcb.stream.end() != seq {
            return None;
        }
        let mut control = burst.control;
        let (segment, len) = if let Some(segment) = StreamSegment::at(tcb, seq, &self.cx.lists) {
            let len = tcb.bytes_to_send(&segment, flight, burst, &self.cx.lists)?;
            if len == 0 {
                return None;
            }
            if len >= segment.slice.len || tcb.fills_window(flight + len) {
                control = control | Control::PSH;
            }
            // A FIN needs room in the peer's window, like data.
            let ends = seq + len == tcb.stream.end() && limit != tcb.stream.end();
            if ends && flight + len < tcb.snd_wnd {
                control = control | Control::FIN;
            }
            (segment, len)
        } else if flight < tcb.snd_wnd {
            // No data is left, so the FIN is sent alone.
            control = control | Control::FIN;
            (StreamSegment::default(), 0)
        } else {
            return None;
        };
        if room == 0 {
            burst.is_blocked = true;
            return None;
        }
        if tcb.flags.intersects(Flags::SEND_CWR) && len > 0 {
            control = control | tcb.take_cwr();
        }
        Some(Plan {
            kind: SegmentKind::New,
            header: tcb.header(burst, control, now),
            ecn: burst.ecn,
            slice: segment.slice,
            len,
            prepared: segment.prepared.filter(|_| len == segment.len),
            is_run: len > segment.len,
        })
    }

    /// Records that the port has accepted the segment planned by
    /// [`next_segment`](Self::next_segment).
    #[inline(always)]
    pub(crate) fn has_sent_segment(&mut self, burst: &mut Burst, plan: Plan, now: Moment) {
        let (seq, end) = plan.range();
        if !self.tcb.flags.intersects(Flags::TIMING) && self.may_time() {
            let tcb = &mut *self.tcb;
            tcb.flags |= Flags::TIMING;
            // For a run, only the round trip of the first segment is measured.
            let mss = u32::from(tcb.mss);
            tcb.rtt_seq = if plan.len > mss { seq + mss } else { end };
            tcb.rtt_at = now.micros;
        }
        burst.seq = end;
    }

    /// Ends a burst. Returns true if the burst found no more room in the TX ring, so the connection
    /// must send more at its next turn.
    ///
    /// `is_refused` tells whether the port has refused the last planned segment.
    #[inline(always)]
    pub(crate) fn end_burst(&mut self, burst: &Burst, is_refused: bool, now: Moment) -> bool {
        let tcb = &mut *self.tcb;
        let Burst { first, seq, .. } = *burst;
        let flight = first.since(tcb.snd_una);
        if seq != first {
            if tcb.probes_window() {
                tcb.stop_probing();
            }
            let event = tcb.event(flight, 0, self.cx.settings.pacing, now);
            self.congestion.on_send(seq.since(first), &event);
            if let Some(rate) = burst.rate {
                charge_pacing(tcb, rate, seq.since(first), now);
            }
            self.has_sent_to(seq);
            self.has_advertised(burst.window);
            if flight <= u32::from(self.tcb.mss) || self.tcb.recovery != NONE {
                self.arm_after_send(flight, seq.since(first), now);
            }
        }
        let tcb = &mut *self.tcb;
        let mut is_held_back = false;
        if burst.is_paced || burst.rate.is_some() {
            is_held_back = burst.usable < burst.open && seq != tcb.limit();
            if burst.is_paced && !is_held_back {
                // The burst has been spread, so from now on ACKs clock the transmission again.
                tcb.flags -= Flags::SPREAD_BURST;
            }
        }
        let is_blocked = is_refused || burst.is_blocked;
        if !is_blocked && (is_held_back || seq == tcb.snd_una) {
            self.reborrow().wait_for_more(is_held_back, now);
        }
        is_blocked
    }

    /// Makes unsent data wait: for the next pacing tick if `is_held_back` is set, otherwise for the
    /// peer's window.
    fn wait_for_more(mut self, is_held_back: bool, now: Moment) {
        let tcb = &mut *self.tcb;
        if is_held_back {
            if tcb.probes_window() {
                // Pacing, and no longer the peer's window, now delays the data.
                tcb.stop_probing();
            }
            let kind = match tcb.deadline_kind {
                DeadlineKind::Reordering => DeadlineKind::Reordering,
                _ => DeadlineKind::Pacing,
            };
            tcb.arm(kind, 1, now);
        } else if !tcb.probes_window() {
            // The peer's window is zero or too small. Nothing is in flight, so no ACK will report
            // that the window opens.
            self.start_probing(now);
        }
    }

    /// Sets the deadline after `bytes` of new data were sent, or counts these bytes for loss
    /// recovery. `flight` is the number of bytes that were in flight before. Called only if at most
    /// one segment was in flight, or if the connection has loss recovery state.
    #[inline(always)]
    fn arm_after_send(&mut self, flight: u32, bytes: u32, now: Moment) {
        let tcb = &mut *self.tcb;
        if flight == 0 {
            // Sending data starts the retransmission timer (RFC 6298, 5.1).
            if tcb.deadline_kind == DeadlineKind::KeepAlive {
                (tcb.retries, tcb.backoff) = (0, 0);
            }
            let (kind, after) = self.timeout();
            self.tcb.arm(kind, after, now);
        } else if flight <= u32::from(tcb.mss) && tcb.deadline_kind == DeadlineKind::TailProbe {
            self.reborrow().hasten_probe(now);
        } else {
            self.reborrow().has_sent_in_disorder(bytes);
        }
    }

    /// Moves the tail loss probe to an earlier time when a second segment is sent (RFC 8985,
    /// section 7.2).
    ///
    /// The peer may delay the ACK of one segment, but not of two. The probe is never postponed,
    /// because the oldest segment must not wait for later segments.
    #[cold]
    fn hasten_probe(self, now: Moment) {
        let (kind, after) = self.timeout();
        let remaining = self.tcb.deadline.wrapping_sub(now.millis).cast_signed();
        if kind != DeadlineKind::TailProbe || i64::from(after) < i64::from(remaining) {
            self.tcb.arm(kind, after, now);
        }
    }

    /// Starts probing a window that has no room for the next segment (RFC 9293, section 3.8.6.1).
    #[cold]
    fn start_probing(&mut self, now: Moment) {
        let tcb = &mut *self.tcb;
        tcb.flags -= Flags::TIMING;
        tcb.rtt_at = now.micros;
        (tcb.retries, tcb.backoff) = (0, 0);
        let interval = self.tcb.probe_interval(self.cx.settings.min_rto_ms);
        self.tcb.arm(DeadlineKind::ZeroWindow, interval, now);
    }

    /// Returns true if the next segment may be timed. During recovery a gap delays the cumulative
    /// ACK, so only SACK blocks and TSecrs yield exact measurements. A connection that uses neither
    /// SACK nor timestamps times segments anyway.
    #[inline(always)]
    fn may_time(&self) -> bool {
        let tcb = &*self.tcb;
        tcb.recovery == NONE || tcb.negotiated.sack() || !tcb.negotiated.timestamps()
    }
}

impl Tcb {
    #[inline(always)]
    fn header(&self, burst: &Burst, control: Control, now: Moment) -> Header {
        Header {
            seq: burst.seq,
            ack: self.rcv_nxt,
            control,
            window: burst.window,
            timestamps: self.timestamps(now),
        }
    }

    /// Returns the CWR bit for the first segment with new data after a window reduction (RFC 3168,
    /// section 6.1.2). Returns no bit if the connection does not use ECN.
    #[cold]
    fn take_cwr(&mut self) -> Control {
        self.flags -= Flags::SEND_CWR;
        if self.negotiated.ecn() {
            Control::CWR
        } else {
            Control(0)
        }
    }

    /// Returns true if the peer's window is only a few segments large, and a segment that ends
    /// `end` bytes after SND.UNA fills the window.
    ///
    /// A segment that fills the window gets PSH, so that a Linux peer acknowledges the segment as
    /// soon as the application reads it. Without PSH, Linux delays the ACK to wait for another
    /// segment, which the full window forbids. For larger windows, PSH has no benefit and would
    /// cost an ACK per segment.
    #[inline(always)]
    fn fills_window(&self, end: u32) -> bool {
        const SMALL_WINDOW_SEGMENTS: u32 = 16;
        let mss = u32::from(self.mss);
        self.snd_wnd < SMALL_WINDOW_SEGMENTS * mss && end + mss > self.snd_wnd
    }

    /// Returns the number of bytes to send, as one segment or a run of segments, if `flight` bytes
    /// are in flight. Returns `None` or 0 if nothing may be sent.
    #[inline(always)]
    fn bytes_to_send(
        &self,
        segment: &StreamSegment,
        flight: u32,
        burst: &Burst,
        lists: &Lists,
    ) -> Option<u32> {
        if flight.saturating_add(segment.len) <= burst.usable {
            // Not every device can segment a packet with CWR, so a segment with CWR is sent alone.
            let sends_cwr = self.flags.intersects(Flags::SEND_CWR) && self.negotiated.ecn();
            if burst.max_run > 0 && !sends_cwr {
                let max_len = burst.max_run.min(burst.usable - flight);
                let run = self.run_at(burst.seq, max_len, lists)?;
                return Some(if run < burst.min_run {
                    segment.len
                } else {
                    run
                });
            }
            return Some(segment.len);
        }
        // A segment is cut to the window only if the peer's window was never large and nothing is
        // in flight (RFC 9293, section 3.8.6.2.1). For other peers, the zero-window timer cuts and
        // sends the segment if the window stays small.
        let may_truncate = flight == 0 && self.snd_wnd > 0 && !self.has_had_large_window();
        may_truncate.then(|| segment.len.min(burst.usable))
    }

    /// Returns the length in bytes of the run or segment that begins at `seq`. A run has at most
    /// `max_len` bytes. It consists of several whole short entries, or of segments of one entry.
    #[inline(never)]
    fn run_at(&self, seq: Seq, max_len: u32, lists: &Lists) -> Option<u32> {
        let segment = StreamSegment::at(self, seq, lists)?;
        let joined = self.joined_run(seq, max_len.min(MAX_OVER_V6 as u32), lists);
        if joined > segment.slice.len {
            return Some(joined);
        }
        Some(segment.len.max(segment.run(self.mss.into(), max_len)))
    }

    /// Returns the total length in bytes of the whole short entries from `seq` that fit into
    /// `max_len` bytes. Pipelined requests lead to several short entries.
    fn joined_run(&self, seq: Seq, max_len: u32, lists: &Lists) -> u32 {
        let mut len = 0;
        while let Some(slice) = self.stream.locate(seq + len, lists)
            && slice.len <= MAX_JOINED_ENTRY.min(max_len - len)
        {
            len += slice.len;
        }
        len
    }
}

impl StreamSegment {
    /// Returns the length in bytes of the run of segments that begins with this segment. The length
    /// is at most `max_len`.
    ///
    /// Returns 0 if the run would consist of only one segment. A run begins at a prepared segment, or at any
    /// byte if the stream entry is a part of its content item.
    fn run(&self, mss: u32, max_len: u32) -> u32 {
        let left = self.slice.len;
        let bytes = left.min(max_len);
        let source = self.slice.source;
        let is_part = !source.ends_content() && source.buffer().is_none();
        if bytes <= mss || !(is_part || self.prepared.is_some()) {
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

/// Returns the maximum payload of a super-segment to this peer in bytes, or 0 if super-segments are
/// not possible.
///
/// `segmentation` is the maximum size of the whole packet over IPv4. On links with a VLAN tag, each
/// segment is sent in its own frame, because not every device can segment tagged packets.
#[inline(always)]
fn max_run(segmentation: usize, tcb: &Tcb) -> u32 {
    if segmentation == 0 || tcb.path.link.vlan.is_some() {
        return 0;
    }
    let max = match tcb.path.addresses {
        Addresses::V4 { .. } => segmentation,
        Addresses::V6 { .. } => segmentation.min(MAX_OVER_V6),
    };
    let headers = tcb.path.addresses.header_len() + TIMESTAMPED_HEADER_LEN;
    max.saturating_sub(headers) as u32
}

/// Returns the payload from which a super-segment is worth its cost: that of `segments` segments, or of as many
/// as it can have.
#[inline(always)]
fn shortest_run(segments: usize, max_run: u32, mss: u16) -> u32 {
    if segments == 0 {
        return 0;
    }
    let mss = u32::from(mss);
    (segments as u32).min(max_run / mss) * mss
}

/// Returns the rate in bytes per second at which new data is paced, or `None` if new data is not
/// paced.
#[inline(always)]
fn pacing_rate<C: CongestionControl>(tcb: &Tcb, congestion: &C, pacing: bool) -> Option<u64> {
    match congestion.pacing_rate() {
        None if pacing => window_rate(tcb, congestion),
        rate => rate,
    }
}

/// Returns the rate of two windows per round trip in slow start or for a sudden opening of the
/// window, and of 1.2 windows otherwise. With this margin, pacing does not limit the throughput.
/// Returns `None` before the first RTT sample.
#[cold]
fn window_rate<C: CongestionControl>(tcb: &Tcb, congestion: &C) -> Option<u64> {
    let srtt = u64::from(tcb.rtt.smoothed());
    let window = u64::from(congestion.window());
    let opens = tcb.flags.intersects(Flags::SPREAD_BURST);
    let fifths = if opens || congestion.window() < congestion.ssthresh() {
        10
    } else {
        6
    };
    (srtt > 0).then(|| (window * fifths * 200_000 / srtt).max(1))
}

/// Returns the number of bytes that may be sent now at `rate` bytes per second. The budget is the
/// bytes of one timer tick, minus the bytes already sent ahead of the rate.
///
/// The budget is 0 if the bytes of a whole tick were already sent ahead of the rate. Otherwise it
/// is at least one segment.
#[cold]
fn budget(tcb: &Tcb, rate: u64, now: Moment) -> u32 {
    let Some(time) = PACING_TICK
        .checked_sub(tcb.pacing_debt(now))
        .filter(|time| *time > 0)
    else {
        return 0;
    };
    let bytes = rate.saturating_mul(time.into()) / 1_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX).max(tcb.mss.into())
}

/// Charges `bytes`, which were sent at `rate` bytes per second, to the pacing budget.
#[cold]
fn charge_pacing(tcb: &mut Tcb, rate: u64, bytes: u32, now: Moment) {
    let micros = u64::from(bytes) * 1_000_000 / rate.max(1);
    let micros = micros.min(u64::from(MAX_PACING_DEBT)) as u32;
    let until = tcb
        .pacing_debt(now)
        .saturating_add(micros)
        .min(MAX_PACING_DEBT);
    tcb.paced_until = now.micros.wrapping_add(until);
}
