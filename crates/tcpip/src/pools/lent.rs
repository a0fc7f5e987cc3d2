//! Bounded pools of things that connections hold for a while.

use super::{FreeList, Owner, Owners, Peers, Pool};

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
    owners: Owners,
    most: u32,
}

impl<T: Lendable> Lent<T> {
    /// At most `most` things of `pool`.
    pub(crate) fn new(pool: Pool, most: u32) -> Self {
        Self {
            list: Vec::new(),
            free: FreeList::default(),
            owners: Owners::new(pool),
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
        self.owners.take(index, owner, peers);
        Some(index)
    }

    /// Gives a thing back.
    pub(crate) fn release(&mut self, index: u32, peers: &mut Peers) {
        self.list[index as usize].clear();
        self.owners.give_back(index, peers);
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

    /// The most things.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
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
