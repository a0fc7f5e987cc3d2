//! BBR, version 3: draft-ietf-ccwg-bbr.
//!
//! This module defines the state of a connection, and measures rounds and ACK aggregation.
//! `machine` implements the path model and the state machine.

mod machine;

use super::{Event, MAX_WINDOW, initial_window};
use bitflags::bitflags;

/// Percentage of the long-term limit that the Cruise and `ProbeRTT` states leave to other flows.
const HEADROOM: u32 = 15;
/// Maximum loss per round that BBR tolerates, in percent of the bytes in flight.
const LOSS_THRESH: u32 = 2;
/// Minimum window in segments, so that ACKs keep arriving even if the peer delays them.
const MIN_PIPE: u32 = 4;
/// Upper bound of the send quantum in bytes.
const MAX_QUANTUM: u32 = 65_536;
/// Shift that converts microseconds to ticks of 4.096 ms.
const TICK_SHIFT: u32 = 12;
/// Marks a limit that is not set, or a value that is not yet measured.
const NONE: u32 = u32::MAX;

/// Unit of rates, in bytes per second. With this unit, 32 bits can store rates of up to 34 GB/s.
const RATE_UNIT: u64 = 8;
const MICROS: u64 = 1_000_000;
/// Upper bound of a time span in microseconds (67 s), so that products fit in 64 bits.
const MAX_SPAN: u32 = 1 << 26;
/// Number of rounds in each half of the filter in [`Aggregation`]. The two halves cover 5 to 10
/// rounds, whereas the draft's filter covers 10.
const HALF: u8 = 5;

/// BBR version 3 (draft-ietf-ccwg-bbr), driven by the events of
/// [`CongestionControl`](super::CongestionControl). The stack must obey [`pacing_rate`]. Otherwise
/// it sends bursts of a whole window.
///
/// In 70 of the 150 networks of `benches/LOSS.md` BBR's goodput is at least 1.1 times that of
/// CUBIC. Most of these networks lose segments at random. In 39 networks, BBR's goodput is below
/// 0.95 times that of CUBIC. These networks have short responses, long round trips without loss, or
/// ECN marks. BBR retransmits 2.3 times as many bytes as CUBIC.
///
/// The following parts are approximations, or differ from the draft:
///
/// - *Delivery rate.* The draft keeps state for each segment, and takes a sample with every ACK.
///   Here each round yields one sample, from the round's first segment. This sample is a mean over
///   the round, whereas the draft uses a maximum. Therefore loss does not reduce a short-term limit
///   below the sample plus the pacing margin and the lost part (at most 2 %). Without these
///   additions the limits would sink with every round. An application-limited round lowers the
///   limits only if it loses too much.
/// - A round is *application-limited* if it did not use up the window, and sent less than seven
///   eighths of what the pacing rate allows. Rounds in Drain, Down and `ProbeRTT`, and rounds with
///   a timeout, count as application-limited, too.
/// - `RS.tx_in_flight` is the maximum number of bytes in flight during the previous round. Too much
///   loss sets the long-term limit to this maximum minus the lost bytes.
/// - Startup counts the ACKs that reported a loss, whereas the draft counts the lost *ranges*.
/// - The filter of `extra_acked` covers 5 to 10 rounds. Timers of up to ten seconds have a
///   resolution of 4 ms. Random numbers are derived from the time and the sequence numbers.
/// - The draft does not cover *ECN*. Here an ECN echo counts as a round with too much loss (RFC
///   3168, section 6.1.2).
/// - *Undo* of a spurious recovery restores the complete state, including the filters.
///
/// [`pacing_rate`]: super::CongestionControl::pacing_rate
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr {
    round: Round,
    aggregation: Aggregation,
    cwnd: u32,
    /// Maximum bandwidth of the current and of the previous probing cycle, in units of
    /// [`RATE_UNIT`].
    max_bw: [u32; 2],
    /// Short-term limit of the bandwidth in units of [`RATE_UNIT`], or [`NONE`].
    bw_shortterm: u32,
    /// Short-term limit of bytes in flight, or [`NONE`].
    inflight_shortterm: u32,
    /// Long-term limit of bytes in flight, or [`NONE`].
    inflight_longterm: u32,
    /// Bandwidth with which each round is compared to find out whether the pipe is full, in units
    /// of [`RATE_UNIT`].
    full_bw: u32,
    pacing_rate: u32,
    /// Minimum round-trip time of the last ten seconds in microseconds, or [`NONE`].
    min_rtt: u32,
    /// Minimum round-trip time of the last five seconds in microseconds, or [`NONE`]. When this
    /// minimum expires, `ProbeRTT` begins.
    probe_rtt_min: u32,
    /// Bytes acknowledged in the Up state since `inflight_longterm` last grew.
    up_acked: u32,
    /// Time at which `min_rtt` was measured, in ticks.
    min_rtt_stamp: u16,
    /// Time at which `probe_rtt_min` was measured, in ticks.
    probe_rtt_stamp: u16,
    /// Time of the next bandwidth probe, or of the end of `ProbeRTT`, in ticks.
    deadline: u16,
    flags: BbrFlags,
    state: BbrState,
    /// Number of rounds in which the bandwidth did not grow. In Drain: the number of rounds spent
    /// in that state.
    full_bw_rounds: u8,
    rounds_since_probe: u8,
    up_rounds: u8,
}

