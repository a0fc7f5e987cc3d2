//! Errors that occur when an interface is opened.

use std::net::IpAddr;
use std::{fmt, io};

use thiserror::Error;

use netmap_sys::NETMAP_API;

use super::{Needs, Transport};
use crate::sys;

/// The command that raises the number of netmap's buffers.
const BUFFER_COUNT: &str = if cfg!(target_os = "linux") {
    "echo NUMBER > /sys/module/netmap/parameters/buf_num"
} else {
    "sysctl dev.netmap.buf_num=NUMBER"
};
/// The command that enlarges netmap's buffers.
const BUFFER_SIZE: &str = if cfg!(target_os = "linux") {
    "echo BYTES > /sys/module/netmap/parameters/buf_size"
} else {
    "sysctl dev.netmap.buf_size=BYTES"
};

/// What to do if netmap does not support a port.
const NO_SUPPORT: &str = if cfg!(target_os = "linux") {
    "netmap may use only native mode (admode=1), which the interface's driver lacks, or netmap was built \
     without this kind of port; allow emulated mode with: echo 0 > \
     /sys/module/netmap/parameters/admode"
} else {
    "netmap may use only native mode (admode=1), which the interface's driver lacks, or netmap was built \
     without this kind of port; allow emulated mode with: sysctl dev.netmap.admode=0"
};

