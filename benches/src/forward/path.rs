//! A direction's bottleneck, delay and frames on the way, on any clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nmio::Instant;
use serde::Serialize;

use super::config::PathConfig;
use super::ecn;
use super::fate::Fate;

/// Frames on the way in one direction at a time, at most: a tenth of a
/// second at 10 Gb/s, 100 MB. A path with more is not the one that was asked
/// for, and the report says so.
pub const MAX_ON_THE_WAY: usize = 65_536;
/// Buffers kept for the next frame.
const MAX_SPARE: usize = 4_096;

/// What became of a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrives.
    Passed,
    /// It was lost by its [`Fate`].
    Lost,
    /// The bottleneck's queue was full.
    Overflowed,
    /// There was no memory for it: a limit of ours.
    Refused,
}

impl Outcome {
    /// Whether the frame arrives.
    pub fn passed(self) -> bool {
        self == Self::Passed
    }
}

/// What happened in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathCounters {
    /// Frames that were offered.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of these frames, lost by their fate.
    pub lost: u64,
    /// Of these, lost because the queue was full.
    pub overflowed: u64,
    /// Of these, held up.
    pub held: u64,
    /// Of these, doubled.
    pub doubled: u64,
    /// Of these, marked by ECN.
    pub marked: u64,
    /// Of these, lost for want of memory: the run is worth nothing.
    pub refused: u64,
    /// Most frames that waited before the bottleneck.
    pub most_queued: u64,
}

/// A direction's state. All times are known when a frame is offered, so
/// nothing has to run at the moments themselves.
#[derive(Debug)]
pub struct Path {
    config: PathConfig,
    counters: PathCounters,
    /// When each frame in the bottleneck's queue has left it, in order, and
    /// its bytes.
    departures: VecDeque<(Instant, usize)>,
    /// When the last frame left the bottleneck, or will.
    free_at: Instant,
    queued_bytes: usize,
    /// Frames on the way, by time and order.
    arrivals: BTreeMap<(Instant, u64), Vec<u8>>,
    order: u64,
    spare: Vec<Vec<u8>>,
}

impl Path {
    /// An empty path.
    pub fn new(config: &PathConfig) -> Self {
        Self {
            config: *config,
            counters: PathCounters::default(),
            departures: VecDeque::new(),
            free_at: Instant::ZERO,
            queued_bytes: 0,
            arrivals: BTreeMap::new(),
            order: 0,
            spare: Vec::new(),
        }
    }

    /// What it does.
    pub fn config(&self) -> &PathConfig {
        &self.config
    }

    /// What happened so far.
    pub fn counters(&self) -> PathCounters {
        self.counters
    }

    /// Sends a frame on its way at `now`, to meet `fate` behind the
    /// bottleneck.
    pub fn offer(&mut self, now: Instant, frame: &[u8], fate: Fate) -> Outcome {
        self.counters.frames += 1;
        self.counters.bytes += frame.len() as u64;
        let Some(departure) = self.queue(now, frame.len()) else {
            self.counters.overflowed += 1;
            return Outcome::Overflowed;
        };
        if fate.lost {
            self.counters.lost += 1;
            return Outcome::Lost;
        }
        if self.arrivals.len() >= MAX_ON_THE_WAY - 1 {
            self.counters.refused += 1;
            return Outcome::Refused;
        }
        let mut arrival = departure + self.config.delay;
        if fate.held {
            self.counters.held += 1;
            arrival = arrival + self.config.hold;
        }
        self.arrive(arrival, frame, fate.marked);
        if fate.doubled {
            self.counters.doubled += 1;
            self.arrive(arrival, frame, fate.marked);
        }
        Outcome::Passed
    }

    /// When a frame that reaches the bottleneck at `now` has left it; `None`
    /// when the queue is full.
    fn queue(&mut self, now: Instant, len: usize) -> Option<Instant> {
        if self.config.rate == 0 {
            return Some(now);
        }
        while let Some(&(left, bytes)) = self.departures.front()
            && left <= now
        {
            self.departures.pop_front();
            self.queued_bytes -= bytes;
        }
        let too_many = self.departures.len() >= self.config.queue_frames;
        let bound = self.config.queue_bytes;
        let too_much = bound != 0 && self.queued_bytes + len > bound;
        // A frame larger than the bound passes an empty queue: it is on the
        // link at once.
        if too_many || (too_much && !self.departures.is_empty()) {
            return None;
        }
        let departure = self.free_at.max(now) + serialisation(len, self.config.rate);
        self.free_at = departure;
        self.departures.push_back((departure, len));
        self.queued_bytes += len;
        let queued = self.departures.len() as u64;
        self.counters.most_queued = self.counters.most_queued.max(queued);
        Some(departure)
    }

