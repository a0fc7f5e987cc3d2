//! The [`Port`] trait: one RX/TX queue pair, owned by one thread.

use std::fmt;
use std::io;
use std::time::Duration;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};

use crate::device::{NewQueue, PacketMemory};
use crate::frame::{Frame, IdleResident, Pool};
use crate::mailbox::Bell;
use crate::super_segment::SuperSegment;

/// Maximum number of frames that one call of [`Port::receive`] returns.
pub const MAX_BATCH: usize = 1024;

/// Number of frames that each port has for a batch. A
/// [`MemoryPlan`](crate::device::MemoryPlan) adds those of larger batches.
pub(crate) const USUAL_BATCH: u32 = 256;

/// The frames returned by one call of [`Port::receive`], oldest first.
pub type Batch = ArrayVec<Frame, MAX_BATCH>;

/// Capabilities of a port. The layers above adapt to these instead of to the kind of port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Maximum length of an IP packet, in bytes (the link's MTU).
    pub mtu: usize,
    /// Whether the device reads and writes the pool's memory directly.
    pub zero_copy: bool,
    /// Whether to accept received TCP and UDP packets whose checksum field holds only the sum of
    /// the pseudo-header. Off by default: if it is on, about one corrupted packet in 65,536 is
    /// accepted.
    pub partial_checksums: bool,
    /// Maximum IP packet length, in bytes, of a super-segment over IPv4 that [`Port::send_super`]
    /// accepts. 0: super-segments are not supported. Over IPv6, the limit is the smaller of this
    /// value and [`MAX_OVER_V6`](crate::super_segment::MAX_OVER_V6).
    pub segmentation: usize,
    /// Minimum length, in bytes, of the IP packets that a receiver of super-segments must accept.
    /// With 0, the device cuts super-segments by their `segment_len`, or the receivers take them whole.
    ///
    /// A VALE switch cuts super-segments into packets of this length, whatever
    /// [`segment_len`](crate::SuperSegment::segment_len) says. So do not send super-segments to a
    /// peer, or over a path, that accepts only shorter packets.
    pub min_segment: usize,
    /// Minimum number of segments from which a super-segment costs less than its segments as single
    /// frames. 0 or 1: every super-segment does.
    pub min_run: usize,
    /// Number of resident packets that the port's memory can hold.
    pub resident_frames: u32,
}

/// Why a packet was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no room for the packet. Retry in a later pass of the event loop, or drop the
    /// packet.
    RingFull,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RingFull => "the TX ring is full",
        })
    }
}

impl std::error::Error for SendError {}

/// Histogram of batch sizes. Each class is twice as wide as the one before: 1 frame, 2 to 3, 4 to
/// 7, and so on. The last class counts all batches of [`MAX_BATCH`] frames or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSizes([u64; Self::CLASSES]);

impl BatchSizes {
    /// Number of classes of the histogram.
    pub const CLASSES: usize = MAX_BATCH.ilog2() as usize + 1;

    /// Counts a batch of `frames` frames. Empty batches are not counted.
    #[inline(always)]
    pub fn count(&mut self, frames: usize) {
        if let Some(class) = frames.checked_ilog2() {
            self.0[(class as usize).min(Self::CLASSES - 1)] += 1;
        }
    }

    /// Returns the number of batches in each class, starting with the smallest batches.
    pub fn classes(&self) -> &[u64; Self::CLASSES] {
        &self.0
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

/// Lists the sizes and the count of each non-empty class, for example `1: 12, 2-3: 4, 256: 1`.
impl fmt::Display for BatchSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (class, batches) in self.0.iter().enumerate().filter(|(_, n)| **n > 0) {
            let low = 1 << class;
            if class == 0 || class == Self::CLASSES - 1 {
                write!(f, "{separator}{low}: {batches}")?;
            } else {
                write!(f, "{separator}{low}-{}: {batches}", 2 * low - 1)?;
            }
            separator = ", ";
        }
        Ok(())
    }
}

