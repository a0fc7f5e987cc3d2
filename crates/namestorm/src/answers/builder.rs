//! Builds the prepared answers of a zone.

use super::answer::{self, Variant};
use super::denial::Denial;
use super::node::{NONE, Node};
use super::size::Size;
use super::zone_answers::{ZoneAnswers, ZoneVersion, behind_hook};
use crate::hooked::HookedNames;
use crate::index::{Arena, ArenaFull, At, Table};
use crate::key::{Hashing, Key};

/// Builds the tables of answers and names of one zone.
#[derive(Debug)]
pub(crate) struct ZoneBuilder<'h> {
    hashing: Hashing,
    hooked: &'h HookedNames,
    answers: Arena,
    nodes: Arena,
    answer_entries: Vec<(u64, At)>,
    node_entries: Vec<(u64, At)>,
    key: Key,
    answer_count: usize,
    /// Buffer for one answer.
    encoded: Vec<u8>,
}

impl<'h> ZoneBuilder<'h> {
    /// Creates an empty builder for about this number of names and of answers. Most of either take
    /// at most a cache line each. `hooked` is the set of names that a hook answers for.
    pub(crate) fn new(
        hashing: Hashing,
        hooked: &'h HookedNames,
        (names, answers): (usize, usize),
    ) -> Self {
        Self {
            hashing,
            hooked,
            answers: Arena::with_room(answers),
            nodes: Arena::with_room(names),
            answer_entries: Vec::with_capacity(answers),
            node_entries: Vec::with_capacity(names),
            key: Key::new(),
            answer_count: 0,
            encoded: Vec::new(),
        }
    }

    /// Adds an answer to questions for `name`, and returns the answer's position. If `qtype` is not 0,
    /// the answer can be found by type and name. If a hook answers for `name`, only
    /// [`ZoneAnswers::find_behind_hook`] finds the answer.
    pub(crate) fn add_answer(
        &mut self,
        (qtype, name): (u16, &[u8]),
        is_authoritative: bool,
        plain: &Variant<'_>,
        signed: Option<&Variant<'_>>,
    ) -> Result<At, ArenaFull> {
        self.key.set(&self.hashing, name);
        let key = self.key.bytes();
        self.encoded.clear();
        let to = &mut self.encoded;
        answer::encode(to, (qtype, key), is_authoritative, plain, signed);
        let at = self.answers.push(&[&self.encoded])?;
        self.answer_count += 1;
        if qtype != 0 {
            let hash = self.key.hash_with(qtype);
            let is_hooked = self.hooked.of(name).itself();
            let hash = if is_hooked { behind_hook(hash) } else { hash };
            self.answer_entries.push((hash, at));
        }
        Ok(at)
    }

    /// Adds a name to the table of names.
    pub(crate) fn add_node(&mut self, name: &[u8], mut node: Node) -> Result<(), ArenaFull> {
        self.key.set(&self.hashing, name);
        let key = self.key.bytes();
        if node.negative != NONE {
            node.hooked = self.hooked.of(name);
        }
        self.encoded.clear();
        node.encode(&mut self.encoded, key);
        let at = self.nodes.push(&[&self.encoded])?;
        self.node_entries.push((self.key.hash(), at));
        Ok(())
    }

    /// Builds the hash tables. Returns the finished answers of the zone at `apex`, which has this
    /// number of records. `denial` finds the proofs of a signed zone.
    pub(crate) fn finish(
        mut self,
        apex: &[u8],
        version: Option<ZoneVersion>,
        records: usize,
        denial: Option<Denial>,
    ) -> ZoneAnswers {
        let (answers, nodes) = (self.answers.finish(), self.nodes.finish());
        let by_type = Table::new(&self.answer_entries);
        let by_name = Table::new(&self.node_entries);
        self.key.set(&self.hashing, apex);
        let memory = answers.memory() + nodes.memory() + by_type.memory() + by_name.memory();
        let memory = memory + denial.as_ref().map_or(0, Denial::memory);
        let size = Size {
            zones: 1,
            names: self.node_entries.len(),
            records,
            answers: self.answer_count,
            memory: memory + size_of::<ZoneAnswers>() + self.key.bytes().len(),
        };
        ZoneAnswers::new(
            self.hashing,
            self.key.bytes(),
            [answers, nodes],
            [by_type, by_name],
            version,
            size,
            denial,
        )
    }
}
