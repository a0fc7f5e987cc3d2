//! The prepared answers in memory.
//!
//! A small index of apexes leads to the zone of a name. Each zone has an index of its own, in which
//! most queries need only a single lookup. The answers of a zone hold no data of other zones. So
//! another zone can change without them, and all generations of answers share what did not change.

mod answer;
mod apexes;
mod builder;
mod denial;
mod node;
mod resolve;
mod size;
mod zone_answers;

use std::sync::Arc;

pub(crate) use answer::{Answer, Required, Variant};
pub(crate) use builder::ZoneBuilder;
pub(crate) use denial::{Denial, Descent, Hashes, Names};
pub(crate) use node::{Kind, NONE, Node, Proofs};
pub(crate) use resolve::{Foreseen, Resolution, Search};
pub use size::Size;
pub(crate) use zone_answers::{ZoneAnswers, ZoneVersion};

pub(crate) use crate::zone_number::ZoneNumber;

use apexes::Apexes;

use crate::groups::GroupLabels;
use crate::index::At;
use crate::key::{self, Form, Hashing, Key};
use crate::rtype;
use crate::zone_counts::ZoneCounts;

/// Identifies a prepared answer among all [`Answers`] of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerId {
    pub(crate) zone: ZoneNumber,
    pub(crate) at: At,
}

impl AnswerId {
    /// Returns a hash of the identifier. It needs no seed, because the identifier is a position, which
    /// clients cannot choose to cause collisions.
    #[inline(always)]
    pub(crate) fn hash(self) -> u64 {
        key::mix(u64::from(self.zone.0) << 32 | u64::from(self.at))
    }
}

/// The prepared answers of all zones. They never change, so all workers share them without locks.
/// To serve new zone data, prepare new `Answers`.
#[derive(Debug)]
pub struct Answers {
    apexes: Apexes,
    has_hooked: bool,
    size: Size,
    group_labels: GroupLabels,
    /// Shared by all generations of answers whose zones have the same numbers.
    zone_counts: Arc<ZoneCounts>,
}

impl Answers {
    /// Combines the answers of zones with distinct names. `group_labels` are the labels of the
    /// groups that the zones are counted in. `has_hooked` is whether a hook answers for some names.
    pub(crate) fn new(
        hashing: Hashing,
        zones: Vec<Arc<ZoneAnswers>>,
        group_labels: GroupLabels,
        has_hooked: bool,
    ) -> Self {
        let mut size = Size::default();
        for zone in &zones {
            size += *zone.size();
        }
        Self {
            zone_counts: Arc::new(ZoneCounts::new(zones.len())),
            apexes: Apexes::new(hashing, zones),
            has_hooked,
            size,
            group_labels,
        }
    }

    /// Returns answers in which other zones have replaced some zones, which are given by their numbers in
    /// the list that [`new`](Self::new) was given. Each new zone has the name of the old one. This is
    /// cheaper than `new`, because the index of apexes stays.
    pub(crate) fn with_zones<'z>(
        &self,
        zones: impl Iterator<Item = (usize, &'z Arc<ZoneAnswers>)>,
        group_labels: GroupLabels,
    ) -> Self {
        let mut next = Self {
            apexes: self.apexes.clone(),
            has_hooked: self.has_hooked,
            size: self.size,
            group_labels,
            zone_counts: Arc::clone(&self.zone_counts),
        };
        for (number, zone) in zones {
            let old = next.apexes.replace(number, Arc::clone(zone));
            next.size += *zone.size();
            next.size -= *old.size();
        }
        next
    }

    /// Returns the number of the zone named `apex` in the list that [`new`](Self::new) was given.
    pub(crate) fn number_of(&self, apex: &[u8]) -> Option<usize> {
        let mut key = Key::new();
        key.set(self.hashing(), apex);
        let number = self.apexes.find(key.bytes(), key.hash());
        let is_it = self.zone(number)?.apex() == key.bytes();
        is_it.then(|| number.position())
    }

    /// Returns the form in which the index stores names.
    #[inline(always)]
    pub fn form(&self) -> Form {
        self.apexes.hashing().form()
    }

    /// Returns the size of the prepared answers.
    pub fn size(&self) -> &Size {
        &self.size
    }

    /// Returns the labels of the zone groups.
    #[inline(always)]
    pub(crate) fn group_labels(&self) -> &GroupLabels {
        &self.group_labels
    }

