//! Wires of the server's own to this host: device `auto`, and tap devices.
//!
//! ```text
//!   this host's kernel                        the server
//!   sandstorm0 198.18.0.1/30 ──── veth ──── 198.18.0.2   (private network namespace)
//!   tap0       198.18.0.1/30 ──── tap  ──── 198.18.0.2   (no interface at all)
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use super::interface::{Lines, XdpReady, XdpWanted, join};
use super::namespace::Namespace;
use super::{AddressPrefix, DeviceError, Interface, InterfaceConfig, netlink};
use crate::sys::{self, Control, InterfaceAddress, TapFlags};

/// Interfaces of one program name: sandstorm0 to sandstorm99.
const MAX_SUFFIX: u32 = 100;
/// The server's end of a veth pair; alone in its namespace.
const SERVER_END: &str = "server";
/// The network for benchmarks (RFC 2544, RFC 6890), which nobody routes, cut
/// into networks of two hosts.
const IPV4_POOL: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const IPV4_PREFIX: u8 = 30;
/// A unique local network (RFC 4193) with a global ID that was drawn once.
const IPV6_POOL: Ipv6Addr = Ipv6Addr::new(0xfd9a, 0x5e1d, 0x70ac, 0, 0, 0, 0, 0);
const IPV6_PREFIX: u8 = 126;
/// Pairs of networks that are tried until one is free.
const MAX_NETWORKS: u32 = 4096;

/// The addresses of both ends of a wire.
#[derive(Debug, PartialEq, Eq)]
struct Addressing {
    server: Vec<AddressPrefix>,
    client: Vec<AddressPrefix>,
    /// Nobody asked for these, so that the wire may do without some.
    chosen: bool,
}

