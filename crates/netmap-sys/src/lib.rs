//! Bindings to the netmap API, version 14.
//!
//! netmap maps the rings and buffers of a network interface into a program's memory. FreeBSD
//! includes netmap; Linux can load it as a module.
//!
//! This crate declares structures, constants, `ioctl` numbers and functions of the public headers
//! `net/netmap.h` and `net/netmap_user.h`, under their original names. They suffice for a port that
//! binds one ring pair. Current kernels require API 14 or later. In that version, one `ioctl`,
//! [`NIOCCTRL`], carries all requests. Two more `ioctl`s synchronize the rings.
//!
//! No other crate of this workspace uses these bindings yet. This crate loads no module, opens no
//! device and makes no system call.
//!
//! # How to use netmap
//! 1. Open `/dev/netmap`.
//! 2. Call `ioctl(fd, NIOCCTRL, &header)` with a [`nmreq_header`] of type [`NETMAP_REQ_REGISTER`].
//!    Its body is a [`nmreq_register`] with [`NR_REG_ONE_NIC`] and a ring number.
//! 3. Map `nr_memsize` bytes of the device as shared memory. The [`netmap_if`] starts `nr_offset`
//!    bytes into this memory. Pass its address to [`netmap_txring`] and [`netmap_rxring`] to find
//!    the rings.
//! 4. The program owns the slots from `head` up to, but not including, `tail`. Fill or empty them,
//!    and advance `head` and `cur`. Then call `ioctl` with [`NIOCTXSYNC`] or [`NIOCRXSYNC`], or
//!    call `poll`. The kernel changes `tail` only in those calls.

#![allow(non_camel_case_types)]

mod rings;

pub use rings::{
    netmap_buf, netmap_rxring, netmap_txring, nm_ring_empty, nm_ring_next, nm_ring_space,
    nm_tx_pending,
};

use libc::{IFNAMSIZ, c_char, c_ulong, timeval};

/// The API version of these bindings.
pub const NETMAP_API: u16 = 14;
/// Maximum size of a port name in a request, in bytes, including the terminating zero.
pub const NETMAP_REQ_IFNAMSIZ: usize = 64;

/// `ioctl` that carries out a request. Its argument is a [`nmreq_header`].
pub const NIOCCTRL: c_ulong = iowr(151, size_of::<nmreq_header>());
/// `ioctl` that hands the TX slots before `head` to the kernel and updates `tail`. It takes no
/// argument.
pub const NIOCTXSYNC: c_ulong = io(148);
/// `ioctl` that returns the RX slots before `head` to the kernel and updates `tail`. It takes no
/// argument.
pub const NIOCRXSYNC: c_ulong = io(149);

/// The group letter of netmap's `ioctl` numbers.
const IOC_GROUP: c_ulong = b'i' as c_ulong;
/// Direction bits of an `ioctl` without an argument. They are zero on Linux.
const IOC_VOID: c_ulong = if cfg!(target_os = "linux") {
    0
} else {
    0x2000_0000
};
/// Direction bits of an `ioctl` whose argument the kernel both reads and writes.
const IOC_INOUT: c_ulong = 0xc000_0000;

const fn io(number: c_ulong) -> c_ulong {
    IOC_VOID | IOC_GROUP << 8 | number
}

const fn iowr(number: c_ulong, size: usize) -> c_ulong {
    IOC_INOUT | (size as c_ulong) << 16 | IOC_GROUP << 8 | number
}

/// Request type ([`nmreq_header::nr_reqtype`]): bind a port. The body is a [`nmreq_register`].
pub const NETMAP_REQ_REGISTER: u16 = 1;
/// Request type: describe a port. The body is a [`nmreq_port_info_get`].
pub const NETMAP_REQ_PORT_INFO_GET: u16 = 2;
/// Request type: attach a port to a VALE switch, which is netmap's software switch.
pub const NETMAP_REQ_VALE_ATTACH: u16 = 3;
/// Request type: detach a port from a VALE switch.
pub const NETMAP_REQ_VALE_DETACH: u16 = 4;
/// Request type: list the ports of a VALE switch.
pub const NETMAP_REQ_VALE_LIST: u16 = 5;
/// Request type: set the length of a port's virtio-net header.
pub const NETMAP_REQ_PORT_HDR_SET: u16 = 6;
/// Request type: get the length of a port's virtio-net header.
pub const NETMAP_REQ_PORT_HDR_GET: u16 = 7;
/// Request type: create a persistent VALE port.
pub const NETMAP_REQ_VALE_NEWIF: u16 = 8;
/// Request type: remove a persistent VALE port.
pub const NETMAP_REQ_VALE_DELIF: u16 = 9;

