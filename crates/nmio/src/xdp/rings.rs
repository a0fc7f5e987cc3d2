//! The four rings of one `AF_XDP` socket and their memory.
//!
//! ```text
//!   pool ── fill ring ──▶ kernel ── RX ring ──▶ Frame
//!   Frame ── TX ring ──▶ kernel ── completion ring ──▶ pool
//! ```
//!
//! Each descriptor from the kernel is checked against the pool's state table. Descriptors are moved
//! in batches, through arrays of fixed size.
#![allow(unsafe_code)]

use std::error::Error as _;
use std::io;
use std::mem;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use xsk_rs::config::{
    BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig, XdpFlags,
};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

use super::config::XdpConfig;
use super::fill_level::{FILL_RING, FillLevel};
use super::refusals::Refusals;
use super::retry::Retry;
use super::tx_slots::{Dropped, Slot, TxSlots};
use crate::device::{DeviceError, Needs, ZeroCopy};
use crate::frame::{Frame, Pool, Resident, Sending};
use crate::port::{Batch, MAX_BATCH};
use crate::sys;

/// Number of slots in the RX ring. It has room for all frames offered through the fill ring, so it
/// never overflows.
pub(super) const RX_RING: u32 = FILL_RING;
/// Number of slots in the TX ring.
pub(super) const TX_RING: u32 = 2048;
/// Maximum number of frames in flight: staged, in the TX ring, or not completed yet. The remaining
/// slots are spare, because a dropped frame takes another slot each time it is put back.
pub(super) const MAX_IN_FLIGHT: u32 = TX_RING - Refusals::MAX_TRIES.next_multiple_of(64);
/// Number of slots in the completion ring, which must hold all frames in flight.
const COMPLETION_RING: u32 = TX_RING;
/// Number of spare frames, for callers that hold more than one batch.
const RESERVE: u32 = 256;
/// Number of frames that the port itself needs.
const PORT_FRAMES: u32 = RX_RING + TX_RING + MAX_BATCH as u32 + RESERVE;
/// Maximum number of descriptors moved in one step into the fill or TX ring, or out of the
/// completion ring.
const MAX_MOVED: usize = 64;
/// Size in bytes of a chunk for small MTUs, for example 1,500 bytes.
const SMALL_CHUNK: u32 = 2048;
/// Size in bytes of a chunk for larger MTUs. The kernel allows at most a page.
const LARGE_CHUNK: u32 = 4096;
/// Size of the Ethernet header with one 802.1Q tag, in bytes.
const LINK_HEADER: usize = 18;

/// Whether the kernel copies packets between frames and the device.
#[derive(Debug)]
pub(super) enum Copying {
    /// The kernel does not copy packets (zero-copy).
    Never,
    /// The kernel copies packets, because generic mode always does.
    Generic,
    /// The kernel copies packets, because `zerocopy=off` was given.
    Requested,
    /// The kernel copies packets, because the driver refused zero-copy with this error.
    Refused(io::Error),
}

pub(super) struct Rings {
    pool: Pool,
    umem: Umem,
    /// The descriptor of each chunk. They are stored because only `Umem::new` can create
    /// descriptors.
    chunks: Box<[FrameDesc]>,
    chunk_shift: u32,
    tx: TxQueue,
    /// The TX ring's slots. `None` if drops are not [tracked](Self::track_drops).
    tx_slots: Option<TxSlots>,
    rx: RxQueue,
    fill: FillQueue,
    completion: CompQueue,
    received: Box<[FrameDesc; MAX_BATCH]>,
    completed: Box<[FrameDesc; MAX_MOVED]>,
    staged: ArrayVec<FrameDesc, MAX_MOVED>,
    /// Number of frames staged, in the TX ring, or sent but not completed.
    in_flight: u32,
    /// Number of frames offered to the kernel and not yet taken from the RX ring. At most
    /// `RX_RING`, so that the RX ring never overflows.
    offered: u32,
    fill_level: FillLevel,
    overdue_check: OverdueCheck,
    lost: u64,
    invalid: u64,
    copying: Copying,
}

