//! What a netmap port on an interface needs of FreeBSD.

use crate::device::addresses::{interface_addresses, refuse_taken};
use crate::device::lines::{Lines, join_addresses};
use crate::device::{DeviceError, Network, NetworkRequest, Transport};
use crate::sys;

/// Finds out what the interface is in its network. The server needs addresses of its own.
pub(in crate::device) fn join_network(
    request: &NetworkRequest<'_>,
    _services: &[(Transport, u16)],
    lines: &mut Lines,
) -> Result<Network, DeviceError> {
    let name = request.interface;
    let link = sys::link(name).map_err(|_| DeviceError::unknown_interface(name))?;
    if !link.is_up {
        return Err(DeviceError::InterfaceDown {
            name: name.to_owned(),
        });
    }
    let Some(mac) = link.mac else {
        return Err(DeviceError::NotEthernet {
            name: name.to_owned(),
        });
    };
    if request.own.is_empty() {
        return Err(DeviceError::SharedAddresses {
            interface: name.to_owned(),
        });
    }
    refuse_taken(request.own, &interface_addresses()?)?;
    lines.push((
        "addresses",
        format!("{} (the server's own)", join_addresses(request.own)),
    ));
    if request.own.iter().any(|own| own.address.is_ipv6()) {
        lines.push((
            "advice",
            format!(
                "the card may filter the multicast packets of neighbour discovery; if IPv6 clients \
                 cannot reach the server, run: ifconfig {name} promisc"
            ),
        ));
    }
    Ok(Network {
        mac,
        mtu: link.mtu,
        addresses: request.own.to_vec(),
        held: None,
    })
}
