//! Measures a run of a generator: rate, latencies and errors.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use nmio::Instant;
use serde::Serialize;

/// Number of significant decimal digits of recorded latencies.
const LATENCY_DIGITS: u8 = 2;
/// Longest recorded latency in ns: one minute. Longer latencies are recorded as this value.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Results of a generator, printed as one JSON object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Name of the generator.
    pub generator: String,
    /// Requested rate of an open loop in requests per second; 0 for a closed loop.
    pub asked_rate: f64,
    /// Length of the measured phase in seconds.
    pub seconds: f64,
    /// Number of correct replies in the measured phase. A SYN flood counts its sent SYNs instead.
    pub completed: u64,
    /// Correct replies per second.
    pub rate: f64,
    /// Number of bytes per second in correct replies. Only UDP messages or HTTP bodies count.
    pub bytes_per_second: f64,
    /// Latency in µs: p50, p99, p99.9 and maximum.
    pub latency_us: [f64; 4],
    /// Numbers of errors in the measured phase, by kind. The HTTP generator adds the idle
    /// connections that failed at any time.
    pub errors: BTreeMap<&'static str, u64>,
    /// Number of correct replies per second on a single connection: 10th percentile and median over
    /// all connections. Only the HTTP generator reports it.
    pub connection_rate: Option<[f64; 2]>,
    /// Highest p50 of a single connection's latencies in µs. Only the HTTP generator reports it, in
    /// an open loop with at most 1,024 connections.
    pub slowest_p50_us: Option<f64>,
    /// Field by which the server recognizes unchanged files, if the requests ask for changes.
    pub validator: Option<&'static str>,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Caches, tables and congestion windows fill. The meter counts nothing yet.
    WarmUp,
    /// The meter counts replies and errors.
    Measuring,
    /// The run is over.
    Finished,
}

/// Creates a histogram of latencies in ns.
pub(super) fn histogram<T: Counter>() -> Histogram<T> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, LATENCY_DIGITS).expect("the bounds are in range")
}

/// Counts replies, latencies and errors of the measured phase.
#[derive(Debug)]
pub struct Meter {
    warm_up: Duration,
    measured: Duration,
    phase: Phase,
    began: Instant,
    ended: Instant,
    completed: u64,
    bytes: u64,
    latencies: Histogram<u64>,
    errors: BTreeMap<&'static str, u64>,
}

impl Meter {
    /// Creates a meter for a run that measures for `measured` after `warm_up`.
    pub fn new(warm_up: Duration, measured: Duration) -> Self {
        Self {
            warm_up,
            measured,
            phase: Phase::WarmUp,
            began: Instant::FAR,
            ended: Instant::FAR,
            completed: 0,
            bytes: 0,
            latencies: histogram(),
            errors: BTreeMap::new(),
        }
    }

    /// Returns the current phase.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Enters the next phase and returns true if the current phase is over at `now`. The first call
    /// starts the warm-up.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> bool {
        if self.began == Instant::FAR {
            self.began = now;
        }
        let next = match self.phase {
            Phase::WarmUp if now.since(self.began) >= self.warm_up => Phase::Measuring,
            Phase::Measuring if now.since(self.began) >= self.measured => Phase::Finished,
            _ => return false,
        };
        if next == Phase::Measuring {
            self.began = now;
        } else {
            self.ended = now;
        }
        self.phase = next;
        true
    }

    /// Returns the time at which the current phase ends.
    pub fn phase_end(&self) -> Instant {
        let length = match self.phase {
            Phase::WarmUp => self.warm_up,
            Phase::Measuring | Phase::Finished => self.measured,
        };
        self.began + length
    }

    /// Counts a correct reply of `bytes` bytes. `requested_at` is the time at which the request was
    /// sent (closed loop) or due (open loop).
    #[inline(always)]
    pub fn complete(&mut self, requested_at: Instant, now: Instant, bytes: usize) {
        if self.phase == Phase::Measuring {
            self.completed += 1;
            self.bytes += bytes as u64;
            let nanos = now.since(requested_at).as_nanos() as u64;
            self.latencies.saturating_record(nanos.max(1));
        }
    }

    /// Counts an error of this kind.
    #[cold]
    pub fn error(&mut self, kind: &'static str) {
        if self.phase == Phase::Measuring {
            *self.errors.entry(kind).or_default() += 1;
        }
    }

    /// Returns the results. `asked_rate` is 0 for a closed loop.
    pub fn report(&self, generator: &str, asked_rate: f64) -> Report {
        let seconds = self.ended.since(self.began).as_secs_f64();
        let per_second = |n: u64| {
            if seconds > 0.0 {
                n as f64 / seconds
            } else {
                0.0
            }
        };
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        Report {
            generator: generator.to_owned(),
            asked_rate,
            seconds,
            completed: self.completed,
            rate: per_second(self.completed),
            bytes_per_second: per_second(self.bytes),
            latency_us: [
                micros(self.latencies.value_at_quantile(0.5)),
                micros(self.latencies.value_at_quantile(0.99)),
                micros(self.latencies.value_at_quantile(0.999)),
                micros(self.latencies.max()),
            ],
            errors: self.errors.clone(),
            connection_rate: None,
            slowest_p50_us: None,
            validator: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_measured_phase_is_counted() {
        let mut meter = Meter::new(Duration::from_millis(10), Duration::from_millis(100));
        assert!(!meter.advance(Instant::from_millis(5)));
        meter.complete(Instant::ZERO, Instant::from_millis(6), 1);
        meter.error("timeout");
        assert!(meter.advance(Instant::from_millis(15)));
        for i in 0..50 {
            let requested_at = Instant::from_millis(16 + i);
            meter.complete(requested_at, requested_at + Duration::from_micros(100), 40);
        }
        meter.error("wrong rcode");
        assert_eq!(meter.phase_end(), Instant::from_millis(115));
        assert!(meter.advance(Instant::from_millis(115)));
        meter.complete(Instant::ZERO, Instant::from_millis(116), 1);
        let report = meter.report("test", 0.0);
        assert_eq!(report.completed, 50);
        assert!((report.rate - 500.0).abs() < 1e-9);
        assert!((report.bytes_per_second - 20_000.0).abs() < 1e-9);
        assert!((report.latency_us[0] - 100.0).abs() < 1.0, "{report:?}");
        assert_eq!(report.errors, BTreeMap::from([("wrong rcode", 1)]));
    }
}
