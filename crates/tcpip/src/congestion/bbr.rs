//! BBR, version 3: draft-ietf-ccwg-bbr.
//!
//! This module has the state of a connection, and the measurement of rounds and
//! ACK aggregation. `machine` has the model and the state machine.

mod machine;

use super::{Event, MAX_WINDOW, initial_window};
use bitflags::bitflags;

/// Percent of the long-term limit that Cruise leaves to other flows.
const HEADROOM: u32 = 15;
/// Tolerated loss in a round, in percent.
const LOSS_THRESH: u32 = 2;
/// Minimum number of segments in flight, so that ACKs keep coming if the peer delays them.
const MIN_PIPE: u32 = 4;
/// Upper bound of the send quantum in bytes.
const MAX_QUANTUM: u32 = 65_536;
/// Times are in ticks of 4.096 ms: microseconds shifted right by this number.
const TICK_SHIFT: u32 = 12;
/// No limit, or no measurement.
const NONE: u32 = u32::MAX;

/// Unit of rates in bytes per second, so that 32 bits reach 34 GB/s.
const RATE_UNIT: u64 = 8;
const MICROS: u64 = 1_000_000;
/// Upper bound of a time span in microseconds, a minute, so that products fit in 64 bits.
const MAX_SPAN: u32 = 1 << 26;
/// Rounds in each half of the filter in [`Aggregation`], which thus covers 5 to 10 rounds. The
/// draft's filter covers 10.
const HALF: u8 = 5;

/// BBR version 3 (draft-ietf-ccwg-bbr), driven by the events of
/// [`CongestionControl`](super::CongestionControl). The stack must obey [`pacing_rate`]; otherwise
/// it sends bursts of a whole window.
///
/// In 70 of the 150 networks of `benches/LOSS.md` its goodput is at least 1.1
/// times CUBIC's; most of these lose segments at random. In 39 it is below 0.95
/// of CUBIC's: short responses, long round trips without loss, and ECN marks.
/// It retransmits 2.3 times as many bytes.
///
/// These parts are approximations or differ from the draft:
///
/// - *Delivery rate.* The draft keeps state for each segment, and takes a sample with every ACK.
///   Here each round gives one sample, that of its first segment. It is a mean over the round,
///   where the draft has a maximum. So the short-term limits after a loss are the sample plus the
///   pacing margin and the tolerated loss (2 %). Without these additions the limits would sink with
///   every round. Data sent in Drain or Down does not lower the limits unless it loses too much.
/// - *Application-limited* is a round that neither used up the window nor sent
///   seven eighths of what the pacing rate allows.
/// - `RS.tx_in_flight` is the maximum in flight during the round before. The
///   limit found by loss is that maximum minus the lost bytes.
/// - The number of lost *ranges* in Startup is the number of ACKs that reported a loss.
/// - The filter of `extra_acked` covers 5 to 10 rounds. Times up to ten seconds
///   have a resolution of 4 ms. Random numbers come from the time and sequence
///   numbers.
/// - The draft has no *ECN*. Here an ECN echo counts as a round with too much loss (RFC 3168,
///   section 6.1.2).
/// - *Undo* of a spurious recovery restores the complete state, filters included.
///
/// [`pacing_rate`]: super::CongestionControl::pacing_rate
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr {
    round: Round,
    aggregation: Aggregation,
    cwnd: u32,
    /// Maximum bandwidth of this probing cycle and of the one before.
    max_bw: [u32; 2],
    /// Short-term limits of bandwidth and of bytes in flight, or [`NONE`].
    bw_shortterm: u32,
    inflight_shortterm: u32,
    /// Long-term limit of bytes in flight, or [`NONE`].
    inflight_longterm: u32,
    /// Bandwidth from which growth is measured.
    full_bw: u32,
    pacing_rate: u32,
    /// Minimum round-trip time of the last ten seconds in microseconds, or [`NONE`].
    min_rtt: u32,
    /// Minimum round-trip time of the last five seconds in microseconds, or [`NONE`]. It schedules
    /// `ProbeRTT`.
    probe_rtt_min: u32,
    /// Bytes acknowledged in Up since `inflight_longterm` last grew.
    up_acked: u32,
    /// Times of the measurements of `min_rtt` and `probe_rtt_min`, in ticks.
    min_rtt_stamp: u16,
    probe_rtt_stamp: u16,
    /// Time of the next bandwidth probe, or of the end of `ProbeRTT`, in ticks.
    deadline: u16,
    flags: Flags,
    state: State,
    /// Rounds without growth of the bandwidth. In Drain, it counts the rounds of Drain.
    full_bw_rounds: u8,
    rounds_since_probe: u8,
    up_rounds: u8,
}

const _: () = assert!(size_of::<Bbr>() <= 112);

impl Bbr {
    #[inline(always)]
    const fn clock(now: u32) -> u16 {
        (now >> TICK_SHIFT) as u16
    }

