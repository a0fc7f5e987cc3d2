//! Retries steps that a server which has just exited may still block.

use std::thread;
use std::time::{Duration, Instant};

/// The time of the first try.
///
/// A server that has just exited holds its queue for 20 to 40 ms more. It holds its program until
/// the kernel has closed its last handle.
pub(super) struct Retry(Instant);

impl Retry {
    const LIMIT: Duration = Duration::from_millis(250);
    const PAUSE: Duration = Duration::from_millis(5);

    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Sleeps before the next try. Returns false once the time limit is reached.
    pub(super) fn wait(&self) -> bool {
        let more = self.0.elapsed() < Self::LIMIT;
        if more {
            thread::sleep(Self::PAUSE);
        }
        more
    }
}
