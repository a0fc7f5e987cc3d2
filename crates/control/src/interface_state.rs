//! What is known of the interface, for the endpoints.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nmio::device::QueueAccess;

use crate::status::InterfaceStatus;

/// The names of all changes, for metrics.
pub(crate) const NAMES: [&str; 12] = [
    "up",
    "down",
    "carrier",
    "no carrier",
    "MAC address",
    "MTU",
    "name",
    "address added",
    "address removed",
    "removed",
    "returned",
    "missed",
];

/// The interface as the control thread last saw it. All threads may read it.
#[derive(Debug, Default)]
pub(crate) struct InterfaceState {
    status: Mutex<InterfaceStatus>,
}

impl InterfaceState {
    /// Creates the state of an open interface.
    pub(crate) fn of(interface: &QueueAccess) -> Self {
        let addresses = interface.addresses().iter().map(|one| one.address);
        let status = InterfaceStatus {
            name: interface.name().to_owned(),
            is_present: true,
            is_up: true,
            addresses: addresses.map(|address| address.to_string()).collect(),
            refused: Vec::new(),
            changes: NAMES.map(|name| (name.to_owned(), 0)).into(),
        };
        Self {
            status: status.into(),
        }
    }

    /// Returns a copy of the state.
    pub(crate) fn read(&self) -> InterfaceStatus {
        self.lock().clone()
    }

    /// Changes the state.
    pub(crate) fn change(&self, change: impl FnOnce(&mut InterfaceStatus)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, InterfaceStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
