//! Packet memory: a [`Pool`] of frames of equal size, and the types that own them.
//!
//! A frame is free, owned by exactly one value, or owned by the kernel. The pool's state table
//! records which of these applies, and every change of owner updates the table.
//!
//! The table ensures that no code writes a frame that the kernel owns, and that a frame is in the
//! TX ring at most once. A descriptor that the kernel returns twice, or through the wrong ring, is
//! rejected.
//!
//! ```text
//!              take            offer                claim
//!   FREE ──────────────▶ HELD ──────────▶ OFFERED ──────────▶ HELD
//!    ▲ drop of a Frame    │ │  send                complete
//!    └────────────────────┘ ├──────────▶ SENDING ──────────▶ FREE
//!                           │ make_resident       send
//!                           └─────▶ RESIDENT ───────────▶ RESIDENT_SENDING
//!                                       ◀─────────── complete
//! ```
//!
//! The kernel receives into `OFFERED` frames, and sends `SENDING` and `RESIDENT_SENDING` frames. If
//! `reclaim_overdue` finds a frame in one of the two sending states, it marks the frame as overdue.
//! If the frame is still in flight at the next call of `reclaim_overdue`, that call takes the frame
//! back. `mark_overdue` only marks and counts such frames.
//!
//! A pool over a shared region (`Pool::over_region`) owns only some of the region's frames. All
//! others are `FOREIGN`. `adopt` makes a foreign frame free or offered, and `Frame::give_up` makes a
//! held frame foreign.
#![allow(unsafe_code)]

mod copies;
mod idle_resident;
#[cfg(target_os = "linux")]
mod overdue;

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

pub use copies::Copies;
pub use idle_resident::IdleResident;

/// The state of a frame. See the diagram in the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum State {
    Free,
    Held,
    Offered,
    Sending,
    #[cfg(target_os = "linux")]
    Overdue,
    Resident,
    ResidentSending,
    #[cfg(target_os = "linux")]
    ResidentOverdue,
    Foreign,
}

impl State {
    /// Returns true for a frame that becomes free when it has been sent.
    #[inline(always)]
    fn is_sending(self) -> bool {
        #[cfg(target_os = "linux")]
        if self == Self::Overdue {
            return true;
        }
        self == Self::Sending
    }

    /// Returns true for a resident packet that is being sent.
    #[inline(always)]
    fn is_resident_sending(self) -> bool {
        #[cfg(target_os = "linux")]
        if self == Self::ResidentOverdue {
            return true;
        }
        self == Self::ResidentSending
    }
}

/// Alignment of frame 0 in a pool on the heap, in bytes: one cache line.
const ALIGN: usize = 64;

/// The layout of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLayout {
    /// Distance from the start of one frame's data to the start of the next frame's, in bytes.
    pub stride: usize,
    /// Number of usable data bytes in each frame, at most `stride`.
    pub capacity: usize,
    /// Number of frames for received packets and scratch frames.
    pub io_frames: u32,
    /// Number of frames reserved for resident packets, in addition to `io_frames`.
    pub resident_frames: u32,
}

impl PoolLayout {
    /// Returns the number of frames in the pool.
    pub fn frames(&self) -> u32 {
        self.io_frames + self.resident_frames
    }
}

struct Shared {
    base: NonNull<u8>,
    layout: PoolLayout,
    state: Box<[Cell<State>]>,
    /// A stack of the indices of free frames. Only the first `free_len` elements are valid.
    free: Box<[Cell<u32>]>,
    free_len: Cell<u32>,
    residents_left: Cell<u32>,
    /// Number of frames that are not foreign, at most [`PoolLayout::frames`].
    owned: Cell<u32>,
    /// Gets the indices of the free frames when the last frame and the last handle are gone.
    give_back: Option<GiveBack>,
    /// Keeps the memory behind `base` alive while any frame exists.
    _memory: Box<dyn Any>,
}

