//! Raw packet sockets, which receive and send whole frames of an interface.
#![allow(unsafe_code)]
// In C these integers have one type, in Rust two.
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;
use std::time::Duration;

/// Largest frame at an MTU of 1,500 bytes with a VLAN tag.
const MAX_FRAME: usize = 1_522;
/// Size of the socket's receive buffer in bytes.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;

// From linux/if_packet.h.
const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A packet socket of one interface. The kernel removes VLAN tags from received frames.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: File,
    buffer: [u8; MAX_FRAME + 1],
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl PacketSocket {
    /// Opens a socket on the interface with this name. Needs `CAP_NET_RAW`.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the string is live and ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // With protocol 0 the socket receives nothing before it is bound.
        // SAFETY: no pointers are passed. A non-negative descriptor is new and has no other owner.
        let socket = unsafe { File::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
        set(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            RECEIVE_BUFFER,
        )?;
        set(&socket, libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        // SAFETY: the address consists of integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the pointer and the length belong to the live address.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(Self {
            socket,
            buffer: [0; MAX_FRAME + 1],
        })
    }

    /// Receives a frame without waiting for one.
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

    /// Sends a frame. Returns `false` if the kernel has no room for it at present.
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

fn set(socket: &File, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (fd, len) = (
        socket.as_raw_fd(),
        mem::size_of_val(&value) as libc::socklen_t,
    );
    // SAFETY: the pointer and the length belong to a live integer.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) }).map(drop)
}

/// Returns whether the call may succeed later.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS)
    )
}

/// Waits until a descriptor is readable, `timeout` has passed or a signal arrives.
pub(crate) fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) -> io::Result<()> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let (fds, n) = (polled.as_mut_ptr(), N as libc::nfds_t);
    // SAFETY: the call gets N live `pollfd` structs, a live timeout and no signal mask.
    match check(unsafe { libc::ppoll(fds, n, &raw const timeout, ptr::null()) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Turns off the timer slack of this thread. With it, the kernel may wake the thread up to 50 µs
/// late.
pub(crate) fn wake_exactly() -> io::Result<()> {
    // SAFETY: no pointers are passed, and only this thread is affected.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) }).map(drop)
}
