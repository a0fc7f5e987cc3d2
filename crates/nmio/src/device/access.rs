//! Access to the queues of an interface. The access can be sent to another process.
//!
//! The access does not keep the steering program attached. For that, the interface itself must stay
//! open.

#[cfg(target_os = "linux")]
mod summary;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::netmap_kind::{NetmapKind, Served};
use super::queue::{Backend, QueueSource};
use super::{AddressPrefix, Monitor, NewQueue, PacketMemory, system};
use crate::port::Wait;

/// Properties of an open interface, and the descriptors with which its queues are opened.
///
/// While the queues are served, an [`Interface`](super::Interface) in this or another process must
/// stay alive. To send the access over a Unix socket, use [`to_parts`](Self::to_parts) and
/// [`from_parts`](Self::from_parts).
#[derive(Clone, Debug)]
pub struct QueueAccess {
    facts: Facts,
    /// The descriptors that the kind of device needs, such as one for each queue.
    descriptors: Vec<Arc<OwnedFd>>,
}

/// The properties of an interface that can be sent as text: all except the descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) mac: [u8; 6],
    pub(super) mtu: usize,
    pub(super) own: bool,
    pub(super) addresses: Vec<AddressPrefix>,
    pub(super) queues: u32,
    pub(super) vlans: Vec<u16>,
    pub(super) wait: Wait,
    pub(super) summary: Vec<(String, String)>,
}

/// The kind of device, with the options needed to open its queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A netmap port. Descriptors: none, because each worker opens its own.
    Netmap(NetmapKind),
    /// A kind of device that only this operating system has.
    System(system::Kind),
}

impl QueueAccess {
    pub(super) fn new(facts: Facts, descriptors: Vec<Arc<OwnedFd>>) -> Self {
        Self { facts, descriptors }
    }

    /// Returns the interface's properties as text, and the descriptors to send with this text.
    ///
    /// # Errors
    /// Fails if the properties cannot be serialized, which is a bug.
    pub fn to_parts(&self) -> io::Result<(String, Vec<BorrowedFd<'_>>)> {
        let facts = serde_json::to_string(&self.facts)?;
        let descriptors = self.descriptors.iter().map(|fd| fd.as_fd()).collect();
        Ok((facts, descriptors))
    }

    /// Rebuilds the access from the parts that [`to_parts`](Self::to_parts) returned. `descriptors`
    /// are this process's copies of the descriptors, in the same order.
    ///
    /// # Errors
    /// Fails if the text is invalid, or if the number of descriptors does not match it.
    pub fn from_parts(facts: &str, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let facts: Facts = serde_json::from_str(facts)?;
        let fits = match &facts.kind {
            Kind::Netmap(_) => descriptors.is_empty(),
            Kind::System(kind) => kind.fits(descriptors.len(), facts.queues),
        };
        if !fits {
            return Err(io::Error::other(
                "the descriptors do not match the facts about the interface",
            ));
        }
        let descriptors = descriptors.into_iter().map(Arc::new).collect();
        Ok(Self { facts, descriptors })
    }

    /// Returns the interface's name in its network namespace.
    pub fn name(&self) -> &str {
        match &self.facts.kind {
            Kind::Netmap(kind) => kind.name(),
            Kind::System(kind) => kind.name(),
        }
    }

