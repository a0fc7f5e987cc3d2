//! What serving an interface means for its network.

use super::{AddressPrefix, system};

/// The interface to serve, and the addresses to serve on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkRequest<'a> {
    pub(super) interface: &'a str,
    /// The server's own addresses; empty in shared mode.
    pub(super) own: &'a [AddressPrefix],
}

/// An interface as a part of its network.
pub(super) struct Network {
    pub(super) mac: [u8; 6],
    pub(super) mtu: usize,
    /// The served addresses.
    pub(super) addresses: Vec<AddressPrefix>,
    /// What the interface keeps open, and undoes at the end.
    pub(super) held: Option<system::Held>,
}
