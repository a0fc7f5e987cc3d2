//! An interface that is ready to be served.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::AddressPrefix;
use super::access::{Facts, Kind, QueueAccess};
use super::namespace::Namespace;
use super::napi::PolledQueues;
use super::pair::VethPair;
use super::pfifo::Pfifo;
use super::ready::{XdpReady, XdpRequest};
use crate::port::Wait;
use crate::xdp::steer::Steering;

/// An interface that is ready to be served. If it uses XDP, the steering program is attached, and
/// in shared mode the served ports are reserved.
///
/// Dropping the interface undoes all of this, and removes the devices that were created for it. A
/// tap device is removed only when its ports are dropped too. An interface dereferences to its
/// [`QueueAccess`], which describes it and opens its queues.
pub struct Interface {
    // Fields drop in this order. First the interrupts are restored and the steering program is
    // detached. Then the ports and multicast groups are released. Last, the packet queue, the veth
    // pair or the tap device is removed.
    polled: Option<PolledQueues>,
    _steering: Option<Steering>,
    _held: Vec<OwnedFd>,
    pfifo: Option<Pfifo>,
    wire: Option<VethPair>,
    access: QueueAccess,
}

impl Deref for Interface {
    type Target = QueueAccess;

    fn deref(&self) -> &QueueAccess {
        &self.access
    }
}

impl Interface {
    pub(super) fn from_xdp(ready: XdpReady, request: &XdpRequest<'_>) -> Self {
        let xsks = ready.steering.xsks();
        let summary = ready.lines.into_iter();
        let facts = Facts {
            kind: Kind::Xdp {
                interface: request.interface.to_owned(),
                generic: request.generic,
                partial_checksums: request.partial_checksums,
                offload: request.offload,
                napis: ready
                    .polled
                    .as_ref()
                    .map_or_else(Vec::new, PolledQueues::ids),
            },
            mac: ready.mac,
            mtu: ready.mtu,
            own: !request.own.is_empty(),
            addresses: ready.addresses,
            queues: ready.queues,
            vlans: request.vlans.to_vec(),
            wait: request.wait,
            summary: summary
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        Self {
            polled: ready.polled,
            _steering: Some(ready.steering),
            _held: ready.open_sockets,
            pfifo: ready.pfifo,
            wire: None,
            access: QueueAccess::new(facts, vec![xsks]),
        }
    }

    pub(super) fn from_tap(
        name: String,
        queues: Vec<Arc<OwnedFd>>,
        mtu: usize,
        addresses: Vec<AddressPrefix>,
        wait: Wait,
    ) -> Self {
        let facts = Facts {
            kind: Kind::Tap { name },
            mac: random_mac(),
            mtu,
            own: true,
            addresses,
            queues: queues.len() as u32,
            vlans: Vec::new(),
            wait,
            summary: Vec::new(),
        };
        Self {
            polled: None,
            _steering: None,
            _held: Vec::new(),
            pfifo: None,
            wire: None,
            access: QueueAccess::new(facts, queues),
        }
    }

    /// Records that the interface is the server's end of `pair`, and is in `namespace`.
    pub(super) fn on_pair(mut self, pair: VethPair, namespace: &Namespace) -> Self {
        self.access.set_namespace(namespace);
        self.wire = Some(pair);
        self
    }

    pub(super) fn add_line(&mut self, name: &str, value: String) {
        self.access.add_line(name, value);
    }

    pub(super) fn set_device_line(&mut self, value: String) {
        self.access.set_device_line(value);
    }

    /// Returns true if dropping the interface needs `CAP_NET_ADMIN`: to remove a veth pair or a
    /// packet queue, or to restore the interrupts of polled queues.
    pub fn needs_removal(&self) -> bool {
        self.wire.is_some() || self.pfifo.is_some() || self.polled.is_some()
    }
}

/// Returns a random Ethernet address. The lowest two bits of its first byte say that it is a
/// locally administered unicast address (IEEE 802).
fn random_mac() -> [u8; 6] {
    let mut mac = [0; 6];
    fastrand::Rng::new().fill(&mut mac);
    mac[0] = mac[0] & 0xfc | 0x02;
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceError, QueueSource};

    #[test]
    fn queues_can_be_moved_to_their_threads() {
        fn is_send<T: Send>() {}
        is_send::<Interface>();
        is_send::<QueueSource>();
        is_send::<DeviceError>();
    }

    #[test]
    fn random_mac_addresses_are_local_and_unicast() {
        for _ in 0..100 {
            assert_eq!(random_mac()[0] & 0x03, 0x02);
        }
    }
}
