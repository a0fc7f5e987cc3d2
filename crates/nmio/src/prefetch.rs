//! Prefetches memory into the processor's cache.
#![allow(unsafe_code)]

/// Prefetches the cache line in which `value` starts.
///
/// The prefetch is only a hint. On architectures other than x86-64, this function does nothing.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of SSE, which every x86-64 processor has. It changes no
        // visible state and never faults for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
