//! Trying again what a server that has just ended may hold up.

use std::thread;
use std::time::{Duration, Instant};

/// Waits for what a server that has just ended still holds: its queue for some
/// 20 to 40 ms, its program until the kernel has taken its last handle away.
pub(super) struct Patience(Instant);

impl Patience {
    const MOST: Duration = Duration::from_millis(250);
    const PAUSE: Duration = Duration::from_millis(5);

    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Sleeps a little; `false` when it has been long enough.
    pub(super) fn wait(&self) -> bool {
        let more = self.0.elapsed() < Self::MOST;
        if more {
            thread::sleep(Self::PAUSE);
        }
        more
    }
}
