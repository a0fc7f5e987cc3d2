//! Floods of SYNs, and what is done with each.

use crate::clock::Moment;
use crate::cookies::LIFE_MICROS;

/// Cookies that are no further apart than this are a flood, in microseconds.
const FLOOD_GAP_MICROS: u64 = 1_000;

/// What is done with a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admitted {
    /// This TCB is for it.
    Keep(u32),
    /// It gets a cookie.
    Bake,
    /// It has been counted.
    Drop,
}

/// When cookies were sent.
#[derive(Debug, Default)]
pub(super) struct Flood {
    /// When one was last sent, in microseconds.
    baked_at: Option<u64>,
    /// Whether the one before was sent shortly before.
    floods: bool,
}

impl Flood {
    /// A cookie has been sent.
    pub(super) fn has_baked(&mut self, now: Moment) {
        self.floods = self.baked_within(FLOOD_GAP_MICROS, now);
        self.baked_at = Some(now.whole_micros);
    }

    /// Whether somebody may still bring a cookie back.
    #[inline]
    pub(super) fn awaits_cookies(&self, now: Moment) -> bool {
        self.baked_within(LIFE_MICROS, now)
    }

    /// More than a thousand cookies a second are sent just now.
    #[inline]
    pub(super) fn is_on(&self, now: Moment) -> bool {
        self.floods && self.baked_within(FLOOD_GAP_MICROS, now)
    }

    #[inline]
    fn baked_within(&self, micros: u64, now: Moment) -> bool {
        self.baked_at
            .is_some_and(|baked_at| now.whole_micros - baked_at <= micros)
    }
}
