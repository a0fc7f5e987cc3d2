//! Bounded pools: what is lent, who holds it, and which of it is free.

mod lent;
mod peers;

pub(crate) use lent::{Lendable, Lent};
pub(crate) use peers::{Owner, Owners, Peers, Pool};

/// The number of no slot.
pub(crate) const NONE: u32 = u32::MAX;
/// Slots that keep their memory in any case.
const FLOOR: usize = 64;

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
