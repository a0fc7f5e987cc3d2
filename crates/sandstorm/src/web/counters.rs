//! What a worker has answered.

use crate::status::Status;

/// What has been answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests answered, those refused included.
    pub requests: u64,
    /// The server's own answers by status, in the order of [`Status::ALL`].
    pub by_status: [u64; Status::ALL.len()],
    /// The application's answers by the first digit of their status, from 2 on.
    pub of_app: [u64; 4],
}

impl Counters {
    /// The server's own answers of one status.
    pub fn of(&self, status: Status) -> u64 {
        self.by_status[status as usize]
    }

    /// Answers whose status begins with this digit, whoever made them.
    pub fn of_class(&self, digit: u16) -> u64 {
        let ours = Status::ALL.iter().filter(|s| s.code() / 100 == digit);
        let of_app = self.of_app.get(usize::from(digit).wrapping_sub(2));
        ours.map(|status| self.of(*status)).sum::<u64>() + of_app.copied().unwrap_or_default()
    }
}