/// Why an interface or one of its queues could not be opened.
///
/// Most messages name the device or option, the problem, and a remedy. `Debug` prints the message as
/// well, because a `main` that returns an error prints it in this way.
#[derive(Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No interface in this network namespace has the requested name.
    #[error("there is no network interface {name:?}; choose one of: {existing}")]
    UnknownInterface {
        /// The requested name.
        name: String,
        /// The existing names, separated by commas.
        existing: String,
    },
    /// The interface is not up.
    #[error("interface {name} is down; bring it up with: ip link set {name} up")]
    InterfaceDown {
        /// The interface's name.
        name: String,
    },
    /// The interface is not an Ethernet interface.
    #[error(
        "interface {name} is not Ethernet, which the server needs; serve another interface, or use \
         --device auto for clients on this host"
    )]
    NotEthernet {
        /// The interface's name.
        name: String,
    },
    /// This process lacks the privileges for the operation.
    #[error("no permission to {what} ({source}); {advice}")]
    Privileges {
        /// The operation, phrased to follow "no permission to".
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// Which capabilities the device needs, which of them this process lacks, and what to do.
        advice: String,
    },
    /// The kernel lacks a feature, or the feature's module is not loaded.
    #[error("this kernel has no {what} ({source}); {remedy}")]
    Kernel {
        /// The missing feature.
        what: &'static str,
        /// What the user can do.
        remedy: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Only another operating system has this kind of device.
    #[error("device {device} needs Linux; on FreeBSD use --device netmap:IFACE")]
    OtherSystem {
        /// The device as the user wrote it.
        device: String,
    },
    /// `vlan=` cannot work, because the device strips VLAN tags before XDP sees the frames.
    #[error(
        "vlan= does not work on {interface}, because the device strips tags before XDP sees them; \
         run: {remedy}"
    )]
    TagsStripped {
        /// The interface's name.
        interface: String,
        /// The commands that make the device keep tags in the frames.
        remedy: String,
    },
    /// `offload=on` cannot work on this interface.
    #[error("offload=on does not work on {interface}: {why}; use offload=auto or offload=off")]
    Offload {
        /// The interface's name.
        interface: String,
        /// Why the interface cannot send super-segments.
        why: String,
    },
    /// `zerocopy=required` was given, but the driver refuses zero-copy.
    #[error(
        "zerocopy=required does not work on {interface}: its driver or this kernel refuses zero-copy \
         ({source}); use zerocopy=auto to copy packets instead, or see docs/interfaces.md for drivers \
         with zero-copy (virtio_net needs a kernel after 6.12 and a device with iommu_platform=on)"
    )]
    NoZeroCopy {
        /// The interface's name.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// `zerocopy=required` was given, but the driver refuses zero-copy at this MTU.
    #[error(
        "zerocopy=required does not work on {interface} at an MTU of {mtu} bytes: packets above {largest} \
         bytes span several buffers, and its driver refuses zero-copy with them, or has none ({source}); \
         lower the MTU with: ip link set {interface} mtu 1500, or use zerocopy=auto to copy packets"
    )]
    NoLargeZeroCopy {
        /// The interface's name.
        interface: String,
        /// The interface's MTU, in bytes.
        mtu: usize,
        /// The largest MTU whose packets fit in one buffer, in bytes. Drivers may allow less.
        largest: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// A packet of the interface's MTU does not fit in a frame of the packet memory.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, but the server supports at most {largest}; \
         lower it with: ip link set {interface} mtu {largest}"
    )]
    Mtu {
        /// The interface's name.
        interface: String,
        /// The interface's MTU, in bytes.
        mtu: usize,
        /// The largest MTU that works, in bytes.
        largest: usize,
    },
    /// A packet of the interface's MTU needs several buffers, which this kernel does not support.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, and packets above {largest} bytes need Linux \
         6.6 or later ({source}); lower it with: ip link set {interface} mtu {largest}"
    )]
    MultiBuffer {
        /// The interface's name.
        interface: String,
        /// The interface's MTU, in bytes.
        mtu: usize,
        /// The largest MTU that works without this feature, in bytes.
        largest: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The driver refuses XDP at this MTU.
    #[error(
        "the driver of {interface} refuses XDP at an MTU of {mtu} bytes ({source}); lower it \
         with: ip link set {interface} mtu 1500, or use xdp:{interface},generic"
    )]
    DriverMtu {
        /// The interface's name.
        interface: String,
        /// The interface's MTU, in bytes.
        mtu: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// `--workers` and `queues=` specify different numbers.
    #[error(
        "--workers {workers} and queues={queues} differ: each worker serves one queue, so give \
         only one of these options, or neither to serve all queues"
    )]
    WorkersAndQueues {
        /// Requested number of workers.
        workers: u32,
        /// Requested number of queues.
        queues: u32,
    },
    /// The options ask for more queues than the device has queue pairs, or than the steering
    /// program supports.
    #[error(
        "cannot serve {asked} queues of {interface}, one per worker: it has {has} queues that both \
         receive and send; ask for fewer with queues=N or --workers N, or change the number of \
         queues: {remedy}"
    )]
    TooManyQueues {
        /// The interface's name.
        interface: String,
        /// Number of queues to serve.
        asked: u32,
        /// Number of the device's queue pairs.
        has: u32,
        /// The command that changes the number of queues, or the reason why there is none.
        remedy: String,
    },
    /// The device has fewer TX queues than RX queues.
    #[error(
        "{interface} receives on {rx} queues but sends on {tx}, and each worker needs both \
         kinds; change the number of queues: {remedy}"
    )]
    FewTxQueues {
        /// The interface's name.
        interface: String,
        /// Number of RX queues.
        rx: u32,
        /// Number of TX queues.
        tx: u32,
        /// The command that changes the number of queues, or the reason why there is none.
        remedy: String,
    },
    /// Packets could arrive on queues that are not served.
    #[error(
        "{interface} receives on {has} queues, but only {served} would be served, so clients whose \
         packets arrive on the others would get no answer; serve all {has} (omit queues= and \
         --workers), reduce the number of queues ({remedy}), or accept the loss with \
         queues={served},partial"
    )]
    UnservedQueues {
        /// The interface's name.
        interface: String,
        /// Number of the device's RX queues.
        has: u32,
        /// Number of queues that would be served.
        served: u32,
        /// The command that reduces the number of queues, or the reason why there is none.
        remedy: String,
    },
    /// Another `AF_XDP` socket uses the queue.
    #[error(
        "another AF_XDP program uses queue {queue} of {interface}; stop that program or \
         serve another interface"
    )]
    QueueBusy {
        /// The interface's name.
        interface: String,
        /// Number of the queue, counted from 0.
        queue: u32,
    },
    /// Another XDP program is attached to the interface.
    #[error(
        "another XDP program is attached to {interface}, and an interface takes only one server; \
         see it with: ip link show {interface}, and stop its owner, or serve another interface; one \
         process can serve several programs, as storm does (control::Both combines programs in Rust)"
    )]
    ProgramBusy {
        /// The interface's name.
        interface: String,
    },
    /// The driver does not support native XDP.
    #[error("the driver of {interface} has no native XDP ({source}); use xdp:{interface},generic")]
    NoNativeXdp {
        /// The interface's name.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The peer of a veth interface has more TX queues than the interface has RX queues.
    #[error(
        "the driver of {interface} refuses XDP ({source}): the other end of a veth pair must not \
         send on more queues than {interface} receives on; at the other end run: \
         ethtool -L PEER tx {rx}"
    )]
    PeerQueues {
        /// The interface's name.
        interface: String,
        /// Number of the interface's RX queues.
        rx: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses to attach the steering program, for a reason that no other variant
    /// covers.
    #[error(
        "cannot attach the XDP program to {interface}: {source}; the kernel log (dmesg) may say why"
    )]
    Attach {
        /// The interface's name.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The steering program or its maps could not be set up.
    #[error("cannot {step}: {source}")]
    Steering {
        /// The failed step, phrased to follow "cannot".
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The device has no queue with this number.
    #[error(
        "{interface} has no queue {queue} (counted from 0); ask for fewer with queues=N or \
         --workers N"
    )]
    NoSuchQueue {
        /// The interface's name.
        interface: String,
        /// Number of the queue, counted from 0.
        queue: u32,
    },
    /// The `AF_XDP` socket could not be bound, for a reason that no other variant covers.
    #[error(
        "cannot bind an AF_XDP socket to queue {queue} of {interface}: {source}; the kernel log \
         (dmesg) may say why"
    )]
    Bind {
        /// The interface's name.
        interface: String,
        /// Number of the queue, counted from 0.
        queue: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// The packet memory exceeds the available memory, or the kernel refuses to allocate or lock
    /// it.
    #[error(
        "cannot allocate {} MiB of packet memory for one queue, which holds its frames and the program's \
         resident packets ({source}); raise the limit on locked memory with: ulimit -l unlimited, or \
         grant CAP_IPC_LOCK; if memory itself is short, let the program keep fewer resident packets, \
         or none as in the mode memcopy", bytes >> 20
    )]
    Memory {
        /// Requested size, in bytes.
        bytes: u64,
        /// The kernel's error, or [`io::ErrorKind::OutOfMemory`].
        source: io::Error,
    },
    /// Shared mode was requested, but the interface has no address.
    #[error(
        "interface {interface} has no address; add one with: ip address add ADDRESS/PREFIX dev \
         {interface}, or give the server its own address with --address"
    )]
    NoAddress {
        /// The interface's name.
        interface: String,
    },
    /// Shared mode was requested, but the interface has no address because it is a port of another
    /// interface.
    #[error(
        "interface {interface} has no address, because it is a port of the {kind} {master}; serve \
         {master} with --device xdp:{master} (or xdp:{master},generic if it has no native XDP), or \
         remove {interface} from it with: ip link set {interface} nomaster"
    )]
    PortWithoutAddress {
        /// The interface's name.
        interface: String,
        /// Name of the interface, such as a bridge, of which `interface` is a port.
        master: String,
        /// The kind of the interface `master`, such as `bridge`.
        kind: String,
    },
    /// Shared mode was requested, which this operating system does not support.
    #[error(
        "the server cannot share the addresses of {interface} with this kernel; give it its own \
         address with --address ADDRESS/PREFIX"
    )]
    SharedAddresses {
        /// The interface's name.
        interface: String,
    },
    /// An address given with `--address` already belongs to this host.
    #[error(
        "{interface} already has address {address}, and the server would take all its traffic from \
         the kernel; omit --address to share the address, or choose an unused one"
    )]
    AddressTaken {
        /// The IP address.
        address: IpAddr,
        /// The interface that already has the address.
        interface: String,
    },
    /// This host's end of a new link would get an address that this host already has.
    #[error(
        "{interface} already has address {address}, which this host would get at its end of the new link, \
         too; choose one in another network with --address"
    )]
    HostEndTaken {
        /// The IP address.
        address: IpAddr,
        /// The interface that already has the address.
        interface: String,
    },
    /// The same address is given twice with `--address`.
    #[error("--address {address} is given twice; leave one out")]
    DuplicateAddress {
        /// The IP address.
        address: IpAddr,
        /// The index of the value that has it again, from 0.
        index: usize,
    },
    /// Another program already uses the port.
    #[error(
        "another program uses {transport} port {port} on {address}; stop that program, or \
         serve another port"
    )]
    PortTaken {
        /// The transport protocol.
        transport: Transport,
        /// The port number.
        port: u16,
        /// The IP address.
        address: IpAddr,
    },
    /// The kernel refuses to reserve the port, for a reason that no other variant covers.
    #[error(
        "cannot reserve {transport} port {port} on {address}: {source}; make sure that the \
         interface still has this address, or serve another port"
    )]
    Reserve {
        /// The transport protocol.
        transport: Transport,
        /// The port number.
        port: u16,
        /// The IP address.
        address: IpAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The options ask for more addresses, ports or queues than the steering program supports.
    #[error("cannot serve {count} {what}: at most {most} are supported; ask for fewer")]
    TooMany {
        /// The kind of the items: addresses, ports or queues.
        what: &'static str,
        /// The number to serve.
        count: usize,
        /// The largest supported number.
        most: usize,
    },
    /// The server's network has no free address for the client's end of the link.
    #[error(
        "{address}/{prefix} leaves no address for this host's end of the wire; give a shorter \
         prefix, such as {address}/{}", if address.is_ipv4() { 30 } else { 126 }
    )]
    NoRoomForClient {
        /// The server's address.
        address: IpAddr,
        /// Prefix length of the server's address.
        prefix: u8,
    },
    /// The interface exists but is not a tap device.
    #[error("interface {name} is not a tap device; serve it with --device xdp:{name}")]
    NotTap {
        /// The interface's name.
        name: String,
    },
    /// An existing tap device needs an explicit server address.
    #[error(
        "tap device {name} exists already, so the server chooses no addresses; give its address \
         with --address ADDRESS/PREFIX"
    )]
    TapNeedsAddress {
        /// The device's name.
        name: String,
    },
    /// This host has no netmap device.
    #[error(
        "there is no {device} ({source}): the kernel has no netmap; on Linux, load its module with: \
         modprobe netmap (docs/netmap.md says how to build it), or use --device xdp:{name}"
    )]
    NoNetmap {
        /// The path of the device that the server tried to open.
        device: &'static str,
        /// The requested port.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel's netmap has another API.
    #[error(
        "the kernel's netmap does not speak version {NETMAP_API} of its API, which the server needs; if \
         the module is older, load one that was built from a newer source (docs/netmap.md says how); if it \
         is newer, update the server; or use a device without netmap"
    )]
    NetmapVersion,
    /// The kernel's netmap refuses a request for a port.
    #[error("netmap refuses {name}: {source}; {remedy}")]
    Netmap {
        /// The requested port.
        name: String,
        /// The kernel's error.
        source: io::Error,
        /// The likely cause and what to do.
        remedy: &'static str,
    },
    /// The netmap port has fewer ring pairs than the options ask for.
    #[error(
        "cannot serve {asked} queues of {name}: it has {rx} RX and {tx} TX rings; ask \
         for fewer with queues=N or --workers N"
    )]
    NetmapRings {
        /// The interface's name.
        name: String,
        /// Number of queues to serve.
        asked: u32,
        /// Number of RX rings.
        rx: u32,
        /// Number of TX rings.
        tx: u32,
    },
    /// netmap has fewer free buffers than the server needs.
    #[error(
        "netmap has too few buffers for {name}: the server needs {wanted} besides those in the rings, \
         and got {granted}; raise the number with: {BUFFER_COUNT}, or let the program keep fewer resident \
         packets, or none as in the mode memcopy"
    )]
    NetmapBuffers {
        /// The requested port.
        name: String,
        /// Number of buffers that the server needs in addition to those in the rings.
        wanted: u32,
        /// Number of buffers that netmap granted.
        granted: u32,
    },
    /// A packet of the port's MTU does not fit in a netmap buffer.
    #[error(
        "a packet of {mtu} bytes does not fit in the {buffer} bytes of a netmap buffer of {name}; \
         lower the MTU, or enlarge the buffers with: {BUFFER_SIZE}"
    )]
    NetmapMtu {
        /// The requested port.
        name: String,
        /// The port's MTU, in bytes.
        mtu: usize,
        /// Size of a buffer, in bytes.
        buffer: usize,
    },
    /// netmap would replace a queueing discipline that the server cannot restore at its end.
    #[error(
        "in emulated mode, netmap replaces the queueing discipline {kind} of {name}, which the server \
         cannot make again at its end; remove it with: tc qdisc del dev {name} root, or serve the \
         interface with --device xdp:{name}"
    )]
    NetmapQueue {
        /// The interface's name.
        name: String,
        /// The kind of the queueing discipline.
        kind: String,
    },
    /// The netmap port needs an explicit server address.
    #[error(
        "netmap port {name} has no address of its own; give the server one with --address \
         ADDRESS/PREFIX"
    )]
    NetmapNeedsAddress {
        /// The requested port.
        name: String,
    },
    /// A step of setting up a device failed, for a reason that no other variant covers.
    #[error("cannot {step}: {source}")]
    SetUp {
        /// The step that failed, phrased to follow "cannot".
        step: String,
        /// The cause, which is usually the kernel's error.
        source: io::Error,
    },
    /// Both ways to open device `auto` failed.
    #[error(
        "device auto does not work here. A veth pair with AF_XDP fails: {xdp}. A tap device fails: \
         {tap}"
    )]
    Auto {
        /// Why opening the veth pair failed.
        xdp: Box<DeviceError>,
        /// Why opening the tap device failed.
        tap: Box<DeviceError>,
    },
}

