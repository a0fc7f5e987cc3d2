//! One direction of a simulated link.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::frame::{Frame, Sending};
use crate::time::Instant;

/// What one pass of both event loops takes on virtual time, at least; with
/// it a handler that always has something due cannot hold time still.
pub(super) const PASS_TIME: Duration = Duration::from_micros(1);
/// Wire buffers kept for the next frame.
const MAX_SPARE: usize = 4096;

/// What frames meet in one direction, in this order: the sender's line, the
/// largest frame that gets through, a bottleneck with its queue, loss, delay,
/// reordering, duplication.
///
/// Probabilities are from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Bits of frames per second at which the sender's TX ring empties; 0:
    /// at once.
    pub line_rate: u64,
    /// Bytes of the longest frame that gets through, link header included;
    /// longer ones are lost without a word. 0: all get through.
    pub max_frame: usize,
    /// Bits of frames per second of the narrowest link on the way; 0:
    /// unlimited.
    pub rate: u64,
    /// Frames that may wait before that link, the one on it included; more
    /// are lost (drop-tail). Without a rate nothing waits.
    pub queue: usize,
    /// Bytes of frames that may wait before that link, the one on it
    /// included, beside the bound on their number; 0: any.
    pub queue_bytes: usize,
    /// What is done to frames that had to wait.
    pub mark: Option<Mark>,
    /// One-way delay, beside the times at the two rates.
    pub delay: Duration,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Each frame whose number (from 1) is a multiple of this is lost; 0:
    /// none.
    pub lose_every: u64,
    /// Losses that come together.
    pub bursts: Bursts,
    /// Probability that a frame is held up, and overtaken.
    pub reorder: f64,
    /// For how long it is held up.
    pub reorder_delay: Duration,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
}

impl Default for PathConfig {
    /// A perfect wire.
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

/// Losses in bursts: the model of Gilbert and Elliott, in time rather than in
/// frames, so that a sender that waits finds the path better. The path is
/// good or bad, good at first. Each time lasts from nothing to twice its mean,
/// any as likely as the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bursts {
    /// Mean length of a good time.
    pub good: Duration,
    /// Mean length of a bad time; zero: none.
    pub bad: Duration,
    /// Probability that a frame is lost in a bad time.
    pub loss: f64,
}

/// What an active queue does in place of losing frames. The link knows no
/// protocol, so whoever sets this says how a frame is marked.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Frames that waited longer than this are marked.
    pub above: Duration,
    /// Marks a frame. `false`: it cannot be marked, and is lost.
    pub with: fn(&mut [u8]) -> bool,
}

/// What has happened in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Frames that left the sender.
    pub sent: u64,
    /// Of these, lost because they were longer than
    /// [`PathConfig::max_frame`].
    pub too_long: u64,
    /// Of these, lost because the bottleneck's queue was full.
    pub overflowed: u64,
    /// Of these, marked by [`PathConfig::mark`].
    pub marked: u64,
    /// Of these, lost by [`PathConfig::loss`], [`PathConfig::lose_every`],
    /// [`PathConfig::bursts`], or for want of a mark.
    pub lost: u64,
    /// Of these, held up by [`PathConfig::reorder`].
    pub reordered: u64,
    /// Of these, doubled by [`PathConfig::duplicate`].
    pub duplicated: u64,
}

/// A direction's state. All times are known when a frame is flushed, so
/// nothing has to run at the moments themselves.
#[derive(Debug)]
pub(super) struct Path {
    config: PathConfig,
    rng: fastrand::Rng,
    counters: PathCounters,
    /// When the sender's line can take the next frame.
    line_free: Instant,
    /// Frames in the sender's TX ring that were flushed, and when each has
    /// left. In order of time.
    completions: VecDeque<(Instant, Sending)>,
    /// When each frame in the bottleneck's queue has left it, in order, and
    /// its length.
    departures: VecDeque<(Instant, usize)>,
    /// Bytes of frames in that queue.
    queued: usize,
    /// Of [`Bursts`]: in a bad time, and how long this one lasts.
    bad: bool,
    until: Instant,
    burst_rng: fastrand::Rng,
    /// Frames on the way, by time and order of sending.
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
            bad: true,
            until: now,
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

