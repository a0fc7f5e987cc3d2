//! Reports changes of an interface while it is served.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{IFA_ADDRESS, IFA_LOCAL, IFLA_ADDRESS, RTM_DELADDR, RTM_NEWADDR, RTM_NEWLINK};
use netlink_packet_core::NetlinkBuffer;

use super::netlink::{INTERFACE_MESSAGE, RECEIVE_BUFFER, attribute};
use crate::device::Change;
use crate::device::change::State;
use crate::sys::{self, Control};

/// Size in bytes of `struct ifaddrmsg`: family, prefix, flags, scope, index.
const ADDRESS_MESSAGE: usize = 8;
/// Receives the changes of one interface from the kernel.
///
/// Call [`next_change`](Self::next_change) regularly, because the kernel buffers only a limited
/// number of changes. An open monitor needs no capabilities.
#[derive(Debug)]
pub struct Monitor {
    socket: File,
    /// The messages that were last read from the kernel. `unparsed` is the start and end of the
    /// bytes that are not parsed yet.
    buffer: Box<[u8]>,
    unparsed: (usize, usize),
    /// The interface's index.
    index: u32,
    known: Known,
}

impl Monitor {
    /// Starts monitoring interface `name` in the calling thread's network namespace.
    pub(in crate::device) fn open(name: &str) -> io::Result<Self> {
        // Open the socket before reading the state, so that no change between the two steps is
        // lost.
        let socket = sys::route_monitor()?;
        let control = Control::new()?;
        let flags = control.flags(name)?;
        let (_, addresses) = sys::interfaces()?;
        let own = addresses.into_iter().filter(|a| a.interface == name);
        Ok(Self {
            socket,
            buffer: vec![0; RECEIVE_BUFFER].into_boxed_slice(),
            unparsed: (0, 0),
            index: control.index(name)?,
            known: Known {
                state: State {
                    is_up: flags & libc::IFF_UP != 0,
                    has_carrier: flags & libc::IFF_RUNNING != 0,
                    addresses: own.map(|a| a.address).collect(),
                },
                mac: control.mac(name)?,
            },
        })
    }

