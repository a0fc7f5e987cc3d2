//! Bindings to the netmap API, version 14.
//!
//! netmap gives a program the rings and buffers of a network interface in
//! mapped memory; FreeBSD has it built in, Linux as a module. These are the
//! structures, constants and `ioctl` numbers of its public headers
//! `net/netmap.h` and `net/netmap_user.h`, under their own names, as far as a
//! port for one ring pair needs them. Today's kernels accept no API below
//! 14, in which everything but the two sync calls goes through one `ioctl`,
//! [`NIOCCTRL`].
//!
//! The port that is built on this comes later. Nothing here loads a module,
//! opens a device or makes a system call.
//!
//! # How it is used
//! 1. Open `/dev/netmap`.
//! 2. Call `ioctl(fd, NIOCCTRL, &header)` with a [`nmreq_header`] of type
//!    [`NETMAP_REQ_REGISTER`] whose body is a [`nmreq_register`] with
//!    [`NR_REG_ONE_NIC`] and a ring number.
//! 3. Map `nr_memsize` bytes of the device, shared. The [`netmap_if`] is at
//!    `nr_offset`, and [`netmap_txring`] and [`netmap_rxring`] find the rings
//!    from it.
//! 4. Own the slots from `head` to before `tail`; fill or empty them, move
//!    `head` and `cur` on, and call `ioctl` with [`NIOCTXSYNC`] or
//!    [`NIOCRXSYNC`], or `poll`. The kernel changes `tail` only in those
//!    calls.

#![allow(non_camel_case_types)]

mod rings;

pub use rings::{
    netmap_buf, netmap_rxring, netmap_txring, nm_ring_empty, nm_ring_next, nm_ring_space,
    nm_tx_pending,
};

use libc::{IFNAMSIZ, c_char, c_ulong, timeval};

/// The API version that these bindings speak.
pub const NETMAP_API: u16 = 14;
/// Bytes of a port name in a request, the terminating zero included.
pub const NETMAP_REQ_IFNAMSIZ: usize = 64;

/// `ioctl`: a request; its argument is a [`nmreq_header`].
pub const NIOCCTRL: c_ulong = iowr(151, size_of::<nmreq_header>());
/// `ioctl`: hand the TX slots before `head` to the kernel, take `tail`. No
/// argument.
pub const NIOCTXSYNC: c_ulong = io(148);
/// `ioctl`: hand the RX slots before `head` back, take `tail`. No argument.
pub const NIOCRXSYNC: c_ulong = io(149);

/// The letter that netmap's `ioctl` numbers share.
const IOC_GROUP: c_ulong = b'i' as c_ulong;
/// What marks an `ioctl` without an argument; Linux has no mark.
const IOC_VOID: c_ulong = if cfg!(target_os = "linux") {
    0
} else {
    0x2000_0000
};
/// What marks one whose argument goes in and comes out.
const IOC_INOUT: c_ulong = 0xc000_0000;

const fn io(number: c_ulong) -> c_ulong {
    IOC_VOID | IOC_GROUP << 8 | number
}

const fn iowr(number: c_ulong, size: usize) -> c_ulong {
    IOC_INOUT | (size as c_ulong) << 16 | IOC_GROUP << 8 | number
}

/// What a request asks for ([`nmreq_header::nr_reqtype`]): bind a port; the
/// body is a [`nmreq_register`].
pub const NETMAP_REQ_REGISTER: u16 = 1;
/// Tell about a port; the body is a [`nmreq_port_info_get`].
pub const NETMAP_REQ_PORT_INFO_GET: u16 = 2;
/// Attach a port to a VALE switch.
pub const NETMAP_REQ_VALE_ATTACH: u16 = 3;
/// Detach a port from a VALE switch.
pub const NETMAP_REQ_VALE_DETACH: u16 = 4;
/// List the ports of a VALE switch.
pub const NETMAP_REQ_VALE_LIST: u16 = 5;
/// Set the length of a port's virtio-net header.
pub const NETMAP_REQ_PORT_HDR_SET: u16 = 6;
/// Get the length of a port's virtio-net header.
pub const NETMAP_REQ_PORT_HDR_GET: u16 = 7;
/// Make a persistent VALE port.
pub const NETMAP_REQ_VALE_NEWIF: u16 = 8;
/// Remove a persistent VALE port.
pub const NETMAP_REQ_VALE_DELIF: u16 = 9;

