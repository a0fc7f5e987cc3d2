//! Reports changes of an interface while it is served.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::mem;

use arrayvec::ArrayVec;
use libc::{
    IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, RTM_DELADDR, RTM_DELLINK, RTM_NEWADDR, RTM_NEWLINK,
};
use netlink_packet_core::NetlinkBuffer;

use super::netlink::{self, INTERFACE_MESSAGE, RECEIVE_BUFFER, address_in, attribute, number};
use crate::device::Change;
use crate::device::change::State;
use crate::sys::{self, Control};

/// Receives the changes of one interface from the kernel.
///
/// Call [`next_change`](Self::next_change) regularly, because the kernel buffers only a limited
/// number of changes. An open monitor needs no capabilities.
#[derive(Debug)]
pub struct Monitor {
    socket: File,
    /// Asks the kernel for the state of the interface after it has dropped messages. A thread with the
    /// system calls of a server cannot open a socket.
    requests: File,
    /// Whether the kernel has dropped messages since the state was last known.
    has_missed: bool,
    /// The messages that were last read from the kernel. `unparsed` is the start and end of the
    /// bytes that are not parsed yet.
    buffer: Box<[u8]>,
    unparsed: (usize, usize),
    known: Known,
    /// Changes that are not returned yet, oldest first.
    changes: VecDeque<Change>,
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
            requests: sys::route_socket()?,
            has_missed: false,
            buffer: vec![0; RECEIVE_BUFFER].into_boxed_slice(),
            unparsed: (0, 0),
            known: Known {
                name: name.to_owned(),
                index: Some(control.index(name)?),
                state: State {
                    is_up: flags & libc::IFF_UP != 0,
                    has_carrier: flags & libc::IFF_RUNNING != 0,
                    addresses: own.map(|a| a.address).collect(),
                },
                mac: control.mac(name)?,
                mtu: control.mtu(name)? as u32,
                is_renamed: false,
            },
            changes: VecDeque::new(),
        })
    }

    /// Returns true if the interface is up and has a carrier, by the last change.
    pub fn has_link(&self) -> bool {
        let state = &self.known.state;
        self.is_present() && state.is_up && state.has_carrier
    }

    /// Returns true if the interface exists, by the last change.
    pub fn is_present(&self) -> bool {
        self.known.index.is_some()
    }

    /// Returns true if a server can start on the interface: it exists, is up and has an address. A
    /// server with its own addresses needs none of the interface.
    pub fn is_usable(&self, needs_address: bool) -> bool {
        let state = &self.known.state;
        self.is_present() && state.is_up && (!needs_address || !state.addresses.is_empty())
    }

    /// Returns the next change, or `None` if no change is waiting. Never waits for a change.
    ///
    /// # Errors
    /// Fails if reading from the kernel's sockets fails.
    pub fn next_change(&mut self) -> io::Result<Option<Change>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(Some(change));
            }
            let (start, end) = self.unparsed;
            if let Ok(message) = NetlinkBuffer::new_checked(&self.buffer[start..end]) {
                let len = message.length() as usize;
                self.unparsed.0 += len.next_multiple_of(4).min(end - start);
                self.changes.extend(apply(&mut self.known, &message));
                continue;
            }
            self.unparsed = (0, 0);
            match self.socket.read(&mut self.buffer) {
                Ok(len) => self.unparsed = (0, len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !mem::take(&mut self.has_missed) {
                        return Ok(None);
                    }
                    // If the kernel is still short of memory, the reader at least looks again itself.
                    if self.catch_up().is_err() {
                        self.changes.push_back(Change::Missed);
                    }
                }
                // The kernel drops further messages until all of those before are read.
                Err(error) if sys::is_errno(&error, libc::ENOBUFS) => self.has_missed = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the state of the interface, after the kernel has dropped messages about it.
    fn catch_up(&mut self) -> io::Result<()> {
        let Self {
            requests,
            known,
            changes,
            ..
        } = self;
        if let Some(index) = known.index {
            match netlink::find_link(requests, index, "")? {
                Some(link) => changes.extend(learn_link(known, &link)),
                None => changes.push_back(known.remove()),
            }
        }
        if known.index.is_none()
            && let Some(link) = netlink::find_link(requests, 0, &known.name)?
        {
            changes.extend(u32_at(&link, 4).and_then(|index| learn_return(known, index, &link)));
        }
        if let Some(index) = known.index {
            let addresses = netlink::addresses(requests, index)?;
            known.state.addresses = addresses.into_iter().map(|one| one.address).collect();
        }
        changes.push_back(Change::Missed);
        Ok(())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The last known state of an interface, and its properties that should not change.
#[derive(Debug)]
struct Known {
    /// The name under which the interface is served.
    name: String,
    /// The interface's index, or `None` while there is no interface of this name.
    index: Option<u32>,
    state: State,
    mac: Option<[u8; 6]>,
    mtu: u32,
    /// Whether the interface has another name than `name` now.
    is_renamed: bool,
}

impl Known {
    /// Forgets the interface, which was removed.
    fn remove(&mut self) -> Change {
        self.index = None;
        self.state = State::default();
        Change::Removed
    }

    /// Updates the MAC address. Returns the change, or `None` if nothing is new.
    fn set_mac(&mut self, mac: [u8; 6]) -> Option<Change> {
        let is_new = self.mac != Some(mac);
        self.mac = Some(mac);
        is_new.then_some(Change::Mac(mac))
    }

    /// Updates the properties from the attributes of a link. Returns the changes.
    fn set_properties(&mut self, attributes: &[u8]) -> [Option<Change>; 3] {
        let mac = attribute(attributes, IFLA_ADDRESS).and_then(<[u8]>::first_chunk);
        let new_mac = mac.and_then(|mac| self.set_mac(*mac));
        let mtu = number(attributes, IFLA_MTU).unwrap_or(self.mtu);
        let new_mtu = (mtu != self.mtu).then_some(Change::Mtu(mtu));
        self.mtu = mtu;
        let is_renamed = name_in(attributes).is_some_and(|name| name != self.name.as_bytes());
        let new_name = (is_renamed && !self.is_renamed).then_some(Change::Renamed);
        self.is_renamed = is_renamed;
        [new_mac, new_mtu, new_name]
    }
}

/// Maximum number of changes that one message reports: of the link's state, and of its properties.
const MAX_REPORTED: usize = 4;
/// The changes that a message reports, in the order in which they are returned.
type Reported = ArrayVec<Change, MAX_REPORTED>;

/// Updates the state of the interface from a message, and returns the changes that the message
/// reports. There are none if the message concerns another interface or reports nothing new.
fn apply(known: &mut Known, message: &NetlinkBuffer<&[u8]>) -> Reported {
    let body = message.payload();
    // RTM_*LINK and RTM_*ADDR messages contain the interface index at this offset.
    let Some(index) = u32_at(body, 4) else {
        return Reported::new();
    };
    let kind = message.message_type();
    if known.index.is_none() && kind == RTM_NEWLINK {
        return learn_return(known, index, body).into_iter().collect();
    }
    if known.index != Some(index) {
        return Reported::new();
    }
    let change = match kind {
        RTM_NEWLINK => return learn_link(known, body),
        RTM_DELLINK if is_of_no_protocol(body) => Some(known.remove()),
        RTM_NEWADDR => learn_address(known, body, true),
        RTM_DELADDR => learn_address(known, body, false),
        _ => None,
    };
    change.into_iter().collect()
}

fn learn_address(known: &mut Known, body: &[u8], added: bool) -> Option<Change> {
    known.state.set_address(address_in(body)?.address, added)
}

/// Returns true if a message about a link is about the interface itself. A bridge also announces the
/// end of a port's membership as the end of a link.
fn is_of_no_protocol(body: &[u8]) -> bool {
    body.first() == Some(&(libc::AF_UNSPEC as u8))
}

/// Learns of interface `index`, if it has the name of the interface that was removed.
fn learn_return(known: &mut Known, index: u32, body: &[u8]) -> Option<Change> {
    let name = name_in(body.get(INTERFACE_MESSAGE..)?)?;
    if name != known.name.as_bytes() || !is_of_no_protocol(body) {
        return None;
    }
    known.index = Some(index);
    // The state and the properties of the link are part of this change.
    learn_link(known, body);
    Some(Change::Returned)
}

fn learn_link(known: &mut Known, body: &[u8]) -> Reported {
    let (Some(flags), Some(attributes)) = (u32_at(body, 8), body.get(INTERFACE_MESSAGE..)) else {
        return Reported::new();
    };
    let flags = flags.cast_signed();
    let is_up = flags & libc::IFF_UP != 0;
    let has_carrier = flags & libc::IFF_RUNNING != 0;
    let link = known.state.set_link(is_up, has_carrier);
    let properties = known.set_properties(attributes);
    link.into_iter()
        .chain(properties.into_iter().flatten())
        .collect()
}

/// Returns the name among the attributes of a link.
fn name_in(attributes: &[u8]) -> Option<&[u8]> {
    let name = attribute(attributes, IFLA_IFNAME)?;
    Some(name.strip_suffix(&[0]).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use libc::{IFA_ADDRESS, IFA_LOCAL};
    use proptest::prelude::*;

    use super::*;

    const HEADER: usize = 16;

    fn apply(state: &mut Known, message: &[u8]) -> Option<Change> {
        let changes = super::apply(state, &NetlinkBuffer::new_checked(message).ok()?);
        assert!(changes.len() <= 1, "{changes:?}");
        changes.first().copied()
    }

    fn state() -> Known {
        Known {
            name: "eth0".into(),
            index: Some(7),
            state: State {
                is_up: true,
                has_carrier: true,
                addresses: vec!["192.0.2.1".parse().unwrap()],
            },
            mac: Some([2; 6]),
            mtu: 1_500,
            is_renamed: false,
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
    fn a_new_mtu_and_a_new_name_are_each_reported_once() {
        let mut state = state();
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        let mut fixed = [0; INTERFACE_MESSAGE];
        fixed[4..8].copy_from_slice(&7u32.to_ne_bytes());
        fixed[8..12].copy_from_slice(&running.to_ne_bytes());
        for (mtu, name, change) in [
            (1_500u32, b"eth0\0", None),
            (9_000, b"eth0\0", Some(Change::Mtu(9_000))),
            (9_000, b"eth0\0", None),
            (9_000, b"lan0\0", Some(Change::Renamed)),
            (9_000, b"lan0\0", None),
            (9_000, b"eth0\0", None),
        ] {
            let attributes: [(u16, &[u8]); 2] =
                [(IFLA_IFNAME, name), (IFLA_MTU, &mtu.to_ne_bytes())];
            let message = message(RTM_NEWLINK, &fixed, &attributes);
            assert_eq!(apply(&mut state, &message), change);
        }
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

    #[test]
    fn a_removed_interface_returns_with_another_number() {
        let mut state = state();
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        let removal = |family: u8| {
            let mut fixed = [family; 1].to_vec();
            fixed.resize(INTERFACE_MESSAGE, 0);
            fixed[4] = 7;
            message(RTM_DELLINK, &fixed, &[])
        };
        let of_a_bridge = removal(libc::AF_BRIDGE as u8);
        assert_eq!(apply(&mut state, &of_a_bridge), None);
        assert_eq!(apply(&mut state, &removal(0)), Some(Change::Removed));
        assert!(state.state.addresses.is_empty() && !state.state.is_up);
        let mut other = link(9, running, [4; 6]);
        let at = other.windows(4).position(|name| name == b"eth0").unwrap();
        other[at + 3] = b'1';
        assert_eq!(apply(&mut state, &other), None, "eth1");
        let back = link(8, running, [4; 6]);
        assert_eq!(apply(&mut state, &back), Some(Change::Returned));
        assert!(state.state.is_up && state.index == Some(8));
        assert_eq!(apply(&mut state, &link(7, 0, [4; 6])), None, "the old one");
        let moved = apply(&mut state, &link(8, running, [2; 6]));
        assert_eq!(moved, Some(Change::Mac([2; 6])), "as at first");
    }

    #[test]
    fn a_message_can_report_several_changes() {
        let mut state = state();
        let message = link(7, 0, [4; 6]);
        let changes = super::apply(&mut state, &NetlinkBuffer::new_checked(&*message).unwrap());
        assert_eq!(changes[..], [Change::Down, Change::Mac([4; 6])]);
        assert_eq!(apply(&mut state, &message), None);
    }

    proptest! {
        #[test]
        fn no_message_causes_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 15u16..24) {
            let mut bytes = bytes;
            if bytes.len() > 24 {
                bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                bytes[20..24].copy_from_slice(&7u32.to_ne_bytes());
            }
            let parse = |bytes: &[u8]| {
                if let Ok(message) = NetlinkBuffer::new_checked(bytes) {
                    super::apply(&mut state(), &message);
                }
            };
            parse(&bytes);
            // Most random length fields are wrong, so also try the correct length.
            if bytes.len() >= HEADER {
                let len = (bytes.len() as u32).to_ne_bytes();
                bytes[..4].copy_from_slice(&len);
                parse(&bytes);
            }
        }
    }
}
