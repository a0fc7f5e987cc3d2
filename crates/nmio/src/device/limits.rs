//! Limits on the options of a device.

/// Maximum number of VLANs that can be served on one interface.
pub const MAX_VLANS: usize = 64;
/// The largest VLAN number. IEEE 802.1Q reserves 4,095.
pub(super) const MAX_VLAN_ID: u16 = 4094;
/// Maximum number of queues that can be served on one interface; equals `MAX_QUEUES` in the
/// steering program.
pub const MAX_QUEUES: u32 = 256;
/// Maximum length of an interface name, in bytes: `IFNAMSIZ` minus the terminating zero.
pub(super) const MAX_INTERFACE_NAME: usize = 15;
/// Smallest MTU of a netmap port of a switch or pipe, in bytes: the minimum of IPv6 (RFC 8200).
pub(super) const MIN_VIRTUAL_MTU: u16 = 1280;
/// Largest MTU of a netmap port of a switch or pipe, in bytes: that of IP.
pub(super) const MAX_VIRTUAL_MTU: u16 = 65_535;
