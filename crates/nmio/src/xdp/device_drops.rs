//! Counts packets of the packet socket that a device without a queueing discipline has dropped.
//!
//! When the kernel cuts a super-segment, such a device may drop some of the segments. The kernel does not
//! say which. But the device's own count (`tx_dropped`) grows by their number.

/// The device's count, compared from one look to the next.
#[derive(Debug)]
pub(super) struct DeviceDrops {
    /// The device's count at the last look. `None` if the device has a queueing discipline, or if the
    /// count cannot be read.
    known: Option<u64>,
    /// Number of drops since the last look that the port counts itself. It sends these packets again, or
    /// counts them as lost.
    counted_elsewhere: u64,
}

impl DeviceDrops {
    /// Starts with this count. Drops before it are not counted as lost.
    pub(super) fn new(count: Option<u64>) -> Self {
        Self {
            known: count,
            counted_elsewhere: 0,
        }
    }

    /// Returns true if the device's count is known.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Notes drops that the port counts itself.
    pub(super) fn note_counted(&mut self, drops: usize) {
        self.counted_elsewhere += drops as u64;
    }

    /// Compares the device's count with that of the last look. Returns the number of packets that the
    /// device has dropped meanwhile, and the number of those that are lost. Packets of other programs that
    /// send through the device count too.
    pub(super) fn look(&mut self, count: Option<u64>) -> [u64; 2] {
        let known = std::mem::replace(&mut self.known, count);
        let elsewhere = std::mem::take(&mut self.counted_elsewhere);
        let grown = known
            .zip(count)
            .map_or(0, |(known, count)| count.saturating_sub(known));
        [grown, grown.saturating_sub(elsewhere)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_that_the_port_counts_itself_are_not_lost_again() {
        let mut drops = DeviceDrops::new(Some(10));
        assert_eq!(drops.look(Some(10)), [0, 0]);
        drops.note_counted(2);
        assert_eq!(drops.look(Some(15)), [5, 3]);
        assert_eq!(drops.look(Some(16)), [1, 1]);
    }

    #[test]
    fn a_count_that_begins_again_is_no_loss() {
        let mut drops = DeviceDrops::new(Some(10));
        assert_eq!(drops.look(Some(1)), [0, 0]);
        assert_eq!(drops.look(Some(3)), [2, 2]);
        assert_eq!(drops.look(None), [0, 0]);
        assert!(!drops.is_known());
        assert_eq!(drops.look(Some(100)), [0, 0]);
    }
}
