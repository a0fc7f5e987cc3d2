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
//! Each descriptor from the kernel is checked against the pool's state table.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use super::config::XdpConfig;
use super::fill_level::FillLevel;
use super::multi_buffer::MultiBuffer;
use super::overdue::OverdueCheck;
use super::sizes::{FrameLayout, HEADROOM, RX_RING, TX_RING};
use super::socket::{Copying, Socket};
use super::tx_ring::{Dropped, Slot};
use super::umem::Umem;
use crate::device::{DeviceError, PacketMemory};
use crate::frame::{Frame, IdleResident, Pool, PoolLayout};
use crate::port::{Batch, PortLevels};
use crate::sys;

/// Maximum number of completed packets that are taken out of the completion ring in one step.
const MAX_MOVED: usize = 64;

pub(super) struct Rings {
    pool: Pool,
    umem: Rc<Umem>,
    chunk_shift: u32,
    socket: Socket,
    /// Whether a dropped frame can be found, because the kernel publishes its position in the TX ring at
    /// the end of each wakeup.
    tracks_drops: bool,
    /// `None` if each frame is one chunk.
    multi_buffer: Option<MultiBuffer>,
    max_in_flight: u32,
    /// Number of frames staged, in the TX ring, or sent but not completed.
    in_flight: u32,
    /// Number of frames offered to the kernel and not yet taken from the RX ring. At most
    /// `RX_RING`, so that the RX ring never overflows.
    offered: u32,
    fill_level: FillLevel,
    overdue_check: OverdueCheck,
    lost: u64,
    /// Number of packets that former sockets did not complete, because their interfaces were removed.
    lost_in_removals: u64,
    invalid: u64,
    copying: Copying,
}

/// Creates the pool of the frames, and the pool of the chunks to receive into if these are no
/// frames.
fn pools(umem: &Rc<Umem>, layout: FrameLayout, frames: PoolLayout) -> (Pool, Option<Pool>) {
    let rx_chunks = layout.rx_chunks();
    let rx_layout = PoolLayout {
        stride: layout.chunk as usize,
        capacity: (layout.chunk - HEADROOM) as usize,
        io_frames: rx_chunks,
        resident_frames: 0,
    };
    let first_frame = rx_chunks as usize * layout.chunk as usize;
    // SAFETY: the memory has `rx_chunks` chunks, and behind them all frames. The data of each begins
    // behind the headroom, and ends with the chunk or the frame. The provenance of the start covers
    // the whole memory, which is zeroed. The two pools do not overlap. The memory lives as long as the
    // handles passed here. `Rings` hands memory to the kernel, and takes it back, only through the
    // pools' state tables.
    unsafe {
        let base = umem.start().add(HEADROOM as usize);
        let pool = Pool::from_raw(base.add(first_frame), frames, Box::new(Rc::clone(umem)));
        let rx =
            (rx_chunks > 0).then(|| Pool::from_raw(base, rx_layout, Box::new(Rc::clone(umem))));
        (pool, rx)
    }
}

