//! Retries steps that can fail for a short time after another server has exited.

use std::thread;
use std::time::{Duration, Instant};

/// The time of the first try. The time limit for all tries starts at this time.
///
/// After a server exits, its queue stays in use for another 20 to 40 ms. The server's steering
/// program stays attached until the kernel has closed the last handle.
pub(super) struct Retry(Instant);

impl Retry {
    const LIMIT: Duration = Duration::from_millis(250);
    const PAUSE: Duration = Duration::from_millis(5);

    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Sleeps before the next try, and returns true. Once the time limit is reached, returns false
    /// immediately.
    pub(super) fn wait(&self) -> bool {
        let more = self.0.elapsed() < Self::LIMIT;
        if more {
            thread::sleep(Self::PAUSE);
        }
        more
    }
}