    fn arrive(&mut self, at: Instant, frame: &[u8], marked: bool) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        if marked {
            self.counters.marked += u64::from(ecn::mark(&mut buffer));
        }
        self.order += 1;
        self.arrivals.insert((at, self.order), buffer);
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.arrivals.first_key_value().map(|(&(at, _), _)| at)
    }

    /// The next frame that has arrived by `now`, and when it did.
    pub fn pop_arrived(&mut self, now: Instant) -> Option<(Instant, Vec<u8>)> {
        let entry = self.arrivals.first_entry()?;
        let (at, _) = *entry.key();
        (at <= now).then(|| (at, entry.remove()))
    }

    /// Takes back the buffer of a frame that has arrived.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }
}

/// How long `bytes` take at `rate` bits per second, rounded down to the
/// nanosecond.
fn serialisation(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u64 * 8 * 1_000_000_000).checked_div(rate);
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Fate = Fate {
        lost: false,
        held: false,
        doubled: false,
        marked: false,
    };

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn path(words: &str) -> Path {
        Path::new(&words.parse().unwrap())
    }

    /// When frames arrive, in µs, and their first bytes.
    fn arrivals(path: &mut Path) -> Vec<(u64, u8)> {
        std::iter::from_fn(|| path.pop_arrived(Instant::FAR))
            .map(|(at, frame)| (at.as_micros(), frame[0]))
            .collect()
    }

    #[test]
    fn a_perfect_wire_takes_no_time() {
        let mut path = path("");
        assert_eq!(path.offer(at(5), &[1], ON), Outcome::Passed);
        assert_eq!(path.next_arrival(), Some(at(5)));
        assert_eq!(path.pop_arrived(at(4)), None);
        assert_eq!(path.pop_arrived(at(5)), Some((at(5), vec![1])));
    }

    #[test]
    fn rate_and_delay_add_up_and_frames_queue() {
        // 1,000 bytes take 800 µs.
        let mut path = path("rate=10M,delay=2ms,queue=2");
        let frame = |n| vec![n; 1_000];
        assert_eq!(path.offer(at(0), &frame(1), ON), Outcome::Passed);
        assert_eq!(path.offer(at(0), &frame(2), ON), Outcome::Passed);
        assert_eq!(path.offer(at(0), &frame(3), ON), Outcome::Overflowed);
        // The first has left.
        assert_eq!(path.offer(at(800), &frame(4), ON), Outcome::Passed);
        // The line has been idle meanwhile.
        assert_eq!(path.offer(at(5_000), &frame(5), ON), Outcome::Passed);
        let expected = [(2_800, 1), (3_600, 2), (4_400, 4), (7_800, 5)];
        assert_eq!(arrivals(&mut path), expected);
        assert_eq!(path.counters().overflowed, 1);
        assert_eq!(path.counters().most_queued, 2);
    }

    #[test]
    fn a_queue_of_bytes_takes_many_small_frames() {
        let mut path = path("rate=10M,queue=2000B");
        assert_eq!(path.offer(at(0), &[0; 1_500], ON), Outcome::Passed);
        assert_eq!(path.offer(at(0), &[0; 1_500], ON), Outcome::Overflowed);
        for _ in 0..5 {
            assert_eq!(path.offer(at(0), &[0; 100], ON), Outcome::Passed);
        }
        assert_eq!(path.offer(at(0), &[0; 100], ON), Outcome::Overflowed);
        // All have left: one larger than the whole queue passes alone.
        assert_eq!(path.offer(at(10_000), &[0; 4_000], ON), Outcome::Passed);
    }

    #[test]
    fn a_lost_frame_has_used_the_line() {
        let mut path = path("rate=8M");
        let lost = Fate { lost: true, ..ON };
        assert_eq!(path.offer(at(0), &[1; 100], lost), Outcome::Lost);
        assert_eq!(path.offer(at(0), &[2; 100], ON), Outcome::Passed);
        assert_eq!(arrivals(&mut path), [(200, 2)]);
    }

    #[test]
    fn a_held_frame_is_overtaken_and_a_doubled_one_comes_twice() {
        let mut path = path("delay=1ms,hold=3ms");
        path.offer(at(0), &[1], Fate { held: true, ..ON });
        let doubled = Fate {
            doubled: true,
            ..ON
        };
        path.offer(at(1_000), &[2], doubled);
        path.offer(at(5_000), &[3], ON);
        let expected = [(2_000, 2), (2_000, 2), (4_000, 1), (6_000, 3)];
        assert_eq!(arrivals(&mut path), expected);
        assert_eq!((path.counters().held, path.counters().doubled), (1, 1));
    }

    #[test]
    fn frames_on_the_way_are_bounded() {
        let mut path = path("delay=1s");
        for _ in 0..MAX_ON_THE_WAY {
            path.offer(at(0), &[0], ON);
        }
        assert_eq!(path.offer(at(0), &[0], ON), Outcome::Refused);
        assert!(path.arrivals.len() <= MAX_ON_THE_WAY);
        let (_, buffer) = path.pop_arrived(Instant::FAR).unwrap();
        path.recycle(buffer);
        assert_eq!(path.spare.len(), 1);
    }
}
