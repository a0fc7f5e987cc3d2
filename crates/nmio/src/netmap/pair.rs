//! A TX and an RX ring with their kernel's side. Their packets are exchanged with the pool, or copied.
#![allow(unsafe_code)]

use std::io;
use std::iter;

use super::gather::Gather;
use super::kernel::{Kernel, with_cause};
use super::ring::{Received, RxRing, TxRing};
use super::slot_copies::{Part, SlotCopies};
use crate::frame::{Frame, IdleResident, Pool, Sending};
use crate::super_segment::SuperSegment;
use crate::vnet::{FINISHED, VNET_HEADER, vnet_header};

/// A ring pair.
pub(super) struct Pair<K> {
    kernel: K,
    tx: TxRing,
    rx: RxRing,
    /// The slots' own buffers, for packets that are copied.
    slots: SlotCopies,
    /// Whether packets are copied. If not, buffers are exchanged.
    copies: bool,
    /// Number of slots that the longest frame takes. 1 if buffers are exchanged.
    frame_slots: u32,
    gather: Gather,
    /// Whether the next received slot must go through `gather`.
    gathers: bool,
    /// Number of packets and slots that were rejected.
    invalid: u64,
}

impl<K: Kernel> Pair<K> {
    /// Creates a ring pair whose packets are copied. They are at most `longest` bytes long.
    pub(super) fn copying(
        kernel: K,
        (tx, rx): (TxRing, RxRing),
        slots: SlotCopies,
        longest: usize,
    ) -> Self {
        Self {
            kernel,
            tx,
            rx,
            frame_slots: slots.slots_for(longest),
            slots,
            copies: true,
            gather: Gather::new(),
            gathers: true,
            invalid: 0,
        }
    }

    /// Creates a ring pair whose buffers are exchanged. They become the pool's.
    pub(super) fn exchanging(
        kernel: K,
        (tx, rx): (TxRing, RxRing),
        slots: SlotCopies,
        pool: &Pool,
    ) -> Self {
        for buffer in tx.idle_buffers() {
            // SAFETY: the slot is not being sent, so the kernel does not use its buffer.
            unsafe { pool.adopt(buffer) };
        }
        for buffer in rx.buffers() {
            pool.adopt_offered(buffer);
        }
        Self {
            kernel,
            tx,
            rx,
            slots,
            copies: false,
            frame_slots: 1,
            gather: Gather::new(),
            gathers: false,
            invalid: 0,
        }
    }

    pub(super) fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Returns the numbers of slots of the TX and of the RX ring.
    pub(super) fn ring_slots(&self) -> (u32, u32) {
        (self.tx.slots(), self.rx.slots())
    }

    /// Returns the number of packets and slots that were rejected.
    pub(super) fn invalid(&self) -> u64 {
        self.invalid
    }

