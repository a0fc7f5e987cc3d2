//! Keyed hashes of connections and clients, and a hash table. The connection table finds a TCB by
//! the hash of its addresses and ports. A second table finds clients (see
//! [`Peers`](crate::pools::Peers)).

use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;

use ahash::RandomState;
use ip::Addresses;
use siphasher::sip::SipHasher24;

use crate::wire::Seq;

/// The secret keys of all hashes: for the tables, and for sequence numbers, timestamps and cookies.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    table: RandomState,
    sequence: (u64, u64),
}

impl Keys {
    pub(crate) fn new(secret: [u64; 4]) -> Self {
        let [a, b, c, d] = secret;
        // The fast hash of the tables may leak its seeds, for example through the time that lookups
        // take. The seeds therefore reveal nothing about the key of sequence numbers.
        let seed = |number| {
            let mut hasher = SipHasher24::new_with_keys(c, d);
            hasher.write_u64(number);
            hasher.finish()
        };
        Self {
            table: RandomState::with_seeds(seed(0), seed(1), seed(2), seed(3)),
            sequence: (a, b),
        }
    }

    /// Returns the hash of a connection for the table. In `addresses` the peer is the source.
    #[inline(always)]
    pub(crate) fn hash(&self, addresses: &Addresses, src_port: u16, dst_port: u16) -> u32 {
        let mut hasher = self.table.build_hasher();
        feed(&mut hasher, addresses, both(src_port, dst_port));
        hasher.finish() as u32
    }

    /// Returns two secret offsets of a connection, one for its initial sequence number and one for
    /// its timestamps (RFC 7323, section 5.4). So timestamps do not reveal our uptime. But they
    /// still increase from one connection to the next with the same addresses and ports.
    pub(crate) fn offsets(
        &self,
        addresses: &Addresses,
        src_port: u16,
        dst_port: u16,
    ) -> (Seq, u32) {
        let mut hasher = SipHasher24::new_with_keys(self.sequence.0, self.sequence.1);
        feed(&mut hasher, addresses, both(src_port, dst_port) as u32);
        let secret = hasher.finish();
        (Seq(secret as u32), (secret >> 32) as u32)
    }

    /// Returns a keyed hash of a connection and of the two numbers in `about`.
    /// [`offsets`](Self::offsets) hashes a shorter input with the same key, so neither result
    /// reveals the other.
    pub(crate) fn mac(
        &self,
        addresses: &Addresses,
        (src_port, dst_port): (u16, u16),
        about: [u64; 2],
    ) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.sequence.0, self.sequence.1);
        feed(&mut hasher, addresses, both(src_port, dst_port) as u32);
        hasher.write_u64(about[0]);
        hasher.write_u64(about[1]);
        hasher.finish()
    }

    /// Returns the hash that identifies a client. The hash covers a whole IPv4 address. Of an IPv6
    /// address, it covers the first `ipv6_prefix` bits, because a client can usually use all
    /// addresses of its network.
    pub(crate) fn hash_peer(&self, peer: IpAddr, ipv6_prefix: u8) -> u64 {
        let mut hasher = self.table.build_hasher();
        match peer {
            IpAddr::V4(address) => hasher.write_u32(address.to_bits()),
            IpAddr::V6(address) => {
                let host_bits = u128::BITS - u32::from(ipv6_prefix);
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                hasher.write_u128(address.to_bits() & mask);
            }
        }
        hasher.finish()
    }
}

/// Returns both ports of a connection in the lower 32 bits of one number.
#[inline(always)]
fn both(src_port: u16, dst_port: u16) -> u64 {
    u64::from(src_port) << 16 | u64::from(dst_port)
}

/// Feeds a connection to a hasher. `ports` has the width that suits the hasher: the fast hash takes
/// 64 bits at a time, and `SipHash` needs fewer rounds for 32 bits.
#[inline(always)]
fn feed(hasher: &mut impl Hasher, addresses: &Addresses, ports: impl Hash) {
    match addresses {
        Addresses::V4 { src, dst } => {
            hasher.write_u64(u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()));
            ports.hash(hasher);
        }
        Addresses::V6 { src, dst } => {
            hasher.write_u128(src.to_bits());
            hasher.write_u128(dst.to_bits());
            ports.hash(hasher);
        }
    }
}

/// An open-addressed hash table of TCBs (or client addresses), at most half full, with linear
/// probing. Removal moves later entries back instead of leaving tombstones. So an old table is as
/// fast as a new one, and is never rebuilt.
#[derive(Debug)]
pub(crate) struct Table {
    /// Each place holds a hash and a TCB index plus one, or [`FREE`] instead of the index.
    places: Box<[(u32, u32)]>,
    mask: usize,
    len: u32,
}

/// Marks a free place. TCB indices are stored plus one, so that zeroed memory is an empty table.
const FREE: u32 = 0;

/// Returns the number of places in a table for `capacity` TCBs: a power of two, at least twice
/// `capacity`.
fn places(capacity: u32) -> usize {
    (capacity as usize * 2).next_power_of_two().max(2)
}

impl Table {
    /// Returns the size of a table for `capacity` TCBs, in bytes.
    pub(crate) fn bytes(capacity: u32) -> usize {
        places(capacity) * size_of::<(u32, u32)>()
    }

    /// Creates a table for `capacity` TCBs. A page of physical memory is used only when one of its
    /// places is filled.
    pub(crate) fn new(capacity: u32) -> Self {
        let places = places(capacity);
        Self {
            places: vec![(0, FREE); places].into_boxed_slice(),
            mask: places - 1,
            len: 0,
        }
    }

    /// Returns the number of entries in the table.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Finds a TCB by its hash. Different TCBs may have the same hash, so `is_it` tells whether a
    /// TCB is the wanted one.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = hash as usize & self.mask;
        loop {
            let (place_hash, stored) = self.places[at];
            if stored == FREE {
                return None;
            }
            if place_hash == hash && is_it(stored - 1) {
                return Some(stored - 1);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a TCB that is not yet in the table.
    pub(crate) fn insert(&mut self, hash: u32, id: u32) {
        // Searches end at a free place, so there must always be one.
        assert!((self.len as usize) < self.mask, "the table is full");
        let mut at = hash as usize & self.mask;
        while self.places[at].1 != FREE {
            at = (at + 1) & self.mask;
        }
        self.places[at] = (hash, id + 1);
        self.len += 1;
    }

    /// Removes a TCB. Returns `false` if it is not in the table.
    pub(crate) fn remove(&mut self, hash: u32, id: u32) -> bool {
        let mut gap = hash as usize & self.mask;
        while self.places[gap] != (hash, id + 1) {
            if self.places[gap].1 == FREE {
                return false;
            }
            gap = (gap + 1) & self.mask;
        }
        // Move a later entry into the gap if a search would otherwise stop before it. Then continue
        // with the gap that the entry leaves.
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let (hash, stored) = self.places[at];
            if stored == FREE {
                break;
            }
            let home = hash as usize & self.mask;
            let from_home = at.wrapping_sub(home) & self.mask;
            let from_gap = at.wrapping_sub(gap) & self.mask;
            if from_home >= from_gap {
                self.places[gap] = (hash, stored);
                gap = at;
            }
        }
        self.places[gap] = (0, FREE);
        self.len -= 1;
        true
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
