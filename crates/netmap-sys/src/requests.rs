//! Requests: their header, their types, and the bodies that concern ports and memory.
//!
//! The kernel reads the body and the options when [`NIOCCTRL`](crate::NIOCCTRL) is called, and
//! writes its results back into them. A failed request leaves the body unchanged.

use libc::c_char;

/// The API version of these bindings.
pub const NETMAP_API: u16 = 14;
/// Oldest API version that current modules accept. They answer older ones with `EINVAL`.
pub const NETMAP_MIN_API: u16 = 14;
/// Newest API version that current modules accept.
pub const NETMAP_MAX_API: u16 = 15;
/// Maximum size of a port name in a request, in bytes, including the terminating zero.
pub const NETMAP_REQ_IFNAMSIZ: usize = 64;
/// Maximum size of a request's body and options together, in bytes.
pub const NETMAP_REQ_MAXSIZE: usize = 4096;

/// Request type ([`nmreq_header::nr_reqtype`]): bind a port. The body is a [`nmreq_register`].
pub const NETMAP_REQ_REGISTER: u16 = 1;
/// Request type: describe a port. The body is a [`nmreq_port_info_get`].
pub const NETMAP_REQ_PORT_INFO_GET: u16 = 2;
/// Request type: attach a port to a VALE switch, which is netmap's software switch. The body is a
/// [`nmreq_vale_attach`](crate::nmreq_vale_attach).
pub const NETMAP_REQ_VALE_ATTACH: u16 = 3;
/// Request type: detach a port from a VALE switch. The body is a
/// [`nmreq_vale_detach`](crate::nmreq_vale_detach).
pub const NETMAP_REQ_VALE_DETACH: u16 = 4;
/// Request type: list the ports of a VALE switch. The body is a
/// [`nmreq_vale_list`](crate::nmreq_vale_list).
pub const NETMAP_REQ_VALE_LIST: u16 = 5;
/// Request type: set the length of a VALE port's virtio-net header. The body is a
/// [`nmreq_port_hdr`].
pub const NETMAP_REQ_PORT_HDR_SET: u16 = 6;
/// Request type: get the length of a port's virtio-net header. The body is a [`nmreq_port_hdr`].
pub const NETMAP_REQ_PORT_HDR_GET: u16 = 7;
/// Request type: create a persistent VALE port. The body is a
/// [`nmreq_vale_newif`](crate::nmreq_vale_newif).
pub const NETMAP_REQ_VALE_NEWIF: u16 = 8;
/// Request type: remove a persistent VALE port. It has no body.
pub const NETMAP_REQ_VALE_DELIF: u16 = 9;
/// Request type: start kernel threads that poll an interface attached to a VALE switch. The body is
/// a [`nmreq_vale_polling`](crate::nmreq_vale_polling).
pub const NETMAP_REQ_VALE_POLLING_ENABLE: u16 = 10;
/// Request type: stop the kernel threads that [`NETMAP_REQ_VALE_POLLING_ENABLE`] started. The body
/// is a [`nmreq_vale_polling`](crate::nmreq_vale_polling).
pub const NETMAP_REQ_VALE_POLLING_DISABLE: u16 = 11;
/// Request type: describe the memory of a port. The body is a [`nmreq_pools_info`].
pub const NETMAP_REQ_POOLS_INFO_GET: u16 = 12;
/// Request type: sync the rings in the kernel until [`NETMAP_REQ_SYNC_KLOOP_STOP`]. The call
/// returns only then. The body is a [`nmreq_sync_kloop_start`](crate::nmreq_sync_kloop_start).
pub const NETMAP_REQ_SYNC_KLOOP_START: u16 = 13;
/// Request type: end a [`NETMAP_REQ_SYNC_KLOOP_START`] of the same descriptor. It has no body.
pub const NETMAP_REQ_SYNC_KLOOP_STOP: u16 = 14;
/// Request type: switch a bound descriptor to CSB mode; see [`kloop`](crate::kloop). It has no
/// body, and one option: [`nmreq_opt_csb`](crate::nmreq_opt_csb).
pub const NETMAP_REQ_CSB_ENABLE: u16 = 15;

