//! The records of one zone: sorted, grouped into names and RRsets, and classified by authority.
//!
//! A [`Zone`] is the intermediate form between the master file and the prepared answers. It is
//! dropped after the answers have been prepared.

use std::collections::HashSet;
use std::ops::Range;

use crate::name;
use crate::rdata;
use crate::rtype;

/// One record. All offsets are positions in the zone's `bytes`.
#[derive(Clone, Copy, Debug)]
struct StoredRecord {
    /// Offset and length of the owner name.
    owner: (u32, u8),
    /// Offset and length of the owner's sort key.
    key: (u32, u16),
    /// Offset and length of the record data.
    data: (u32, u16),
    rtype: u16,
    ttl: u32,
    place: Place,
}

/// The position of a record in the zone's files.
///
/// The default is the whole first file of the zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Index of the file, from 0. Each included file has its own index.
    pub file: u16,
    /// Line number, from 1; 0 stands for the whole file.
    pub line: u32,
    /// Column, from 1; 0 stands for the whole entry.
    pub column: u16,
}

impl Place {
    /// Returns the place of a whole line, or of a whole file if `line` is 0.
    pub fn of_line(file: u16, line: u32) -> Self {
        Self {
            file,
            line,
            column: 0,
        }
    }
}

/// The status of a name in the zone that holds its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStatus {
    /// The zone is authoritative for all records of the name.
    Authoritative,
    /// The name is a zone cut, which is the apex of a delegated zone. This zone serves only the DS
    /// records and the referral.
    Cut,
    /// The name is below a zone cut. The name's addresses are glue, and its other records are not
    /// served.
    BelowCut,
    /// The name is below a DNAME, so queries for the name are redirected and its records are never
    /// served.
    BelowDname,
}

/// An owner name and its RRsets.
#[derive(Clone, Debug)]
struct Node {
    /// Index of the name's first record, which holds the owner and its sort key.
    record: u32,
    rrsets: Range<u32>,
    status: NameStatus,
}

/// An RRset: its records and its TTL in seconds.
#[derive(Clone, Debug)]
struct Set {
    records: Range<u32>,
    ttl: u32,
}

/// A zone under construction.
#[derive(Debug)]
pub(crate) struct Builder {
    apex: Box<[u8]>,
    bytes: Vec<u8>,
    records: Vec<StoredRecord>,
}

/// The reason why a record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// The record's owner is not within the zone.
    OutOfZone,
    /// The zone's bytes would exceed 4 GiB, the range of 32-bit offsets.
    TooLarge,
}

