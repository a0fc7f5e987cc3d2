//! Plans and assigns the addresses of a link that the server creates.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::netlink;
use crate::device::addresses::{interface_addresses, refuse_taken};
use crate::device::lines::{Lines, join};
use crate::device::{AddressPrefix, DeviceError, InterfaceConfig};
use crate::sys::{self, Control, InterfaceAddress};

/// The benchmarking network (RFC 2544, RFC 6890), which is not routed on the Internet. If no
/// address is configured, a link gets a network of two hosts from this pool.
const IPV4_POOL: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const IPV4_PREFIX: u8 = 30;
/// A unique local IPv6 prefix (RFC 4193). Its global ID was chosen at random once, and is the same
/// on every host.
const IPV6_POOL: Ipv6Addr = Ipv6Addr::new(0xfd9a, 0x5e1d, 0x70ac, 0, 0, 0, 0, 0);
const IPV6_PREFIX: u8 = 126;
/// Maximum number of pairs of networks (one IPv4, one IPv6) to try until a pair is free.
const MAX_NETWORKS: u32 = 4096;

/// The addresses of both ends of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Addressing {
    pub(super) server: Vec<AddressPrefix>,
    client: Vec<AddressPrefix>,
    /// Whether the server chose these addresses itself. If so, it can do without the IPv6
    /// addresses.
    chosen: bool,
}

impl Addressing {
    /// Plans the addresses of a link. Fails if this host already has one of the configured addresses, or
    /// one that its own end would get. If none are configured, chooses networks that this host does
    /// not use.
    pub(super) fn new(config: &InterfaceConfig) -> Result<Self, DeviceError> {
        let in_use = interface_addresses()?;
        refuse_taken(&config.own_addresses, &in_use)?;
        Self::plan(&config.own_addresses, &in_use)
    }

    /// Gives the server the addresses `given`, and the client another address in each of their
    /// networks. If `given` is empty, chooses a free pair of networks. `in_use` are the addresses
    /// that this host already has.
    fn plan(given: &[AddressPrefix], in_use: &[InterfaceAddress]) -> Result<Self, DeviceError> {
        if given.is_empty() {
            return Self::choose(in_use);
        }
        let mut client: Vec<AddressPrefix> = Vec::new();
        for own in given {
            if client.iter().any(|end| end.contains(own.address)) {
                continue;
            }
            let free =
                host_candidates(*own).find(|address| given.iter().all(|g| g.address != *address));
            let address = free.ok_or(DeviceError::NoRoomForClient {
                address: own.address,
                prefix: own.prefix,
            })?;
            if let Some(used) = in_use.iter().find(|used| used.address == address) {
                return Err(DeviceError::HostEndTaken {
                    address,
                    interface: used.interface.clone(),
                });
            }
            client.push(AddressPrefix {
                address,
                prefix: own.prefix,
            });
        }
        Ok(Self {
            server: given.to_vec(),
            client,
            chosen: false,
        })
    }

    fn choose(in_use: &[InterfaceAddress]) -> Result<Self, DeviceError> {
        for n in 0..MAX_NETWORKS {
            let v4 = |host: u32| AddressPrefix {
                address: Ipv4Addr::from_bits(IPV4_POOL.to_bits() + n * 4 + host).into(),
                prefix: IPV4_PREFIX,
            };
            let v6 = |host: u128| AddressPrefix {
                address: Ipv6Addr::from_bits(IPV6_POOL.to_bits() + (u128::from(n) << 64) + host)
                    .into(),
                prefix: IPV6_PREFIX,
            };
            let free = |candidate: AddressPrefix| {
                in_use.iter().all(|a| {
                    let network = AddressPrefix {
                        address: a.address,
                        prefix: a.prefix,
                    };
                    !candidate.contains(a.address) && !network.contains(candidate.address)
                })
            };
            if free(v4(1)) && free(v6(1)) {
                let (client, server) = (vec![v4(1), v6(1)], vec![v4(2), v6(2)]);
                return Ok(Self {
                    server,
                    client,
                    chosen: true,
                });
            }
        }
        Err(DeviceError::SetUp {
            step: format!("find a free network in {IPV4_POOL}/15; choose one with --address"),
            source: io::ErrorKind::AddrInUse.into(),
        })
    }

    /// Assigns the client's addresses to interface `name`, which is in the calling thread's
    /// namespace, and brings the interface up.
    ///
    /// If the server chose the addresses and the kernel refuses the IPv6 address, drops the IPv6
    /// addresses of both ends.
    pub(super) fn configure(
        &mut self,
        control: &Control,
        name: &str,
        lines: &mut Lines,
    ) -> Result<(), DeviceError> {
        let index = control
            .index(name)
            .map_err(DeviceError::set_up(format!("find {name}")))?;
        let mut ipv6_error = None;
        for end in &self.client {
            match netlink::add_address(index, end.address, end.prefix) {
                Ok(()) => {}
                Err(error) if sys::is_errno(&error, libc::EEXIST) => {}
                Err(error) if self.chosen && end.address.is_ipv6() => ipv6_error = Some(error),
                Err(source) => {
                    return Err(DeviceError::SetUp {
                        step: format!("assign address {end} to {name}"),
                        source,
                    });
                }
            }
        }
        if let Some(error) = ipv6_error {
            self.server.retain(|end| end.address.is_ipv4());
            self.client.retain(|end| end.address.is_ipv4());
            lines.push((
                "warning",
                format!("IPv6 is off: {name} accepts no IPv6 address ({error})"),
            ));
        }
        bring_up(control, name)
    }

