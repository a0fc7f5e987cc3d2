//! The memory of a site: what is kept in it from the start, and what is left for other files. Those
//! are read when clients ask for them.

use control::report;

use crate::site::Totals;

/// A file that is longer than 1/`BIG_SHARE` of the memory that is left waits until the shorter ones are
/// in memory.
const BIG_SHARE: u64 = 8;

/// Memory that a file takes because it is on the disk, in bytes: its path, its version, and what the
/// allocator adds. It was measured with 100,000 files.
const DISK_FILE_MEMORY: u64 = 256;

/// Most of the budget that resident packets take by default: this share, and so many bytes. They save a
/// seventh of the work for a short response, but nobody else can use their memory.
const PINNED_SHARE: u64 = 8;
const MAX_PINNED: u64 = 256_000_000;

/// A budget for the responses of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBudget {
    /// All of the budget, in bytes.
    bytes: u64,
    /// What resident packets take from it, in bytes.
    packets: u64,
    /// What resident packets may take at most, in bytes.
    pinned: u64,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            packets: 0,
            pinned: (bytes / PINNED_SHARE).min(MAX_PINNED),
        }
    }

    /// Returns the budget with so many bytes at most for resident packets.
    pub(crate) fn with_pinned(self, pinned: u64) -> Self {
        Self { pinned, ..self }
    }

    /// What resident packets may take at most, in bytes.
    pub(crate) fn pinned(self) -> u64 {
        self.pinned
    }

    /// Returns the budget for what is beside `packets` bytes of resident packets.
    pub(crate) fn beside(self, packets: u64) -> Self {
        Self { packets, ..self }
    }

    /// All of the budget.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// Whether `packets` bytes of resident packets may be pinned beside `used` bytes of responses. Together
    /// they have at most half of the budget. So the responses can grow at a reload, and no file that was in
    /// memory moves to the disk.
    pub(crate) fn has_room_for_packets(self, packets: u64, used: u64) -> bool {
        packets <= self.pinned && used.saturating_add(packets) <= self.bytes / 2
    }

    /// Describes the budget of a site with these totals, for the operator.
    pub(crate) fn describe(self, totals: &Totals) -> String {
        let all = report::bytes(self.bytes);
        let all = match totals.memory() {
            used if used > self.bytes => {
                let used = report::bytes(used);
                format!("{used}, which is more than the budget of {all}")
            }
            _ => format!("at most {all}"),
        };
        match totals.disk_files {
            0 => format!("{all}; all files are in it"),
            n => format!(
                "{all}; on the disk and read when they are asked for: {}, {}",
                report::counted(n, "file"),
                report::bytes(totals.disk_bytes)
            ),
        }
    }

    /// The part for responses that stay in memory: three quarters, without the packets.
    pub(crate) fn kept(self) -> u64 {
        (self.bytes / 4 * 3).saturating_sub(self.packets)
    }

    /// Whether a file of `len` bytes fits beside `used` bytes of responses, or takes less memory there than
    /// on the disk.
    pub(crate) fn fits(self, len: u64, used: u64) -> bool {
        len <= DISK_FILE_MEMORY || used.saturating_add(len) <= self.kept()
    }

    /// Whether a file of `len` bytes has to wait until shorter ones are in memory.
    pub(crate) fn is_big(self, len: u64, used: u64) -> bool {
        len > DISK_FILE_MEMORY && len > self.kept().saturating_sub(used) / BIG_SHARE
    }

    /// The part of each of `workers` for pieces of other files, beside `used` bytes of responses.
    pub(crate) fn for_pieces(self, used: u64, workers: u32) -> u64 {
        let used = used.saturating_add(self.packets);
        let left = self.bytes.saturating_sub(used).max(self.bytes / 4);
        left / u64::from(workers.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_are_for_responses_and_the_rest_for_pieces() {
        let budget = MemoryBudget::new(4_000);
        assert!(budget.fits(3_000, 0) && budget.fits(300, 2_700));
        assert!(!budget.fits(3_001, 0) && !budget.fits(300, 2_701));
        assert!(!budget.is_big(375, 0) && budget.is_big(376, 0));
        assert!(budget.is_big(300, 2_000));
        assert_eq!(budget.for_pieces(1_000, 1), 3_000);
        assert_eq!(budget.for_pieces(1_000, 2), 1_500);
        // Responses of rules and codings may need more than their part.
        assert_eq!(budget.for_pieces(3_900, 1), 1_000);
    }

    #[test]
    fn the_operator_learns_that_the_budget_is_too_small() {
        let mut totals = Totals {
            replies: 10,
            reply_bytes: 800,
            ..Totals::default()
        };
        let describe = |totals: &Totals| MemoryBudget::new(4_000).describe(totals);
        assert_eq!(describe(&totals), "at most 4.0 kB; all files are in it");
        (totals.reply_bytes, totals.disk_files) = (900, 2);
        assert_eq!(
            describe(&totals),
            "4.1 kB, which is more than the budget of 4.0 kB; on the disk and read when they are asked \
             for: 2 files, 0 B"
        );
    }

    #[test]
    fn short_files_stay_in_memory_whatever_the_budget_is() {
        let budget = MemoryBudget::new(0);
        assert!(budget.fits(DISK_FILE_MEMORY, 0) && !budget.fits(DISK_FILE_MEMORY + 1, 0));
        assert!(!budget.is_big(DISK_FILE_MEMORY, 0) && budget.is_big(DISK_FILE_MEMORY + 1, 0));
    }

    #[test]
    fn resident_packets_count_in_the_budget_and_leave_room_for_a_reload() {
        let budget = MemoryBudget::new(4_000).with_pinned(1_600);
        assert!(budget.has_room_for_packets(1_500, 500));
        assert!(!budget.has_room_for_packets(1_501, 500));
        assert!(!budget.has_room_for_packets(u64::MAX, 500));
        let beside = budget.beside(1_500);
        assert!(beside.fits(1_000, 500) && !beside.fits(1_001, 500));
        assert_eq!(beside.for_pieces(500, 1), 2_000);
        assert_eq!(beside.beside(0), budget);
    }

    #[test]
    fn an_eighth_of_the_budget_is_pinned_at_most_and_256_mb() {
        let budget = MemoryBudget::new(800_000_000);
        assert!(budget.has_room_for_packets(100_000_000, 0));
        assert!(!budget.has_room_for_packets(100_000_001, 0));
        let budget = MemoryBudget::new(1 << 40);
        assert!(budget.has_room_for_packets(256_000_000, 0));
        assert!(!budget.has_room_for_packets(256_000_001, 0));
        assert!(!budget.with_pinned(0).has_room_for_packets(1, 0));
        // The operator may allow more than the default, but not more than half of the budget.
        let budget = MemoryBudget::new(800).with_pinned(u64::MAX);
        assert!(budget.has_room_for_packets(400, 0) && !budget.has_room_for_packets(400, 1));
    }
}