impl Addressing {
    /// The given addresses for the server and a neighbour of each for the
    /// client, or else a free pair of networks.
    fn plan(given: &[AddressPrefix], taken: &[InterfaceAddress]) -> Result<Self, DeviceError> {
        if given.is_empty() {
            return Self::choose(taken);
        }
        let mut client: Vec<AddressPrefix> = Vec::new();
        for own in given {
            if client.iter().any(|end| end.contains(own.address)) {
                continue;
            }
            let free = neighbours(*own).find(|address| given.iter().all(|g| g.address != *address));
            let address = free.ok_or(DeviceError::NoRoomForClient {
                address: own.address,
                prefix: own.prefix,
            })?;
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

    fn choose(taken: &[InterfaceAddress]) -> Result<Self, DeviceError> {
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
            let free = |ours: AddressPrefix| {
                taken.iter().all(|a| {
                    let theirs = AddressPrefix {
                        address: a.address,
                        prefix: a.prefix,
                    };
                    !ours.contains(a.address) && !theirs.contains(ours.address)
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
            step: format!("find a free network in {IPV4_POOL}/15; give one with --address"),
            source: io::ErrorKind::AddrInUse.into(),
        })
    }

    fn server_addresses(&self) -> Vec<IpAddr> {
        self.server.iter().map(|server| server.address).collect()
    }

    /// Gives interface `name` of this namespace the client's addresses and
    /// brings it up.
    fn configure(
        &mut self,
        control: &Control,
        name: &str,
        lines: &mut Lines,
    ) -> Result<(), DeviceError> {
        let index = control
            .index(name)
            .map_err(DeviceError::set_up(format!("find {name}")))?;
        let mut refused = None;
        for end in &self.client {
            match netlink::add_address(index, end.address, end.prefix) {
                Ok(()) => {}
                Err(error) if sys::is_errno(&error, libc::EEXIST) => {}
                Err(error) if self.chosen && end.address.is_ipv6() => refused = Some(error),
                Err(source) => {
                    return Err(DeviceError::SetUp {
                        step: format!("give {name} address {end}"),
                        source,
                    });
                }
            }
        }
        if let Some(error) = refused {
            self.server.retain(|end| end.address.is_ipv4());
            self.client.retain(|end| end.address.is_ipv4());
            lines.push((
                "warning",
                format!("no IPv6: {name} takes no IPv6 address ({error})"),
            ));
        }
        bring_up(control, name)
    }

    fn line(&self, name: &str) -> (&'static str, String) {
        ("this host's end", format!("{name}, {}", join(&self.client)))
    }
}

/// Brings an interface up, which needs no right when it is up.
fn bring_up(control: &Control, name: &str) -> Result<(), DeviceError> {
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

/// The other addresses of a network that a host may have, the lowest first.
fn neighbours(own: AddressPrefix) -> impl Iterator<Item = IpAddr> {
    // As many as the server could have addresses of its own, and some that
    // are none.
    const LOOK_AT: u128 = 512;
    let (bits, own_bits) = match own.address {
        IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let host_bits = bits - u32::from(own.prefix);
    let hosts = 1u128.checked_shl(host_bits).unwrap_or(u128::MAX);
    let network = own_bits & !(hosts - 1);
    // The lowest address of a larger network names it, and the highest of an
    // IPv4 one is its broadcast (RFC 3021 for the smallest).
    let (first, end) = match (own.address.is_ipv4(), host_bits) {
        (true, 2..) => (1, hosts - 1),
        (false, 2..) => (1, hosts),
        _ => (0, hosts),
    };
    (first..end.min(first + LOOK_AT))
        .map(move |host| network + host)
        .filter_map(move |address| {
            let address = match own.address {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(address).ok()?)),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(address)),
            };
            (address != own.address).then_some(address)
        })
}

/// Opens device `auto`.
pub(super) fn open(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    // What the user got wrong is no reason to try another way.
    let addressing = plan(config)?;
    let refused = match open_pair(config, addressing) {
        Ok(interface) => return Ok(interface),
        Err(error) => error,
    };
    match open_auto_tap(config, plan(config)?) {
        Ok(mut interface) => {
            interface.add_line("why not AF_XDP", refused.to_string());
            Ok(interface)
        }
        Err(tap) => Err(DeviceError::Auto {
            xdp: Box::new(refused),
            tap: Box::new(tap),
        }),
    }
}

fn plan(config: &InterfaceConfig) -> Result<Addressing, DeviceError> {
    let (_, taken) = sys::interfaces().map_err(DeviceError::set_up("list addresses"))?;
    if let Some(ours) = taken
        .iter()
        .find(|t| config.own_addresses.iter().any(|o| o.address == t.address))
    {
        let interface = ours.interface.clone();
        return Err(DeviceError::AddressTaken {
            address: ours.address,
            interface,
        });
    }
    Addressing::plan(&config.own_addresses, &taken)
}

/// This host's end of a veth pair; dropping it removes the pair.
pub(super) struct VethPair {
    name: String,
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // The namespace would take it away too, but some time later.
        let removed = Control::new()
            .and_then(|control| control.index(&self.name))
            .and_then(netlink::delete_link);
        if let Err(error) = removed {
            tracing::debug!(target: "nmio::device", "cannot remove {}: {error}", self.name);
        }
    }
}

impl VethPair {
    /// Makes `<program>0`, or with the next number that is free, with its
    /// peer in `namespace`.
    fn create(program: &str, queues: u32, namespace: &Namespace) -> Result<Self, DeviceError> {
        for suffix in 0..MAX_SUFFIX {
            let name = format!("{program}{suffix}");
            match netlink::create_veth(&name, SERVER_END, queues, namespace.as_fd()) {
                Ok(()) => return Ok(Self { name }),
                Err(error) if sys::is_errno(&error, libc::EEXIST) => {}
                Err(error) => {
                    return Err(set_up_error(error, "make a veth pair"));
                }
            }
        }
        Err(names_used_up(program))
    }
}

fn names_used_up(program: &str) -> DeviceError {
    DeviceError::SetUp {
        step: format!(
            "name an interface: {program}0 to {program}{} exist",
            MAX_SUFFIX - 1
        ),
        source: io::ErrorKind::AlreadyExists.into(),
    }
}

fn set_up_error(source: io::Error, step: &'static str) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::Rights {
            what: "a network device",
            source,
        },
        _ => DeviceError::SetUp {
            step: step.to_owned(),
            source,
        },
    }
}

fn open_pair(config: &InterfaceConfig, mut wire: Addressing) -> Result<Interface, DeviceError> {
    let queues = config.queues.max(1);
    let namespace = Namespace::new()
        .map_err(|error| set_up_error(error, "make a private network namespace"))?;
    let pair = VethPair::create(config.program, queues, &namespace)?;
    let control = Control::new().map_err(DeviceError::set_up("configure interfaces"))?;
    let mut lines = Lines::new();
    wire.configure(&control, &pair.name, &mut lines)?;
    let offload = DeviceError::set_up(format!("turn off TX checksum offload on {}", pair.name));
    control.disable_tx_checksums(&pair.name).map_err(offload)?;
    let wanted = XdpWanted {
        interface: SERVER_END,
        queues,
        generic: false,
        own: &wire.server,
        services: &config.services,
    };
    let ready = namespace
        .run(|| open_server_end(&wanted))
        .map_err(DeviceError::set_up("enter the private network namespace"))??;
    let mut interface = Interface::from_xdp(ready, &wanted, config.wait);
    interface.set_device_line("auto: a veth pair with AF_XDP".into());
    let (name, value) = wire.line(&pair.name);
    interface.add_line(name, value);
    for (name, value) in lines {
        interface.add_line(name, value);
    }
    Ok(interface.on_pair(pair, namespace))
}

