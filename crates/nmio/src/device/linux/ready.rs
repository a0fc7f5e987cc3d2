//! Prepares an interface for `AF_XDP`: checks the interface, reserves the served ports or joins
//! multicast groups, and attaches the steering program.
//!
//! The interface must be in the calling thread's network namespace.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use super::napi::PolledQueues;
use super::netlink::{self, Master};
use super::pfifo::Pfifo;
use super::{affinity, queues};
use crate::device::addresses::{interface_addresses, refuse_taken};
use crate::device::lines::{Lines, join, join_addresses};
use crate::device::{
    AddressPrefix, DeviceError, MAX_ADDRESSES, Needs, Offload, Queues, Transport, ZeroCopy,
};
use crate::port::Wait;
use crate::sys::{self, Control};
use crate::xdp::MAX_MTU;
use crate::xdp::steer::{Rules, Steering};

/// The interface to open, and the requested options.
pub(super) struct XdpRequest<'a> {
    pub(super) interface: &'a str,
    pub(super) queues: Queues,
    pub(super) vlans: &'a [u16],
    pub(super) generic: bool,
    pub(super) partial_checksums: bool,
    pub(super) zero_copy: ZeroCopy,
    pub(super) offload: Offload,
    pub(super) pfifo: bool,
    pub(super) wait: Wait,
    /// The server's own addresses; empty in shared mode.
    pub(super) own: &'a [AddressPrefix],
    pub(super) services: &'a [(Transport, u16)],
}

/// An XDP interface with its steering program attached.
pub(super) struct XdpReady {
    pub(super) steering: Steering,
    /// Descriptors that must stay open, because they reserve the served ports or keep the multicast
    /// groups joined.
    pub(super) open_sockets: Vec<OwnedFd>,
    pub(super) pfifo: Option<Pfifo>,
    pub(super) polled: Option<PolledQueues>,
    pub(super) mac: [u8; 6],
    pub(super) mtu: usize,
    pub(super) is_veth: bool,
    /// Number of queues to serve.
    pub(super) queues: u32,
    pub(super) addresses: Vec<AddressPrefix>,
    pub(super) lines: Lines,
}

impl XdpReady {
    /// Prepares an interface in the calling thread's network namespace, as the options request.
    pub(super) fn open(request: &XdpRequest<'_>) -> Result<Self, DeviceError> {
        let name = request.interface;
        let control = Control::new().map_err(DeviceError::set_up("query interfaces"))?;
        let link = Link::of(&control, name)?;
        let mut lines = vec![(
            "interface",
            format!(
                "{name}, Ethernet {}, MTU {}",
                link.mac.map(|octet| format!("{octet:02x}")).join(":"),
                link.mtu
            ),
        )];
        let mode = if request.generic {
            "generic: the kernel allocates a buffer for each packet first"
        } else {
            "native: runs in the driver"
        };
        lines.push(("XDP mode", mode.to_owned()));
        let queues = queues::choose(&control, name, request.queues, &mut lines)?;
        affinity::describe(name, queues, &mut lines);
        check_vlans(&control, request, &mut lines)?;
        let master = netlink::master(link.index).map_err(query_error(name))?;
        // Ignore a VRF, because its interfaces keep their own addresses, unlike the ports of a
        // bridge.
        let master = master.filter(|master| master.kind != "vrf");
        let networks = served_addresses(request, master.as_ref(), &mut lines)?;
        note_unserved_clients(request, master.as_ref(), &networks, &mut lines);
        DeviceError::check_count("addresses", networks.len(), MAX_ADDRESSES)?;
        let addresses: Vec<_> = networks.iter().map(|network| network.address).collect();
        check_unused(name, link.index)?;
        let open_sockets = if request.own.is_empty() {
            reserve(&addresses, request.services, link.index, &mut lines)?
        } else {
            vec![join_groups(name, link.index, &addresses)?]
        };
        if request.partial_checksums {
            lines.push((
                "checksums",
                "partial TCP and UDP checksums (pseudo-header only) are accepted".to_owned(),
            ));
        }
        let is_veth = control.is_veth(name);
        let pfifo = tx_queue(request, link.index, is_veth, &mut lines)?;
        check_sockets()?;
        let rules = Rules {
            own: !request.own.is_empty(),
            mac: link.mac,
            vlans: request.vlans,
            addresses: &addresses,
            services: request.services,
            mtu: link.mtu,
        };
        let steering = Steering::attach(name, link.index, request.generic, &rules)?;
        // Some drivers create the NAPI instances only with the XDP program.
        let polls = request.wait == Wait::BusyPoll;
        let polled = polls.then(|| PolledQueues::defer(name, link.index, queues, &mut lines));
        Ok(Self {
            steering,
            open_sockets,
            pfifo,
            polled: polled.flatten(),
            mac: link.mac,
            mtu: link.mtu,
            is_veth,
            queues,
            addresses: networks,
            lines,
        })
    }
}

