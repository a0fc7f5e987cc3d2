//! How event loops are told to stop, and how far their handlers have come.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::time::Instant;

/// Asks event loops to stop. Any thread may ask, and any number of loops may share the value.
///
/// A request cannot be taken back. [`at_once`](Self::at_once) also shortens a stop in progress.
#[derive(Debug, Default)]
pub struct Stop(AtomicU8);

const SERVE: u8 = 0;
const DRAIN: u8 = 1;
const AT_ONCE: u8 = 2;

impl Stop {
    /// Creates a value without a request.
    pub const fn new() -> Self {
        Self(AtomicU8::new(SERVE))
    }

    /// Asks the loops to stop after the [drain](crate::LoopConfig::drain).
    pub fn request(&self) {
        self.0.fetch_max(DRAIN, Ordering::Relaxed);
    }

    /// Asks the loops to stop without a drain, or to end the drain in progress.
    pub fn at_once(&self) {
        self.0.fetch_max(AT_ONCE, Ordering::Relaxed);
    }

    /// Returns true if the loops were asked to stop, in either way.
    #[inline(always)]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) != SERVE
    }

    /// Returns true if the loops were asked to stop without a drain.
    pub fn is_at_once(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AT_ONCE
    }
}

/// How far the drain of a handler has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Nothing needs more time.
    Done,
    /// Some connections need more time. The drain continues after the next batch, and at this time
    /// at the latest.
    Busy(Instant),
}

impl Drain {
    /// Combines the drains of two parts of a handler.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Busy(one), Self::Busy(other)) => Self::Busy(one.min(other)),
            (Self::Done, rest) | (rest, Self::Done) => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_never_taken_back() {
        let stop = Stop::new();
        assert!(!stop.is_requested() && !stop.is_at_once());
        stop.request();
        assert!(stop.is_requested() && !stop.is_at_once());
        stop.at_once();
        stop.request();
        assert!(stop.is_requested() && stop.is_at_once());
    }

    #[test]
    fn two_drains_are_done_when_both_are() {
        let busy = |millis| Drain::Busy(Instant::from_millis(millis));
        assert_eq!(Drain::Done.and(Drain::Done), Drain::Done);
        assert_eq!(Drain::Done.and(busy(2)), busy(2));
        assert_eq!(busy(2).and(Drain::Done), busy(2));
        assert_eq!(busy(3).and(busy(2)), busy(2));
    }
}
