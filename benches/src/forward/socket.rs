//! Raw packet sockets: every frame of an interface, in and out.
#![allow(unsafe_code)]
// C has one integer type where we have two.
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Frames that one call receives or sends.
pub const BATCH: usize = 64;
/// The largest frame that is forwarded: an Ethernet frame of MTU 1500, a tag
/// included, with room to see that one is larger.
const BUFFER_LEN: usize = 2_048;
/// Bytes of frames that wait to be received.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;

/// Options of `linux/if_packet.h`.
const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A socket on one interface. VLAN tags are lost on the way: the kernel takes
/// them off.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// [`BATCH`] of them.
    buffers: Box<[[u8; BUFFER_LEN]]>,
    oversized: u64,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl PacketSocket {
    /// Opens a socket on the interface of this name. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// Of the system calls; `ENODEV` when there is no such interface.
    pub fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a live string that ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // With protocol 0 nothing is received before the socket is bound.
        // SAFETY: no pointers; a descriptor that is not negative is new and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
        let socket = Self {
            fd,
            buffers: vec![[0; BUFFER_LEN]; BATCH].into_boxed_slice(),
            oversized: 0,
        };
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)?;
        socket.set(libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
        socket.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the pointer and the length are those of a live address.
        check(unsafe {
            libc::bind(
                socket.fd.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of_val(&address) as libc::socklen_t,
            )
        })?;
        Ok(socket)
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a live int.
        check(unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                mem::size_of_val(&value) as libc::socklen_t,
            )
        })
        .map(drop)
    }

    /// Gives up to [`BATCH`] received frames to `handle` and returns how many
    /// there were, without waiting. Frames too large to be those of a wire
    /// are counted and left out.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn receive(&mut self, mut handle: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut pieces: [libc::iovec; BATCH] = std::array::from_fn(|i| libc::iovec {
            iov_base: self.buffers[i].as_mut_ptr().cast(),
            iov_len: BUFFER_LEN,
        });
        let mut messages = pieces.each_mut().map(message);
        // SAFETY: each message has one piece, each piece is a buffer of ours;
        // all live through the call. No timeout.
        let received = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let received = match check(received) {
            Ok(received) => received as usize,
            Err(error) if is_passing(&error) => return Ok(0),
            Err(error) => return Err(error),
        };
        for (message, buffer) in messages[..received].iter().zip(&self.buffers) {
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                self.oversized += 1;
            } else {
                handle(&buffer[..(message.msg_len as usize).min(BUFFER_LEN)]);
            }
        }
        Ok(received)
    }

    /// Sends up to [`BATCH`] frames and returns how many have gone; those
    /// behind them can be tried again.
    ///
    /// # Errors
    /// When the interface is gone or down.
    pub fn send(&mut self, frames: &[Vec<u8>]) -> io::Result<usize> {
        let n = frames.len().min(BATCH);
        let mut pieces: [libc::iovec; BATCH] = std::array::from_fn(|i| {
            let frame = frames.get(i).map_or(&[][..], Vec::as_slice);
            libc::iovec {
                // The kernel only reads.
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            }
        });
        let mut messages = pieces.each_mut().map(message);
        // SAFETY: the first n messages have one piece each, which is a frame
        // of the caller's; all live through the call, which only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                n as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        match check(sent) {
            Ok(sent) => Ok(sent as usize),
            Err(error) if is_passing(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Frames too large to be those of a wire, so far.
    pub fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Frames that the kernel has dropped because nobody received them in
    /// time, since the last call.
    ///
    /// # Errors
    /// Of the system call.
    pub fn dropped(&self) -> io::Result<u32> {
        let mut statistics = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = mem::size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into the live struct.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
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
        self.fd.as_fd()
    }
}

fn message(piece: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: a message header is integers and pointers, which may be zero.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_iov = piece;
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// Whether a call that failed so can be made again.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS)
    )
}

/// Waits until one of the descriptors can be read or has been closed at its
/// other end, or `timeout` has passed; returns which can.
///
/// # Errors
/// Of the system call.
pub fn wait<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: N live pollfds, a timeout that is null or lives, no signal mask.
    let ready =
        unsafe { libc::ppoll(polled.as_mut_ptr(), N as libc::nfds_t, timeout, ptr::null()) };
    match check(ready) {
        Ok(_) => Ok(polled.map(|polled| polled.revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
    }
}

/// Has the kernel wake this thread at the time that it has asked for, instead
/// of up to 50 µs later.
///
/// # Errors
/// Of the system call.
pub fn wake_exactly() -> io::Result<()> {
    // SAFETY: no pointers; concerns this thread only.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) }).map(drop)
}
