//! The prepared answers in memory, with an index so that most queries need only a single lookup.
//!
//! There are two hash tables. The entries of each table lie in an arena, which is one contiguous
//! buffer. The first table holds the answers, keyed by type and name. Key and answer are adjacent
//! in memory, so comparing the key also loads the start of the answer into the cache. The second
//! table holds the names. It determines how to answer a query for which the first table has no
//! answer.

use ahash::RandomState;
use ip::Sum;
use udpip::Tail;

use crate::groups::{GroupLabels, Groups};
use crate::hooked::{Hooked, HookedNames};
use crate::index::{Arena, ArenaFull, At, Table, UNIT};
use crate::key::{self, Form, Key};

/// A position that stands for "no answer".
pub(crate) const NONE: At = At::MAX;

/// The kind of a name, which decides how queries for it and for names below it are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A name in one of our zones that is none of the kinds below. Queries for types that the name
    /// does not have get NODATA.
    Plain,
    /// A CNAME owner. Queries for types that the owner does not have are answered by following the
    /// alias.
    Alias,
    /// A zone cut, or a name between a cut and one of our zones below that cut. Queries for this
    /// name and for names below it get a referral. Exceptions are queries for DS at a cut, and for
    /// names in our zones below.
    Cut,
    /// A DNAME owner: names below the owner are substituted (RFC 6672).
    Dname,
    /// A name above our zones that is in none of them: queries get REFUSED.
    Outside,
    /// A name in a zone that could not be loaded: queries get SERVFAIL.
    Broken,
}

const KINDS: [Kind; 6] = [
    Kind::Plain,
    Kind::Alias,
    Kind::Cut,
    Kind::Dname,
    Kind::Outside,
    Kind::Broken,
];

/// A name in the index, with the positions of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kind of the name.
    pub kind: Kind,
    /// Whether a wildcard exists directly below the name.
    pub has_wildcard: bool,
    /// Whether a hook answers for the name, and whether for all names below it. If either flag is
    /// set, `negative` is set too.
    pub(crate) hooked: Hooked,
    /// Position of the answer for NODATA and NXDOMAIN, which holds the zone's SOA record. It is
    /// [`NONE`] if the node needs no such answer.
    pub negative: At,
    /// Position of the answer to ANY, which holds the RRsets of the name that fit one message. It
    /// is [`NONE`] if the name has no records or is a zone cut.
    pub any: At,
    /// Position of an answer that depends on the node's kind, or [`NONE`] if the kind has no such
    /// answer:
    ///
    /// - alias: the answer for all types that have no prepared answer;
    /// - cut: the referral;
    /// - DNAME owner: the DNAME record.
    pub default: At,
}

impl Node {
    /// Creates a node without answers.
    pub(crate) const fn bare(kind: Kind) -> Self {
        Self {
            kind,
            has_wildcard: false,
            hooked: Hooked::NOTHING,
            negative: NONE,
            any: NONE,
            default: NONE,
        }
    }
}

/// Size of the fields before a node's key, in bytes: key length, kind, wildcard flag, hooked flags,
/// and three positions of answers.
const NODE_HEADER: usize = 16;

/// The header fields of a prepared answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The type asked for. It is 0 if the answer is found only through a [`Node`], not by type and
    /// name.
    pub qtype: u16,
    /// The lower four bits of the response code, as in a message header.
    pub rcode: u8,
    /// Whether the AA flag is set.
    pub authoritative: bool,
    /// Number of records in the answer, authority and additional sections.
    pub counts: [u16; 3],
}

/// The part of a tail that a reply with records always includes. The additional records after this
/// part are left out if the message would be too long with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Required {
    /// Length of this part of the tail, in bytes.
    pub len: usize,
    /// Number of additional records in this part.
    pub additional: u16,
}

/// Size of the header before a prepared answer's key, in bytes.
const HEADER: usize = 14;
const RCODE: u8 = 0x0f;
const AUTHORITATIVE: u8 = 0x10;
/// Flag: the answer has optional records. Three 16-bit words follow the tail: the required part's
/// length, checksum and number of additional records.
const OPTIONAL: u8 = 0x20;
/// Flag: the answer has compression pointers that must be adjusted for a longer qname. Their number
/// and offsets follow the tail, after the three words of [`OPTIONAL`] if there are any.
const FIXUPS: u8 = 0x40;

/// A prepared answer in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The bytes from the answer's header to the end of the arena.
    bytes: &'a [u8],
    at: At,
}

