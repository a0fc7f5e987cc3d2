//! How much memory is free, and returning freed memory to the kernel.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Interval at which freed memory is returned to the kernel.
const PERIOD: Duration = Duration::from_secs(5);
/// Size in bytes from which a block of memory is mapped alone: two large pages.
#[cfg(target_env = "gnu")]
const MAPPED_ALONE: libc::c_int = 4 << 20;

/// Returns the memory that this process may still take, in bytes. It is the system's free memory, or what
/// is left in the control group (version 2) if this is less. Returns `None` if the system does not say it.
pub fn free_memory() -> Option<u64> {
    let free = available(&read_to_string("/proc/meminfo").ok()?)?;
    let group = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/"));
    let left = group.and_then(|group| left_in(&Path::new("/sys/fs/cgroup").join(group)));
    Some(left.map_or(free, |left| free.min(left)))
}

/// Returns the memory that programs can get without swapping, in bytes, from the text of `meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(1_024 * kilobytes)
}

/// Returns the memory that a control group and those above it leave, in bytes.
fn left_in(group: &Path) -> Option<u64> {
    let number = |folder: &Path, name| {
        let text = read_to_string(folder.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let left = |folder: &Path| {
        let max = number(folder, "memory.max")?;
        Some(max.saturating_sub(number(folder, "memory.current")?))
    };
    group.ancestors().filter_map(left).min()
}

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

    #[test]
    fn free_memory_is_read_from_the_system_and_from_control_groups() {
        let meminfo = "MemTotal:       16 kB\nMemFree:   3 kB\nMemAvailable:    5 kB\n";
        assert_eq!(available(meminfo), Some(5 * 1_024));
        assert_eq!(available("MemTotal: 16 kB\n"), None);
        let folder = tempfile::tempdir().unwrap();
        let [outer, inner] = ["a", "a/b"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(&inner).unwrap();
        let write = |folder: &Path, name, text| std::fs::write(folder.join(name), text).unwrap();
        write(&inner, "memory.max", "max\n");
        assert_eq!(left_in(&inner), None);
        write(&outer, "memory.max", "1000\n");
        write(&outer, "memory.current", "400\n");
        assert_eq!(left_in(&inner), Some(600));
        write(&inner, "memory.max", "300\n");
        write(&inner, "memory.current", "500\n");
        assert_eq!(left_in(&inner), Some(0));
    }

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