impl Builder {
    /// Creates an empty zone.
    pub(crate) fn new(apex: &[u8]) -> Self {
        Self {
            apex: apex.into(),
            bytes: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Returns the zone's name.
    pub(crate) fn apex(&self) -> &[u8] {
        &self.apex
    }

    /// Returns the number of records added so far.
    pub(crate) fn record_count(&self) -> usize {
        self.records.len()
    }

    /// Adds a record. The caller must have checked that `owner` and `data` are valid and in
    /// uncompressed wire format.
    ///
    /// # Errors
    ///
    /// See [`PushError`].
    pub(crate) fn push(
        &mut self,
        owner: &[u8],
        rtype: u16,
        ttl: u32,
        data: &[u8],
        place: Place,
    ) -> Result<(), PushError> {
        if !name::is_within(owner, &self.apex) {
            return Err(PushError::OutOfZone);
        }
        // The owner, its sort key (at most twice as long) and the data may be appended.
        let max_len = self.bytes.len() + 3 * name::MAX_NAME + data.len();
        if u32::try_from(max_len).is_err() {
            return Err(PushError::TooLarge);
        }
        let same_owner = self.records.last().filter(|last| {
            let (at, len) = last.owner;
            self.bytes[at as usize..][..usize::from(len)] == *owner
        });
        let (owner, key) = if let Some(last) = same_owner {
            (last.owner, last.key)
        } else {
            let at = self.bytes.len();
            self.bytes.extend_from_slice(owner);
            let key_at = self.bytes.len();
            name::append_sort_key(&mut self.bytes, owner, &self.apex);
            let key_len = self.bytes.len() - key_at;
            (
                (at as u32, owner.len() as u8),
                (key_at as u32, key_len as u16),
            )
        };
        let data_at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(data);
        self.records.push(StoredRecord {
            owner,
            key,
            data: (data_at, data.len() as u16),
            rtype,
            ttl,
            place,
        });
        Ok(())
    }

    /// Finishes the zone: sorts the records, and groups them into names and RRsets. Drops duplicate
    /// records and passes their places to `duplicate` (RFC 2181, section 5). The TTL of an RRset is
    /// the lowest TTL of its records (RFC 2181, section 5.2).
    pub(crate) fn finish(mut self, mut duplicate: impl FnMut(Place)) -> Zone {
        let bytes = &self.bytes;
        let key =
            |record: &StoredRecord| &bytes[record.key.0 as usize..][..usize::from(record.key.1)];
        let data =
            |record: &StoredRecord| &bytes[record.data.0 as usize..][..usize::from(record.data.1)];
        // The sort is stable, so the records of an RRset remain in the order of the file.
        self.records
            .sort_by(|a, b| key(a).cmp(key(b)).then(a.rtype.cmp(&b.rtype)));
        let mut records: Vec<StoredRecord> = Vec::with_capacity(self.records.len());
        let (mut nodes, mut sets) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for same_name in self.records.chunk_by(|a, b| key(a) == key(b)) {
            let first_record = records.len() as u32;
            let first_set = sets.len() as u32;
            for same_type in same_name.chunk_by(|a, b| a.rtype == b.rtype) {
                let start = records.len() as u32;
                if let [one] = same_type {
                    records.push(*one);
                } else {
                    seen.clear();
                    for record in same_type {
                        if seen.insert(rdata::canonical(record.rtype, data(record))) {
                            records.push(*record);
                        } else {
                            duplicate(record.place);
                        }
                    }
                }
                sets.push(Set {
                    records: start..records.len() as u32,
                    ttl: same_type.iter().map(|r| r.ttl).min().unwrap_or(0),
                });
            }
            nodes.push(Node {
                record: first_record,
                rrsets: first_set..sets.len() as u32,
                status: NameStatus::Authoritative,
            });
        }
        drop(seen);
        let mut zone = Zone {
            apex: self.apex,
            bytes: self.bytes,
            records,
            nodes,
            sets,
        };
        zone.classify();
        zone
    }
}

/// A zone: its owner names in canonical order, each with its RRsets.
#[derive(Debug)]
pub struct Zone {
    apex: Box<[u8]>,
    bytes: Vec<u8>,
    records: Vec<StoredRecord>,
    nodes: Vec<Node>,
    sets: Vec<Set>,
}

impl Zone {
    /// Returns the zone's name in wire format.
    pub fn apex(&self) -> &[u8] {
        &self.apex
    }

    /// Returns the number of records. Duplicates are not counted.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of RRsets.
    pub(crate) fn rrset_count(&self) -> usize {
        self.sets.len()
    }

    /// Returns the owner names in canonical order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = NameRef<'_>> {
        (0..self.nodes.len()).map(|index| NameRef { zone: self, index })
    }

    /// Returns the apex, or `None` if the apex has no records.
    pub fn apex_name(&self) -> Option<NameRef<'_>> {
        self.find(&[]).ok()
    }

