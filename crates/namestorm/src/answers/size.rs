//! The size of prepared answers.

use std::ops::{AddAssign, SubAssign};

/// The size of the prepared answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of zones.
    pub zones: usize,
    /// Number of names in the index that belong to the zones, including empty non-terminals.
    pub names: usize,
    /// Number of records in the zones.
    pub records: usize,
    /// Number of prepared answers.
    pub answers: usize,
    /// Size of answers and index in memory, in bytes.
    pub memory: usize,
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.zones += other.zones;
        self.names += other.names;
        self.records += other.records;
        self.answers += other.answers;
        self.memory += other.memory;
    }
}

impl SubAssign for Size {
    fn sub_assign(&mut self, other: Self) {
        self.zones -= other.zones;
        self.names -= other.names;
        self.records -= other.records;
        self.answers -= other.answers;
        self.memory -= other.memory;
    }
}
