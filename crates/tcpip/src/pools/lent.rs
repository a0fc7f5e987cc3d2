//! Bounded pools of things that connections hold for a while.

use super::{Owner, Peers, Pool};

/// Slots that keep their memory in any case.
const FLOOR: usize = 64;

/// What a pool can lend.
pub(crate) trait Lendable: Default {
    /// Empties it for its next holder; its memory stays.
    fn clear(&mut self);
}

/// A bounded pool. A thing keeps its memory when it is given back, so that in a
/// steady state nothing is allocated, until [`trim`](Self::trim).
#[derive(Debug)]
pub(crate) struct Lent<T> {
    list: Vec<T>,
    free: FreeList,
    pool: Pool,
    most: u32,
}

impl<T: Lendable> Lent<T> {
    /// At most `most` things of `pool`.
    pub(crate) fn new(pool: Pool, most: u32) -> Self {
        Self {
            list: Vec::new(),
            free: FreeList::default(),
            pool,
            most,
        }
    }

    /// Takes an empty thing, perhaps one without memory; `None` when all are in
    /// use.
    pub(crate) fn take(&mut self, owner: Owner, peers: &mut Peers) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.list.len() < self.most as usize => {
                self.list.push(T::default());
                self.free.has_taken();
                self.list.len() as u32 - 1
            }
            None => return None,
        };
        peers.take(self.pool, index, owner);
        Some(index)
    }

    /// Gives a thing back.
    pub(crate) fn release(&mut self, index: u32, peers: &mut Peers) {
        self.list[index as usize].clear();
        peers.give_back(self.pool, index);
        self.free.push(index);
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> &T {
        &self.list[index as usize]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.list[index as usize]
    }

    /// Whether [`take`](Self::take) would find one.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty() || self.list.len() < self.most as usize
    }

    /// Whether there may soon be memory to give back.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.free.has_surplus()
    }

    /// Gives back the memory of one thing that was not needed for a while.
    /// Whether there was one.
    pub(crate) fn trim(&mut self) -> bool {
        let slot = self.free.next_surplus();
        if let Some(slot) = slot {
            self.list[slot as usize] = T::default();
        }
        slot.is_some()
    }

    /// What was needed until now says nothing any more.
    pub(crate) fn look(&mut self) {
        self.free.look();
    }

    /// Things in use.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn in_use(&self) -> usize {
        self.free.in_use()
    }

    /// All things that were ever used.
    #[cfg(test)]
    pub(crate) fn all(&self) -> &[T] {
        &self.list
    }
}

/// The free slots of a pool whose slots have memory of their own, last in, first
/// out. Memory is given back from the other end, as
/// far as it was not needed for a while: in a steady state nothing is allocated.
#[derive(Debug, Default)]
struct FreeList {
    slots: Vec<u32>,
    /// The first so many of `slots` have no memory any more.
    bare: usize,
    in_use: usize,
    /// The most that were in use at once since [`look`](Self::look).
    most_in_use: usize,
}

impl FreeList {
    /// Takes a free slot.
    fn pop(&mut self) -> Option<u32> {
        let slot = self.slots.pop()?;
        self.bare = self.bare.min(self.slots.len());
        self.has_taken();
        Some(slot)
    }

    /// A slot that was not there before is in use.
    fn has_taken(&mut self) {
        self.in_use += 1;
        self.most_in_use = self.most_in_use.max(self.in_use);
    }

    /// A slot is free again.
    fn push(&mut self, slot: u32) {
        self.slots.push(slot);
        self.in_use -= 1;
    }

    /// There is none.
    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Slots in use.
    #[cfg(any(test, fuzzing))]
    fn in_use(&self) -> usize {
        self.in_use
    }

    /// Whether there may soon be memory to give back.
    #[inline]
    fn has_surplus(&self) -> bool {
        self.slots.len() > self.bare + FLOOR
    }

    /// A free slot whose memory was not needed since the last look and is to be
    /// given back now.
    fn next_surplus(&mut self) -> Option<u32> {
        let with_memory = self.in_use + self.slots.len() - self.bare;
        if with_memory <= self.most_in_use.max(FLOOR) {
            return None;
        }
        let slot = self.slots.get(self.bare).copied();
        self.bare += usize::from(slot.is_some());
        slot
    }

    /// What was needed until now says nothing any more.
    fn look(&mut self) {
        self.most_in_use = self.in_use;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_when_it_was_not_needed_for_a_while() {
        let mut list = FreeList::default();
        for _ in 0..1_000 {
            list.has_taken();
        }
        (0..1_000).for_each(|slot| list.push(slot));
        assert!(list.has_surplus());
        assert_eq!(list.next_surplus(), None, "it was needed just now");
        list.look();
        let given_back: Vec<u32> = std::iter::from_fn(|| list.next_surplus()).collect();
        // Those that were free for longest.
        assert!(given_back.into_iter().eq(0..936));
        assert!(!list.has_surplus());
        // What is taken comes from those that still have some.
        for slot in (936..1_000).rev() {
            assert_eq!(list.pop(), Some(slot));
        }
        assert_eq!(list.pop(), Some(935));
        assert_eq!(list.in_use(), 65);
        list.push(935);
        assert_eq!(list.next_surplus(), None);
        list.look();
        assert_eq!(list.next_surplus(), Some(935), "64 keep theirs");
        assert_eq!(list.next_surplus(), None);
    }

    #[test]
    fn what_swings_within_one_look_keeps_its_memory() {
        let mut list = FreeList::default();
        for _ in 0..500 {
            list.has_taken();
        }
        for _ in 0..10 {
            (0..500).for_each(|slot| list.push(slot));
            for _ in 0..500 {
                assert!(list.pop().is_some());
            }
            list.look();
            assert_eq!(list.next_surplus(), None);
        }
    }
}