/// Runs in the private namespace.
fn open_server_end(wanted: &XdpWanted<'_>) -> Result<XdpReady, DeviceError> {
    // This kernel end has nothing to say; without IPv6 it says nothing. Where
    // IPv6 is off anyway the file is missing.
    let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let control = Control::new().map_err(DeviceError::set_up("configure interfaces"))?;
    let offload = DeviceError::set_up("turn off TX checksum offload on the server's end");
    control.disable_tx_checksums(SERVER_END).map_err(offload)?;
    let up = DeviceError::set_up("bring the server's end up");
    control.set_up(SERVER_END).map_err(up)?;
    XdpReady::open(wanted)
}

fn open_auto_tap(config: &InterfaceConfig, wire: Addressing) -> Result<Interface, DeviceError> {
    for suffix in 0..MAX_SUFFIX {
        let name = format!("{}{suffix}", config.program);
        let how = TapFlags {
            multi_queue: config.queues > 1,
            exclusive: true,
        };
        match attach(&name, how) {
            Ok(first) => {
                let mut interface = finish_tap(config, name, first, Some(wire))?;
                interface.set_device_line("auto: a tap device (slower than AF_XDP)".into());
                return Ok(interface);
            }
            Err(error) if sys::is_errno(&error, libc::EBUSY) => {}
            Err(error) if sys::is_errno(&error, libc::EEXIST) => {}
            Err(error) => return Err(tap_error(&name, error)),
        }
    }
    Err(names_used_up(config.program))
}

/// Opens device `tap:NAME`.
pub(super) fn open_named_tap(
    config: &InterfaceConfig,
    name: &str,
) -> Result<Interface, DeviceError> {
    let control = Control::new().map_err(DeviceError::set_up("ask for interfaces"))?;
    let exists = control.index(name).is_ok();
    if exists && config.own_addresses.is_empty() {
        return Err(DeviceError::TapNeedsAddress {
            name: name.to_owned(),
        });
    }
    let wire = if exists { None } else { Some(plan(config)?) };
    let how = TapFlags {
        multi_queue: config.queues > 1,
        exclusive: false,
    };
    let first = attach(name, how).map_err(|error| tap_error(name, error))?;
    let mut interface = finish_tap(config, name.to_owned(), first, wire)?;
    let made = if exists {
        "there before"
    } else {
        "made for the server"
    };
    interface.set_device_line(format!("tap {name}, {made}"));
    Ok(interface)
}

fn finish_tap(
    config: &InterfaceConfig,
    name: String,
    first: File,
    wire: Option<Addressing>,
) -> Result<Interface, DeviceError> {
    let mut queues = vec![Arc::new(first)];
    let how = TapFlags {
        multi_queue: config.queues > 1,
        exclusive: false,
    };
    for _ in 1..config.queues {
        queues.push(Arc::new(
            attach(&name, how).map_err(|error| tap_error(&name, error))?,
        ));
    }
    let control = Control::new().map_err(DeviceError::set_up("configure interfaces"))?;
    let mut lines = Lines::new();
    let addresses = if let Some(mut wire) = wire {
        wire.configure(&control, &name, &mut lines)?;
        lines.push(wire.line(&name));
        wire.server_addresses()
    } else {
        bring_up(&control, &name)?;
        config.own_addresses.iter().map(|own| own.address).collect()
    };
    let mtu = control
        .mtu(&name)
        .map_err(DeviceError::set_up(format!("ask for {name}'s MTU")))?;
    lines.push((
        "addresses",
        format!("{} (the server's own)", join(&addresses)),
    ));
    lines.push(("queues", queues.len().to_string()));
    let mut interface = Interface::from_tap(name, queues, mtu, addresses, config.wait);
    for (name, value) in lines {
        interface.add_line(name, value);
    }
    Ok(interface)
}

/// Opens one queue of a tap device. It goes with its last descriptor, unless
/// someone else made it persistent.
fn attach(name: &str, how: TapFlags) -> io::Result<File> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    sys::attach_tap(&tun, name, how)?;
    Ok(tun)
}

fn tap_error(name: &str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::Rights {
            what: "a tap device",
            source,
        },
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => DeviceError::Kernel {
            what: "tap devices (/dev/net/tun)",
            source,
        },
        _ => DeviceError::SetUp {
            step: format!(
                "open tap device {name} (is it a tap device, with as many queues, and free?)"
            ),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    fn taken(text: &str) -> InterfaceAddress {
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
        let wire = Addressing::plan(&[], &[taken("198.18.0.1/30"), taken("10.0.0.1/8")]).unwrap();
        assert_eq!(
            wire.server,
            [prefix("198.18.0.6/30"), prefix("fd9a:5e1d:70ac:1::2/126")]
        );
        let wire = Addressing::plan(&[], &[taken("198.18.3.7/22")]).unwrap();
        assert_eq!(
            wire.server[0],
            prefix("198.18.4.2/30"),
            "a larger network around it"
        );
    }

    #[test]
    fn the_client_gets_a_neighbour_of_each_given_address() {
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
