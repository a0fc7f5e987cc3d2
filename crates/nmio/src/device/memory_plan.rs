//! Computes how much packet memory a port needs.

use std::io;
use std::ops::Add;

use super::error::DeviceError;
use crate::frame::PoolLayout;
use crate::port::{MAX_BATCH, USUAL_BATCH};
use crate::sys;

/// Numbers of frames that a port needs in addition to the frames for its rings and a batch of 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Maximum number of resident packets, which stay in the port's memory.
    pub resident_frames: u32,
    /// Maximum number of frames that upper layers hold at the same time, for example for
    /// out-of-order segments. [`with_batch`](Self::with_batch) adds those of large batches.
    pub scratch_frames: u32,
}

/// Adds up what several users of one port need.
impl Add for MemoryPlan {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            resident_frames: self.resident_frames.saturating_add(other.resident_frames),
            scratch_frames: self.scratch_frames.saturating_add(other.scratch_frames),
        }
    }
}

impl MemoryPlan {
    /// Adds what batches of up to `batch` frames need. Ports have frames for batches of 256, so smaller
    /// ones change nothing.
    #[must_use]
    pub fn with_batch(self, batch: usize) -> Self {
        let added = (batch.min(MAX_BATCH) as u32).saturating_sub(USUAL_BATCH);
        Self {
            scratch_frames: self.scratch_frames.saturating_add(added),
            ..self
        }
    }

    /// Returns the memory layout of a port. The port itself needs `port_frames` frames, for its
    /// rings and a batch of 256. Frames start `stride` bytes apart and hold `capacity` bytes each.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] if this host does not have enough memory.
    pub(crate) fn layout(
        self,
        stride: usize,
        capacity: usize,
        port_frames: u32,
    ) -> Result<PoolLayout, DeviceError> {
        let io_frames = port_frames.saturating_add(self.scratch_frames);
        let frames = u64::from(io_frames) + u64::from(self.resident_frames);
        let bytes = frames * stride as u64;
        // Refuse too large a size here, because the kernel would allow the allocation, but might
        // kill processes later, when memory runs out.
        let is_short = sys::available_memory().is_some_and(|available| bytes > available);
        if is_short || u32::try_from(frames).is_err() {
            return Err(DeviceError::memory(
                bytes,
                io::ErrorKind::OutOfMemory.into(),
            ));
        }
        Ok(PoolLayout {
            stride,
            capacity,
            io_frames,
            resident_frames: self.resident_frames,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_users_need_is_too_much_and_not_little() {
        let plan = MemoryPlan {
            resident_frames: u32::MAX,
            scratch_frames: 1,
        };
        let sum = plan + plan;
        assert_eq!((sum.resident_frames, sum.scratch_frames), (u32::MAX, 2));
        let error = sum.layout(2048, 2048, 100).unwrap_err();
        // The maximum number of resident packets, and 102 further frames.
        let bytes = (u64::from(u32::MAX) + 102) * 2048;
        let is_it = matches!(error, DeviceError::Memory { bytes: asked, .. } if asked == bytes);
        assert!(is_it, "{error}");
    }

    #[test]
    fn only_batches_of_more_than_256_frames_need_more_memory() {
        let plan = MemoryPlan {
            resident_frames: 5,
            scratch_frames: 64,
        };
        assert_eq!(plan.with_batch(64), plan);
        assert_eq!(plan.with_batch(256), plan);
        // No batch is larger than the largest one.
        for batch in [MAX_BATCH, usize::MAX] {
            let larger = plan.with_batch(batch);
            assert_eq!(
                (larger.resident_frames, larger.scratch_frames),
                (5, 64 + 768)
            );
        }
    }
}
