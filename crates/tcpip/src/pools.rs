//! Bounded pools of slots, and accounting: which connection holds each slot, and how many slots
//! each client address holds.

use std::ops::{Index, IndexMut};

use crate::table::Table;

/// Takes the place of an index if there is none.
pub(crate) const NONE: u32 = u32::MAX;

/// Identifies a bounded pool whose slots connections hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pool {
    /// TCBs, one for each connection.
    Connections,
    /// Receive buffers.
    RecvBuffers,
    /// Buffers for written bytes that belong to no content item.
    WriteBuffers,
    /// Lists of stream entries.
    EntryLists,
    /// Scoreboards of the second of three sizes. (Scoreboards of the smallest size need no pool.)
    Boards,
    /// Scoreboards of the third and largest size.
    LargeBoards,
}

impl Pool {
    pub(crate) const COUNT: usize = Self::LargeBoards as usize + 1;
}

/// A client address, or an IPv6 network that counts as one address.
#[derive(Debug)]
struct Peer {
    /// Hash from [`Keys::hash_peer`](crate::table::Keys::hash_peer). Peers with equal hashes count
    /// as one.
    hash: u64,
    /// Number of slots held in each pool. The entry is free if the number for [`Pool::Connections`]
    /// is 0.
    held: [u32; Pool::COUNT],
}

/// Client addresses with established connections, and the slots that they hold.
///
/// Entries never move, so the hash table can store their indices.
#[derive(Debug)]
pub(crate) struct Peers {
    table: Table,
    list: Vec<Peer>,
    free: Vec<u32>,
    /// Total number of slots of each pool.
    sizes: [u32; Pool::COUNT],
    /// The holder of each slot, by pool. The vector for [`Pool::Connections`] stays empty, because
    /// the slots of that pool are the connections themselves.
    owners: [Vec<Owner>; Pool::COUNT],
}

impl Peers {
    /// Returns the memory that [`new`](Self::new) reserves for `connections` connections, in bytes.
    pub(crate) fn bytes(connections: u32) -> usize {
        let each = size_of::<Peer>() + size_of::<u32>();
        Table::bytes(connections) + connections as usize * each
    }

    /// Creates an empty collection for pools of these sizes. Physical memory is used only when
    /// entries are added.
    pub(crate) fn new(sizes: [u32; Pool::COUNT]) -> Self {
        let connections = sizes[Pool::Connections as usize];
        Self {
            table: Table::new(connections),
            list: Vec::with_capacity(connections as usize),
            free: Vec::with_capacity(connections as usize),
            sizes,
            owners: Default::default(),
        }
    }

    /// Returns the index of the peer with this hash, or `None` if the peer has no connections.
    pub(crate) fn find(&self, hash: u64) -> Option<u32> {
        let is_it = |index: u32| self.list[index as usize].hash == hash;
        self.table.find(hash as u32, is_it)
    }

    /// Counts a connection of the peer with this hash, and returns the peer's index. There is
    /// always room for a new peer, because peers never outnumber connections.
    pub(crate) fn join(&mut self, hash: u64) -> u32 {
        let index = self.find(hash).unwrap_or_else(|| self.add(hash));
        self.count(index, Pool::Connections);
        index
    }

    // Not inlined, so that counting one more connection of a known peer takes few registers.
    #[inline(never)]
    fn add(&mut self, hash: u64) -> u32 {
        let held = [0; Pool::COUNT];
        let index = if let Some(index) = self.free.pop() {
            self.list[index as usize] = Peer { hash, held };
            index
        } else {
            self.list.push(Peer { hash, held });
            self.list.len() as u32 - 1
        };
        self.table.insert(hash as u32, index);
        index
    }

    /// Stops counting a connection of the peer. The connection must have released all its other
    /// slots. Removes the peer after its last connection.
    pub(crate) fn leave(&mut self, index: u32) {
        self.discount(index, Pool::Connections);
        if self.held(index, Pool::Connections) == 0 {
            self.remove(index);
        }
    }

    #[inline(never)]
    fn remove(&mut self, index: u32) {
        let hash = self.list[index as usize].hash;
        let known = self.table.remove(hash as u32, index);
        debug_assert!(known, "every peer is in the table");
        self.free.push(index);
    }

    /// Counts a slot of `pool` that a connection of the peer has taken.
    fn count(&mut self, index: u32, pool: Pool) {
        if let Some(peer) = self.list.get_mut(index as usize) {
            peer.held[pool as usize] += 1;
        }
    }

    /// Subtracts a slot of `pool` that a connection of the peer has released.
    fn discount(&mut self, index: u32, pool: Pool) {
        if let Some(peer) = self.list.get_mut(index as usize) {
            let held = &mut peer.held[pool as usize];
            debug_assert!(*held > 0, "the slot was counted");
            *held = held.saturating_sub(1);
        }
    }

