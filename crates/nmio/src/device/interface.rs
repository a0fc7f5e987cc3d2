//! An interface made ready to serve on, and its queues.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::namespace::Namespace;
use super::{AddressPrefix, Device, DeviceError, MemoryPlan, Transport, auto};
use crate::port::Wait;
use crate::sys::{self, Control};
use crate::tap::{TapConfig, TapPort};
use crate::xdp::steer::{self, Rules, Steering};
use crate::xdp::{MAX_MTU, XdpConfig, XdpPort};

/// What a program wants of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Where.
    pub device: Device,
    /// Own mode: the server's addresses. Empty: shared mode, and on devices
    /// that are a wire of their own, addresses are chosen.
    pub own_addresses: Vec<AddressPrefix>,
    /// The ports that are served.
    pub services: Vec<(Transport, u16)>,
    /// Workers, each of which will serve a queue. An `xdp` device that names a
    /// number of queues overrides it; see [`Interface::queues`].
    pub queues: u32,
    /// How the workers will wait.
    pub wait: Wait,
    /// What the program calls itself, at most 12 characters of an interface
    /// name: device `auto` is named after it.
    pub program: &'static str,
}

/// Lines of a name and a value, for people.
pub(super) type Lines = Vec<(&'static str, String)>;

/// An interface made ready: the steering program attached, ports reserved,
/// addresses known. Dropping it undoes all that.
pub struct Interface {
    // Fields drop in this order: first no more packets are steered, then the
    // ports are free again, then the wire goes.
    access: Access,
    _reserved: Vec<OwnedFd>,
    wire: Option<auto::VethPair>,
    mac: [u8; 6],
    mtu: usize,
    own: bool,
    addresses: Vec<IpAddr>,
    queues: u32,
    wait: Wait,
    summary: Lines,
}

/// How queues are reached.
enum Access {
    Xdp {
        interface: String,
        steering: Steering,
        /// Where the interface is, if not in the caller's namespace.
        namespace: Option<Namespace>,
        generic: bool,
        partial_checksums: bool,
    },
    Tap {
        name: String,
        queues: Vec<Arc<File>>,
    },
}

impl Interface {
    /// Makes the configured interface ready.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing is left behind then.
    pub fn open(config: &InterfaceConfig) -> Result<Self, DeviceError> {
        check_count(
            "addresses",
            config.own_addresses.len(),
            steer::MAX_ADDRESSES,
        )?;
        check_count("ports", config.services.len(), steer::MAX_SERVICES)?;
        check_count("queues", config.queues as usize, steer::MAX_QUEUES as usize)?;
        match &config.device {
            Device::Auto => auto::open(config),
            Device::Tap { name } => auto::open_named_tap(config, name),
            Device::Xdp {
                interface,
                queues,
                generic,
                partial_checksums,
            } => {
                let wanted = XdpWanted {
                    interface,
                    queues: queues.unwrap_or(config.queues).max(1),
                    generic: *generic,
                    own: &config.own_addresses,
                    services: &config.services,
                };
                let ready = XdpReady::open(&wanted)?;
                let mut interface = Self::from_xdp(ready, &wanted, config.wait);
                if let Access::Xdp {
                    partial_checksums: accepted,
                    ..
                } = &mut interface.access
                {
                    *accepted = *partial_checksums;
                }
                interface.set_device_line(config.device.to_string());
                if *partial_checksums {
                    interface.add_line(
                        "checksums",
                        "a TCP or UDP checksum of the pseudo-header alone is accepted".into(),
                    );
                }
                Ok(interface)
            }
        }
    }

    pub(super) fn from_xdp(ready: XdpReady, wanted: &XdpWanted<'_>, wait: Wait) -> Self {
        Self {
            access: Access::Xdp {
                interface: wanted.interface.to_owned(),
                steering: ready.steering,
                namespace: None,
                generic: wanted.generic,
                partial_checksums: false,
            },
            _reserved: ready.reserved,
            wire: None,
            mac: ready.mac,
            mtu: ready.mtu,
            own: !wanted.own.is_empty(),
            addresses: ready.addresses,
            queues: wanted.queues,
            wait,
            summary: ready.lines,
        }
    }

    pub(super) fn from_tap(
        name: String,
        queues: Vec<Arc<File>>,
        mtu: usize,
        addresses: Vec<IpAddr>,
        wait: Wait,
    ) -> Self {
        Self {
            queues: queues.len() as u32,
            access: Access::Tap { name, queues },
            _reserved: Vec::new(),
            wire: None,
            mac: random_mac(),
            mtu,
            own: true,
            addresses,
            wait,
            summary: Vec::new(),
        }
    }

    /// Says that the interface is one end of `pair`, in `namespace`.
    pub(super) fn on_pair(mut self, pair: auto::VethPair, inside: Namespace) -> Self {
        if let Access::Xdp { namespace, .. } = &mut self.access {
            *namespace = Some(inside);
        }
        self.wire = Some(pair);
        self
    }

    pub(super) fn add_line(&mut self, name: &'static str, value: String) {
        self.summary.push((name, value));
    }

    /// Says, before all else, what was made.
    pub(super) fn set_device_line(&mut self, value: String) {
        self.summary.insert(0, ("device", value));
    }

    /// The Ethernet address that the server has.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The addresses that are served.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Own mode: ARP, neighbour discovery and ICMP echo for the addresses are
    /// the server's to answer. In shared mode the kernel does.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// The largest IP packet, in bytes.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Queues to serve, numbered from 0; each needs a worker.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// The address that a client should use, as it is written in a URL: the
    /// first IPv4 address, or else the first IPv6 address, in brackets.
    ///
    /// On a device `auto` or `tap` this host is the client. In shared mode a
    /// client is on another host: what a host sends to itself never comes by
    /// its interface.
    pub fn url_host(&self) -> String {
        let link_local = |a: &&IpAddr| matches!(a, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let best = self
            .addresses
            .iter()
            .find(|a| a.is_ipv4())
            .or_else(|| self.addresses.iter().find(|a| !link_local(a)))
            .or_else(|| self.addresses.first());
        match best {
            Some(IpAddr::V4(v4)) => v4.to_string(),
            Some(IpAddr::V6(v6)) => format!("[{v6}]"),
            None => String::new(),
        }
    }

    /// What was really made, for people: pairs of a name and a value. What
    /// each queue does is in its port's summary.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        self.summary.clone()
    }

    /// Queue `index`, for the thread that will serve it.
    ///
    /// # Panics
    /// When `index` is not below [`Interface::queues`].
    pub fn queue(&self, index: u32) -> QueueSource {
        assert!(index < self.queues, "queue {index} of {}", self.queues);
        let way = match &self.access {
            Access::Xdp {
                interface,
                steering,
                namespace,
                generic,
                partial_checksums,
            } => Way::Xdp {
                interface: interface.clone(),
                queue: index,
                xsks: steering.xsks(),
                namespace: namespace.clone(),
                generic: *generic,
                partial_checksums: *partial_checksums,
            },
            Access::Tap { name, queues } => Way::Tap {
                name: name.clone(),
                file: Arc::clone(&queues[index as usize]),
            },
        };
        QueueSource {
            way,
            mtu: self.mtu,
            wait: self.wait,
        }
    }
}

/// One queue, not opened yet: it can be sent to its thread.
pub struct QueueSource {
    way: Way,
    mtu: usize,
    wait: Wait,
}

enum Way {
    Xdp {
        interface: String,
        queue: u32,
        xsks: Arc<OwnedFd>,
        namespace: Option<Namespace>,
        generic: bool,
        partial_checksums: bool,
    },
    Tap {
        name: String,
        file: Arc<File>,
    },
}

impl QueueSource {
    /// Opens the queue; from then on packets arrive.
    ///
    /// Call it in the thread that will serve the queue. With device `auto`
    /// that thread is moved into the private network namespace of the
    /// server's end, and stays there.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(self, memory: MemoryPlan) -> Result<AnyPort, DeviceError> {
        match self.way {
            Way::Xdp {
                interface,
                queue,
                xsks,
                namespace,
                generic,
                partial_checksums,
            } => {
                if let Some(namespace) = namespace {
                    namespace
                        .enter()
                        .map_err(DeviceError::set_up("enter the private network namespace"))?;
                }
                let config = XdpConfig {
                    interface: &interface,
                    queue,
                    mtu: self.mtu,
                    generic,
                    partial_checksums,
                    wait: self.wait,
                    memory,
                    xsks: xsks.as_fd(),
                };
                XdpPort::open(&config).map(AnyPort::Xdp)
            }
            Way::Tap { name, file } => {
                let config = TapConfig {
                    name,
                    mtu: self.mtu,
                    wait: self.wait,
                    memory,
                };
                Ok(AnyPort::Tap(TapPort::new(file, config)))
            }
        }
    }
}

