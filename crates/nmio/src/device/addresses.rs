//! Checks the server's own addresses.

use std::collections::HashSet;

use super::{AddressPrefix, DeviceError};
use crate::sys::{self, InterfaceAddress};

/// Returns the addresses of all interfaces in the calling thread's network namespace.
pub(super) fn interface_addresses() -> Result<Vec<InterfaceAddress>, DeviceError> {
    let (_, addresses) = sys::interfaces().map_err(DeviceError::set_up("list addresses"))?;
    Ok(addresses)
}

/// Returns an error if this host already has one of the server's addresses.
pub(super) fn refuse_taken(
    own: &[AddressPrefix],
    in_use: &[InterfaceAddress],
) -> Result<(), DeviceError> {
    let conflict = in_use
        .iter()
        .find(|used| own.iter().any(|own| own.address == used.address));
    match conflict {
        None => Ok(()),
        Some(conflict) => Err(DeviceError::AddressTaken {
            address: conflict.address,
            interface: conflict.interface.clone(),
        }),
    }
}

/// Returns an error for each address that occurs again, even with another prefix length, because an
/// address belongs to only one network.
pub(super) fn duplicates(own: &[AddressPrefix]) -> Vec<DeviceError> {
    let mut known = HashSet::new();
    let addresses = own.iter().map(|one| one.address).enumerate();
    let again = addresses.filter(|(_, address)| !known.insert(*address));
    let errors = again.map(|(index, address)| DeviceError::DuplicateAddress { address, index });
    errors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn duplicate_addresses_are_refused() {
        let refused = |texts: &[&str]| {
            let own: Vec<_> = texts.iter().map(|text| prefix(text)).collect();
            let errors = duplicates(&own).into_iter();
            errors.map(|error| error.to_string()).collect::<Vec<_>>()
        };
        let twice = |address| format!("--address {address} is given twice; leave one out");
        for second in ["10.7.0.2/24", "10.7.0.2/16"] {
            let own = ["10.7.0.2/24", "fd00::2/64", second, "fd00::2/80"];
            assert_eq!(refused(&own), [twice("10.7.0.2"), twice("fd00::2")]);
        }
        assert!(refused(&["10.7.0.2/24", "10.7.0.3/24"]).is_empty());
        let own = [prefix("10.7.0.2/24"); 3];
        let index = |error: &DeviceError| match error {
            DeviceError::DuplicateAddress { index, .. } => Some(*index),
            _ => None,
        };
        let found: Vec<_> = duplicates(&own).iter().filter_map(index).collect();
        assert_eq!(found, [1, 2]);
    }
}
