//! Bounded pools: what is lent, who holds it, and what each client address holds
//! of every bounded thing.

mod lent;

pub(crate) use lent::{Lendable, Lent};

use crate::table::places;

/// The number of no slot.
pub(crate) const NONE: u32 = u32::MAX;

/// A bounded thing that connections hold a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pool {
    /// Places in the connection table.
    Connections,
    /// Receive buffers.
    RecvBuffers,
    /// Buffers for bytes that are no content.
    WriteBuffers,
    /// Lists of stream entries.
    EntryLists,
    /// Scoreboards of the second size.
    Boards,
    /// Scoreboards of the third size.
    LargeBoards,
}

impl Pool {
    pub(crate) const COUNT: usize = Self::LargeBoards as usize + 1;
    /// The pools of scoreboards larger than the smallest, by their size.
    pub(crate) const BOARDS: [Self; 2] = [Self::Boards, Self::LargeBoards];
}

/// One client address, or one IPv6 network.
#[derive(Debug)]
struct Peer {
    /// From [`Keys::hash_peer`](crate::table::Keys::hash_peer). Two peers are
    /// taken as one if all 64 bits agree.
    hash: u64,
    /// Parts held of each pool. Of [`Pool::Connections`] 0 is a free entry.
    held: [u32; Pool::COUNT],
}

/// All client addresses with established connections: a list that does not
/// move its entries, and an open-addressed table of their indices, at most half
/// full, with linear probing.
#[derive(Debug)]
pub(crate) struct Peers {
    /// One more than an index; 0 is free.
    places: Box<[u32]>,
    mask: usize,
    list: Vec<Peer>,
    free: Vec<u32>,
    /// How many parts each pool has.
    sizes: [u32; Pool::COUNT],
    /// Who holds each slot of a pool; [`Pool::Connections`] are not listed here.
    owners: [Vec<Owner>; Pool::COUNT],
}

impl Peers {
    /// Bytes for at most `connections` connections.
    pub(crate) fn bytes(connections: u32) -> usize {
        let each = size_of::<Peer>() + size_of::<u32>();
        places(connections) * size_of::<u32>() + connections as usize * each
    }

    /// For pools of so many parts. Memory is touched when it is used.
    pub(crate) fn new(sizes: [u32; Pool::COUNT]) -> Self {
        let connections = sizes[Pool::Connections as usize];
        let places = places(connections);
        Self {
            places: vec![0; places].into_boxed_slice(),
            mask: places - 1,
            list: Vec::with_capacity(connections as usize),
            free: Vec::with_capacity(connections as usize),
            sizes,
            owners: Default::default(),
        }
    }

    /// The place of a hash, or the free place where it would be.
    fn place(&self, hash: u64) -> usize {
        let mut at = hash as usize & self.mask;
        while let Some(index) = self.places[at].checked_sub(1) {
            if self.list[index as usize].hash == hash {
                break;
            }
            at = (at + 1) & self.mask;
        }
        at
    }

    /// The peer with this hash, if it has connections.
    pub(crate) fn find(&self, hash: u64) -> Option<u32> {
        self.places[self.place(hash)].checked_sub(1)
    }

    /// One more connection of the peer with this hash. There are never more
    /// peers than connections, and so there is a place.
    pub(crate) fn join(&mut self, hash: u64) -> u32 {
        let at = self.place(hash);
        let index = match self.places[at].checked_sub(1) {
            Some(index) => index,
            None => self.add(at, hash),
        };
        self.count(index, Pool::Connections);
        index
    }

    fn add(&mut self, at: usize, hash: u64) -> u32 {
        let held = [0; Pool::COUNT];
        let index = if let Some(index) = self.free.pop() {
            self.list[index as usize] = Peer { hash, held };
            index
        } else {
            self.list.push(Peer { hash, held });
            self.list.len() as u32 - 1
        };
        self.places[at] = index + 1;
        index
    }

