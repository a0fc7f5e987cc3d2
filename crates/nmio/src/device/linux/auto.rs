//! Opens private links between the server and this host: veth pairs for device `auto`, and tap
//! devices.
//!
//! ```text
//!   this host's kernel                        the server
//!   sandstorm0 198.18.0.1/30 ──── veth ──── 198.18.0.2   (private network namespace)
//!   tap0       198.18.0.1/30 ──── tap  ──── 198.18.0.2   (no interface at all)
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use super::addressing::{Addressing, bring_up};
use super::namespace::Namespace;
use super::netlink;
use super::opened;
use super::pair::VethPair;
use super::pfifo::QUEUE_LEN;
use super::ready::{XdpReady, XdpRequest};
use crate::device::addresses::{interface_addresses, refuse_taken};
use crate::device::lines::{Lines, join_addresses};
use crate::device::{
    DeviceError, Interface, InterfaceConfig, Needs, NetworkRequest, Queues, XdpOptions,
};
use crate::sys::{self, Control, TapFlags};
use crate::xdp::MAX_GSO_SIZE;

/// Number of interface names to try for one program. For example, sandstorm tries sandstorm0 to
/// sandstorm99.
const MAX_SUFFIX: u32 = 100;
/// Name of the server's end of a veth pair. The name can be fixed, because the private namespace
/// has no other interface with this name.
const SERVER_END: &str = "server";

/// Opens device `auto`: a veth pair, or else a tap device.
pub(super) fn open(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    // Report configuration errors before trying a veth pair, because falling back to a tap device
    // would not fix them.
    let addressing = Addressing::new(config)?;
    let xdp_error = match open_pair(config, addressing) {
        Ok(interface) => return Ok(interface),
        Err(error) => error,
    };
    match open_auto_tap(config, Addressing::new(config)?) {
        Ok(mut interface) => {
            interface.add_line("why not AF_XDP", xdp_error.to_string());
            Ok(interface)
        }
        Err(tap) => Err(DeviceError::Auto {
            xdp: Box::new(xdp_error),
            tap: Box::new(tap),
        }),
    }
}

/// Creates a veth pair. This host's end is called `<program>N`, where N is the lowest free number.
/// The server's end is in `namespace`.
fn create_pair(program: &str, queues: u32, namespace: &Namespace) -> Result<VethPair, DeviceError> {
    for suffix in 0..MAX_SUFFIX {
        let name = format!("{program}{suffix}");
        match VethPair::create(name, SERVER_END, queues, namespace.as_fd()) {
            Ok(pair) => return Ok(pair),
            Err(error) if sys::is_errno(&error, libc::EEXIST) => {}
            Err(error) => {
                return Err(set_up_error(error, "create a veth pair"));
            }
        }
    }
    Err(names_used_up(program))
}

fn names_used_up(program: &str) -> DeviceError {
    DeviceError::SetUp {
        step: format!(
            "choose an interface name: {program}0 to {program}{} all exist; remove those that \
             no program uses with: ip link delete NAME",
            MAX_SUFFIX - 1
        ),
        source: io::ErrorKind::AlreadyExists.into(),
    }
}

fn set_up_error(source: io::Error, step: &'static str) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            DeviceError::privileges("create a network device", Needs::Auto, source)
        }
        _ => DeviceError::SetUp {
            step: step.to_owned(),
            source,
        },
    }
}

fn open_pair(config: &InterfaceConfig, mut wire: Addressing) -> Result<Interface, DeviceError> {
    let queues = config.wire_queues();
    let namespace = Namespace::new()
        .map_err(|error| set_up_error(error, "create a private network namespace"))?;
    let pair = create_pair(config.program, queues, &namespace)?;
    let control = Control::new().map_err(DeviceError::set_up("configure interfaces"))?;
    let mut lines = Lines::new();
    wire.configure(&control, pair.name(), &mut lines)?;
    let offload = DeviceError::set_up(format!("turn off TX checksum offload on {}", pair.name()));
    control.disable_tx_checksums(pair.name()).map_err(offload)?;
    let request = XdpRequest {
        network: NetworkRequest {
            interface: SERVER_END,
            own: &wire.server,
        },
        services: &config.services,
        options: &XdpOptions::new(SERVER_END),
        queues: Queues::Exactly(queues),
        wait: config.wait,
    };
    keep_tags(&control, pair.name())?;
    add_queue(&control, pair.name())?;
    lines.insert(0, wire.line(pair.name()));
    let ready = namespace
        .run(|| open_server_end(&request))
        .map_err(DeviceError::set_up("enter the private network namespace"))??;
    let mut interface = opened::xdp(ready, &request, Some((pair, &namespace)));
    interface.set_device_line("auto: a veth pair with AF_XDP".into());
    for (name, value) in lines {
        interface.add_line(name, value);
    }
    Ok(interface)
}

/// Adds a packet queue to one end of a veth pair, so that a fast sender waits instead of losing
/// packets.
fn add_queue(control: &Control, name: &str) -> Result<(), DeviceError> {
    control
        .index(name)
        .and_then(|index| netlink::add_queue(index, QUEUE_LEN))
        .map_err(DeviceError::set_up(format!(
            "set the queue length of {name}"
        )))
}

