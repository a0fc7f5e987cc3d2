//! Timers: a hierarchical timing wheel whose operations take amortised constant time.
//!
//! A server sets and clears timers far more often than a timer expires, because each ACK moves a
//! retransmission timer. So [`TimerWheel`] keeps one timer per id, such as a connection's index, in
//! preallocated arrays. The timers in one slot of the wheel form a linked list.
//!
//! ```
//! use std::time::Duration;
//! use nmio::{Instant, TimerWheel};
//!
//! let start = Instant::ZERO;
//! let mut wheel = TimerWheel::new(1000, start);
//! wheel.schedule(7, start + Duration::from_millis(200));
//! wheel.schedule(8, start + Duration::from_millis(1));
//! wheel.cancel(8);
//!
//! assert_eq!(wheel.pop_expired(start + Duration::from_millis(199)), None);
//! assert_eq!(wheel.pop_expired(start + Duration::from_millis(200)), Some(7));
//! assert_eq!(wheel.pop_expired(start + Duration::from_millis(200)), None);
//! ```
//!
//! # How it works
//! A time is a number of ticks, written as eight digits in base 64. A timer is at the level of the
//! highest digit in which its deadline differs from the wheel's current time. That digit of the
//! deadline is the timer's slot. This has three consequences:
//!
//! - A timer's slot follows from its deadline and the current time, so the slot is not stored.
//!   Timers that expire in the same tick are in one slot, in the order in which they were
//!   scheduled.
//! - All timers of a lower level expire before those of a higher level. Within a level, the timers
//!   in the lowest occupied slot expire first. Two bit scans find the next timer, or the next time
//!   at which a slot must be distributed to lower levels. So the cost of a jump in time does not
//!   depend on the length of the jump.
//! - Eight levels cover every [`Instant`], so no extra list for distant deadlines is needed.

use std::time::Duration;

use crate::time::Instant;

/// The wheel's resolution. Deadlines are rounded up to a multiple of one tick, so no timer expires
/// early.
pub const TICK: Duration = Duration::from_millis(1);

const TICK_NANOS: u64 = TICK.as_nanos() as u64;
/// Number of bits in a digit. With 6 bits, the occupancy of a level's 64 slots fits in one machine
/// word.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 8;

// Check that eight levels cover every `Instant`.
const _: () = assert!((u64::MAX / TICK_NANOS + 1) >> (SLOT_BITS * LEVELS as u32) == 0);

/// One timer. The fields are the deadline in ticks plus one (0: not scheduled), and the next and
/// previous id in the slot's circular list.
///
/// The type is a tuple, because the standard library allocates zeroed tuples without touching their
/// pages. So a wheel for a million ids uses memory only for ids that have been scheduled at least
/// once.
type Entry = (u64, u32, u32);

const _: () = assert!(size_of::<Entry>() == 16);

/// A timing wheel with at most one timer for each id below a fixed capacity.
///
/// Only [`TimerWheel::new`] allocates memory.
#[derive(Debug)]
pub struct TimerWheel {
    /// The wheel's current time in ticks. No scheduled timer expires before this time.
    elapsed: u64,
    /// Bit `l` is set if level `l` has an occupied slot.
    levels: u64,
    /// Bit `s` of word `l` is set if slot `s` of level `l` contains a timer.
    occupied: [u64; LEVELS],
    /// For each occupied slot, the id of the timer that was scheduled first.
    heads: [[u32; SLOTS]; LEVELS],
    entries: Vec<Entry>,
}

impl TimerWheel {
    /// Creates a wheel for the ids `0..capacity` that starts at `now`.
    ///
    /// The wheel occupies 2 KiB, plus 16 bytes per id. The bytes of an id are touched only when the
    /// id is first used.
    pub fn new(capacity: u32, now: Instant) -> Self {
        Self {
            elapsed: now.as_nanos() / TICK_NANOS,
            levels: 0,
            occupied: [0; LEVELS],
            heads: [[0; SLOTS]; LEVELS],
            entries: vec![(0, 0, 0); capacity as usize],
        }
    }

