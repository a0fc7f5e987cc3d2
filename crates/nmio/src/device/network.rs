//! What serving an interface means for its network.

use std::os::fd::OwnedFd;

use super::AddressPrefix;

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
    /// Descriptors that must stay open, because they reserve the served ports or keep the multicast
    /// groups joined.
    pub(super) sockets: Vec<OwnedFd>,
}