/// Keeps VLAN tags in the frames of interface `name`. The steering program must see the tags,
/// because on this link the server accepts only untagged frames.
fn keep_tags(control: &Control, name: &str) -> Result<(), DeviceError> {
    let step = format!("keep VLAN tags in the frames of {name}");
    control.keep_tags(name).map_err(DeviceError::set_up(step))
}

/// Opens the server's end of the pair. Must be called in the private namespace.
fn open_server_end(request: &XdpRequest<'_>) -> Result<XdpReady, DeviceError> {
    // Stop the kernel from sending its own IPv6 packets on this end. Errors are ignored, because
    // the file does not exist if IPv6 is disabled.
    let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let control = Control::new().map_err(DeviceError::set_up("configure interfaces"))?;
    let up = DeviceError::set_up("bring the server's end up");
    control.set_up(SERVER_END).map_err(up)?;
    keep_tags(&control, SERVER_END)?;
    add_queue(&control, SERVER_END)?;
    // Allow the longest super-segments, because no other host shares this link. An error is
    // ignored, because shorter super-segments work too. The summary shows the limit in effect.
    let _ = control
        .index(SERVER_END)
        .and_then(|index| netlink::allow_supers(index, MAX_GSO_SIZE as u32));
    XdpReady::open(request)
}

fn open_auto_tap(config: &InterfaceConfig, wire: Addressing) -> Result<Interface, DeviceError> {
    for suffix in 0..MAX_SUFFIX {
        let name = format!("{}{suffix}", config.program);
        let flags = TapFlags {
            multi_queue: config.wire_queues() > 1,
            exclusive: true,
        };
        match attach(&name, flags) {
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
    let control = Control::new().map_err(DeviceError::set_up("query interfaces"))?;
    let exists = control.index(name).is_ok();
    if exists && !control.is_tap(name) {
        return Err(DeviceError::NotTap {
            name: name.to_owned(),
        });
    }
    if exists && config.own_addresses.is_empty() {
        return Err(DeviceError::TapNeedsAddress {
            name: name.to_owned(),
        });
    }
    let wire = if exists {
        refuse_taken(&config.own_addresses, &interface_addresses()?)?;
        None
    } else {
        Some(Addressing::new(config)?)
    };
    let flags = TapFlags {
        multi_queue: config.wire_queues() > 1,
        exclusive: false,
    };
    let first = attach(name, flags).map_err(|error| tap_error(name, error))?;
    let mut interface = finish_tap(config, name.to_owned(), first, wire)?;
    let origin = if exists {
        "existing"
    } else {
        "made for the server"
    };
    interface.set_device_line(format!("tap {name}, {origin}"));
    Ok(interface)
}

fn finish_tap(
    config: &InterfaceConfig,
    name: String,
    first: File,
    wire: Option<Addressing>,
) -> Result<Interface, DeviceError> {
    let mut queues = vec![Arc::new(OwnedFd::from(first))];
    let flags = TapFlags {
        multi_queue: config.wire_queues() > 1,
        exclusive: false,
    };
    for _ in 1..config.wire_queues() {
        let queue = attach(&name, flags).map_err(|error| tap_error(&name, error))?;
        queues.push(Arc::new(queue.into()));
    }
    let control = Control::new().map_err(DeviceError::set_up("configure interfaces"))?;
    let mut lines = Lines::new();
    let addresses = if let Some(mut wire) = wire {
        wire.configure(&control, &name, &mut lines)?;
        lines.push(wire.line(&name));
        wire.server
    } else {
        bring_up(&control, &name)?;
        config.own_addresses.clone()
    };
    let mtu = control
        .mtu(&name)
        .map_err(DeviceError::set_up(format!("read the MTU of {name}")))?;
    lines.push((
        "addresses",
        format!("{} (the server's own)", join_addresses(&addresses)),
    ));
    lines.push(("queues", queues.len().to_string()));
    let mut interface = opened::tap(name, queues, mtu, addresses, config.wait);
    for (name, value) in lines {
        interface.add_line(name, value);
    }
    Ok(interface)
}

/// Opens one queue of a tap device, which is created if it does not exist. With
/// [`TapFlags::exclusive`], fails if it exists. Closing the device's last descriptor removes the
/// device unless it is persistent.
fn attach(name: &str, flags: TapFlags) -> io::Result<File> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    sys::attach_tap(&tun, name, flags)?;
    Ok(tun)
}

fn tap_error(name: &str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            DeviceError::privileges("open a tap device", Needs::Tap, source)
        }
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => DeviceError::Kernel {
            what: "tap devices (/dev/net/tun)",
            remedy: "load the driver with: modprobe tun, or use --device xdp:IFACE",
            source,
        },
        _ => DeviceError::SetUp {
            step: format!(
                "open tap device {name} (another program may use it, or it was created with \
                 another number of queues)"
            ),
            source,
        },
    }
}