    /// Returns the number of ids. All valid ids are below this number.
    pub fn capacity(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Sets the timer of `id`, and replaces its earlier deadline if there was one.
    ///
    /// If the deadline has already passed, the timer expires at the next
    /// [`pop_expired`](Self::pop_expired).
    ///
    /// # Panics
    /// If `id` is not below the capacity.
    #[inline]
    pub fn schedule(&mut self, id: u32, at: Instant) {
        self.cancel(id);
        let deadline = at.as_nanos().div_ceil(TICK_NANOS).max(self.elapsed);
        self.entries[id as usize].0 = deadline + 1;
        self.link(id, deadline);
    }

    /// Clears the timer of `id`. Returns `false` if the timer was not set.
    ///
    /// # Panics
    /// If `id` is not below the capacity.
    #[inline]
    pub fn cancel(&mut self, id: u32) -> bool {
        let (stored, next, prev) = self.entries[id as usize];
        let Some(deadline) = stored.checked_sub(1) else {
            return false;
        };
        let (level, slot) = self.place(deadline);
        if next == id {
            self.clear(level, slot);
        } else {
            self.entries[prev as usize].1 = next;
            self.entries[next as usize].2 = prev;
            if self.heads[level][slot] == id {
                self.heads[level][slot] = next;
            }
        }
        self.entries[id as usize].0 = 0;
        true
    }

    /// Returns the deadline of the timer of `id`, rounded up to a whole tick. Returns `None` if the
    /// timer is not set.
    ///
    /// # Panics
    /// If `id` is not below the capacity.
    #[inline(always)]
    pub fn deadline(&self, id: u32) -> Option<Instant> {
        self.entries[id as usize].0.checked_sub(1).map(instant)
    }

    /// Removes one expired timer and returns its id. A timer has expired if its deadline, rounded
    /// up to a whole tick, is `now` or earlier.
    ///
    /// Timers are returned in order of their deadlines in ticks, and within a tick in the order in
    /// which they were scheduled. Call this method until it returns `None`.
    ///
    /// This call also moves timers to lower levels as soon as their slot's time begins. A timer
    /// moves at most seven times before it expires, and in a server typically two or three times.
    /// All timers of a slot move in the same call. So if a million timers expire within the next
    /// minute, one call every four seconds takes several milliseconds.
    #[inline]
    pub fn pop_expired(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos() / TICK_NANOS;
        while let Some((level, slot, start)) = self.first() {
            if start > now {
                break;
            }
            // No timer expires before `start`, so the wheel can advance to that time.
            self.elapsed = start;
            if level == 0 {
                let id = self.heads[0][slot];
                self.cancel(id);
                return Some(id);
            }
            self.spread(level, slot);
        }
        self.elapsed = self.elapsed.max(now);
        None
    }

    /// Returns the time for the next call of [`pop_expired`](Self::pop_expired), or `None` if no
    /// timer is set.
    ///
    /// The time is never later than the next deadline, rounded up to a whole tick. It equals that
    /// deadline if the timer is at level 0. Otherwise it is the time at which the timer's slot
    /// begins, which may be earlier. It is less than 64 ticks earlier at level 1, and less than
    /// 4,096 ticks earlier at level 2.
    ///
    /// A caller that sleeps until this time wakes at most once per level for each timer. The timer
    /// has expired at the last of these wake-ups.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.first().map(|(_, _, start)| instant(start))
    }

    /// Returns true if no timer is set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// Returns the level and slot of a deadline.
    #[inline]
    fn place(&self, deadline: u64) -> (usize, usize) {
        debug_assert!(deadline >= self.elapsed);
        let differing = (deadline ^ self.elapsed) | 1;
        let level = differing.ilog2() / SLOT_BITS;
        let slot = (deadline >> (level * SLOT_BITS)) as usize % SLOTS;
        (level as usize, slot)
    }

    /// Returns the level and index of the occupied slot that is first in time, and the tick at
    /// which that slot begins.
    #[inline]
    fn first(&self) -> Option<(usize, usize, u64)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros();
        let slot = self.occupied[level as usize].trailing_zeros();
        let shift = level * SLOT_BITS;
        // The slot's first tick has the same higher digits as the current time, and zeroes as its
        // lower digits.
        let above = self.elapsed >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Some((
            level as usize,
            slot as usize,
            above | u64::from(slot) << shift,
        ))
    }

    /// Appends `id` to the circular list of its slot.
    #[inline]
    fn link(&mut self, id: u32, deadline: u64) {
        let (level, slot) = self.place(deadline);
        let bit = 1 << slot;
        if self.occupied[level] & bit == 0 {
            self.occupied[level] |= bit;
            self.levels |= 1 << level;
            self.heads[level][slot] = id;
            let entry = &mut self.entries[id as usize];
            (entry.1, entry.2) = (id, id);
            return;
        }
        let head = self.heads[level][slot];
        let tail = std::mem::replace(&mut self.entries[head as usize].2, id);
        self.entries[tail as usize].1 = id;
        let entry = &mut self.entries[id as usize];
        (entry.1, entry.2) = (head, tail);
    }

    /// Marks a slot as empty.
    #[inline]
    fn clear(&mut self, level: usize, slot: usize) {
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Moves the timers of a slot to lower levels as soon as the slot's time begins.
    fn spread(&mut self, level: usize, slot: usize) {
        self.clear(level, slot);
        let head = self.heads[level][slot];
        let mut id = head;
        loop {
            let (stored, next, _) = self.entries[id as usize];
            self.link(id, stored - 1);
            if next == head {
                break;
            }
            id = next;
        }
    }
}

/// Returns the time at which tick number `tick` begins.
#[inline]
fn instant(tick: u64) -> Instant {
    Instant::from_nanos(tick.saturating_mul(TICK_NANOS))
}

#[cfg(test)]
#[path = "timer_tests.rs"]
mod tests;
