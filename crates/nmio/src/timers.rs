//! A small fixed number of timers, for which a [wheel](crate::TimerWheel) would be too large.

use arrayvec::ArrayVec;

use crate::Instant;

/// `N` timers, numbered from 0.
#[derive(Clone, Debug)]
pub struct Timers<const N: usize> {
    /// Expiry time of each timer. [`Instant::FAR`]: the timer is not set.
    due: [Instant; N],
    /// The earliest expiry time of all timers.
    next: Instant,
}

impl<const N: usize> Timers<N> {
    /// Creates `N` timers that are not set.
    pub const fn new() -> Self {
        Self {
            due: [Instant::FAR; N],
            next: Instant::FAR,
        }
    }

    /// Sets a timer to expire at `due`, and replaces its earlier expiry time.
    ///
    /// # Panics
    /// If `timer` is not below `N`.
    pub fn set(&mut self, timer: usize, due: Instant) {
        self.due[timer] = due;
        self.next = self.due.into_iter().fold(Instant::FAR, Instant::min);
    }

    /// Clears a timer.
    ///
    /// # Panics
    /// If `timer` is not below `N`.
    pub fn clear(&mut self, timer: usize) {
        self.set(timer, Instant::FAR);
    }

    /// Returns the earliest expiry time, or `None` if no timer is set.
    #[inline(always)]
    pub fn next(&self) -> Option<Instant> {
        (self.next != Instant::FAR).then_some(self.next)
    }

    /// Returns true if at least one timer has expired by `now`.
    #[inline(always)]
    pub fn has_passed(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Clears the timers that have expired by `now`, and returns their numbers in ascending order.
    pub fn take_passed(&mut self, now: Instant) -> ArrayVec<usize, N> {
        let passed: ArrayVec<usize, N> = (0..N).filter(|timer| self.due[*timer] <= now).collect();
        for timer in &passed {
            self.clear(*timer);
        }
        passed
    }
}

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_once_and_in_order() {
        let at = Instant::from_nanos;
        let mut timers = Timers::<3>::new();
        assert_eq!(timers.next(), None);
        timers.set(2, at(10));
        timers.set(0, at(30));
        timers.set(1, at(20));
        assert_eq!(timers.next(), Some(at(10)));
        assert!(!timers.has_passed(at(9)) && timers.has_passed(at(10)));
        assert!(timers.take_passed(at(9)).is_empty());
        assert_eq!(timers.take_passed(at(20))[..], [1, 2]);
        assert_eq!(timers.next(), Some(at(30)));
        timers.set(0, at(40));
        timers.set(1, at(50));
        timers.clear(1);
        assert_eq!(timers.take_passed(at(100))[..], [0]);
        assert_eq!(timers.next(), None);
        assert!(timers.take_passed(at(u64::MAX - 1)).is_empty());
    }
}
