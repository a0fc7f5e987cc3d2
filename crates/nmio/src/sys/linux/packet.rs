//! Packet sockets and tap devices that put a `virtio_net_hdr` before each packet.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use arrayvec::ArrayVec;

use super::super::check;
use super::socket::{bind, set_option, socket};
use crate::vnet::VNET_HEADER;

/// Maximum number of packets that one system call sends.
pub(crate) const MAX_PACKETS: usize = 64;

// Options from linux/if_packet.h that libc does not define for every target.
const PACKET_VNET_HDR: i32 = 15;
const PACKET_QDISC_BYPASS: i32 = 20;

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
    bind_packet_sender(socket.as_fd(), interface)?;
    Ok(socket)
}

/// Makes a packet socket that receives nothing send on the interface with this index.
pub(crate) fn bind_packet_sender(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    // SAFETY: an address is plain data, for which all zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = interface as i32;
    bind(socket, &address)
}

/// Sets whether packets from this socket bypass the interface's queueing discipline.
pub(crate) fn bypass_queueing(socket: BorrowedFd<'_>, bypass: bool) -> io::Result<()> {
    let bypass = u32::from(bypass);
    set_option(socket, libc::SOL_PACKET, PACKET_QDISC_BYPASS, bypass)
}

/// Returns true if no packet of this socket waits in the kernel, such as in a queueing discipline.
pub(crate) fn has_sent_all(socket: BorrowedFd<'_>) -> bool {
    let mut waiting: libc::c_int = 0;
    // SAFETY: `TIOCOUTQ` (`SIOCOUTQ`) writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    result == 0 && waiting == 0
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
