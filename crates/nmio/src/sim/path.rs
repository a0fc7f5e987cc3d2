//! One direction of a simulated link.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::frame::{Frame, Sending};
use crate::time::Instant;

/// Minimum virtual time of one pass of both event loops. Without this minimum, time would never
/// advance if a handler's timer had always expired already.
pub(super) const PASS_TIME: Duration = Duration::from_micros(1);
/// Maximum number of wire buffers kept for reuse.
const MAX_SPARE: usize = 4096;

/// Configuration of one direction.
///
/// Each frame passes these stages in order: the sender's line, the length limit, a bottleneck with
/// a queue, loss, delay, reordering, marking and duplication.
///
/// Probabilities range from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Rate at which the sender's TX ring empties, in bits per second. 0: the ring empties
    /// immediately.
    pub line_rate: u64,
    /// Maximum frame length in bytes, including the link header. Longer frames are silently
    /// dropped. 0: no limit.
    pub max_frame: usize,
    /// Rate of the bottleneck, in bits per second. 0: unlimited.
    pub rate: u64,
    /// Maximum number of frames in the bottleneck's queue, including the one being sent. Frames
    /// that arrive at a full queue are dropped (drop-tail). If `rate` is 0, there is no queue.
    pub queue: usize,
    /// Maximum number of bytes in the bottleneck's queue, in addition to the limit on frames. 0: no
    /// limit.
    pub queue_bytes: usize,
    /// How to mark frames that waited long in the bottleneck's queue. `None`: no marking.
    pub mark: Option<Mark>,
    /// One-way delay, in addition to the serialisation times at `line_rate` and `rate`.
    pub delay: Duration,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// If this value is n, every n-th frame is lost. 0: no frame is lost for this reason.
    pub lose_every: u64,
    /// Losses in bursts, in addition to other losses.
    pub bursts: Bursts,
    /// Probability that a frame gets an extra delay, so that later frames may overtake it.
    pub reorder: f64,
    /// Extra delay of a reordered frame.
    pub reorder_delay: Duration,
    /// Probability that a frame is duplicated.
    pub duplicate: f64,
}

impl Default for PathConfig {
    /// A path without delay, limits or losses.
    fn default() -> Self {
        Self {
            line_rate: 0,
            max_frame: 0,
            rate: 0,
            queue: 1000,
            queue_bytes: 0,
            mark: None,
            delay: Duration::ZERO,
            loss: 0.0,
            lose_every: 0,
            bursts: Bursts::default(),
            reorder: 0.0,
            reorder_delay: Duration::ZERO,
            duplicate: 0.0,
        }
    }
}

/// Losses in bursts: a Gilbert-Elliott model whose periods are measured in time instead of frames.
/// So a burst ends even if the sender sends nothing.
///
/// The path alternates between good and bad periods, and starts with a good one. The length of a
/// period is uniformly distributed from zero to twice its mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bursts {
    /// Mean length of a good period.
    pub good: Duration,
    /// Mean length of a bad period. Zero: no bad periods.
    pub bad: Duration,
    /// Probability that a frame is lost in a bad period.
    pub loss: f64,
}

/// Active queue management that marks frames instead of dropping them.
///
/// The link does not know the protocol, so the caller provides the function that marks a frame.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// A frame is marked if it has waited in the queue for longer than this.
    pub above: Duration,
    /// Function that marks a frame. It returns `false` if the frame cannot be marked, and the frame
    /// is then lost.
    pub with: fn(&mut [u8]) -> bool,
}

/// Counters of one direction. Each counter except `sent` counts a subset of the sent frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Number of frames that left the sender.
    pub sent: u64,
    /// Number of frames lost because they were longer than [`PathConfig::max_frame`].
    pub too_long: u64,
    /// Number of frames dropped because the bottleneck's queue was full.
    pub overflowed: u64,
    /// Number of frames marked by [`PathConfig::mark`].
    pub marked: u64,
    /// Number of frames lost by [`PathConfig::loss`], [`PathConfig::lose_every`] or
    /// [`PathConfig::bursts`], or because they could not be marked.
    pub lost: u64,
    /// Number of frames delayed by [`PathConfig::reorder`].
    pub reordered: u64,
    /// Number of frames duplicated by [`PathConfig::duplicate`].
    pub duplicated: u64,
}

/// State of one direction.
///
/// All event times of a frame are computed when the frame is flushed, so no code has to run between
/// events.
#[derive(Debug)]
pub(super) struct Path {
    config: PathConfig,
    rng: fastrand::Rng,
    counters: PathCounters,
    /// Earliest time at which the sender's line can begin to transmit another frame.
    line_free: Instant,
    /// Flushed frames in the sender's TX ring, each with the time at which it leaves the ring.
    /// Sorted by this time.
    completions: VecDeque<(Instant, Sending)>,
    /// Departure time and length in bytes of each frame in the bottleneck's queue, earliest first.
    departures: VecDeque<(Instant, usize)>,
    /// Total number of bytes in the bottleneck's queue.
    queued: usize,
    /// Whether the current period of [`Bursts`] is bad. `until` is the time at which the period
    /// ends.
    in_bad_period: bool,
    period_end: Instant,
    burst_rng: fastrand::Rng,
    /// Frames in flight, sorted by arrival time and then by sending order.
    arrivals: BTreeMap<(Instant, u64), Vec<u8>>,
    sequence: u64,
    spare: Vec<Vec<u8>>,
    /// The receiver's RX ring.
    pub(super) ring: VecDeque<Frame>,
}

