//! The sockets from which the kernel sends NOTIFY.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nmio::Bell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::message::MAX_MESSAGE;
use super::secondary::Secondary;
use crate::tsig::MAX_SIGNATURE;

/// Maximum number of datagrams that are received from a socket at once.
const MAX_RECEIVED: usize = 64;
/// Longest part of a datagram that is read, in bytes. A reply to NOTIFY has a header and a question, perhaps
/// the records of the message, and a signature.
const MAX_REPLY: usize = MAX_MESSAGE + MAX_SIGNATURE;
/// Pause after an error of the kernel that a later attempt may not meet.
const PAUSE: Duration = Duration::from_millis(100);

/// A UDP socket for each IP version that the servers have. The kernel chooses their ports.
#[derive(Debug)]
pub(super) struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    /// Opens the sockets for datagrams to these servers.
    ///
    /// # Errors
    /// If the system refuses a socket.
    pub(super) fn open(servers: &[Secondary]) -> io::Result<Self> {
        let open = |is_v4| {
            if !servers.iter().any(|to| to.address().is_ipv4() == is_v4) {
                return Ok(None);
            }
            let socket = any_socket(is_v4)?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(Some(socket))
        };
        Ok(Self {
            v4: open(true)?,
            v6: open(false)?,
        })
    }

    /// Sends a datagram to a server for which the sockets were opened. The error says why the kernel
    /// refuses it.
    pub(super) fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        if let Some(socket) = socket {
            socket.send_to(datagram, to)?;
        }
        Ok(())
    }

    /// Passes some of the datagrams that have arrived to `handle`, with their senders.
    pub(super) fn receive(&self, mut handle: impl FnMut(SocketAddr, &[u8])) {
        let mut datagram = [0; MAX_REPLY];
        for socket in self.all() {
            for _ in 0..MAX_RECEIVED {
                match socket.recv_from(&mut datagram) {
                    Ok((len, from)) => handle(from, &datagram[..len]),
                    Err(_) => break,
                }
            }
        }
    }

    /// Waits until a datagram arrives, until the bell rings, or until the deadline.
    pub(super) fn wait(&self, bell: &Bell, deadline: Option<Instant>) {
        let sockets = self.all().map(|one| PollFd::new(one, PollFlags::IN));
        let bell = PollFd::from_borrowed_fd(bell.event(), PollFlags::IN);
        let mut events: Vec<_> = sockets.chain([bell]).collect();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut events, timeout.as_ref()).is_err() {
            std::thread::sleep(PAUSE);
        }
    }

    fn all(&self) -> impl Iterator<Item = &UdpSocket> {
        self.v4.iter().chain(&self.v6)
    }
}

/// Returns the address from which the kernel sends to a server, or `None` without a route.
pub(super) fn address_towards(to: SocketAddr) -> Option<IpAddr> {
    let socket = any_socket(to.is_ipv4()).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Opens a socket on a port that the kernel chooses.
fn any_socket(is_v4: bool) -> io::Result<UdpSocket> {
    UdpSocket::bind::<SocketAddr>(if is_v4 {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    })
}
