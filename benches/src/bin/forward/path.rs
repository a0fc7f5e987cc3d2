//! The bottleneck and the delay of one direction, and its frames in flight. The caller supplies the
//! time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nmio::Instant;
use serde::Serialize;

use crate::config::PathConfig;
use crate::impairment::Impairment;

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The frame will arrive.
    Passed,
    /// The frame was dropped, because its [`Impairment`] is a loss.
    Lost,
    /// The bottleneck's queue was full.
    Overflowed,
    /// The frame exceeded the path MTU.
    TooBig,
}

/// Numbers of frames by what happened to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PathCounters {
    /// Frames dropped because their impairment is a loss.
    pub(crate) lost: u64,
    /// Frames dropped because the queue was full.
    pub(crate) overflowed: u64,
    pub(crate) held: u64,
    pub(crate) duplicated: u64,
    pub(crate) marked: u64,
}

/// One direction of the network. The arrival time of a frame is known when the frame enters, so no
/// timers are needed.
#[derive(Debug)]
pub(crate) struct Path {
    config: PathConfig,
    counters: PathCounters,
    /// Departure times of the frames in the bottleneck's queue, in order.
    departures: VecDeque<Instant>,
    /// Time at which the bottleneck becomes free.
    free_at: Instant,
    /// Frames in flight by arrival time. The second part of the key is a serial number, which keeps
    /// frames with the same arrival time in order.
    arrivals: BTreeMap<(Instant, u64), Vec<u8>>,
    order: u64,
}

impl Path {
    /// Creates an empty path.
    pub(crate) fn new(config: &PathConfig) -> Self {
        Self {
            config: *config,
            counters: PathCounters::default(),
            departures: VecDeque::new(),
            free_at: Instant::ZERO,
            arrivals: BTreeMap::new(),
            order: 0,
        }
    }

    pub(crate) fn counters(&self) -> PathCounters {
        self.counters
    }

    /// Offers the path a frame that enters at `now`. Returns what happens to the frame.
    pub(crate) fn offer(&mut self, now: Instant, frame: &[u8], impairment: Impairment) -> Outcome {
        let Some(departure) = self.queue(now, frame.len()) else {
            self.counters.overflowed += 1;
            return Outcome::Overflowed;
        };
        if impairment.lost {
            self.counters.lost += 1;
            return Outcome::Lost;
        }
        let mut arrival = departure + Duration::from_micros(self.config.delay_us);
        if impairment.held {
            self.counters.held += 1;
            arrival = arrival + Duration::from_micros(self.config.hold_us);
        }
        let mut frame = frame.to_vec();
        if impairment.marked {
            let traffic_class = frame[15];
            testkit::mark_congestion(&mut frame);
            self.counters.marked += u64::from(frame[15] != traffic_class);
        }
        if impairment.duplicated {
            self.counters.duplicated += 1;
            self.arrivals.insert((arrival, self.order), frame.clone());
            self.order += 1;
        }
        self.arrivals.insert((arrival, self.order), frame);
        self.order += 1;
        Outcome::Passed
    }

    /// Queues a frame of `len` bytes that enters at `now`. Returns the time at which the frame
    /// leaves the bottleneck, or `None` if the queue is full.
    fn queue(&mut self, now: Instant, len: usize) -> Option<Instant> {
        let PathConfig { rate, queue, .. } = self.config;
        if rate == 0 {
            return Some(now);
        }
        while self.departures.front().is_some_and(|left| *left <= now) {
            self.departures.pop_front();
        }
        if queue != 0 && self.departures.len() >= queue {
            return None;
        }
        let nanos = len as u64 * 8 * 1_000_000_000 / rate;
        let departure = self.free_at.max(now) + Duration::from_nanos(nanos);
        self.free_at = departure;
        self.departures.push_back(departure);
        Some(departure)
    }

    /// Returns the time at which the next frame arrives.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.arrivals.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Removes the next frame that has arrived by `now`, and returns its arrival time and bytes.
    pub(crate) fn pop_arrived(&mut self, now: Instant) -> Option<(Instant, Vec<u8>)> {
        let entry = self.arrivals.first_entry()?;
        let (at, _) = *entry.key();
        (at <= now).then(|| (at, entry.remove()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn path(json: &str) -> Path {
        Path::new(&json.parse().unwrap())
    }

    /// Offers a frame of `len` bytes. Each byte is `number`.
    fn offer(path: &mut Path, micros: u64, (number, len): (u8, usize)) -> Outcome {
        path.offer(at(micros), &vec![number; len], Impairment::default())
    }

    /// Removes all frames. Returns their arrival times in µs and their first bytes.
    fn arrivals(path: &mut Path) -> Vec<(u64, u8)> {
        std::iter::from_fn(|| path.pop_arrived(Instant::FAR))
            .map(|(at, frame)| (at.as_micros(), frame[0]))
            .collect()
    }

    #[test]
    fn rate_and_delay_add_up_and_frames_queue() {
        // At 10 Mb/s, 1,000 bytes take 800 µs.
        let mut path = path(r#"{"rate": 10000000, "delay_us": 2000, "queue": 2}"#);
        for (number, micros, outcome) in [
            (1, 0, Outcome::Passed),
            (2, 0, Outcome::Passed),
            (3, 0, Outcome::Overflowed),
            // The first frame has left the queue, so the queue has room again.
            (4, 800, Outcome::Passed),
            // The link has been idle, so this frame need not wait.
            (5, 5_000, Outcome::Passed),
        ] {
            assert_eq!(offer(&mut path, micros, (number, 1_000)), outcome);
        }
        assert_eq!(path.next_arrival(), Some(at(2_800)));
        assert_eq!(path.pop_arrived(at(2_799)), None);
        let expected = [(2_800, 1), (3_600, 2), (4_400, 4), (7_800, 5)];
        assert_eq!(arrivals(&mut path), expected);
        assert_eq!(path.counters().overflowed, 1);
    }

    #[test]
    fn a_lost_frame_uses_the_bottleneck() {
        let mut path = path(r#"{"rate": 8000000}"#);
        let lost = Impairment {
            lost: true,
            ..Impairment::default()
        };
        assert_eq!(path.offer(at(0), &[1; 100], lost), Outcome::Lost);
        assert_eq!(offer(&mut path, 0, (2, 100)), Outcome::Passed);
        assert_eq!(arrivals(&mut path), [(200, 2)]);
    }

    #[test]
    fn a_held_frame_is_overtaken_and_a_duplicated_one_arrives_twice() {
        let mut path = path(r#"{"delay_us": 1000, "hold_us": 3000}"#);
        for (number, held, duplicated) in [(1, true, false), (2, false, true), (3, false, false)] {
            let impairment = Impairment {
                held,
                duplicated,
                ..Impairment::default()
            };
            path.offer(at(1_000 * u64::from(number)), &[number], impairment);
        }
        assert_eq!(
            arrivals(&mut path),
            [(3_000, 2), (3_000, 2), (4_000, 3), (5_000, 1)]
        );
        assert_eq!((path.counters().held, path.counters().duplicated), (1, 1));
    }
}
