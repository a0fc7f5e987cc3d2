//! A TX and an RX ring with their kernel's side, and the exchange of buffers with the pool.
#![allow(unsafe_code)]

use std::io;
use std::iter;
use std::ptr::NonNull;

use netmap_sys::Buffers;

use super::kernel::Kernel;
use super::ring::{Received, RxRing, TxRing};
use crate::frame::{Frame, Pool, Sending};

/// A ring pair.
pub(super) struct Pair<K> {
    kernel: K,
    tx: TxRing,
    rx: RxRing,
    /// The buffers to copy packets to and from. `None`: buffers are exchanged.
    ///
    /// Packets are copied on a pipe, whose other end would keep exchanged buffers.
    copied: Option<Buffers>,
    /// Whether the next slot continues a packet that does not fit in one buffer.
    in_large_packet: bool,
    /// Number of packets and slots that were rejected.
    invalid: u64,
}

impl<K: Kernel> Pair<K> {
    /// Takes over the buffers of the rings, unless packets are copied.
    pub(super) fn new(
        kernel: K,
        (tx, rx): (TxRing, RxRing),
        copied: Option<Buffers>,
        pool: &Pool,
    ) -> Self {
        if copied.is_none() {
            for buffer in tx.idle_buffers() {
                // SAFETY: the slot is not being sent, so the kernel does not use its buffer.
                unsafe { pool.adopt(buffer) };
            }
            for buffer in rx.buffers() {
                pool.adopt_offered(buffer);
            }
        }
        Self {
            kernel,
            tx,
            rx,
            copied,
            in_large_packet: false,
            invalid: 0,
        }
    }

    pub(super) fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Returns the numbers of slots of the TX and of the RX ring.
    pub(super) fn slots(&self) -> (u32, u32) {
        (self.tx.slots(), self.rx.slots())
    }

    /// Returns the number of packets and slots that were rejected.
    pub(super) fn invalid(&self) -> u64 {
        self.invalid
    }

    /// Returns the number of slots that the TX ring has room for.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        self.tx.room()
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

    /// Queues a packet. There must be room.
    #[inline(always)]
    pub(super) fn push(&mut self, packet: Sending) {
        let len = packet.len();
        if let Some(buffers) = self.copied {
            self.push_copy(buffers, &packet);
        } else {
            self.tx.push(packet.into_index(), len);
        }
    }

    fn push_copy(&mut self, buffers: Buffers, packet: &[u8]) {
        let buffer = buffers.get(self.tx.next_buffer());
        let Some(buffer) = buffer.filter(|_| packet.len() <= buffers.size() as usize) else {
            self.invalid += 1;
            return;
        };
        // SAFETY: the buffer has room for the packet. It belongs to this program until the slot is
        // published. No reference to its contents exists.
        unsafe { buffer.copy_from_nonoverlapping(NonNull::from(packet).cast(), packet.len()) };
        self.tx.push_in_place(packet.len());
    }

    /// Hands the filled slots of the TX ring to the kernel, and takes back the sent ones.
    #[inline]
    pub(super) fn sync_tx(&mut self, pool: &Pool) -> io::Result<()> {
        self.tx.publish();
        self.kernel.sync_tx()?;
        self.reap(pool)
    }

    /// Takes back the sent slots that the kernel has reported.
    #[inline]
    pub(super) fn reap(&mut self, pool: &Pool) -> io::Result<()> {
        self.tx.update()?;
        while let Some(buffer) = self.tx.reap() {
            if self.copied.is_none() {
                // SAFETY: the kernel has returned the slot, so it no longer reads the buffer.
                let completed = unsafe { pool.complete(buffer) };
                self.invalid += u64::from(!completed);
            }
        }
        Ok(())
    }

    /// Asks the kernel for received packets.
    #[inline]
    pub(super) fn sync_rx(&mut self) -> io::Result<()> {
        self.rx.publish();
        self.kernel.sync_rx()
    }

    /// Returns the emptied slots of the RX ring with the next [`sync_rx`](Self::sync_rx) or poll.
    #[inline(always)]
    pub(super) fn publish_rx(&self) {
        self.rx.publish();
    }

    /// Takes a packet out of the first filled slot, which must exist, and puts a free frame there.
    ///
    /// Returns `None` if the slot holds no valid packet. The slot is then skipped.
    #[inline(always)]
    pub(super) fn receive(&mut self, free: Frame, pool: &Pool) -> Option<Frame> {
        let received = self.rx.first();
        if self.in_large_packet || received.continues {
            self.skip_part(received.continues);
            return None;
        }
        if let Some(buffers) = self.copied {
            return self.receive_copy(buffers, received, free);
        }
        // SAFETY: the kernel has filled the slot, so it no longer writes the buffer.
        let frame = unsafe { pool.claim(received.index, received.len) };
        if frame.is_some() {
            self.rx.exchange(free.offer(pool));
        } else {
            self.invalid += 1;
            self.rx.skip();
        }
        frame
    }

    fn receive_copy(
        &mut self,
        buffers: Buffers,
        received: Received,
        mut frame: Frame,
    ) -> Option<Frame> {
        self.rx.skip();
        let buffer = buffers.get(received.index);
        let Some(buffer) = buffer.filter(|_| received.len <= frame.capacity()) else {
            self.invalid += 1;
            return None;
        };
        frame.set_len(received.len);
        // SAFETY: a buffer is as large as a frame. The slot is not published yet, so its buffer
        // belongs to this program. No reference to its contents exists.
        unsafe { buffer.copy_to_nonoverlapping(NonNull::from(&mut *frame).cast(), received.len) };
        Some(frame)
    }

    /// Skips a slot with a part of a packet that does not fit in one buffer.
    #[cold]
    fn skip_part(&mut self, continues: bool) {
        self.in_large_packet = continues;
        self.invalid += u64::from(!continues);
        self.rx.skip();
    }

    /// Leaves a different buffer in each slot of the TX ring that is not being sent.
    pub(super) fn close(&mut self, pool: &Pool) {
        if self.copied.is_some() {
            return;
        }
        // If the kernel's position is invalid, slots that are being sent keep their buffers.
        let _ = self.reap(pool);
        let frames = iter::from_fn(|| pool.take().map(Frame::give_up));
        self.tx.replace_idle(frames);
    }
}