impl fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DeviceError {
    /// Returns [`UnknownInterface`](Self::UnknownInterface) with the list of existing interfaces.
    pub(crate) fn unknown_interface(name: &str) -> Self {
        let existing =
            sys::interfaces().map_or_else(|e| e.to_string(), |(names, _)| names.join(", "));
        Self::UnknownInterface {
            name: name.to_owned(),
            existing,
        }
    }

    /// Returns [`Privileges`](Self::Privileges) with advice about missing capabilities.
    pub(crate) fn privileges(what: &'static str, needs: Needs, source: io::Error) -> Self {
        Self::Privileges {
            what,
            source,
            advice: needs.advice(),
        }
    }

    pub(crate) fn memory(bytes: u64, source: io::Error) -> Self {
        Self::Memory { bytes, source }
    }

    /// Returns [`Netmap`](Self::Netmap) with advice about the likely cause.
    pub(crate) fn netmap(name: &str, source: io::Error) -> Self {
        let remedy = match source.raw_os_error() {
            Some(libc::EBUSY) => "another program uses this port or its rings; stop it",
            Some(libc::ENXIO) => "no interface has this name, or the switch does not exist",
            Some(libc::EINVAL) => {
                "the interface's MTU may be larger than netmap's buffers (lower the MTU, or raise \
                 buf_size), or the port has no such ring; the kernel log (dmesg) says which"
            }
            Some(libc::ENOMEM) => {
                "netmap's memory is used up: stop other users of netmap, or raise its limits in \
                 /sys/module/netmap/parameters"
            }
            Some(libc::EIO) => {
                "the port has virtio-net headers, which the server reads only with offload=on"
            }
            Some(libc::EOPNOTSUPP) => NO_SUPPORT,
            _ => "the kernel log (dmesg) may say why",
        };
        Self::Netmap {
            name: name.to_owned(),
            source,
            remedy,
        }
    }

    /// Returns an error if `count`, the number of items of kind `what`, exceeds `most`.
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
        assert!(
            at("ulimit -l unlimited") < at("fewer resident packets"),
            "{text}"
        );
        // A library's program need not have the option.
        assert!(!text.contains("--mode"), "{text}");
    }

    #[test]
    fn a_main_that_returns_the_error_prints_its_message() {
        let name = "tap0".to_owned();
        let boxed: Box<dyn std::error::Error> = DeviceError::NotTap { name }.into();
        let expected = "interface tap0 is not a tap device; serve it with --device xdp:tap0";
        assert_eq!(format!("{boxed:?}"), expected);
    }

    #[test]
    fn a_driver_without_netmap_support_has_a_remedy() {
        let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let text = DeviceError::netmap("eth0", source).to_string();
        let parts = ["netmap refuses eth0", "only native mode", "admode"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(!text.contains("dmesg"), "{text}");
    }
}
