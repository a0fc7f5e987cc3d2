//! Reports changes of an interface while it is served, from the messages of a routing socket.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::device::Change;
use crate::device::change::State;
use crate::sys;

/// Size of the receive buffer in bytes. The kernel truncates no message below 64 KB.
const RECEIVE_BUFFER: usize = 64 << 10;
/// Size in bytes of `struct ifa_msghdr`, which precedes the addresses of a message.
const ADDRESS_MESSAGE: usize = 20;
// Offsets in bytes, of `struct if_msghdr` and `struct ifa_msghdr`.
const TYPE_AT: usize = 3;
const ADDRESSES_AT: usize = 4;
const FLAGS_AT: usize = 8;
const INDEX_AT: usize = 12;
const LINK_STATE_AT: usize = 20;

/// Receives the changes of one interface from the kernel.
///
/// Call [`next_change`](Self::next_change) regularly, because the kernel buffers only a limited
/// number of changes. FreeBSD reports no change of the MAC address.
#[derive(Debug)]
pub struct Monitor {
    socket: File,
    buffer: Box<[u8]>,
    /// The interface's index.
    index: u16,
    state: State,
}

impl Monitor {
    /// Starts monitoring interface `name`.
    // Only a netmap port calls this function.
    pub(in crate::device) fn open(name: &str) -> io::Result<Self> {
        // Open the socket before reading the state, so that no change between the two steps is
        // lost.
        let socket = sys::route_monitor()?;
        let link = sys::link(name)?;
        let (_, addresses) = sys::interfaces()?;
        let own = addresses.into_iter().filter(|a| a.interface == name);
        Ok(Self {
            socket,
            buffer: vec![0; RECEIVE_BUFFER].into_boxed_slice(),
            index: link.index,
            state: State {
                is_up: link.is_up,
                has_carrier: link.has_carrier,
                addresses: own.map(|a| a.address).collect(),
            },
        })
    }

    /// Returns true if the interface is up and has a carrier, by the last change.
    pub fn has_link(&self) -> bool {
        self.state.is_up && self.state.has_carrier
    }

    /// Returns true. FreeBSD's removals of interfaces are not noticed here.
    pub fn is_present(&self) -> bool {
        true
    }

    /// Returns true if a server can start on the interface: it is up and has an address. A server
    /// with its own addresses needs none of the interface.
    pub fn is_usable(&self, needs_address: bool) -> bool {
        self.state.is_up && (!needs_address || !self.state.addresses.is_empty())
    }

    /// Returns the next change, or `None` if no change is waiting. Never blocks.
    ///
    /// # Errors
    /// Fails if reading from the kernel's socket fails.
    pub fn next_change(&mut self) -> io::Result<Option<Change>> {
        loop {
            // The socket preserves message boundaries.
            match self.socket.read(&mut self.buffer) {
                Ok(len) => {
                    let change = apply(&mut self.state, self.index, &self.buffer[..len]);
                    if change.is_some() {
                        return Ok(change);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if sys::is_errno(&error, libc::ENOBUFS) => {
                    return Ok(Some(Change::Missed));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Updates the state of interface `index` from a message, and returns the change that the message
/// reports. Returns `None` if the message concerns another interface or reports nothing new.
fn apply(state: &mut State, index: u16, message: &[u8]) -> Option<Change> {
    let [first, second] = *message.get(INDEX_AT..)?.first_chunk()?;
    if u16::from_ne_bytes([first, second]) != index {
        return None;
    }
    match i32::from(message[TYPE_AT]) {
        libc::RTM_IFINFO => {
            let is_up = i32_at(message, FLAGS_AT)? & libc::IFF_UP != 0;
            // A driver that does not know its carrier reports LINK_STATE_UNKNOWN.
            let link_state = i32::from(*message.get(LINK_STATE_AT)?);
            state.set_link(is_up, link_state != libc::LINK_STATE_DOWN)
        }
        libc::RTM_NEWADDR => state.set_address(address_in(message)?, true),
        libc::RTM_DELADDR => state.set_address(address_in(message)?, false),
        _ => None,
    }
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the interface's own address in a message. The addresses of a message follow each other in
/// the order of their flags. Each begins with its length and its family.
fn address_in(message: &[u8]) -> Option<IpAddr> {
    let present = i32_at(message, ADDRESSES_AT)?;
    let mut rest = message.get(ADDRESS_MESSAGE..)?;
    for bit in 0..libc::RTAX_IFA {
        if present & 1 << bit != 0 {
            let len = usize::from(*rest.first()?).max(1);
            rest = rest.get(len.next_multiple_of(size_of::<libc::c_long>())..)?;
        }
    }
    if present & libc::RTA_IFA == 0 {
        return None;
    }
    match i32::from(*rest.get(1)?) {
        libc::AF_INET => {
            let octets: [u8; 4] = *rest.get(4..)?.first_chunk()?;
            Some(Ipv4Addr::from(octets).into())
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = *rest.get(8..)?.first_chunk()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}