impl Path {
    pub(super) fn new(config: &PathConfig, mut rng: fastrand::Rng, now: Instant) -> Self {
        Self {
            config: *config,
            counters: PathCounters::default(),
            line_free: now,
            completions: VecDeque::new(),
            departures: VecDeque::new(),
            queued: 0,
            in_bad_period: true,
            period_end: now,
            burst_rng: rng.fork(),
            rng,
            arrivals: BTreeMap::new(),
            sequence: 0,
            spare: Vec::new(),
            ring: VecDeque::new(),
        }
    }

    pub(super) fn counters(&self) -> PathCounters {
        self.counters
    }

    /// Sends `packet` at `now`, or as soon as the line is free.
    pub(super) fn transmit(&mut self, now: Instant, packet: Sending) {
        let sent_at = self.line_free.max(now) + serialisation(packet.len(), self.config.line_rate);
        self.line_free = sent_at;
        self.counters.sent += 1;
        self.deliver(sent_at, &packet);
        self.completions.push_back((sent_at, packet));
    }

    /// Sends a frame that left the sender at `sent_at` through the other stages of the path.
    fn deliver(&mut self, sent_at: Instant, bytes: &[u8]) {
        if self.config.max_frame != 0 && bytes.len() > self.config.max_frame {
            self.counters.too_long += 1;
            return;
        }
        let Some(departure) = self.queue(sent_at, bytes.len()) else {
            self.counters.overflowed += 1;
            return;
        };
        // Draw the same number of random values for every frame that passes the bottleneck, so that
        // changing one probability does not affect other events.
        let lost = self.draw(self.config.loss);
        let reordered = self.draw(self.config.reorder);
        let duplicated = self.draw(self.config.duplicate);
        let in_burst = self.draw_burst(sent_at);
        let every = self.config.lose_every;
        if lost || in_burst || (every != 0 && self.counters.sent.is_multiple_of(every)) {
            self.counters.lost += 1;
            return;
        }
        let mut arrival = departure + self.config.delay;
        if reordered {
            self.counters.reordered += 1;
            arrival = arrival + self.config.reorder_delay;
        }
        let mut buffer = self.copy(bytes);
        if let Some(mark) = self.config.mark
            && departure.since(sent_at) > mark.above + serialisation(bytes.len(), self.config.rate)
        {
            if !(mark.with)(&mut buffer) {
                self.counters.lost += 1;
                self.recycle(buffer);
                return;
            }
            self.counters.marked += 1;
        }
        if duplicated {
            self.counters.duplicated += 1;
            let copy = self.copy(&buffer);
            self.arrive(arrival, copy);
        }
        self.arrive(arrival, buffer);
    }

    /// Queues a frame that reaches the bottleneck at `at`. Returns the time at which the frame
    /// leaves the bottleneck, or `None` if the queue is full.
    fn queue(&mut self, at: Instant, len: usize) -> Option<Instant> {
        if self.config.rate == 0 {
            return Some(at);
        }
        while let Some(&(departure, len)) = self.departures.front()
            && departure <= at
        {
            self.departures.pop_front();
            self.queued -= len;
        }
        let max_bytes = self.config.queue_bytes;
        if self.departures.len() >= self.config.queue
            || (max_bytes != 0 && self.queued + len > max_bytes)
        {
            return None;
        }
        let start = (self.departures.back()).map_or(at, |&(departure, _)| departure.max(at));
        let departure = start + serialisation(len, self.config.rate);
        self.departures.push_back((departure, len));
        self.queued += len;
        Some(departure)
    }

    /// Returns true if a frame at time `at` is lost because of [`Bursts`].
    fn draw_burst(&mut self, at: Instant) -> bool {
        let Bursts { good, bad, loss } = self.config.bursts;
        if bad.is_zero() {
            return false;
        }
        while self.period_end <= at {
            self.in_bad_period = !self.in_bad_period;
            let mean = if self.in_bad_period { bad } else { good };
            let length = mean.mul_f64(2.0 * self.burst_rng.f64());
            // Periods have a minimum length, so that this loop ends.
            self.period_end = self.period_end + length.max(PASS_TIME);
        }
        self.burst_rng.f64() < loss && self.in_bad_period
    }

    fn draw(&mut self, probability: f64) -> bool {
        self.rng.f64() < probability
    }

    /// Returns a copy of `bytes`, in a recycled buffer if possible.
    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    fn arrive(&mut self, at: Instant, buffer: Vec<u8>) {
        self.sequence += 1;
        self.arrivals.insert((at, self.sequence), buffer);
    }

    /// Removes and returns the next frame that has arrived by `now`.
    pub(super) fn pop_arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        let entry = self.arrivals.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// Keeps a frame's buffer for reuse, unless [`MAX_SPARE`] buffers are kept already.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }

    /// Completes the frames that have left the TX ring by `now`.
    pub(super) fn complete(&mut self, now: Instant) {
        while (self.completions.front()).is_some_and(|&(sent_at, _)| sent_at <= now) {
            self.completions.pop_front();
        }
    }

    /// Returns the number of flushed frames that are still in the TX ring.
    pub(super) fn in_ring(&self) -> usize {
        self.completions.len()
    }

    /// Returns the time at which the next frame leaves the TX ring.
    pub(super) fn next_completion(&self) -> Option<Instant> {
        self.completions.front().map(|&(sent_at, _)| sent_at)
    }

    /// Returns the time at which the next frame arrives, or [`Instant::ZERO`] if a frame is already
    /// in the receiver's ring.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        if !self.ring.is_empty() {
            return Some(Instant::ZERO);
        }
        self.arrivals.first_key_value().map(|(&(at, _), _)| at)
    }
}

/// Returns how long it takes to send `bytes` bytes at `rate` bits per second, rounded down to
/// nanoseconds. The result is zero if `rate` is 0.
fn serialisation(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u64 * 8 * 1_000_000_000).checked_div(rate);
    Duration::from_nanos(nanos.unwrap_or(0))
}
