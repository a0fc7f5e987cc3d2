//! Resolves queries for which no answer was prepared under their type and name. The node of the
//! name, or of its closest encloser, determines the answer (RFC 1034, section 4.3.2; RFC 4592).

use super::answer::Answer;
use super::node::{Kind, NONE, Node};
use super::zone_answers::ZoneAnswers;
use crate::index::At;
use crate::key::Key;
use crate::name;
use crate::rtype;

/// How to answer a query.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resolution<'a> {
    /// Send this prepared answer with the response code stored in it.
    Answer(Answer<'a>),
    /// NODATA: the name exists, but has no records of the type. The answer holds the zone's SOA.
    NoData(Answer<'a>),
    /// NXDOMAIN: the name does not exist. The answer holds the zone's SOA.
    NxDomain(Answer<'a>),
    /// The name is an alias. The answer holds its CNAME record.
    Alias(Answer<'a>),
    /// The name is below the owner of the DNAME in this answer, and must be substituted.
    Substitution(Answer<'a>),
    /// The zone could not be loaded.
    Broken,
    /// A hook answers for the name. The answer holds the zone's SOA.
    Hooked(Answer<'a>),
}

/// Scratch space of a search, which keeps what it has found.
#[derive(Debug)]
pub(crate) struct Search {
    wildcard: Key,
    /// The name, or its closest encloser: its offset in the name, and its node.
    found: Option<(usize, Node)>,
    /// What is known of the name in advance.
    pub(crate) foreseen: Foreseen,
}

/// What was found in advance for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreseen {
    /// The name, or its closest encloser: its offset in the name, and its node.
    pub(crate) encloser: Option<(usize, Node)>,
    /// The record of a signed zone that covers the name from an offset on: the offset, and the record's
    /// position.
    pub(crate) covering: Option<(usize, At)>,
}

impl Foreseen {
    /// Nothing was found.
    pub(crate) const NONE: Self = Self {
        encloser: None,
        covering: None,
    };

    /// Forgets what was found. This takes fewer instructions than a copy of [`NONE`](Self::NONE).
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.encloser = None;
        self.covering = None;
    }
}

impl Search {
    pub(crate) const fn new() -> Self {
        Self {
            wildcard: Key::new(),
            found: None,
            foreseen: Foreseen::NONE,
        }
    }

    /// Returns the offset in the name of the closest name that exists, and its node. The offset is 0 if
    /// the name itself exists. Returns `None` if the last search did not need a node.
    pub(crate) fn found(&self) -> Option<(usize, Node)> {
        self.found
    }

    /// Returns the key of the wildcard that the last answer came from. It is undefined if there was
    /// none.
    pub(crate) fn wildcard(&self) -> &Key {
        &self.wildcard
    }
}

impl ZoneAnswers {
    /// Finds how to answer a query for `qtype` at `name` if [`ZoneAnswers::find`] has found nothing.
    /// The name must be within the zone. `key` is its key, and `search` is scratch
    /// space.
    #[inline(always)]
    pub(crate) fn resolve(
        &self,
        qtype: u16,
        name: &[u8],
        key: &Key,
        search: &mut Search,
    ) -> Resolution<'_> {
        self.resolve_by(true, qtype, name, key, search)
    }

    /// Finds how to answer a query for a hooked name from the zone's data, as if there were no
    /// hook.
    #[inline(never)]
    pub(crate) fn resolve_behind_hook(
        &self,
        qtype: u16,
        name: &[u8],
        key: &Key,
        search: &mut Search,
    ) -> Resolution<'_> {
        search.found = None;
        match self.find_behind_hook(qtype, key) {
            Some(answer) => Resolution::Answer(answer),
            None => self.resolve_by(false, qtype, name, key, search),
        }
    }

    /// Resolves a query. If `hooks` is true, hooks take precedence over the zones' data.
    ///
    /// One function serves both values of `hooks`, so that the functions it calls are inlined only
    /// once.
    #[inline(never)]
    fn resolve_by(
        &self,
        hooks: bool,
        qtype: u16,
        name: &[u8],
        key: &Key,
        search: &mut Search,
    ) -> Resolution<'_> {
        search.found = None;
        let known = search.foreseen.encloser;
        let Some((start, node)) = known.or_else(|| self.encloser(name, key)) else {
            return Resolution::Broken;
        };
        if start == 0 && hooks && node.hooked.itself() {
            return Resolution::Hooked(self.answer(node.negative));
        }
        search.found = Some((start, node));
        if start == 0 {
            return self.at_name(qtype, &node);
        }
        if hooks && node.hooked.below() {
            return Resolution::Hooked(self.answer(node.negative));
        }
        match node.kind {
            Kind::Cut => Resolution::Answer(self.answer(node.default)),
            Kind::Dname => Resolution::Substitution(self.answer(node.default)),
            Kind::Plain | Kind::Alias if node.has_wildcard => {
                let wildcard = &mut search.wildcard;
                wildcard.set_wildcard(self.hashing(), key, start);
                self.at_wildcard(hooks, qtype, wildcard, &node)
            }
            Kind::Plain | Kind::Alias => Resolution::NxDomain(self.answer(node.negative)),
        }
    }

    /// Returns the node of `name` or of its closest ancestor in the index, and the offset of that in
    /// `name`.
    pub(crate) fn encloser(&self, name: &[u8], key: &Key) -> Option<(usize, Node)> {
        let itself = self.node(key).map(|node| (0, node));
        itself.or_else(|| self.closest(name, key))
    }

    /// Returns the node of the closest ancestor of `name` in the index, and the ancestor's offset
    /// in `name`. Returns `None` only for a zone that could not be loaded, which has no names.
    ///
    /// Because all ancestors of an indexed name are in the index too, a binary search works. It
    /// needs at most eight lookups for 127 labels.
    fn closest(&self, name: &[u8], key: &Key) -> Option<(usize, Node)> {
        // The candidates are all ancestors up to the apex. The name itself is not in the index.
        let apex = name.len() - self.apex_len();
        let mut starts = [0u8; name::MAX_LABELS];
        let mut count = 0;
        let ancestors = name::label_starts(name).chain([name.len() - 1]).skip(1);
        for start in ancestors.take_while(|start| *start <= apex) {
            starts[count] = start as u8;
            count += 1;
        }
        // Try the parent first, because it is usually in the index. Candidates before `low` are not
        // in the index; `high` and later candidates are.
        let (mut low, mut high, mut probe) = (0, count, 0);
        let mut found = None;
        while low < high {
            let start = usize::from(starts[probe]);
            match self.ancestor(key.suffix(start)) {
                Some(node) => {
                    found = Some((start, node));
                    high = probe;
                }
                None => low = probe + 1,
            }
            probe = low.midpoint(high);
        }
        found
    }

    /// Resolves a query for a name in the index.
    fn at_name(&self, qtype: u16, node: &Node) -> Resolution<'_> {
        let prepared = |at: At| Resolution::Answer(self.answer(at));
        match node.kind {
            // The parent zone answers for DS at a cut (RFC 4035, section 3.1.4.1). It has no such
            // records here.
            Kind::Cut if qtype == rtype::DS => Resolution::NoData(self.answer(node.negative)),
            Kind::Cut => prepared(node.default),
            _ if qtype == rtype::ANY && node.any != NONE => prepared(node.any),
            Kind::Alias => Resolution::Alias(self.answer(node.default)),
            Kind::Plain | Kind::Dname => Resolution::NoData(self.answer(node.negative)),
        }
    }

    /// Resolves a query for a name that a wildcard may match (RFC 4592, section 3.3).
    fn at_wildcard(
        &self,
        hooks: bool,
        qtype: u16,
        wildcard: &Key,
        encloser: &Node,
    ) -> Resolution<'_> {
        // `hooks` is false only for a hooked name, and here the name is not in the index. The hook
        // thus covers all names below the closest encloser, including the wildcard. The wildcard's
        // answers are therefore stored as those of a hooked name.
        let found = if hooks {
            self.find(qtype, wildcard)
        } else {
            self.find_behind_hook(qtype, wildcard)
        };
        if let Some(answer) = found {
            return Resolution::Answer(answer);
        }
        match self.node(wildcard) {
            Some(node) => self.at_name(qtype, &node),
            None => Resolution::NxDomain(self.answer(encloser.negative)),
        }
    }
}
