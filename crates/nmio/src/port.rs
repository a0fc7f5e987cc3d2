//! The [`Port`] trait: one RX/TX queue pair, owned by one thread.

use std::fmt;
use std::io;
use std::time::Duration;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};

use crate::frame::{Frame, Pool, Resident};
use crate::mailbox::Bell;
use crate::super_segment::SuperSegment;

/// The most frames that one call of [`Port::receive`] gives.
pub const MAX_BATCH: usize = 256;

/// Frames received together, oldest first.
pub type Batch = ArrayVec<Frame, MAX_BATCH>;

/// What a port can do. The layers above adapt to it without knowing which
/// port it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The largest IP packet, in bytes (the link's MTU).
    pub mtu: usize,
    /// Frames are sent from and received into the pool's memory by the
    /// device itself.
    pub zero_copy: bool,
    /// A received TCP or UDP checksum field that holds only the sum of
    /// the pseudo-header is accepted as right. Off by default: it lets about
    /// one corrupted packet in 65,536 pass.
    pub partial_checksums: bool,
    /// The largest super-segment over IPv4, as bytes of its IP packet, that
    /// [`Port::send_super`] takes; 0 when it takes none. Over IPv6 it takes
    /// no longer ones than [`MAX_OVER_V6`](crate::super_segment::MAX_OVER_V6).
    pub segmentation: usize,
    /// Packets that may live in the port's memory for good.
    pub resident_frames: u32,
}

/// Why a packet was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The TX ring is full. Nothing is lost: the next ACK, timer or
    /// completion tries again.
    RingFull,
    /// This resident packet is in the ring already; send another copy.
    InFlight,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RingFull => "the TX ring is full",
            Self::InFlight => "the packet is in the TX ring already",
        })
    }
}

impl std::error::Error for SendError {}

/// Batches by their size, in classes that double: of 1 frame, of 2 to 3, of 4
/// to 7, and so on; the last has all of [`MAX_BATCH`] frames and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSizes([u64; Self::CLASSES]);

impl BatchSizes {
    /// How many classes there are.
    pub const CLASSES: usize = MAX_BATCH.ilog2() as usize + 1;

    /// Counts a batch. One without frames is none.
    #[inline(always)]
    pub fn count(&mut self, frames: usize) {
        if let Some(class) = frames.checked_ilog2() {
            self.0[(class as usize).min(Self::CLASSES - 1)] += 1;
        }
    }

    /// Batches in each class, those of single frames first.
    pub fn classes(&self) -> &[u64; Self::CLASSES] {
        &self.0
    }

    /// Adds what another port has counted.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

/// As `1: 12, 2-3: 4, 256: 1`: the sizes of a class and the batches in it,
/// without the classes that did not occur.
impl fmt::Display for BatchSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (class, batches) in self.0.iter().enumerate().filter(|(_, n)| **n > 0) {
            let least = 1 << class;
            if class == 0 || class == Self::CLASSES - 1 {
                write!(f, "{between}{least}: {batches}")?;
            } else {
                write!(f, "{between}{least}-{}: {batches}", 2 * least - 1)?;
            }
            between = ", ";
        }
        Ok(())
    }
}

/// What a port has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received, link headers included.
    pub rx_bytes: u64,
    /// Frames queued for sending.
    pub tx_frames: u64,
    /// Bytes queued for sending, link headers included.
    pub tx_bytes: u64,
    /// Super-segments queued for sending. Each counts as the frames that it is
    /// cut into, too.
    pub tx_supers: u64,
    /// Frames that could not be queued because the TX ring was full.
    pub tx_ring_full: u64,
    /// Frames that arrived and were lost before the port could take them,
    /// as far as the kernel tells.
    pub rx_lost: u64,
    /// Frames sent that the driver never gave back; the port took them back.
    pub tx_lost: u64,
    /// Descriptors that the kernel gave or refused against the rules.
    pub bad_descriptors: u64,
    /// System calls made for sending.
    pub tx_wakeups: u64,
    /// System calls made for waiting.
    pub waits: u64,
    /// Frames that were received together.
    pub rx_batches: BatchSizes,
    /// Frames that one flush has handed over.
    pub tx_batches: BatchSizes,
}

/// How a loop waits when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Sleep in the kernel until a packet comes or a timer is due. While a
    /// handler [is flooded](crate::Handler::is_flooded) the loop only yields.
    /// Where several packets in a row led to nothing being sent, a loop on
    /// `AF_XDP` first lets more gather, for some 50 to 100 µs.
    #[default]
    Block,
    /// Never wait: look at the ring again at once.
    Spin,
    /// Let the kernel poll the device inside the waiting call, where the
    /// driver supports it.
    BusyPoll,
}

