//! An interface as a part of its network: its link and the served addresses. Sockets keep its ports
//! and multicast groups for the server.
//!
//! The interface must be in the calling thread's network namespace.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use super::netlink::{self, Master};
use crate::device::addresses::{interface_addresses, refuse_taken};
use crate::device::lines::{Lines, join_addresses};
use crate::device::{AddressPrefix, DeviceError, MAX_ADDRESSES, Needs, NetworkRequest, Transport};
use crate::sys::{self, Control};

/// Finds the served addresses. In shared mode they are the interface's.
pub(super) fn find_addresses(
    request: &NetworkRequest<'_>,
    link: &Link,
    lines: &mut Lines,
) -> Result<Vec<AddressPrefix>, DeviceError> {
    let master = netlink::master(link.index).map_err(query_error(request.interface))?;
    // Ignore a VRF, because its interfaces keep their own addresses, unlike the ports of a bridge.
    let master = master.filter(|master| master.kind != "vrf");
    let networks = served_addresses(request, master.as_ref(), lines)?;
    note_unserved_clients(request, master.as_ref(), &networks, lines);
    DeviceError::check_count("addresses", networks.len(), MAX_ADDRESSES)?;
    Ok(networks)
}

/// A socket that keeps a port or multicast groups for the server while it is open.
pub(super) struct HeldSocket {
    /// The shared address whose port the socket reserves, or `None` if it keeps multicast groups.
    pub(super) address: Option<IpAddr>,
    _socket: OwnedFd,
}

/// Reserves the served ports in shared mode, and joins the multicast groups in own mode. The
/// returned sockets must stay open.
pub(super) fn hold(
    request: &NetworkRequest<'_>,
    services: &[(Transport, u16)],
    link: &Link,
    addresses: &[IpAddr],
    lines: &mut Lines,
) -> Result<Vec<HeldSocket>, DeviceError> {
    if !request.own.is_empty() {
        let groups = HeldSocket {
            address: None,
            _socket: join_groups(request.interface, link.index, addresses)?,
        };
        return Ok(vec![groups]);
    }
    let ports: Vec<_> = services
        .iter()
        .map(|(transport, port)| format!("{transport} {port}"))
        .collect();
    let reserved = addresses
        .iter()
        .map(|address| reserve(*address, services, link.index));
    let reserved = reserved.collect::<Result<Vec<_>, _>>()?;
    lines.push(("reserved ports", ports.join(", ")));
    Ok(reserved.into_iter().flatten().collect())
}

/// Properties of an interface that is up and uses Ethernet.
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) mac: [u8; 6],
    pub(super) mtu: usize,
}

impl Link {
    pub(super) fn of(control: &Control, name: &str) -> Result<Self, DeviceError> {
        let index = control
            .index(name)
            .map_err(|_| DeviceError::unknown_interface(name))?;
        if control.flags(name).map_err(query_error(name))? & libc::IFF_UP == 0 {
            return Err(DeviceError::InterfaceDown {
                name: name.to_owned(),
            });
        }
        let mac = control.mac(name).map_err(query_error(name))?;
        let mac = mac.ok_or_else(|| DeviceError::NotEthernet {
            name: name.to_owned(),
        })?;
        let mtu = control.mtu(name).map_err(query_error(name))?;
        Ok(Self { index, mac, mtu })
    }

    /// Describes the link for people.
    pub(super) fn line(&self, name: &str) -> (&'static str, String) {
        let mac = self.mac.map(|octet| format!("{octet:02x}")).join(":");
        let line = format!("{name}, Ethernet {mac}, MTU {}", self.mtu);
        ("interface", line)
    }
}

/// Returns the error of a query for the state of interface `name`.
pub(super) fn query_error(name: &str) -> impl FnOnce(io::Error) -> DeviceError {
    DeviceError::set_up(format!("read the state of interface {name}"))
}

