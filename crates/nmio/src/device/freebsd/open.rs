//! Refuses the devices of other systems.

use crate::device::{DeviceError, Interface, InterfaceConfig};

/// Refuses a device that only another operating system has.
pub(in crate::device) fn open(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    Err(DeviceError::OtherSystem {
        device: config.device.to_string(),
    })
}