impl<'a> Answer<'a> {
    #[inline(always)]
    fn header(&self) -> &'a [u8; HEADER] {
        self.bytes
            .first_chunk()
            .expect("every prepared answer has a whole header")
    }

    #[inline(always)]
    fn word(&self, at: usize) -> u16 {
        let header = self.header();
        u16::from_be_bytes([header[at], header[at + 1]])
    }

    /// Returns the answer's position, which identifies it.
    #[inline(always)]
    pub fn at(&self) -> At {
        self.at
    }

    #[inline(always)]
    fn qtype(&self) -> u16 {
        self.word(0)
    }

    #[inline(always)]
    fn key_len(&self) -> usize {
        usize::from(self.header()[2])
    }

    #[inline(always)]
    fn key(&self) -> &'a [u8] {
        &self.bytes[HEADER..][..self.key_len()]
    }

    /// Returns the lower four bits of the response code, as in a message header.
    #[inline(always)]
    pub fn rcode(&self) -> u8 {
        self.header()[3] & RCODE
    }

    /// Returns true if the AA flag is set.
    #[inline(always)]
    pub fn is_authoritative(&self) -> bool {
        self.header()[3] & AUTHORITATIVE != 0
    }

    /// Returns the numbers of answer, authority and additional records, encoded as in a message
    /// header: two bytes each.
    #[inline(always)]
    pub fn counts(&self) -> [u8; 6] {
        let header = self.header();
        [
            header[8], header[9], header[10], header[11], header[12], header[13],
        ]
    }

    #[inline(always)]
    fn tail_at(&self) -> usize {
        HEADER + self.key_len()
    }

    /// Returns the whole tail.
    #[inline(always)]
    pub fn tail(&self) -> Tail<'a> {
        Tail {
            bytes: &self.bytes[self.tail_at()..][..usize::from(self.word(4))],
            sum: Sum::from_folded(self.word(6)),
        }
    }

    /// Returns the 16-bit word at `index` among the words that follow the tail.
    fn trailer_word(&self, index: usize) -> u16 {
        let at = self.tail_at() + usize::from(self.word(4)) + 2 * index;
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Returns the tail without its optional records, and the number of additional records that
    /// this shorter tail holds. Returns `None` if the answer has no optional records.
    #[inline(always)]
    pub fn required(&self) -> Option<(Tail<'a>, u16)> {
        let has_optional = self.header()[3] & OPTIONAL != 0;
        has_optional.then(|| self.without_optional())
    }

    #[inline(never)]
    fn without_optional(&self) -> (Tail<'a>, u16) {
        let tail = Tail {
            bytes: &self.tail().bytes[..usize::from(self.trailer_word(0))],
            sum: Sum::from_folded(self.trailer_word(1)),
        };
        (tail, self.trailer_word(2))
    }

    /// Returns the offsets of the fixups in the tail. A fixup is a compression pointer that must be
    /// adjusted if the qname is longer than the name for which the answer was prepared.
    pub fn fixups(&self) -> impl Iterator<Item = usize> + use<'a> {
        let flags = self.header()[3];
        let first = if flags & OPTIONAL == 0 { 0 } else { 3 };
        let count = if flags & FIXUPS == 0 {
            0
        } else {
            usize::from(self.trailer_word(first))
        };
        let answer = *self;
        (first + 1..first + 1 + count).map(move |index| usize::from(answer.trailer_word(index)))
    }
}

/// The size of the prepared answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of zones.
    pub zones: usize,
    /// Number of names in the index that belong to the zones, including empty non-terminals.
    pub names: usize,
    /// Number of records in the zones.
    pub records: usize,
    /// Number of prepared answers.
    pub answers: usize,
    /// Size of answers and index in memory, in bytes.
    pub memory: usize,
}

/// Builds the tables of answers and names.
#[derive(Debug)]
pub(crate) struct AnswersBuilder {
    form: Form,
    hasher: RandomState,
    hooked: HookedNames,
    answers: Arena,
    nodes: Arena,
    answer_entries: Vec<(u64, At)>,
    node_entries: Vec<(u64, At)>,
    key: Key,
    answer_count: usize,
    name_count: usize,
    groups: Groups,
}

impl AnswersBuilder {
    /// Creates an empty builder. `hooked` is the set of names that a hook answers for.
    pub(crate) fn new(form: Form, seed: [u64; 4], hooked: HookedNames) -> Self {
        let [a, b, c, d] = seed;
        Self {
            form,
            hasher: RandomState::with_seeds(a, b, c, d),
            hooked,
            answers: Arena::default(),
            nodes: Arena::default(),
            answer_entries: Vec::new(),
            node_entries: Vec::new(),
            key: Key::new(),
            answer_count: 0,
            name_count: 0,
            groups: Groups::default(),
        }
    }

