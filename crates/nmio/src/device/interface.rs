//! An interface that is ready to be served.

#[cfg(target_os = "linux")]
mod summary;

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::access::{Facts, QueueAccess};
use super::{CurrentAddresses, DeviceError, system};

/// An interface that is ready to be served. If it uses XDP, the steering program is attached, and
/// in shared mode the served ports are reserved.
///
/// Dropping the interface undoes all of this, and removes the devices that were created for it. A
/// tap device is removed only when its ports are dropped too. An interface dereferences to its
/// [`QueueAccess`], which describes it and opens its queues.
pub struct Interface {
    // Drops before the access, whose descriptors keep a network namespace or a tap device alive.
    held: Option<system::Held>,
    access: QueueAccess,
}

impl Deref for Interface {
    type Target = QueueAccess;

    fn deref(&self) -> &QueueAccess {
        &self.access
    }
}

impl Interface {
    pub(super) fn new(
        held: Option<system::Held>,
        facts: Facts,
        descriptors: Vec<Arc<OwnedFd>>,
    ) -> Self {
        Self {
            held,
            access: QueueAccess::new(facts, descriptors),
        }
    }

    /// Returns true if dropping the interface needs `CAP_NET_ADMIN`. It is needed to remove a veth
    /// pair, for packet queues, and for the interrupts of polled queues.
    pub fn needs_removal(&self) -> bool {
        self.held.as_ref().is_some_and(system::Held::needs_removal)
    }

    /// Makes the steering program and the reserved ports follow the addresses that the interface has
    /// now. Call this method after a [`Change`](super::Change) of the addresses or the MAC address. A
    /// server with its own addresses only follows the MAC address. Returns `None` unless
    /// [`QueueAccess::can_follow_addresses`] or [`QueueAccess::can_follow_mac`].
    ///
    /// This needs `CAP_NET_BIND_SERVICE` if a port is below 1024. On Linux before 5.19 it also needs
    /// `CAP_BPF`.
    ///
    /// # Errors
    /// If the kernel refuses to tell the addresses or to change the steering program.
    pub fn follow_addresses(&mut self) -> Option<Result<CurrentAddresses, DeviceError>> {
        self.held.as_mut()?.follow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::QueueSource;

    #[test]
    fn queues_can_be_moved_to_their_threads() {
        fn is_send<T: Send>() {}
        is_send::<Interface>();
        is_send::<QueueSource>();
        is_send::<DeviceError>();
    }
}
