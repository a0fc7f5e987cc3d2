//! How much memory is free.

use std::fs::read_to_string;
use std::path::Path;

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

#[cfg(test)]
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
}