    /// Returns the counts of the zones, which have the zones' numbers.
    pub(crate) fn zone_counts(&self) -> &Arc<ZoneCounts> {
        &self.zone_counts
    }

    /// Returns true if a hook answers for at least one name.
    pub(crate) fn has_hooked(&self) -> bool {
        self.has_hooked
    }

    /// Returns the zone with this number, if there is one.
    #[inline(always)]
    pub(crate) fn zone(&self, number: ZoneNumber) -> Option<&ZoneAnswers> {
        self.apexes.zone(number)
    }

    /// Returns how names become keys and hashes.
    #[inline(always)]
    pub(crate) fn hashing(&self) -> &Hashing {
        self.apexes.hashing()
    }

    /// Returns the number of the zone that answers a query for `qtype` at the name with this key. It
    /// is the zone with the longest apex, or the zone above it if the type is DS.
    #[inline(always)]
    pub(crate) fn zone_of(&self, qtype: u16, key: &Key) -> ZoneNumber {
        if qtype == rtype::DS {
            return self.signer_of(key);
        }
        self.apexes.find(key.bytes(), key.hash())
    }

    /// Returns the number of the zone to search for a prepared answer. A single zone is searched for
    /// every name, because to look up an answer is cheaper than to compare the ends of names. If it has
    /// none, [`if_within`](Self::if_within) tells whether the zone is the right one.
    #[inline(always)]
    pub(crate) fn zone_to_search(&self, qtype: u16, key: &Key) -> ZoneNumber {
        if self.has_many_zones() {
            self.zone_of(qtype, key)
        } else {
            ZoneNumber(0)
        }
    }

    /// Returns the number of a [zone to search](Self::zone_to_search) if the name with this key is within
    /// the zone.
    pub(crate) fn if_within(&self, number: ZoneNumber, key: &Key) -> ZoneNumber {
        if self.has_many_zones() {
            number
        } else {
            self.apexes.find(key.bytes(), key.hash())
        }
    }

    /// Returns the number of the zone that has the DS records of a name (RFC 4035, section 3.1.4.1).
    /// For an apex, it is the zone above. If that zone has no delegation, it denies the name, as in NSD
    /// and Knot DNS. A zone that delegates a name in between is not the parent. Without a delegation,
    /// queries for a zone that could not be loaded get SERVFAIL.
    #[cold]
    fn signer_of(&self, key: &Key) -> ZoneNumber {
        let own = self.apexes.find(key.bytes(), key.hash());
        let key = key.bytes();
        let Some(parent) = self.form().parent(key, 0) else {
            return own;
        };
        let hash = self.hashing().hash(&key[parent..]);
        let number = self.apexes.find(&key[parent..], hash);
        let is_broken = self.zone(own).is_some_and(ZoneAnswers::is_broken);
        let above = |start: &usize| self.form().parent(key, *start);
        let mut between = std::iter::successors(Some(parent), above);
        let is_parent = |zone: &ZoneAnswers| {
            zone.has_cut(key) || !is_broken && !between.any(|start| zone.has_cut(&key[start..]))
        };
        if self.zone(number).is_some_and(is_parent) {
            number
        } else {
            own
        }
    }

    /// Returns true if there are several zones, so that [`fetch_apex_slot`](Self::fetch_apex_slot) and
    /// the methods after it pay off.
    #[inline(always)]
    pub(crate) fn has_many_zones(&self) -> bool {
        self.apexes.are_many()
    }

    /// Prefetches where the search for the zone of a name begins: the first memory access of a search.
    /// Returns a hash for the next methods.
    #[inline(always)]
    pub(crate) fn fetch_apex_slot(&self, key: &Key) -> u64 {
        self.apexes.fetch_slot(key)
    }

    /// Prefetches the zone whose name probably has this hash: the second memory access.
    #[inline(always)]
    pub(crate) fn fetch_zone(&self, apex_hash: u64) {
        if let Some(zone) = self.apexes.guess(apex_hash) {
            nmio::prefetch(&**zone);
        }
    }

    /// Prefetches the name of this zone, and the slot of an answer: the third memory access.
    #[inline(always)]
    pub(crate) fn fetch_in_zone(&self, apex_hash: u64, hash: u64) {
        if let Some(zone) = self.apexes.guess(apex_hash) {
            zone.fetch_apex();
            zone.fetch_slot(hash);
        }
    }
}
