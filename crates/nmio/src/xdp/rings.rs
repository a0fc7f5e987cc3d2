//! The four rings of one `AF_XDP` socket and their memory.
//!
//! ```text
//!   pool ── fill ring ──▶ kernel ── RX ring ──▶ Frame
//!   Frame ── TX ring ──▶ kernel ── completion ring ──▶ pool
//! ```
//!
//! If packets can span several chunks, descriptors pass through [`MultiBuffer`] instead of directly
//! into and out of the pool.
//!
//! Each descriptor from the kernel is checked against the pool's state table. Descriptors are moved
//! in batches, through arrays of fixed size.
#![allow(unsafe_code)]

use std::error::Error as _;
use std::mem;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use arrayvec::ArrayVec;
use xsk_rs::config::{FrameSize, UmemConfig};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue, Umem};

use super::bind::{Copying, bind, os_error, ring_size};
use super::config::XdpConfig;
use super::fill_level::{FILL_RING, FillLevel};
use super::huge_pages;
use super::multi_buffer::MultiBuffer;
use super::overdue::OverdueCheck;
use super::sizes::{COMPLETION_RING, FrameLayout, RX_RING, TX_RING};
use super::tx_slots::{Dropped, Slot, TxSlots};
use crate::device::{DeviceError, Needs};
use crate::frame::{Frame, Pool, PoolLayout, Resident, Sending};
use crate::port::{Batch, MAX_BATCH, PortLevels};
use crate::sys;

/// Maximum number of descriptors moved in one step into the fill or TX ring, or out of the
/// completion ring.
const MAX_MOVED: usize = 64;
pub(super) struct Rings {
    pool: Pool,
    umem: Umem,
    /// The descriptor of each chunk. They are stored because only `Umem::new` can create
    /// descriptors.
    chunks: Box<[FrameDesc]>,
    chunk_shift: u32,
    tx: TxQueue,
    /// The TX ring's slots. `None` if drops are not [tracked](Self::track_drops), and each frame is one
    /// chunk.
    tx_slots: Option<TxSlots>,
    /// `None` if each frame is one chunk.
    multi_buffer: Option<MultiBuffer>,
    max_in_flight: u32,
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
    /// Size in bytes of the pages of the packet memory.
    page_size: u64,
}

/// The packet memory, registered with the kernel.
struct Memory {
    umem: Umem,
    chunks: Box<[FrameDesc]>,
    page_size: u64,
}

impl Memory {
    /// Allocates and registers chunks for these frames. Uses huge pages if enough are free.
    fn register(layout: FrameLayout, frames: u32) -> Result<Self, DeviceError> {
        let config = UmemConfig::builder()
            .frame_size(FrameSize::new(layout.chunk).expect("chunks are large enough"))
            .fill_queue_size(ring_size(FILL_RING))
            .comp_queue_size(ring_size(COMPLETION_RING))
            .build()
            .expect("chunks are powers of two with room for data");
        let bytes = (u64::from(frames) * u64::from(layout.chunks) + u64::from(layout.rx_chunks()))
            * u64::from(layout.chunk);
        let chunks = |bytes: u64| {
            let chunks = u32::try_from(bytes / u64::from(layout.chunk)).ok();
            chunks.and_then(NonZeroU32::new)
        };
        let too_large = || DeviceError::memory(bytes, std::io::ErrorKind::OutOfMemory.into());
        sys::lift_memory_lock_limit();
        if let Some(page_size) = huge_pages::size_if_free(bytes) {
            // Unmapping fails unless the size is a multiple of the page size.
            let count = chunks(bytes.next_multiple_of(page_size)).ok_or_else(too_large)?;
            if let Ok((umem, chunks)) = Umem::new(config, count, true) {
                return Ok(Self {
                    umem,
                    chunks: chunks.into_boxed_slice(),
                    page_size,
                });
            }
        }
        let count = chunks(bytes).ok_or_else(too_large)?;
        let (umem, chunks) = Umem::new(config, count, false).map_err(|error| {
            let source = os_error(error.source());
            if sys::is_errno(&source, libc::EPERM) {
                DeviceError::privileges("open an AF_XDP socket", Needs::Xdp, source)
            } else {
                DeviceError::memory(bytes, source)
            }
        })?;
        Ok(Self {
            umem,
            chunks: chunks.into_boxed_slice(),
            page_size: huge_pages::NORMAL_PAGE,
        })
    }