    /// Returns the server's Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.facts.mac
    }

    /// Returns the served addresses with their prefix lengths.
    ///
    /// With `auto` and `tap`, programs on this host can reach them. With `xdp:`, only other hosts
    /// can, because packets that a host sends to itself bypass the interface.
    pub fn addresses(&self) -> &[AddressPrefix] {
        &self.facts.addresses
    }

    /// Returns true in own mode, where the server answers ARP, neighbour discovery and ICMP echo.
    /// In shared mode the kernel answers them.
    pub fn is_own(&self) -> bool {
        self.facts.own
    }

    /// Returns true if the server can follow changes of the addresses. This is so if it shares them
    /// with the kernel, on `AF_XDP`.
    pub fn can_follow_addresses(&self) -> bool {
        let can_change = match &self.facts.kind {
            Kind::Netmap(_) => false,
            Kind::System(kind) => kind.can_change_addresses(),
        };
        can_change && !self.facts.own
    }

    /// Returns true if the server can follow a change of the interface's MAC address. This is so on
    /// `AF_XDP`, if the server did not make the interface.
    pub fn can_follow_mac(&self) -> bool {
        self.may_return()
    }

    /// Returns true if the server has the interface's Ethernet address. A server on a tap device has an
    /// address of its own.
    pub fn shares_mac(&self) -> bool {
        match &self.facts.kind {
            Kind::Netmap(_) => true,
            Kind::System(kind) => kind.shares_mac(),
        }
    }

    /// Returns true if another interface may take the place of this one after its removal, so that a
    /// server should wait for it. This is so on `AF_XDP`, if the server did not make the interface.
    pub fn may_return(&self) -> bool {
        match &self.facts.kind {
            Kind::Netmap(_) => false,
            Kind::System(kind) => kind.may_return(),
        }
    }

    /// Returns true if the workers sleep in the kernel while the interface is down, so that they neither
    /// serve nor end. This is so on netmap.
    pub fn hangs_while_down(&self) -> bool {
        match &self.facts.kind {
            Kind::Netmap(kind) => kind.hangs_while_down(),
            Kind::System(_) => false,
        }
    }

    /// Returns the MTU: the length of the largest IP packet, in bytes.
    pub fn mtu(&self) -> usize {
        self.facts.mtu
    }

    /// Returns the memory that a resident packet takes, in bytes. Returns a reason instead if a server
    /// should have resident packets only when it is told to. Call this method before privileges are
    /// dropped.
    ///
    /// # Errors
    /// The reason, for the operator.
    pub fn resident_len(&self) -> Result<usize, &'static str> {
        match &self.facts.kind {
            Kind::Netmap(_) => Err("all programs share the buffers of netmap"),
            Kind::System(kind) => kind.resident_len(self.facts.mtu),
        }
    }

    /// Returns the number of queues to serve, each with its own worker. Queues are numbered from 0.
    pub fn queues(&self) -> u32 {
        self.facts.queues
    }

    /// Returns the VLANs that are served in addition to untagged frames.
    pub fn vlans(&self) -> &[u16] {
        &self.facts.vlans
    }

    /// Describes the interface's actual settings for people, as pairs of name and value. The
    /// settings of a single queue are in the summary of its port.
    pub fn summary(&self) -> &[(String, String)] {
        &self.facts.summary
    }

    /// Opens a monitor that reports changes to the interface. Returns `None` if the device is no
    /// interface: a port of a netmap switch, or one end of a netmap pipe. Call this method before
    /// privileges are dropped, because entering the interface's network namespace needs them.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered, or if the kernel does not report the interface's
    /// state and its changes.
    pub fn monitor(&self) -> io::Result<Option<Monitor>> {
        match &self.facts.kind {
            Kind::Netmap(kind) => kind.monitor(),
            Kind::System(kind) => kind.monitor(&self.descriptors).map(Some),
        }
    }

    /// Returns queue `index`, for the thread that will serve it.
    ///
    /// # Panics
    /// If `index` is not below [`queues`](Self::queues).
    pub fn queue(&self, index: u32) -> QueueSource {
        let queues = self.queues();
        assert!(
            index < queues,
            "queue {index} does not exist: there are {queues} queues, counted from 0"
        );
        let backend = match &self.facts.kind {
            Kind::Netmap(kind) => {
                let served = Served {
                    queues,
                    own: self.facts.own,
                    mac: self.facts.mac,
                    addresses: &self.facts.addresses,
                };
                Backend::Netmap(kind.queue(index, &served))
            }
            Kind::System(kind) => kind.queue(index, &self.descriptors, Backend::System),
        };
        QueueSource {
            backend,
            mtu: self.facts.mtu,
            wait: self.facts.wait,
            waits_for_return: false,
        }
    }

    /// Returns true if the workers poll the device's queues in the kernel (`--wait busy-poll`). Their ports
    /// cannot continue on other queues.
    pub fn polls_queues(&self) -> bool {
        self.facts.wait == Wait::BusyPoll
    }

    /// Returns why ports of the removed `former` cannot continue on the queues of this interface, which
    /// has its name. Returns `None` if they can.
    pub fn misfit(&self, former: &Self) -> Option<String> {
        let (new, old) = (&self.facts, &former.facts);
        if new.mtu != old.mtu {
            return Some(format!("it has MTU {} instead of {}", new.mtu, old.mtu));
        }
        let queues = (new.queues, old.queues);
        (queues.0 != queues.1)
            .then(|| format!("it has {} served queues instead of {}", queues.0, queues.1))
    }

    /// Returns queue `index` for a port that waits for it since its own interface was removed. Returns
    /// `None` if [`may_return`](Self::may_return) is false.
    ///
    /// # Panics
    /// If `index` is not below [`queues`](Self::queues).
    pub fn new_queue(&self, index: u32) -> Option<NewQueue> {
        assert!(index < self.queues(), "queue {index} does not exist");
        match &self.facts.kind {
            Kind::Netmap(_) => None,
            Kind::System(kind) => kind.new_queue(index, &self.descriptors),
        }
    }

    /// Gives queue `index` the packet memory of a port in another process, which then needs no
    /// capability to [attach](crate::Port::attach) the queue. No other port may attach it. Fails on kinds
    /// of device without [`new_queue`](Self::new_queue).
    ///
    /// # Errors
    /// The kernel's error, for example if the limit on locked memory is too low for a process without
    /// `CAP_IPC_LOCK`.
    ///
    /// # Panics
    /// If `index` is not below [`queues`](Self::queues).
    pub fn register_memory(&self, index: u32, memory: &PacketMemory) -> io::Result<()> {
        assert!(index < self.queues(), "queue {index} does not exist");
        match &self.facts.kind {
            Kind::Netmap(_) => Err(io::ErrorKind::Unsupported.into()),
            Kind::System(kind) => kind.register_memory(index, &self.descriptors, memory),
        }
    }

    /// Closes this value's descriptors of the queues, after which no queue can be got from it. The
    /// kernel frees a queue when the last descriptor is closed.
    pub fn close_queues(&mut self) {
        let first = match &self.facts.kind {
            Kind::Netmap(_) => 0,
            Kind::System(kind) => kind.first_queue(),
        };
        self.descriptors.truncate(first);
    }
}