impl Rings {
    /// Registers the memory and binds the socket to its queue. Unless the options say otherwise, uses
    /// zero-copy if the driver accepts it, and otherwise copy mode.
    pub(super) fn open(config: &XdpConfig<'_>) -> Result<Self, DeviceError> {
        let chunk = chunk_size(config.mtu);
        let umem_config = UmemConfig::builder()
            .frame_size(FrameSize::new(chunk).expect("chunks are large enough"))
            .fill_queue_size(ring_size(FILL_RING))
            .comp_queue_size(ring_size(COMPLETION_RING))
            .build()
            .expect("chunks are powers of two with room for data");
        let capacity = umem_config.mtu() as usize;
        let layout = config
            .memory
            .layout(chunk as usize, capacity, PORT_FRAMES)?;
        let frames = NonZeroU32::new(layout.frames()).expect("a port has frames of its own");
        sys::lift_memory_lock_limit();
        let (umem, chunks) = Umem::new(umem_config, frames, false).map_err(|error| {
            let source = os_error(error.source());
            if sys::is_errno(&source, libc::EPERM) {
                DeviceError::privileges("open an AF_XDP socket", Needs::Xdp, source)
            } else {
                let bytes = u64::from(frames.get()) * u64::from(chunk);
                DeviceError::memory(bytes, source)
            }
        })?;
        let base = data_of_first(&umem, &chunks);
        // SAFETY: chunk i's data starts at `base + i * chunk` (as its descriptor says, see
        // `Umem::new`) and has `mtu()` bytes. The provenance of `base` covers the whole mapping,
        // which the kernel has zeroed. The mapping lives as long as the handle passed here. `Rings`
        // hands frames to the kernel, and takes them back, only through the pool's state table.
        let pool = unsafe { Pool::from_raw(base, layout, Box::new(umem.clone())) };
        let ((tx, rx, fill, completion), copying) = bind(config, &umem)?;
        let mut rings = Self {
            pool,
            umem,
            chunks: chunks.into_boxed_slice(),
            chunk_shift: chunk.trailing_zeros(),
            tx,
            tx_slots: None,
            rx,
            fill,
            completion,
            received: Box::new([FrameDesc::default(); MAX_BATCH]),
            completed: Box::new([FrameDesc::default(); MAX_MOVED]),
            staged: ArrayVec::new(),
            in_flight: 0,
            offered: 0,
            fill_level: FillLevel::new(),
            overdue_check: OverdueCheck::default(),
            lost: 0,
            invalid: 0,
            copying,
        };
        let options = sys::option(rings.fd(), libc::SOL_XDP, sys::XDP_OPTIONS);
        if options.is_ok_and(|bits| bits & sys::XDP_OPTIONS_ZEROCOPY != 0) {
            rings.copying = Copying::Never;
        }
        rings.refill(0);
        Ok(rings)
    }

