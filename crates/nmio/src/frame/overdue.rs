//! Frames that a driver never completes. Only `AF_XDP` has such drivers.
#![allow(unsafe_code)]

use super::{Pool, State};

impl Pool {
    /// Marks all frames that are in flight as overdue. Returns the number of frames that were marked
    /// already, so they have been in flight since the previous call.
    #[cold]
    pub(crate) fn mark_overdue(&self) -> u32 {
        let mut overdue = 0;
        for state in &self.0.state {
            match state.get() {
                State::Sending => state.set(State::Overdue),
                State::ResidentSending => state.set(State::ResidentOverdue),
                State::Overdue | State::ResidentOverdue => overdue += 1,
                State::Free | State::Held | State::Offered | State::Resident | State::Foreign => {}
            }
        }
        overdue
    }

    /// Takes back all frames that were in flight at the previous call and still are. Each of them
    /// is completed as in [`Pool::complete`]. Returns the number of frames taken back.
    ///
    /// This call recovers frames that a driver never completes.
    ///
    /// # Safety
    /// The kernel no longer reads these frames, and no [`Sending`](super::Sending) owns any of them.
    #[cold]
    pub(crate) unsafe fn reclaim_overdue(&self) -> u32 {
        let mut reclaimed = 0;
        for (index, state) in (0..).zip(&self.0.state) {
            match state.get() {
                State::Sending => state.set(State::Overdue),
                State::ResidentSending => state.set(State::ResidentOverdue),
                State::Overdue | State::ResidentOverdue => {
                    // SAFETY: the caller guarantees what `complete` requires.
                    reclaimed += u32::from(unsafe { self.complete(index) });
                }
                State::Free | State::Held | State::Offered | State::Resident | State::Foreign => {}
            }
        }
        reclaimed
    }
}
