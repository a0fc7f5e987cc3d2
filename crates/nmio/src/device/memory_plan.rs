//! Computes the packet memory of a port.

use std::io;

use super::error::DeviceError;
use crate::frame::PoolLayout;
use crate::sys;

/// Numbers of frames that a port keeps in addition to its rings and one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Packets that stay in the port's memory permanently.
    pub resident_frames: u32,
    /// Maximum number of frames that upper layers hold at once, such as out-of-order segments.
    pub scratch_frames: u32,
}

impl MemoryPlan {
    /// Lays out the memory of a port that needs `own` frames for itself. Frames lie `stride` bytes
    /// apart and hold `capacity` bytes each.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] if this host does not have enough memory.
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
        // The kernel would not refuse. It would kill other programs instead.
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