/// A port of a kind that is known at run time: match once, outside the loop,
/// so that the loop is compiled for one of them.
// A port is made once a thread and moved once.
#[allow(clippy::large_enum_variant)]
pub enum AnyPort {
    /// `AF_XDP`.
    Xdp(XdpPort),
    /// A tap device.
    Tap(TapPort),
}

impl AnyPort {
    /// What the port really does, for people: pairs of a name and a value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Xdp(port) => port.summary(),
            Self::Tap(port) => port.summary(),
        }
    }
}

/// What an XDP interface is opened for.
pub(super) struct XdpWanted<'a> {
    pub(super) interface: &'a str,
    pub(super) queues: u32,
    pub(super) generic: bool,
    /// Empty in shared mode.
    pub(super) own: &'a [AddressPrefix],
    pub(super) services: &'a [(Transport, u16)],
}

/// An XDP interface with its steering program attached.
pub(super) struct XdpReady {
    steering: Steering,
    reserved: Vec<OwnedFd>,
    mac: [u8; 6],
    mtu: usize,
    addresses: Vec<IpAddr>,
    lines: Lines,
}

impl XdpReady {
    /// Opens an interface of the calling thread's network namespace.
    pub(super) fn open(wanted: &XdpWanted<'_>) -> Result<Self, DeviceError> {
        let name = wanted.interface;
        let control = Control::new().map_err(DeviceError::set_up("ask for interfaces"))?;
        let index = control
            .index(name)
            .map_err(|_| DeviceError::unknown_interface(name))?;
        let ask = || DeviceError::set_up(format!("ask for the state of interface {name}"));
        if control.flags(name).map_err(ask())? & libc::IFF_UP == 0 {
            return Err(DeviceError::InterfaceDown {
                name: name.to_owned(),
            });
        }
        let mac = control.mac(name).map_err(ask())?;
        let mac = mac.ok_or_else(|| DeviceError::NotEthernet {
            name: name.to_owned(),
        })?;
        let mtu = control.mtu(name).map_err(ask())?;
        if mtu > MAX_MTU {
            let interface = name.to_owned();
            return Err(DeviceError::Mtu {
                interface,
                mtu,
                largest: MAX_MTU,
            });
        }
        let mut lines = vec![(
            "interface",
            format!(
                "{name}, Ethernet {}, MTU {mtu}",
                mac.map(|octet| format!("{octet:02x}")).join(":")
            ),
        )];
        let mode = if wanted.generic {
            "generic: the kernel's stack makes each packet a buffer first"
        } else {
            "native: in the driver"
        };
        lines.push(("XDP mode", mode.to_owned()));
        check_queues(wanted, control.rx_queues(name), &mut lines)?;
        let addresses = served_addresses(wanted, &mut lines)?;
        check_count("addresses", addresses.len(), steer::MAX_ADDRESSES)?;
        let reserved = if wanted.own.is_empty() {
            reserve(&addresses, wanted.services, index, &mut lines)?
        } else {
            Vec::new()
        };
        sys::xdp_socket().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => DeviceError::Rights {
                what: "an AF_XDP socket",
                source,
            },
            _ => DeviceError::Kernel {
                what: "AF_XDP sockets",
                source,
            },
        })?;
        let rules = Rules {
            own: !wanted.own.is_empty(),
            addresses: &addresses,
            services: wanted.services,
            mtu,
        };
        let steering = Steering::attach(name, index, wanted.generic, &rules)?;
        Ok(Self {
            steering,
            reserved,
            mac,
            mtu,
            addresses,
            lines,
        })
    }
}

