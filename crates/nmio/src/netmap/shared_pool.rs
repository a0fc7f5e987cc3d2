//! A pool over the buffers that a netmap port shares with the kernel.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use netmap_sys::{Buffers, netmap_if};

use crate::frame::{Pool, PoolLayout};

/// Creates a pool over the buffers of a region. The pool owns the buffers `extra`, which come from
/// the list of `interface`.
///
/// `kept` keeps the region mapped and bound. When the last frame is gone, the free buffers go back
/// to the list, from which the kernel frees them.
pub(super) fn shared_pool(
    buffers: Buffers,
    layout: PoolLayout,
    interface: NonNull<netmap_if>,
    extra: &[u32],
    kept: impl Sized + 'static,
) -> Pool {
    let give_back = move |free: &[u32]| {
        // SAFETY: no frame exists any more, so no other code uses the contents of the free buffers.
        unsafe { buffers.give_extra(interface.as_ptr(), free) };
        drop(kept);
    };
    let first = buffers.get(0).expect("there are buffers");
    // SAFETY: buffer i starts at `first + i * size`, and all `count` buffers are in the region,
    // which `kept` keeps mapped. The kernel has initialised it. The rings hand buffers to the
    // kernel, and take them back, only through the pool's state table.
    let pool = unsafe { Pool::over_region(first, layout, buffers.count(), Box::new(give_back)) };
    for &buffer in extra {
        // SAFETY: the kernel has given this buffer to the program.
        unsafe { pool.adopt(buffer) };
    }
    pool
}
