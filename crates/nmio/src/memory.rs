//! Large pages for memory that is accessed at random.
#![allow(unsafe_code)]

use std::mem::size_of_val;

use crate::sys;

/// Size in bytes of a large page on x86-64, and on aarch64 with pages of 4 KiB. Where large pages
/// have another size, the kernel uses only those that lie completely in the given range.
const LARGE_PAGE: usize = 2 << 20;

/// Asks the kernel to move `memory` to large pages. With large pages, random lookups in a table of
/// many megabytes cause far fewer TLB misses.
///
/// Call this function after `memory` has been filled, because only pages that already exist are
/// moved. Moving takes a few milliseconds per 100 MB. The call is only a hint. It has no effect if
/// the kernel does not support it, or if `memory` contains no whole large page.
pub fn prefer_large_pages<T>(memory: &[T]) {
    let start = memory.as_ptr() as usize;
    let first = start.next_multiple_of(LARGE_PAGE);
    let end = (start + size_of_val(memory)) / LARGE_PAGE * LARGE_PAGE;
    if first >= end {
        return;
    }
    let pages = memory.as_ptr().cast::<u8>().wrapping_add(first - start);
    for &advice in sys::LARGE_PAGE_ADVICE {
        // SAFETY: the range lies within `memory`, which stays mapped while it is borrowed. Neither
        // kind of advice changes its content or protection.
        unsafe { libc::madvise(pages.cast_mut().cast(), end - first, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefer_large_pages_keeps_the_content() {
        let table: Vec<u64> = (0..1_000_000).collect();
        prefer_large_pages(&table);
        assert!(table.iter().copied().eq(0..1_000_000));
        prefer_large_pages::<u64>(&[]);
        prefer_large_pages(&[1, 2, 3]);
    }
}