    /// In copy mode, prepares for frames that the driver drops. Requires a kernel that publishes
    /// its position in the TX ring at the end of each wakeup that has sent a frame.
    pub(super) fn track_drops(&mut self) -> Result<(), DeviceError> {
        if !matches!(self.copying, Copying::Never) {
            let slots = TxSlots::map(self.fd(), TX_RING);
            self.tx_slots = Some(slots.map_err(DeviceError::set_up("map the TX ring"))?);
        }
        Ok(())
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns whether the kernel copies frames, and why.
    pub(super) fn copying(&self) -> &Copying {
        &self.copying
    }

    /// Returns the number of invalid frames and descriptors so far.
    pub(super) fn invalid(&self) -> u64 {
        self.invalid
    }

    pub(super) fn count_invalid(&mut self) {
        self.invalid += 1;
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket lives as long as its queues.
        unsafe { BorrowedFd::borrow_raw(self.rx.fd().as_raw_fd()) }
    }

    /// Returns the kernel's own counts of received frames that it lost, and of invalid descriptors.
    ///
    /// The main causes of loss are an empty fill ring and a full RX ring.
    pub(super) fn kernel_counts(&self) -> (u64, u64) {
        self.rx.fd().xdp_statistics().map_or((0, 0), |s| {
            // In copy mode, `rx_dropped` already counts each packet lost because the fill ring was
            // empty. `rx_fill_ring_empty_descs` counts lookups instead, so it is not added.
            (
                s.rx_dropped() + s.rx_ring_full(),
                s.rx_invalid_descs() + s.tx_invalid_descs(),
            )
        })
    }

    /// Moves at most `limit` (up to [`MAX_BATCH`]) received frames into the batch.
    #[inline(always)]
    pub(super) fn receive(&mut self, batch: &mut Batch, limit: usize) {
        let room = batch.remaining_capacity().min(limit);
        // SAFETY: all frames of this queue belong to this UMEM. The array's entries are overwritten
        // before they are read.
        let count = unsafe { self.rx.consume(&mut self.received[..room]) };
        for desc in &self.received[..count] {
            let index = (desc.addr() >> self.chunk_shift) as u32;
            let is_valid = self.chunks.get(index as usize).map(FrameDesc::addr)
                == Some(desc.addr())
                && !desc.has_more_frames();
            let len = desc.lengths().data();
            // SAFETY: this socket's RX ring has returned the frame.
            match unsafe { self.pool.claim(index, len) } {
                Some(frame) if is_valid => batch.push(frame),
                Some(frame) => {
                    drop(frame);
                    self.invalid += 1;
                }
                None => {
                    // The packet is too long, or its frame was not offered. The frame of a packet
                    // that is too long returns to the pool here. SAFETY: as above.
                    drop(unsafe { self.pool.claim(index, 0) });
                    self.invalid += 1;
                }
            }
        }
        self.offered = self.offered.saturating_sub(count as u32);
        if count > 0 || self.offered < self.fill_level.frames() {
            let remaining = FILL_RING - self.fill.nb_free_exact();
            self.fill_level
                .update(count as u32, count == room, remaining);
            self.refill(remaining);
        }
    }

    /// Refills the fill ring, which still holds `remaining` frames, to the level that `fill_level`
    /// gives. Stops early if the pool is empty or `RX_RING` frames are offered.
    #[inline(always)]
    fn refill(&mut self, remaining: u32) {
        let missing = self.fill_level.frames().saturating_sub(remaining);
        let mut missing = missing.min(RX_RING - self.offered);
        while missing > 0 {
            let mut descs = ArrayVec::<FrameDesc, MAX_MOVED>::new();
            while descs.len() < (missing as usize).min(MAX_MOVED) {
                let Some(frame) = self.pool.take() else { break };
                descs.push(self.chunks[frame.offer(&self.pool) as usize]);
            }
            if descs.is_empty() {
                return;
            }
            // SAFETY: the frames belong to this UMEM and are offered, so nothing reads or writes
            // them until the kernel returns them.
            let count = unsafe { self.fill.produce(&descs) };
            debug_assert_eq!(count, descs.len(), "the fill ring has room");
            self.offered += descs.len() as u32;
            missing -= descs.len() as u32;
        }
    }

    /// Returns true if the kernel must be woken to use the fill ring.
    #[inline(always)]
    pub(super) fn fill_needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Returns true if the kernel must be woken to use the TX ring.
    #[inline(always)]
    pub(super) fn tx_needs_wakeup(&self) -> bool {
        self.tx.needs_wakeup()
    }

    /// Returns the number of packets that can be staged now.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        MAX_IN_FLIGHT.saturating_sub(self.in_flight)
    }

    /// Stages a frame for the TX ring, which must have room.
    #[inline(always)]
    pub(super) fn send(&mut self, frame: Frame) {
        let packet = frame.send(&self.pool);
        self.stage(packet);
    }