    /// Returns the number of slots of `pool` that the peer holds. Returns 0 for [`NONE`].
    pub(crate) fn held(&self, index: u32, pool: Pool) -> u32 {
        let peer = self.list.get(index as usize);
        peer.map_or(0, |peer| peer.held[pool as usize])
    }

    /// Returns the total number of slots of a pool.
    pub(crate) fn size(&self, pool: Pool) -> u32 {
        self.sizes[pool as usize]
    }

    /// Returns the owners of all slots of a pool that were ever taken. The owner of a free slot has
    /// the id [`NONE`].
    pub(crate) fn owners(&self, pool: Pool) -> &[Owner] {
        &self.owners[pool as usize]
    }

    /// Records that `owner` takes a free slot.
    pub(crate) fn take(&mut self, pool: Pool, slot: u32, owner: Owner) {
        let (list, slot) = (&mut self.owners[pool as usize], slot as usize);
        if slot >= list.len() {
            let (id, peer) = (NONE, NONE);
            list.resize(slot + 1, Owner { id, peer });
        }
        list[slot] = owner;
        self.count(owner.peer, pool);
    }

    /// Records that the holder of a slot releases it.
    pub(crate) fn give_back(&mut self, pool: Pool, slot: u32) {
        let owner = &mut self.owners[pool as usize][slot as usize];
        owner.id = NONE;
        let peer = owner.peer;
        self.discount(peer, pool);
    }

    /// Returns the number of peers with connections, and the total number of slots they hold in
    /// each pool.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn totals(&self) -> (usize, [u32; Pool::COUNT]) {
        let mut held = [0; Pool::COUNT];
        let used = self.list.iter().filter(|peer| peer.held[0] > 0);
        for peer in used.clone() {
            for (sum, of_peer) in held.iter_mut().zip(peer.held) {
                *sum += of_peer;
            }
        }
        (used.count(), held)
    }
}

/// A connection that holds or needs a slot of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// Index of the connection's TCB, or [`NONE`].
    pub(crate) id: u32,
    /// Index of the client in [`Peers`], or [`NONE`].
    pub(crate) peer: u32,
}

/// Number of slots of each [`LendingPool`] that keep their memory even if it is not needed.
const MIN_KEPT: usize = 64;

/// A resource that a [`LendingPool`] can lend.
pub(crate) trait Lendable: Default {
    /// Empties the resource for the next holder, but keeps its memory.
    fn clear(&mut self);
}

/// A bounded pool that lends its slots to connections.
///
/// A released slot keeps its memory until [`trim`](Self::trim) frees that memory, so a steady state
/// needs no allocations.
#[derive(Debug)]
pub(crate) struct LendingPool<T> {
    list: Vec<T>,
    free: FreeList,
    pool: Pool,
    limit: u32,
}

impl<T> Index<u32> for LendingPool<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        &self.list[index as usize]
    }
}

impl<T> IndexMut<u32> for LendingPool<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.list[index as usize]
    }
}

impl<T: Lendable> LendingPool<T> {
    /// Creates a pool of at most `limit` slots.
    pub(crate) fn new(pool: Pool, limit: u32) -> Self {
        Self {
            list: Vec::new(),
            free: FreeList::default(),
            pool,
            limit,
        }
    }

    /// Lends an empty slot to `owner`. If the slot has no memory yet, the caller must allocate it.
    /// Returns `None` if all slots are in use.
    pub(crate) fn take(&mut self, owner: Owner, peers: &mut Peers) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.list.len() < self.limit as usize => {
                self.list.push(T::default());
                self.free.has_taken();
                self.list.len() as u32 - 1
            }
            None => return None,
        };
        peers.take(self.pool, index, owner);
        Some(index)
    }

    /// Takes a slot back from its holder.
    pub(crate) fn release(&mut self, index: u32, peers: &mut Peers) {
        self.list[index as usize].clear();
        peers.give_back(self.pool, index);
        self.free.push(index);
    }

    /// Returns true if [`take`](Self::take) would succeed.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty() || self.list.len() < self.limit as usize
    }

    /// Returns true if more than [`MIN_KEPT`] free slots hold memory, so that [`trim`](Self::trim)
    /// may free some of it.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.free.has_surplus()
    }

    /// Frees the memory of one free slot if that memory was not needed since the last
    /// [`reset_peak`](Self::reset_peak). Returns true if memory was freed.
    pub(crate) fn trim(&mut self) -> bool {
        let slot = self.free.next_surplus();
        if let Some(slot) = slot {
            self.list[slot as usize] = T::default();
        }
        slot.is_some()
    }

    /// Restarts the measurement of the peak number of slots in use.
    pub(crate) fn reset_peak(&mut self) {
        self.free.reset_peak();
    }

    /// Returns the number of slots in use.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn in_use(&self) -> usize {
        self.free.in_use()
    }

    /// Returns all slots that were ever taken.
    #[cfg(test)]
    pub(crate) fn all(&self) -> &[T] {
        &self.list
    }
}

