//! The rings of the host's stack, through which the kernel gets the packets that are not the
//! server's, and sends its own.

use std::io;

use super::kernel::Kernel;
use super::pair::Pair;
use crate::frame::{Frame, Pool};
use crate::steering::Classifier;

/// Number of receives after which the host's ring is looked at, even while the network is busy.
const RECEIVES_UNTIL_LOOK: u32 = 16;
/// Maximum number of packets of the kernel that are passed on at a time, so that they do not delay
/// the server's.
const MAX_RELAYED: u32 = 64;

/// The host's rings, and the rules for what goes there.
pub(super) struct Host<K> {
    rings: Pair<K>,
    classifier: Classifier,
    receives: u32,
    /// Number of packets for the kernel that found its ring full.
    lost: u64,
}

impl<K: Kernel> Host<K> {
    pub(super) fn new(rings: Pair<K>, classifier: Classifier) -> Self {
        Self {
            rings,
            classifier,
            receives: 0,
            lost: 0,
        }
    }

    pub(super) fn rings(&self) -> &Pair<K> {
        &self.rings
    }

    pub(super) fn rings_mut(&mut self) -> &mut Pair<K> {
        &mut self.rings
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns a received frame if it is the server's. Queues any other frame for the kernel.
    #[inline(always)]
    pub(super) fn keep(&mut self, frame: Frame, pool: &Pool) -> Option<Frame> {
        if self.classifier.takes(&frame) {
            return Some(frame);
        }
        self.pass_up(frame, pool);
        None
    }

    #[cold]
    fn pass_up(&mut self, frame: Frame, pool: &Pool) {
        if !self.rings.has_room() {
            // The kernel takes all packets at once, so this empties the ring unless it is gone.
            // Then the next flush reports that.
            let _ = self.rings.sync_tx(pool);
        }
        if !self.rings.has_room() {
            if self.lost == 0 {
                tracing::warn!(
                    target: "nmio::netmap",
                    "the kernel does not empty its ring, so packets that are not the server's are \
                     dropped; `lost before the RX ring` counts them"
                );
            }
            self.lost += 1;
            return;
        }
        self.rings.push(frame, pool);
    }

    /// Queues packets of the kernel for the network. `idle` says whether the network was found
    /// quiet.
    #[inline]
    pub(super) fn pass_down(
        &mut self,
        network: &mut Pair<K>,
        pool: &Pool,
        idle: bool,
    ) -> io::Result<()> {
        self.receives += 1;
        let mut available = self.rings.available()?;
        if available == 0 && (idle || self.receives >= RECEIVES_UNTIL_LOOK) {
            self.receives = 0;
            self.rings.sync_rx()?;
            available = self.rings.available()?;
        }
        if available > 0 {
            self.relay(network, pool, available.min(MAX_RELAYED));
        }
        Ok(())
    }

    /// Packets that find the network's ring full stay in the host's ring, so that the kernel waits.
    #[cold]
    fn relay(&mut self, network: &mut Pair<K>, pool: &Pool, packets: u32) {
        for _ in 0..packets {
            // Each received frame needs a free one in its place.
            if !network.has_room() || pool.available() == 0 {
                break;
            }
            if let Some(frame) = self.rings.receive(pool) {
                network.push(frame, pool);
            }
        }
        self.rings.publish_rx();
    }
}