const _: () = assert!(size_of::<Bbr>() <= 112);

impl Bbr {
    #[inline(always)]
    const fn ticks(now: u32) -> u16 {
        (now >> TICK_SHIFT) as u16
    }

    const fn has_come(ticks: u16, deadline: u16) -> bool {
        ticks.wrapping_sub(deadline).cast_signed() >= 0
    }

    fn max_bw(&self) -> u32 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// Returns the bandwidth estimate: `BBR.bw` of the draft.
    fn bw(&self) -> u32 {
        self.max_bw().min(self.bw_shortterm)
    }

    /// Returns `gain` percent of the bandwidth-delay product in bytes, or the initial window before
    /// the first measurement.
    fn bdp(&self, bw: u32, gain: u32, mss: u32) -> u32 {
        if self.min_rtt == NONE || bw == 0 {
            return initial_window(mss);
        }
        let bdp = bytes_at(bw, self.min_rtt).min(u64::from(MAX_WINDOW)) as u32;
        percent(bdp, gain).min(MAX_WINDOW)
    }

    fn min_pipe(mss: u32) -> u32 {
        mss.saturating_mul(MIN_PIPE).clamp(1, MAX_WINDOW)
    }

    /// Returns `inflight` plus an allowance for bursts and delayed ACKs: `BBRQuantizationBudget` of
    /// the draft.
    fn quantized(&self, inflight: u32, mss: u32) -> u32 {
        let quantum = bytes_at(self.pacing_rate, 1_000).min(u64::from(MAX_QUANTUM)) as u32;
        let quantum = quantum.max(mss.saturating_mul(2));
        let inflight = inflight
            .max(quantum.saturating_mul(3))
            .max(Self::min_pipe(mss));
        if self.state == BbrState::Up {
            inflight.saturating_add(mss.saturating_mul(2))
        } else {
            inflight
        }
    }

    /// Returns the target number of bytes in flight: `TargetInflight` of the draft.
    fn target(&self, mss: u32) -> u32 {
        self.bdp(self.bw(), 100, mss).min(self.cwnd)
    }

    fn with_headroom(&self, mss: u32) -> u32 {
        if self.inflight_longterm == NONE {
            return NONE;
        }
        let headroom = percent(self.inflight_longterm, HEADROOM).max(mss);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(Self::min_pipe(mss))
    }
}

// Gains in percent. Pacing gains multiply the bandwidth, and window gains multiply the
// bandwidth-delay product.
const STARTUP_PACING: u32 = 277;
const DRAIN_PACING: u32 = 50;
const DOWN_PACING: u32 = 90;
const UP_PACING: u32 = 125;
const CWND_GAIN: u32 = 200;
const UP_CWND_GAIN: u32 = 225;
const PROBE_RTT_CWND_GAIN: u32 = 50;

