//! Asking the processor for memory before it is needed.
#![allow(unsafe_code)]

/// Asks for the cache line that `value` starts in. A hint: nothing is read,
/// and nothing happens where the processor has no such instruction.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of SSE, which every x86-64 has; it
        // changes no state that a program can see and never faults, whatever
        // the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