/// Properties of an interface that is up, uses Ethernet, and has a supported MTU.
struct Link {
    index: u32,
    mac: [u8; 6],
    mtu: usize,
}

impl Link {
    fn of(control: &Control, name: &str) -> Result<Self, DeviceError> {
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
        if mtu > MAX_MTU {
            return Err(DeviceError::Mtu {
                interface: name.to_owned(),
                mtu,
                largest: MAX_MTU,
            });
        }
        Ok(Self { index, mac, mtu })
    }
}

fn query_error(name: &str) -> impl FnOnce(io::Error) -> DeviceError {
    DeviceError::set_up(format!("read the state of interface {name}"))
}

/// Adds the packet queue of `qdisc=pfifo`, if this option is given.
fn tx_queue(
    request: &XdpRequest<'_>,
    index: u32,
    is_veth: bool,
    lines: &mut Lines,
) -> Result<Option<Pfifo>, DeviceError> {
    if request.pfifo {
        return Pfifo::add(request.interface, index, lines);
    }
    if is_veth {
        note_missing_queue(request.interface, index, lines)?;
    }
    Ok(None)
}

/// Adds a summary line if the veth interface has no queue for packets that it cannot send
/// immediately.
fn note_missing_queue(name: &str, index: u32, lines: &mut Lines) -> Result<(), DeviceError> {
    if netlink::is_without_queue(index).map_err(query_error(name))? {
        lines.push((
            "TX queue",
            format!(
                "{name} drops packets while its peer's ring is full; Linux 6.17 or later lets the \
                 server queue them again; to make all senders wait instead, add qdisc=pfifo to \
                 --device, or run: tc qdisc add dev {name} root pfifo limit 1000"
            ),
        ));
    }
    Ok(())
}

/// Checks that no other XDP program is attached to the interface.
///
/// This check comes before the TCP and UDP ports are reserved. If another server on this interface
/// has also reserved the same ports, the error must name the interface, which is the real obstacle.
fn check_unused(name: &str, index: u32) -> Result<(), DeviceError> {
    if netlink::has_xdp(index).map_err(query_error(name))? {
        let interface = name.to_owned();
        return Err(DeviceError::ProgramBusy { interface });
    }
    Ok(())
}

/// Checks that this process may create `AF_XDP` sockets on this kernel.
fn check_sockets() -> Result<(), DeviceError> {
    match sys::xdp_socket() {
        Ok(_) => Ok(()),
        Err(source) => Err(match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                DeviceError::privileges("open an AF_XDP socket", Needs::Xdp, source)
            }
            _ => DeviceError::Kernel {
                what: "AF_XDP sockets",
                remedy: "use --device tap:NAME, which does not need them",
                source,
            },
        }),
    }
}

/// Checks whether VLAN tags stay in the frames, where XDP sees them.
///
/// If the device strips tags, `vlan=` is an error. Without `vlan=`, a summary line warns that
/// frames of all VLANs appear untagged.
fn check_vlans(
    control: &Control,
    request: &XdpRequest<'_>,
    lines: &mut Lines,
) -> Result<(), DeviceError> {
    let interface = request.interface.to_owned();
    let strips = control.strips_tags(&interface);
    let mut remedy = format!("ethtool -K {interface} rxvlan off");
    if control.is_veth(&interface) {
        // On veth, the sender must write tags into the frame, because the receiver does not move
        // them there from the metadata.
        remedy.push_str(", and at the other end: ethtool -K PEER txvlan off");
    }
    match (strips, request.vlans) {
        (true, []) => lines.push((
            "VLANs",
            format!(
                "frames of every VLAN are served as untagged, because {interface} strips tags \
                 before XDP sees them; to serve untagged frames only, run: {remedy}"
            ),
        )),
        (true, _) => return Err(DeviceError::TagsStripped { interface, remedy }),
        (false, []) => {}
        (false, vlans) => lines.push(("VLANs", format!("{}, and untagged frames", join(vlans)))),
    }
    Ok(())
}

fn served_addresses(
    request: &XdpRequest<'_>,
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
    request: &XdpRequest<'_>,
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
                "{interface}: {unserved}; add one with: ip address add ADDRESS/PREFIX dev {interface}, \
                 and restart the server"
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

/// Reserves the served ports on `addresses`, so that no other program can use them.
fn reserve(
    addresses: &[IpAddr],
    services: &[(Transport, u16)],
    index: u32,
    lines: &mut Lines,
) -> Result<Vec<OwnedFd>, DeviceError> {
    let mut reserved = Vec::new();
    for &(transport, port) in services {
        for &address in addresses {
            let socket = SocketAddr::new(address, port);
            let holder = sys::reserve_port(socket, transport == Transport::Tcp, index);
            reserved
                .push(holder.map_err(|source| reserve_error(transport, port, address, source))?);
        }
    }
    let ports: Vec<_> = services
        .iter()
        .map(|(transport, port)| format!("{transport} {port}"))
        .collect();
    lines.push(("reserved ports", ports.join(", ")));
    Ok(reserved)
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
