//! The time that connections use.

use nmio::Instant;

/// A moment on the clocks of a TCB. The clocks wrap, so a difference must be less than half their
/// range: 35 minutes in microseconds, 24 days in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Microseconds, for round-trip times.
    pub(crate) micros: u32,
    /// Milliseconds, for deadlines.
    pub(crate) millis: u32,
    /// Microseconds that do not wrap.
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
    /// Returns the moment of a deadline in milliseconds, or now if it has passed.
    #[inline]
    pub(crate) fn instant(self, deadline: u32) -> Instant {
        let ahead = deadline.wrapping_sub(self.millis).cast_signed().max(0);
        Instant::from_millis(self.whole_micros / 1000 + u64::from(ahead.unsigned_abs()))
    }
}
