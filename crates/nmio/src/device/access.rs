//! Access to the queues of an interface. The access can be sent to another process.
//!
//! The access does not keep the steering program attached. For that, the interface itself must stay
//! open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::namespace::Namespace;
use super::queue::{Backend, QueueSource};
use super::{AddressPrefix, Monitor, Offload};
use crate::port::Wait;

/// Properties of an open interface, and the descriptors with which its queues are opened.
///
/// While the queues are served, an [`Interface`](super::Interface) in this or another process must
/// stay alive. To send the access over a Unix socket, use [`to_parts`](Self::to_parts) and
/// [`from_parts`](Self::from_parts).
#[derive(Clone, Debug)]
pub struct QueueAccess {
    facts: Facts,
    /// For `AF_XDP`: the steering program's map from queues to sockets, followed by the interface's
    /// private network namespace if it has one. For a tap device: one descriptor per queue.
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

/// The kind of interface, with the options needed to open its queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    Xdp {
        interface: String,
        generic: bool,
        partial_checksums: bool,
        offload: Offload,
        /// The number of the NAPI instance of each queue; empty if unknown or not polled.
        napis: Vec<u32>,
    },
    Tap {
        name: String,
    },
}

impl QueueAccess {
    pub(super) fn new(facts: Facts, descriptors: Vec<Arc<OwnedFd>>) -> Self {
        Self { facts, descriptors }
    }

    /// Records that an `AF_XDP` interface is in the private network namespace `namespace`.
    pub(super) fn set_namespace(&mut self, namespace: &Namespace) {
        self.descriptors.push(namespace.handle());
    }

    pub(super) fn add_line(&mut self, name: &str, value: String) {
        self.facts.summary.push((name.to_owned(), value));
    }

    /// Adds the `device` line at the start of the summary.
    pub(super) fn set_device_line(&mut self, value: String) {
        self.facts.summary.insert(0, ("device".to_owned(), value));
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
            Kind::Xdp { .. } => matches!(descriptors.len(), 1 | 2),
            Kind::Tap { .. } => descriptors.len() == facts.queues as usize,
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
            Kind::Xdp { interface, .. } => interface,
            Kind::Tap { name } => name,
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

    /// Returns the MTU: the length of the largest IP packet, in bytes.
    pub fn mtu(&self) -> usize {
        self.facts.mtu
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

    /// Opens a monitor that reports changes to the interface. Call this method before privileges
    /// are dropped, because entering the interface's network namespace needs them.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered, or if the kernel does not report the interface's
    /// state and its changes.
    pub fn monitor(&self) -> io::Result<Monitor> {
        match self.namespace() {
            Some(namespace) => namespace.run(|| Monitor::open(self.name()))?,
            None => Monitor::open(self.name()),
        }
    }

    /// Returns the interface's private network namespace if it has one.
    fn namespace(&self) -> Option<Namespace> {
        match &self.facts.kind {
            Kind::Xdp { .. } => self.descriptors.get(1).cloned().map(Namespace::from_handle),
            Kind::Tap { .. } => None,
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
            Kind::Xdp {
                interface,
                generic,
                partial_checksums,
                offload,
                napis,
            } => Backend::Xdp {
                interface: interface.clone(),
                queue: index,
                xsks: Arc::clone(&self.descriptors[0]),
                namespace: self.namespace(),
                generic: *generic,
                partial_checksums: *partial_checksums,
                offload: *offload,
                napi: napis.get(index as usize).copied(),
            },
            Kind::Tap { name } => Backend::Tap {
                name: name.clone(),
                file: Arc::clone(&self.descriptors[index as usize]),
            },
        };
        QueueSource {
            backend,
            mtu: self.facts.mtu,
            wait: self.facts.wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn null() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    fn access(kind: Kind, descriptors: usize) -> QueueAccess {
        let facts = Facts {
            kind,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            own: true,
            addresses: vec![
                "192.0.2.1/24".parse().unwrap(),
                "2001:db8::1/64".parse().unwrap(),
            ],
            queues: 2,
            vlans: vec![10],
            wait: Wait::Spin,
            summary: vec![("device".into(), "tap \"t0\"".into())],
        };
        QueueAccess::new(facts, (0..descriptors).map(|_| Arc::new(null())).collect())
    }

    fn tap(descriptors: usize) -> QueueAccess {
        access(Kind::Tap { name: "t0".into() }, descriptors)
    }

    #[test]
    fn queue_access_is_rebuilt_from_its_parts() {
        let sent = tap(2);
        let (facts, descriptors) = sent.to_parts().unwrap();
        let descriptors = descriptors
            .iter()
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let received = QueueAccess::from_parts(&facts, descriptors.collect()).unwrap();
        assert_eq!(format!("{:?}", received.facts), format!("{:?}", sent.facts));
        assert!(matches!(received.queue(1).backend, Backend::Tap { .. }));
    }

    #[test]
    fn wrong_numbers_of_descriptors_are_refused() {
        let xdp = || Kind::Xdp {
            interface: "e0".into(),
            generic: false,
            partial_checksums: false,
            offload: Offload::Auto,
            napis: vec![7, 8],
        };
        for (sent, descriptors, fits) in [
            (tap(2), 1, false),
            (tap(2), 3, false),
            (access(xdp(), 1), 0, false),
            (access(xdp(), 1), 1, true),
            (access(xdp(), 2), 2, true),
            (access(xdp(), 2), 3, false),
        ] {
            let (facts, _) = sent.to_parts().unwrap();
            let received = (0..descriptors).map(|_| null()).collect();
            let outcome = QueueAccess::from_parts(&facts, received);
            assert_eq!(outcome.is_ok(), fits, "{descriptors} for {:?}", sent.facts);
        }
        assert!(QueueAccess::from_parts("{}", vec![]).is_err());
    }
}