/// A state of BBR's state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrState {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl BbrState {
    /// Returns true if this is a state of `ProbeBW`, the bandwidth probing cycle.
    const fn probes_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Returns true if the state increases the data in flight to probe for more bandwidth. Loss in
    /// these states does not lower the short-term limits.
    const fn accelerates(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    const fn pacing_gain(self) -> u32 {
        match self {
            Self::Startup => STARTUP_PACING,
            Self::Drain => DRAIN_PACING,
            Self::Down => DOWN_PACING,
            Self::Up => UP_PACING,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 100,
        }
    }

    const fn cwnd_gain(self) -> u32 {
        match self {
            Self::Up => UP_CWND_GAIN,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => CWND_GAIN,
        }
    }
}

bitflags! {
    /// The boolean values in a connection's state, as bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct BbrFlags: u16 {
        /// Whether Startup is over: the pipe was full, too much was lost, or an ECN echo arrived.
        const FULL_BW_REACHED = 1;
        /// Whether the current probe has found the pipe full.
        const FULL_BW_NOW = 1 << 1;
        /// Whether the current samples measure data that was sent in a bandwidth probe.
        const PROBE_SAMPLE = 1 << 2;
        /// Whether a bandwidth probe has ended, but its samples still arrive until this round ends.
        const PROBE_STOPPING = 1 << 3;
        /// Whether the last bandwidth probe caused too much loss or an ECN echo.
        const TOO_HIGH = 1 << 4;
        /// Whether the last probe stopped early at the long-term limit, because an earlier probe
        /// lost too much.
        const PRECAUTIONARY = 1 << 5;
        /// Whether bytes were lost in this round.
        const LOSS = 1 << 6;
        /// Whether the connection is in fast recovery.
        const RECOVERY = 1 << 7;
        /// Whether a round has ended during the current recovery.
        const RECOVERY_ROUND = 1 << 8;
        /// Whether the connection was idle, and no ACK has arrived since then.
        const IDLE = 1 << 9;
        /// Whether the end of `ProbeRTT` is scheduled, because few enough bytes are in flight.
        const PROBE_RTT_TIMED = 1 << 10;
        /// Whether few enough bytes have been in flight for a whole round of `ProbeRTT`.
        const PROBE_RTT_ROUND = 1 << 11;
        /// Whether the pacing rate is based on a measured RTT.
        const PACED = 1 << 12;
    }
}

/// The measurement of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// The delivery rate, in units of [`RATE_UNIT`].
    rate: u32,
    /// Bytes delivered in the round.
    delivered: u32,
    /// Bytes declared lost in the round.
    lost: u32,
    /// Number of ACKs in the round that reported a loss.
    losses: u8,
    /// Maximum number of bytes in flight while the delivered data was sent.
    tx_in_flight: u32,
    /// Whether the delivered data was sent in an application-limited round.
    limited: bool,
}

/// A packet-timed round: it begins when a segment is sent, and ends when that segment is
/// acknowledged.
///
/// No state is kept for each segment. All bytes in flight at the beginning must be delivered or
/// lost before the first segment of the round can be acknowledged. So the round ends, even in
/// recovery, with the first byte delivered after these bytes. The round's delivery rate is the
/// draft's sample of its first segment. This rate is the number of delivered bytes, divided by the
/// duration of the current or the previous round, whichever is longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Number of bytes that were in flight at the beginning of the round, and still are.
    left: u32,
    /// Bytes delivered in this round.
    delivered: u32,
    /// Bytes lost in this round.
    lost: u32,
    /// Bytes sent in this round, including retransmissions.
    sent: u32,
    /// Start of the round, in microseconds.
    start: u32,
    /// Duration of the previous round in microseconds, or 0 if there was none.
    before: u32,
    /// Maximum number of bytes in flight in the current and in the previous round.
    in_flight: [u32; 2],
    /// Number of ACKs in this round that reported a loss.
    losses: u8,
    flags: RoundFlags,
}

