//! Checks the server's own addresses.

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

/// Returns an error if an address occurs twice, even with different prefix lengths, because an
/// address belongs to only one network.
pub(super) fn refuse_duplicates(own: &[AddressPrefix]) -> Result<(), DeviceError> {
    for (at, one) in own.iter().enumerate() {
        if own[..at].iter().any(|before| before.address == one.address) {
            return Err(DeviceError::DuplicateAddress {
                address: one.address,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn duplicate_addresses_are_refused() {
        let refuse = |texts: &[&str]| {
            let own: Vec<_> = texts.iter().map(|text| prefix(text)).collect();
            refuse_duplicates(&own).map_err(|error| error.to_string())
        };
        let twice = "--address 10.7.0.2 is given twice; leave one out";
        for second in ["10.7.0.2/24", "10.7.0.2/16"] {
            let own = ["10.7.0.2/24", "fd00::2/64", second];
            assert_eq!(refuse(&own), Err(twice.into()));
        }
        assert_eq!(refuse(&["10.7.0.2/24", "10.7.0.3/24"]), Ok(()));
    }
}