    /// Creates the pool of the frames, and the pool of the chunks to receive into if these are no
    /// frames.
    fn pools(&self, layout: FrameLayout, frames: PoolLayout) -> (Pool, Option<Pool>) {
        let base = data_of_first(&self.umem, &self.chunks);
        let rx_chunks = layout.rx_chunks();
        let rx_layout = PoolLayout {
            stride: layout.chunk as usize,
            capacity: layout.chunk as usize - (layout.stride() - layout.capacity()),
            io_frames: rx_chunks,
            resident_frames: 0,
        };
        let first_frame = rx_chunks as usize * layout.chunk as usize;
        // SAFETY: `register` has mapped `rx_chunks` chunks, and behind them all frames. The data of
        // each begins at the offset of `base` in the first chunk, and ends with the chunk or the
        // frame. The provenance of `base` covers the whole mapping, which the kernel has zeroed. The
        // two pools do not overlap. The mapping lives as long as the handles passed here. `Rings`
        // hands memory to the kernel, and takes it back, only through the pools' state tables.
        unsafe {
            let pool = Pool::from_raw(base.add(first_frame), frames, Box::new(self.umem.clone()));
            let rx = (rx_chunks > 0)
                .then(|| Pool::from_raw(base, rx_layout, Box::new(self.umem.clone())));
            (pool, rx)
        }
    }
}

