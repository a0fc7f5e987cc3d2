//! Follows the addresses of an interface: its MAC address, and those that the server shares with the
//! kernel.

use std::net::IpAddr;

use super::netlink;
use super::network::{self, HeldSocket, query_error};
use crate::device::{AddressPrefix, CurrentAddresses, DeviceError, MAX_ADDRESSES, Transport};
use crate::sys;
use crate::xdp::steer::Steering;

/// An interface whose addresses may change.
pub(super) struct Followed {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) services: Vec<(Transport, u16)>,
    /// The server's own addresses. `None` if it shares those of the interface.
    pub(super) own: Option<Vec<AddressPrefix>>,
}

impl Followed {
    /// Serves the addresses that the interface has now, and no others. Ports are reserved on a new
    /// address before its packets are steered to the server, and released after that has ended. An
    /// address whose ports are taken is not served. Own addresses stay.
    pub(super) fn follow(
        &self,
        steering: &mut Steering,
        sockets: &mut Vec<HeldSocket>,
    ) -> Result<CurrentAddresses, DeviceError> {
        let mac = netlink::mac(self.index).map_err(query_error(&self.interface))?;
        let mut now = match &self.own {
            Some(own) => CurrentAddresses {
                addresses: own.clone(),
                ..CurrentAddresses::default()
            },
            None => self.read(sockets)?,
        };
        now.mac = mac;
        let addresses = now.distinct();
        steering
            .set_addresses(mac, &addresses)
            .map_err(|source| DeviceError::Steering {
                step: "change the addresses of the XDP steering program",
                source,
            })?;
        sockets.retain(|one| one.address.is_none_or(|own| addresses.contains(&own)));
        Ok(now)
    }

    /// Reads the addresses that the interface has now, and reserves the ports on them.
    fn read(&self, sockets: &mut Vec<HeldSocket>) -> Result<CurrentAddresses, DeviceError> {
        let found = sys::route_socket().and_then(|socket| netlink::addresses(&socket, self.index));
        let found = found.map_err(query_error(&self.interface))?;
        let mut now = CurrentAddresses::default();
        for one in found {
            match self.reserve(one, &now.addresses, sockets) {
                Ok(()) => now.addresses.push(one),
                Err(error) => now.refused.push((one.address, error.to_string())),
            }
        }
        Ok(now)
    }

    /// Reserves the served ports on the address, unless they are reserved already. `others` are
    /// served, too.
    fn reserve(
        &self,
        one: AddressPrefix,
        others: &[AddressPrefix],
        sockets: &mut Vec<HeldSocket>,
    ) -> Result<(), DeviceError> {
        let address: IpAddr = one.address;
        if sockets.iter().any(|held| held.address == Some(address)) {
            return Ok(());
        }
        DeviceError::check_count("addresses", others.len() + 1, MAX_ADDRESSES)?;
        sockets.extend(network::reserve(address, &self.services, self.index)?);
        Ok(())
    }
}