    /// Returns the next change, or `None` if no change is waiting. Never blocks.
    ///
    /// # Errors
    /// Fails if reading from the kernel's socket fails.
    pub fn next_change(&mut self) -> io::Result<Option<Change>> {
        loop {
            let (start, end) = self.unparsed;
            if let Ok(message) = NetlinkBuffer::new_checked(&self.buffer[start..end]) {
                let len = message.length() as usize;
                self.unparsed.0 += len.next_multiple_of(4).min(end - start);
                if let Some(change) = apply(&mut self.known, self.index, &message) {
                    return Ok(Some(change));
                }
                continue;
            }
            self.unparsed = (0, 0);
            match self.socket.read(&mut self.buffer) {
                Ok(len) => self.unparsed = (0, len),
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

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The last known state of an interface, and its MAC address.
#[derive(Debug)]
struct Known {
    state: State,
    mac: Option<[u8; 6]>,
}

impl Known {
    /// Updates the MAC address. Returns the change, or `None` if nothing is new.
    fn set_mac(&mut self, mac: [u8; 6]) -> Option<Change> {
        let is_new = self.mac != Some(mac);
        self.mac = Some(mac);
        is_new.then_some(Change::Mac(mac))
    }
}

/// Updates the state of interface `index` from a message, and returns the change that the message
/// reports. Returns `None` if the message concerns another interface or reports nothing new.
fn apply(known: &mut Known, index: u32, message: &NetlinkBuffer<&[u8]>) -> Option<Change> {
    let body = message.payload();
    // RTM_NEWLINK and RTM_*ADDR messages contain the interface index at this offset.
    if u32_at(body, 4)? != index {
        return None;
    }
    match message.message_type() {
        RTM_NEWLINK => learn_link(known, body),
        RTM_NEWADDR => known.state.set_address(address_in(body)?, true),
        RTM_DELADDR => known.state.set_address(address_in(body)?, false),
        _ => None,
    }
}

fn learn_link(known: &mut Known, body: &[u8]) -> Option<Change> {
    let flags = u32_at(body, 8)?.cast_signed();
    let is_up = flags & libc::IFF_UP != 0;
    let has_carrier = flags & libc::IFF_RUNNING != 0;
    known.state.set_link(is_up, has_carrier).or_else(|| {
        let mac = attribute(body.get(INTERFACE_MESSAGE..)?, IFLA_ADDRESS)?;
        known.set_mac(*mac.first_chunk()?)
    })
}

fn address_in(body: &[u8]) -> Option<IpAddr> {
    let attributes = body.get(ADDRESS_MESSAGE..)?;
    // Prefer IFA_LOCAL, because on a point-to-point link IFA_ADDRESS is the peer's address.
    let octets = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    match i32::from(*body.first()?) {
        libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: usize = 16;

    fn apply(state: &mut Known, message: &[u8]) -> Option<Change> {
        super::apply(state, 7, &NetlinkBuffer::new_checked(message).ok()?)
    }

    fn state() -> Known {
        Known {
            state: State {
                is_up: true,
                has_carrier: true,
                addresses: vec!["192.0.2.1".parse().unwrap()],
            },
            mac: Some([2; 6]),
        }
    }

    fn message(kind: u16, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        for (kind, value) in attributes {
            bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let len = (bytes.len() as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&len);
        bytes
    }

    fn link(index: u32, flags: i32, mac: [u8; 6]) -> Vec<u8> {
        let mut fixed = [0; INTERFACE_MESSAGE];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
        message(RTM_NEWLINK, &fixed, &[(3, b"eth0\0"), (IFLA_ADDRESS, &mac)])
    }

    #[test]
    fn each_link_change_is_reported_once() {
        let mut state = state();
        let (up, running) = (libc::IFF_UP, libc::IFF_UP | libc::IFF_RUNNING);
        for (flags, mac, change) in [
            (running, [2; 6], None),
            (up, [2; 6], Some(Change::NoCarrier)),
            (up, [2; 6], None),
            (running, [2; 6], Some(Change::Carrier)),
            (0, [2; 6], Some(Change::Down)),
            (running, [2; 6], Some(Change::Up)),
            (running, [4; 6], Some(Change::Mac([4; 6]))),
            (running, [4; 6], None),
        ] {
            assert_eq!(apply(&mut state, &link(7, flags, mac)), change);
        }
        assert_eq!(
            apply(&mut state, &link(8, 0, [2; 6])),
            None,
            "another interface"
        );
    }

    #[test]
    fn added_and_removed_addresses_are_reported() {
        let mut state = state();
        let v4 = |kind, octets: [u8; 4]| {
            let fixed = [libc::AF_INET as u8, 24, 0, 0, 7, 0, 0, 0];
            message(
                kind,
                &fixed,
                &[(IFA_ADDRESS, &[9; 4]), (IFA_LOCAL, &octets)],
            )
        };
        let first = "192.0.2.1".parse().unwrap();
        let second = "192.0.2.2".parse().unwrap();
        for (kind, last, change) in [
            (RTM_NEWADDR, 1, None),
            (RTM_NEWADDR, 2, Some(Change::AddressAdded(second))),
            (RTM_NEWADDR, 2, None),
            (RTM_DELADDR, 1, Some(Change::AddressRemoved(first))),
            (RTM_NEWADDR, 1, Some(Change::AddressAdded(first))),
        ] {
            assert_eq!(apply(&mut state, &v4(kind, [192, 0, 2, last])), change);
        }
        let fixed = [libc::AF_INET6 as u8, 64, 0, 0, 7, 0, 0, 0];
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let message = message(RTM_NEWADDR, &fixed, &[(IFA_ADDRESS, &v6.octets())]);
        assert_eq!(
            apply(&mut state, &message),
            Some(Change::AddressAdded(v6.into()))
        );
    }

    proptest! {
        #[test]
        fn no_message_causes_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 15u16..24) {
            let mut bytes = bytes;
            if bytes.len() > 24 {
                bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                bytes[20..24].copy_from_slice(&7u32.to_ne_bytes());
            }
            apply(&mut state(), &bytes);
            // Most random length fields are wrong, so also try the correct length.
            if bytes.len() >= HEADER {
                let len = (bytes.len() as u32).to_ne_bytes();
                bytes[..4].copy_from_slice(&len);
                apply(&mut state(), &bytes);
            }
        }
    }
}
