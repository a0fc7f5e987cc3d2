//! The configuration of an interface.

use super::{AddressPrefix, Device, Transport};
use crate::port::Wait;

/// The configuration with which a program opens an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// The device to open.
    pub device: Device,
    /// The server's own addresses. If the list is empty, an existing interface is used in shared
    /// mode. A link created for the server gets addresses that this host does not use.
    pub own_addresses: Vec<AddressPrefix>,
    /// The ports to serve.
    pub services: Vec<(Transport, u16)>,
    /// Number of workers, each with its own queue. `None`: one worker per queue of an `xdp`
    /// interface, or one worker for a link created for the server. See
    /// [`QueueAccess::queues`](super::QueueAccess::queues).
    pub workers: Option<u32>,
    /// How the workers wait for packets.
    pub wait: Wait,
    /// The program's name. Device `auto` uses it as the start of the interface's name. It must have
    /// at most 12 characters, all valid in an interface name.
    pub program: &'static str,
}

impl InterfaceConfig {
    /// Returns the number of queues of a link created for the server: one for each worker.
    pub(super) fn wire_queues(&self) -> u32 {
        self.workers.unwrap_or(1).max(1)
    }
}
