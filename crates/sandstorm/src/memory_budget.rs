//! The memory of a site: what is kept in it from the start, and what is left for other files. Those
//! are read when clients ask for them.

use control::report;

use crate::site::Totals;

/// A file that is longer than 1/`BIG_SHARE` of the memory that is left waits until the shorter ones are
/// in memory.
const BIG_SHARE: u64 = 8;

/// A budget for the responses of a site, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBudget(u64);

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// All of the budget.
    pub(crate) fn bytes(self) -> u64 {
        self.0
    }

    /// Describes the budget of a site with these totals, for the operator.
    pub(crate) fn describe(self, totals: &Totals) -> String {
        let all = report::bytes(self.0);
        match totals.disk_files {
            0 => format!("at most {all}; all files are in it"),
            n => format!(
                "at most {all}; on the disk and read when they are asked for: {}, {}",
                report::counted(n, "file"),
                report::bytes(totals.disk_bytes)
            ),
        }
    }

    /// The part for responses that stay in memory: three quarters.
    pub(crate) fn kept(self) -> u64 {
        self.0 / 4 * 3
    }

    /// Whether a file of `len` bytes fits beside `used` bytes of responses.
    pub(crate) fn fits(self, len: u64, used: u64) -> bool {
        used.saturating_add(len) <= self.kept()
    }

    /// Whether a file of `len` bytes has to wait until shorter ones are in memory.
    pub(crate) fn is_big(self, len: u64, used: u64) -> bool {
        len > self.kept().saturating_sub(used) / BIG_SHARE
    }

    /// The part of each of `workers` for pieces of other files, beside `used` bytes of responses.
    pub(crate) fn for_pieces(self, used: u64, workers: u32) -> u64 {
        let left = self.0.saturating_sub(used).max(self.0 / 4);
        left / u64::from(workers.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_are_for_responses_and_the_rest_for_pieces() {
        let budget = MemoryBudget::new(4_000);
        assert!(budget.fits(3_000, 0) && budget.fits(1, 2_999));
        assert!(!budget.fits(3_001, 0) && !budget.fits(1, 3_000));
        assert!(!budget.is_big(375, 0) && budget.is_big(376, 0));
        assert!(budget.is_big(1, 3_000) && !budget.is_big(0, 3_000));
        assert_eq!(budget.for_pieces(1_000, 1), 3_000);
        assert_eq!(budget.for_pieces(1_000, 2), 1_500);
        // Responses of rules and codings may need more than their part.
        assert_eq!(budget.for_pieces(3_900, 1), 1_000);
    }
}
