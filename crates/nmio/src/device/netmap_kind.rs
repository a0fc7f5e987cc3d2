//! What the workers need to open the ring pairs of a netmap port.

use std::io;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    AddressPrefix, AnyPort, DeviceError, MemoryPlan, Monitor, NetmapOptions, NetmapTarget, Offload,
    Transport,
};
use crate::netmap::{NetmapConfig, NetmapPort};
use crate::port::Wait;
use crate::steering::{Classifier, Rules};

/// The properties of a netmap port that its workers need, in addition to those of
/// every interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NetmapKind {
    target: NetmapTarget,
    offload: Offload,
    partial_checksums: bool,
    services: Vec<(Transport, u16)>,
}

impl NetmapKind {
    pub(super) fn name(&self) -> &str {
        self.target.name()
    }

    /// Returns the properties of a port.
    pub(super) fn new(options: &NetmapOptions, services: Vec<(Transport, u16)>) -> Self {
        Self {
            target: options.target.clone(),
            offload: options.offload,
            partial_checksums: options.partial_checksums,
            services,
        }
    }

    /// Returns the name of the interface whose changes to report. `None`: there is no interface.
    fn interface(&self) -> Option<&str> {
        match &self.target {
            NetmapTarget::Interface(name) => Some(name),
            NetmapTarget::Switch(_) | NetmapTarget::Pipe(_) => None,
        }
    }

    /// Returns true if calls on the port sleep in the kernel while the interface is down. Linux's netmap
    /// does this, and no signal ends such a call.
    pub(super) fn hangs_while_down(&self) -> bool {
        cfg!(target_os = "linux") && self.interface().is_some()
    }

    /// Returns queue `index` of the port with these properties.
    pub(super) fn queue(&self, index: u32, served: &Served<'_>) -> NetmapQueue {
        NetmapQueue {
            kind: self.clone(),
            index,
            queues: served.queues,
            own: served.own,
            mac: served.mac,
            addresses: served.addresses.iter().map(|own| own.address).collect(),
        }
    }

    /// Opens a monitor of the port's interface, if it has one.
    pub(super) fn monitor(&self) -> io::Result<Option<Monitor>> {
        self.interface().map(Monitor::open).transpose()
    }
}

/// The properties of an interface on which the rules of a netmap port depend.
pub(super) struct Served<'a> {
    pub(super) queues: u32,
    pub(super) own: bool,
    pub(super) mac: [u8; 6],
    pub(super) addresses: &'a [AddressPrefix],
}

/// A ring pair of a netmap port that has not been opened yet.
pub(super) struct NetmapQueue {
    kind: NetmapKind,
    index: u32,
    queues: u32,
    own: bool,
    mac: [u8; 6],
    addresses: Vec<IpAddr>,
}

impl NetmapQueue {
    /// Binds the ring pair.
    pub(super) fn open(
        self,
        mtu: usize,
        wait: Wait,
        memory: MemoryPlan,
    ) -> Result<AnyPort, DeviceError> {
        let target = &self.kind.target;
        let rules = Rules {
            own: self.own,
            mac: self.mac,
            vlans: &[],
            addresses: &self.addresses,
            services: &self.kind.services,
        };
        let is_interface = matches!(target, NetmapTarget::Interface(_));
        let config = NetmapConfig {
            target: target.clone(),
            offload: self.kind.offload,
            partial_checksums: self.kind.partial_checksums,
            ring: self.index,
            host_rings: if is_interface { self.queues } else { 0 },
            mtu,
            classifier: is_interface.then(|| Classifier::new(&rules)),
            wait,
            memory,
        };
        NetmapPort::open(config).map(AnyPort::Netmap)
    }
}
