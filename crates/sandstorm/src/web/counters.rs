//! Counts of a worker's answers.

use crate::status::Status;

/// Number of answered requests, in total and by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of requests answered, including refused ones.
    pub requests: u64,
    /// Number of the server's own answers for each status, in the order of [`Status::ALL`].
    pub by_status: [u64; Status::ALL.len()],
    /// Number of the application's answers for each first digit of the status, from 2 to 5.
    pub of_app: [u64; 4],
}

impl Counters {
    #[inline(always)]
    pub(super) fn count(&mut self, status: Status) {
        self.requests += 1;
        self.by_status[status as usize] += 1;
    }

    /// Takes away the counts of `other`, which are a part of these.
    pub(crate) fn take_away(&mut self, other: &Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        let own = self.by_status.iter_mut().chain(&mut self.of_app);
        let others = other.by_status.iter().chain(&other.of_app);
        for (own, other) in own.zip(others) {
            *own = own.saturating_sub(*other);
        }
    }

    /// Number of the server's own answers with this status.
    pub fn of(&self, status: Status) -> u64 {
        self.by_status[status as usize]
    }

    /// Number of all answers whose status begins with this digit.
    pub fn of_class(&self, digit: u16) -> u64 {
        let ours = Status::ALL.iter().filter(|s| s.code() / 100 == digit);
        let of_app = self.of_app.get(usize::from(digit).wrapping_sub(2));
        ours.map(|status| self.of(*status)).sum::<u64>() + of_app.copied().unwrap_or_default()
    }
}
