//! TCP sequence numbers.

use std::ops::{Add, Sub};

/// A sequence number, which wraps at 2^32 (RFC 9293, section 3.4). Two numbers can be compared if
/// they are less than 2^31 apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns the distance from `earlier` to `self`, modulo 2^32.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns true if `self` comes before `other`.
    #[inline(always)]
    pub const fn before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Returns true if `self` comes after `other`.
    #[inline(always)]
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// Returns the earlier of the two numbers.
    #[inline(always)]
    #[must_use]
    pub const fn earlier(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }

    /// Returns the later of the two numbers.
    #[inline(always)]
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    #[inline(always)]
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl Sub<u32> for Seq {
    type Output = Self;
    #[inline(always)]
    fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}
