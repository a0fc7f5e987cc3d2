//! Large pages for memory that is accessed at random.
#![allow(unsafe_code)]

use std::mem::size_of_val;

use crate::sys;

/// Size in bytes of a large page on x86-64, and on aarch64 with pages of 4 KiB. Where large pages
/// have another size, the kernel uses only those that lie completely in the given range.
const LARGE_PAGE: usize = 2 << 20;

/// Makes room for `additional` more values, in memory for which the kernel is asked for large pages.
/// With large pages, random lookups in a table of many megabytes cause far fewer TLB misses.
///
/// The kernel gives large pages when the memory is first written. So call this function, and not
/// `Vec::reserve`, each time before values are added. Afterwards
/// [`prefer_large_pages`] has little to do. It is expensive, because the kernel copies each page, for
/// which no other thread gets its core.
pub fn reserve_in_large_pages<T: Copy>(values: &mut Vec<T>, additional: usize) {
    let room = values.capacity() - values.len();
    if room >= additional {
        return;
    }
    let capacity = (values.len() + additional).max(2 * values.capacity());
    if capacity * size_of::<T>() < LARGE_PAGE {
        return values.reserve(additional);
    }
    let mut larger = Vec::with_capacity(capacity);
    let unused = larger.spare_capacity_mut();
    advise(unused, &sys::LARGE_PAGE_ADVICE[..1]);
    larger.extend_from_slice(values);
    *values = larger;
}

/// Asks the kernel to move `memory` to large pages, as far as it is not in such pages already.
///
/// Call this function after `memory` has been filled, because only pages that already exist are
/// moved. The call is only a hint. It has no effect if the kernel does not support it, or if `memory`
/// contains no whole large page.
pub fn prefer_large_pages<T>(memory: &[T]) {
    advise(memory, sys::LARGE_PAGE_ADVICE);
}

fn advise<T>(memory: &[T], kinds: &[i32]) {
    let start = memory.as_ptr() as usize;
    let first = start.next_multiple_of(LARGE_PAGE);
    let end = (start + size_of_val(memory)) / LARGE_PAGE * LARGE_PAGE;
    if first >= end {
        return;
    }
    let pages = memory.as_ptr().cast::<u8>().wrapping_add(first - start);
    for &advice in kinds {
        // SAFETY: the range lies within `memory`, which stays mapped while it is borrowed. Neither
        // kind of advice changes its content or protection.
        unsafe { libc::madvise(pages.cast_mut().cast(), end - first, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserving_keeps_the_content_and_makes_room() {
        let mut values = Vec::new();
        for value in 0..1_000_000_u64 {
            reserve_in_large_pages(&mut values, 1);
            assert!(values.capacity() > values.len());
            values.push(value);
        }
        assert!(values.iter().copied().eq(0..1_000_000));
        let capacity = values.capacity();
        let room = capacity - values.len();
        reserve_in_large_pages(&mut values, room);
        assert_eq!(values.capacity(), capacity, "there was room");
        reserve_in_large_pages(&mut values, 5_000_000);
        assert!(values.capacity() >= 6_000_000);
        assert_eq!(values.len(), 1_000_000);
    }

    #[test]
    fn prefer_large_pages_keeps_the_content() {
        let table: Vec<u64> = (0..1_000_000).collect();
        prefer_large_pages(&table);
        assert!(table.iter().copied().eq(0..1_000_000));
        prefer_large_pages::<u64>(&[]);
        prefer_large_pages(&[1, 2, 3]);
    }
}
