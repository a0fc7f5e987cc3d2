//! Returns freed memory to the kernel.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Interval at which freed memory is returned to the kernel.
const PERIOD: Duration = Duration::from_secs(5);

/// Returns freed memory to the kernel at regular intervals, while the future is polled.
///
/// Without these calls, glibc returns only the free end of a heap. A single buffer in use near the
/// end of the heap keeps all freed memory below it. A worker that allocates while its heap is being
/// trimmed must wait, but workers do not allocate in a steady state.
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
    // SAFETY: `malloc_trim` takes the lock of each heap, and does not touch memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Returns the resident memory of this process in kB.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse().unwrap()
    }

    #[test]
    fn memory_freed_below_a_buffer_in_use_is_returned_to_the_system() {
        // The test allocates on another thread, because each worker's thread uses its own heap.
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
