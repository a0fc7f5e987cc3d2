//! The current time in the formats that connections use.

use nmio::Instant;

/// A point in time. The 32-bit values wrap. Two of them can be compared only if they are less than
/// half the range apart: 35 minutes in microseconds, or 24 days in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Time in microseconds, for round-trip times. The value wraps.
    pub(crate) micros: u32,
    /// Time in milliseconds, for deadlines. The value wraps.
    pub(crate) millis: u32,
    /// Time in microseconds as 64 bits, which never wraps.
    pub(crate) whole_micros: u64,
}

impl From<Instant> for Moment {
    #[inline(always)]
    fn from(now: Instant) -> Self {
        let micros = now.as_micros();
        Self {
            micros: micros as u32,
            millis: (micros / 1000) as u32,
            whole_micros: micros,
        }
    }
}

impl Moment {
    /// Converts a deadline in milliseconds to an [`Instant`]. If the deadline has passed, returns
    /// the current time in whole milliseconds.
    #[inline]
    pub(crate) fn instant(self, deadline: u32) -> Instant {
        let ahead = deadline.wrapping_sub(self.millis).cast_signed().max(0);
        Instant::from_millis(self.whole_micros / 1000 + u64::from(ahead.unsigned_abs()))
    }
}
