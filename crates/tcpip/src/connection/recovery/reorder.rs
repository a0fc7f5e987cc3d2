//! For how long segments may change their order on the way (RFC 8985, section
//! 6.2, step 4).

use crate::rto::Rtt;

/// Recoveries for which a wider reordering window is remembered (RFC 8985,
/// section 6.2: `RACK.reo_wnd_persist`).
const PERSIST: u8 = 15;
/// The widest reordering window, in quarters of the least round trip.
const MAX_QUARTERS: u8 = 15;

/// Quarters of the least round trip that reordering may last (RFC 8985's
/// `RACK.reo_wnd_mult`), 1 to 15, and recoveries before they are one again,
/// times 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reorder(u8);

impl Reorder {
    /// A quarter of the least round trip.
    pub(crate) const fn new() -> Self {
        Self(1)
    }

    /// How long a segment that was overtaken may stay out, in microseconds.
    pub(super) fn window(self, rtt: Rtt) -> u32 {
        let quarters = u32::from(self.0 & 0x0f);
        let window = (rtt.least() / 4).saturating_mul(quarters);
        window.min(rtt.smoothed())
    }

    /// Something has arrived twice, sent again for nothing: segments stay out
    /// longer than was thought. (RFC 8985 leaves `RACK.reordering_seen` alone then,
    /// and goes on without a window while it recovers; where segments are late by
    /// more than a round trip that sends far more for nothing.)
    pub(super) fn widen(&mut self) {
        let quarters = (self.0 & 0x0f).saturating_add(1).min(MAX_QUARTERS);
        self.0 = PERSIST << 4 | quarters;
    }

    /// A recovery has ended: after some, the reordering window is as it was.
    pub(super) fn narrow(&mut self) {
        let recoveries = self.0 >> 4;
        self.0 = if recoveries <= 1 {
            1
        } else {
            (recoveries - 1) << 4 | self.0 & 0x0f
        };
    }
}

#[cfg(test)]
#[path = "reorder_tests.rs"]
mod tests;