    /// Knows the labels of earlier groups.
    pub(crate) fn with_group_labels(self, labels: GroupLabels) -> Self {
        Self {
            groups: Groups::new(labels),
            ..self
        }
    }

    /// Puts the next answers into the zone group with this label.
    pub(crate) fn begin_group(&mut self, label: &str) {
        self.groups.begin(self.answers.end(), label);
    }

    /// Puts the next answers into no zone group.
    pub(crate) fn end_groups(&mut self) {
        self.groups.end(self.answers.end());
    }

    /// Adds an answer to questions for `name`, and returns the answer's position. If the type in
    /// `meta` is not 0, the answer can be found by type and name. If a hook answers for `name`,
    /// only [`Answers::find_behind_hook`] finds the answer.
    pub(crate) fn add_answer(
        &mut self,
        name: &[u8],
        meta: Meta,
        tail: &[u8],
        required: Option<Required>,
        fixups: &[u16],
    ) -> Result<At, ArenaFull> {
        self.key.set(self.form, name);
        let key = self.key.bytes();
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&meta.qtype.to_be_bytes());
        header[2] = key.len() as u8;
        header[3] = meta.rcode & RCODE;
        header[4..6].copy_from_slice(&(tail.len() as u16).to_be_bytes());
        header[6..8].copy_from_slice(&Sum::of(tail).fold().to_be_bytes());
        for (at, count) in meta.counts.iter().enumerate() {
            header[8 + 2 * at..][..2].copy_from_slice(&count.to_be_bytes());
        }
        if meta.authoritative {
            header[3] |= AUTHORITATIVE;
        }
        let mut trailer = Vec::new();
        if let Some(required) = required {
            header[3] |= OPTIONAL;
            trailer.extend((required.len as u16).to_be_bytes());
            trailer.extend(Sum::of(&tail[..required.len]).fold().to_be_bytes());
            trailer.extend(required.additional.to_be_bytes());
        }
        if !fixups.is_empty() {
            header[3] |= FIXUPS;
            trailer.extend((fixups.len() as u16).to_be_bytes());
            for fixup in fixups {
                trailer.extend(fixup.to_be_bytes());
            }
        }
        let at = self.answers.push(&[&header, key, tail, &trailer])?;
        self.answer_count += 1;
        if meta.qtype != 0 {
            let hash = key::hash(&self.hasher, meta.qtype, key);
            let is_hooked = self.hooked.of(name).itself();
            let hash = if is_hooked { behind_hook(hash) } else { hash };
            self.answer_entries.push((hash, at));
        }
        Ok(at)
    }

    /// Adds a name to the table of names.
    pub(crate) fn add_node(&mut self, name: &[u8], node: &Node) -> Result<(), ArenaFull> {
        self.key.set(self.form, name);
        let key = self.key.bytes();
        let mut header = [0; NODE_HEADER];
        header[0] = key.len() as u8;
        header[1] = node.kind as u8;
        header[2] = u8::from(node.has_wildcard);
        if node.negative != NONE {
            header[3] = self.hooked.of(name).0;
        }
        for (at, answer) in [node.negative, node.any, node.default].iter().enumerate() {
            header[4 + 4 * at..][..4].copy_from_slice(&answer.to_be_bytes());
        }
        let at = self.nodes.push(&[&header, key])?;
        self.name_count += usize::from(!matches!(node.kind, Kind::Outside | Kind::Broken));
        self.node_entries
            .push((key::hash(&self.hasher, 0, key), at));
        Ok(())
    }

    /// Builds the hash tables and returns the finished answers.
    pub(crate) fn finish(mut self, zones: usize, records: usize) -> Answers {
        self.answers.finish();
        self.nodes.finish();
        let by_type = Table::new(&self.answer_entries);
        let by_name = Table::new(&self.node_entries);
        let memory =
            self.answers.memory() + self.nodes.memory() + by_type.memory() + by_name.memory();
        Answers {
            size: Size {
                zones,
                names: self.name_count,
                records,
                answers: self.answer_count,
                memory,
            },
            form: self.form,
            hasher: self.hasher,
            has_hooked: !self.hooked.is_empty(),
            prepared: self.answers,
            nodes: self.nodes,
            by_type,
            by_name,
            groups: self.groups,
        }
    }
}

/// The prepared answers of all zones. They never change, so all workers share them without locks.
/// To serve new zone data, prepare new `Answers`.
#[derive(Debug)]
pub struct Answers {
    form: Form,
    hasher: RandomState,
    has_hooked: bool,
    prepared: Arena,
    nodes: Arena,
    by_type: Table,
    by_name: Table,
    size: Size,
    groups: Groups,
}

