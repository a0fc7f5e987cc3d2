//! What is known of the interface, for the endpoints.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nmio::device::QueueAccess;

use crate::place::Place;
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
    places: Mutex<Vec<Place>>,
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
            not_reopened: None,
            listening: Vec::new(),
            changes: NAMES.map(|name| (name.to_owned(), 0)).into(),
        };
        Self {
            status: status.into(),
            places: Mutex::default(),
        }
    }

    /// Notes where the programs and sites are served.
    pub(crate) fn note_places(&self, places: Vec<Place>) {
        *self.places() = places;
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of the state.
    pub(crate) fn read(&self) -> InterfaceStatus {
        let mut status = self.lock().clone();
        let addresses = status.addresses.iter();
        let served: Vec<IpAddr> = addresses.filter_map(|one| one.parse().ok()).collect();
        let places = self.places();
        status.listening = places.iter().map(|place| place.among(&served)).collect();
        drop(places);
        status
    }

    /// Changes the state.
    pub(crate) fn change(&self, change: impl FnOnce(&mut InterfaceStatus)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, InterfaceStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