/// Facts about a port that decide how a loop rests. The default is a port that
/// can only be slept on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortHints {
    /// Frames are at hand that end no [`wait`](Port::wait).
    pub ready: bool,
    /// [`Port::poll_device`] makes the kernel poll the device.
    pub can_poll: bool,
    /// Packets gather in a ring while the loop sleeps outside of the port.
    pub gathers: bool,
    /// Frames queued for sending since the port was opened; 0 where nothing
    /// gathers.
    pub sent: u64,
}

/// One RX/TX queue pair, owned by one thread.
///
/// # Calling contract
/// [`receive`](Port::receive) a batch, handle each frame to completion while
/// calling [`send`](Port::send) and [`send_resident`](Port::send_resident) as
/// often as you like, then [`flush`](Port::flush): what was sent is on its
/// way only after that. Call [`wait`](Port::wait) or
/// [`poll_device`](Port::poll_device) only when `receive` gave nothing and after a
/// `flush`, for a short time when that gave `false`.
/// [`run`](crate::run) does all this.
///
/// Frames and residents are sent through the port whose [`pool`](Port::pool)
/// they are of. Elsewhere they would name other bytes: what comes from
/// another port is copied to a frame of this one.
///
/// # Panics
/// `send` and `send_resident`, when they would queue a packet of another
/// port's pool.
///
/// In the paper's Table 1, `netmap_init()` is a port's constructor and
/// `netmap_output()` is `send` (turnaround and memcopy) and `send_resident`
/// (zero copy).
pub trait Port {
    /// What the port can do; constant over its life, but for
    /// [`segmentation`](Capabilities::segmentation), which may fall.
    fn capabilities(&self) -> Capabilities;

    /// The port's memory, for scratch frames and residents.
    fn pool(&self) -> &Pool;

    /// Takes received frames, at most `limit`, into the empty `batch`, and
    /// takes back what has been sent.
    ///
    /// # Errors
    /// When the port is gone (interface removed): serving ends.
    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()>;

    /// Queues a frame. On failure the frame is dropped, which returns it to
    /// the pool.
    ///
    /// # Errors
    /// [`SendError::RingFull`].
    fn send(&mut self, frame: Frame) -> Result<(), SendError>;

    /// Queues a resident packet in place.
    ///
    /// # Errors
    /// [`SendError::RingFull`], [`SendError::InFlight`].
    fn send_resident(&mut self, packet: &mut Resident) -> Result<(), SendError>;

    /// Queues a run of segments as one packet. It stays in order with frames
    /// and residents: what was queued before leaves before.
    ///
    /// # Errors
    /// [`SendError::RingFull`].
    ///
    /// # Panics
    /// When the port takes none, see [`Capabilities::segmentation`].
    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError>;

    /// Free slots in the TX ring: how many sends will succeed now. This is
    /// all the back-pressure there is, as the ring is the only output queue.
    fn room(&mut self) -> usize;

    /// Hands queued frames to the kernel. `true` when all are on their way,
    /// `false` when some are still queued and a later flush must go on.
    ///
    /// # Errors
    /// When the port is gone.
    fn flush(&mut self) -> io::Result<bool>;

    /// What a loop must know before it rests.
    fn hints(&self) -> PortHints;

    /// Sleeps until a packet comes or `bell` is rung, at most for `timeout`.
    ///
    /// # Errors
    /// When the port is gone. An interrupted wait is no error.
    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()>;

    /// Has the kernel poll the device for packets, for some microseconds. Only
    /// where [`PortHints::can_poll`] says so; by default nothing happens.
    ///
    /// # Errors
    /// When the port is gone.
    fn poll_device(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// What the port has counted.
    fn counters(&self) -> PortCounters;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fall_into_classes_that_double() {
        let mut sizes = BatchSizes::default();
        assert_eq!(sizes.to_string(), "");
        for frames in [0, 1, 1, 2, 3, 4, 127, 128, 255, 256, 4_096] {
            sizes.count(frames);
        }
        assert_eq!(sizes.classes(), &[2, 2, 1, 0, 0, 0, 1, 2, 2]);
        assert_eq!(
            sizes.to_string(),
            "1: 2, 2-3: 2, 4-7: 1, 64-127: 1, 128-255: 2, 256: 2"
        );
        let mut sum = sizes;
        sum.merge(&sizes);
        assert_eq!(sum.classes(), &[4, 4, 2, 0, 0, 0, 2, 4, 4]);
    }
}