/// Takes the indices of all free frames of a pool that is going away.
pub(crate) type GiveBack = Box<dyn FnOnce(&[u32])>;

impl Shared {
    #[inline(always)]
    fn push_free(&self, index: u32) {
        let len = self.free_len.get();
        self.state[index as usize].set(State::Free);
        self.free[len as usize].set(index);
        self.free_len.set(len + 1);
    }

    /// Returns the start of a frame's data.
    ///
    /// # Safety
    /// The memory behind the pool has a frame `index`.
    #[inline(always)]
    unsafe fn data(&self, index: u32) -> NonNull<u8> {
        debug_assert!((index as usize) < self.state.len());
        // SAFETY: the constructor's contract guarantees `capacity` bytes from `base + index *
        // stride`, in one allocation.
        unsafe { self.base.add(index as usize * self.layout.stride) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            let free = &self.free[..self.free_len.get() as usize];
            give_back(&free.iter().map(Cell::get).collect::<Vec<_>>());
        }
    }
}

/// The frames of one port. Cloning is cheap, and all clones share the same frames.
///
/// A pool belongs to one thread, like everything on the data path.
#[derive(Clone)]
pub struct Pool(Rc<Shared>);

impl Pool {
    /// Creates a pool over the caller's memory, for ports that share memory with the kernel.
    ///
    /// # Safety
    /// `base` points to the data of frame 0, and its provenance covers every frame. For each `i`
    /// below [`PoolLayout::frames`], `capacity` bytes from `base + i * stride` are valid for reads
    /// and writes. These bytes are initialised, and no other code uses them while `memory` lives.
    /// The kernel may write a frame only between [`Frame::offer`] and [`Pool::claim`]. It may read
    /// a frame only between [`Frame::send`] or [`Resident::send`] and [`Pool::complete`].
    pub(crate) unsafe fn from_raw(
        base: NonNull<u8>,
        layout: PoolLayout,
        memory: Box<dyn Any>,
    ) -> Self {
        assert!(
            layout.capacity <= layout.stride,
            "the stride must cover a frame's capacity, so that frames do not overlap"
        );
        let frames = layout.frames();
        // Frames are taken from the end of the stack. Its indices are in descending order, so that
        // low indices are used first.
        Self(Rc::new(Shared {
            base,
            layout,
            state: (0..frames).map(|_| Cell::new(State::Free)).collect(),
            free: (0..frames).rev().map(Cell::new).collect(),
            free_len: Cell::new(frames),
            residents_left: Cell::new(layout.resident_frames),
            owned: Cell::new(frames),
            give_back: None,
            _memory: memory,
        }))
    }

    /// Creates a pool without frames over a region of `slots` frames, which it shares with the
    /// kernel and perhaps with other programs. The pool [adopts](Self::adopt) at most
    /// [`PoolLayout::frames`] of them. `give_back` keeps the region alive.
    ///
    /// # Safety
    /// As for [`Pool::from_raw`], for all `slots` frames. But a frame belongs to the pool only
    /// between [`Pool::adopt`] or [`Pool::adopt_offered`] and [`Frame::give_up`].
    pub(crate) unsafe fn over_region(
        base: NonNull<u8>,
        layout: PoolLayout,
        slots: u32,
        give_back: GiveBack,
    ) -> Self {
        assert!(
            layout.capacity <= layout.stride,
            "the stride must cover a frame's capacity, so that frames do not overlap"
        );
        Self(Rc::new(Shared {
            base,
            layout,
            state: (0..slots).map(|_| Cell::new(State::Foreign)).collect(),
            free: (0..layout.frames()).map(Cell::new).collect(),
            free_len: Cell::new(0),
            residents_left: Cell::new(layout.resident_frames),
            owned: Cell::new(0),
            give_back: Some(give_back),
            _memory: Box::new(()),
        }))
    }

