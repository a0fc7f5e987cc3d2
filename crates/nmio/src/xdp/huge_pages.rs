//! Finds out whether the packet memory fits in huge pages that the administrator has reserved.
//!
//! With huge pages, the processor and the device's IOMMU need far fewer entries for the packet
//! memory. The kernel does not move this memory to huge pages by itself, because it is shared and
//! pinned.

use std::fs;

/// Size in bytes of a normal page. Some machines have larger ones, which makes no difference here.
pub(super) const NORMAL_PAGE: u64 = 4096;

/// Returns the size of a huge page in bytes, if the free huge pages can hold `bytes` bytes.
pub(super) fn size_if_free(bytes: u64) -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?, bytes)
}

/// Evaluates the text of `/proc/meminfo`. Free pages that are reserved for a mapping do not count.
fn parse(text: &str, bytes: u64) -> Option<u64> {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let size = number("Hugepagesize:")?.checked_mul(1024)?;
    let free = number("HugePages_Free:")?.saturating_sub(number("HugePages_Rsvd:")?);
    let fits = size > NORMAL_PAGE && bytes.div_ceil(size) <= free;
    fits.then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meminfo(free: u64, reserved: u64) -> String {
        format!(
            "MemFree:  100 kB\nHugePages_Total:      99\nHugePages_Free:    {free}\n\
             HugePages_Rsvd:    {reserved}\nHugePages_Surp:        0\nHugepagesize:       2048 kB\n"
        )
    }

    #[test]
    fn huge_pages_are_used_if_enough_are_free() {
        const MIB: u64 = 1 << 20;
        for (free, reserved, bytes, fits) in [
            (11, 0, 22 * MIB, true),
            (11, 0, 22 * MIB + 1, false),
            (11, 1, 22 * MIB, false),
            (12, 1, 22 * MIB, true),
            (0, 0, 1, false),
            (1, 2, 1, false),
        ] {
            let expected = fits.then_some(2 * MIB);
            assert_eq!(parse(&meminfo(free, reserved), bytes), expected);
        }
        assert_eq!(parse("", 1), None);
        assert_eq!(parse("Hugepagesize: x kB", 1), None);
    }
}
