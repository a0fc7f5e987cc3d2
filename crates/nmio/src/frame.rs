//! Packet memory: a [`Pool`] of equal frames, and the values that own them.
//!
//! A frame is always owned by exactly one value or by the kernel, and the
//! pool's state table says which. Every transition goes through that table,
//! so a frame that the kernel holds can be neither read nor written here, a
//! frame is in the TX ring at most once, and a descriptor that comes back
//! twice is refused instead of believed:
//!
//! ```text
//!              take                lend                complete
//!   FREE ──────────────▶ HELD ──────────────▶ LENT ──────────────▶ FREE
//!    ▲ drop of a Frame    │  ◀──────────────  (claim: it was received into)
//!    └────────────────────┤
//!                         │ make_resident      lend
//!                         └─────▶ RESIDENT ─────────▶ RESIDENT_LENT
//!                                    ◀───────── complete
//! ```
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Where a frame is. See the module's diagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum State {
    Free,
    Held,
    Lent,
    Resident,
    ResidentLent,
}

/// Where frame 0 of a pool in ordinary memory begins: at a cache line.
const ALIGN: usize = 64;

/// How a pool's memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLayout {
    /// Bytes from the start of one frame's data to the next one's.
    pub stride: usize,
    /// Usable data bytes in a frame, at most `stride`.
    pub capacity: usize,
    /// Frames for receiving and for scratch.
    pub io_frames: u32,
    /// Frames that may become resident packets, beside `io_frames`.
    pub resident_frames: u32,
}

impl PoolLayout {
    /// All frames of the pool.
    pub fn frames(&self) -> u32 {
        self.io_frames + self.resident_frames
    }
}

struct Shared {
    base: NonNull<u8>,
    layout: PoolLayout,
    state: Box<[Cell<State>]>,
    /// A stack of free frame indices; the first `free_len` are valid.
    free: Box<[Cell<u32>]>,
    free_len: Cell<u32>,
    residents_left: Cell<u32>,
    /// Keeps the memory behind `base` alive for as long as any frame is.
    _memory: Box<dyn Any>,
}

impl Shared {
    #[inline(always)]
    fn push_free(&self, index: u32) {
        let len = self.free_len.get();
        self.state[index as usize].set(State::Free);
        self.free[len as usize].set(index);
        self.free_len.set(len + 1);
    }

    #[inline(always)]
    fn data(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index < self.layout.frames());
        // SAFETY: every index that reaches here came from the free stack or
        // was checked by `claim`/`complete` against the state table, so it is
        // below `frames()`, and the constructor's contract gives
        // `frames() * stride` bytes behind `base` (the last frame's tail
        // beyond `capacity` is never touched).
        unsafe { self.base.add(index as usize * self.layout.stride) }
    }
}

/// The frames of one port. Cheap to clone; all clones are the same pool.
///
/// A pool belongs to one thread, like everything on the data path.
#[derive(Clone)]
pub struct Pool(Rc<Shared>);

impl Pool {
    /// A pool over memory of the caller's, for ports whose memory the kernel
    /// shares.
    ///
    /// # Safety
    /// `base` points at the data of frame 0; `capacity` bytes from
    /// `base + i * stride` are valid for reads and writes, initialised, and
    /// used by nobody else, for each `i` below [`PoolLayout::frames`], for as
    /// long as `memory` lives. The kernel touches a frame only while it is
    /// lent.
    pub(crate) unsafe fn from_raw(
        base: NonNull<u8>,
        layout: PoolLayout,
        memory: Box<dyn Any>,
    ) -> Self {
        assert!(layout.capacity <= layout.stride, "frames would overlap");
        let frames = layout.frames();
        // The free stack is popped from its end: low indices first keeps the
        // working set small.
        Self(Rc::new(Shared {
            base,
            layout,
            state: (0..frames).map(|_| Cell::new(State::Free)).collect(),
            free: (0..frames).rev().map(Cell::new).collect(),
            free_len: Cell::new(frames),
            residents_left: Cell::new(layout.resident_frames),
            _memory: memory,
        }))
    }

