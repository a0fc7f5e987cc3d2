//! Time in nanoseconds on a monotonic clock. The event loop reads the clock once per batch.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the clock was created.
///
/// Protocol crates receive the current time as an argument and never read a clock, so they also
/// work on virtual time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// The latest possible time, which no clock ever reaches.
    pub const FAR: Self = Self(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the origin.
    #[inline(always)]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the time `millis` milliseconds after the origin.
    #[inline(always)]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Returns the number of nanoseconds since the origin.
    #[inline(always)]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the number of whole microseconds since the origin.
    #[inline(always)]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the earlier of two optional times, the only one that is set, or `None`.
    #[inline(always)]
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later than this time.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    #[inline(always)]
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.as_nanos() as u64))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    #[inline(always)]
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A source of the current time.
pub trait Clock {
    /// Returns the current time.
    fn now(&self) -> Instant;
}

/// The processor's time stamp counter, scaled to nanoseconds.
///
/// The `quanta` crate reads the counter. If the counter's rate is not constant, `quanta` uses the
/// system's monotonic clock instead.
#[derive(Debug, Clone)]
pub struct TscClock {
    clock: quanta::Clock,
    origin: u64,
}

impl TscClock {
    /// Creates a clock that starts at [`Instant::ZERO`]. The first clock in a process calibrates
    /// the counter, which takes several milliseconds.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let origin = clock.raw();
        Self { clock, origin }
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    #[inline(always)]
    fn now(&self) -> Instant {
        Instant(self.clock.delta_as_nanos(self.origin, self.clock.raw()))
    }
}
