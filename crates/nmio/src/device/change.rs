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
    /// An address was added to the interface.
    AddressAdded(IpAddr),
    /// An address was removed from the interface.
    AddressRemoved(IpAddr),
    /// The kernel dropped messages about changes, because the monitor's receive buffer was full.
    Missed,
}