    pub(super) fn set_config(&mut self, config: &PathConfig) {
        self.config = *config;
    }

    /// Sends `packet` at `now` or when the line is free.
    pub(super) fn transmit(&mut self, now: Instant, packet: Sending) {
        let left = self.line_free.max(now) + serialisation(packet.len(), self.config.line_rate);
        self.line_free = left;
        self.counters.sent += 1;
        self.deliver(left, &packet);
        self.completions.push_back((left, packet));
    }

    /// Decides what `bytes`, which have left the sender, meet on the way.
    fn deliver(&mut self, left: Instant, bytes: &[u8]) {
        if self.config.max_frame != 0 && bytes.len() > self.config.max_frame {
            self.counters.too_long += 1;
            return;
        }
        let Some(departure) = self.queue(left, bytes.len()) else {
            self.counters.overflowed += 1;
            return;
        };
        // Every frame draws the same number of times, so that a change of
        // one probability leaves the fate of others alone.
        let lost = self.draw(self.config.loss);
        let reordered = self.draw(self.config.reorder);
        let duplicated = self.draw(self.config.duplicate);
        let in_burst = self.draw_burst(left);
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
            && departure.since(left) > mark.above + serialisation(bytes.len(), self.config.rate)
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
            let double = self.copy(&buffer);
            self.arrive(arrival, double);
        }
        self.arrive(arrival, buffer);
    }

    /// When a frame that reaches the bottleneck at `at` has left it; `None`
    /// when the queue is full.
    fn queue(&mut self, at: Instant, len: usize) -> Option<Instant> {
        if self.config.rate == 0 {
            return Some(at);
        }
        while let Some(&(left, len)) = self.departures.front()
            && left <= at
        {
            self.departures.pop_front();
            self.queued -= len;
        }
        let most = self.config.queue_bytes;
        if self.departures.len() >= self.config.queue || (most != 0 && self.queued + len > most) {
            return None;
        }
        let start = (self.departures.back()).map_or(at, |&(left, _)| left.max(at));
        let departure = start + serialisation(len, self.config.rate);
        self.departures.push_back((departure, len));
        self.queued += len;
        Some(departure)
    }

    /// Whether a frame is lost by [`Bursts`] at `at`.
    fn draw_burst(&mut self, at: Instant) -> bool {
        let Bursts { good, bad, loss } = self.config.bursts;
        if bad.is_zero() {
            return false;
        }
        while self.until <= at {
            self.bad = !self.bad;
            let mean = if self.bad { bad } else { good };
            let lasting = mean.mul_f64(2.0 * self.burst_rng.f64());
            // However short, so that this ends.
            self.until = self.until + lasting.max(PASS_TIME);
        }
        self.burst_rng.f64() < loss && self.bad
    }

    fn draw(&mut self, probability: f64) -> bool {
        self.rng.f64() < probability
    }

    /// A buffer with these bytes.
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

    /// The next frame that has arrived by `now`.
    pub(super) fn pop_arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        let entry = self.arrivals.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// Takes back the buffer of a frame that has arrived.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }

    /// Gives back the frames that have left the TX ring by `now`.
    pub(super) fn complete(&mut self, now: Instant) {
        while (self.completions.front()).is_some_and(|&(left, _)| left <= now) {
            self.completions.pop_front();
        }
    }

    /// Flushed frames that are still in the TX ring.
    pub(super) fn in_ring(&self) -> usize {
        self.completions.len()
    }

    /// When the next frame has left the TX ring.
    pub(super) fn next_completion(&self) -> Option<Instant> {
        self.completions.front().map(|&(left, _)| left)
    }

    /// When the receiver has the next frame to take: the origin of time when
    /// it has one already.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        if !self.ring.is_empty() {
            return Some(Instant::ZERO);
        }
        self.arrivals.first_key_value().map(|(&(at, _), _)| at)
    }
}

/// How long `bytes` take at `rate` bits per second, rounded down to the
/// nanosecond.
fn serialisation(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u64 * 8 * 1_000_000_000).checked_div(rate);
    Duration::from_nanos(nanos.unwrap_or(0))
}
