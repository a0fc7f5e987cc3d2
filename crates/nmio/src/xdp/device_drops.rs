//! Counts packets of the packet socket that a device without a queueing discipline has dropped.
//!
//! When the kernel cuts a super-segment, such a device may drop some of the segments. The kernel does not
//! say which. But the device's own count (`tx_dropped`) grows by their number.

/// The device's count, compared from one look to the next.
#[derive(Debug, Default)]
pub(super) struct DeviceDrops {
    /// The device's count at the last look. `None` if the device has a queueing discipline, or if the
    /// count cannot be read.
    known: Option<u64>,
    /// Number of drops since the last look that the port counts itself. It sends these packets again, or
    /// counts them as lost.
    counted_elsewhere: u64,
    /// Number of packets that are lost.
    lost: u64,
}

impl DeviceDrops {
    pub(super) fn new(count: Option<u64>) -> Self {
        Self {
            known: count,
            ..Self::default()
        }
    }

    /// Starts again with this count, for example because another device has taken the place of a removed
    /// one.
    pub(super) fn restart(&mut self, count: Option<u64>) {
        (self.known, self.counted_elsewhere) = (count, 0);
    }

    /// Returns true if the device's count is known.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Notes a drop that the port counts itself.
    pub(super) fn note_counted(&mut self) {
        self.counted_elsewhere += 1;
    }

    /// Compares the device's count with that of the last look. Returns the number of packets that the
    /// device has dropped meanwhile.
    pub(super) fn look(&mut self, count: Option<u64>) -> u64 {
        let known = std::mem::replace(&mut self.known, count);
        let elsewhere = std::mem::take(&mut self.counted_elsewhere);
        let grown = known
            .zip(count)
            .map_or(0, |(known, count)| count.saturating_sub(known));
        self.lost += grown.saturating_sub(elsewhere);
        grown
    }

    /// Returns the number of lost packets. Packets of other programs that send through the device count
    /// too.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_that_the_port_counts_itself_are_not_lost_again() {
        let mut drops = DeviceDrops::new(Some(10));
        assert_eq!(drops.look(Some(10)), 0);
        drops.note_counted();
        drops.note_counted();
        assert_eq!(drops.look(Some(15)), 5);
        assert_eq!(drops.lost(), 3);
        assert_eq!(drops.look(Some(16)), 1);
        assert_eq!(drops.lost(), 4);
    }

    #[test]
    fn a_count_that_begins_again_is_no_loss() {
        let mut drops = DeviceDrops::new(Some(10));
        drops.note_counted();
        drops.restart(Some(0));
        assert_eq!(drops.look(Some(2)), 2);
        assert_eq!(drops.look(None), 0);
        assert!(!drops.is_known());
        assert_eq!(drops.look(Some(100)), 0);
        assert_eq!(drops.lost(), 2);
    }
}
