//! The prepared answers of one zone.

use std::sync::Arc;

use super::answer::Answer;
use super::denial::Denial;
use super::node::{Kind, Node};
use super::size::Size;
use crate::groups::NO_GROUP;
use crate::index::{At, Entries, Table};
use crate::key::{self, Form, Hashing, Key};
use crate::name;
use crate::zone_records::ZoneRecords;

/// Number of cache lines of most answers with signatures.
const SIGNED_LINES: usize = 4;

/// The prepared answers of one zone. They hold data of this zone only, so another zone can change
/// without them.
///
/// There are two hash tables. The entries of each table lie in one contiguous buffer. The first table holds the answers, keyed by type and name. Key and answer are adjacent
/// in memory, so comparing the key also loads the start of the answer into the cache. The second
/// table holds the names. It determines how to answer a query for which the first table has no
/// answer.
///
/// The first cache line has all that the look-up of an answer needs.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ZoneAnswers {
    /// The key of the zone's name.
    apex: Box<[u8]>,
    by_type: Table,
    prepared: Entries,
    form: Form,
    /// The number of the group in which the zone's replies are counted.
    group: u8,
    is_broken: bool,
    by_name: Table,
    nodes: Entries,
    hashing: Hashing,
    version: Option<ZoneVersion>,
    size: Size,
    denial: Option<Denial>,
    /// The records, if clients may ask for a transfer of the zone.
    records: Option<Arc<ZoneRecords>>,
}

/// What is known of the version of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneVersion {
    /// Number of labels of the zone's name.
    pub(crate) labels: u8,
    /// The serial of the SOA record.
    pub(crate) serial: u32,
    /// The time after which a secondary server gives up the zone, in seconds.
    pub(crate) expire: u32,
    /// When the first signature of the zone expires, in seconds since 1970.
    pub(crate) signed_until: Option<u32>,
}

impl ZoneAnswers {
    /// Combines the parts that a builder has made: the entries and tables of answers and names.
    pub(super) fn new(
        hashing: Hashing,
        apex: &[u8],
        [prepared, nodes]: [Entries; 2],
        [by_type, by_name]: [Table; 2],
        version: Option<ZoneVersion>,
        size: Size,
        denial: Option<Denial>,
    ) -> Self {
        Self {
            apex: apex.into(),
            by_type,
            prepared,
            form: hashing.form(),
            group: NO_GROUP,
            is_broken: false,
            by_name,
            nodes,
            hashing,
            version,
            size,
            denial,
            records: None,
        }
    }

    /// Creates a zone that could not be loaded. Queries for names in it get SERVFAIL.
    pub(crate) fn broken(hashing: Hashing, apex: &[u8]) -> Self {
        let mut key = Key::new();
        key.set(&hashing, apex);
        let entries = [Entries::default(), Entries::default()];
        let tables = [Table::new(&[]), Table::new(&[])];
        Self {
            is_broken: true,
            ..Self::new(
                hashing,
                key.bytes(),
                entries,
                tables,
                None,
                Size::default(),
                None,
            )
        }
    }

    /// Keeps the records of the zone for transfers.
    pub(crate) fn set_records(&mut self, records: ZoneRecords) {
        self.size.memory += records.memory();
        self.records = Some(Arc::new(records));
    }

    /// Returns the records of the zone, if they are kept.
    pub(crate) fn records(&self) -> Option<&Arc<ZoneRecords>> {
        self.records.as_ref()
    }

    /// Counts the zone's replies in the group with this number.
    pub(crate) fn set_group(&mut self, group: u8) {
        self.group = group;
    }

    /// Returns the number of the group in which the zone's replies are counted.
    #[inline(always)]
    pub(crate) fn group(&self) -> u8 {
        self.group
    }

    /// Returns the key of the zone's name.
    #[inline(always)]
    pub(super) fn apex(&self) -> &[u8] {
        &self.apex
    }

    /// Returns true if the zone could not be loaded.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns the version of the zone. It is `None` if the zone could not be loaded.
    pub(crate) fn version(&self) -> Option<ZoneVersion> {
        self.version
    }