/// Which rings to bind ([`nmreq_register::nr_mode`]): all of the NIC's.
pub const NR_REG_ALL_NIC: u32 = 1;
/// The rings of the host's stack.
pub const NR_REG_SW: u32 = 2;
/// All of the NIC's and those of the host's stack.
pub const NR_REG_NIC_SW: u32 = 3;
/// The one pair of the NIC's that [`nmreq_register::nr_ringid`] names.
pub const NR_REG_ONE_NIC: u32 = 4;
/// None.
pub const NR_REG_NULL: u32 = 7;
/// The one pair of the host's stack that [`nmreq_register::nr_ringid`] names.
pub const NR_REG_ONE_SW: u32 = 8;

/// How to bind ([`nmreq_register::nr_flags`]): replicate the TX rings.
pub const NR_MONITOR_TX: u64 = 0x100;
/// Replicate the RX rings.
pub const NR_MONITOR_RX: u64 = 0x200;
/// Replicate without copying.
pub const NR_ZCOPY_MON: u64 = 0x400;
/// Nobody else may bind the rings.
pub const NR_EXCLUSIVE: u64 = 0x800;
/// Bind RX rings only.
pub const NR_RX_RINGS_ONLY: u64 = 0x2000;
/// Bind TX rings only.
pub const NR_TX_RINGS_ONLY: u64 = 0x4000;
/// Frames with a virtio-net header before them are welcome.
pub const NR_ACCEPT_VNET_HDR: u64 = 0x8000;
/// `poll` syncs the RX rings also when it is not asked for input.
pub const NR_DO_RX_POLL: u64 = 0x1_0000;
/// `poll` syncs the TX rings only when it is asked for output.
pub const NR_NO_TX_POLL: u64 = 0x2_0000;

/// A slot's flag ([`netmap_slot::flags`]): `buf_idx` was changed. Whoever
/// changes it must set this.
pub const NS_BUF_CHANGED: u16 = 0x0001;
/// Tell soon when this slot has been sent.
pub const NS_REPORT: u16 = 0x0002;
/// Pass the packet on between NIC and host (with [`NR_FORWARD`]).
pub const NS_FORWARD: u16 = 0x0004;
/// A VALE switch does not learn from this packet.
pub const NS_NO_LEARN: u16 = 0x0008;
/// The data is at `ptr` (TX rings of VALE ports).
pub const NS_INDIRECT: u16 = 0x0010;
/// The packet goes on in the next slot.
pub const NS_MOREFRAG: u16 = 0x0020;
/// Seen on the TX ring of a monitored port.
pub const NS_TXMON: u16 = 0x0040;
/// Where the VALE port's number begins in the flags.
pub const NS_PORT_SHIFT: u16 = 8;
/// Most slots of one packet.
pub const NETMAP_MAX_FRAGS: usize = 64;

/// A ring's flag ([`netmap_ring::flags`]): write `ts` at each sync.
pub const NR_TIMESTAMP: u32 = 0x0002;
/// Obey [`NS_FORWARD`].
pub const NR_FORWARD: u32 = 0x0004;

/// [`netmap_if::ni_flags`]: the port has a memory region of its own.
pub const NI_PRIV_MEM: u32 = 0x1;

/// The head of every request, the argument of [`NIOCCTRL`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nmreq_header {
    /// [`NETMAP_API`]; the kernel writes its own.
    pub nr_version: u16,
    /// One of `NETMAP_REQ_*`.
    pub nr_reqtype: u16,
    /// Zero.
    pub nr_reserved: u32,
    /// The port, ended by a zero: an interface's name, or `valeX:Y`.
    pub nr_name: [c_char; NETMAP_REQ_IFNAMSIZ],
    /// Address of the first option, or zero.
    pub nr_options: u64,
    /// Address of the body that the type asks for.
    pub nr_body: u64,
}

impl nmreq_header {
    /// A request about the port `name` with the body at address `body`;
    /// `None` when the name does not fit or has a zero in it.
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

/// The body of [`NETMAP_REQ_REGISTER`]. Sizes that are zero going in are the
/// kernel's choice; coming out they are what is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_register {
    /// Out: where the [`netmap_if`] is in the mapped region, in bytes.
    pub nr_offset: u64,
    /// Out: bytes of the region.
    pub nr_memsize: u64,
    /// Slots of a TX ring.
    pub nr_tx_slots: u32,
    /// Slots of an RX ring.
    pub nr_rx_slots: u32,
    /// TX rings of the NIC.
    pub nr_tx_rings: u16,
    /// RX rings of the NIC.
    pub nr_rx_rings: u16,
    /// TX rings of the host's stack.
    pub nr_host_tx_rings: u16,
    /// RX rings of the host's stack.
    pub nr_host_rx_rings: u16,
    /// The memory region; 0 lets the kernel choose, 1 is the common one.
    pub nr_mem_id: u16,
    /// The ring pair, for the modes that bind one.
    pub nr_ringid: u16,
    /// One of `NR_REG_*`.
    pub nr_mode: u32,
    /// Spare buffers wanted; out: given, linked from
    /// [`netmap_if::ni_bufs_head`].
    pub nr_extra_bufs: u32,
    /// Any of the binding flags, [`NR_EXCLUSIVE`] and others.
    pub nr_flags: u64,
}