/// Binding mode ([`nmreq_register::nr_mode`]): none. It is from older versions, and the kernel
/// refuses it.
pub const NR_REG_DEFAULT: u32 = 0;
/// Binding mode: all rings of the NIC, of a VALE port, or of a pipe.
pub const NR_REG_ALL_NIC: u32 = 1;
/// Binding mode: the rings of the host's stack.
pub const NR_REG_SW: u32 = 2;
/// Binding mode: all rings of the NIC and of the host's stack.
pub const NR_REG_NIC_SW: u32 = 3;
/// Binding mode: the NIC's ring pair with index [`nmreq_register::nr_ringid`]. If only TX or only RX
/// has a ring with this index, the kernel binds ring 0 of the other direction.
pub const NR_REG_ONE_NIC: u32 = 4;
/// Binding mode: the master end of a pipe. It is from older versions, and the kernel refuses it.
/// The port's name selects a pipe instead.
pub const NR_REG_PIPE_MASTER: u32 = 5;
/// Binding mode: the slave end of a pipe. It is from older versions, and the kernel refuses it. The
/// port's name selects a pipe instead.
pub const NR_REG_PIPE_SLAVE: u32 = 6;
/// Binding mode: no rings, only extra buffers of the region [`nmreq_register::nr_mem_id`]. The
/// region must exist.
pub const NR_REG_NULL: u32 = 7;
/// Binding mode: the host stack's ring pair with index [`nmreq_register::nr_ringid`].
pub const NR_REG_ONE_SW: u32 = 8;

/// Binding flag ([`nmreq_register::nr_flags`]): monitor the TX rings.
///
/// With a monitor flag, the descriptor is not bound to the port but to a monitor of it. A monitor
/// receives what passes through the rings that [`nmreq_register::nr_mode`] selects. It cannot send,
/// and the port must be in use already.
pub const NR_MONITOR_TX: u64 = 0x100;
/// Binding flag: monitor the RX rings; see [`NR_MONITOR_TX`].
pub const NR_MONITOR_RX: u64 = 0x200;
/// Binding flag: monitor packets without copying them. It implies [`NR_MONITOR_TX`] and
/// [`NR_MONITOR_RX`]. Such a monitor sees a packet only after its slot has been released.
pub const NR_ZCOPY_MON: u64 = 0x400;
/// Binding flag: bind the rings exclusively.
pub const NR_EXCLUSIVE: u64 = 0x800;
/// Binding flag: bind only RX rings.
pub const NR_RX_RINGS_ONLY: u64 = 0x2000;
/// Binding flag: bind only TX rings.
pub const NR_TX_RINGS_ONLY: u64 = 0x4000;
/// Binding flag: accept frames that are preceded by a virtio-net header. Without this flag, a port
/// with such headers cannot be bound (`EIO`).
pub const NR_ACCEPT_VNET_HDR: u64 = 0x8000;
/// Binding flag: `poll` syncs the RX rings even without `POLLIN`.
pub const NR_DO_RX_POLL: u64 = 0x1_0000;
/// Binding flag: `poll` syncs the TX rings only with `POLLOUT`.
pub const NR_NO_TX_POLL: u64 = 0x2_0000;

/// Header of every request, and the argument of [`NIOCCTRL`](crate::NIOCCTRL).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nmreq_header {
    /// The caller's API version, [`NETMAP_API`].
    pub nr_version: u16,
    /// Request type, one of `NETMAP_REQ_*`.
    pub nr_reqtype: u16,
    /// Reserved; zero.
    pub nr_reserved: u32,
    /// Zero-terminated name of the port. The [front page](crate#names-of-ports) lists its forms.
    pub nr_name: [c_char; NETMAP_REQ_IFNAMSIZ],
    /// Address of the first option; zero if there is none. See
    /// [`nmreq_push_option`](crate::nmreq_push_option).
    pub nr_options: u64,
    /// Address of the request's body, whose structure depends on the request type. Zero if this
    /// type has no body.
    pub nr_body: u64,
}

impl nmreq_header {
    /// Creates a request for the port `name`, with its body at address `body`.
    ///
    /// Returns `None` if the name is too long or contains a zero byte.
    pub fn new(reqtype: u16, name: &str, body: u64) -> Option<Self> {
        if name.len() >= NETMAP_REQ_IFNAMSIZ || name.contains('\0') {
            return None;
        }
        let mut nr_name = [0; NETMAP_REQ_IFNAMSIZ];
        for (to, from) in nr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed() as c_char;
        }
        Some(Self {
            nr_version: NETMAP_API,
            nr_reqtype: reqtype,
            nr_reserved: 0,
            nr_name,
            nr_options: 0,
            nr_body: body,
        })
    }
}

