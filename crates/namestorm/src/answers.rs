//! The prepared answers: everything that a query can be answered with, found
//! by one look-up.
//!
//! Two tables over two arenas. The first holds the answers, keyed by type
//! and name; key and answer lie side by side, so that comparing the one
//! brings the other into the cache. The second holds the names, and says
//! what to do with a query that the first has no answer to.

use ahash::RandomState;
use ip::Sum;
use udpip::Tail;

use crate::hooked::{Hooked, HookedNames};
use crate::index::{Arena, ArenaFull, At, Table, UNIT};
use crate::key::{self, Form, Key};

/// No record.
pub(crate) const NONE: At = At::MAX;

/// What a name is, and so what becomes of queries at it and below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Of one of our zones: other types do not exist; below it nothing does,
    /// or what a wildcard says.
    Plain,
    /// An alias: other types are those of its target.
    Alias,
    /// The top of a delegated zone, or a name in it that leads to one of our
    /// zones: queries at it and below are referred.
    Cut,
    /// Below it names are substituted (RFC 6672).
    Dname,
    /// Above our zones: queries are refused.
    Outside,
    /// In a zone that could not be loaded: queries get SERVFAIL.
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

/// A name of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// There is a wildcard right below it.
    pub has_wildcard: bool,
    /// What of it is a hook's. It has a `negative` answer then.
    pub(crate) hooked: Hooked,
    /// The SOA of its zone, for answers that there is nothing.
    pub negative: At,
    /// All its RRsets in one answer; [`NONE`] when it has none.
    pub any: At,
    /// Alias: the answer for types that it has no answer of its own for.
    /// Cut: the referral. Dname: its DNAME record.
    pub default: At,
}

impl Node {
    /// A name that has no answers.
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

/// Bytes in front of a node's key: its length, kind, wildcard, what is a hook's, and
/// three places.
const NODE_HEADER: usize = 16;

/// How a prepared answer is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The type it answers; 0 for answers that are found otherwise.
    pub qtype: u16,
    /// The response code, without EDNS's part.
    pub rcode: u8,
    /// We are the authority.
    pub authoritative: bool,
    /// Records in answer, authority and additional section.
    pub counts: [u16; 3],
}

/// What of an answer may be left out when it is too long: the records of the
/// additional section from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Required {
    /// Bytes of the tail up to there.
    pub len: usize,
    /// Records of the additional section up to there.
    pub additional: u16,
}

/// Bytes in front of an answer's key.
const HEADER: usize = 14;
const RCODE: u8 = 0x0f;
const AUTHORITATIVE: u8 = 0x10;
/// Three words behind the tail: length, sum and additional records of what
/// must be sent.
const OPTIONAL: u8 = 0x20;
/// Behind that: how many pointers move, and where they are.
const FIXUPS: u8 = 0x40;

/// A prepared answer, in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// From its header to the end of the arena.
    bytes: &'a [u8],
    at: At,
}

impl<'a> Answer<'a> {
    #[inline(always)]
    fn header(&self) -> &'a [u8; HEADER] {
        self.bytes
            .first_chunk()
            .expect("the compiler of answers writes whole headers")
    }

    #[inline(always)]
    fn word(&self, at: usize) -> u16 {
        let header = self.header();
        u16::from_be_bytes([header[at], header[at + 1]])
    }

    /// What identifies it.
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

    /// The response code, without EDNS's part.
    #[inline(always)]
    pub fn rcode(&self) -> u8 {
        self.header()[3] & RCODE
    }

    /// Whether we are the authority.
    #[inline(always)]
    pub fn is_authoritative(&self) -> bool {
        self.header()[3] & AUTHORITATIVE != 0
    }

    /// Records in answer, authority and additional section, as in a message.
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

    /// The whole tail.
    #[inline(always)]
    pub fn tail(&self) -> Tail<'a> {
        Tail {
            bytes: &self.bytes[self.tail_at()..][..usize::from(self.word(4))],
            sum: Sum::from_folded(self.word(6)),
        }
    }

    /// The words behind the tail.
    fn word_behind(&self, index: usize) -> u16 {
        let at = self.tail_at() + usize::from(self.word(4)) + 2 * index;
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The tail without the records that may be left out, and how many
    /// additional records it has; `None` when there are none such.
    #[inline(always)]
    pub fn required(&self) -> Option<(Tail<'a>, u16)> {
        let has_optional = self.header()[3] & OPTIONAL != 0;
        has_optional.then(|| self.without_optional())
    }

    #[inline(never)]
    fn without_optional(&self) -> (Tail<'a>, u16) {
        let tail = Tail {
            bytes: &self.tail().bytes[..usize::from(self.word_behind(0))],
            sum: Sum::from_folded(self.word_behind(1)),
        };
        (tail, self.word_behind(2))
    }

    /// Where pointers lie in the tail that move with the length of the
    /// question's name.
    pub fn fixups(&self) -> impl Iterator<Item = usize> + use<'a> {
        let flags = self.header()[3];
        let first = if flags & OPTIONAL == 0 { 0 } else { 3 };
        let count = if flags & FIXUPS == 0 {
            0
        } else {
            usize::from(self.word_behind(first))
        };
        let this = *self;
        (first + 1..first + 1 + count).map(move |index| usize::from(this.word_behind(index)))
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Zones.
    pub zones: usize,
    /// Names in the zones, those without records of their own included.
    pub names: usize,
    /// Records in the zones.
    pub records: usize,
    /// Prepared answers.
    pub answers: usize,
    /// Bytes of memory.
    pub memory: usize,
}

