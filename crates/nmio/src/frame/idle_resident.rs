//! A resident packet that is not in flight.

use std::ops::{Deref, DerefMut};

use super::{Pool, Resident, Sending, State};

/// A [`Resident`] that is not in flight. It gives access to the bytes of the packet, and sending the
/// packet consumes it.
#[derive(Debug)]
pub struct IdleResident<'a> {
    /// A packet that is not in flight.
    pub(super) packet: &'a mut Resident,
}

impl Resident {
    /// Returns the packet for patching and sending, or `None` while it is in flight.
    #[inline(always)]
    pub fn idle(&mut self) -> Option<IdleResident<'_>> {
        (!self.in_flight()).then_some(IdleResident { packet: self })
    }
}

impl IdleResident<'_> {
    /// Sets the packet's length in bytes.
    ///
    /// # Panics
    /// If `len` exceeds the frame's capacity.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) {
        self.packet.frame.set_len(len);
    }

    /// Panics if the packet does not belong to `pool`.
    #[inline(always)]
    pub(crate) fn assert_of(&self, pool: &Pool) {
        self.packet.frame.assert_of(pool);
    }

    /// Turns the resident into a packet to send. It must belong to `pool`.
    #[inline(always)]
    pub(crate) fn send(self, pool: &Pool) -> Sending {
        let (frame_pool, len) = (self.packet.frame.pool.clone(), self.packet.frame.len);
        Sending {
            pool: frame_pool,
            index: self.send_to_kernel(pool),
            len,
        }
    }

    /// Like [`send`](Self::send), but the kernel owns the frame from now on, until
    /// [`Pool::complete`]. Returns the frame's index.
    #[inline(always)]
    pub(crate) fn send_to_kernel(self, pool: &Pool) -> u32 {
        self.assert_of(pool);
        self.packet.state().set(State::ResidentSending);
        self.packet.frame.index
    }
}

impl Deref for IdleResident<'_> {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.packet.frame
    }
}

impl DerefMut for IdleResident<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.packet.frame
    }
}