/// Body of [`NETMAP_REQ_REGISTER`].
///
/// If a number of slots or rings is zero, the kernel chooses this number. The kernel replaces all
/// these numbers with the actual ones.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_register {
    /// Out: offset of the [`netmap_if`](crate::netmap_if) in the mapped region, in bytes.
    pub nr_offset: u64,
    /// Out: size of the mapped region, in bytes.
    pub nr_memsize: u64,
    /// Number of slots in each TX ring.
    pub nr_tx_slots: u32,
    /// Number of slots in each RX ring.
    pub nr_rx_slots: u32,
    /// Number of TX rings of the NIC.
    pub nr_tx_rings: u16,
    /// Number of RX rings of the NIC.
    pub nr_rx_rings: u16,
    /// Number of TX rings of the host stack.
    pub nr_host_tx_rings: u16,
    /// Number of RX rings of the host stack.
    pub nr_host_rx_rings: u16,
    /// Identifier of the memory region. 0: the kernel chooses. 1: the common region.
    pub nr_mem_id: u16,
    /// Index of the ring pair, for the binding modes that bind a single pair.
    pub nr_ringid: u16,
    /// Binding mode, one of `NR_REG_*`.
    pub nr_mode: u32,
    /// Number of spare buffers. In: number requested. Out: number allocated, which may be smaller.
    /// The list of spare buffers starts at
    /// [`netmap_if::ni_bufs_head`](crate::netmap_if::ni_bufs_head).
    pub nr_extra_bufs: u32,
    /// Binding flags, such as [`NR_EXCLUSIVE`].
    pub nr_flags: u64,
}

/// Body of [`NETMAP_REQ_PORT_INFO_GET`], filled in by the kernel.
///
/// The descriptor need not be bound. Without a port name, the kernel fills in only `nr_memsize` and
/// `nr_mem_id`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_port_info_get {
    /// Size of the memory region in bytes.
    pub nr_memsize: u64,
    /// Number of slots in each TX ring.
    pub nr_tx_slots: u32,
    /// Number of slots in each RX ring.
    pub nr_rx_slots: u32,
    /// Number of TX rings of the NIC.
    pub nr_tx_rings: u16,
    /// Number of RX rings of the NIC.
    pub nr_rx_rings: u16,
    /// Number of TX rings of the host stack.
    pub nr_host_tx_rings: u16,
    /// Number of RX rings of the host stack.
    pub nr_host_rx_rings: u16,
    /// In: identifier of a memory region, or 0. Out: identifier of the port's memory region.
    pub nr_mem_id: u16,
    /// Padding.
    pub pad: [u16; 3],
}

/// Body of [`NETMAP_REQ_PORT_HDR_SET`] and [`NETMAP_REQ_PORT_HDR_GET`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_port_hdr {
    /// Length of the virtio-net header in bytes: 0,
    /// [`NM_VNET_HDR_LEN`](crate::NM_VNET_HDR_LEN), or
    /// [`NM_VNET_HDR_MRG_LEN`](crate::NM_VNET_HDR_MRG_LEN).
    pub nr_hdr_len: u32,
    /// Padding.
    pub pad1: u32,
}

/// Body of [`NETMAP_REQ_POOLS_INFO_GET`], filled in by the kernel. It is also part of
/// [`nmreq_opt_extmem`](crate::nmreq_opt_extmem).
///
/// A memory region has three pools of objects: interfaces, rings and buffers. The descriptor need
/// not be bound.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_pools_info {
    /// Size of the memory region in bytes.
    pub nr_memsize: u64,
    /// In: identifier of a memory region, or 0. Out: identifier of the port's memory region.
    pub nr_mem_id: u16,
    /// Padding.
    pub pad1: [u16; 3],
    /// Offset of the pool of [`netmap_if`](crate::netmap_if)s in the region, in bytes.
    pub nr_if_pool_offset: u64,
    /// Number of objects in the pool of `netmap_if`s.
    pub nr_if_pool_objtotal: u32,
    /// Size of each object in the pool of `netmap_if`s, in bytes.
    pub nr_if_pool_objsize: u32,
    /// Offset of the pool of [`netmap_ring`](crate::netmap_ring)s in the region, in bytes.
    pub nr_ring_pool_offset: u64,
    /// Number of objects in the pool of rings.
    pub nr_ring_pool_objtotal: u32,
    /// Size of each object in the pool of rings, in bytes. A ring and its slots must fit.
    pub nr_ring_pool_objsize: u32,
    /// Offset of the pool of buffers in the region, in bytes. Buffer 0 starts there.
    pub nr_buf_pool_offset: u64,
    /// Number of buffers.
    pub nr_buf_pool_objtotal: u32,
    /// Size of each buffer, in bytes.
    pub nr_buf_pool_objsize: u32,
}