    /// Stages a resident packet for the TX ring, which must have room. Returns false if the packet
    /// is already in flight.
    #[inline(always)]
    pub(super) fn send_resident(&mut self, packet: &mut Resident) -> bool {
        let packet = packet.send(&self.pool);
        packet.map(|packet| self.stage(packet)).is_some()
    }

    /// Stages a packet from this port's pool.
    #[inline(always)]
    fn stage(&mut self, packet: Sending) {
        debug_assert!(self.room() > 0);
        let len = packet.len();
        let mut desc = self.chunks[packet.into_index() as usize];
        // SAFETY: the chunk belongs to this UMEM. Its frame is marked as being sent, so no Frame or
        // Resident gives access to it. The kernel has not received the descriptor yet.
        unsafe { self.umem.data_mut(&mut desc) }
            .cursor()
            .set_pos(len);
        self.staged.push(desc);
        self.in_flight += 1;
        if self.staged.is_full() {
            self.submit();
        }
    }

    /// Moves staged packets into the TX ring.
    #[inline(always)]
    pub(super) fn submit(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        // SAFETY: the frames belong to this UMEM and are being sent, so nothing writes them until
        // they are completed.
        if unsafe { self.tx.produce(&self.staged) } == 0 {
            // `in_flight` bounds the ring's contents, so the ring is full only if the kernel
            // misbehaves.
            self.invalid += self.staged.len() as u64;
            self.in_flight -= self.staged.len() as u32;
            for desc in &self.staged {
                let index = (desc.addr() >> self.chunk_shift) as u32;
                // SAFETY: the kernel never received this packet's descriptor.
                unsafe { self.pool.complete(index) };
            }
        }
        self.staged.clear();
    }

    /// Returns the number of frames in the TX ring that the kernel has not taken yet.
    pub(super) fn pending(&mut self) -> u32 {
        match &mut self.tx_slots {
            Some(slots) => slots.pending(),
            None => TX_RING - self.tx.nb_free_exact(),
        }
    }

    /// Returns the frame that the driver dropped in the last wakeup, which failed with `EBUSY`.
    /// `None`: the frame is unknown, because drops are not [tracked](Self::track_drops).
    #[cold]
    pub(super) fn dropped(&mut self) -> Option<Dropped> {
        self.tx_slots.as_mut().map(TxSlots::dropped)
    }

    /// Puts a dropped frame back at the head of the TX ring. If the ring is full, or the kernel has
    /// not completed the frame, the frame is lost and the result is false.
    #[cold]
    pub(super) fn put_back(&mut self, dropped: Slot) -> bool {
        if self.tx.nb_free_exact() == 0 || !self.withdraw_completion(dropped.addr) {
            return false;
        }
        let Some(slots) = &mut self.tx_slots else {
            return false;
        };
        let last = slots.put_back(dropped);
        let mut desc = self.chunks[(last.addr >> self.chunk_shift) as usize];
        // SAFETY: the chunk belongs to this UMEM. Its frame is marked as being sent, so no Frame or
        // Resident gives access to it. The kernel does not use it, because it is in no ring.
        unsafe { self.umem.data_mut(&mut desc) }
            .cursor()
            .set_pos(last.len as usize);
        // SAFETY: the frame belongs to this UMEM and is being sent, so nothing writes it until it
        // is completed.
        unsafe { self.tx.produce_one(&desc) == 1 }
    }

    /// Takes completed packets back from the kernel, except the dropped frame at `addr`, which will
    /// be sent again. Returns true if the kernel has completed the dropped frame.
    fn withdraw_completion(&mut self, addr: u64) -> bool {
        let mut found = false;
        loop {
            // SAFETY: as in `reap`.
            let count = unsafe { self.completion.consume(&mut self.completed[..]) };
            for i in 0..count {
                let completed = self.completed[i].addr();
                if !found && completed as u64 == addr {
                    found = true;
                } else {
                    self.complete(completed);
                }
            }
            if count < MAX_MOVED {
                return found;
            }
        }
    }

