//! What serving an interface's queues takes, apart from what keeps the
//! interface ready. It can be sent to another process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::namespace::Namespace;
use super::queue::{QueueSource, Way};
use super::{AddressPrefix, Monitor, Offload};
use crate::port::Wait;

/// What is known of an open interface, and the descriptors that its queues are
/// opened with.
///
/// It does not keep the interface ready: an [`Interface`](super::Interface)
/// does, in this process or in another one. There, [`to_parts`](Self::to_parts)
/// takes it apart for a Unix socket, and here
/// [`from_parts`](Self::from_parts) puts it together.
#[derive(Clone, Debug)]
pub struct QueueAccess {
    facts: Facts,
    /// For `AF_XDP` the steering program's table of sockets, and the namespace
    /// if it is not the caller's; for a tap device one for each queue.
    descriptors: Vec<Arc<OwnedFd>>,
}

/// What is known of an interface, without descriptors.
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

/// How queues are reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    Xdp {
        interface: String,
        generic: bool,
        partial_checksums: bool,
        offload: Offload,
    },
    Tap {
        name: String,
    },
}

impl QueueAccess {
    pub(super) fn new(facts: Facts, descriptors: Vec<Arc<OwnedFd>>) -> Self {
        Self { facts, descriptors }
    }

    /// Says that an `AF_XDP` interface is in `namespace`.
    pub(super) fn set_namespace(&mut self, namespace: &Namespace) {
        self.descriptors.push(namespace.handle());
    }

    pub(super) fn add_line(&mut self, name: &str, value: String) {
        self.facts.summary.push((name.to_owned(), value));
    }

    /// Says, before all else, what was made.
    pub(super) fn set_device_line(&mut self, value: String) {
        self.facts.summary.insert(0, ("device".to_owned(), value));
    }

    /// The facts as text, and the descriptors that belong to them.
    ///
    /// # Errors
    /// When the facts cannot be written down, which is a bug.
    pub fn to_parts(&self) -> io::Result<(String, Vec<BorrowedFd<'_>>)> {
        let facts = serde_json::to_string(&self.facts)?;
        let descriptors = self.descriptors.iter().map(|fd| fd.as_fd()).collect();
        Ok((facts, descriptors))
    }

    /// Puts together what [`to_parts`](Self::to_parts) took apart, with the
    /// descriptors as they arrived in this process.
    ///
    /// # Errors
    /// When the parts do not belong together.
    pub fn from_parts(facts: &str, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let facts: Facts = serde_json::from_str(facts)?;
        let fits = match &facts.kind {
            Kind::Xdp { .. } => matches!(descriptors.len(), 1 | 2),
            Kind::Tap { .. } => descriptors.len() == facts.queues as usize,
        };
        if !fits {
            return Err(io::Error::other(
                "descriptors and facts do not fit together",
            ));
        }
        let descriptors = descriptors.into_iter().map(Arc::new).collect();
        Ok(Self { facts, descriptors })
    }

    /// The interface's name, in the network namespace where it is.
    pub fn name(&self) -> &str {
        match &self.facts.kind {
            Kind::Xdp { interface, .. } => interface,
            Kind::Tap { name } => name,
        }
    }

    /// The Ethernet address that the server has.
    pub fn mac(&self) -> [u8; 6] {
        self.facts.mac
    }

    /// The addresses that are served, and their networks.
    ///
    /// On a device `auto` or `tap` this host is the client. In shared mode a
    /// client is on another host: what a host sends to itself never comes by
    /// its interface.
    pub fn addresses(&self) -> &[AddressPrefix] {
        &self.facts.addresses
    }

    /// Own mode: ARP, neighbour discovery and ICMP echo for the addresses are
    /// the server's to answer. In shared mode the kernel does.
    pub fn is_own(&self) -> bool {
        self.facts.own
    }

    /// The largest IP packet, in bytes.
    pub fn mtu(&self) -> usize {
        self.facts.mtu
    }

    /// Queues to serve, numbered from 0; each needs a worker.
    pub fn queues(&self) -> u32 {
        self.facts.queues
    }

    /// VLANs whose frames are served beside untagged ones.
    pub fn vlans(&self) -> &[u16] {
        &self.facts.vlans
    }

    /// What was really made, for people: pairs of a name and a value. What
    /// each queue does is in its port's summary.
    pub fn summary(&self) -> &[(String, String)] {
        &self.facts.summary
    }

    /// What will happen to the interface, for whoever logs it. Open it while the
    /// thread may still enter the interface's network namespace.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn monitor(&self) -> io::Result<Monitor> {
        match self.namespace() {
            Some(namespace) => namespace.run(|| Monitor::open(self.name()))?,
            None => Monitor::open(self.name()),
        }
    }

    /// Where the interface is, if not in the caller's namespace.
    fn namespace(&self) -> Option<Namespace> {
        match &self.facts.kind {
            Kind::Xdp { .. } => self.descriptors.get(1).cloned().map(Namespace::from_handle),
            Kind::Tap { .. } => None,
        }
    }

    /// Queue `index`, for the thread that will serve it.
    ///
    /// # Panics
    /// When `index` is not below [`queues`](Self::queues).
    pub fn queue(&self, index: u32) -> QueueSource {
        let queues = self.queues();
        assert!(index < queues, "queue {index} of {queues}");
        let way = match &self.facts.kind {
            Kind::Xdp {
                interface,
                generic,
                partial_checksums,
                offload,
            } => Way::Xdp {
                interface: interface.clone(),
                queue: index,
                xsks: Arc::clone(&self.descriptors[0]),
                namespace: self.namespace(),
                generic: *generic,
                partial_checksums: *partial_checksums,
                offload: *offload,
            },
            Kind::Tap { name } => Way::Tap {
                name: name.clone(),
                file: Arc::clone(&self.descriptors[index as usize]),
            },
        };
        QueueSource {
            way,
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
    fn parts_are_put_together_again() {
        let sent = tap(2);
        let (facts, descriptors) = sent.to_parts().unwrap();
        let descriptors = descriptors
            .iter()
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let come = QueueAccess::from_parts(&facts, descriptors.collect()).unwrap();
        assert_eq!(format!("{:?}", come.facts), format!("{:?}", sent.facts));
        assert!(matches!(come.queue(1).way, Way::Tap { .. }));
    }

    #[test]
    fn missing_descriptors_are_noticed() {
        let xdp = || Kind::Xdp {
            interface: "e0".into(),
            generic: false,
            partial_checksums: false,
            offload: Offload::Auto,
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
            let come = (0..descriptors).map(|_| null()).collect();
            let outcome = QueueAccess::from_parts(&facts, come);
            assert_eq!(outcome.is_ok(), fits, "{descriptors} for {:?}", sent.facts);
        }
        assert!(QueueAccess::from_parts("{}", vec![]).is_err());
    }
}
