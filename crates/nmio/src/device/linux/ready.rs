//! Prepares an interface for `AF_XDP`: checks the interface, and attaches the steering program.
//!
//! The interface must be in the calling thread's network namespace.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::followed::Followed;
use super::lost_offloads::{LostOffloads, RECEIVE};
use super::napi::{self, PolledQueues};
use super::network::{self, HeldSocket, Link, query_error};
use super::pfifo::Pfifo;
use super::{affinity, netlink, queues};
use crate::device::current_addresses::distinct;
use crate::device::lines::{Lines, join};
use crate::device::{
    AddressPrefix, DeviceError, Needs, NetworkRequest, Queues, Transport, XdpOptions,
};
use crate::port::Wait;
use crate::steering::Rules;
use crate::sys::Control;
use crate::xdp::steer::{Place, Steering};
use crate::xdp::{self, MAX_MTU};

/// The interface to open, and the requested options.
pub(super) struct XdpRequest<'a> {
    pub(super) network: NetworkRequest<'a>,
    pub(super) services: &'a [(Transport, u16)],
    pub(super) options: &'a XdpOptions,
    /// Which queues to serve, after `--workers` was taken into account.
    pub(super) queues: Queues,
    pub(super) wait: Wait,
}

/// An XDP interface with its steering program attached.
pub(super) struct XdpReady {
    pub(super) steering: Steering,
    pub(super) offloads: Option<LostOffloads>,
    /// The `AF_XDP` socket of each queue. It is not bound yet.
    pub(super) queue_sockets: Vec<Arc<OwnedFd>>,
    /// Sockets that reserve the served ports or keep the multicast groups joined.
    pub(super) open_sockets: Vec<HeldSocket>,
    /// How to follow the addresses.
    pub(super) followed: Option<Followed>,
    pub(super) pfifo: Option<Pfifo>,
    pub(super) polled: Option<PolledQueues>,
    /// The interface's number.
    pub(super) index: u32,
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
        let name = request.network.interface;
        let control = Control::new().map_err(DeviceError::set_up("query interfaces"))?;
        let link = Link::of(&control, name)?;
        if link.mtu > MAX_MTU {
            return Err(DeviceError::Mtu {
                interface: name.to_owned(),
                mtu: link.mtu,
                largest: MAX_MTU,
            });
        }
        let mut lines = vec![link.line(name)];
        let mode = if request.options.generic {
            "generic: the kernel allocates a buffer for each packet first"
        } else {
            "native: runs in the driver"
        };
        lines.push(("XDP mode", mode.to_owned()));
        let queues = queues::choose(&control, name, request.queues, &mut lines)?;
        affinity::describe(name, queues, &mut lines);
        check_vlans(&control, request, &mut lines)?;
        let networks = network::find_addresses(&request.network, &link, &mut lines)?;
        let addresses = distinct(&networks);
        check_unused(name, link.index)?;
        let open_sockets = network::hold(
            &request.network,
            request.services,
            &link,
            &addresses,
            &mut lines,
        )?;
        if request.options.partial_checksums {
            lines.push((
                "checksums",
                "partial TCP and UDP checksums (pseudo-header only) are accepted".to_owned(),
            ));
        }
        let is_veth = control.is_veth(name);
        let pfifo = tx_queue(request, link.index, is_veth, &mut lines)?;
        let queue_sockets = open_queues(queues, request.wait)?;
        let attach = || attach(request, &link, &addresses);
        let place = (&control, name, link.index);
        let (offloads, steering) = LostOffloads::around(place, &RECEIVE, &mut lines, attach)?;
        // Some drivers create the NAPI instances only with the XDP program.
        let polled = if request.wait == Wait::BusyPoll {
            PolledQueues::defer(name, link.index, queues, &mut lines)
        } else {
            napi::describe(name, link.index, &mut lines);
            None
        };
        register(&steering, &queue_sockets)?;
        Ok(Self {
            steering,
            offloads,
            queue_sockets,
            open_sockets,
            followed: Some(followed(request, link.index, &networks)),
            pfifo,
            polled,
            index: link.index,
            mac: link.mac,
            mtu: link.mtu,
            is_veth,
            queues,
            addresses: networks,
            lines,
        })
    }
}

/// Attaches the steering program.
fn attach(
    request: &XdpRequest<'_>,
    link: &Link,
    addresses: &[IpAddr],
) -> Result<Steering, DeviceError> {
    let rules = Rules {
        own: !request.network.own.is_empty(),
        mac: link.mac,
        vlans: &request.options.vlans,
        addresses,
        services: request.services,
    };
    let place = Place {
        interface: request.network.interface,
        index: link.index,
        mtu: link.mtu,
        generic: request.options.generic,
    };
    Steering::attach(place, &rules)
}

/// Returns how to follow the addresses of interface number `index`, on which `served` are served.
fn followed(request: &XdpRequest<'_>, index: u32, served: &[AddressPrefix]) -> Followed {
    let is_own = !request.network.own.is_empty();
    Followed {
        interface: request.network.interface.to_owned(),
        index,
        services: request.services.to_vec(),
        own: is_own.then(|| served.to_vec()),
    }
}

/// Adds the packet queue of `qdisc=pfifo`, if this option is given. Otherwise says whether a veth
/// interface lacks a queue. No other driver drops packets only because there is none. Cards pause the
/// sender of a full ring, and a full tap device drops packets in any case.
fn tx_queue(
    request: &XdpRequest<'_>,
    index: u32,
    is_veth: bool,
    lines: &mut Lines,
) -> Result<Option<Pfifo>, DeviceError> {
    if request.options.pfifo {
        return Pfifo::add(request.network.interface, index, lines);
    }
    if is_veth {
        note_missing_queue(request.network.interface, index, lines)?;
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
                "{name} drops packets while its peer's ring is full; to make all senders wait \
                 instead, add qdisc=pfifo to --device, or run: tc qdisc add dev {name} root pfifo \
                 limit 1000"
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

/// Opens a socket for each queue.
fn open_queues(queues: u32, wait: Wait) -> Result<Vec<Arc<OwnedFd>>, DeviceError> {
    let open = || xdp::unbound_socket(wait).map(Arc::new);
    let sockets: io::Result<Vec<_>> = (0..queues).map(|_| open()).collect();
    sockets.map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            DeviceError::privileges("open an AF_XDP socket", Needs::Xdp, source)
        }
        _ => DeviceError::Kernel {
            what: "AF_XDP sockets",
            remedy: "use --device tap:NAME, which does not need them",
            source,
        },
    })
}

/// Makes the steering program pass the packets of each queue to its socket.
fn register(steering: &Steering, sockets: &[Arc<OwnedFd>]) -> Result<(), DeviceError> {
    let joined = (0..)
        .zip(sockets)
        .try_for_each(|(queue, socket)| steering.join(queue, socket.as_fd()));
    joined.map_err(|source| DeviceError::Steering {
        step: "register the AF_XDP socket of a queue with the steering program",
        source,
    })
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
    let interface = request.network.interface.to_owned();
    let strips = control.strips_tags(&interface);
    let mut remedy = format!("ethtool -K {interface} rxvlan off");
    if control.is_veth(&interface) {
        // On veth, the sender must write tags into the frame, because the receiver does not move
        // them there from the metadata.
        remedy.push_str(", and at the other end: ethtool -K PEER txvlan off");
    }
    match (strips, &*request.options.vlans) {
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
