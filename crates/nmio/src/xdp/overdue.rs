//! Decides when to search for frames that the kernel never completed.

use std::time::{Duration, Instant};

use super::sizes::TX_RING;

/// Decides when to search for frames that the kernel never completed.
///
/// A frame is overdue only if two consecutive searches find it still in flight.
#[derive(Debug, Default)]
pub(super) struct OverdueCheck {
    /// Number of completions since the age of the last search was last compared with
    /// [`MIN_INTERVAL`](Self::MIN_INTERVAL). This happens each time the number reaches
    /// [`MIN_COMPLETIONS`](Self::MIN_COMPLETIONS).
    completed: usize,
    /// Time of the last search. `None`: there was none yet.
    pub(super) last_search: Option<Instant>,
}

impl OverdueCheck {
    /// Minimum number of completions between two searches. A frame that is in the ring at the first
    /// search normally completes long before this number is reached.
    const MIN_COMPLETIONS: usize = 16 * TX_RING as usize;
    /// Minimum time between two searches. No device queue delays a packet by 30 seconds.
    const MIN_INTERVAL: Duration = Duration::from_secs(30);

    /// Counts completions. Returns true if a search is due.
    #[inline(always)]
    pub(super) fn is_due(&mut self, completed: usize) -> bool {
        self.completed += completed;
        self.completed >= Self::MIN_COMPLETIONS && self.interval_has_passed()
    }

    #[cold]
    fn interval_has_passed(&mut self) -> bool {
        self.completed = 0;
        let due = self
            .last_search
            .is_none_or(|at| at.elapsed() >= Self::MIN_INTERVAL);
        if due {
            self.last_search = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_for_overdue_frames_is_due_after_completions_and_time() {
        let mut overdue_check = OverdueCheck::default();
        assert!(!overdue_check.is_due(OverdueCheck::MIN_COMPLETIONS - 1));
        assert!(overdue_check.is_due(1));
        assert!(
            !overdue_check.is_due(2 * OverdueCheck::MIN_COMPLETIONS),
            "too early for another look"
        );
        overdue_check.last_search = Instant::now().checked_sub(OverdueCheck::MIN_INTERVAL);
        assert!(!overdue_check.is_due(OverdueCheck::MIN_COMPLETIONS - 1));
        assert!(overdue_check.is_due(1));
    }
}
