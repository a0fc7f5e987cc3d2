//! What a program requests from an interface.

use super::{AddressPrefix, Device, Transport};
use crate::port::Wait;

/// What a program requests when it opens an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// The device to open.
    pub device: Device,
    /// The server's own addresses. If empty, an existing interface is in shared mode, and a link
    /// created for the server gets free addresses.
    pub own_addresses: Vec<AddressPrefix>,
    /// The ports to serve.
    pub services: Vec<(Transport, u16)>,
    /// Number of workers, each with its own queue. `None`: one worker per queue of an `xdp`
    /// interface, or one worker on a created link. See
    /// [`QueueAccess::queues`](super::QueueAccess::queues).
    pub workers: Option<u32>,
    /// How the workers wait for packets.
    pub wait: Wait,
    /// The program's name, at most 12 characters valid in an interface name. Device `auto` names
    /// its interface after it.
    pub program: &'static str,
}

impl InterfaceConfig {
    /// Number of queues of a link created for the server: one for each worker.
    pub(super) fn wire_queues(&self) -> u32 {
        self.workers.unwrap_or(1).max(1)
    }
}