    /// A pool in ordinary memory, for ports that copy anyway.
    ///
    /// # Panics
    /// When `capacity` is larger than `stride`.
    pub fn on_heap(layout: PoolLayout) -> Self {
        let bytes = layout.stride * layout.frames() as usize;
        // A vector, not a boxed slice: to move a box is to claim that no
        // other pointer into it is used.
        let mut memory = vec![0u8; bytes + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        let base = NonNull::from(&mut memory[start..]).cast();
        // SAFETY: `frames * stride` zeroed bytes lie behind `base`, they do
        // not move when the vector does, and nobody else has them.
        unsafe { Self::from_raw(base, layout, Box::new(memory)) }
    }

    /// How the memory is divided.
    pub fn layout(&self) -> &PoolLayout {
        &self.0.layout
    }

    /// Takes a free frame of length 0, or `None` when all are in use.
    ///
    /// Its bytes are whatever the last user left there.
    #[inline(always)]
    pub fn take(&self) -> Option<Frame> {
        let shared = &*self.0;
        let len = shared.free_len.get().checked_sub(1)?;
        // What residents have not claimed yet is not there for others.
        if len < shared.residents_left.get() {
            return None;
        }
        Some(self.pop(len))
    }

    #[inline(always)]
    fn pop(&self, new_len: u32) -> Frame {
        let shared = &*self.0;
        let index = shared.free[new_len as usize].get();
        shared.free_len.set(new_len);
        shared.state[index as usize].set(State::Held);
        Frame {
            pool: self.clone(),
            index,
            len: 0,
        }
    }

    /// Takes a frame that will stay in the port's memory for good, filled
    /// with `packet`; `None` when the port's share for residents is used up
    /// or the packet does not fit a frame.
    pub fn make_resident(&self, packet: &[u8]) -> Option<Resident> {
        let shared = &*self.0;
        let left = shared.residents_left.get().checked_sub(1)?;
        let len = shared.free_len.get().checked_sub(1)?;
        if packet.len() > shared.layout.capacity {
            return None;
        }
        shared.residents_left.set(left);
        let mut frame = self.pop(len);
        frame.set_len(packet.len());
        frame.copy_from_slice(packet);
        shared.state[frame.index as usize].set(State::Resident);
        Some(Resident {
            frame: std::mem::ManuallyDrop::new(frame),
        })
    }

    /// Residents that can still be made.
    pub fn residents_left(&self) -> u32 {
        self.0.residents_left.get()
    }

    /// Frames that [`Pool::take`] can still give.
    pub fn available(&self) -> u32 {
        self.0
            .free_len
            .get()
            .saturating_sub(self.0.residents_left.get())
    }

    /// Takes back a lent frame that `len` bytes were received into. `None`
    /// when the frame was not lent, or `len` exceeds the frame: the kernel's
    /// word is checked, not trusted.
    #[inline(always)]
    pub(crate) fn claim(&self, index: u32, len: usize) -> Option<Frame> {
        let state = self.0.state.get(index as usize)?;
        if state.get() != State::Lent || len > self.0.layout.capacity {
            return None;
        }
        state.set(State::Held);
        Some(Frame {
            pool: self.clone(),
            index,
            len: len as u32,
        })
    }

    /// Takes back a frame whose sending has ended: a scratch frame becomes
    /// free, a resident packet can be sent again. `false` when it was not
    /// lent.
    #[inline(always)]
    pub(crate) fn complete(&self, index: u32) -> bool {
        let Some(state) = self.0.state.get(index as usize) else {
            return false;
        };
        match state.get() {
            State::Lent => self.0.push_free(index),
            State::ResidentLent => state.set(State::Resident),
            State::Free | State::Held | State::Resident => return false,
        }
        true
    }

    /// The bytes of a lent frame, for ports that copy out what was queued.
    #[inline]
    pub(crate) fn with_lent<R>(&self, index: u32, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let shared = &*self.0;
        let state = shared.state[index as usize].get();
        assert!(
            matches!(state, State::Lent | State::ResidentLent),
            "frame is not lent"
        );
        assert!(len <= shared.layout.capacity);
        // SAFETY: the frame is lent, so no Frame or Resident gives access to
        // its bytes, and this is called only by ports whose memory no kernel
        // writes; `len` bytes are inside the frame.
        f(unsafe { std::slice::from_raw_parts(shared.data(index).as_ptr(), len) })
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("layout", &self.0.layout)
            .field("available", &self.available())
            .field("residents_left", &self.residents_left())
            .finish()
    }
}

/// A frame in the hand: one that was just received, or a scratch frame from
/// [`Pool::take`].
///
/// It reads and writes as its packet bytes. Dropping it gives the frame back
/// to the pool; [`Port::send`](crate::Port::send) gives it to the TX ring, so
/// that a received frame becomes its own answer (*turnaround*).
pub struct Frame {
    pool: Pool,
    index: u32,
    len: u32,
}

impl Frame {
    /// Bytes that fit.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.pool.0.layout.capacity
    }

