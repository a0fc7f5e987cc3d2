//! Bodies of the requests to VALE, netmap's software switch.
//!
//! A switch exists while it has a port. A descriptor that is bound to `valeX:Y` creates the port
//! `Y`, and removes it when it is closed. The requests here attach interfaces and persistent ports,
//! which stay attached without a descriptor.

use crate::requests::nmreq_register;

/// Prefix of the name of every VALE switch.
pub const NM_BDG_NAME: &str = "vale";

/// Polling mode ([`nmreq_vale_polling::nr_mode`]): one kernel thread polls all RX rings.
pub const NETMAP_POLLING_MODE_SINGLE_CPU: u32 = 1;
/// Polling mode: one kernel thread polls each RX ring. Ring `n` is polled by processor `n`.
pub const NETMAP_POLLING_MODE_MULTI_CPU: u32 = 2;

/// Body of [`NETMAP_REQ_VALE_ATTACH`](crate::NETMAP_REQ_VALE_ATTACH). The name in the header has
/// the form `valeX:INTERFACE`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_vale_attach {
    /// How to bind the interface. The mode is [`NR_REG_ALL_NIC`](crate::NR_REG_ALL_NIC), or
    /// [`NR_REG_NIC_SW`](crate::NR_REG_NIC_SW) to attach the host's stack too. Ring number: 0.
    pub reg: nmreq_register,
    /// Out: index of the port at the switch.
    pub port_index: u32,
    /// Padding.
    pub pad1: u32,
}

/// Body of [`NETMAP_REQ_VALE_DETACH`](crate::NETMAP_REQ_VALE_DETACH). The name in the header has
/// the form `valeX:INTERFACE`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_vale_detach {
    /// Out: index that the port had at the switch.
    pub port_index: u32,
    /// Padding.
    pub pad1: u32,
}

/// Body of [`NETMAP_REQ_VALE_LIST`](crate::NETMAP_REQ_VALE_LIST).
///
/// With the name `valeX:Y` in the header, the kernel looks up the two indices of this port. With an
/// empty name, it looks for the first port at or after the two indices. It writes the name of this
/// port to the header, and its indices to the body. It answers `ENOENT` if there are no more.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_vale_list {
    /// Index of the switch.
    pub nr_bridge_idx: u16,
    /// Padding.
    pub pad1: u16,
    /// Index of the port at the switch. Out: 255 if the switch exists and the port does not.
    pub nr_port_idx: u32,
}

/// Body of [`NETMAP_REQ_VALE_NEWIF`](crate::NETMAP_REQ_VALE_NEWIF).
///
/// The name in the header is that of an interface, without `vale`, of at most 15 bytes. Where a
/// number is zero, the kernel chooses it. The kernel writes the actual numbers back.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_vale_newif {
    /// Number of slots in each TX ring.
    pub nr_tx_slots: u32,
    /// Number of slots in each RX ring.
    pub nr_rx_slots: u32,
    /// Number of TX rings.
    pub nr_tx_rings: u16,
    /// Number of RX rings.
    pub nr_rx_rings: u16,
    /// Identifier of the memory region, or 0 for a region of its own.
    pub nr_mem_id: u16,
    /// Padding.
    pub pad1: u16,
}

/// Body of [`NETMAP_REQ_VALE_POLLING_ENABLE`](crate::NETMAP_REQ_VALE_POLLING_ENABLE) and
/// [`NETMAP_REQ_VALE_POLLING_DISABLE`](crate::NETMAP_REQ_VALE_POLLING_DISABLE).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_vale_polling {
    /// Polling mode, one of `NETMAP_POLLING_MODE_*`.
    pub nr_mode: u32,
    /// The processor, or the first of several.
    pub nr_first_cpu_id: u32,
    /// Number of processors: 1 with [`NETMAP_POLLING_MODE_SINGLE_CPU`]. It must be smaller than the
    /// number of the machine's processors.
    pub nr_num_polling_cpus: u32,
    /// Padding.
    pub pad1: u32,
}