    /// Returns true if the TX ring has room for one more frame.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.tx.room() >= self.frame_slots
    }

    /// Returns true if the TX ring has room for a super-segment of `len` bytes.
    #[inline]
    pub(super) fn has_room_for(&self, len: usize) -> bool {
        self.tx.room() >= self.slots.slots_for(len)
    }

    /// Returns the number of frames that the TX ring has room for.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        let slots = self.tx.room();
        if self.frame_slots == 1 {
            slots
        } else {
            slots / self.frame_slots
        }
    }

    /// Returns the number of slots that are filled and not known to be sent.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> u32 {
        self.tx.in_flight()
    }

    /// Returns the number of filled slots of the RX ring.
    #[inline(always)]
    pub(super) fn available(&mut self) -> io::Result<u32> {
        self.rx.available()
    }

    /// Queues a frame. There must be room.
    #[inline(always)]
    pub(super) fn push(&mut self, frame: Frame, pool: &Pool) {
        if self.copies {
            return self.push_copy_of(frame.send(pool));
        }
        let len = frame.len();
        self.tx.push(frame.send(pool).into_index(), len);
    }

    /// Queues a copy of a packet.
    #[inline(never)]
    fn push_copy_of(&mut self, packet: Sending) {
        self.push_copy(FINISHED, &[&packet]);
        drop(packet);
    }

    /// Queues a resident packet. There must be room.
    #[inline(always)]
    pub(super) fn push_resident(&mut self, packet: IdleResident<'_>, pool: &Pool) {
        if self.copies {
            return self.push_copy_of(packet.send(pool));
        }
        let len = packet.len();
        self.tx.push(packet.send_to_kernel(pool), len);
    }

    /// Queues a super-segment. There must be room, and packets must have virtio-net headers.
    #[inline]
    pub(super) fn push_super(&mut self, packet: &SuperSegment) {
        self.push_copy(vnet_header(packet), &packet.gather());
    }

    #[inline(never)]
    fn push_copy(&mut self, vnet: [u8; VNET_HEADER], pieces: &[&[u8]]) {
        let is_sent = self.slots.scatter(&mut self.tx, vnet, pieces);
        self.invalid += u64::from(!is_sent);
    }

    /// Hands the filled slots of the TX ring to the kernel, and takes back the sent ones.
    #[inline]
    pub(super) fn sync_tx(&mut self, pool: &Pool) -> io::Result<()> {
        self.tx.publish();
        self.kernel.sync_tx().map_err(with_cause)?;
        self.reap(pool)
    }

    /// Takes back the sent slots that the kernel has reported.
    #[inline]
    pub(super) fn reap(&mut self, pool: &Pool) -> io::Result<()> {
        self.tx.update()?;
        for buffers in self.tx.reap() {
            if !self.copies {
                // SAFETY: the kernel has returned the slots, so it no longer reads the buffers.
                self.invalid += unsafe { pool.complete_all(buffers) };
            }
        }
        Ok(())
    }

    /// Asks the kernel for received packets.
    #[inline]
    pub(super) fn sync_rx(&mut self) -> io::Result<()> {
        self.rx.publish();
        self.kernel.sync_rx().map_err(with_cause)
    }

    /// Returns the emptied slots of the RX ring with the next [`sync_rx`](Self::sync_rx) or poll.
    #[inline(always)]
    pub(super) fn publish_rx(&self) {
        self.rx.publish();
    }

    /// Skips all packets that the kernel has reported.
    pub(super) fn discard_received(&mut self) -> io::Result<()> {
        self.rx.skip_all()
    }

    /// Takes a packet out of the first filled slot, which must exist, and puts a free frame there. The
    /// pool must have one.
    ///
    /// Returns `None` if the slot holds no valid packet, or if the packet continues in the next slot.
    #[inline(always)]
    pub(super) fn receive(&mut self, pool: &Pool) -> Option<Frame> {
        let received = self.rx.first();
        if self.gathers || received.continues || received.len == 0 {
            // The packet is copied. Its slots keep their buffers.
            return self.receive_copy(received, pool);
        }
        // SAFETY: the kernel has filled the slot, so it no longer writes the buffer.
        let exchanged = unsafe { pool.exchange(received.index, received.len.into()) };
        let Some((free, frame)) = exchanged else {
            self.invalid += 1;
            self.rx.skip();
            return None;
        };
        self.rx.exchange(free);
        Some(frame)
    }

    /// Adds the first filled slot to the packet that is being gathered.
    #[inline(never)]
    fn receive_copy(&mut self, received: Received, pool: &Pool) -> Option<Frame> {
        self.rx.skip();
        let is_empty = received.len == 0;
        if is_empty && !received.continues && self.gather.is_at_start() {
            // A switch leaves an empty slot where a packet had no room.
            return None;
        }
        let added = if self.copies {
            self.add_part(received, pool)
        } else {
            // SAFETY: the kernel has filled the slot, so it no longer writes the buffer.
            let frame = unsafe { pool.claim(received.index, received.len.into()) };
            let piece = frame.as_deref().filter(|_| !is_empty);
            let added = self.gather.add(piece, received.continues, pool);
            if let Some(frame) = frame {
                frame.offer(pool);
            }
            added
        };
        self.gathers = self.copies || !self.gather.is_at_start();
        added.unwrap_or_else(|()| {
            self.invalid += 1;
            None
        })
    }

    fn add_part(&mut self, received: Received, pool: &Pool) -> Result<Option<Frame>, ()> {
        let mut part = self.slots.part(received);
        if self.slots.has_headers() && self.gather.is_at_start() {
            // The first slot contains the whole header, and perhaps nothing else.
            part = part.and_then(Part::split_header).map(|(vnet, rest)| {
                self.gather.set_header(vnet);
                rest
            });
        }
        self.gather.add(part, received.continues, pool)
    }

    /// Leaves a different buffer in each slot of the TX ring that is not being sent.
    pub(super) fn close(&mut self, pool: &Pool) {
        if self.copies {
            return;
        }
        // If the kernel's position is invalid, slots that are being sent keep their buffers.
        let _ = self.reap(pool);
        let frames = iter::from_fn(|| pool.take().map(Frame::give_up));
        self.tx.replace_idle(frames);
    }
}
