//! Changes of an interface while it is served.

use std::net::IpAddr;

/// A change of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The interface was brought up, with or without a carrier.
    Up,
    /// The interface was brought down.
    Down,
    /// The interface stayed up, and its link gained a carrier.
    Carrier,
    /// The interface stayed up, but its link lost the carrier.
    NoCarrier,
    /// The interface has a new MAC address.
    Mac([u8; 6]),
    /// Packets on the interface have at most this number of bytes now, without the Ethernet header.
    Mtu(u32),
    /// The interface has another name.
    Renamed,
    /// An address was added to the interface.
    AddressAdded(IpAddr),
    /// An address was removed from the interface.
    AddressRemoved(IpAddr),
    /// The interface was removed from the network namespace.
    Removed,
    /// An interface with the name of the removed one exists.
    Returned,
    /// The kernel dropped messages about changes, because the monitor's receive buffer was full. The
    /// removal and the return of the interface are reported nevertheless, before this change.
    Missed,
}

/// Maximum number of remembered addresses. When this number is reached, a new address is reported
/// each time that the kernel announces it.
const MAX_ADDRESSES: usize = 1024;

/// The last known state of an interface.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) is_up: bool,
    pub(super) has_carrier: bool,
    pub(super) addresses: Vec<IpAddr>,
}

impl State {
    /// Updates the state of the link. Returns the change, or `None` if nothing is new.
    pub(super) fn set_link(&mut self, is_up: bool, has_carrier: bool) -> Option<Change> {
        let was = (self.is_up, self.has_carrier);
        (self.is_up, self.has_carrier) = (is_up, has_carrier);
        match (was, (is_up, has_carrier)) {
            ((true, _), (false, _)) => Some(Change::Down),
            ((false, _), (true, _)) => Some(Change::Up),
            ((true, true), (true, false)) => Some(Change::NoCarrier),
            ((true, false), (true, true)) => Some(Change::Carrier),
            _ => None,
        }
    }

    /// Adds or removes an address. Returns the change, or `None` if nothing is new.
    pub(super) fn set_address(&mut self, address: IpAddr, added: bool) -> Option<Change> {
        let known = self.addresses.iter().position(|known| *known == address);
        match (known, added) {
            // The kernel repeats an address when its lifetime or state changes.
            (Some(_), true) => None,
            (None, true) => {
                if self.addresses.len() < MAX_ADDRESSES {
                    self.addresses.push(address);
                }
                Some(Change::AddressAdded(address))
            }
            (Some(at), false) => {
                self.addresses.swap_remove(at);
                Some(Change::AddressRemoved(address))
            }
            (None, false) => Some(Change::AddressRemoved(address)),
        }
    }
}
