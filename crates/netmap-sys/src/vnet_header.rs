//! The virtio-net header, which precedes each packet on VALE ports that are set up for it.
//!
//! [`NETMAP_REQ_PORT_HDR_SET`](crate::NETMAP_REQ_PORT_HDR_SET) sets its length for a VALE port that
//! exists (otherwise `ENXIO`). Later descriptors can be bound to the port only with
//! [`NR_ACCEPT_VNET_HDR`](crate::NR_ACCEPT_VNET_HDR). Between
//! two VALE ports with the same length, packets and headers pass unchanged, so that a packet can be
//! a super-segment. If the receiver's port has no header, the switch segments and checksums the
//! packet.

/// Length of the virtio-net header in bytes: a [`nm_vnet_hdr`].
pub const NM_VNET_HDR_LEN: u32 = 10;
/// Length of the virtio-net header with the number of merged buffers, in bytes. The number has 16
/// bits and follows the [`nm_vnet_hdr`].
pub const NM_VNET_HDR_MRG_LEN: u32 = 12;

/// Header flag ([`nm_vnet_hdr::flags`]): the checksum is incomplete.
pub const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
/// Header flag: the checksum has been verified.
pub const VIRTIO_NET_HDR_F_DATA_VALID: u8 = 2;

/// Segmentation ([`nm_vnet_hdr::gso_type`]): none.
pub const VIRTIO_NET_HDR_GSO_NONE: u8 = 0;
/// Segmentation: TCP over IPv4.
pub const VIRTIO_NET_HDR_GSO_TCPV4: u8 = 1;
/// Segmentation: UDP over IPv4, by IP fragments.
pub const VIRTIO_NET_HDR_GSO_UDP: u8 = 3;
/// Segmentation: TCP over IPv6.
pub const VIRTIO_NET_HDR_GSO_TCPV6: u8 = 4;
/// Segmentation, in addition to TCP: the packet has ECN's CWR flag.
pub const VIRTIO_NET_HDR_GSO_ECN: u8 = 0x80;

/// The virtio-net header. Its numbers have the byte order of the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nm_vnet_hdr {
    /// Any of `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// How to segment the packet, one of `VIRTIO_NET_HDR_GSO_*`.
    pub gso_type: u8,
    /// Length of the packet's headers, from Ethernet to TCP or UDP, in bytes.
    pub hdr_len: u16,
    /// Maximum payload of each segment in bytes.
    pub gso_size: u16,
    /// Offset of the first byte that the checksum covers, from the start of the packet.
    pub csum_start: u16,
    /// Offset of the checksum's field, from `csum_start`.
    pub csum_offset: u16,
}
