//! What a program asks of an interface.

use super::{AddressPrefix, Device, Transport};
use crate::port::Wait;

/// What a program wants of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Where.
    pub device: Device,
    /// Own mode: the server's addresses. Empty: shared mode, and on devices
    /// that are a wire of their own, addresses are chosen.
    pub own_addresses: Vec<AddressPrefix>,
    /// The ports that are served.
    pub services: Vec<(Transport, u16)>,
    /// Workers, each of which will serve a queue. `None`: as many as an `xdp`
    /// interface has queues, and one on a wire of the server's own; see
    /// [`QueueAccess::queues`](super::QueueAccess::queues).
    pub workers: Option<u32>,
    /// How the workers will wait.
    pub wait: Wait,
    /// What the program calls itself, at most 12 characters of an interface
    /// name: device `auto` is named after it.
    pub program: &'static str,
}

impl InterfaceConfig {
    /// Queues of a wire that is made for the server, one for each worker.
    pub(super) fn wire_queues(&self) -> u32 {
        self.workers.unwrap_or(1).max(1)
    }
}
