//! An open loop's clock.

use std::time::Duration;

use nmio::Instant;

/// When each request of an open loop is due: at `start + n / rate`, the time
/// of its burst's first, whatever has become of those before. Latency counts from there, so that a server
/// that stalls is not asked less, and its stall is not left out of the
/// percentiles.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: Instant,
    rate: f64,
    burst: u64,
    taken: u64,
}

impl Pace {
    /// `rate` requests a second, more than 0, `burst` of them at a time.
    pub fn new(rate: f64, burst: u32) -> Self {
        Self {
            start: Instant::FAR,
            rate,
            burst: u64::from(burst.max(1)),
            taken: 0,
        }
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// When the next request is due; the first call's `now` is the first's.
    pub fn next_due(&mut self, now: Instant) -> Instant {
        if self.start == Instant::FAR {
            self.start = now;
        }
        let first = self.taken - self.taken % self.burst;
        self.start + Duration::from_secs_f64(first as f64 / self.rate)
    }

    /// Takes the next request if it is due.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next_due(now);
        if due > now {
            return None;
        }
        self.taken += 1;
        Some(due)
    }

    /// When the next one is due, for a loop that waits until then.
    pub fn due(&self) -> Option<Instant> {
        let mut pace = *self;
        (self.start != Instant::FAR).then(|| pace.next_due(Instant::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_still_due_at_its_time() {
        let mut pace = Pace::new(1_000.0, 1);
        assert_eq!(pace.due(), None);
        assert_eq!(
            pace.take(Instant::from_millis(7)),
            Some(Instant::from_millis(7))
        );
        assert_eq!(pace.take(Instant::from_millis(7)), None);
        assert_eq!(pace.due(), Some(Instant::from_millis(8)));
        let late = Instant::from_millis(10);
        let taken: Vec<_> = std::iter::from_fn(|| pace.take(late)).collect();
        assert_eq!(taken, [8, 9, 10].map(Instant::from_millis));
    }

    #[test]
    fn a_burst_is_due_at_once() {
        let mut pace = Pace::new(1_000.0, 3);
        let taken = std::iter::from_fn(|| pace.take(Instant::ZERO)).count();
        assert_eq!((taken, pace.due()), (3, Some(Instant::from_millis(3))));
    }
}
