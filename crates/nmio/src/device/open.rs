//! Opens an interface from its configuration.

use super::{Device, DeviceError, Interface, InterfaceConfig, netmap, system};

impl Interface {
    /// Opens the configured interface and makes it ready to be served.
    ///
    /// # Errors
    /// A [`DeviceError`]. If opening fails, everything that was created is removed again.
    pub fn open(config: &InterfaceConfig) -> Result<Self, DeviceError> {
        if let Some(error) = config.check().into_iter().next() {
            return Err(error);
        }
        match &config.device {
            Device::Auto => system::open_auto(config),
            Device::Tap { name } => system::open_tap(config, name),
            Device::Xdp(options) => system::open_xdp(config, options),
            Device::Netmap(options) => netmap::open(config, options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Wait;

    #[test]
    fn a_duplicate_address_prevents_opening() {
        let own = ["10.7.0.2/24", "10.7.0.2/16"];
        let config = InterfaceConfig {
            device: "tap:nmio-none".parse().unwrap(),
            own_addresses: own.iter().map(|own| own.parse().unwrap()).collect(),
            services: Vec::new(),
            workers: None,
            wait: Wait::default(),
            program: "test",
        };
        let error = Interface::open(&config).err().unwrap();
        assert!(
            matches!(error, DeviceError::DuplicateAddress { .. }),
            "{error}"
        );
    }
}
