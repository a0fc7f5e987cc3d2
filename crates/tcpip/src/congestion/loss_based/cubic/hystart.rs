//! `HyStart++` (RFC 9406): leaves slow start before the window overflows a queue.

use super::{HyStart, SlowStartStep};
use crate::congestion::Event;

/// Number of RTT samples per round that are evaluated (RFC 9406, section 4.3).
const N_RTT_SAMPLE: u8 = 8;
/// Lower bound of the delay increase that indicates a queue, in microseconds (RFC 9406, section
/// 4.3).
const MIN_RTT_THRESH: u32 = 4_000;
/// Upper bound of the delay increase that indicates a queue, in microseconds.
const MAX_RTT_THRESH: u32 = 16_000;
/// Divisor of the RTT: between the two bounds, a delay increase of RTT / 8 indicates a queue.
const MIN_RTT_DIVISOR: u32 = 8;
/// Shift that reduces the growth during conservative slow start to a quarter of that in slow start.
///
/// In the round in which delay begins conservative slow start, the window does not grow further.
/// The first eight ACKs of that round have already opened the window. RFC 9406 lets the window grow
/// at a quarter of the rate in that round too. Several connections that detect a queue
/// simultaneously could then fill the queue before they leave slow start.
const CSS_GROWTH_SHIFT: u8 = 2;
/// Number of rounds of conservative slow start, including the one in which it begins.
const CSS_ROUNDS: u8 = 5;
/// Maximum number of segments by which an ACK opens the window (RFC 9406, section 4.3).
const LIMIT: u32 = 8;
/// Maximum number of segments by which an ACK opens the window if all acknowledged segments have
/// just arrived at the peer. The limit is 64 KB in segments of 1,460 bytes.
///
/// Receive offload aggregates up to 64 KB of segments at the receiver, which sends one ACK for all
/// of them. That ACK releases a burst of the same size anyway. A limit of eight segments would only
/// make slow start slower for these receivers.
const AGGREGATE_LIMIT: u32 = 45;

/// Returns the growth in bytes for an ACK of more than [`LIMIT`] segments. The ACK may also cover
/// data that arrived out of order long before. Therefore only bytes that were still in flight
/// before the ACK may raise the growth above [`LIMIT`].
#[cold]
fn aggregated_growth(acked: u32, event: Event) -> u32 {
    let left = event.nxt.wrapping_sub(event.una);
    let arrived = event.in_flight.saturating_sub(left);
    acked
        .min(AGGREGATE_LIMIT.saturating_mul(event.mss))
        .min(arrived.max(LIMIT.saturating_mul(event.mss)))
}

/// Shift that converts microseconds to ticks. A tick is 64 µs, so the 16-bit clock wraps around
/// after 4 s.
const TICK_SHIFT: u32 = 6;
/// Maximum gap between two ACKs of a train, in microseconds. At 10 Mb/s, delayed ACKs for two
/// segments each arrive every 2.4 ms and must still form a train.
const TRAIN_SPACING: u32 = 3_000;
/// Divisor of the RTT: on long paths, the maximum gap between two ACKs of a train is RTT / 32.
const TRAIN_SPACINGS: u32 = 32;
/// Minimum RTT in microseconds for which ACK trains are evaluated. On shorter paths, the gaps
/// between ACKs come from pauses in the hosts, not from the path.
const TRAIN_MIN_RTT: u32 = 1_000;
/// Minimum number of segments in flight for which ACK trains are evaluated. With fewer segments, a
/// train says nothing about the path.
const TRAIN_SEGMENTS: u32 = 16;

/// Shortest round-trip time that can be stored, in ticks. As `css_baseline` it means that a long
/// ACK train, not delay, began conservative slow start.
const SHORTEST: u16 = 1;

impl Default for HyStart {
    fn default() -> Self {
        Self {
            round_end: 0,
            last_min: 0,
            min: u32::MAX,
            css_baseline: 0,
            // Only one sample is missing, so the first RTT sample starts the first round.
            samples: N_RTT_SAMPLE - 1,
            css_rounds: 0,
            round_start: 0,
            train_end: 0,
        }
    }
}

impl HyStart {
    /// Returns the growth of the window in slow start, in bytes, for an ACK of `acked` bytes.
    #[inline(always)]
    pub(super) fn slow_start(acked: u32, event: &Event) -> u32 {
        if acked > LIMIT.wrapping_mul(event.mss) {
            aggregated_growth(acked, *event)
        } else {
            acked
        }
    }

