//! The schedule of an open loop.

use std::time::Duration;

use nmio::Instant;

/// The times at which the requests of an open loop are due. A burst is due at `start + n / rate`,
/// where n is the number of its first request, even if earlier requests are late. Latency is
/// measured from the due time. Therefore a stalled server receives as many requests as before, and
/// the percentiles include the stall.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: Instant,
    rate: f64,
    burst: u32,
    taken: u64,
}

impl Pace {
    /// Schedules `rate` requests per second in bursts of `burst` requests. The rate must be
    /// positive.
    pub fn new(rate: f64, burst: u32) -> Self {
        Self {
            start: Instant::FAR,
            rate,
            burst: burst.max(1),
            taken: 0,
        }
    }

    /// Returns the number of requests per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the number of requests that are due at the same time.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the time at which the next request is due. The first call sets the start to `now`.
    pub fn next_due(&mut self, now: Instant) -> Instant {
        if self.start == Instant::FAR {
            self.start = now;
        }
        let first = self.taken - self.taken % u64::from(self.burst);
        self.start + Duration::from_secs_f64(first as f64 / self.rate)
    }

    /// Takes the next request if it is due, and returns its due time.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next_due(now);
        if due > now {
            return None;
        }
        self.taken += 1;
        Some(due)
    }

    /// Returns the time at which the next request is due, or `None` before the first call of
    /// [`Pace::take`]. The event loop sleeps until this time.
    pub fn due(&self) -> Option<Instant> {
        let mut pace = *self;
        (self.start != Instant::FAR).then(|| pace.next_due(Instant::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_requests_keep_their_due_times() {
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
    fn all_requests_of_a_burst_are_due_together() {
        let mut pace = Pace::new(1_000.0, 3);
        let taken = std::iter::from_fn(|| pace.take(Instant::ZERO)).count();
        assert_eq!((taken, pace.due()), (3, Some(Instant::from_millis(3))));
    }
}