/// Counters of a port since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    // The two counts of sent packets are not adjacent. Otherwise the compiler adds to both with one
    // vector, which takes four instructions more for each packet.
    /// Number of frames received.
    pub rx_frames: u64,
    /// Number of frames queued for sending. Each segment of a super-segment counts as a frame.
    pub tx_frames: u64,
    /// Number of bytes received, including link headers.
    pub rx_bytes: u64,
    /// Number of bytes queued for sending, including link headers.
    pub tx_bytes: u64,
    /// Number of super-segments queued for sending.
    pub tx_supers: u64,
    /// Number of packets that were not queued because there was no room. A tap port also counts
    /// packets here that the kernel did not accept.
    pub tx_ring_full: u64,
    /// Number of incoming frames that were lost before the port received them, as far as the kernel
    /// reports such losses.
    pub rx_lost: u64,
    /// Number of times that the driver dropped a sent frame and the port queued the frame again.
    pub tx_retries: u64,
    /// Number of sent frames that are lost because the driver dropped them or never returned them.
    /// The kernel does not report every drop. If the kernel cuts super-segments for a device without a
    /// queueing discipline, dropped packets of other programs count too.
    pub tx_lost: u64,
    /// Number of sent frames that are lost because the kernel refused their packet for good. For
    /// example, a firewall's rule rejects a super-segment.
    pub tx_refused: u64,
    /// Number of packets and descriptors that are wrong, by the port's or the kernel's judgement. For
    /// example, a packet was too short, or the kernel returned a frame that it did not own.
    pub bad_descriptors: u64,
    /// Number of system calls that send packets.
    pub tx_wakeups: u64,
    /// Number of system calls that wait, poll the device, or wake the kernel to receive.
    pub waits: u64,
    /// Histogram of the sizes of received batches.
    pub rx_batches: BatchSizes,
    /// Histogram of the sizes of flushed batches.
    pub tx_batches: BatchSizes,
}

/// How full a port's packet memory and rings are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLevels {
    /// Number of frames in the pool for received packets and scratch frames.
    pub frames: u32,
    /// Number of these frames that are free.
    pub free: u32,
    /// Number of packets that are queued for sending, or sent and not yet returned by the kernel.
    /// With netmap, a packet in several slots counts once for each slot. 0 if the port has no TX
    /// ring.
    pub sending: u32,
    /// Number of frames that the kernel can receive into, or has received into and the port has not
    /// taken yet. If packets can span several chunks, chunks count instead of frames. 0 if the port
    /// has no such ring.
    pub receiving: u32,
}

impl PortLevels {
    /// Returns the levels of a port without rings, whose packet memory is `pool`.
    pub fn of_pool(pool: &Pool) -> Self {
        Self {
            frames: pool.layout().io_frames,
            free: pool.available(),
            ..Self::default()
        }
    }
}

/// How an idle loop waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Like `Block`, but first poll the RX ring for at most 8 µs, if the port has one. The loop does so
    /// as long as most of these spins find a packet.
    #[default]
    Adaptive,
    /// Sleep in the kernel until a packet or a message arrives, or a timer expires.
    ///
    /// While the handler [is flooded](crate::Handler::is_flooded), the loop yields the CPU instead
    /// of sleeping. Packets accumulate after four wake-ups in a row without a sent packet. A loop on a port
    /// with rings then first sleeps for 50 to 100 µs.
    Block,
    /// Poll the port without pauses.
    Spin,
    /// Make a system call in which the kernel polls the device. If the driver does not support
    /// this, sleep in the kernel instead.
    BusyPoll,
}

impl Wait {
    /// Describes for people what an idle loop does. `has_rings` is whether packets accumulate in a ring.
    pub(crate) fn describe(self, has_rings: bool) -> &'static str {
        match (self, has_rings) {
            (Self::Adaptive, true) => {
                "adaptive: an idle worker polls its ring for up to 8 µs while that pays, and then sleeps"
            }
            (Self::Adaptive, false) => {
                "adaptive: an idle worker sleeps at once, because this device has no ring to poll"
            }
            (Self::Block, _) => "block: an idle worker sleeps at once",
            (Self::Spin, _) => "spin: an idle worker looks for packets all the time",
            (Self::BusyPoll, _) => "busy-poll: an idle worker lets the kernel poll, if it can",
        }
    }
}

/// Properties of a port that determine how an idle loop waits. The default describes a port that
/// can only sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortHints {
    /// Whether the port has received frames that a [`wait`](Port::wait) would not notice.
    pub ready: bool,
    /// Whether [`Port::poll_device`] makes the kernel poll the device.
    pub can_poll: bool,
    /// Whether packets accumulate in a ring while the loop does not call the port. Only then does
    /// the loop let packets accumulate, or poll the ring before it sleeps.
    pub gathers: bool,
    /// Number of frames queued for sending since the port was opened. Always 0 if `gathers` is not
    /// set.
    pub sent: u64,
}

/// One RX/TX queue pair, owned by one thread.
///
/// In the paper's Table 1, `netmap_init()` is a port's constructor and `netmap_output()` is `send`
/// (turnaround and memcopy) or `send_resident` (zero copy).
///
/// # Calling contract
/// [`receive`](Port::receive) a batch, and handle each frame to completion. Call
/// [`send`](Port::send) and [`send_resident`](Port::send_resident) as often as needed. Then call
/// [`flush`](Port::flush), which hands the packets to the kernel.
///
/// Call [`wait`](Port::wait) or [`poll_device`](Port::poll_device) only after an empty `receive`
/// and a `flush`. If `flush` returned `false`, keep the wait short, so that the next `flush`
/// follows soon. The event loop [`run`](crate::run) observes this contract.
///
/// A frame or resident can be sent only through the port whose [`pool`](Port::pool) it belongs to.
/// To send a packet through a different port, copy the packet to a frame of that port.
///
/// # Panics
/// `send` and `send_resident` panic if the packet belongs to another port's pool.
pub trait Port {
    /// Returns the port's capabilities. They stay constant, except that
    /// [`segmentation`](Capabilities::segmentation) may decrease.
    fn capabilities(&self) -> Capabilities;