bitflags! {
    /// Flags of a [`Round`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct RoundFlags: u8 {
        /// Whether the window was used up in this round.
        const FULL = 1;
        /// Whether the window was used up in the previous round.
        const WAS_FULL = 1 << 1;
        /// Whether the previous round was application-limited.
        const WAS_LIMITED = 1 << 2;
        /// Whether this round counts as application-limited.
        const LIMITED = 1 << 3;
    }
}

/// Measurement of ACK aggregation: the maximum filter behind `BBR.extra_acked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Aggregation {
    /// Start of the measured interval, in microseconds.
    start: u32,
    /// Bytes delivered since `start`.
    delivered: u32,
    /// Maximum number of bytes delivered in excess of the estimated bandwidth, in the current and
    /// in the previous half of the filter.
    extra: [u32; 2],
    /// Number of rounds in the current half of the filter.
    rounds: u8,
}

impl Aggregation {
    fn restart(&mut self, now: u32) {
        self.start = now;
        self.delivered = 0;
    }

    /// Handles an ACK of `delivered` bytes at an estimated bandwidth of `bw`.
    #[inline(always)]
    fn on_ack(&mut self, delivered: u32, bw: u32, cwnd: u32, event: &Event) {
        let expected = bytes_at(bw, event.now.wrapping_sub(self.start));
        let expected = if u64::from(self.delivered) <= expected {
            self.restart(event.now);
            0
        } else {
            expected
        };
        self.delivered = self.delivered.saturating_add(delivered);
        let extra = u64::from(self.delivered).saturating_sub(expected);
        let extra = extra.min(u64::from(cwnd)) as u32;
        self.extra[0] = self.extra[0].max(extra);
    }

    /// Records that a round has ended. During Startup (`is_startup`), each half of the filter
    /// covers only one round.
    fn on_round(&mut self, is_startup: bool) {
        self.rounds += 1;
        if is_startup || self.rounds >= HALF {
            self.rounds = 0;
            self.extra = [0, self.extra[0]];
        }
    }

    fn extra(&self) -> u32 {
        self.extra[0].max(self.extra[1])
    }
}

/// Returns the rate that sends `bytes` in `micros` microseconds, in units of [`RATE_UNIT`].
fn rate_of(bytes: u32, micros: u32) -> u32 {
    let rate = u64::from(bytes) * (MICROS / RATE_UNIT) / u64::from(micros.max(1));
    rate.min(u64::from(u32::MAX - 1)) as u32
}

/// Returns the number of bytes sent at `rate` in `micros` microseconds, or in [`MAX_SPAN`] if that
/// is shorter.
fn bytes_at(rate: u32, micros: u32) -> u64 {
    u64::from(rate) * RATE_UNIT * u64::from(micros.min(MAX_SPAN)) / MICROS
}

/// Returns `percent` percent of `value`.
fn percent(value: u32, percent: u32) -> u32 {
    let part = u64::from(value) * u64::from(percent) / 100;
    part.min(u64::from(u32::MAX - 1)) as u32
}

/// Returns true if `lost` bytes are more than [`LOSS_THRESH`] percent of `in_flight` bytes.
fn loses_much(lost: u32, in_flight: u32) -> bool {
    u64::from(lost) * 100 > u64::from(in_flight) * u64::from(LOSS_THRESH)
}

impl Round {
    /// Records that `bytes` were sent with a window of `cwnd`.
    #[inline(always)]
    fn on_send(&mut self, bytes: u32, cwnd: u32, event: &Event) {
        if event.in_flight == 0 {
            // Begin a new round, so that no round contains the idle time.
            self.begin(0, event.now);
            self.left = bytes.saturating_sub(1);
            self.before = 0;
        }
        let in_flight = event.in_flight.saturating_add(bytes);
        self.in_flight[0] = self.in_flight[0].max(in_flight);
        self.sent = self.sent.saturating_add(bytes);
        if in_flight.saturating_add(event.mss) > cwnd {
            self.flags |= RoundFlags::FULL;
        }
    }