fn check_queues(
    wanted: &XdpWanted<'_>,
    has: Option<u32>,
    lines: &mut Lines,
) -> Result<(), DeviceError> {
    let interface = wanted.interface.to_owned();
    let served = wanted.queues;
    // A driver that does not tell is asked by binding to the queue.
    let Some(has) = has else {
        lines.push((
            "queues",
            format!("{served}, and the driver does not tell how many it has"),
        ));
        return Ok(());
    };
    if served > has {
        return Err(DeviceError::TooManyQueues {
            interface,
            asked: served,
            has,
        });
    }
    if served < has && !wanted.own.is_empty() {
        return Err(DeviceError::UnservedQueues {
            interface,
            has,
            served,
        });
    }
    lines.push(("queues", format!("{served} of {has}")));
    if served < has {
        lines.push((
            "warning",
            format!(
                "packets that arrive on the other {} of {interface}'s queues go to the kernel and \
                 are not answered; serve them all with queues={has}, or have fewer with: \
                 ethtool -L {interface} combined {served} (veth: rx {served})",
                has - served
            ),
        ));
    }
    Ok(())
}

fn served_addresses(wanted: &XdpWanted<'_>, lines: &mut Lines) -> Result<Vec<IpAddr>, DeviceError> {
    let (_, all) = sys::interfaces().map_err(DeviceError::set_up("list addresses"))?;
    if wanted.own.is_empty() {
        let shared: Vec<_> = all
            .into_iter()
            .filter(|a| a.interface == wanted.interface)
            .map(|a| a.address)
            .collect();
        if shared.is_empty() {
            return Err(DeviceError::NoAddress {
                interface: wanted.interface.to_owned(),
            });
        }
        lines.push((
            "addresses",
            format!("{} (shared with the kernel)", join(&shared)),
        ));
        return Ok(shared);
    }
    let own: Vec<_> = wanted.own.iter().map(|own| own.address).collect();
    if let Some(taken) = all.iter().find(|a| own.contains(&a.address)) {
        return Err(DeviceError::AddressTaken {
            address: taken.address,
            interface: taken.interface.clone(),
        });
    }
    lines.push(("addresses", format!("{} (the server's own)", join(&own))));
    Ok(own)
}

