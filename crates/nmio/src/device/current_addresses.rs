//! The addresses of an interface after a change.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::AddressPrefix;

/// The addresses of an interface after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentAddresses {
    /// The interface's MAC address, to which the server answers. `None` if it is unchanged.
    pub mac: Option<[u8; 6]>,
    /// The addresses that are served. An address with several prefixes occurs several times.
    pub addresses: Vec<AddressPrefix>,
    /// Addresses of the interface that cannot be served, each with the reason.
    pub refused: Vec<(IpAddr, String)>,
}

impl CurrentAddresses {
    /// Returns the served addresses, each once.
    pub fn distinct(&self) -> Vec<IpAddr> {
        distinct(&self.addresses)
    }
}

/// Returns the addresses, each once. An address with several prefixes occurs several times in `all`.
pub(super) fn distinct(all: &[AddressPrefix]) -> Vec<IpAddr> {
    let mut distinct: Vec<IpAddr> = Vec::new();
    for one in all {
        if !distinct.contains(&one.address) {
            distinct.push(one.address);
        }
    }
    distinct
}
