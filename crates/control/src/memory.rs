//! Returning freed memory to the kernel.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Interval at which freed memory is returned to the kernel.
const PERIOD: Duration = Duration::from_secs(5);
/// Size in bytes from which a block of memory is mapped alone: two large pages.
#[cfg(target_env = "gnu")]
const MAPPED_ALONE: libc::c_int = 4 << 20;

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

/// Makes glibc map each larger block of memory alone, and so give it back to the kernel when it is freed.
///
/// By default, glibc soon takes blocks of up to 32 MB from its heaps. New content would then come to lie
/// in small pages that were used before, although it asks for large ones.
pub(crate) fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes the lock of the heap, and changes only for which blocks memory is mapped.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_ALONE);
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