impl Answers {
    /// Returns the form in which the index stores names.
    #[inline(always)]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns the size of the prepared answers.
    pub fn size(&self) -> &Size {
        &self.size
    }

    /// Returns the zone groups.
    #[inline(always)]
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns true if a hook answers for at least one name.
    pub(crate) fn has_hooked(&self) -> bool {
        self.has_hooked
    }

    /// Returns the prepared answer for a type and a name. `key` is the name's key. Never finds an
    /// answer for a name that a hook answers for.
    #[inline(always)]
    pub fn find(&self, qtype: u16, key: &[u8]) -> Option<Answer<'_>> {
        self.find_hashed(self.hash(qtype, key), qtype, key)
    }

    /// Returns the hash by which the answer for a type and name is found.
    #[inline(always)]
    pub(crate) fn hash(&self, qtype: u16, key: &[u8]) -> u64 {
        key::hash(&self.hasher, qtype, key)
    }

    /// Like [`find`](Self::find), for callers that have already computed the [`hash`](Self::hash).
    #[inline(always)]
    pub(crate) fn find_hashed(&self, hash: u64, qtype: u16, key: &[u8]) -> Option<Answer<'_>> {
        self.by_type
            .find(hash, |at| {
                let answer = self.answer(at);
                answer.qtype() == qtype && answer.key() == key
            })
            .map(|at| self.answer(at))
    }

    /// Like [`find_hashed`](Self::find_hashed), for a name that a hook answers for.
    pub(crate) fn find_behind_hook(&self, hash: u64, qtype: u16, key: &[u8]) -> Option<Answer<'_>> {
        self.find_hashed(behind_hook(hash), qtype, key)
    }

    /// Prefetches the index slot of an answer: the first memory access of a lookup.
    #[inline(always)]
    pub(crate) fn fetch_slot(&self, hash: u64) {
        self.by_type.prefetch(hash);
    }

    /// Prefetches the answer itself: the second memory access of a lookup. The slot should already
    /// be in the cache, because this method reads it.
    #[inline(always)]
    pub(crate) fn fetch_answer(&self, hash: u64) {
        if let Some(at) = self.by_type.guess(hash) {
            self.prepared.prefetch(at);
        }
    }

    /// Returns the answer at this position in the arena.
    #[inline(always)]
    pub(crate) fn answer(&self, at: At) -> Answer<'_> {
        Answer {
            bytes: self.prepared.at(at),
            at,
        }
    }

    /// Returns the wire-format length of the name that an answer was prepared for.
    pub(crate) fn name_len(&self, answer: &Answer<'_>) -> usize {
        key::wire_len(self.form, answer.key_len())
    }

    /// Returns the node of the name with this key, or `None` if the name is not in the index.
    pub fn node(&self, key: &[u8]) -> Option<Node> {
        let hash = key::hash(&self.hasher, 0, key);
        let at = self.by_name.find(hash, |at| {
            let node = self.nodes.at(at);
            usize::from(node[0]) == key.len() && node[NODE_HEADER..].starts_with(key)
        })?;
        let header: &[u8; NODE_HEADER] = self.nodes.at(at).first_chunk()?;
        let place = |at: usize| {
            At::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        Some(Node {
            kind: *KINDS.get(usize::from(header[1]))?,
            has_wildcard: header[2] != 0,
            hooked: Hooked(header[3]),
            negative: place(4),
            any: place(8),
            default: place(12),
        })
    }
}

/// Converts the hash of a type and name to the hash under which the answer is stored if a hook
/// answers for the name. A normal lookup thus misses the answer, so the hook is asked first.
const fn behind_hook(hash: u64) -> u64 {
    !hash
}

const _: () = assert!(UNIT.is_power_of_two() && HEADER + crate::name::MAX_NAME < 1 << 10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_entries_and_tables() {
        let mut builder = AnswersBuilder::new(Form::Wire, [1, 2, 3, 4], HookedNames::default());
        let meta = Meta {
            qtype: 1,
            ..Meta::default()
        };
        let name = b"\x01a\x00";
        builder.add_answer(name, meta, &[7; 10], None, &[]).unwrap();
        builder.add_node(name, &Node::bare(Kind::Plain)).unwrap();
        let answers = builder.finish(1, 1);
        let (answer, node, table) = (HEADER + 3 + 10, NODE_HEADER + 3, 2 * 8);
        assert_eq!(answers.size().memory, answer + node + 2 * table);
    }
}
