//! Opens the devices that only Linux has.

use super::ready::{XdpReady, XdpRequest};
use super::{auto, opened};
use crate::device::{DeviceError, Interface, InterfaceConfig, NetworkRequest, XdpOptions};

/// The summary's advice for a veth interface that drops packets with partial checksums.
const VETH_CHECKSUMS: &str = "packets with partial TCP or UDP checksums are dropped; if the peer \
    offloads checksums (see: ethtool -k PEER), turn that off with: ethtool -K PEER tx off, or add \
    partial-checksums to --device";

/// Opens device `auto`.
pub(in crate::device) fn open_auto(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    auto::open(config)
}

/// Opens a tap device.
pub(in crate::device) fn open_tap(
    config: &InterfaceConfig,
    name: &str,
) -> Result<Interface, DeviceError> {
    auto::open_named_tap(config, name)
}

/// Opens an interface for `AF_XDP`.
pub(in crate::device) fn open_xdp(
    config: &InterfaceConfig,
    options: &XdpOptions,
) -> Result<Interface, DeviceError> {
    let request = XdpRequest {
        network: NetworkRequest {
            interface: &options.interface,
            own: &config.own_addresses,
        },
        services: &config.services,
        options,
        queues: config.served_queues()?,
        wait: config.wait,
    };
    let ready = XdpReady::open(&request)?;
    let is_veth = ready.is_veth;
    let mut interface = opened::xdp(ready, &request, None);
    interface.set_device_line(config.device.to_string());
    if is_veth && !options.partial_checksums {
        interface.add_line("checksums", VETH_CHECKSUMS.to_owned());
    }
    Ok(interface)
}
