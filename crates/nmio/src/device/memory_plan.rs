//! How much memory a port takes.

use std::io;

use super::error::DeviceError;
use crate::frame::PoolLayout;
use crate::sys;

/// What a port keeps frames for, beside its rings and one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Packets that live in the port's memory for good.
    pub resident_frames: u32,
    /// Frames that the layers above may hold back at once, such as segments
    /// received out of order.
    pub scratch_frames: u32,
}

impl MemoryPlan {
    /// The memory of a port that needs `own` frames itself, `stride` bytes
    /// apart and for `capacity` bytes each.
    ///
    /// # Errors
    /// [`DeviceError::Memory`], when this host has not so much.
    pub(crate) fn layout(
        self,
        stride: usize,
        capacity: usize,
        own: u32,
    ) -> Result<PoolLayout, DeviceError> {
        let refused = |bytes| DeviceError::memory(bytes, io::ErrorKind::OutOfMemory.into());
        let io_frames = own.checked_add(self.scratch_frames);
        let frames = io_frames.and_then(|io_frames| io_frames.checked_add(self.resident_frames));
        let (Some(io_frames), Some(frames)) = (io_frames, frames) else {
            return Err(refused(u64::MAX));
        };
        let bytes = u64::from(frames) * stride as u64;
        // The kernel would rather end other programs than refuse.
        if sys::available_memory().is_some_and(|available| bytes > available) {
            return Err(refused(bytes));
        }
        Ok(PoolLayout {
            stride,
            capacity,
            io_frames,
            resident_frames: self.resident_frames,
        })
    }
}