    pub(super) fn line(&self, name: &str) -> (&'static str, String) {
        ("this host's end", format!("{name}, {}", join(&self.client)))
    }
}

/// Brings an interface up. If the interface is already up, no capability is needed.
pub(super) fn bring_up(control: &Control, name: &str) -> Result<(), DeviceError> {
    if control
        .flags(name)
        .is_ok_and(|flags| flags & libc::IFF_UP != 0)
    {
        return Ok(());
    }
    control
        .set_up(name)
        .map_err(DeviceError::set_up(format!("bring {name} up")))
}

/// Returns the lowest host addresses (at most 512) in the network of `own`, in ascending order and
/// without `own` itself.
fn host_candidates(own: AddressPrefix) -> impl Iterator<Item = IpAddr> {
    // Number of addresses to consider. The server has fewer addresses than this, so at least one
    // is free unless the network is too small.
    const MAX_CANDIDATES: u128 = 512;
    let (bits, own_bits) = match own.address {
        IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let host_bits = bits - u32::from(own.prefix);
    let hosts = 1u128.checked_shl(host_bits).unwrap_or(u128::MAX);
    let network = own_bits & !(hosts - 1);
    // In a network of four or more addresses, the lowest is reserved. In IPv4, the highest is the
    // broadcast address. A network of two reserves neither (RFC 3021, RFC 6164).
    let (first, end) = match (own.address.is_ipv4(), host_bits) {
        (true, 2..) => (1, hosts - 1),
        (false, 2..) => (1, hosts),
        _ => (0, hosts),
    };
    (first..end.min(first + MAX_CANDIDATES))
        .map(move |host| network + host)
        .filter_map(move |address| {
            let address = match own.address {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(address).ok()?)),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(address)),
            };
            (address != own.address).then_some(address)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    fn in_use(text: &str) -> InterfaceAddress {
        let AddressPrefix { address, prefix } = prefix(text);
        InterfaceAddress {
            interface: "eth0".into(),
            address,
            prefix,
        }
    }

    #[test]
    fn the_first_free_networks_are_chosen() {
        let wire = Addressing::plan(&[], &[]).unwrap();
        assert_eq!(
            wire.client,
            [prefix("198.18.0.1/30"), prefix("fd9a:5e1d:70ac::1/126")]
        );
        assert_eq!(
            wire.server,
            [prefix("198.18.0.2/30"), prefix("fd9a:5e1d:70ac::2/126")]
        );
        let wire = Addressing::plan(&[], &[in_use("198.18.0.1/30"), in_use("10.0.0.1/8")]).unwrap();
        assert_eq!(
            wire.server,
            [prefix("198.18.0.6/30"), prefix("fd9a:5e1d:70ac:1::2/126")]
        );
        let wire = Addressing::plan(&[], &[in_use("198.18.3.7/22")]).unwrap();
        assert_eq!(
            wire.server[0],
            prefix("198.18.4.2/30"),
            "a larger network around it"
        );
    }

    /// Otherwise packets to the server could leave through another interface.
    #[test]
    fn an_address_that_this_host_has_is_not_given_to_another_link() {
        let own = [prefix("192.0.2.1/24")];
        let error = Addressing::plan(&own, &[in_use("192.0.2.2/24")]).unwrap_err();
        let told = error.to_string();
        assert!(
            told.starts_with("eth0 already has address 192.0.2.2, "),
            "{told}"
        );
        let others = [in_use("192.0.2.3/24"), in_use("198.51.100.2/24")];
        assert!(Addressing::plan(&own, &others).is_ok());
    }

    #[test]
    fn the_client_gets_one_address_in_each_given_network() {
        let plan = |own: &[&str]| {
            let own: Vec<_> = own.iter().map(|text| prefix(text)).collect();
            Addressing::plan(&own, &[]).map(|wire| wire.client)
        };
        assert_eq!(plan(&["10.0.0.2/24"]).unwrap(), [prefix("10.0.0.1/24")]);
        assert_eq!(plan(&["10.0.0.1/24"]).unwrap(), [prefix("10.0.0.2/24")]);
        assert_eq!(
            plan(&["10.0.0.1/30", "10.0.0.2/30"])
                .unwrap_err()
                .to_string()
                .split(" leaves")
                .next(),
            Some("10.0.0.1/30")
        );
        assert_eq!(plan(&["10.0.0.7/31"]).unwrap(), [prefix("10.0.0.6/31")]);
        assert_eq!(
            plan(&["10.0.0.1/24", "10.0.0.2/24", "2001:db8::1/64"]).unwrap(),
            [prefix("10.0.0.3/24"), prefix("2001:db8::2/64")]
        );
        assert!(plan(&["10.0.0.1/32"]).is_err());
        assert!(plan(&["2001:db8::1/128"]).is_err());
        assert_eq!(plan(&["2001:db8::1/0"]).unwrap(), [prefix("::2/0")]);
    }
}