/// Gathers answers and names.
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
}

impl AnswersBuilder {
    /// `hooked` are the names that a hook answers for.
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
        }
    }

    /// Adds an answer behind a question for `name`. One of a type other than
    /// 0 is found by that type and name; that of a hooked name only by
    /// [`Answers::find_behind_hook`].
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
        let mut behind = Vec::new();
        if let Some(required) = required {
            header[3] |= OPTIONAL;
            behind.extend((required.len as u16).to_be_bytes());
            behind.extend(Sum::of(&tail[..required.len]).fold().to_be_bytes());
            behind.extend(required.additional.to_be_bytes());
        }
        if !fixups.is_empty() {
            header[3] |= FIXUPS;
            behind.extend((fixups.len() as u16).to_be_bytes());
            for fixup in fixups {
                behind.extend(fixup.to_be_bytes());
            }
        }
        let at = self.answers.push(&[&header, key, tail, &behind])?;
        self.answer_count += 1;
        if meta.qtype != 0 {
            let hash = key::hash(&self.hasher, meta.qtype, key);
            let is_hooked = self.hooked.of(name).itself();
            let hash = if is_hooked { behind_hook(hash) } else { hash };
            self.answer_entries.push((hash, at));
        }
        Ok(at)
    }

    /// Adds a name.
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
        for (at, place) in [node.negative, node.any, node.default].iter().enumerate() {
            header[4 + 4 * at..][..4].copy_from_slice(&place.to_be_bytes());
        }
        let at = self.nodes.push(&[&header, key])?;
        self.name_count += usize::from(!matches!(node.kind, Kind::Outside | Kind::Broken));
        self.node_entries
            .push((key::hash(&self.hasher, 0, key), at));
        Ok(())
    }

    /// The finished tables.
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
        }
    }
}

/// The prepared answers of all zones. Never changed: all workers share it,
/// and a new one is built beside it.
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
}

impl Answers {
    /// The form of names in the index.
    #[inline(always)]
    pub fn form(&self) -> Form {
        self.form
    }

    /// How much there is.
    pub fn size(&self) -> &Size {
        &self.size
    }

    /// Whether a hook answers for some names.
    pub(crate) fn has_hooked(&self) -> bool {
        self.has_hooked
    }

    /// The answer prepared for a type and name that no hook answers for.
    #[inline(always)]
    pub fn find(&self, qtype: u16, key: &[u8]) -> Option<Answer<'_>> {
        self.find_hashed(self.hash(qtype, key), qtype, key)
    }

    /// The hash by which the answer for a type and name is found.
    #[inline(always)]
    pub(crate) fn hash(&self, qtype: u16, key: &[u8]) -> u64 {
        key::hash(&self.hasher, qtype, key)
    }

    /// As [`find`](Self::find), with the [`hash`](Self::hash) of both.
    #[inline(always)]
    pub(crate) fn find_hashed(&self, hash: u64, qtype: u16, key: &[u8]) -> Option<Answer<'_>> {
        self.by_type
            .find(hash, |at| {
                let answer = self.answer(at);
                answer.qtype() == qtype && answer.key() == key
            })
            .map(|at| self.answer(at))
    }

    /// As [`find_hashed`](Self::find_hashed), for a name that a hook answers for.
    pub(crate) fn find_behind_hook(&self, hash: u64, qtype: u16, key: &[u8]) -> Option<Answer<'_>> {
        self.find_hashed(behind_hook(hash), qtype, key)
    }

    /// The first step of looking up an answer whose place in memory may not
    /// be in the cache: asks for what the second step reads.
    #[inline(always)]
    pub(crate) fn fetch_slot(&self, hash: u64) {
        self.by_type.prefetch(hash);
    }

    /// The second step: asks for the answer itself.
    #[inline(always)]
    pub(crate) fn fetch_answer(&self, hash: u64) {
        if let Some(at) = self.by_type.guess(hash) {
            self.prepared.prefetch(at);
        }
    }

    /// The answer at a place that a [`Node`] names.
    #[inline(always)]
    pub(crate) fn answer(&self, at: At) -> Answer<'_> {
        Answer {
            bytes: self.prepared.at(at),
            at,
        }
    }

    /// Bytes of the name in wire format that an answer was prepared for.
    pub(crate) fn name_len(&self, answer: &Answer<'_>) -> usize {
        key::wire_len(self.form, answer.key_len())
    }

    /// What is known of a name.
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

/// What the answer of a hooked name is found by, in place of its hash: no other query
/// comes upon it.
const fn behind_hook(hash: u64) -> u64 {
    !hash
}

const _: () = assert!(UNIT.is_power_of_two() && HEADER + crate::name::MAX_NAME < 1 << 10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_records_and_tables() {
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
