//! What a netmap port on an interface needs of Linux.

use super::held::Held;
use super::network::{self, Link};
use super::replaced_queue::ReplacedQueue;
use crate::device::current_addresses::distinct;
use crate::device::lines::Lines;
use crate::device::{DeviceError, Network, NetworkRequest, Transport};
use crate::sys::Control;

/// Finds out what the interface is in its network, and keeps the served ports or multicast groups
/// for the server.
pub(in crate::device) fn join_network(
    request: &NetworkRequest<'_>,
    services: &[(Transport, u16)],
    lines: &mut Lines,
) -> Result<Network, DeviceError> {
    let control = Control::new().map_err(DeviceError::set_up("query interfaces"))?;
    let link = Link::of(&control, request.interface)?;
    lines.push(link.line(request.interface));
    let networks = network::find_addresses(request, &link, lines)?;
    let sockets = network::hold(request, services, &link, &distinct(&networks), lines)?;
    let held = Held {
        sockets,
        replaced: Some(ReplacedQueue::expect(request.interface, link.index)?),
        ..Held::default()
    };
    Ok(Network {
        mac: link.mac,
        mtu: link.mtu,
        addresses: networks,
        held: Some(held),
    })
}