    /// Makes a foreign frame a free frame of this pool.
    ///
    /// The index is not trusted. Returns `false` if the region has no such frame, if the frame
    /// already belongs to this pool, or if the pool is complete.
    ///
    /// # Safety
    /// Neither the kernel nor another program uses this frame.
    pub(crate) unsafe fn adopt(&self, index: u32) -> bool {
        self.join(index) && {
            self.0.push_free(index);
            true
        }
    }

    /// Makes a foreign frame a frame of this pool that is offered to the kernel. Otherwise like
    /// [`Pool::adopt`].
    pub(crate) fn adopt_offered(&self, index: u32) -> bool {
        self.join(index) && {
            self.0.state[index as usize].set(State::Offered);
            true
        }
    }

    fn join(&self, index: u32) -> bool {
        let shared = &*self.0;
        let foreign = shared
            .state
            .get(index as usize)
            .is_some_and(|state| state.get() == State::Foreign);
        let joins = foreign && shared.owned.get() < shared.layout.frames();
        if joins {
            shared.owned.set(shared.owned.get() + 1);
        }
        joins
    }

    /// Creates a pool on the heap, for ports that do not share memory with the kernel.
    ///
    /// # Panics
    /// If `capacity` is larger than `stride`.
    pub fn on_heap(layout: PoolLayout) -> Self {
        let bytes = layout.stride * layout.frames() as usize;
        // Use a vector, because moving a boxed slice would invalidate `base` under Rust's aliasing
        // rules.
        let mut memory = vec![0u8; bytes + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        let base = NonNull::from(&mut memory[start..]).cast();
        // SAFETY: `frames * stride` zeroed bytes start at `base`. They stay in place when the
        // vector moves, and no other code uses them.
        unsafe { Self::from_raw(base, layout, Box::new(memory)) }
    }

    /// Returns the layout of the memory.
    pub fn layout(&self) -> &PoolLayout {
        &self.0.layout
    }

    /// Takes a free frame and sets its length to 0. Returns `None` if only the frames reserved for
    /// residents are left.
    ///
    /// The frame's memory may still hold bytes of an earlier packet.
    #[inline(always)]
    pub fn take(&self) -> Option<Frame> {
        let shared = &*self.0;
        let len = shared.free_len.get().checked_sub(1)?;
        // The remaining free frames are reserved for residents.
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

    /// Creates a resident packet with a copy of `packet`.
    ///
    /// Returns `None` if no frame is left for residents, or if the packet does not fit in a frame.
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
            frame: ManuallyDrop::new(frame),
        })
    }

    /// Returns the number of resident packets that can still be created.
    pub fn residents_left(&self) -> u32 {
        self.0.residents_left.get()
    }

    /// Returns the number of frames that [`Pool::take`] can still return.
    #[inline(always)]
    pub fn available(&self) -> u32 {
        self.0
            .free_len
            .get()
            .saturating_sub(self.0.residents_left.get())
    }

    /// Takes back an offered frame that now holds a received packet of `len` bytes.
    ///
    /// The kernel's descriptor is not trusted: returns `None` if the frame was not offered, or if
    /// `len` exceeds the frame's capacity.
    ///
    /// # Safety
    /// The kernel no longer writes this frame, because it has returned the descriptor or never got
    /// it.
    #[inline(always)]
    pub(crate) unsafe fn claim(&self, index: u32, len: usize) -> Option<Frame> {
        let state = self.0.state.get(index as usize)?;
        if state.get() != State::Offered || len > self.0.layout.capacity {
            return None;
        }
        state.set(State::Held);
        Some(Frame {
            pool: self.clone(),
            index,
            len: len as u32,
        })
    }

    /// Offers a free frame to the kernel in exchange for an offered one, as [`Pool::take`],
    /// [`Frame::offer`] and [`Pool::claim`] do. Returns the index of the free frame, and the claimed
    /// one, or `None` if none is free or the frame cannot be claimed.
    ///
    /// # Safety
    /// As for [`Pool::claim`].
    #[inline(always)]
    pub(crate) unsafe fn exchange(&self, index: u32, len: usize) -> Option<(u32, Frame)> {
        let shared = &*self.0;
        if self.available() == 0 {
            return None;
        }
        let free_len = shared.free_len.get() - 1;
        let offered = shared.free[free_len as usize].get();
        let offered_state = &shared.state[offered as usize];
        // SAFETY: the caller guarantees what `claim` requires.
        let frame = unsafe { self.claim(index, len) }?;
        shared.free_len.set(free_len);
        offered_state.set(State::Offered);
        Some((offered, frame))
    }

    /// Takes back a sent frame. The frame becomes free, except that a resident packet stays in its
    /// frame and can be sent again.
    ///
    /// Returns `false` if the frame was not being sent.
    ///
    /// # Safety
    /// The kernel no longer reads this frame, because it has returned the descriptor or never got
    /// it. No [`Sending`] owns it.
    #[inline(always)]
    pub(crate) unsafe fn complete(&self, index: u32) -> bool {
        // SAFETY: as the caller guarantees.
        unsafe { self.complete_all(slice::from_ref(&index)) == 0 }
    }

    /// Takes back sent frames, as [`complete`](Self::complete) does. Returns the number of frames that
    /// were not being sent.
    ///
    /// # Safety
    /// As for [`complete`](Self::complete).
    #[inline(always)]
    pub(crate) unsafe fn complete_all(&self, indices: &[u32]) -> u64 {
        let shared = &*self.0;
        // As slices, these tables are found once and not for each frame.
        let (states, free) = (&shared.state[..], &shared.free[..]);
        let mut free_len = shared.free_len.get();
        let mut refused = 0;
        for &index in indices {
            let Some(state) = states.get(index as usize) else {
                refused += 1;
                continue;
            };
            // Comparisons cost less than a `match`, which looks the state up in a table.
            if state.get().is_sending() {
                state.set(State::Free);
                free[free_len as usize].set(index);
                free_len += 1;
            } else if state.get().is_resident_sending() {
                state.set(State::Resident);
            } else {
                refused += 1;
            }
        }
        shared.free_len.set(free_len);
        refused
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

/// An owned frame: a received frame, or a scratch frame from [`Pool::take`].
///
/// A frame dereferences to the bytes of its packet. Dropping it returns the frame to the pool.
///
/// [`Port::send`](crate::Port::send) moves the frame to the TX ring, so a received frame can become
/// the answer (*turnaround*).
#[derive(Debug)]
pub struct Frame {
    pool: Pool,
    index: u32,
    len: u32,
}

impl Frame {
    /// Returns the maximum length of a packet in this frame, in bytes.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.pool.0.layout.capacity
    }

    /// Sets the packet's length in bytes. If the packet becomes longer, the added bytes may hold
    /// data of earlier packets.
    ///
    /// # Panics
    /// If `len` exceeds [`Frame::capacity`].
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "a packet of {len} bytes does not fit a frame"
        );
        self.len = len as u32;
    }

    /// Panics if the frame does not belong to `pool`, because its index would identify a different
    /// frame in `pool`.
    #[inline(always)]
    pub(crate) fn assert_of(&self, pool: &Pool) {
        if !Rc::ptr_eq(&self.pool.0, &pool.0) {
            foreign_frame();
        }
    }

    /// Offers the frame to the kernel for receiving, and returns its index. The frame must belong
    /// to `pool`.
    #[inline(always)]
    pub(crate) fn offer(self, pool: &Pool) -> u32 {
        self.assert_of(pool);
        let (pool, index, _) = self.leave(State::Offered);
        drop(pool);
        index
    }

    /// Gives the frame up, so that it no longer belongs to the pool, and returns its index.
    pub(crate) fn give_up(self) -> u32 {
        let (pool, index, _) = self.leave(State::Foreign);
        pool.0.owned.set(pool.0.owned.get() - 1);
        index
    }

    /// Turns the frame into a packet to send. The frame must belong to `pool`.
    #[inline(always)]
    pub(crate) fn send(self, pool: &Pool) -> Sending {
        self.assert_of(pool);
        let (pool, index, len) = self.leave(State::Sending);
        Sending { pool, index, len }
    }

    /// Sets the frame's state to `state`, and returns the pool, the index and the length. The frame
    /// does not return to the pool.
    #[inline(always)]
    fn leave(self, state: State) -> (Pool, u32, u32) {
        self.pool.0.state[self.index as usize].set(state);
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, and `this.pool` is not used again, so the handle is
        // moved out only once.
        let pool = unsafe { ptr::read(&raw const this.pool) };
        (pool, this.index, this.len)
    }
}