impl Rings {
    /// Registers the memory and binds the socket to its queue. Unless the options say otherwise, uses
    /// zero-copy if the driver accepts it, and otherwise copy mode.
    pub(super) fn open(config: &XdpConfig<'_>) -> Result<Self, DeviceError> {
        let layout = FrameLayout::for_mtu(config.mtu);
        let (stride, capacity) = (layout.stride(), layout.capacity());
        let frames = config
            .memory
            .layout(stride, capacity, layout.port_frames())?;
        let memory = Memory::register(layout, frames.frames())?;
        let (pool, rx_chunks) = memory.pools(layout, frames);
        let ((tx, rx, fill, completion), copying) = bind(config, &memory.umem)?;
        let multi_buffer =
            rx_chunks.map(|rx_chunks| MultiBuffer::new(layout, rx_chunks, frames.frames()));
        let mut rings = Self {
            pool,
            umem: memory.umem,
            chunks: memory.chunks,
            page_size: memory.page_size,
            chunk_shift: layout.chunk.trailing_zeros(),
            tx,
            tx_slots: None,
            multi_buffer,
            max_in_flight: layout.max_in_flight(),
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
        if rings.multi_buffer.is_some() {
            rings.tx_slots = Some(rings.map_tx_ring()?);
        }
        rings.refill(0);
        Ok(rings)
    }

    /// In copy mode, prepares for frames that the driver drops. Requires a kernel that publishes
    /// its position in the TX ring at the end of each wakeup that has sent a frame.
    ///
    /// Frames of several chunks are not put back, but only counted as lost.
    pub(super) fn track_drops(&mut self) -> Result<(), DeviceError> {
        if !matches!(self.copying, Copying::Never) && self.multi_buffer.is_none() {
            self.tx_slots = Some(self.map_tx_ring()?);
        }
        Ok(())
    }

    fn map_tx_ring(&self) -> Result<TxSlots, DeviceError> {
        TxSlots::map(self.fd(), TX_RING).map_err(DeviceError::set_up("map the TX ring"))
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
        if self.multi_buffer.is_some() {
            self.assemble(batch, count);
        } else {
            self.claim(batch, count);
        }
        self.offered = self.offered.saturating_sub(count as u32);
        if count > 0 || self.offered < self.fill_level.frames() {
            let remaining = FILL_RING - self.fill.nb_free_exact();
            self.fill_level
                .update(count as u32, count == room, remaining);
            self.refill(remaining);
        }
    }

    /// Moves the frames of the first `count` received descriptors into the batch.
    #[inline(always)]
    fn claim(&mut self, batch: &mut Batch, count: usize) {
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
    }

    /// Joins the pieces of the first `count` received descriptors, and moves the complete packets
    /// into the batch.
    #[inline(never)]
    fn assemble(&mut self, batch: &mut Batch, count: usize) {
        let Some(multi_buffer) = &mut self.multi_buffer else {
            return;
        };
        for desc in &self.received[..count] {
            let index = (desc.addr() >> self.chunk_shift) as u32;
            let is_valid =
                self.chunks.get(index as usize).map(FrameDesc::addr) == Some(desc.addr());
            let rx_chunks = multi_buffer.rx_chunks();
            // SAFETY: this socket's RX ring has returned the chunk.
            let chunk = unsafe { rx_chunks.claim(index, desc.lengths().data()) };
            if chunk.is_none() {
                // The chunk of a piece that is too long returns to its pool here. SAFETY: as above.
                drop(unsafe { rx_chunks.claim(index, 0) });
            }
            let piece = chunk.as_deref().filter(|_| is_valid);
            let more = desc.has_more_frames();
            match multi_buffer.assembly().add(piece, more, &self.pool) {
                Ok(packet) => batch.extend(packet),
                Err(()) => self.invalid += 1,
            }
        }
    }

    /// Refills the fill ring, which still holds `remaining` frames, to the level that `fill_level`
    /// gives. Stops early if the pool is empty or `RX_RING` frames are offered.
    #[inline(always)]
    fn refill(&mut self, remaining: u32) {
        let missing = self.fill_level.frames().saturating_sub(remaining);
        let mut missing = missing.min(RX_RING - self.offered);
        let multi_buffer = self.multi_buffer.as_ref();
        let pool = multi_buffer.map_or(&self.pool, MultiBuffer::rx_chunks);
        while missing > 0 {
            let mut descs = ArrayVec::<FrameDesc, MAX_MOVED>::new();
            while descs.len() < (missing as usize).min(MAX_MOVED) {
                let Some(frame) = pool.take() else { break };
                descs.push(self.chunks[frame.offer(pool) as usize]);
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
        self.max_in_flight.saturating_sub(self.in_flight)
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
        if let (Some(multi_buffer), Some(slots)) = (&mut self.multi_buffer, &mut self.tx_slots) {
            multi_buffer.stage(packet, slots);
            self.in_flight += 1;
            return;
        }
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
            if let (Some(_), Some(slots)) = (&self.multi_buffer, &mut self.tx_slots) {
                slots.publish();
            }
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
        let tracked = self
            .tx_slots
            .as_mut()
            .filter(|_| self.multi_buffer.is_none());
        tracked.map(TxSlots::dropped)
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
        let index = match &mut self.multi_buffer {
            None => (addr >> self.chunk_shift) as u32,
            Some(multi_buffer) => match multi_buffer.complete(addr) {
                Ok(Some(index)) => index,
                Ok(None) => return,
                Err(()) => {
                    self.invalid += 1;
                    return;
                }
            },
        };
        // SAFETY: this socket's completion ring has returned the packet. No `Sending` owns it,
        // because `stage` turns each packet into its index.
        if unsafe { self.pool.complete(index) } {
            self.in_flight = self.in_flight.saturating_sub(1);
        } else {
            self.invalid += 1;
        }
    }

    /// Counts frames that the kernel never completed. In copy mode, also takes them back.
    #[cold]
    fn reclaim_overdue(&mut self) {
        if matches!(self.copying, Copying::Never) {
            self.report_overdue();
            return;
        }
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

    /// Counts and reports overdue frames in zero-copy mode. They are not taken back, because the
    /// device may still read them.
    #[cold]
    fn report_overdue(&mut self) {
        let overdue = u64::from(self.pool.mark_overdue());
        if overdue > self.lost {
            self.lost = overdue;
            tracing::warn!(
                target: "nmio::xdp",
                "the driver has not completed {overdue} sent frames for a long time; in zero-copy \
                 mode they cannot be reused; if this continues, try xdp:IFACE,zerocopy=off"
            );
        }
    }

    /// Returns the number of sent frames that the kernel never completed.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns how full the packet memory and the rings are.
    pub(super) fn levels(&self) -> PortLevels {
        PortLevels {
            sending: self.in_flight,
            receiving: self.offered,
            ..PortLevels::of_pool(&self.pool)
        }
    }

    /// Returns the size of the UMEM in bytes.
    pub(super) fn memory(&self) -> usize {
        self.chunks.len() << self.chunk_shift
    }

    /// Returns the size in bytes of the pages of the UMEM.
    pub(super) fn page_size(&self) -> u64 {
        self.page_size
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

const _: () = assert!(
    mem::size_of::<FrameDesc>() <= 32,
    "the chunk table must stay small, because each send reads it"
);

#[cfg(test)]
#[path = "rings_tests.rs"]
mod tests;