    /// Takes completed packets back from the kernel.
    #[inline(always)]
    pub(super) fn reap(&mut self) {
        while self.in_flight > 0 {
            // SAFETY: all frames of this queue belong to this UMEM, and only entries that the call
            // has written are read.
            let count = unsafe { self.completion.consume(&mut self.completed[..]) };
            for i in 0..count {
                self.complete(self.completed[i].addr());
            }
            if self.overdue_check.is_due(count) {
                self.reclaim_overdue();
            }
            if count < MAX_MOVED {
                return;
            }
        }
    }

    /// Takes back the packet at `addr`, which the completion ring has returned.
    #[inline(always)]
    fn complete(&mut self, addr: usize) {
        let index = (addr >> self.chunk_shift) as u32;
        // SAFETY: this socket's completion ring has returned the packet. No `Sending` owns it,
        // because `stage` turns each packet into its index.
        if unsafe { self.pool.complete(index) } {
            self.in_flight = self.in_flight.saturating_sub(1);
        } else {
            self.invalid += 1;
        }
    }

    /// Reclaims frames that the kernel never completed.
    #[cold]
    fn reclaim_overdue(&mut self) {
        // SAFETY: the kernel completes packets nearly in the order of sending. The overdue packets
        // have stayed incomplete for `OverdueCheck::MIN_COMPLETIONS` completions and for
        // `OverdueCheck::MIN_INTERVAL`, so the kernel no longer uses them. No `Sending` owns them,
        // because `stage` turns each packet into its index.
        let lost = unsafe { self.pool.reclaim_overdue() };
        if lost == 0 {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(lost);
        self.lost += u64::from(lost);
        tracing::warn!(
            target: "nmio::xdp",
            "the driver never completed {lost} sent frames, so the server reuses them; if this \
             continues, try xdp:IFACE,generic"
        );
    }

    /// Returns the number of sent frames that the kernel never completed.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the size of the UMEM in bytes.
    pub(super) fn memory(&self) -> usize {
        self.chunks.len() << self.chunk_shift
    }
}

/// Returns a pointer to the first chunk's data, with provenance for the whole mapping.
fn data_of_first(umem: &Umem, chunks: &[FrameDesc]) -> NonNull<u8> {
    // SAFETY: the chunk belongs to this UMEM, and the kernel has no chunk yet.
    let first = unsafe { umem.data(&chunks[0]) }.contents().as_ptr();
    // The pointer `first` has provenance only for the first chunk. `Umem::new` has passed the
    // mapping's pointer to C, which exposed the provenance of the whole mapping.
    NonNull::new(ptr::with_exposed_provenance_mut(first.addr()))
        .expect("mapped memory has an address")
}

/// Decides when to search for frames that the kernel never completed.
///
/// A frame is reclaimed only if two consecutive searches find it still in flight.
#[derive(Debug, Default)]
struct OverdueCheck {
    /// Number of completions since the age of the last search was last compared with
    /// [`MIN_INTERVAL`](Self::MIN_INTERVAL). This happens each time the number reaches
    /// [`MIN_COMPLETIONS`](Self::MIN_COMPLETIONS).
    completed: usize,
    /// Time of the last search. `None`: there was none yet.
    last_search: Option<Instant>,
}

impl OverdueCheck {
    /// Minimum number of completions between two searches. A frame that is in the ring at the first
    /// search normally completes long before this number is reached.
    const MIN_COMPLETIONS: usize = 16 * TX_RING as usize;
    /// Minimum time between two searches. No device queue delays a packet by 30 seconds.
    const MIN_INTERVAL: Duration = Duration::from_secs(30);

    /// Counts completions. Returns true if a search is due.
    #[inline(always)]
    fn is_due(&mut self, completed: usize) -> bool {
        self.completed += completed;
        self.completed >= Self::MIN_COMPLETIONS && self.interval_has_passed()
    }