/// The body of [`NETMAP_REQ_PORT_INFO_GET`]; the kernel fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_port_info_get {
    /// Bytes of the memory region.
    pub nr_memsize: u64,
    /// Slots of a TX ring.
    pub nr_tx_slots: u32,
    /// Slots of an RX ring.
    pub nr_rx_slots: u32,
    /// TX rings of the NIC.
    pub nr_tx_rings: u16,
    /// RX rings of the NIC.
    pub nr_rx_rings: u16,
    /// TX rings of the host's stack.
    pub nr_host_tx_rings: u16,
    /// RX rings of the host's stack.
    pub nr_host_rx_rings: u16,
    /// The memory region (in, too).
    pub nr_mem_id: u16,
    /// Nothing.
    pub pad: [u16; 3],
}

/// What a descriptor has bound, in the mapped region. Read only, but for
/// `ni_bufs_head`. The rings' offsets follow it: see [`netmap_txring`].
#[repr(C)]
#[derive(Debug)]
pub struct netmap_if {
    /// The interface's name.
    pub ni_name: [c_char; IFNAMSIZ],
    /// The API version.
    pub ni_version: u32,
    /// [`NI_PRIV_MEM`] or 0.
    pub ni_flags: u32,
    /// TX rings of the NIC.
    pub ni_tx_rings: u32,
    /// RX rings of the NIC.
    pub ni_rx_rings: u32,
    /// The first spare buffer's index; each holds the next one's in its
    /// first four bytes, 0 ends the list.
    pub ni_bufs_head: u32,
    /// TX rings of the host's stack.
    pub ni_host_tx_rings: u32,
    /// RX rings of the host's stack.
    pub ni_host_rx_rings: u32,
    /// Nothing.
    pub ni_spare1: [u32; 3],
    /// Distances in bytes from here to the rings: the NIC's TX, the host's
    /// TX, the NIC's RX, the host's RX.
    pub ring_ofs: [isize; 0],
}

/// A TX or RX ring, in the mapped region. The program writes `head`, `cur`,
/// `flags` and the slots that it owns.
#[repr(C, align(128))]
pub struct netmap_ring {
    /// Distance in bytes from here to buffer 0.
    pub buf_ofs: i64,
    /// Slots of the ring.
    pub num_slots: u32,
    /// Bytes of a buffer.
    pub nr_buf_size: u32,
    /// The ring's number.
    pub ringid: u16,
    /// 0: TX, 1: RX.
    pub dir: u16,
    /// The first slot that the program owns.
    pub head: u32,
    /// `poll` wakes when `tail` passes this slot.
    pub cur: u32,
    /// The first slot that the kernel owns.
    pub tail: u32,
    /// [`NR_TIMESTAMP`], [`NR_FORWARD`].
    pub flags: u32,
    /// When the last sync was.
    pub ts: timeval,
    /// The bits of [`netmap_slot::ptr`] that are the packet's offset in its
    /// buffer; 0 unless asked for.
    pub offset_mask: u64,
    /// Bytes to which packets in buffers must be aligned.
    pub buf_align: u64,
    /// The kernel's.
    pub sem: netmap_sem,
    /// The slots follow, `num_slots` of them.
    pub slot: [netmap_slot; 0],
}

/// Room for the kernel in a [`netmap_ring`], on cache lines of its own.
#[repr(C, align(128))]
pub struct netmap_sem(pub [u8; 128]);

/// One descriptor of a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct netmap_slot {
    /// The buffer: see [`netmap_buf`].
    pub buf_idx: u32,
    /// Bytes of the packet in it.
    pub len: u16,
    /// Any of `NS_*`.
    pub flags: u16,
    /// An address (with [`NS_INDIRECT`]) or the packet's offset.
    pub ptr: u64,
}

#[cfg(test)]
mod tests;
