//! Opens netmap ports.
//!
//! An interface in netmap mode no longer exchanges packets with the kernel by itself. Each worker
//! passes them on through a ring pair of the host's stack, except the packets that are the server's.

use std::io;

use super::access::{Facts, Kind};
use super::addresses::{interface_addresses, refuse_taken};
use super::lines::{Lines, join_addresses};
use super::netmap_kind::NetmapKind;
use super::random_mac::random_mac;
use super::{
    DeviceError, Interface, InterfaceConfig, Needs, NetmapOptions, NetmapTarget, Network,
    NetworkRequest, Queues, system,
};
use crate::netmap;

/// Default MTU of a port of a switch or pipe, in bytes. A larger one must suit all its peers. For
/// example, an interface that is attached to a switch would send each slot as a packet.
const VIRTUAL_MTU: u16 = 1500;

/// Opens a netmap port.
pub(super) fn open(
    config: &InterfaceConfig,
    options: &NetmapOptions,
) -> Result<Interface, DeviceError> {
    let target = &options.target;
    check_device(target)?;
    let mut lines = Lines::new();
    lines.push(("device", config.device.to_string()));
    let (network, queues) = match target {
        NetmapTarget::Interface(name) => {
            let opened = open_interface(config, name, config.served_queues()?, &mut lines)?;
            lines.push(("checksums", checksums(options).to_owned()));
            opened
        }
        NetmapTarget::Switch(_) | NetmapTarget::Pipe(_) => {
            (open_virtual(config, options, &mut lines)?, 1)
        }
    };
    let facts = Facts {
        kind: Kind::Netmap(NetmapKind::new(options, config.services.clone())),
        mac: network.mac,
        mtu: network.mtu,
        own: !config.own_addresses.is_empty(),
        addresses: network.addresses,
        queues,
        vlans: Vec::new(),
        wait: config.wait,
        summary: lines
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    };
    Ok(Interface::new(network.held, facts, Vec::new()))
}

/// Checks that this host has netmap, and that this process may use it.
fn check_device(target: &NetmapTarget) -> Result<(), DeviceError> {
    let Err(source) = netmap::open_device() else {
        return check_version(netmap::memory_info());
    };
    Err(match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            DeviceError::privileges("open the netmap device", Needs::Netmap, source)
        }
        _ => DeviceError::NoNetmap {
            device: netmap::DEVICE,
            name: target.name().to_owned(),
            source,
        },
    })
}

/// Checks that the kernel's netmap speaks the server's version of the API. `answer` is the one to a request
/// about netmap's own memory, which has no other reason to be invalid.
fn check_version(answer: io::Result<()>) -> Result<(), DeviceError> {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(DeviceError::NetmapVersion),
        // What else is wrong shows with the requests for the port.
        _ => Ok(()),
    }
}

/// Opens a port on an interface. Returns its network and the number of ring pairs to serve.
fn open_interface(
    config: &InterfaceConfig,
    name: &str,
    requested: Queues,
    lines: &mut Lines,
) -> Result<(Network, u32), DeviceError> {
    let request = NetworkRequest {
        interface: name,
        own: &config.own_addresses,
    };
    let network = system::join_network(&request, &config.services, lines)?;
    let info = netmap::port_info(name).map_err(|source| DeviceError::netmap(name, source))?;
    let (rx, tx) = (u32::from(info.nr_rx_rings), u32::from(info.nr_tx_rings));
    let queues = requested.number().unwrap_or(rx.min(tx).max(1));
    if queues > rx.min(tx) {
        return Err(DeviceError::NetmapRings {
            name: name.to_owned(),
            asked: queues,
            rx,
            tx,
        });
    }
    if queues < rx && !matches!(requested, Queues::Partial(_)) {
        return Err(DeviceError::UnservedQueues {
            interface: name.to_owned(),
            has: rx,
            served: queues,
            remedy: format!("on Linux: ethtool -L {name} combined {queues}"),
        });
    }
    lines.push(("queues", format!("{queues} of {rx}")));
    lines.push((
        "driver mode",
        "netmap does not report whether the driver has netmap support (native) or not (emulated, one \
         copy for each packet); the kernel log does"
            .to_owned(),
    ));
    lines.push((
        "other packets",
        "are exchanged with the kernel through netmap's host rings, by the workers".to_owned(),
    ));
    lines.push((
        "advice",
        format!(
            "the kernel's own packets are lost if they need an offload; on Linux, turn offloads off \
             with: ethtool -K {name} tx off tso off gso off gro off"
        ),
    ));
    Ok((network, queues))
}

/// Returns the summary's line about partial checksums.
fn checksums(options: &NetmapOptions) -> &'static str {
    if options.partial_checksums {
        "partial TCP and UDP checksums (pseudo-header only) are accepted"
    } else {
        "packets with partial TCP or UDP checksums are dropped; in emulated mode, virtual cards may \
         receive them from their own host; if so, add partial-checksums to --device"
    }
}

/// Opens a port of a switch, or one end of a pipe. It has no address, so the server needs its own.
fn open_virtual(
    config: &InterfaceConfig,
    options: &NetmapOptions,
    lines: &mut Lines,
) -> Result<Network, DeviceError> {
    if config.own_addresses.is_empty() {
        return Err(DeviceError::NetmapNeedsAddress {
            name: options.target.name().to_owned(),
        });
    }
    refuse_taken(&config.own_addresses, &interface_addresses()?)?;
    let addresses = config.own_addresses.clone();
    lines.push((
        "addresses",
        format!("{} (the server's own)", join_addresses(&addresses)),
    ));
    Ok(Network {
        mac: random_mac(),
        mtu: options.mtu.unwrap_or(VIRTUAL_MTU).into(),
        addresses,
        held: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_invalid_request_shows_another_version_of_the_api() {
        let answer = |errno| check_version(Err(io::Error::from_raw_os_error(errno)));
        let message = answer(libc::EINVAL).unwrap_err().to_string();
        assert!(message.contains("version 14 of its API"), "{message}");
        assert!(answer(libc::ENOMEM).is_ok());
        assert!(check_version(Ok(())).is_ok());
    }
}