    #[cold]
    fn interval_has_passed(&mut self) -> bool {
        self.completed = 0;
        let due = self
            .last_search
            .is_none_or(|at| at.elapsed() >= Self::MIN_INTERVAL);
        if due {
            self.last_search = Some(Instant::now());
        }
        due
    }
}

fn ring_size(slots: u32) -> QueueSize {
    QueueSize::new(slots).expect("ring sizes are powers of two")
}

/// Returns the largest MTU whose frames fit in a chunk of `chunk` bytes.
const fn largest_mtu(chunk: u32) -> usize {
    // The kernel reserves this many bytes at the start of each chunk for XDP programs.
    const HEADROOM: usize = 256;
    chunk as usize - HEADROOM - LINK_HEADER
}

/// The largest supported MTU, in bytes.
pub(crate) const MAX_MTU: usize = largest_mtu(LARGE_CHUNK);

/// Returns the size in bytes of the smallest chunk that can hold a frame of this MTU.
fn chunk_size(mtu: usize) -> u32 {
    if mtu <= largest_mtu(SMALL_CHUNK) {
        SMALL_CHUNK
    } else {
        LARGE_CHUNK
    }
}

type Queues = (TxQueue, RxQueue, FillQueue, CompQueue);

fn bind(config: &XdpConfig<'_>, umem: &Umem) -> Result<(Queues, Copying), DeviceError> {
    let interface: Interface = config
        .interface
        .parse()
        .map_err(|_| DeviceError::unknown_interface(config.interface))?;
    let retry = Retry::begin();
    let mut copying = match config.zero_copy {
        _ if config.generic => Copying::Generic,
        ZeroCopy::Off => Copying::Requested,
        ZeroCopy::Auto | ZeroCopy::Required => Copying::Never,
    };
    loop {
        let zero_copy = matches!(copying, Copying::Never);
        let flag = if zero_copy {
            BindFlags::XDP_ZEROCOPY
        } else {
            BindFlags::XDP_COPY
        };
        let socket_config = SocketConfig::builder()
            .rx_queue_size(ring_size(RX_RING))
            .tx_queue_size(ring_size(TX_RING))
            // This crate loads its own steering program, so libxdp must not load another.
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .xdp_flags(XdpFlags::empty())
            .bind_flags(flag | BindFlags::XDP_USE_NEED_WAKEUP)
            .build();
        // SAFETY: the UMEM is bound only to this queue, and libxdp loads no program.
        let error = match unsafe { Socket::new(socket_config, umem, &interface, config.queue) } {
            Ok((tx, rx, Some((fill, completion)))) => {
                return Ok(((tx, rx, fill, completion), copying));
            }
            Ok((_, _, None)) => io::Error::other("libxdp returned no fill and completion rings"),
            Err(error) => os_error(error.source()),
        };
        match error.raw_os_error() {
            Some(libc::EBUSY) if retry.wait() => {}
            Some(libc::EPERM | libc::EACCES) => {
                return Err(DeviceError::bind(config.interface, config.queue, error));
            }
            _ if config.zero_copy == ZeroCopy::Required => {
                return Err(DeviceError::NoZeroCopy {
                    interface: config.interface.to_owned(),
                    source: error,
                });
            }
            // Drivers refuse zero-copy with various errors. If the cause is unrelated to zero-copy,
            // copy mode fails too and reports the error.
            _ if zero_copy => copying = Copying::Refused(error),
            _ => return Err(DeviceError::bind(config.interface, config.queue, error)),
        }
    }
}

fn os_error(source: Option<&(dyn std::error::Error + 'static)>) -> io::Error {
    source
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error)
        .map_or_else(
            || io::Error::other("libxdp gave no error number"),
            io::Error::from_raw_os_error,
        )
}

const _: () = assert!(
    mem::size_of::<FrameDesc>() <= 32,
    "the chunk table must stay small, because each send reads it"
);

#[cfg(test)]
#[path = "rings_tests.rs"]
mod tests;
