//! Giving freed memory back to the kernel.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// The time between two times that freed memory is given back.
const PERIOD: Duration = Duration::from_secs(5);

/// Gives freed memory back to the kernel, for as long as it is polled.
///
/// glibc does so by itself only at the end of a heap. One buffer in use there
/// keeps all that was freed below it. Workers wait for this only where they
/// allocate, which they do not do in a steady state.
pub(crate) async fn give_back() -> Infallible {
    let mut period = interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        period.tick().await;
        trim();
    }
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes the locks of each heap, and touches no memory
    // in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Kilobytes of this process in memory.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse().unwrap()
    }

    #[test]
    fn memory_freed_below_a_buffer_in_use_is_given_back() {
        // As a worker has it: in a heap of its own.
        let thread = std::thread::spawn(|| {
            let mut buffers: Vec<_> = (0..2_000).map(|_| vec![1_u8; 16_000]).collect();
            let last = buffers.pop();
            drop(buffers);
            let before = resident();
            trim();
            let after = resident();
            drop(last);
            assert!(after + 16_000 < before, "{before} kB, then {after} kB");
        });
        thread.join().unwrap();
    }
}
