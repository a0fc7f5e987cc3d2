//! The number of a zone.

/// The number of a zone in an index of apexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ZoneNumber(pub(crate) u32);

impl ZoneNumber {
    /// The number of no zone.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Returns the position of the zone in the list of all.
    #[inline(always)]
    pub(crate) fn position(self) -> usize {
        self.0 as usize
    }
}
