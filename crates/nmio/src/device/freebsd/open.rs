//! Refuses the devices of other systems.

use crate::device::{DeviceError, Interface, InterfaceConfig, XdpOptions};

pub(in crate::device) fn open_auto(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    refuse(config)
}

pub(in crate::device) fn open_tap(
    config: &InterfaceConfig,
    _name: &str,
) -> Result<Interface, DeviceError> {
    refuse(config)
}

pub(in crate::device) fn open_xdp(
    config: &InterfaceConfig,
    _options: &XdpOptions,
) -> Result<Interface, DeviceError> {
    refuse(config)
}

fn refuse(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    Err(DeviceError::OtherSystem {
        device: config.device.to_string(),
    })
}
