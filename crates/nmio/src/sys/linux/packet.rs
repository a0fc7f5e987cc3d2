//! Packet sockets and tap devices that put a `virtio_net_hdr` before each packet.
//!
//! The header tells the receiver which checksum and segmentation work remains.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use arrayvec::ArrayVec;

use super::super::check;
use super::socket::{bind, set_option, socket};
use crate::super_segment::{GsoType, SuperSegment};

/// Size of a `virtio_net_hdr` (`linux/virtio_net.h`) in bytes.
pub(crate) const VNET_HEADER: usize = 10;
/// Maximum number of packets that one system call sends.
pub(crate) const MAX_PACKETS: usize = 64;

// Options from linux/if_packet.h that libc does not define for every target.
const PACKET_VNET_HDR: i32 = 15;
const PACKET_QDISC_BYPASS: i32 = 20;

/// Flag: the checksum field holds only the pseudo-header's sum, and the receiver must complete the
/// checksum.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
// Offsets of the checksum field in the transport headers, in bytes.
const TCP_CHECKSUM_AT: u16 = 16;
const UDP_CHECKSUM_AT: u16 = 6;

/// The `virtio_net_hdr` of a packet that needs neither checksumming nor segmentation.
pub(crate) const FINISHED: [u8; VNET_HEADER] = [0; VNET_HEADER];

/// Builds the `virtio_net_hdr` of a super-segment.
pub(crate) fn vnet_header(packet: &SuperSegment) -> [u8; VNET_HEADER] {
    let (gso, checksum_at) = match packet.gso_type() {
        GsoType::TcpV4 => (GSO_TCP_V4, TCP_CHECKSUM_AT),
        GsoType::TcpV6 => (GSO_TCP_V6, TCP_CHECKSUM_AT),
        GsoType::Udp => (GSO_UDP_L4, UDP_CHECKSUM_AT),
    };
    let headers = (packet.headers().len() as u16).to_ne_bytes();
    let segment = (packet.segment_len() as u16).to_ne_bytes();
    let transport = (packet.transport_at() as u16).to_ne_bytes();
    let checksum_at = checksum_at.to_ne_bytes();
    // A single segment needs no segmentation.
    let gso = if packet.segments() > 1 { gso } else { 0 };
    let segment = if gso == 0 { [0; 2] } else { segment };
    [
        NEEDS_CHECKSUM,
        gso,
        headers[0],
        headers[1],
        segment[0],
        segment[1],
        transport[0],
        transport[1],
        checksum_at[0],
        checksum_at[1],
    ]
}

/// A packet to send: its `virtio_net_hdr`, followed by its bytes in several pieces.
pub(crate) struct Gather<'a> {
    pub(crate) vnet: [u8; VNET_HEADER],
    pub(crate) stretches: [&'a [u8]; 4],
}

impl Gather<'_> {
    fn slices(&self) -> [libc::iovec; 5] {
        let [a, b, c, d] = self.stretches;
        [&self.vnet, a, b, c, d].map(|bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        })
    }
}

/// Opens a packet socket that sends on one interface and receives nothing.
pub(crate) fn packet_sender(interface: u32) -> io::Result<OwnedFd> {
    // A packet socket with protocol 0 receives nothing.
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    set_option(socket.as_fd(), libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
    // SAFETY: an address is plain data, for which all zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = interface as i32;
    bind(socket.as_fd(), &address)?;
    Ok(socket)
}

/// Sets whether packets from this socket bypass the interface's queueing discipline.
pub(crate) fn bypass_queueing(socket: BorrowedFd<'_>, bypass: bool) -> io::Result<()> {
    let bypass = u32::from(bypass);
    set_option(socket, libc::SOL_PACKET, PACKET_QDISC_BYPASS, bypass)
}

/// Sends up to [`MAX_PACKETS`] packets in one system call that never blocks. Returns the number of
/// packets sent, which is at least one.
pub(crate) fn send_packets<'a>(
    socket: BorrowedFd<'_>,
    packets: impl Iterator<Item = Gather<'a>>,
) -> io::Result<usize> {
    let packets: ArrayVec<Gather<'a>, MAX_PACKETS> = packets.take(MAX_PACKETS).collect();
    let mut slices: ArrayVec<_, MAX_PACKETS> = packets.iter().map(Gather::slices).collect();
    let mut messages: ArrayVec<libc::mmsghdr, MAX_PACKETS> = slices
        .iter_mut()
        .map(|slices| libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: slices.as_mut_ptr(),
                msg_iovlen: slices.len() as _,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            msg_len: 0,
        })
        .collect();
    // SAFETY: the messages point to `slices`, and the slices to bytes that `packets` borrows. All
    // of them stay valid during the call, which only reads them.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            messages.len() as u32,
            libc::MSG_DONTWAIT,
        )
    };
    check(sent).map(|sent| sent as usize)
}

/// Writes one packet to a tap device that expects a `virtio_net_hdr`.
pub(crate) fn write_packet(tap: BorrowedFd<'_>, packet: &Gather<'_>) -> io::Result<()> {
    let slices = packet.slices();
    // SAFETY: the slices point to bytes that `packet` borrows. The call only reads them.
    let written = unsafe { libc::writev(tap.as_raw_fd(), slices.as_ptr(), slices.len() as i32) };
    check(written.clamp(-1, 0) as i32).map(drop)
}

/// Reads one packet from a tap device that provides a `virtio_net_hdr`. Returns the packet's
/// `virtio_net_hdr`, and its length in bytes without this header.
pub(crate) fn read_packet(
    tap: BorrowedFd<'_>,
    packet: &mut [u8],
) -> io::Result<([u8; VNET_HEADER], usize)> {
    let mut vnet = [0; VNET_HEADER];
    let slices = [&mut vnet[..], packet].map(|bytes| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    });
    // SAFETY: the slices are two live buffers that no other code uses.
    let read = unsafe { libc::readv(tap.as_raw_fd(), slices.as_ptr(), slices.len() as i32) };
    check(read.clamp(-1, 0) as i32)?;
    Ok((vnet, (read as usize).saturating_sub(VNET_HEADER)))
}

/// Returns the position of a partial checksum, or `None` if the checksum is complete.
///
/// The first number is the offset of the first byte that the checksum covers. The second is the
/// offset of the checksum field relative to that byte.
pub(crate) fn partial_checksum(vnet: [u8; VNET_HEADER]) -> Option<(usize, usize)> {
    let u16_at = |at: usize| usize::from(u16::from_ne_bytes([vnet[at], vnet[at + 1]]));
    (vnet[0] & NEEDS_CHECKSUM != 0).then(|| (u16_at(6), u16_at(8)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_super_segment_gets_a_virtio_net_header() {
        let bytes: Arc<[u8]> = vec![0; 3000].into();
        let run = SuperSegment::new(GsoType::TcpV6, 1428, (86, 54), &bytes, 0..3000);
        let header = vnet_header(&run);
        let u16_at = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        assert_eq!((header[0], header[1]), (1, 4));
        assert_eq!([2, 4, 6, 8].map(u16_at), [86, 1428, 54, 16]);
        let one = SuperSegment::new(GsoType::Udp, 1428, (42, 34), &bytes, 0..100);
        let header = vnet_header(&one);
        assert_eq!((header[0], header[1], header[4], header[5]), (1, 0, 0, 0));
        assert_eq!(header[8..], 6u16.to_ne_bytes());
    }
}