    /// Returns the port's memory, for scratch frames and residents.
    fn pool(&self) -> &Pool;

    /// Moves at most `limit` received frames into the empty `batch`, and reclaims sent
    /// frames.
    ///
    /// # Errors
    /// If the port is gone because its interface was removed. The server must then stop.
    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()>;

    /// Queues a frame for sending. On failure the frame is dropped, which returns it to the pool.
    ///
    /// # Errors
    /// [`SendError::RingFull`] if there is no room.
    fn send(&mut self, frame: Frame) -> Result<(), SendError>;

    /// Queues a resident packet for sending, normally without copying it.
    ///
    /// # Errors
    /// [`SendError::RingFull`] if there is no room.
    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError>;

    /// Queues a run of segments as one packet. Frames, residents and super-segments are sent in the
    /// order in which they were queued.
    ///
    /// A netmap port drops runs of UDP datagrams, and counts them as
    /// [`bad_descriptors`](PortCounters::bad_descriptors), because VALE switches cannot cut them.
    ///
    /// # Errors
    /// [`SendError::RingFull`] if there is no room.
    ///
    /// # Panics
    /// If the port accepts no super-segments (see [`Capabilities::segmentation`]).
    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError>;

    /// Returns the number of frames that can be queued now: normally the number of free slots in
    /// the TX ring. This number is the only source of backpressure.
    fn room(&mut self) -> usize;

    /// Hands queued packets to the kernel. Returns `false` if some remain queued for a later flush.
    ///
    /// # Errors
    /// If the port is gone.
    fn flush(&mut self) -> io::Result<bool>;

    /// Returns the properties that determine how an idle loop waits.
    fn hints(&self) -> PortHints;

    /// Sleeps until a packet arrives or `bell` is rung, for at most `timeout`. A port whose queue is full
    /// need not wake for packets.
    ///
    /// # Errors
    /// If the port is gone. An interrupted wait is not an error.
    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()>;

    /// Makes the kernel poll the device for at most 100 µs, or until a packet arrives. The poll also
    /// ends, perhaps only after 20 µs, when `timeout` has passed or `bell` is rung.
    ///
    /// Call this method only if [`PortHints::can_poll`] is set. The default implementation does
    /// nothing.
    ///
    /// # Errors
    /// If the port is gone.
    fn poll_device(&mut self, _timeout: Duration, _bell: Option<&Bell>) -> io::Result<()> {
        Ok(())
    }

    /// Continues on a queue of the interface that replaces the removed one. The packets in flight are
    /// lost. The capabilities stay as they are. If the new interface has been removed as well, the port
    /// keeps waiting.
    ///
    /// Call this method on a port of [`wait_for_return`](crate::device::QueueSource::wait_for_return)
    /// whose interface was removed. Other ports fail.
    ///
    /// # Errors
    /// If the port cannot use the queue. It then still waits for one.
    fn attach(&mut self, _queue: NewQueue) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the packet memory that the port shares with the kernel, so that another process can
    /// register it for the queue that [`attach`](Self::attach) gets. Returns `None` if the port has no
    /// such memory.
    fn shared_memory(&self) -> Option<PacketMemory> {
        None
    }

    /// Returns the port's counters.
    fn counters(&self) -> PortCounters;

    /// Returns how full the port's packet memory and rings are.
    fn levels(&self) -> PortLevels;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_sizes_are_counted_in_powers_of_two() {
        let mut sizes = BatchSizes::default();
        assert_eq!(sizes.to_string(), "");
        for frames in [0, 1, 1, 2, 3, 4, 511, 512, 1023, 1024, 4_096] {
            sizes.count(frames);
        }
        assert_eq!(sizes.classes(), &[2, 2, 1, 0, 0, 0, 0, 0, 1, 2, 2]);
        assert_eq!(
            sizes.to_string(),
            "1: 2, 2-3: 2, 4-7: 1, 256-511: 1, 512-1023: 2, 1024: 2"
        );
        let mut sum = sizes;
        sum.merge(&sizes);
        assert_eq!(sum.classes(), &[4, 4, 2, 0, 0, 0, 0, 0, 2, 4, 4]);
    }
}
