//! The kinds of device that only Linux has, and their queues.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::monitor::Monitor;
use super::namespace::Namespace;
use super::privileges;
use crate::device::{AnyPort, DeviceError, MemoryPlan, NewQueue, PacketMemory, XdpOptions};
use crate::port::Wait;
use crate::tap::{TapConfig, TapPort};
use crate::xdp::{self, XdpConfig, XdpPort};

/// The kind of an interface, with what is needed to open its queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::device) enum Kind {
    /// Descriptors: the interface's private network namespace if it has one, and the socket of each
    /// queue.
    Xdp {
        options: XdpOptions,
        has_namespace: bool,
        /// The interface's number.
        index: u32,
        /// The number of the NAPI instance of each queue; empty if unknown or not polled.
        napis: Vec<u32>,
    },
    /// Descriptors: one for each queue.
    Tap { name: String },
}

impl Kind {
    /// Returns true if a device of this kind with so many queues has so many descriptors.
    pub(in crate::device) fn fits(&self, descriptors: usize, queues: u32) -> bool {
        match self {
            Self::Xdp { .. } | Self::Tap { .. } => {
                descriptors == self.first_queue() + queues as usize
            }
        }
    }

    /// Returns true if the kernel steers packets by addresses that can change.
    pub(in crate::device) fn can_change_addresses(&self) -> bool {
        matches!(self, Self::Xdp { .. })
    }

    /// Returns true if the server uses the MAC address of the interface.
    pub(in crate::device) fn shares_mac(&self) -> bool {
        matches!(self, Self::Xdp { .. })
    }

    /// Returns true if another program makes the interface, and may do so again.
    pub(in crate::device) fn may_return(&self) -> bool {
        matches!(self, Self::Xdp { has_namespace, .. } if !has_namespace)
    }

