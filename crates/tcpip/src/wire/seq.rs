//! Sequence numbers.

use std::ops::Add;

/// A sequence number: a point on a circle of 2^32 (RFC 9293, section 3.4).
/// Two of them can be compared as long as they are less than half a turn
/// apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// How far `self` lies behind `earlier`, going forward round the circle.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether it comes before `other`.
    #[inline(always)]
    pub const fn before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Whether it comes after `other`.
    #[inline(always)]
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// The one that comes first.
    #[inline(always)]
    #[must_use]
    pub const fn earlier(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }

    /// The one that comes later.
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