    /// Processes an ACK of `acked` bytes.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, acked: u32, event: &Event) -> SlowStartStep {
        let mut exit = false;
        let mut round_over = false;
        // The round is over if this ACK covers data sent in response to the ACK that began the
        // round.
        if event.una.wrapping_sub(self.round_end).cast_signed() > 0 && self.last_min != 0 {
            exit = self.begin_round(*event);
            round_over = true;
        }
        if event.in_flight >= TRAIN_SEGMENTS * event.mss && self.is_long_train(event) {
            exit |= self.begin_last_round();
        }
        let growth = Self::slow_start(acked, event);
        let growth = match self.css_rounds {
            0 => growth,
            1 => 0,
            _ => growth >> CSS_GROWTH_SHIFT,
        };
        if event.rtt != 0 {
            self.min = self.min.min(event.rtt);
            if self.samples < N_RTT_SAMPLE {
                self.samples += 1;
                if self.samples == N_RTT_SAMPLE {
                    exit |= self.check_delay(*event);
                }
            }
        }
        SlowStartStep {
            growth,
            round_over: round_over || exit,
            exit,
        }
    }

    /// Returns true if ACKs have been arriving for more than half a round trip with no long gap
    /// between them.
    ///
    /// In slow start, pacing alone makes a train of half a round trip. Therefore a train of paced
    /// data must be longer than a whole round trip, as in Linux.
    ///
    /// Such a train means that the bottleneck was busy for half a round trip. Doubling the window
    /// once more would fill the path and its queue. RFC 9406 omits this test. `HyStart` (Ha and
    /// Rhee, "Taming the elephants", 2011) and Linux include the test, because it detects the limit
    /// before a queue grows.
    ///
    /// `HyStart` and Linux leave slow start immediately, with a window of little more than the
    /// path's capacity. The first loss then leaves a third of the capacity unused. This code
    /// instead lets the window grow at a quarter of the rate until the round ends.
    #[inline]
    fn is_long_train(&mut self, event: &Event) -> bool {
        let now = ticks(event.now);
        // If there are no RTT samples, for example during reordering, the smoothed RTT serves as
        // the minimum.
        let shortest = self.last_min.min(self.min).min(event.srtt);
        let pause = u32::from(now.wrapping_sub(self.train_end)) << TICK_SHIFT;
        if pause > TRAIN_SPACING.max(shortest / TRAIN_SPACINGS) {
            return false;
        }
        self.train_end = now;
        let train = u32::from(now.wrapping_sub(self.round_start)) << TICK_SHIFT;
        let longest = if event.is_paced {
            shortest
        } else {
            shortest / 2
        };
        shortest >= TRAIN_MIN_RTT && train > longest
    }

    /// Enters the last round of conservative slow start after a long train. Later RTT samples
    /// cannot revert this step, because jitter does not cause a long train.
    ///
    /// Returns true if conservative slow start had already begun because of delay. Slow start then
    /// ends immediately.
    #[cold]
    fn begin_last_round(&mut self) -> bool {
        if self.css_baseline == 0 {
            self.css_baseline = SHORTEST;
            self.css_rounds = CSS_ROUNDS;
            self.take_samples();
        }
        self.css_baseline != SHORTEST
    }

    /// Begins a round and an ACK train.
    fn mark_round(&mut self, event: &Event) {
        self.round_end = event.nxt;
        self.round_start = ticks(event.now);
        self.train_end = self.round_start;
    }

    /// Ends a round and begins the next. Returns true if the ended round was the last one of
    /// conservative slow start.
    #[cold]
    fn begin_round(&mut self, event: Event) -> bool {
        self.mark_round(&event);
        self.take_samples();
        if self.css_baseline == 0 {
            return false;
        }
        if self.css_rounds == CSS_ROUNDS {
            return true;
        }
        self.css_rounds += 1;
        false
    }

    /// Evaluates eight RTT samples. Slow start evaluates only the first eight of each round.
    /// Conservative slow start evaluates all samples, eight at a time. Returns true if slow start
    /// must end immediately.
    ///
    /// The first samples of a round reveal a queue best, because the queue drains during the rest
    /// of the burst.
    #[cold]
    fn check_delay(&mut self, event: Event) -> bool {
        if self.last_min == 0 {
            // The first round has not begun yet, so it begins with this ACK.
            self.last_min = u32::MAX;
            self.mark_round(&event);
            self.samples = 1;
            return false;
        }
        if self.min < self.baseline() {
            // The delay is below the baseline again, so its increase was jitter. Slow start
            // continues, unless the check below finds that the delay is still too far above that of
            // earlier rounds.
            self.css_baseline = 0;
            self.css_rounds = 0;
        }
        let more = self.min.saturating_sub(self.last_min);
        let threshold = threshold(self.last_min);
        if self.css_baseline == 0 && more >= threshold {
            self.css_baseline = ticks_of(self.min);
            self.css_rounds = 1;
        }
        if self.css_baseline != 0 {
            self.take_samples();
        }
        // An increase of twice the threshold is not jitter, so slow start ends immediately. The
        // remaining rounds that RFC 9406 prescribes would only fill the queue.
        more >= 2 * threshold
    }

    /// Begins to collect eight more RTT samples, and includes the minimum of the last ones in
    /// `last_min`.
    fn take_samples(&mut self) {
        self.last_min = self.last_min.min(self.min);
        self.min = u32::MAX;
        self.samples = 0;
    }

    /// Returns the baseline RTT in microseconds, or 0 outside conservative slow start.
    #[inline(always)]
    fn baseline(&self) -> u32 {
        u32::from(self.css_baseline) << TICK_SHIFT
    }
}

/// Converts a time in microseconds to ticks. The clock wraps around.
#[inline(always)]
const fn ticks(micros: u32) -> u16 {
    (micros >> TICK_SHIFT) as u16
}

/// Converts an RTT in microseconds to ticks, and limits the result to 1 to 65,535.
const fn ticks_of(rtt: u32) -> u16 {
    match rtt >> TICK_SHIFT {
        0 => SHORTEST,
        ticks if ticks < u16::MAX as u32 => ticks as u16,
        _ => u16::MAX,
    }
}

/// Returns the minimum delay increase over `rtt` that indicates a queue, in microseconds (RFC 9406,
/// section 4.3).
fn threshold(rtt: u32) -> u32 {
    (rtt / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
}

#[cfg(test)]
#[path = "hystart_tests.rs"]
mod tests;