#[cold]
#[inline(never)]
fn foreign_frame() -> ! {
    panic!(
        "a frame was sent through a port that it does not belong to; copy its bytes to a frame of that port"
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
        // SAFETY: a Frame that is accessed is HELD or RESIDENT, so it is the only owner of its
        // index, which belongs to the pool. `len` was checked against the capacity, and the memory
        // is initialised.
        unsafe { slice::from_raw_parts(self.pool.0.data(self.index).as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Frame {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe {
            slice::from_raw_parts_mut(self.pool.0.data(self.index).as_ptr(), self.len as usize)
        }
    }
}

/// A packet that is being sent. Its bytes can be read but not written.
///
/// Dropping this value completes the packet. A port that hands the packet to the kernel calls
/// [`Sending::into_index`] instead, and later [`Pool::complete`].
#[derive(Debug)]
pub(crate) struct Sending {
    pool: Pool,
    index: u32,
    len: u32,
}

impl Sending {
    /// Returns the frame's index. From now on, the kernel owns the frame until [`Pool::complete`].
    #[inline(always)]
    pub(crate) fn into_index(self) -> u32 {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, and `this.pool` is not used again, so the handle is
        // dropped only once.
        drop(unsafe { ptr::read(&raw const this.pool) });
        this.index
    }
}

impl Deref for Sending {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame belongs to the pool and is being sent, so no Frame or Resident allows
        // writes to its bytes. `len` was checked against the capacity.
        unsafe { slice::from_raw_parts(self.pool.0.data(self.index).as_ptr(), self.len as usize) }
    }
}

impl Drop for Sending {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `into_index` was never called, so the kernel does not have the frame.
        let completed = unsafe { self.pool.complete(self.index) };
        debug_assert!(completed, "frame {} was not being sent", self.index);
    }
}

/// A packet that stays in the port's memory, is patched in place, and is sent many times
/// (*pre-copy*).
///
/// While a resident is in the TX ring, its bytes are inaccessible. To send the same packet during
/// that time, use another copy (see [`Copies`]).
pub struct Resident {
    /// Dropped manually, because a frame in the TX ring must not return to the pool yet.
    frame: ManuallyDrop<Frame>,
}

impl Resident {
    fn state(&self) -> &Cell<State> {
        &self.frame.pool.0.state[self.frame.index as usize]
    }

    /// Returns true if the packet is in the TX ring.
    #[inline(always)]
    pub fn in_flight(&self) -> bool {
        self.state().get() != State::Resident
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let shared = &*self.frame.pool.0;
        // One more frame is now reserved for future resident packets.
        shared.residents_left.set(shared.residents_left.get() + 1);
        if self.in_flight() {
            self.state().set(State::Sending);
            // SAFETY: the kernel owns the frame, so the frame's own drop must not run. Only its
            // pool handle is dropped, and only once, because `self.frame` is not used again.
            unsafe { ptr::drop_in_place(&raw mut self.frame.pool) };
        } else {
            // SAFETY: `self.frame` is not used again.
            unsafe { ManuallyDrop::drop(&mut self.frame) };
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
mod tests;
