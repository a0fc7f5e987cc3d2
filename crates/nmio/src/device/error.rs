//! What can go wrong while an interface is made ready, in words for people.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::{Needs, Transport};
use crate::sys;

/// Why an interface or one of its queues could not be opened. Each message
/// names the thing, what is wrong with it, and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No interface of that name in this network namespace.
    #[error("there is no network interface {name:?}; there are: {existing}")]
    UnknownInterface {
        /// The name asked for.
        name: String,
        /// The names there are, joined by commas.
        existing: String,
    },
    /// The interface is not up.
    #[error("interface {name} is down; bring it up with: ip link set {name} up")]
    InterfaceDown {
        /// The interface.
        name: String,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "interface {name} is not Ethernet, and packets are served over Ethernet only; for clients \
         on this host use --device auto"
    )]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// The kernel forbids it to this user.
    #[error("no right to open {what} ({source}); {advice}")]
    Rights {
        /// What was to be opened.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// What the device needs, what this process lacks, and what to do.
        advice: String,
    },
    /// The kernel was built without something.
    #[error("this kernel has no {what} ({source}); device tap:NAME needs none")]
    Kernel {
        /// What it lacks.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `vlan=` cannot be obeyed.
    #[error(
        "vlan= does not work on {interface}, as the device strips tags before XDP sees them; \
         run: {remedy}"
    )]
    TagsStripped {
        /// The interface.
        interface: String,
        /// The command that leaves tags in the frames.
        remedy: String,
    },
    /// Super-segments were asked for, and cannot be.
    #[error(
        "offload=on does not work on {interface}: {why}; use offload=auto, which says at start \
         what it does"
    )]
    Offload {
        /// The interface.
        interface: String,
        /// What is in the way.
        why: String,
    },
    /// Frames of this size do not fit the packet memory.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes and at most {largest} can be served; \
         lower it with: ip link set {interface} mtu {largest}"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU, in bytes.
        mtu: usize,
        /// The largest MTU that works, in bytes.
        largest: usize,
    },
    /// The driver refuses XDP at this MTU.
    #[error(
        "the driver of {interface} refuses XDP at an MTU of {mtu} bytes ({source}); lower it \
         with: ip link set {interface} mtu 1500, or use xdp:{interface},generic"
    )]
    DriverMtu {
        /// The interface.
        interface: String,
        /// Its MTU, in bytes.
        mtu: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `--workers` and the device's `queues` disagree.
    #[error(
        "--workers {workers} and queues={queues} differ: each worker serves one queue, so give one \
         of them, or neither to serve all queues"
    )]
    WorkersAndQueues {
        /// Workers asked for.
        workers: u32,
        /// Queues asked for.
        queues: u32,
    },
    /// More queues than the device has, or than can be served.
    #[error(
        "{asked} queues of {interface} were to be served, one by each worker, and it has {has} that \
         receive and send; ask for fewer with queues=N or --workers N, or change their number: \
         {remedy}"
    )]
    TooManyQueues {
        /// The interface.
        interface: String,
        /// Queues asked for.
        asked: u32,
        /// Queues that the device has.
        has: u32,
        /// The command that changes their number.
        remedy: String,
    },
    /// Some RX queues have no TX queue to answer by.
    #[error(
        "{interface} receives on {rx} queues and sends on {tx}, and a served queue needs both; \
         change their number: {remedy}"
    )]
    FewTxQueues {
        /// The interface.
        interface: String,
        /// Its RX queues.
        rx: u32,
        /// Its TX queues.
        tx: u32,
        /// The command that changes their number.
        remedy: String,
    },
    /// Packets may arrive on queues that would not be served.
    #[error(
        "{interface} receives on {has} queues and {served} would be served, so clients whose \
         packets arrive on the others would get no answer; serve all {has} (leave queues= and \
         --workers away), let it have fewer ({remedy}), or accept the loss with \
         queues={served},partial"
    )]
    UnservedQueues {
        /// The interface.
        interface: String,
        /// Queues that the device has.
        has: u32,
        /// Queues that would be served.
        served: u32,
        /// The command that reduces their number.
        remedy: String,
    },
    /// Another `AF_XDP` socket has this queue.
    #[error(
        "queue {queue} of {interface} is taken by another AF_XDP program; stop that program or \
         serve another interface"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue, counted from 0.
        queue: u32,
    },
    /// Another XDP program is attached.
    #[error(
        "another XDP program is attached to {interface}; see it with: ip link show {interface}, \
         and stop its owner, or serve another interface"
    )]
    ProgramBusy {
        /// The interface.
        interface: String,
    },
    /// The driver cannot do native XDP.
    #[error("the driver of {interface} has no native XDP ({source}); use xdp:{interface},generic")]
    NoNativeXdp {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The other end of a veth pair sends on more queues than this one receives
    /// on.
    #[error(
        "the driver of {interface} refuses XDP ({source}): the other end of a veth pair must not \
         send on more queues than {interface} receives on; at the other end run: \
         ethtool -L PEER tx {rx}"
    )]
    PeerQueues {
        /// The interface.
        interface: String,
        /// Its RX queues.
        rx: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Some other refusal of the steering program.
    #[error("the XDP program could not be attached to {interface}: {source}")]
    Attach {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The program or its maps could not be set up.
    #[error("the XDP steering program failed to {step}: {source}")]
    Steering {
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The device has no such queue.
    #[error(
        "{interface} has no queue {queue} to serve, counted from 0; ask for fewer with queues=N \
         or --workers N"
    )]
    NoSuchQueue {
        /// The interface.
        interface: String,
        /// The queue, counted from 0.
        queue: u32,
    },
    /// The socket could not be bound.
    #[error("an AF_XDP socket could not be bound to queue {queue} of {interface}: {source}")]
    Bind {
        /// The interface.
        interface: String,
        /// The queue, counted from 0.
        queue: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel does not give the packet memory.
    #[error(
        "{} MiB of packet memory for one queue could not be had ({source}); lift the limit on \
         locked memory with: ulimit -l unlimited, or the capability CAP_IPC_LOCK; if the memory \
         itself is short, --mode memcopy takes less than pre-copy", bytes >> 20
    )]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The interface has no address to share.
    #[error(
        "interface {interface} has no address; give it one with: ip address add \
         ADDRESS/PREFIX dev {interface}, or the server one of its own with --address"
    )]
    NoAddress {
        /// The interface.
        interface: String,
    },
    /// The interface has no address to share, as another one has them.
    #[error(
        "interface {interface} has no address, as it is a port of the {kind} {master}; serve that \
         with --device xdp:{master} (xdp:{master},generic where it has no native XDP), or take \
         {interface} out of it with: ip link set {interface} nomaster"
    )]
    PortWithoutAddress {
        /// The interface.
        interface: String,
        /// The interface that it is a port of.
        master: String,
        /// What that is, such as a bridge.
        kind: String,
    },
    /// An address meant to be the server's own is the kernel's.
    #[error(
        "{address} is an address of {interface} already, and all traffic to it would be taken \
         from the kernel; leave --address away to share it, or choose one that nobody has"
    )]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// The interface that has it.
        interface: String,
    },
    /// Two of the server's own addresses are the same.
    #[error("--address {address} is given twice; leave one out")]
    AddressTwice {
        /// The address.
        address: IpAddr,
    },
    /// A kernel socket has the port.
    #[error(
        "{transport} port {port} on {address} is taken by another program; stop that program, or \
         serve another port"
    )]
    PortTaken {
        /// The transport.
        transport: Transport,
        /// The port.
        port: u16,
        /// The address.
        address: IpAddr,
    },
    /// The port cannot be reserved.
    #[error("{transport} port {port} on {address} cannot be reserved: {source}")]
    Reserve {
        /// The transport.
        transport: Transport,
        /// The port.
        port: u16,
        /// The address.
        address: IpAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The steering tables are bounded.
    #[error("{count} {what} to serve, and at most {most} are possible; ask for fewer")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many were asked for.
        count: usize,
        /// How many are possible.
        most: usize,
    },
    /// The client's end of the wire needs an address beside the server's.
    #[error(
        "{address}/{prefix} leaves no address for this host's end of the wire; give a shorter \
         prefix, such as {address}/{}", if address.is_ipv4() { 30 } else { 126 }
    )]
    NoRoomForClient {
        /// The server's address.
        address: IpAddr,
        /// Its prefix length.
        prefix: u8,
    },
    /// The interface exists, and is of another kind.
    #[error("interface {name} is no tap device; serve it with --device xdp:{name}")]
    NotTap {
        /// The interface.
        name: String,
    },
    /// A tap device that existed before is not given addresses.
    #[error(
        "tap device {name} exists already, so the server's address cannot be guessed: say which \
         with --address ADDRESS/PREFIX"
    )]
    TapNeedsAddress {
        /// The device.
        name: String,
    },
    /// A step of setting up a device failed.
    #[error("cannot {step}: {source}")]
    SetUp {
        /// The step, as words after "cannot".
        step: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Neither of `auto`'s two ways works.
    #[error("device auto is impossible here. A veth pair with AF_XDP: {xdp}. A tap device: {tap}")]
    Auto {
        /// Why the first way failed.
        xdp: Box<DeviceError>,
        /// Why the second way failed.
        tap: Box<DeviceError>,
    },
}

