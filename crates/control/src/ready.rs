//! Waiting for a descriptor, for a limited time.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits until a descriptor is ready, at most until then. `None` has no limit. Returns `false` if it is not
/// ready. Returns `true` after an error, too, because the next call on the descriptor names it.
pub(crate) fn ready_within(
    descriptor: BorrowedFd<'_>,
    events: PollFlags,
    until: Option<Instant>,
) -> bool {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&descriptor, events)], left.as_ref()) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}