impl Rings {
    /// Registers the memory and binds the socket to its queue. Unless the options say otherwise, uses
    /// zero-copy if the driver accepts it, and otherwise copy mode.
    pub(super) fn open(config: &XdpConfig) -> Result<Self, DeviceError> {
        let layout = FrameLayout::for_mtu(config.mtu);
        let (stride, capacity) = (layout.stride(), layout.capacity());
        let frames = config
            .memory
            .layout(stride, capacity, layout.port_frames())?;
        let chunks =
            u64::from(frames.frames()) * u64::from(layout.chunks) + u64::from(layout.rx_chunks());
        let bytes = chunks * u64::from(layout.chunk);
        let umem = Umem::allocate(bytes).map_err(|source| DeviceError::memory(bytes, source))?;
        let umem = Rc::new(umem);
        let (pool, rx_chunks) = pools(&umem, layout, frames);
        sys::lift_memory_lock_limit();
        let socket = Socket::with_memory(config, &umem, false)?;
        let copying = socket.bind(config)?;
        let multi_buffer =
            rx_chunks.map(|rx_chunks| MultiBuffer::new(layout, rx_chunks, frames.frames()));
        let mut rings = Self {
            pool,
            umem,
            chunk_shift: layout.chunk.trailing_zeros(),
            socket,
            tracks_drops: false,
            multi_buffer,
            max_in_flight: layout.max_in_flight(),
            in_flight: 0,
            offered: 0,
            fill_level: FillLevel::new(),
            overdue_check: OverdueCheck::default(),
            lost: 0,
            lost_in_removals: 0,
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

    /// Takes the socket of another queue, with the same packet memory. Packets that were in flight are
    /// lost, but resident packets stay.
    ///
    /// # Errors
    /// If the queue of the old socket still exists, or if the new one cannot be used.
    pub(super) fn attach(&mut self, config: &XdpConfig) -> Result<(), DeviceError> {
        if self.socket.has_queue() {
            let source = io::ErrorKind::ResourceBusy.into();
            return Err(DeviceError::bind(
                &config.options.interface,
                config.queue,
                source,
            ));
        }
        let socket = Socket::with_memory(config, &self.umem, true)?;
        socket.bind(config)?;
        self.reap();
        self.count_lost_in_removal();
        self.socket = socket;
        // SAFETY: the old socket has no queue, so the kernel uses none of the frames for it. The new
        // rings are empty. No `Sending` exists, because each packet becomes its index.
        unsafe {
            self.pool.take_all_back();
            if let Some(multi_buffer) = &mut self.multi_buffer {
                multi_buffer.rx_chunks().take_all_back();
                multi_buffer.forget_sent();
            }
        }
        (self.in_flight, self.offered) = (0, 0);
        self.fill_level = FillLevel::new();
        self.overdue_check = OverdueCheck::default();
        self.refill(0);
        Ok(())
    }

    /// In copy mode, prepares for frames that the driver drops. Requires a kernel that publishes
    /// its position in the TX ring at the end of each wakeup that has sent a frame.
    ///
    /// Frames of several chunks are not put back, but only counted as lost.
    pub(super) fn track_drops(&mut self) {
        self.tracks_drops = !matches!(self.copying, Copying::Never) && self.multi_buffer.is_none();
    }

    /// Says what happens to packets that the driver drops. Returns `None` if it drops none, because it
    /// takes packets only while it has room.
    pub(super) fn describe_drops(&self) -> Option<&'static str> {
        if matches!(self.copying, Copying::Never) {
            return None;
        }
        Some(if self.tracks_drops {
            "the server queues a packet again for up to 100 ms if the driver drops it"
        } else if self.multi_buffer.is_some() {
            "the server only counts packets that the driver drops, because packets of this MTU span \
             several buffers"
        } else {
            "the server only counts packets that the driver drops; from Linux 6.17 on, it queues them \
             again"
        })
    }

    /// Lets one wakeup send all packets in the TX ring in copy mode. Returns false if this kernel does not
    /// offer this.
    pub(super) fn raise_budget(&self) -> bool {
        sys::set_option(
            self.fd(),
            libc::SOL_XDP,
            sys::XDP_MAX_TX_SKB_BUDGET,
            TX_RING,
        )
        .is_ok()
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
        self.socket.fd()
    }

    /// Returns true if the kernel has accepted the options for busy polling.
    pub(super) fn prefers_busy_polling(&self) -> bool {
        self.socket.prefers_busy_polling()
    }

    /// Returns the kernel's own counts of received frames that it lost, and of invalid descriptors.
    ///
    /// The main causes of loss are an empty fill ring and a full RX ring.
    pub(super) fn kernel_counts(&self) -> (u64, u64) {
        sys::xdp_statistics(self.fd()).map_or((0, 0), |s| {
            // In copy mode, `rx_dropped` already counts each packet lost because the fill ring was
            // empty. `rx_fill_ring_empty_descs` counts lookups instead, so it is not added.
            (
                s.rx_dropped + s.rx_ring_full,
                s.rx_invalid_descs + s.tx_invalid_descs,
            )
        })
    }

    /// Moves at most `limit` (up to [`MAX_BATCH`](crate::port::MAX_BATCH)) received frames into the
    /// batch, and refills the fill ring, also if `limit` is 0.
    #[inline(always)]
    pub(super) fn receive(&mut self, batch: &mut Batch, limit: usize) {
        let room = batch.remaining_capacity().min(limit);
        let count = if self.multi_buffer.is_some() {
            self.assemble(batch, room)
        } else {
            self.claim(batch, room)
        };
        self.offered = self.offered.saturating_sub(count as u32);
        if count > 0 || room == 0 || self.offered < self.fill_level.frames() {
            let remaining = self.socket.fill.occupied();
            self.fill_level
                .update(count as u32, count == room, remaining);
            self.refill(remaining);
        }
    }

    /// Moves at most `room` received frames into the batch. Returns the number of descriptors that
    /// were read.
    #[inline(always)]
    fn claim(&mut self, batch: &mut Batch, room: usize) -> usize {
        let Self {
            socket,
            pool,
            chunk_shift,
            invalid,
            ..
        } = self;
        socket.rx.take(room, |desc| {
            let index = (desc.addr >> *chunk_shift) as u32;
            let is_valid = desc.addr == data_of(index, *chunk_shift)
                && desc.options & libc::XDP_PKT_CONTD == 0;
            // SAFETY: this socket's RX ring has returned the frame.
            match unsafe { pool.claim(index, desc.len as usize) } {
                Some(frame) if is_valid => batch.push(frame),
                Some(frame) => {
                    drop(frame);
                    *invalid += 1;
                }
                None => {
                    // The packet is too long, or its frame was not offered. The frame of a packet
                    // that is too long returns to the pool here. SAFETY: as above.
                    drop(unsafe { pool.claim(index, 0) });
                    *invalid += 1;
                }
            }
        })
    }

    /// Reads at most `room` descriptors, joins the pieces of packets, and moves the complete packets
    /// into the batch. Returns the number of descriptors that were read.
    #[inline(never)]
    fn assemble(&mut self, batch: &mut Batch, room: usize) -> usize {
        let Self {
            socket,
            pool,
            chunk_shift,
            invalid,
            multi_buffer,
            ..
        } = self;
        let Some(multi_buffer) = multi_buffer else {
            return 0;
        };
        socket.rx.take(room, |desc| {
            let index = (desc.addr >> *chunk_shift) as u32;
            let is_valid = desc.addr == data_of(index, *chunk_shift);
            let rx_chunks = multi_buffer.rx_chunks();
            // SAFETY: this socket's RX ring has returned the chunk.
            let chunk = unsafe { rx_chunks.claim(index, desc.len as usize) };
            if chunk.is_none() {
                // The chunk of a piece that is too long returns to its pool here. SAFETY: as above.
                drop(unsafe { rx_chunks.claim(index, 0) });
            }
            let piece = chunk.as_deref().filter(|_| is_valid);
            let more = desc.options & libc::XDP_PKT_CONTD != 0;
            match multi_buffer.assembly().add(piece, more, pool) {
                Ok(packet) => batch.extend(packet),
                Err(()) => *invalid += 1,
            }
        })
    }

    /// Refills the fill ring, which still holds `remaining` frames, to the level that `fill_level`
    /// gives. Stops early if the pool is empty or `RX_RING` frames are offered.
    #[inline(always)]
    fn refill(&mut self, remaining: u32) {
        let missing = self.fill_level.frames().saturating_sub(remaining);
        let missing = missing.min(RX_RING - self.offered);
        let multi_buffer = self.multi_buffer.as_ref();
        let pool = multi_buffer.map_or(&self.pool, MultiBuffer::rx_chunks);
        let before = self.offered;
        while self.offered - before < missing {
            let Some(frame) = pool.take() else { break };
            let data = data_of(frame.offer(pool), self.chunk_shift);
            // SAFETY: the ring holds fewer frames than `fill_level` allows. The frame is offered, so
            // nothing reads or writes it until the kernel returns it.
            unsafe { self.socket.fill.stage(data) };
            self.offered += 1;
        }
        if self.offered > before {
            self.socket.fill.publish();
        }
    }

    /// Returns true if the kernel must be woken to use the fill ring.
    #[inline(always)]
    pub(super) fn fill_needs_wakeup(&self) -> bool {
        self.socket.fill.needs_wakeup()
    }

    /// Returns true if the kernel must be woken to use the TX ring.
    #[inline(always)]
    pub(super) fn tx_needs_wakeup(&self) -> bool {
        self.socket.tx.needs_wakeup()
    }

    /// Returns the number of packets that can be staged now.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        self.max_in_flight.saturating_sub(self.in_flight)
    }

