//! A queue of an interface, to be opened by the thread that serves it.

use super::netmap_kind::NetmapQueue;
use super::system;
use super::{AnyPort, DeviceError, MemoryPlan};
use crate::port::Wait;

/// A queue that has not been opened yet. It can be sent to the thread that will serve it.
pub struct QueueSource {
    pub(super) backend: Backend,
    pub(super) mtu: usize,
    pub(super) wait: Wait,
    pub(super) waits_for_return: bool,
}

/// What is needed to open a queue, for each kind of device.
pub(super) enum Backend {
    /// A ring pair of a netmap port.
    Netmap(NetmapQueue),
    /// A kind of device that only this operating system has.
    System(system::Backend),
}

impl QueueSource {
    /// Makes the port outlive its interface, if [`QueueAccess::may_return`](super::QueueAccess). After
    /// the interface is removed, the port loses what it is given to send, and receives nothing. It
    /// continues with [`Port::attach`](crate::Port::attach). Without this call, it reports an error.
    #[must_use]
    pub fn wait_for_return(self) -> Self {
        Self {
            waits_for_return: true,
            ..self
        }
    }

    /// Opens the queue, and returns a port that receives its packets.
    ///
    /// Call this method in the thread that will serve the queue. If device `auto` is a veth pair,
    /// the thread permanently enters the private network namespace of the server's end.
    ///
    /// # Errors
    /// A [`DeviceError`], for example if another program uses the queue.
    pub fn open(self, memory: MemoryPlan) -> Result<AnyPort, DeviceError> {
        match self.backend {
            Backend::Netmap(queue) => queue.open(self.mtu, self.wait, memory),
            Backend::System(backend) => {
                backend.open(self.mtu, self.wait, memory, self.waits_for_return)
            }
        }
    }
}
