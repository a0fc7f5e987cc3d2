//! An interface that is ready to be served.

#[cfg(target_os = "linux")]
mod summary;

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::access::{Facts, QueueAccess};
use super::system;

/// An interface that is ready to be served. If it uses XDP, the steering program is attached, and
/// in shared mode the served ports are reserved.
///
/// Dropping the interface undoes all of this, and removes the devices that were created for it. A
/// tap device is removed only when its ports are dropped too. An interface dereferences to its
/// [`QueueAccess`], which describes it and opens its queues.
pub struct Interface {
    // Drops before the access, whose descriptors keep a network namespace or a tap device alive.
    held: Option<system::Held>,
    /// Descriptors that reserve the served ports or keep multicast groups joined.
    #[allow(dead_code)] // they only have to stay open
    sockets: Vec<OwnedFd>,
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
            sockets: Vec::new(),
            access: QueueAccess::new(facts, descriptors),
        }
    }

    /// Keeps `sockets` open until the interface is dropped.
    pub(super) fn holding(mut self, sockets: Vec<OwnedFd>) -> Self {
        self.sockets = sockets;
        self
    }

    /// Returns true if dropping the interface needs `CAP_NET_ADMIN`: to remove a veth pair or a
    /// packet queue, or to restore the interrupts of polled queues.
    pub fn needs_removal(&self) -> bool {
        self.held.as_ref().is_some_and(system::Held::needs_removal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceError, QueueSource};

    #[test]
    fn queues_can_be_moved_to_their_threads() {
        fn is_send<T: Send>() {}
        is_send::<Interface>();
        is_send::<QueueSource>();
        is_send::<DeviceError>();
    }
}