    /// Finds the owner name with this sort key.
    ///
    /// # Errors
    ///
    /// If no owner name has this key, returns the index at which it would have to be inserted.
    pub fn find(&self, key: &[u8]) -> Result<NameRef<'_>, usize> {
        self.nodes
            .binary_search_by(|node| self.key_of(node).cmp(key))
            .map(|index| NameRef { zone: self, index })
    }

    /// Returns true if the name with this sort key, or a name below it, has records.
    pub fn exists(&self, key: &[u8]) -> bool {
        match self.find(key) {
            Ok(_) => true,
            Err(at) => self
                .nodes
                .get(at)
                .is_some_and(|node| self.key_of(node).starts_with(key)),
        }
    }

    /// Returns true if `name`, or a name below it, has records. `name` must be within the zone.
    pub(crate) fn exists_name(&self, name: &[u8]) -> bool {
        let mut key = Vec::new();
        name::append_sort_key(&mut key, name, &self.apex);
        self.exists(&key)
    }

    /// Returns what hides `name`, which must be within the zone, from queries:
    /// [`NameStatus::Cut`] if the name is at or below a zone cut, or [`NameStatus::BelowDname`].
    pub(crate) fn hidden_by(&self, name: &[u8]) -> Option<NameStatus> {
        let mut key = Vec::new();
        name::append_sort_key(&mut key, name, &self.apex);
        // The sort key of an ancestor is the part of `key` up to the end of one of its labels.
        let ends = key.iter().enumerate().filter(|(_, byte)| **byte == 0);
        let mut ends = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
        ends.find_map(|end| {
            let found = self.find(&key[..end]).ok()?;
            if found.status() == NameStatus::Cut {
                return Some(NameStatus::Cut);
            }
            let is_below_dname = end < key.len() && found.rrset(rtype::DNAME).is_some();
            is_below_dname.then_some(NameStatus::BelowDname)
        })
    }

    /// Returns the address RRsets of `name`, which may be authoritative data or glue. Returns none
    /// for a name that is not within the zone.
    pub(crate) fn addresses(
        &self,
        name: &[u8],
    ) -> impl Iterator<Item = (NameRef<'_>, RrsetRef<'_>)> {
        let mut key = Vec::new();
        let is_within = name::is_within(name, &self.apex);
        if is_within {
            name::append_sort_key(&mut key, name, &self.apex);
        }
        let found = self
            .find(&key)
            .ok()
            .filter(|found| is_within && found.status() != NameStatus::BelowDname);
        let rrsets = found.into_iter().flat_map(|name| {
            let rrsets = name.rrsets();
            rrsets.map(move |rrset| (name, rrset))
        });
        rrsets.filter(|(_, rrset)| matches!(rrset.rtype(), rtype::A | rtype::AAAA))
    }

    fn key_of(&self, node: &Node) -> &[u8] {
        let (at, len) = self.records[node.record as usize].key;
        &self.bytes[at as usize..][..usize::from(len)]
    }

    /// Determines the status of every name in one pass over the sorted names.
    fn classify(&mut self) {
        let mut hiding: Option<(Vec<u8>, NameStatus)> = None;
        for index in 0..self.nodes.len() {
            let name = NameRef { zone: self, index };
            let key = name.key();
            let below = match &hiding {
                Some((top, status)) if key.starts_with(top) => Some(*status),
                _ => None,
            };
            let status = if let Some(status) = below {
                status
            } else if !key.is_empty() && name.rrset(rtype::NS).is_some() {
                hiding = Some((key.to_vec(), NameStatus::BelowCut));
                NameStatus::Cut
            } else {
                if name.rrset(rtype::DNAME).is_some() {
                    hiding = Some((key.to_vec(), NameStatus::BelowDname));
                }
                NameStatus::Authoritative
            };
            self.nodes[index].status = status;
        }
    }
}

/// An owner name of a zone.
#[derive(Clone, Copy, Debug)]
pub struct NameRef<'z> {
    zone: &'z Zone,
    index: usize,
}