/// The free slots of a pool, in the order of their release. The slot released last is reused first.
///
/// Memory is freed from the front of `slots`, because those slots have been free for longest.
#[derive(Debug, Default)]
struct FreeList {
    slots: Vec<u32>,
    /// Number of slots at the front of `slots` whose memory has been freed.
    without_memory: usize,
    in_use: usize,
    /// Maximum number of slots in use at the same time since [`reset_peak`](Self::reset_peak).
    peak: usize,
}

impl FreeList {
    /// Removes and returns the slot released last.
    fn pop(&mut self) -> Option<u32> {
        let slot = self.slots.pop()?;
        self.without_memory = self.without_memory.min(self.slots.len());
        self.has_taken();
        Some(slot)
    }

    /// Counts one more slot as in use.
    fn has_taken(&mut self) {
        self.in_use += 1;
        self.peak = self.peak.max(self.in_use);
    }

    /// Adds a released slot.
    fn push(&mut self, slot: u32) {
        self.slots.push(slot);
        self.in_use -= 1;
    }

    /// Returns true if there is no free slot.
    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the number of slots in use.
    #[cfg(any(test, feature = "fuzzing"))]
    fn in_use(&self) -> usize {
        self.in_use
    }

    /// Returns true if more than [`MIN_KEPT`] free slots hold memory.
    #[inline]
    fn has_surplus(&self) -> bool {
        self.slots.len() > self.without_memory + MIN_KEPT
    }

    /// Returns a free slot whose memory was not needed since the last
    /// [`reset_peak`](Self::reset_peak), even at the peak. The caller must free that memory.
    /// Returns `None` if there is no such slot.
    fn next_surplus(&mut self) -> Option<u32> {
        let with_memory = self.in_use + self.slots.len() - self.without_memory;
        if with_memory <= self.peak.max(MIN_KEPT) {
            return None;
        }
        let slot = self.slots.get(self.without_memory).copied();
        self.without_memory += usize::from(slot.is_some());
        slot
    }

    /// Restarts the measurement of the peak number of slots in use.
    fn reset_peak(&mut self) {
        self.peak = self.in_use;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn peers_agree_with_a_hash_map(steps in prop::collection::vec((any::<bool>(), 0u64..12), 1..300)) {
            let mut peers = Peers::new([20; Pool::COUNT]);
            let mut map: HashMap<u64, (u32, u32)> = HashMap::new();
            // Use hashes near the end of the table, so that probing wraps around.
            let hash_of = |peer: u64| peer / 3 + 61;
            let mut connections = 0;
            for (joins, peer) in steps {
                let hash = hash_of(peer) | peer << 32;
                if joins && connections < 20 {
                    let index = peers.join(hash);
                    let entry = map.entry(hash).or_insert((index, 0));
                    prop_assert_eq!(entry.0, index, "an entry never moves");
                    entry.1 += 1;
                    connections += 1;
                } else if let Some((index, count)) = map.get_mut(&hash) {
                    peers.leave(*index);
                    *count -= 1;
                    connections -= 1;
                    if *count == 0 {
                        map.remove(&hash);
                    }
                }
                for peer in 0..12 {
                    let hash = hash_of(peer) | peer << 32;
                    let found = peers.find(hash).map(|index| (index, peers.held(index, Pool::Connections)));
                    prop_assert_eq!(found, map.get(&hash).copied());
                }
                prop_assert_eq!(peers.totals().1[0], connections);
            }
        }
    }

    #[test]
    fn unused_memory_is_freed_after_a_while() {
        let mut list = FreeList::default();
        for _ in 0..1_000 {
            list.has_taken();
        }
        (0..1_000).for_each(|slot| list.push(slot));
        assert!(list.has_surplus());
        assert_eq!(list.next_surplus(), None, "all slots were in use just now");
        list.reset_peak();
        let given_back: Vec<u32> = std::iter::from_fn(|| list.next_surplus()).collect();
        // The slots released first lose their memory.
        assert!(given_back.into_iter().eq(0..936));
        assert!(!list.has_surplus());
        // Slots that still have memory are reused first.
        for slot in (936..1_000).rev() {
            assert_eq!(list.pop(), Some(slot));
        }
        assert_eq!(list.pop(), Some(935));
        assert_eq!(list.in_use(), 65);
        list.push(935);
        assert_eq!(list.next_surplus(), None);
        list.reset_peak();
        assert_eq!(list.next_surplus(), Some(935), "64 slots keep their memory");
        assert_eq!(list.next_surplus(), None);
    }

    #[test]
    fn slots_in_use_within_one_period_keep_their_memory() {
        let mut list = FreeList::default();
        for _ in 0..500 {
            list.has_taken();
        }
        for _ in 0..10 {
            (0..500).for_each(|slot| list.push(slot));
            for _ in 0..500 {
                assert!(list.pop().is_some());
            }
            list.reset_peak();
            assert_eq!(list.next_surplus(), None);
        }
    }
}
