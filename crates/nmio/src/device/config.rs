//! The configuration of an interface.

use super::addresses::duplicates;
use super::{AddressPrefix, Device, DeviceError, MAX_QUEUES, NetmapTarget, Queues, Transport};
use crate::port::Wait;

/// Maximum number of served addresses. Must equal `MAX_ADDRESSES` in `bpf/steer.bpf.c`.
pub(crate) const MAX_ADDRESSES: usize = 256;
/// Maximum number of served ports. Must equal `MAX_SERVICES` in `bpf/steer.bpf.c`.
pub(crate) const MAX_SERVICES: usize = 256;

/// The configuration with which a program opens an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// The device to open.
    pub device: Device,
    /// The server's own addresses. An existing tap device needs at least one.
    ///
    /// Without own addresses, device `xdp` is served in shared mode, and a link that the server
    /// creates gets addresses that this host does not use.
    pub own_addresses: Vec<AddressPrefix>,
    /// The TCP and UDP ports to serve.
    pub services: Vec<(Transport, u16)>,
    /// Number of workers, each with its own queue. `None`: one worker per served queue of an `xdp`
    /// interface, or a single worker for `auto` and `tap`.
    /// [`QueueAccess::queues`](super::QueueAccess::queues) returns the actual number.
    pub workers: Option<u32>,
    /// How the workers wait for packets.
    pub wait: Wait,
    /// The program's name. Device `auto` uses it as the start of the interface's name. The
    /// program's name must be at most 12 bytes long, with characters that are valid in an interface
    /// name.
    pub program: &'static str,
}

impl InterfaceConfig {
    /// Checks the configuration as far as that needs no device. Returns a [`DeviceError`] for each address
    /// that is given twice, and if there are too many addresses, ports or queues. Also if the numbers of
    /// workers and queues differ.
    #[must_use]
    pub fn check(&self) -> Vec<DeviceError> {
        let (addresses, ports) = (self.own_addresses.len(), self.services.len());
        let counts = [
            ("addresses", addresses, MAX_ADDRESSES),
            ("ports", ports, MAX_SERVICES),
            ("queues", self.wire_queues() as usize, MAX_QUEUES as usize),
        ];
        let counts = counts.into_iter();
        let counts =
            counts.filter_map(|(what, n, most)| DeviceError::check_count(what, n, most).err());
        let queues = self.served_queues().err();
        let twice = duplicates(&self.own_addresses);
        twice.into_iter().chain(counts).chain(queues).collect()
    }

    /// Returns which queues of the device the workers serve.
    pub(super) fn served_queues(&self) -> Result<Queues, DeviceError> {
        match &self.device {
            Device::Auto | Device::Tap { .. } => Ok(Queues::Exactly(self.wire_queues())),
            Device::Xdp(options) => options.queues.for_workers(self.workers),
            Device::Netmap(options) => match options.target {
                NetmapTarget::Interface(_) => options.queues.for_workers(self.workers),
                NetmapTarget::Switch(_) | NetmapTarget::Pipe(_) => {
                    Queues::Exactly(1).for_workers(self.workers)
                }
            },
        }
    }

    /// Returns the number of queues of device `auto` or `tap`: one for each worker.
    pub(super) fn wire_queues(&self) -> u32 {
        self.workers.unwrap_or(1).max(1)
    }
}
