//! What an interface keeps open or attached while it is served.

use super::followed::Followed;
use super::lost_offloads::LostOffloads;
use super::napi::PolledQueues;
use super::network::HeldSocket;
use super::pair::VethPair;
use super::pfifo::Pfifo;
use super::replaced_queue::ReplacedQueue;
use crate::device::{CurrentAddresses, DeviceError};
use crate::xdp::steer::Steering;

/// What an interface keeps open or attached. Dropping this value undoes it.
#[derive(Default)]
pub(in crate::device) struct Held {
    // Fields drop in this order. First the interrupts are restored and the steering program is
    // detached, and the offloads that it does not allow are turned on. Then the ports and multicast
    // groups are released. Last, the packet queue and the veth pair are removed, or the packet queue is
    // restored.
    pub(super) polled: Option<PolledQueues>,
    pub(super) steering: Option<Steering>,
    pub(super) offloads: Option<LostOffloads>,
    pub(super) sockets: Vec<HeldSocket>,
    pub(super) pfifo: Option<Pfifo>,
    pub(super) wire: Option<VethPair>,
    pub(super) replaced: Option<ReplacedQueue>,
    /// How to follow the interface's addresses. `None` if nobody else changes them.
    pub(super) followed: Option<Followed>,
}

impl Held {
    /// Returns true if dropping this value needs `CAP_NET_ADMIN`. It is needed to remove a veth
    /// pair, for packet queues, for offloads, and for the interrupts of polled queues.
    pub(in crate::device) fn needs_removal(&self) -> bool {
        let queue = self.pfifo.is_some() || self.replaced.is_some();
        self.wire.is_some() || queue || self.offloads.is_some() || self.polled.is_some()
    }

    /// Serves the addresses that the interface has now, and no others. Returns `None` if the addresses
    /// of this device cannot change.
    pub(in crate::device) fn follow(&mut self) -> Option<Result<CurrentAddresses, DeviceError>> {
        let (followed, steering) = (self.followed.as_ref()?, self.steering.as_mut()?);
        Some(followed.follow(steering, &mut self.sockets))
    }
}
