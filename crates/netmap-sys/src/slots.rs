//! Slots: one buffer of a packet each.
//!
//! The peer of a pipe writes the slots that this program receives: index, length, flags and offset.
//! A program must check them before it uses them.

/// Slot flag ([`netmap_slot::flags`]): tells the kernel that the program has changed `buf_idx`. The
/// kernel sets it too, when it has swapped buffers itself, as pipes do.
pub const NS_BUF_CHANGED: u16 = 0x0001;
/// Slot flag: report promptly when this slot has been sent.
pub const NS_REPORT: u16 = 0x0002;
/// Slot flag: forward the packet between NIC and host. The ring must have the flag
/// [`NR_FORWARD`](crate::NR_FORWARD).
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
/// The bits of a slot's flags with the VALE port to send to. If they are zero, the switch chooses
/// the port. In RX rings, they are the packet's number of slots; see [`ns_rfrags`].
pub const NS_PORT_MASK: u16 = 0xff << NS_PORT_SHIFT;
/// Maximum number of slots that one packet may occupy.
pub const NETMAP_MAX_FRAGS: usize = 64;

/// A slot of a ring. It describes one buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct netmap_slot {
    /// Index of the buffer; see [`netmap_buf`](crate::netmap_buf).
    pub buf_idx: u32,
    /// Length of the packet, or of its part in this buffer, in bytes.
    pub len: u16,
    /// Slot flags, any of `NS_*`.
    pub flags: u16,
    /// With [`NS_INDIRECT`], this is the address of the packet's data. Otherwise, the bits selected
    /// by [`netmap_ring::offset_mask`](crate::netmap_ring::offset_mask) are the packet's offset in
    /// its buffer.
    pub ptr: u64,
}

/// Returns the packet's number of slots, which a VALE port writes to the slots of RX rings.
#[inline]
pub const fn ns_rfrags(slot: &netmap_slot) -> u16 {
    slot.flags >> NS_PORT_SHIFT
}