/// Binding mode ([`nmreq_register::nr_mode`]): all rings of the NIC.
pub const NR_REG_ALL_NIC: u32 = 1;
/// Binding mode: the rings of the host's stack.
pub const NR_REG_SW: u32 = 2;
/// Binding mode: all rings of the NIC and of the host's stack.
pub const NR_REG_NIC_SW: u32 = 3;
/// Binding mode: the NIC's ring pair with index [`nmreq_register::nr_ringid`].
pub const NR_REG_ONE_NIC: u32 = 4;
/// Binding mode: no rings.
pub const NR_REG_NULL: u32 = 7;
/// Binding mode: the host stack's ring pair with index [`nmreq_register::nr_ringid`].
pub const NR_REG_ONE_SW: u32 = 8;

/// Binding flag ([`nmreq_register::nr_flags`]): monitor the TX rings.
pub const NR_MONITOR_TX: u64 = 0x100;
/// Binding flag: monitor the RX rings.
pub const NR_MONITOR_RX: u64 = 0x200;
/// Binding flag: monitor packets without copying them.
pub const NR_ZCOPY_MON: u64 = 0x400;
/// Binding flag: bind the rings exclusively.
pub const NR_EXCLUSIVE: u64 = 0x800;
/// Binding flag: bind only RX rings.
pub const NR_RX_RINGS_ONLY: u64 = 0x2000;
/// Binding flag: bind only TX rings.
pub const NR_TX_RINGS_ONLY: u64 = 0x4000;
/// Binding flag: accept frames that are preceded by a virtio-net header.
pub const NR_ACCEPT_VNET_HDR: u64 = 0x8000;
/// Binding flag: `poll` syncs the RX rings even without `POLLIN`.
pub const NR_DO_RX_POLL: u64 = 0x1_0000;
/// Binding flag: `poll` syncs the TX rings only with `POLLOUT`.
pub const NR_NO_TX_POLL: u64 = 0x2_0000;

/// Slot flag ([`netmap_slot::flags`]): tells the kernel that the program has changed `buf_idx`.
pub const NS_BUF_CHANGED: u16 = 0x0001;
/// Slot flag: report promptly when this slot has been sent.
pub const NS_REPORT: u16 = 0x0002;
/// Slot flag: forward the packet between NIC and host. The ring must have the flag [`NR_FORWARD`].
pub const NS_FORWARD: u16 = 0x0004;
/// Slot flag: a VALE switch does not learn this packet's source address.
pub const NS_NO_LEARN: u16 = 0x0008;
/// Slot flag: the packet's data is at the address in `ptr` (only in TX rings of VALE ports).
pub const NS_INDIRECT: u16 = 0x0010;
/// Slot flag: the packet continues in the next slot.
pub const NS_MOREFRAG: u16 = 0x0020;
/// Slot flag: a monitor copied this packet from a TX ring.
pub const NS_TXMON: u16 = 0x0040;
/// Position of the lowest bit of the VALE port number in a slot's flags.
pub const NS_PORT_SHIFT: u16 = 8;
/// Maximum number of slots that one packet may occupy.
pub const NETMAP_MAX_FRAGS: usize = 64;

/// Ring flag ([`netmap_ring::flags`]): update `ts` at each sync.
pub const NR_TIMESTAMP: u32 = 0x0002;
/// Ring flag: forward packets whose slots set [`NS_FORWARD`].
pub const NR_FORWARD: u32 = 0x0004;

/// Interface flag ([`netmap_if::ni_flags`]): the port's memory region is private, not shared with
/// other ports.
pub const NI_PRIV_MEM: u32 = 0x1;