    /// Sets the packet's length; bytes beyond the old length keep whatever
    /// was there.
    ///
    /// # Panics
    /// When `len` exceeds [`Frame::capacity`].
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "a packet of {len} bytes does not fit a frame"
        );
        self.len = len as u32;
    }

    /// Panics when the frame is of another pool than `pool`, where its index
    /// would mean other bytes.
    #[inline(always)]
    pub(crate) fn assert_of(&self, pool: &Pool) {
        if !Rc::ptr_eq(&self.pool.0, &pool.0) {
            foreign_frame();
        }
    }

    /// Gives the frame to the kernel (or to a port that plays one), by its
    /// index in `pool`, which it must be of.
    #[inline(always)]
    pub(crate) fn lend(self, pool: &Pool) -> u32 {
        self.assert_of(pool);
        let index = self.index;
        self.pool.0.state[index as usize].set(State::Lent);
        // The frame is the kernel's now; only the pool handle is dropped.
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never used again, so the handle is dropped once.
        unsafe { std::ptr::drop_in_place(&raw mut this.pool) };
        index
    }
}

#[cold]
#[inline(never)]
fn foreign_frame() -> ! {
    panic!(
        "a frame was sent through a port that it does not belong to; copy it to one of that port's own"
    )
}

impl Drop for Frame {
    #[inline(always)]
    fn drop(&mut self) {
        self.pool.0.push_free(self.index);
    }
}

impl Deref for Frame {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: a Frame is the only owner of its index (state HELD), `len`
        // was checked against the capacity, and the memory is initialised.
        unsafe {
            std::slice::from_raw_parts(self.pool.0.data(self.index).as_ptr(), self.len as usize)
        }
    }
}

impl DerefMut for Frame {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(self.pool.0.data(self.index).as_ptr(), self.len as usize)
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("index", &self.index)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// A pre-built packet that lives in the port's memory for good: it is patched
/// and sent in place, again and again (*pre-copy*).
///
/// While it is in the TX ring its bytes are out of reach; whoever needs the
/// packet then sends another copy.
pub struct Resident {
    /// Dropped by hand: the frame may be in the TX ring at that time.
    frame: std::mem::ManuallyDrop<Frame>,
}

impl Resident {
    fn state(&self) -> &Cell<State> {
        &self.frame.pool.0.state[self.frame.index as usize]
    }

    /// Whether the packet is in the TX ring.
    #[inline(always)]
    pub fn in_flight(&self) -> bool {
        self.state().get() == State::ResidentLent
    }