fn served_addresses(
    request: &NetworkRequest<'_>,
    master: Option<&Master>,
    lines: &mut Lines,
) -> Result<Vec<AddressPrefix>, DeviceError> {
    let all = interface_addresses()?;
    if request.own.is_empty() {
        let shared: Vec<_> = all
            .into_iter()
            .filter(|a| a.interface == request.interface)
            .map(|a| AddressPrefix {
                address: a.address,
                prefix: a.prefix,
            })
            .collect();
        if shared.is_empty() {
            let interface = request.interface.to_owned();
            return Err(match master.cloned() {
                None => DeviceError::NoAddress { interface },
                Some(Master { name, kind }) => DeviceError::PortWithoutAddress {
                    interface,
                    master: name,
                    kind,
                },
            });
        }
        lines.push((
            "addresses",
            format!("{} (shared with the kernel)", join_addresses(&shared)),
        ));
        return Ok(shared);
    }
    refuse_taken(request.own, &all)?;
    lines.push((
        "addresses",
        format!("{} (the server's own)", join_addresses(request.own)),
    ));
    Ok(request.own.to_vec())
}

/// Adds summary lines about clients that will not be served.
fn note_unserved_clients(
    request: &NetworkRequest<'_>,
    master: Option<&Master>,
    addresses: &[AddressPrefix],
    lines: &mut Lines,
) {
    let interface = request.interface;
    if let Some(Master { name, kind }) = master {
        lines.push((
            "warning",
            format!(
                "{interface} is a port of the {kind} {name}: only packets that arrive on {interface} \
                 itself reach the server; serve {name} instead with --device xdp:{name} (or \
                 xdp:{name},generic if it has no native XDP), or remove {interface} from it with: \
                 ip link set {interface} nomaster"
            ),
        ));
    }
    if !request.own.is_empty() {
        return;
    }
    if addresses.iter().all(|own| own.address.is_ipv6()) {
        let is_local = |own: &AddressPrefix| matches!(own.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let unserved = if addresses.iter().all(is_local) {
            "IPv4 clients and clients behind a router are not served, because it has only link-local \
             addresses"
        } else {
            "IPv4 clients are not served, because it has no IPv4 address"
        };
        lines.push((
            "warning",
            format!(
                "{interface}: {unserved}; add one with: ip address add ADDRESS/PREFIX dev {interface}"
            ),
        ));
    }
    lines.push((
        "this host",
        "programs on this host cannot reach these addresses (TCP: \"connection refused\"; UDP: no \
         answer), because packets to the host's own addresses never pass an interface; for local \
         clients use --device auto"
            .to_owned(),
    ));
}

/// Makes the interface receive neighbour solicitations for the server's own IPv6 addresses.
///
/// They go to a multicast group that ends in the last three bytes of the address (RFC 4291, section
/// 2.7.1; RFC 2464, section 7). The kernel joins only the groups of its own addresses.
fn join_groups(name: &str, index: u32, addresses: &[IpAddr]) -> Result<OwnedFd, DeviceError> {
    let groups: Vec<_> = addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => {
                let [.., a, b, c] = v6.octets();
                Some([0x33, 0x33, 0xff, a, b, c])
            }
        })
        .collect();
    sys::join_groups(index, &groups).map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            DeviceError::privileges("open a packet socket", Needs::Xdp, source)
        }
        _ => DeviceError::SetUp {
            step: format!("join the multicast groups for neighbour discovery on {name}"),
            source,
        },
    })
}

/// Reserves the served ports on `address`, so that no other program can use them. `index` is the
/// number of the interface that has the address.
pub(super) fn reserve(
    address: IpAddr,
    services: &[(Transport, u16)],
    index: u32,
) -> Result<Vec<HeldSocket>, DeviceError> {
    let sockets = services.iter().map(|&(transport, port)| {
        let socket = SocketAddr::new(address, port);
        let holder = sys::reserve_port(socket, transport == Transport::Tcp, index);
        let socket = holder.map_err(|source| reserve_error(transport, port, address, source))?;
        Ok(HeldSocket {
            address: Some(address),
            _socket: socket,
        })
    });
    sockets.collect()
}

fn reserve_error(
    transport: Transport,
    port: u16,
    address: IpAddr,
    source: io::Error,
) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => DeviceError::PortTaken {
            transport,
            port,
            address,
        },
        Some(libc::EPERM | libc::EACCES) => {
            DeviceError::privileges("reserve a port below 1024", Needs::LowPort, source)
        }
        _ => DeviceError::Reserve {
            transport,
            port,
            address,
            source,
        },
    }
}
