//! Makes an interface of a device that is ready.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::held::Held;
use super::kind::Kind;
use super::namespace::Namespace;
use super::napi::PolledQueues;
use super::pair::VethPair;
use super::ready::{XdpReady, XdpRequest};
use crate::device::access::{self, Facts};
use crate::device::random_mac::random_mac;
use crate::device::{AddressPrefix, Interface};
use crate::port::Wait;

/// Returns the interface of an `AF_XDP` device. `wire` is the veth pair of which the device is the
/// server's end, and the namespace in which the device is.
pub(super) fn xdp(
    ready: XdpReady,
    request: &XdpRequest<'_>,
    wire: Option<(VethPair, &Namespace)>,
) -> Interface {
    let (wire, namespace) = wire.unzip();
    let mut descriptors: Vec<_> = namespace.map(Namespace::handle).into_iter().collect();
    descriptors.extend(ready.queue_sockets);
    let kind = Kind::Xdp {
        options: request.options.clone(),
        has_namespace: namespace.is_some(),
        index: ready.index,
        napis: ready
            .polled
            .as_ref()
            .map_or_else(Vec::new, PolledQueues::ids),
    };
    let summary = ready.lines.into_iter();
    let facts = Facts {
        kind: access::Kind::System(kind),
        mac: ready.mac,
        mtu: ready.mtu,
        own: !request.network.own.is_empty(),
        addresses: ready.addresses,
        queues: ready.queues,
        vlans: request.options.vlans.clone(),
        wait: request.wait,
        summary: summary
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    };
    let held = Held {
        polled: ready.polled,
        steering: Some(ready.steering),
        offloads: ready.offloads,
        sockets: ready.open_sockets,
        // Nobody else changes an interface in the server's own namespace.
        followed: ready.followed.filter(|_| namespace.is_none()),
        pfifo: ready.pfifo,
        wire,
        replaced: None,
    };
    Interface::new(Some(held), facts, descriptors)
}

/// Returns the interface of a tap device. `queues` has one descriptor for each queue. The device is
/// removed when the interface and its ports are dropped.
pub(super) fn tap(
    name: String,
    queues: Vec<Arc<OwnedFd>>,
    mtu: usize,
    addresses: Vec<AddressPrefix>,
    wait: Wait,
) -> Interface {
    let facts = Facts {
        kind: access::Kind::System(Kind::Tap { name }),
        mac: random_mac(),
        mtu,
        own: true,
        addresses,
        queues: queues.len() as u32,
        vlans: Vec::new(),
        wait,
        summary: Vec::new(),
    };
    Interface::new(None, facts, queues)
}
