//! Loads and attaches the steering program, `bpf/steer.bpf.c`.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel};

use super::link;
use super::retry::Retry;
use super::sizes::ORDINARY_MTU;
use crate::device::{DeviceError, Needs, Transport};
use crate::steering::Rules;
use crate::sys;

/// Declares that a program accepts packets in several buffers (`linux/bpf.h`, Linux 5.18).
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;

/// In how many buffers a driver may store a packet. The program reads only the first one, which
/// contains all headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffers {
    One,
    Several,
}

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// The attached program. Dropping this value detaches the program. The kernel also detaches it when
/// the process exits.
pub(crate) struct Steering {
    _link: OwnedFd,
    /// The map from queues to sockets.
    xsks: OwnedFd,
    tables: Tables,
}

/// The program's tables that can change while it is attached.
struct Tables {
    /// The map `addresses`, and the addresses in it.
    map: OwnedFd,
    addresses: Vec<IpAddr>,
    /// The map that holds the variable `rules`, and the variable's bytes.
    rules: OwnedFd,
    variable: [u8; VARIABLE],
}

impl Tables {
    fn of(object: &Object, rules: &Rules<'_>) -> io::Result<Self> {
        let open = |map: libbpf_rs::Map<'_>| map.as_fd().try_clone_to_owned();
        Ok(Self {
            map: open(map(object, "addresses"))?,
            addresses: rules.addresses.to_vec(),
            rules: open(rules_of(object))?,
            variable: variable(rules),
        })
    }

    /// Changes the addresses to `new`, and the MAC address to `mac` if it is known.
    fn set_addresses(&mut self, mac: Option<[u8; 6]>, new: &[IpAddr]) -> io::Result<()> {
        let (map, old) = (self.map.as_fd(), &self.addresses);
        for address in old.iter().filter(|one| !new.contains(one)) {
            link::remove(map, &address_key(*address))?;
        }
        for address in new {
            link::insert(map, &address_key(*address), &PRESENT)?;
        }
        self.variable[FIRST_V4_AT].copy_from_slice(&first_v4(new));
        if let Some(mac) = mac {
            self.variable[MAC_AT].copy_from_slice(&mac);
        }
        link::insert(self.rules.as_fd(), &0u32.to_ne_bytes(), &self.variable)?;
        self.addresses = new.to_vec();
        Ok(())
    }
}

/// The interface to which to attach the program. It is in the calling thread's network namespace.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) interface: &'a str,
    /// The interface's number.
    pub(crate) index: u32,
    /// The interface's MTU, in bytes.
    pub(crate) mtu: usize,
    /// Whether to use generic XDP.
    pub(crate) generic: bool,
}

impl Steering {
    /// Loads the program with `rules` and attaches it to an interface.
    pub(crate) fn attach(place: Place<'_>, rules: &Rules<'_>) -> Result<Self, DeviceError> {
        let attached = Self::attach_as(Buffers::One, place, rules);
        match attached {
            // Drivers refuse a large MTU with various errors, unless the program declares that a
            // packet may span several buffers.
            Err(error) if place.mtu > ORDINARY_MTU && error.may_depend_on_mtu() => {
                let several = Self::attach_as(Buffers::Several, place, rules);
                several.map_err(|_| error)
            }
            attached => attached,
        }
    }

    fn attach_as(
        buffers: Buffers,
        place: Place<'_>,
        rules: &Rules<'_>,
    ) -> Result<Self, DeviceError> {
        let Place {
            interface,
            index,
            mtu,
            generic,
        } = place;
        let object = load(rules, buffers)?;
        let program = object.progs().find(|program| program.name() == "steer");
        let program = program.expect("the object has this program");
        let retry = Retry::begin();
        let link = loop {
            match link::attach(program.as_fd(), index, generic) {
                Ok(link) => break link,
                Err(error) if sys::is_errno(&error, libc::EBUSY) && retry.wait() => {}
                Err(error) => {
                    return Err(DeviceError::attach(interface, mtu, generic, error));
                }
            }
        };
        let kept = |source| DeviceError::Steering {
            step: "keep the steering program's maps open",
            source,
        };
        let xsks = map(&object, "xsks").as_fd().try_clone_to_owned();
        let xsks = xsks.map_err(kept)?;
        let tables = Tables::of(&object, rules).map_err(kept)?;
        // The link keeps the program alive, and the program keeps its maps alive. So `object` can
        // be dropped.
        Ok(Self {
            _link: link,
            xsks,
            tables,
        })
    }

    /// Steers the packets to these addresses, and to no others. There are at most
    /// [`MAX_ADDRESSES`](crate::device::MAX_ADDRESSES). `mac` is the interface's MAC address, or `None`
    /// if it is unchanged.
    ///
    /// # Errors
    /// The kernel's error. Some of the addresses may then be in use.
    pub(crate) fn set_addresses(
        &mut self,
        mac: Option<[u8; 6]>,
        addresses: &[IpAddr],
    ) -> io::Result<()> {
        self.tables.set_addresses(mac, addresses)
    }

    /// Makes `socket` receive the server's packets that arrive on `queue`, as soon as it is bound.
    pub(crate) fn join(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        join(self.xsks.as_fd(), queue, socket)
    }
}