    /// Handles an ACK, and returns the sample if the ACK ends the round. `pacing_rate` is the rate
    /// at which the round was allowed to send.
    #[inline(always)]
    fn on_ack(
        &mut self,
        delivered: u32,
        lost: u32,
        pacing_rate: u32,
        event: &Event,
    ) -> Option<Sample> {
        self.delivered = self.delivered.saturating_add(delivered);
        if lost > 0 {
            self.lost = self.lost.saturating_add(lost);
            self.losses = self.losses.saturating_add(1);
        }
        let gone = delivered.saturating_add(lost);
        if delivered == 0 || gone <= self.left {
            self.left = self.left.saturating_sub(gone);
            return None;
        }
        Some(self.end(event.in_flight.saturating_sub(gone), pacing_rate, event))
    }

    #[inline(never)]
    fn end(&mut self, in_flight: u32, pacing_rate: u32, event: &Event) -> Sample {
        let elapsed = event.now.wrapping_sub(self.start).max(1);
        let allowed = bytes_at(pacing_rate, elapsed);
        let full = self.flags.intersects(RoundFlags::FULL);
        let limited = !full && u64::from(self.sent) < allowed / 8 * 7;
        let sample = Sample {
            rate: rate_of(self.delivered, elapsed.max(self.before)),
            delivered: self.delivered,
            lost: self.lost,
            losses: self.losses,
            tx_in_flight: self.tx_in_flight(),
            limited: self.flags.intersects(RoundFlags::WAS_LIMITED),
        };
        let limited = limited || self.flags.intersects(RoundFlags::LIMITED);
        self.flags = RoundFlags::empty();
        self.flags.set(RoundFlags::WAS_FULL, full);
        self.flags.set(RoundFlags::WAS_LIMITED, limited);
        self.before = elapsed;
        self.in_flight = [0, self.in_flight[0]];
        self.begin(in_flight, event.now);
        sample
    }

    /// Begins a new round before the current one is over, with `in_flight` bytes in flight.
    fn restart(&mut self, in_flight: u32, now: u32) {
        if self.flags.intersects(RoundFlags::LIMITED) {
            // The next sample still measures bytes sent in the limited round.
            self.flags |= RoundFlags::WAS_LIMITED;
        }
        self.begin(in_flight, now);
    }

    fn begin(&mut self, in_flight: u32, now: u32) {
        self.left = in_flight;
        self.delivered = 0;
        self.lost = 0;
        self.sent = 0;
        self.losses = 0;
        self.start = now;
    }

    /// Marks this round as application-limited.
    fn mark_limited(&mut self) {
        self.flags |= RoundFlags::LIMITED;
    }

    /// Returns true if the window was used up in the current or in the previous round.
    fn window_is_used(&self) -> bool {
        let used = RoundFlags::FULL | RoundFlags::WAS_FULL;
        self.flags.intersects(used)
    }

    /// Returns the maximum number of bytes in flight while the data that is now delivered was sent.
    fn tx_in_flight(&self) -> u32 {
        if self.in_flight[1] == 0 {
            self.in_flight[0]
        } else {
            self.in_flight[1]
        }
    }

    /// Returns true if this round has lost more than [`LOSS_THRESH`] percent of the bytes in
    /// flight.
    fn loses_much(&self) -> bool {
        loses_much(self.lost, self.tx_in_flight())
    }

    /// Returns the number of bytes in flight that the path has carried without loss: the maximum
    /// minus the lost bytes. Returns `None` if the previous round was application-limited.
    fn carried(&self) -> Option<u32> {
        let is_limited = self.flags.intersects(RoundFlags::WAS_LIMITED);
        (!is_limited).then(|| self.tx_in_flight().saturating_sub(self.lost))
    }

    /// Caps the recorded maxima of bytes in flight at `limit`, the largest number that was safe.
    fn limit_in_flight(&mut self, limit: u32) {
        self.in_flight = self.in_flight.map(|bytes| bytes.min(limit));
    }
}

#[cfg(test)]
#[path = "bbr_tests.rs"]
mod tests;