    /// Returns the memory of a resident packet, or why there should be none.
    pub(in crate::device) fn resident_len(&self, mtu: usize) -> Result<usize, &'static str> {
        match self {
            Self::Xdp { .. } if !privileges::can_lock_memory() => {
                Err("the limit on locked memory (ulimit -l) holds for packets")
            }
            Self::Xdp { .. } => Ok(xdp::frame_len(mtu)),
            Self::Tap { .. } => Err("a tap device then receives no super-segments"),
        }
    }

    /// Returns the interface's name in its network namespace.
    pub(in crate::device) fn name(&self) -> &str {
        match self {
            Self::Xdp { options, .. } => &options.interface,
            Self::Tap { name } => name,
        }
    }

    /// Opens a monitor of the interface, in the interface's network namespace.
    pub(in crate::device) fn monitor(&self, descriptors: &[Arc<OwnedFd>]) -> io::Result<Monitor> {
        match self.namespace(descriptors) {
            Some(namespace) => namespace.run(|| Monitor::open(self.name()))?,
            None => Monitor::open(self.name()),
        }
    }

    /// Returns the interface's private network namespace if it has one.
    fn namespace(&self, descriptors: &[Arc<OwnedFd>]) -> Option<Namespace> {
        match self {
            Self::Xdp { has_namespace, .. } => {
                let namespace = descriptors.first().filter(|_| *has_namespace);
                namespace.cloned().map(Namespace::from_handle)
            }
            Self::Tap { .. } => None,
        }
    }

    /// Returns the number of descriptors that precede those of the queues.
    pub(in crate::device) fn first_queue(&self) -> usize {
        match self {
            Self::Xdp { has_namespace, .. } => usize::from(*has_namespace),
            Self::Tap { .. } => 0,
        }
    }

    /// Returns queue `index` of an interface that has taken the place of a removed one. Returns `None`
    /// if a port of this kind cannot continue on another queue. The caller has checked that the queue
    /// exists, and that the descriptors [fit](Self::fits).
    pub(in crate::device) fn new_queue(
        &self,
        queue: u32,
        descriptors: &[Arc<OwnedFd>],
    ) -> Option<NewQueue> {
        match self {
            Self::Xdp { index, .. } if self.may_return() => Some(NewQueue {
                index: *index,
                socket: Arc::clone(&descriptors[self.first_queue() + queue as usize]),
            }),
            Self::Xdp { .. } | Self::Tap { .. } => None,
        }
    }

    /// Gives a queue the packet memory of a port in another process. The caller has checked that the queue
    /// exists, and that the descriptors [fit](Self::fits).
    pub(in crate::device) fn register_memory(
        &self,
        queue: u32,
        descriptors: &[Arc<OwnedFd>],
        memory: &PacketMemory,
    ) -> io::Result<()> {
        let socket = &descriptors[self.first_queue() + queue as usize];
        match self {
            Self::Xdp { .. } => xdp::register_memory(socket.as_fd(), memory),
            Self::Tap { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns queue `index`, wrapped with `wrap`. The caller has checked that the queue exists, and
    /// that the descriptors [fit](Self::fits).
    pub(in crate::device) fn queue<T>(
        &self,
        index: u32,
        descriptors: &[Arc<OwnedFd>],
        wrap: impl FnOnce(Backend) -> T,
    ) -> T {
        wrap(self.backend(index, descriptors))
    }

    fn backend(&self, index: u32, descriptors: &[Arc<OwnedFd>]) -> Backend {
        let descriptor = Arc::clone(&descriptors[self.first_queue() + index as usize]);
        match self {
            Self::Xdp {
                options,
                has_namespace: _,
                index: number,
                napis,
            } => Backend::Xdp {
                options: options.clone(),
                index: *number,
                queue: index,
                socket: descriptor,
                namespace: self.namespace(descriptors),
                napi: napis.get(index as usize).copied(),
            },
            Self::Tap { name } => Backend::Tap {
                name: name.clone(),
                file: descriptor,
            },
        }
    }
}

/// What is needed to open a queue.
pub(in crate::device) enum Backend {
    Xdp {
        options: XdpOptions,
        /// The interface's number.
        index: u32,
        queue: u32,
        socket: Arc<OwnedFd>,
        namespace: Option<Namespace>,
        /// Number of the queue's NAPI instance, if it is known and polled.
        napi: Option<u32>,
    },
    Tap {
        name: String,
        file: Arc<OwnedFd>,
    },
}

impl Backend {
    /// Opens the queue. The thread enters the interface's private network namespace if it has one.
    pub(in crate::device) fn open(
        self,
        mtu: usize,
        wait: Wait,
        memory: MemoryPlan,
        waits_for_return: bool,
    ) -> Result<AnyPort, DeviceError> {
        match self {
            Self::Xdp {
                options,
                index,
                queue,
                socket,
                namespace,
                napi,
            } => {
                if let Some(namespace) = namespace {
                    namespace
                        .enter()
                        .map_err(DeviceError::set_up("enter the private network namespace"))?;
                }
                let config = XdpConfig {
                    options,
                    index,
                    queue,
                    mtu,
                    napi,
                    wait,
                    memory,
                    socket,
                    waits_for_return,
                };
                XdpPort::open(config).map(AnyPort::Xdp)
            }
            Self::Tap { name, file } => {
                let config = TapConfig {
                    name,
                    mtu,
                    wait,
                    memory,
                };
                TapPort::new(file, config).map(AnyPort::Tap)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::device::access::{self, Facts, QueueAccess};
    use crate::device::queue;

    fn null() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    fn access(kind: Kind, descriptors: usize) -> QueueAccess {
        let facts = Facts {
            kind: access::Kind::System(kind),
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
        assert_eq!(received.to_parts().unwrap().0, facts);
        let queue = received.queue(1);
        assert!(matches!(
            queue.backend,
            queue::Backend::System(Backend::Tap { .. })
        ));
    }

    #[test]
    fn wrong_numbers_of_descriptors_are_refused() {
        let xdp = |has_namespace| Kind::Xdp {
            options: XdpOptions::new("e0"),
            has_namespace,
            index: 7,
            napis: vec![7, 8],
        };
        for (sent, descriptors, fits) in [
            (tap(2), 1, false),
            (tap(2), 3, false),
            (access(xdp(false), 2), 0, false),
            (access(xdp(false), 2), 1, false),
            (access(xdp(false), 2), 2, true),
            (access(xdp(false), 2), 3, false),
            (access(xdp(true), 3), 2, false),
            (access(xdp(true), 3), 3, true),
        ] {
            let (facts, _) = sent.to_parts().unwrap();
            let received = (0..descriptors).map(|_| null()).collect();
            let outcome = QueueAccess::from_parts(&facts, received);
            assert_eq!(outcome.is_ok(), fits, "{descriptors} for {facts}");
        }
        assert!(QueueAccess::from_parts("{}", vec![]).is_err());
    }
}
