//! Chooses the level of the fill ring: the number of frames that it should hold. The level is low
//! while the worker keeps up, and the ring is full after a burst.
//!
//! The kernel uses the frames in the ring round-robin. If there are few, most of them stay in the
//! processor's cache. If there are many, even a large burst finds enough frames while the worker is
//! not running, so no packets are lost.
//!
//! A burst that uses more than three quarters of the frames of the low level raises the level. After
//! `CALM_FRAMES` received frames without another burst, the level falls. Something that has held up the
//! worker once, such as the host of a virtual machine, is likely to do so again. If the RX ring does not
//! become empty for `OVERLOAD_FRAMES`, the level falls too. Under such an overload, more frames would
//! only delay each packet.

/// Number of slots in the fill ring. This is also the level after a burst.
pub(super) const FILL_RING: u32 = 8192;
/// The level otherwise, in frames. They last 10 ms at 400,000 frames a second.
const LOW_LEVEL: u32 = 4096;
/// More frames than this, used when the worker comes to refill the ring, are a burst.
const BURST: u32 = LOW_LEVEL / 4 * 3;
/// The level falls when this many frames have been received since the last burst: half a minute at
/// 280,000 frames a second.
const CALM_FRAMES: u32 = 1_024 * FILL_RING;
/// The level falls when this many frames of one burst have been received.
const OVERLOAD_FRAMES: u32 = 64 * FILL_RING;

/// The level of the fill ring, and the state that controls it.
#[derive(Debug)]
pub(super) struct FillLevel {
    frames: u32,
    /// Whether the RX ring has been empty since the last burst.
    drained: bool,
    /// Number of frames received since the last burst.
    since_burst: u32,
}

impl FillLevel {
    /// Creates the state with the low level.
    pub(super) const fn new() -> Self {
        Self {
            frames: LOW_LEVEL,
            drained: true,
            since_burst: 0,
        }
    }

    /// Returns the number of frames that the fill ring should hold.
    #[inline(always)]
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    /// Updates the level after a read of the RX ring.
    ///
    /// `received` is the number of frames that the read returned, and `remaining` is the number of
    /// frames in the fill ring now. `more` is true if more frames may wait in the RX ring.
    #[inline(always)]
    pub(super) fn update(&mut self, received: u32, more: bool, remaining: u32) {
        self.since_burst = self.since_burst.saturating_add(received);
        if self.drained && remaining + BURST < self.frames {
            *self = Self {
                frames: FILL_RING,
                drained: false,
                since_burst: 0,
            };
        }
        self.drained |= !more;
        let limit = if self.drained {
            CALM_FRAMES
        } else {
            OVERLOAD_FRAMES
        };
        if self.since_burst >= limit {
            self.frames = LOW_LEVEL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: u32 = 64;

    #[test]
    fn a_burst_raises_the_fill_level_until_a_long_calm() {
        let mut level = FillLevel::new();
        level.update(BATCH, true, LOW_LEVEL - BURST);
        assert_eq!(level.frames(), LOW_LEVEL, "a quarter of the frames is left");
        level.update(BATCH, true, LOW_LEVEL - BURST - 1);
        assert_eq!(level.frames(), FILL_RING);
        for _ in 1..CALM_FRAMES / BATCH {
            level.update(BATCH, false, FILL_RING - BURST);
            assert_eq!(level.frames(), FILL_RING);
        }
        level.update(BATCH, false, FILL_RING - BURST);
        assert_eq!(level.frames(), LOW_LEVEL);
    }

    #[test]
    fn a_burst_that_the_low_level_could_not_take_keeps_the_fill_level_high() {
        let mut level = FillLevel::new();
        level.update(BATCH, true, 0);
        level.update(CALM_FRAMES - BATCH - 1, false, FILL_RING);
        level.update(BATCH, true, FILL_RING - BURST - 1);
        level.update(CALM_FRAMES - 1, false, FILL_RING);
        assert_eq!(level.frames(), FILL_RING);
    }

    #[test]
    fn a_queue_that_never_drains_is_one_burst() {
        let mut level = FillLevel::new();
        level.update(BATCH, true, 0);
        for _ in 1..OVERLOAD_FRAMES / BATCH {
            level.update(BATCH, true, 0);
            assert_eq!(level.frames(), FILL_RING);
        }
        level.update(BATCH, true, 0);
        assert_eq!(level.frames(), LOW_LEVEL);
        level.update(BATCH, true, 0);
        assert_eq!(level.frames(), LOW_LEVEL, "still the same burst");
        level.update(BATCH - 1, false, 0);
        level.update(BATCH, true, 0);
        assert_eq!(level.frames(), FILL_RING, "another burst");
    }
}
