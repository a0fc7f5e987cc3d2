//! Why the name of a device could not be parsed.

use thiserror::Error;

use super::limits::{MAX_QUEUES, MAX_VIRTUAL_MTU, MAX_VLAN_ID, MAX_VLANS, MIN_VIRTUAL_MTU};

/// Why a text could not be parsed as a device. Each message names the wrong word or option, and
/// says how to correct it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseDeviceError {
    /// The text is only a name, which may be that of an interface.
    #[error(
        "{0:?} is not a device; write xdp:{0} to serve the interface {0}, or one of: auto, tap:NAME, \
         netmap:IFACE"
    )]
    OnlyName(String),
    /// The text is not `auto`, and does not start with `xdp:`, `tap:` or `netmap:`.
    #[error(
        "{0:?} is not a device; write auto, \
         xdp:IFACE[,queues=N[,partial]][,vlan=ID[,ID]][,generic][,partial-checksums]\
         [,zerocopy=auto|required|off][,offload=auto|on|off][,qdisc=pfifo], tap:NAME, \
         netmap:IFACE[,queues=N[,partial]][,partial-checksums], netmap:valeX:Y[,mtu=BYTES][,offload=auto|on|off], \
         netmap:NAME{{N[,mtu=BYTES][,offload=auto|on|off] or netmap:NAME}}N[,mtu=BYTES]\
         [,offload=auto|on|off]"
    )]
    Kind(String),
    /// The interface name is invalid.
    #[error(
        "{0:?} is not an interface name: use 1 to 15 characters, without space, slash, comma or \
         colon"
    )]
    Name(String),
    /// A word after the interface name is not a valid option.
    #[error(
        "{0:?} is not an option of an xdp device; the options are queues=N, partial, \
         vlan=ID[,ID], generic, partial-checksums, zerocopy=auto|required|off, \
         offload=auto|on|off, qdisc=pfifo"
    )]
    Option(String),
    /// The name of a netmap port is invalid.
    #[error(
        "{0:?} is not a netmap port; write an interface, a port of a switch like vale0:web, or one \
         end of a pipe like web{{1 or web}}1"
    )]
    NetmapName(String),
    /// The name requests a monitor of another port.
    #[error(
        "{0:?} is a netmap monitor, which sees packets but cannot answer them; leave out the part \
         from the slash on"
    )]
    NetmapMonitor(String),
    /// A word after the name of a netmap port is not a valid option.
    #[error(
        "{0:?} is not an option of this netmap device; the options of an interface are queues=N, \
         partial and partial-checksums, and those of a switch or a pipe are mtu=BYTES and \
         offload=auto|on|off"
    )]
    NetmapOption(String),
    /// An option or a VLAN occurs twice.
    #[error("{0} is given twice; leave one out")]
    Duplicate(String),
    /// The MTU is invalid.
    #[error("{0:?} is not an MTU; write mtu={MIN_VIRTUAL_MTU} to mtu={MAX_VIRTUAL_MTU}")]
    Mtu(String),
    /// The number of queues is invalid.
    #[error("{0:?} is not a number of queues; write queues=1 to queues={MAX_QUEUES}")]
    Queues(String),
    /// `partial` occurs without a number of queues.
    #[error("partial needs the number of queues to serve; write queues=N,partial")]
    Partial,
    /// `generic` and `zerocopy=required` contradict each other.
    #[error(
        "generic mode always copies packets, so it contradicts zerocopy=required; leave one out"
    )]
    GenericZeroCopy,
    /// A VLAN number is invalid.
    #[error(
        "{0:?} is not a VLAN; write vlan=ID or vlan=ID,ID with numbers from 0 to {MAX_VLAN_ID}"
    )]
    Vlan(String),
    /// There are more VLANs than [`MAX_VLANS`].
    #[error("vlan= lists more than {MAX_VLANS} VLANs, which is the maximum; leave some out")]
    Vlans,
}
