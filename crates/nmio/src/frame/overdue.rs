//! Frames that a driver never completes, or that were in flight when a device was removed. Only
//! `AF_XDP` has such frames.
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

    /// Takes back all frames that the kernel has: those that it may receive into, and those in flight.
    ///
    /// # Safety
    /// The kernel uses none of these frames any more, and no [`Sending`](super::Sending) owns any of
    /// them.
    #[cold]
    pub(crate) unsafe fn take_all_back(&self) {
        for (index, state) in (0..).zip(&self.0.state) {
            if state.get() == State::Offered {
                self.0.push_free(index);
            } else {
                // SAFETY: the caller guarantees what `complete` requires. A frame that is not in
                // flight stays as it is.
                unsafe { self.complete(index) };
            }
        }
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