    const fn has_come(clock: u16, deadline: u16) -> bool {
        clock.wrapping_sub(deadline).cast_signed() >= 0
    }

    fn max_bw(&self) -> u32 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// The bandwidth estimate: `BBR.bw` of the draft.
    fn bw(&self) -> u32 {
        self.max_bw().min(self.bw_shortterm)
    }

    /// `gain` percent of the bandwidth-delay product.
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

    /// Returns `inflight` with room for bursts and delayed ACKs: `BBRQuantizationBudget` of the
    /// draft.
    fn quantized(&self, inflight: u32, mss: u32) -> u32 {
        let quantum = bytes_at(self.pacing_rate, 1_000).min(u64::from(MAX_QUANTUM)) as u32;
        let quantum = quantum.max(mss.saturating_mul(2));
        let inflight = inflight
            .max(quantum.saturating_mul(3))
            .max(Self::min_pipe(mss));
        if self.state == State::Up {
            inflight.saturating_add(mss.saturating_mul(2))
        } else {
            inflight
        }
    }

    /// The target of bytes in flight: `TargetInflight` of the draft.
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

// Gains in percent: of the bandwidth for pacing, and of the bandwidth-delay
// product for the window.
const STARTUP_PACING: u32 = 277;
const DRAIN_PACING: u32 = 50;
const DOWN_PACING: u32 = 90;
const UP_PACING: u32 = 125;
const CWND_GAIN: u32 = 200;
const UP_CWND_GAIN: u32 = 225;
const PROBE_RTT_CWND_GAIN: u32 = 50;

/// A state of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// Whether the state is one of `ProbeBW`.
    const fn probes_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Whether the state raises the rate to probe.
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
    /// The boolean state of a connection, as bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Flags: u16 {
        /// The pipe has been full at least once.
        const FULL_BW_REACHED = 1;
        /// The current probe has found the pipe full.
        const FULL_BW_NOW = 1 << 1;
        /// Samples belong to a bandwidth probe.
        const PROBE_SAMPLE = 1 << 2;
        /// Samples of the last probe arrive until this round ends.
        const PROBE_STOPPING = 1 << 3;
        /// The last probe lost too much.
        const TOO_HIGH = 1 << 4;
        /// The last probe stopped early as a precaution.
        const PRECAUTIONARY = 1 << 5;
        /// This round has lost bytes.
        const LOSS = 1 << 6;
        /// The connection is in recovery.
        const RECOVERY = 1 << 7;
        /// The connection was in recovery for a whole round.
        const RECOVERY_ROUND = 1 << 8;
        /// The connection restarts after an idle time.
        const IDLE = 1 << 9;
        /// `ProbeRTT`: few enough bytes are in flight, so its end is scheduled.
        const PROBE_RTT_TIMED = 1 << 10;
        /// `ProbeRTT`: few enough bytes were in flight for a whole round.
        const PROBE_RTT_ROUND = 1 << 11;
        /// The pacing rate is based on a measured round trip.
        const PACED = 1 << 12;
    }
}

/// The measurement of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// The delivery rate, in units of [`RATE_UNIT`].
    rate: u32,
    /// Bytes delivered.
    delivered: u32,
    /// Bytes declared lost.
    lost: u32,
    /// ACKs that reported a loss.
    losses: u8,
    /// Maximum of bytes in flight when the delivered data was sent.
    tx_in_flight: u32,
    /// Whether the application sent less than it was allowed to.
    limited: bool,
}

/// A packet-timed round: it begins when a segment is sent, and ends when that
/// segment is acknowledged.
///
/// There is no state for each segment. All bytes in flight at the beginning must be delivered or
/// lost before the first segment of the round can be acknowledged. So the round ends with the first
/// byte delivered after these, also in recovery. Its delivery rate is the draft's sample of that
/// segment: the delivered bytes, divided by the longer of this round and the round before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Bytes that were in flight at the beginning of the round and still are.
    left: u32,
    /// Bytes delivered in this round.
    delivered: u32,
    /// Bytes lost in this round.
    lost: u32,
    /// Bytes sent in this round, including retransmissions.
    sent: u32,
    /// Start of the round, in microseconds.
    start: u32,
    /// Duration of the round before in microseconds; 0 if there was none.
    before: u32,
    /// Maximum of bytes in flight in this round and in the round before.
    in_flight: [u32; 2],
    /// ACKs of this round that reported a loss.
    losses: u8,
    flags: u8,
}