    /// Stages a frame for the TX ring, which must have room.
    #[inline(always)]
    pub(super) fn send(&mut self, frame: Frame) {
        let len = frame.len();
        let index = frame.send(&self.pool).into_index();
        self.stage(index, len as u32);
    }

    /// Stages a resident packet for the TX ring, which must have room.
    #[inline(always)]
    pub(super) fn send_resident(&mut self, packet: IdleResident<'_>) {
        let len = packet.len();
        let index = packet.send_to_kernel(&self.pool);
        self.stage(index, len as u32);
    }

    /// Stages the packet in frame `index`, which is marked as being sent.
    #[inline(always)]
    fn stage(&mut self, index: u32, len: u32) {
        debug_assert!(self.room() > 0);
        self.in_flight += 1;
        if let Some(multi_buffer) = &mut self.multi_buffer {
            multi_buffer.stage(index, len, &mut self.socket.tx);
            return;
        }
        let addr = data_of(index, self.chunk_shift);
        // SAFETY: `in_flight` bounds the frames in the ring. The frame is marked as being sent, so no
        // Frame or Resident gives access to it until it is completed.
        unsafe { self.socket.tx.stage(Slot { addr, len }, false) };
    }

    /// Lets the kernel send the staged packets.
    #[inline(always)]
    pub(super) fn submit(&mut self) {
        self.socket.tx.publish();
    }