/// Header of every request, and the argument of [`NIOCCTRL`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nmreq_header {
    /// The caller's API version, [`NETMAP_API`]. The kernel may replace it with its own version.
    pub nr_version: u16,
    /// Request type, one of `NETMAP_REQ_*`.
    pub nr_reqtype: u16,
    /// Reserved; zero.
    pub nr_reserved: u32,
    /// Zero-terminated name of the port: an interface name, or `valeX:Y`.
    pub nr_name: [c_char; NETMAP_REQ_IFNAMSIZ],
    /// Address of the first option; zero if there is none.
    pub nr_options: u64,
    /// Address of the request's body, whose structure depends on the request type.
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
    /// Out: offset of the [`netmap_if`] in the mapped region, in bytes.
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
    /// Number of spare buffers. In: number requested. Out: number allocated. The list of spare
    /// buffers starts at [`netmap_if::ni_bufs_head`].
    pub nr_extra_bufs: u32,
    /// Binding flags, such as [`NR_EXCLUSIVE`].
    pub nr_flags: u64,
}

/// Body of [`NETMAP_REQ_PORT_INFO_GET`], filled in by the kernel.
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

/// Describes a bound port and its rings. The kernel places this structure in the mapped region.
///
/// A program may write only the field `ni_bufs_head`. The offsets of the rings are directly after
/// the structure, where the empty array `ring_ofs` begins. [`netmap_txring`] and [`netmap_rxring`]
/// look them up.
#[repr(C)]
#[derive(Debug)]
pub struct netmap_if {
    /// Name of the interface.
    pub ni_name: [c_char; IFNAMSIZ],
    /// The API version.
    pub ni_version: u32,
    /// Interface flags: [`NI_PRIV_MEM`] or 0.
    pub ni_flags: u32,
    /// Number of TX rings of the NIC.
    pub ni_tx_rings: u32,
    /// Number of RX rings of the NIC.
    pub ni_rx_rings: u32,
    /// Index of the first spare buffer. The first four bytes of each spare buffer hold the index of
    /// the next spare buffer. 0 ends the list.
    pub ni_bufs_head: u32,
    /// Number of TX rings of the host stack.
    pub ni_host_tx_rings: u32,
    /// Number of RX rings of the host stack.
    pub ni_host_rx_rings: u32,
    /// Unused.
    pub ni_spare1: [u32; 3],
    /// The offsets of the rings start here. They are in bytes, relative to this structure. Their
    /// order is: the NIC's TX rings, the host's TX rings, the NIC's RX rings, the host's RX rings.
    pub ring_ofs: [isize; 0],
}

/// A TX or RX ring in the mapped region.
///
/// The program writes `head`, `cur`, `flags` and the slots that it owns.
#[repr(C, align(128))]
pub struct netmap_ring {
    /// Offset of buffer 0 from this structure, in bytes.
    pub buf_ofs: i64,
    /// Number of slots.
    pub num_slots: u32,
    /// Size of each buffer, in bytes.
    pub nr_buf_size: u32,
    /// Index of the ring.
    pub ringid: u16,
    /// Direction. 0: TX, 1: RX.
    pub dir: u16,
    /// Index of the first slot that the program owns.
    pub head: u32,
    /// Index of the slot that `tail` must pass before `poll` returns.
    pub cur: u32,
    /// Index of the first slot that the kernel owns.
    pub tail: u32,
    /// Ring flags: [`NR_TIMESTAMP`] and [`NR_FORWARD`].
    pub flags: u32,
    /// Time of the last sync, if [`NR_TIMESTAMP`] is set.
    pub ts: timeval,
    /// Mask for the bits of [`netmap_slot::ptr`] that hold the packet's offset in its buffer. The
    /// mask is 0 if no offsets were requested.
    pub offset_mask: u64,
    /// Required alignment, in bytes, of a packet in its buffer.
    pub buf_align: u64,
    /// Private data of the kernel.
    pub sem: netmap_sem,
    /// The ring's `num_slots` slots start here.
    pub slot: [netmap_slot; 0],
}

/// The kernel's private data in a [`netmap_ring`], on separate cache lines.
#[repr(C, align(128))]
pub struct netmap_sem(pub [u8; 128]);

/// A slot of a ring. It describes one buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct netmap_slot {
    /// Index of the buffer; see [`netmap_buf`].
    pub buf_idx: u32,
    /// Length of the packet in bytes.
    pub len: u16,
    /// Slot flags, any of `NS_*`.
    pub flags: u16,
    /// With [`NS_INDIRECT`], this is the address of the packet's data. Otherwise, the bits selected
    /// by [`netmap_ring::offset_mask`] are the packet's offset in its buffer.
    pub ptr: u64,
}

#[cfg(test)]
mod tests;