/// ACK aggregation: the filter of `BBR.extra_acked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Aggregation {
    /// Start of the interval, in microseconds.
    start: u32,
    /// Bytes delivered in the interval.
    delivered: u32,
    /// Maximum number of bytes delivered beyond the expected ones, in this half of the filter and
    /// in the half before.
    extra: [u32; 2],
    /// Rounds in this half of the filter.
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

    /// Ends a round. During Startup (`short`) the filter covers one round.
    fn on_round(&mut self, short: bool) {
        self.rounds += 1;
        if short || self.rounds >= HALF {
            self.rounds = 0;
            self.extra = [0, self.extra[0]];
        }
    }

    fn extra(&self) -> u32 {
        self.extra[0].max(self.extra[1])
    }
}

/// The rate of `bytes` in `micros` microseconds.
fn rate_of(bytes: u32, micros: u32) -> u32 {
    let rate = u64::from(bytes) * (MICROS / RATE_UNIT) / u64::from(micros.max(1));
    rate.min(u64::from(u32::MAX - 1)) as u32
}

/// Bytes sent at `rate` in `micros` microseconds.
fn bytes_at(rate: u32, micros: u32) -> u64 {
    u64::from(rate) * RATE_UNIT * u64::from(micros.min(MAX_SPAN)) / MICROS
}

/// `percent` of `value`.
fn percent(value: u32, percent: u32) -> u32 {
    let part = u64::from(value) * u64::from(percent) / 100;
    part.min(u64::from(u32::MAX - 1)) as u32
}

/// Whether the loss exceeds the tolerated part of the bytes in flight.
fn loses_much(lost: u32, in_flight: u32) -> bool {
    u64::from(lost) * 100 > u64::from(in_flight) * u64::from(LOSS_THRESH)
}

/// Flag: the window was used up in this round.
const FULL: u8 = 1;
/// Flag: the window was used up in the round before.
const WAS_FULL: u8 = 2;
/// Flag: the round before sent less than it was allowed to.
const WAS_LIMITED: u8 = 4;
/// Flag: this round counts as application-limited.
const LIMITED: u8 = 8;

impl Round {
    /// Handles the sending of `bytes` with a window of `cwnd`.
    #[inline(always)]
    fn on_send(&mut self, bytes: u32, cwnd: u32, event: &Event) {
        if event.in_flight == 0 {
            // Idle time belongs to no round.
            self.begin(0, event.now);
            self.left = bytes.saturating_sub(1);
            self.before = 0;
        }
        let in_flight = event.in_flight.saturating_add(bytes);
        self.in_flight[0] = self.in_flight[0].max(in_flight);
        self.sent = self.sent.saturating_add(bytes);
        if in_flight.saturating_add(event.mss) > cwnd {
            self.flags |= FULL;
        }
    }

    /// Handles an ACK. Returns the sample when the round is over; `pacing_rate` is the rate at
    /// which the round was allowed to send.
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
        let limited = self.flags & FULL == 0 && u64::from(self.sent) < allowed / 8 * 7;
        let sample = Sample {
            rate: rate_of(self.delivered, elapsed.max(self.before)),
            delivered: self.delivered,
            lost: self.lost,
            losses: self.losses,
            tx_in_flight: self.tx_in_flight(),
            limited: self.flags & WAS_LIMITED != 0,
        };
        let full = self.flags & FULL != 0;
        let limited = limited || self.flags & LIMITED != 0;
        self.flags = (u8::from(full) * WAS_FULL) | (u8::from(limited) * WAS_LIMITED);
        self.before = elapsed;
        self.in_flight = [0, self.in_flight[0]];
        self.begin(in_flight, event.now);
        sample
    }

    /// Begins a round before the last one is over, with `in_flight` bytes in
    /// flight.
    fn restart(&mut self, in_flight: u32, now: u32) {
        if self.flags & LIMITED != 0 {
            // The next sample measures the bytes of the limited round.
            self.flags |= WAS_LIMITED;
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
        self.flags |= LIMITED;
    }

    /// Whether the window was used up in this round or the one before.
    const fn window_is_used(&self) -> bool {
        self.flags & (FULL | WAS_FULL) != 0
    }

    /// Maximum of bytes in flight when the data delivered now was sent.
    fn tx_in_flight(&self) -> u32 {
        if self.in_flight[1] == 0 {
            self.in_flight[0]
        } else {
            self.in_flight[1]
        }
    }

    /// Whether this round loses more than is tolerated.
    fn loses_much(&self) -> bool {
        loses_much(self.lost, self.tx_in_flight())
    }

    /// Bytes in flight that the path has carried: the maximum minus the lost
    /// bytes. `None` after a round that was application-limited.
    fn carried(&self) -> Option<u32> {
        let is_limited = self.flags & WAS_LIMITED != 0;
        (!is_limited).then(|| self.tx_in_flight().saturating_sub(self.lost))
    }

    /// Caps the maxima of bytes in flight at `limit`, the most that was safe.
    fn limit_in_flight(&mut self, limit: u32) {
        self.in_flight = self.in_flight.map(|most| most.min(limit));
    }
}

#[cfg(test)]
#[path = "bbr_tests.rs"]
mod tests;
