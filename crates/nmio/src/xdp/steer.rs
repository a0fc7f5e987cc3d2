//! Loads and attaches the steering program, `bpf/steer.bpf.c`.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

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
    xsks: Arc<OwnedFd>,
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
        let xsks = map(&object, "xsks").as_fd().try_clone_to_owned();
        let xsks = xsks.map_err(|source| DeviceError::Steering {
            step: "keep the steering program's socket map open",
            source,
        })?;
        // The link keeps the program alive, and the program keeps its maps alive. So `object` can
        // be dropped.
        Ok(Self {
            _link: link,
            xsks: Arc::new(xsks),
        })
    }

    /// Returns the map from queues to sockets, for [`join`].
    pub(crate) fn xsks(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.xsks)
    }
}

/// Makes `socket` receive the server's packets that arrive on `queue`. When the socket is closed,
/// the kernel removes it from the map.
pub(crate) fn join(xsks: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    link::update(xsks, queue, socket.as_raw_fd().cast_unsigned())
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
    let constants = open
        .maps_mut()
        .find(|map| map.name().as_bytes().ends_with(b".rodata"));
    let mut constants = constants.expect("the object has constants");
    constants.set_initial_value(&constant(rules))?;
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

/// Offset of the VLAN bit set in the program's constant `rules`, in bytes. `CONSTANT` is the size
/// of `rules` in bytes.
const VLANS_AT: usize = 20;
const CONSTANT: usize = VLANS_AT + 4096 / 8;

/// Builds the program's constant `rules`.
fn constant(rules: &Rules<'_>) -> [u8; CONSTANT] {
    let first_v4 = rules.addresses.iter().find_map(|address| match address {
        IpAddr::V4(v4) => Some(v4.octets()),
        IpAddr::V6(_) => None,
    });
    let first_service = rules.services.first();
    let mut bytes = [0; CONSTANT];
    bytes[..4].copy_from_slice(&u32::from(rules.own).to_ne_bytes());
    bytes[4..8].copy_from_slice(&first_v4.unwrap_or_default());
    if let Some(&(transport, port)) = first_service {
        bytes[8..12].copy_from_slice(&service_key(transport, port));
    }
    bytes[12..18].copy_from_slice(&rules.mac);
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