    /// Returns the index of the zone's proofs, or `None` if the zone is not signed.
    #[inline(always)]
    pub(crate) fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }

    /// Returns the size of the zone's answers.
    pub(crate) fn size(&self) -> &Size {
        &self.size
    }

    /// Returns how the names of the zone become keys and hashes.
    #[inline(always)]
    pub(crate) fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    /// Returns the prepared answer for a type and the name with this key. Never finds an answer for a
    /// name that a hook answers for.
    #[inline(always)]
    pub(crate) fn find(&self, qtype: u16, key: &Key) -> Option<Answer<'_>> {
        self.find_by(key.hash_with(qtype), qtype, key.bytes())
    }

    #[inline(always)]
    fn find_by(&self, hash: u64, qtype: u16, key: &[u8]) -> Option<Answer<'_>> {
        let is_it = |at| Answer::is_for(self.prepared.at(at), qtype, key);
        let at = self.by_type.find(hash, is_it)?;
        let bytes = self.prepared.at(at);
        Some(Answer::with_key(self.form, bytes, at, key.len()))
    }

    /// Like [`find`](Self::find), for a name that a hook answers for.
    pub(super) fn find_behind_hook(&self, qtype: u16, key: &Key) -> Option<Answer<'_>> {
        self.find_by(behind_hook(key.hash_with(qtype)), qtype, key.bytes())
    }

    /// Prefetches the index slot of an answer: the first memory access of a lookup.
    #[inline(always)]
    pub(crate) fn fetch_slot(&self, hash: u64) {
        self.by_type.prefetch(hash);
    }

    /// Prefetches the key of the zone's name.
    #[inline(always)]
    pub(super) fn fetch_apex(&self) {
        nmio::prefetch(&*self.apex);
    }

    /// Prefetches the answer itself: the second memory access of a lookup. The slot should already
    /// be in the cache, because this method reads it. Returns false if there is probably no answer.
    #[inline(always)]
    pub(crate) fn fetch_answer(&self, hash: u64, is_signed: bool) -> bool {
        let found = self.by_type.guess(hash);
        if let Some(at) = found {
            self.fetch_answer_at(at, is_signed);
        }
        found.is_some()
    }

    /// Prefetches the answer at this position, with its signatures if `is_signed` is set.
    #[inline(always)]
    pub(crate) fn fetch_answer_at(&self, at: At, is_signed: bool) {
        if is_signed {
            self.prepared.prefetch_lines(at, SIGNED_LINES);
        } else {
            self.prepared.prefetch(at);
        }
    }

    /// Returns the hash of the name with this key.
    pub(crate) fn hash_of_name(&self, key: &[u8]) -> u64 {
        self.hashing.hash(key)
    }

    /// Prefetches the slot of the name with this hash.
    pub(crate) fn fetch_node_slot(&self, hash: u64) {
        self.by_name.prefetch(hash);
    }

    /// Prefetches the node of the name with this hash. Its slot should already be in the cache.
    pub(crate) fn fetch_node(&self, hash: u64) {
        if let Some(at) = self.by_name.guess(hash) {
            self.nodes.prefetch(at);
        }
    }

    /// Returns the answer at this position.
    #[inline(always)]
    pub(crate) fn answer(&self, at: At) -> Answer<'_> {
        Answer::new(self.form, self.prepared.at(at), at)
    }

    /// Returns the wire-format length of the zone's name.
    pub(crate) fn apex_len(&self) -> usize {
        key::wire_len(self.form, self.apex.len())
    }

    /// Appends the sort key of a name of the zone.
    pub(crate) fn append_sort_key(&self, sort_key: &mut Vec<u8>, name: &[u8]) {
        let apex = &name[name.len() - self.apex_len()..];
        name::append_sort_key(sort_key, name, apex);
    }

    /// Returns true if there is a zone cut at the name with this key.
    pub(crate) fn has_cut(&self, key: &[u8]) -> bool {
        self.ancestor(key)
            .is_some_and(|node| node.kind == Kind::Cut)
    }

    /// Returns the node of the name with this key, or `None` if the name is not in the index.
    pub(crate) fn node(&self, key: &Key) -> Option<Node> {
        self.node_by(key.hash(), key.bytes())
    }

    /// Like [`node`](Self::node), for an ancestor of a name. `key` is the end of the name's key.
    pub(crate) fn ancestor(&self, key: &[u8]) -> Option<Node> {
        self.node_by(self.hash_of_name(key), key)
    }

    fn node_by(&self, hash: u64, key: &[u8]) -> Option<Node> {
        let is_it = |at| Node::key(self.nodes.at(at)) == key;
        Node::read(self.nodes.at(self.by_name.find(hash, is_it)?))
    }
}

/// Converts the hash of a type and name to the hash under which the answer is stored if a hook
/// answers for the name. A normal lookup thus misses the answer, so the hook is asked first.
pub(super) const fn behind_hook(hash: u64) -> u64 {
    !hash
}

const _: () = assert!(std::mem::offset_of!(ZoneAnswers, by_name) <= 64);

#[cfg(test)]
mod tests {
    use super::super::answer::Variant;
    use super::super::builder::ZoneBuilder;
    use super::*;
    use crate::hooked::HookedNames;

    #[test]
    fn memory_counts_the_zone_with_its_entries_and_tables() {
        let hooked = HookedNames::default();
        let mut builder = ZoneBuilder::new(Hashing::new(Form::Wire, [1, 2, 3, 4]), &hooked, (1, 1));
        let variant = Variant {
            tail: &[7; 10],
            ..Variant::default()
        };
        let name = b"\x01a\x00";
        builder.add_answer((1, name), true, &variant, None).unwrap();
        builder.add_node(name, Node::bare(Kind::Plain)).unwrap();
        let answers = builder.finish(name, None, 1, None);
        // An answer and a node take a cache line each, and both tables have two slots.
        let zone = size_of::<ZoneAnswers>() + name.len();
        assert_eq!(answers.size().memory, 2 * 64 + 2 * 2 * 8 + zone);
    }
}