/// Holds the served ports against other programs.
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
            let held = sys::reserve_port(socket, transport == Transport::Tcp, index);
            reserved.push(held.map_err(|source| reserve_error(transport, port, address, source))?);
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
        Some(libc::EPERM | libc::EACCES) => DeviceError::Rights {
            what: "a port below 1024",
            source,
        },
        _ => DeviceError::Reserve {
            transport,
            port,
            address,
            source,
        },
    }
}

fn check_count(what: &'static str, count: usize, most: usize) -> Result<(), DeviceError> {
    if count > most {
        Err(DeviceError::TooMany { what, count, most })
    } else {
        Ok(())
    }
}

pub(super) fn join(list: &[impl ToString]) -> String {
    list.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A locally administered unicast address (IEEE 802-2014, 8.4.2).
fn random_mac() -> [u8; 6] {
    let mut mac = [0; 6];
    fastrand::Rng::new().fill(&mut mac);
    mac[0] = mac[0] & 0xfc | 0x02;
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_can_be_sent_to_their_threads() {
        fn is_send<T: Send>() {}
        is_send::<Interface>();
        is_send::<QueueSource>();
        is_send::<DeviceError>();
    }

    #[test]
    fn made_up_addresses_are_local_and_unicast() {
        for _ in 0..100 {
            assert_eq!(random_mac()[0] & 0x03, 0x02);
        }
    }
}
