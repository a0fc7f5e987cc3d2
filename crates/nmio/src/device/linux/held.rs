//! What an interface keeps open or attached while it is served.

use std::os::fd::OwnedFd;

use super::napi::PolledQueues;
use super::pair::VethPair;
use super::pfifo::Pfifo;
use crate::xdp::steer::Steering;

/// What an `AF_XDP` interface keeps open or attached. Dropping this value undoes it.
pub(in crate::device) struct Held {
    // Fields drop in this order. First the interrupts are restored and the steering program is
    // detached. Then the ports and multicast groups are released. Last, the packet queue and the
    // veth pair are removed.
    pub(super) polled: Option<PolledQueues>,
    pub(super) _steering: Steering,
    pub(super) _sockets: Vec<OwnedFd>,
    pub(super) pfifo: Option<Pfifo>,
    pub(super) wire: Option<VethPair>,
}

impl Held {
    /// Returns true if dropping this value needs `CAP_NET_ADMIN`: to remove a veth pair or a packet
    /// queue, or to restore the interrupts of polled queues.
    pub(in crate::device) fn needs_removal(&self) -> bool {
        self.wire.is_some() || self.pfifo.is_some() || self.polled.is_some()
    }
}
