//! Raw packet sockets. They receive and send whole frames on an interface.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_wrap)]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// Length in bytes of the longest Ethernet frame at an MTU of 1,500 bytes, including a VLAN tag and
/// the FCS.
const MAX_FRAME: usize = 1_522;
/// Size of the socket's receive buffer in bytes.
const RECEIVE_BUFFER: usize = 64 << 20;

// From linux/if_packet.h.
const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A packet socket of one interface. The kernel removes VLAN tags from received frames.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: File,
    buffer: [u8; MAX_FRAME + 1],
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl PacketSocket {
    /// Opens a socket on the interface with this name. Needs `CAP_NET_RAW`, and `CAP_NET_ADMIN` to
    /// exceed the system's limit for receive buffers.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol, the socket receives nothing before it is bound, so no frames of other
        // interfaces arrive.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
        let socket = File::from(socket);
        set(&socket, PACKET_QDISC_BYPASS)?;
        set(&socket, PACKET_IGNORE_OUTGOING)?;
        // SAFETY: the address consists of integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = netdevice::name_to_index(&socket, interface)? as i32;
        let len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the pointer and the length belong to the live address.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(Self {
            socket,
            buffer: [0; MAX_FRAME + 1],
        })
    }

    /// Receives a frame. Returns `None` if no frame has arrived yet.
    pub(crate) fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        match self.socket.read(&mut self.buffer) {
            Ok(len) if len > MAX_FRAME => Err(io::Error::other(
                "a received frame exceeds the MTU: turn off the offloads of the interface",
            )),
            Ok(len) => Ok(Some(&self.buffer[..len])),
            Err(error) if is_temporary(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a frame. Returns `false` if the kernel currently has no room for the frame.
    pub(crate) fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        match self.socket.write(frame) {
            Ok(_) => Ok(true),
            Err(error) if is_temporary(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of frames that the kernel dropped since the last call because the receive
    /// buffer was full.
    pub(crate) fn dropped(&self) -> io::Result<u32> {
        let mut statistics = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = mem::size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into the live struct.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut len,
            )
        })?;
        Ok(statistics.tp_drops)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Turns on an option of a packet socket.
fn set(socket: &File, option: libc::c_int) -> io::Result<()> {
    let (fd, on) = (socket.as_raw_fd(), 1_i32);
    let len = mem::size_of_val(&on) as libc::socklen_t;
    // SAFETY: the pointer and the length belong to a live integer.
    check(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, (&raw const on).cast(), len) })
}

/// Returns true if the call that failed with `error` may succeed later.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS)
    )
}

/// Waits until a descriptor is readable, `timeout` has passed or a signal arrives.
pub(crate) fn wait(fds: [BorrowedFd<'_>; 2], timeout: Duration) -> io::Result<()> {
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reduces the timer slack of this thread to the minimum. With the default slack, the kernel may
/// wake the thread up to 50 µs late.
pub(crate) fn wake_exactly() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}