/// Puts a socket into the map from queues to sockets. When the socket is closed, the kernel removes it
/// from the map.
fn join(xsks: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let socket = socket.as_raw_fd().to_ne_bytes();
    link::insert(xsks, &queue.to_ne_bytes(), &socket)
}

/// End of the name of the map that holds the program's variable `rules`.
const RULES: &str = ".data.rules";

fn rules_of(object: &Object) -> libbpf_rs::Map<'_> {
    object
        .maps()
        .find(|map| map.name().as_bytes().ends_with(RULES.as_bytes()))
        .expect("the object has this variable")
}

fn map<'a>(object: &'a Object, name: &str) -> libbpf_rs::Map<'a> {
    object
        .maps()
        .find(|map| map.name() == name)
        .expect("the object has this map")
}

/// Logs libbpf's messages at debug level.
#[allow(clippy::needless_pass_by_value)] // libbpf defines the signature
fn log(_: PrintLevel, message: String) {
    tracing::debug!(target: "nmio::xdp", "libbpf: {}", message.trim_end());
}

fn load(rules: &Rules<'_>, buffers: Buffers) -> Result<Object, DeviceError> {
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, log)));
    let loaded = open_and_load(rules, buffers);
    libbpf_rs::set_print(before);
    loaded.map_err(|error| load_error(error.kind(), io::Error::other(error.to_string())))
}

/// Distinguishes missing privileges (`EPERM`) from a program that the kernel's verifier refuses
/// (`EACCES`). `libbpf-rs` gives both the same kind, and hides the error's number.
fn load_error(kind: ErrorKind, source: io::Error) -> DeviceError {
    let refusal = io::Error::from_raw_os_error(libc::EACCES).to_string();
    let step = if source.to_string().contains(&refusal) {
        "load the XDP steering program, because this kernel's verifier refuses it; the log says why \
         with --log debug, and a newer kernel or --device tap:NAME avoids it"
    } else if kind == ErrorKind::PermissionDenied {
        return DeviceError::privileges("load an XDP program", Needs::Xdp, source);
    } else {
        "load the XDP steering program"
    };
    DeviceError::Steering { step, source }
}

fn open_and_load(rules: &Rules<'_>, buffers: Buffers) -> libbpf_rs::Result<Object> {
    let mut open = ObjectBuilder::default()
        .name("steer")?
        .open_memory(PROGRAM)?;
    let rules_map = open
        .maps_mut()
        .find(|map| map.name().as_bytes().ends_with(RULES.as_bytes()));
    let mut rules_map = rules_map.expect("the object has this variable");
    rules_map.set_initial_value(&variable(rules))?;
    if buffers == Buffers::Several {
        for mut program in open.progs_mut() {
            program.set_flags(BPF_F_XDP_HAS_FRAGS);
        }
    }
    let object = open.load()?;
    let addresses = map(&object, "addresses");
    for address in rules.addresses {
        addresses.update(&address_key(*address), &PRESENT, MapFlags::ANY)?;
    }
    let services = map(&object, "services");
    for &(transport, port) in rules.services {
        services.update(&service_key(transport, port), &PRESENT, MapFlags::ANY)?;
    }
    Ok(object)
}

const PRESENT: [u8; 4] = 1u32.to_ne_bytes();

/// Place of the first IPv4 address in the program's variable `rules`.
const FIRST_V4_AT: Range<usize> = 4..8;
/// Place of the MAC address in the program's variable `rules`.
const MAC_AT: Range<usize> = 12..18;
/// Offset of the VLAN bit set in the program's variable `rules`, in bytes. `VARIABLE` is the size
/// of `rules` in bytes.
const VLANS_AT: usize = 20;
const VARIABLE: usize = VLANS_AT + 4096 / 8;

/// Returns the first IPv4 address in `addresses`, or zeroes if there is none.
fn first_v4(addresses: &[IpAddr]) -> [u8; 4] {
    let first = addresses.iter().find_map(|address| match address {
        IpAddr::V4(v4) => Some(v4.octets()),
        IpAddr::V6(_) => None,
    });
    first.unwrap_or_default()
}

/// Builds the program's variable `rules`.
fn variable(rules: &Rules<'_>) -> [u8; VARIABLE] {
    let first_service = rules.services.first();
    let mut bytes = [0; VARIABLE];
    bytes[..4].copy_from_slice(&u32::from(rules.own).to_ne_bytes());
    bytes[FIRST_V4_AT].copy_from_slice(&first_v4(rules.addresses));
    if let Some(&(transport, port)) = first_service {
        bytes[8..12].copy_from_slice(&service_key(transport, port));
    }
    bytes[MAC_AT].copy_from_slice(&rules.mac);
    for &id in rules.vlans {
        bytes[VLANS_AT + usize::from(id / 8)] |= 1 << (id % 8);
    }
    bytes
}

/// Builds the program's `struct address`, a map key.
fn address_key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .octets()
}

/// Builds the program's `struct service`, a map key.
fn service_key(transport: Transport, port: u16) -> [u8; 4] {
    let protocol = transport.protocol().to_ne_bytes();
    let port = port.to_be_bytes();
    [protocol[0], protocol[1], port[0], port[1]]
}

#[cfg(test)]
#[path = "steer_tests.rs"]
mod tests;