impl DeviceError {
    /// The interface is missing; tells which there are.
    pub(crate) fn unknown_interface(name: &str) -> Self {
        let existing =
            sys::interfaces().map_or_else(|e| e.to_string(), |(names, _)| names.join(", "));
        Self::UnknownInterface {
            name: name.to_owned(),
            existing,
        }
    }

    /// The kernel forbids it; tells which capabilities are lacking.
    pub(crate) fn rights(what: &'static str, needs: Needs, source: io::Error) -> Self {
        Self::Rights {
            what,
            source,
            advice: needs.advice(),
        }
    }

    pub(crate) fn memory(bytes: u64, source: io::Error) -> Self {
        Self::Memory { bytes, source }
    }

    pub(crate) fn bind(interface: &str, queue: u32, source: io::Error) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EBUSY) => Self::QueueBusy { interface, queue },
            Some(libc::EINVAL) => Self::NoSuchQueue { interface, queue },
            Some(libc::EPERM | libc::EACCES) => {
                Self::rights("an AF_XDP socket", Needs::Xdp, source)
            }
            _ => Self::Bind {
                interface,
                queue,
                source,
            },
        }
    }

    pub(crate) fn attach(interface: &str, mtu: usize, generic: bool, source: io::Error) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => Self::ProgramBusy { interface },
            Some(libc::EPERM | libc::EACCES) => Self::rights("an XDP program", Needs::Xdp, source),
            Some(libc::ENOSPC) => Self::PeerQueues {
                rx: sys::Control::new()
                    .ok()
                    .and_then(|control| control.channels(&interface))
                    .map_or(1, |channels| channels.rx),
                interface,
                source,
            },
            Some(libc::ERANGE) => Self::DriverMtu {
                interface,
                mtu,
                source,
            },
            Some(libc::EOPNOTSUPP) if !generic => Self::NoNativeXdp { interface, source },
            _ => Self::Attach { interface, source },
        }
    }

    /// Refuses a `count` of `what` above `most`.
    pub(super) fn check_count(what: &'static str, count: usize, most: usize) -> Result<(), Self> {
        if count > most {
            return Err(Self::TooMany { what, count, most });
        }
        Ok(())
    }

    pub(crate) fn set_up(step: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let step = step.into();
        move |source| Self::SetUp { step, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_locked_memory_is_the_first_remedy() {
        let source = io::Error::from_raw_os_error(libc::ENOBUFS);
        let text = DeviceError::memory(8 << 20, source).to_string();
        let at = |word: &str| text.find(word).unwrap();
        assert!(at("ulimit -l unlimited") < at("--mode"), "{text}");
    }
}