    /// Returns the number of descriptors in the TX ring that the kernel has not taken yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.socket.tx.pending()
    }

    /// Returns the frame that the driver dropped in the last wakeup, which failed with `EBUSY`.
    /// `None`: the frame is unknown, because drops are not [tracked](Self::track_drops).
    #[cold]
    pub(super) fn dropped(&mut self) -> Option<Dropped> {
        self.tracks_drops.then(|| self.socket.tx.dropped())
    }

    /// Puts a dropped frame back at the head of the TX ring. If the ring is full, or the kernel has
    /// not completed the frame, the frame is lost and the result is false.
    #[cold]
    pub(super) fn put_back(&mut self, dropped: Slot) -> bool {
        if self.socket.tx.is_full() || !self.withdraw_completion(dropped.addr) {
            return false;
        }
        // SAFETY: the ring has room, and a flush publishes all staged frames before it wakes the
        // kernel. The kernel has completed the frame, which is still marked as being sent. Drops are
        // tracked only in copy mode.
        unsafe { self.socket.tx.put_back(dropped) };
        true
    }

    /// Takes completed packets back from the kernel, except the dropped frame at `addr`, which will
    /// be sent again. Returns true if the kernel has completed the dropped frame.
    fn withdraw_completion(&mut self, addr: u64) -> bool {
        let mut found = false;
        while self.complete_some(|completed| {
            let is_it = !found && completed == addr;
            found |= is_it;
            !is_it
        }) == MAX_MOVED
        {}
        found
    }

    /// Takes completed packets back from the kernel.
    #[inline(always)]
    pub(super) fn reap(&mut self) {
        while self.in_flight > 0 {
            let count = self.complete_some(|_| true);
            if self.overdue_check.is_due(count) {
                self.reclaim_overdue();
            }
            if count < MAX_MOVED {
                return;
            }
        }
    }

    /// Takes at most [`MAX_MOVED`] completed packets out of the completion ring. Takes back those that
    /// `is_wanted`, which gets the address of the data. Returns the number of packets.
    #[inline(always)]
    fn complete_some(&mut self, mut is_wanted: impl FnMut(u64) -> bool) -> usize {
        let mut completed = Completed {
            pool: &self.pool,
            multi_buffer: self.multi_buffer.as_mut(),
            chunk_shift: self.chunk_shift,
            in_flight: &mut self.in_flight,
            invalid: &mut self.invalid,
        };
        self.socket.completion.take(MAX_MOVED, |addr| {
            if is_wanted(addr) {
                completed.take_back(addr);
            }
        })
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
        // because each packet becomes its index.
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

    /// Counts the packets in flight, whose interface was removed. In zero-copy mode, overdue frames
    /// are already counted.
    fn count_lost_in_removal(&mut self) {
        let mut lost = u64::from(self.in_flight);
        if matches!(self.copying, Copying::Never) {
            lost = lost.max(mem::take(&mut self.lost));
        }
        self.lost_in_removals += lost;
    }

    /// Returns the number of sent frames that the kernel never completed.
    pub(super) fn lost(&self) -> u64 {
        self.lost + self.lost_in_removals
    }

    /// Returns how full the packet memory and the rings are.
    pub(super) fn levels(&self) -> PortLevels {
        PortLevels {
            sending: self.in_flight,
            receiving: self.offered,
            ..PortLevels::of_pool(&self.pool)
        }
    }

    /// Returns the packet memory, for another process.
    pub(super) fn shared_memory(&self) -> PacketMemory {
        self.umem.shared(1 << self.chunk_shift)
    }

    /// Returns the size of the UMEM in bytes.
    pub(super) fn memory(&self) -> usize {
        self.umem.len()
    }

    /// Returns the size in bytes of the pages of the UMEM.
    pub(super) fn page_size(&self) -> u64 {
        self.umem.page_size()
    }
}