    /// The packet, to be patched; `None` while it is in flight.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.in_flight() {
            return None;
        }
        Some(&mut self.frame)
    }

    /// Changes the packet's length; nothing happens while it is in flight.
    ///
    /// # Panics
    /// When `len` exceeds the frame.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) {
        if !self.in_flight() {
            self.frame.set_len(len);
        }
    }

    /// As [`Frame::assert_of`].
    #[inline(always)]
    pub(crate) fn assert_of(&self, pool: &Pool) {
        self.frame.assert_of(pool);
    }

    /// Gives the packet to the kernel: its index in `pool`, which it must be
    /// of, and its length; or `None` when it is there already.
    #[inline(always)]
    pub(crate) fn lend(&mut self, pool: &Pool) -> Option<(u32, usize)> {
        self.assert_of(pool);
        if self.in_flight() {
            return None;
        }
        self.state().set(State::ResidentLent);
        Some((self.frame.index, self.frame.len as usize))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let shared = &*self.frame.pool.0;
        // The place it leaves may be taken by another resident.
        shared.residents_left.set(shared.residents_left.get() + 1);
        if self.in_flight() {
            self.state().set(State::Lent);
            // SAFETY: the frame's own drop must not run (the kernel has the
            // frame); only its pool handle is dropped, and once, because
            // `self.frame` is not used again.
            unsafe { std::ptr::drop_in_place(&raw mut self.frame.pool) };
        } else {
            // SAFETY: `self.frame` is not used again.
            unsafe { std::mem::ManuallyDrop::drop(&mut self.frame) };
        }
    }
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident")
            .field("index", &self.frame.index)
            .field("len", &self.frame.len)
            .field("in_flight", &self.in_flight())
            .finish()
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod model_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(io: u32, resident: u32) -> Pool {
        Pool::on_heap(PoolLayout {
            stride: 64,
            capacity: 60,
            io_frames: io,
            resident_frames: resident,
        })
    }

    #[test]
    fn dropping_a_frame_gives_it_back() {
        let pool = pool(1, 0);
        let frame = pool.take().unwrap();
        assert!(pool.take().is_none());
        drop(frame);
        assert!(pool.take().is_some());
    }

    #[test]
    fn residents_have_a_share_of_their_own() {
        let pool = pool(1, 2);
        let a = pool.make_resident(b"a").unwrap();
        let _b = pool.make_resident(b"b").unwrap();
        assert!(pool.make_resident(b"c").is_none());
        assert_eq!(pool.available(), 1);
        drop(a);
        assert!(pool.take().is_some(), "the I/O share is untouched");
        assert!(pool.make_resident(b"c").is_some());
    }

    #[test]
    fn a_resident_is_in_the_ring_at_most_once() {
        let pool = pool(1, 1);
        let mut r = pool.make_resident(b"packet").unwrap();
        let (index, len) = r.lend(&pool).unwrap();
        assert_eq!(len, 6);
        assert!(r.lend(&pool).is_none());
        assert!(r.bytes_mut().is_none());
        assert!(pool.complete(index));
        assert!(!pool.complete(index), "a second completion is refused");
        assert_eq!(r.bytes_mut().unwrap(), b"packet");
    }

    #[test]
    fn a_resident_dropped_in_flight_comes_back_on_completion() {
        let pool = pool(0, 1);
        let mut r = pool.make_resident(b"x").unwrap();
        let (index, _) = r.lend(&pool).unwrap();
        drop(r);
        assert!(
            pool.make_resident(b"y").is_none(),
            "the kernel still reads it"
        );
        assert!(pool.complete(index));
        assert!(pool.make_resident(b"y").is_some());
    }

    #[test]
    fn only_a_lent_frame_can_be_claimed() {
        let pool = pool(2, 0);
        let index = pool.take().unwrap().lend(&pool);
        assert!(pool.claim(index, 61).is_none(), "longer than a frame");
        let frame = pool.claim(index, 5).unwrap();
        assert_eq!(frame.len(), 5);
        assert!(pool.claim(index, 5).is_none());
        assert!(pool.claim(99, 5).is_none());
    }
}