    /// One connection less, which has given back all that it held.
    pub(crate) fn leave(&mut self, index: u32) {
        self.discount(index, Pool::Connections);
        if self.held(index, Pool::Connections) == 0 {
            self.remove(index);
        }
    }

    fn remove(&mut self, index: u32) {
        let mut gap = self.place(self.list[index as usize].hash);
        // Close the gap with whatever would no longer be found behind it.
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let Some(other) = self.places[at].checked_sub(1) else {
                break;
            };
            let home = self.list[other as usize].hash as usize & self.mask;
            if at.wrapping_sub(home) & self.mask >= at.wrapping_sub(gap) & self.mask {
                self.places[gap] = other + 1;
                gap = at;
            }
        }
        self.places[gap] = 0;
        self.free.push(index);
    }

    /// A connection of the peer has taken a part of `pool`.
    fn count(&mut self, index: u32, pool: Pool) {
        if let Some(peer) = self.list.get_mut(index as usize) {
            peer.held[pool as usize] += 1;
        }
    }

    /// A connection of the peer has given a part of `pool` back.
    fn discount(&mut self, index: u32, pool: Pool) {
        if let Some(peer) = self.list.get_mut(index as usize) {
            let held = &mut peer.held[pool as usize];
            debug_assert!(*held > 0, "it was taken");
            *held = held.saturating_sub(1);
        }
    }

    /// Parts of `pool` that the peer holds; 0 for [`NONE`].
    pub(crate) fn held(&self, index: u32, pool: Pool) -> u32 {
        let peer = self.list.get(index as usize);
        peer.map_or(0, |peer| peer.held[pool as usize])
    }

    /// How many parts a pool has.
    pub(crate) fn size(&self, pool: Pool) -> u32 {
        self.sizes[pool as usize]
    }

    /// Slots of a pool that were ever held, and those before them.
    pub(crate) fn slots(&self, pool: Pool) -> usize {
        self.owners[pool as usize].len()
    }

    /// The connection that holds a slot of a pool.
    pub(crate) fn holder(&self, pool: Pool, slot: u32) -> Option<u32> {
        let owner = self.owners[pool as usize].get(slot as usize)?;
        (owner.id != NONE).then_some(owner.id)
    }

    /// `owner` takes a slot that nobody holds.
    pub(crate) fn take(&mut self, pool: Pool, slot: u32, owner: Owner) {
        let (list, slot) = (&mut self.owners[pool as usize], slot as usize);
        if slot >= list.len() {
            let (id, peer) = (NONE, NONE);
            list.resize(slot + 1, Owner { id, peer });
        }
        list[slot] = owner;
        self.count(owner.peer, pool);
    }

    /// The holder of a slot gives it back.
    pub(crate) fn give_back(&mut self, pool: Pool, slot: u32) {
        let owner = &mut self.owners[pool as usize][slot as usize];
        owner.id = NONE;
        let peer = owner.peer;
        self.discount(peer, pool);
    }

    /// Peers that have connections, and what all of them hold.
    #[cfg(any(test, fuzzing))]
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

/// A connection that holds a part of a pool, or asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// Of its TCB; [`NONE`] where there is none.
    pub(crate) id: u32,
    /// Its client's entry in [`Peers`], or [`NONE`].
    pub(crate) peer: u32,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_hash_map(steps in prop::collection::vec((any::<bool>(), 0u64..12), 1..300)) {
            let mut peers = Peers::new([20; Pool::COUNT]);
            let mut map: HashMap<u64, (u32, u32)> = HashMap::new();
            // Hashes at the end of the table, so that runs wrap.
            let hash_of = |peer: u64| peer / 3 + 61;
            let mut connections = 0;
            for (joins, peer) in steps {
                let hash = hash_of(peer) | peer << 32;
                if joins && connections < 20 {
                    let index = peers.join(hash);
                    let entry = map.entry(hash).or_insert((index, 0));
                    prop_assert_eq!(entry.0, index, "it does not move");
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
}
