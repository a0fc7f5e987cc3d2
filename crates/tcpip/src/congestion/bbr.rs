//! BBR, version 3: draft-ietf-ccwg-bbr.
//!
//! Here is what it knows of a connection, and the arithmetic on that; `round`
//! measures, and `machine` learns and decides.

mod machine;

use super::{Event, MAX_WINDOW, initial_window};

/// Percent of the long-term limit left free for others while cruising.
const HEADROOM: u32 = 15;
/// Percent of loss in a round that is tolerated.
const LOSS_THRESH: u32 = 2;
/// Segments in flight at least, so that delayed ACKs keep coming.
const MIN_PIPE: u32 = 4;
/// Bounds of the send quantum: a millisecond's data.
const MAX_QUANTUM: u32 = 65_536;
/// Times are kept in units of 4.096 ms.
const TICK_SHIFT: u32 = 12;
/// No limit.
const NONE: u32 = u32::MAX;

/// Bytes a second of a rate of 1: rates reach 34 GB/s in 32 bits.
const RATE_UNIT: u64 = 8;
const MICROS: u64 = 1_000_000;
/// Longer spans are cut to this, a minute, to keep products in 64 bits.
const MAX_SPAN: u32 = 1 << 26;
/// Rounds of half the filter of [`Aggregation`]; it remembers 5 to 10 (the
/// draft: 10).
const HALF: u8 = 5;

/// BBR as draft-ietf-ccwg-bbr describes it (version 3), on what the stack tells
/// an algorithm. The stack must obey [`pacing_rate`], or bursts of the whole
/// window are sent.
///
/// What is approximated:
///
/// - *Delivery rates.* The draft takes a sample with every ACK, from state that
///   it keeps of each segment. Here there is one sample a round trip, of the
///   segment with which the round began. As that is a mean of the round where
///   the draft has a maximum, the short-term limits after a loss are what
///   the sample says with the pacing margin and the tolerated loss (2 %) added,
///   or they would sink by as much with every round; and what was sent while
///   draining a queue does not lower them, unless it loses too much.
/// - *Application-limited* is a round in which neither the window was used up
///   nor seven eighths of what the pacing rate allows were sent.
/// - *In flight at transmission* (`RS.tx_in_flight`) is the most that was in
///   flight in the round before, and the limit found by loss is that less what
///   was lost.
/// - *Ranges lost* in Startup are ACKs that told of a loss.
/// - The filter of `extra_acked` remembers 5 to 10 rounds; the times of ten
///   seconds and less are kept in units of 4 ms; "random" comes from the time
///   and sequence numbers.
/// - *ECN*: the draft has none. An echo is taken as a round of too much loss
///   (RFC 3168, section 6.1.2).
/// - *Undo* of a spurious recovery puts the whole state back, filters too.
///
/// [`pacing_rate`]: super::CongestionControl::pacing_rate
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr {
    round: Round,
    aggregation: Aggregation,
    cwnd: u32,
    /// The most bandwidth of this cycle of probing and of the one before.
    max_bw: [u32; 2],
    /// Bandwidth and bytes in flight that seem safe in this cycle, or
    /// [`NONE`].
    bw_shortterm: u32,
    inflight_shortterm: u32,
    /// Bytes in flight that seem safe in the long term, or [`NONE`].
    inflight_longterm: u32,
    /// What the bandwidth must exceed to be growing still.
    full_bw: u32,
    pacing_rate: u32,
    /// The shortest round trip of ten seconds in microseconds, or [`NONE`].
    min_rtt: u32,
    /// The same of five seconds, with which `ProbeRTT` is timed.
    probe_rtt_min: u32,
    /// Bytes acknowledged in Up since `inflight_longterm` grew.
    up_acked: u32,
    /// When `min_rtt` and `probe_rtt_min` were measured, in ticks.
    min_rtt_stamp: u16,
    probe_rtt_stamp: u16,
    /// When to probe for bandwidth again; in `ProbeRTT`, when it is over.
    deadline: u16,
    flags: Flags,
    state: State,
    /// Rounds without growth; in Drain, rounds of it.
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

    /// `BBR.bw`.
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

    /// `inflight` with room for what is sent and acknowledged in lumps.
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

    /// `TargetInflight`.
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

/// Percent of the bandwidth at which each state sends, and of the
/// bandwidth-delay product that it has in flight.
const STARTUP_PACING: u32 = 277;
const DRAIN_PACING: u32 = 50;
const DOWN_PACING: u32 = 90;
const UP_PACING: u32 = 125;
const CWND_GAIN: u32 = 200;
const UP_CWND_GAIN: u32 = 225;
const PROBE_RTT_CWND_GAIN: u32 = 50;

/// A state of the machine.
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

    /// Whether it accelerates.
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

/// What is on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags(u16);

impl Flags {
    /// The pipe has been full once.
    const FULL_BW_REACHED: u16 = 1;
    /// It is full, as far as the present probe can tell.
    const FULL_BW_NOW: u16 = 1 << 1;
    /// Samples are of a probe for bandwidth.
    const PROBE_SAMPLE: u16 = 1 << 2;
    /// Samples of the last probe still arrive until the round ends.
    const PROBE_STOPPING: u16 = 1 << 3;
    /// The last probe lost too much.
    const TOO_HIGH: u16 = 1 << 4;
    /// The last probe was stopped early by precaution.
    const PRECAUTIONARY: u16 = 1 << 5;
    /// Something was lost in this round.
    const LOSS: u16 = 1 << 6;
    /// Recovery goes on, and has for a round.
    const RECOVERY: u16 = 1 << 7;
    const RECOVERY_ROUND: u16 = 1 << 8;
    /// Nothing was in flight for long before this.
    const IDLE: u16 = 1 << 9;
    /// `ProbeRTT`: little enough is in flight, and has been for a round.
    const PROBE_RTT_TIMED: u16 = 1 << 10;
    const PROBE_RTT_ROUND: u16 = 1 << 11;
    /// The pacing rate is known to be for this path.
    const PACED: u16 = 1 << 12;

    const fn has(self, flags: u16) -> bool {
        self.0 & flags != 0
    }

    fn set(&mut self, flags: u16) {
        self.0 |= flags;
    }

    fn clear(&mut self, flags: u16) {
        self.0 &= !flags;
    }
}

/// What a round trip has carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// The delivery rate, in units of [`RATE_UNIT`].
    rate: u32,
    /// Bytes delivered.
    delivered: u32,
    /// Bytes taken as lost.
    lost: u32,
    /// Losses found.
    losses: u8,
    /// Most bytes in flight while what was delivered was sent.
    tx_in_flight: u32,
    /// The application had less to send than it was allowed.
    limited: bool,
}