/// What changes when a packet is completed.
struct Completed<'a> {
    pool: &'a Pool,
    multi_buffer: Option<&'a mut MultiBuffer>,
    chunk_shift: u32,
    in_flight: &'a mut u32,
    invalid: &'a mut u64,
}

impl Completed<'_> {
    /// Takes back the packet at `addr`, which the completion ring has returned.
    #[inline(always)]
    fn take_back(&mut self, addr: u64) {
        let index = match &mut self.multi_buffer {
            None => (addr >> self.chunk_shift) as u32,
            Some(multi_buffer) => match multi_buffer.complete(addr) {
                Ok(Some(index)) => index,
                Ok(None) => return,
                Err(()) => {
                    *self.invalid += 1;
                    return;
                }
            },
        };
        // SAFETY: this socket's completion ring has returned the packet. No `Sending` owns it,
        // because each packet becomes its index.
        if unsafe { self.pool.complete(index) } {
            *self.in_flight = self.in_flight.saturating_sub(1);
        } else {
            *self.invalid += 1;
        }
    }
}

/// Returns the offset in the UMEM of the data in a chunk, in bytes.
#[inline(always)]
fn data_of(chunk: u32, chunk_shift: u32) -> u64 {
    (u64::from(chunk) << chunk_shift) + u64::from(HEADROOM)
}

#[cfg(test)]
#[path = "rings_tests.rs"]
mod tests;