impl<'z> NameRef<'z> {
    fn node(self) -> &'z Node {
        &self.zone.nodes[self.index]
    }

    /// Returns true if `self` and `other` are the same owner name of the same zone.
    pub fn is(self, other: Self) -> bool {
        std::ptr::eq(self.zone, other.zone) && self.index == other.index
    }

    /// Returns the zone that the name belongs to.
    pub fn zone(self) -> &'z Zone {
        self.zone
    }

    /// Returns the name in wire format, with upper and lower case as in the file.
    pub fn owner(self) -> &'z [u8] {
        let (at, len) = self.zone.records[self.node().record as usize].owner;
        &self.zone.bytes[at as usize..][..usize::from(len)]
    }

    /// Returns the sort key of the name; see [`name::append_sort_key`].
    pub fn key(self) -> &'z [u8] {
        self.zone.key_of(self.node())
    }

    /// Returns the empty non-terminals above the name that are not yet known (RFC 4592, section 2.2.2):
    /// the name of each, and its sort key. `last_key` is the sort key of the previous name, whose
    /// ancestors are known.
    pub(crate) fn empty_non_terminals(
        self,
        last_key: &[u8],
    ) -> impl Iterator<Item = (&'z [u8], &'z [u8])> {
        let (key, zone) = (self.key(), self.zone);
        let ends = key.iter().enumerate().filter(|(_, byte)| **byte == 0);
        // Each end is the length of an ancestor's sort key, except the last, which is the name's.
        let ends = ends.map(|(at, _)| at + 1).enumerate();
        ends.filter_map(move |(labels, end)| {
            let ancestor = &key[..end];
            let is_known =
                end == key.len() || last_key.starts_with(ancestor) || zone.find(ancestor).is_ok();
            let owner = || ancestor_of(self.owner(), &zone.apex, labels + 1);
            (!is_known).then(|| (owner(), ancestor))
        })
    }

    /// Returns the status of the name in its zone.
    pub fn status(self) -> NameStatus {
        self.node().status
    }

    /// Returns the RRsets of the name, ordered by type.
    pub fn rrsets(self) -> impl ExactSizeIterator<Item = RrsetRef<'z>> {
        let Range { start, end } = self.node().rrsets;
        (start as usize..end as usize).map(move |index| RrsetRef {
            zone: self.zone,
            index,
        })
    }

    /// Returns the RRset of type `rtype`, if the name has one.
    pub fn rrset(self, rtype: u16) -> Option<RrsetRef<'z>> {
        self.rrsets().find(|set| set.rtype() == rtype)
    }
}

/// Returns the ancestor of `name` that has `labels` more labels than `apex`.
fn ancestor_of<'a>(name: &'a [u8], apex: &[u8], labels: usize) -> &'a [u8] {
    let below = name.len() - apex.len();
    let starts: Vec<_> = name::label_starts(name)
        .take_while(|start| *start < below)
        .collect();
    &name[starts[starts.len() - labels]..]
}

/// An RRset: all records of one name and type (RFC 2181, section 5).
#[derive(Clone, Copy, Debug)]
pub struct RrsetRef<'z> {
    zone: &'z Zone,
    index: usize,
}

impl<'z> RrsetRef<'z> {
    fn set(self) -> &'z Set {
        &self.zone.sets[self.index]
    }

    fn records(self) -> &'z [StoredRecord] {
        let Range { start, end } = self.set().records;
        &self.zone.records[start as usize..end as usize]
    }

    /// Returns the type of the records.
    pub fn rtype(self) -> u16 {
        self.records()[0].rtype
    }

    /// Returns the TTL of the records, in seconds.
    pub fn ttl(self) -> u32 {
        self.set().ttl
    }

    /// Returns the data of each record, uncompressed, in the order of the file.
    pub fn data(self) -> impl ExactSizeIterator<Item = &'z [u8]> {
        let zone = self.zone;
        self.records()
            .iter()
            .map(move |r| &zone.bytes[r.data.0 as usize..][..usize::from(r.data.1)])
    }

    /// Returns the data of each record as [`data`](Self::data) does, and its TTL in the file. Signatures
    /// of different RRsets have different TTLs.
    pub(crate) fn records_with_ttl(self) -> impl Iterator<Item = (&'z [u8], u32)> {
        self.data()
            .zip(self.records().iter().map(|record| record.ttl))
    }

    /// Returns the place in the zone's files of the RRset's first record.
    pub fn place(self) -> Place {
        self.records()[0].place
    }

    /// Returns the place and TTL of the first record whose TTL differs from the RRset's TTL.
    pub fn other_ttl(self) -> Option<(Place, u32)> {
        let ttl = self.ttl();
        let other = self.records().iter().find(|record| record.ttl != ttl);
        other.map(|record| (record.place, record.ttl))
    }

    /// Returns the places of all records except the first.
    pub fn further_places(self) -> impl Iterator<Item = Place> {
        self.records()[1..].iter().map(|record| record.place)
    }
}