/// A round trip timed by packets: it begins with the sending of a segment and
/// ends when that is acknowledged.
///
/// Nothing is kept of each segment. What was in flight when the round began
/// must be delivered or lost before the first segment sent in it can be
/// acknowledged, so the round ends with the next byte after that, in and out
/// of recovery alike. Its delivery rate is the draft's sample of that segment:
/// what was delivered, over the longer of the round and the round before, in
/// which it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Bytes left in flight of those when the round began.
    left: u32,
    /// Bytes delivered since.
    delivered: u32,
    /// Bytes lost since.
    lost: u32,
    /// Bytes sent since, new and again.
    sent: u32,
    /// When it began, in microseconds.
    start: u32,
    /// Microseconds of the round before; 0: none.
    before: u32,
    /// Most bytes in flight in this round, and in the round before.
    in_flight: [u32; 2],
    /// Losses found in this round.
    losses: u8,
    flags: u8,
}

/// `BBR.extra_acked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Aggregation {
    /// Since when, in microseconds.
    start: u32,
    /// Bytes delivered since.
    delivered: u32,
    /// Most bytes beyond those expected, of this half of the filter and the
    /// one before.
    extra: [u32; 2],
    /// Rounds of this half.
    rounds: u8,
}

impl Aggregation {
    fn restart(&mut self, now: u32) {
        self.start = now;
        self.delivered = 0;
    }

    /// `delivered` bytes at an estimated rate of `bw`.
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

    /// A round is over; during Startup (`short`) only one is remembered.
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

/// The rate of `bytes` in `micros`.
fn rate_of(bytes: u32, micros: u32) -> u32 {
    let rate = u64::from(bytes) * (MICROS / RATE_UNIT) / u64::from(micros.max(1));
    rate.min(u64::from(u32::MAX - 1)) as u32
}

/// The bytes that `rate` makes in `micros`.
fn bytes_at(rate: u32, micros: u32) -> u64 {
    u64::from(rate) * RATE_UNIT * u64::from(micros.min(MAX_SPAN)) / MICROS
}

/// `percent` of `value`.
fn percent(value: u32, percent: u32) -> u32 {
    let part = u64::from(value) * u64::from(percent) / 100;
    part.min(u64::from(u32::MAX - 1)) as u32
}

/// More is lost of what was in flight than is tolerated.
fn loses_much(lost: u32, in_flight: u32) -> bool {
    u64::from(lost) * 100 > u64::from(in_flight) * u64::from(LOSS_THRESH)
}

/// The window was used up in this round.
const FULL: u8 = 1;
/// And in the round before.
const WAS_FULL: u8 = 2;
/// Less was sent in the round before than was allowed.
const WAS_LIMITED: u8 = 4;
/// This round counts as if less had been sent than was allowed.
const LIMITED: u8 = 8;

impl Round {
    /// `bytes` are sent, with a window of `cwnd`.
    #[inline(always)]
    fn on_send(&mut self, bytes: u32, cwnd: u32, event: &Event) {
        if event.in_flight == 0 {
            // Time without anything in flight is nobody's round trip.
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

    /// Bytes were `delivered` and `lost`. What the round has carried, when it
    /// is over; `pacing_rate` is at what rate it was allowed to send.
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

    /// A round begins before the last one is over, with `in_flight` bytes in
    /// flight.
    fn restart(&mut self, in_flight: u32, now: u32) {
        if self.flags & LIMITED != 0 {
            // Those are what its sample will be of.
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

    /// What is sent in this round says nothing of the path.
    fn mark_limited(&mut self) {
        self.flags |= LIMITED;
    }

    /// Whether the window was used up in this round or the one before.
    const fn window_is_used(&self) -> bool {
        self.flags & (FULL | WAS_FULL) != 0
    }

    /// Most bytes in flight while what is delivered now was sent.
    fn tx_in_flight(&self) -> u32 {
        if self.in_flight[1] == 0 {
            self.in_flight[0]
        } else {
            self.in_flight[1]
        }
    }

    /// Whether more is lost in this round than is tolerated.
    fn loses_much(&self) -> bool {
        loses_much(self.lost, self.tx_in_flight())
    }

    /// Bytes in flight that the path has carried: the most that there were, less
    /// what was lost. `None`: less was sent than was allowed, so it is not known.
    fn carried(&self) -> Option<u32> {
        let is_limited = self.flags & WAS_LIMITED != 0;
        (!is_limited).then(|| self.tx_in_flight().saturating_sub(self.lost))
    }

    /// No more than `limit` may have been in flight safely.
    fn limit_in_flight(&mut self, limit: u32) {
        self.in_flight = self.in_flight.map(|most| most.min(limit));
    }
}

#[cfg(test)]
#[path = "bbr_tests.rs"]
mod tests;
