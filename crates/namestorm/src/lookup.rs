//! Queries that no prepared answer is found for by type and name: what is
//! known of the name, or of the closest name above it, decides
//! (RFC 1034, section 4.3.2; RFC 4592).

use crate::answers::{Answer, Answers, Kind, NONE, Node};
use crate::index::At;
use crate::key::Key;
use crate::name;
use crate::rtype;

/// What a query is answered with.
#[derive(Clone, Copy, Debug)]
pub enum Resolution<'a> {
    /// A prepared answer, sent with its own response code.
    Answer(Answer<'a>),
    /// The name exists, the type does not: the zone's SOA (NODATA).
    NoData(Answer<'a>),
    /// The name does not exist: the zone's SOA.
    NxDomain(Answer<'a>),
    /// The name lies below this DNAME.
    Substitution(Answer<'a>),
    /// The name lies in none of our zones.
    Refused,
    /// The name lies in a zone that could not be loaded.
    Broken,
    /// A hook answers for the name; the zone's SOA.
    Hooked(Answer<'a>),
}

impl Answers {
    /// Finds what to answer for `qtype` at `name`, whose key is `key`, when
    /// [`Answers::find`] has found nothing. `wildcard` is for its use.
    #[inline(always)]
    pub fn resolve(
        &self,
        qtype: u16,
        name: &[u8],
        key: &Key,
        wildcard: &mut Key,
    ) -> Resolution<'_> {
        self.resolve_by(true, qtype, name, key, wildcard)
    }

    /// What the zone itself has for a name that a hook answers for.
    #[inline(never)]
    pub(crate) fn resolve_behind_hook(
        &self,
        qtype: u16,
        name: &[u8],
        key: &Key,
        wildcard: &mut Key,
    ) -> Resolution<'_> {
        let hash = self.hash(qtype, key.bytes());
        match self.find_behind_hook(hash, qtype, key.bytes()) {
            Some(answer) => Resolution::Answer(answer),
            None => self.resolve_by(false, qtype, name, key, wildcard),
        }
    }

    /// With `hooks` they come before what the zones have. One function for both: what
    /// it calls is part of it then.
    #[inline(never)]
    fn resolve_by(
        &self,
        hooks: bool,
        qtype: u16,
        name: &[u8],
        key: &Key,
        wildcard: &mut Key,
    ) -> Resolution<'_> {
        if let Some(node) = self.node(key.bytes()) {
            if hooks && node.hooked.itself() {
                return Resolution::Hooked(self.answer(node.negative));
            }
            return self.at_name(qtype, &node);
        }
        let Some((start, node)) = self.closest(name, key) else {
            return Resolution::Refused;
        };
        if hooks && node.hooked.below() {
            return Resolution::Hooked(self.answer(node.negative));
        }
        match node.kind {
            Kind::Outside => Resolution::Refused,
            Kind::Broken => Resolution::Broken,
            Kind::Cut => Resolution::Answer(self.answer(node.default)),
            Kind::Dname => Resolution::Substitution(self.answer(node.default)),
            Kind::Plain | Kind::Alias if node.has_wildcard => {
                wildcard.set_wildcard(self.form(), key, start);
                self.at_wildcard(hooks, qtype, wildcard, &node)
            }
            Kind::Plain | Kind::Alias => Resolution::NxDomain(self.answer(node.negative)),
        }
    }

    /// The closest ancestor of `name` that is known, and where it starts.
    ///
    /// All ancestors of a known name are known, so that halving finds the
    /// border: at most eight look-ups for 127 labels.
    fn closest(&self, name: &[u8], key: &Key) -> Option<(usize, Node)> {
        // All labels but the first, as the name itself is not known, and the
        // root.
        let mut starts = [0u8; name::MAX_LABELS];
        let mut count = 0;
        for start in name::label_starts(name).chain([name.len() - 1]).skip(1) {
            starts[count] = start as u8;
            count += 1;
        }
        // The parent mostly is; below `low` nothing is, from `high` on all.
        let (mut low, mut high, mut probe) = (0, count, 0);
        let mut found = None;
        while low < high {
            let start = usize::from(starts[probe]);
            match self.node(key.suffix(start)) {
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

    /// For a name that is known.
    fn at_name(&self, qtype: u16, node: &Node) -> Resolution<'_> {
        let prepared = |at: At| Resolution::Answer(self.answer(at));
        match node.kind {
            Kind::Outside => Resolution::Refused,
            Kind::Broken => Resolution::Broken,
            Kind::Cut => prepared(node.default),
            _ if qtype == rtype::ANY && node.any != NONE => prepared(node.any),
            Kind::Alias => prepared(node.default),
            Kind::Plain | Kind::Dname => Resolution::NoData(self.answer(node.negative)),
        }
    }

    /// For a name that a wildcard stands for (RFC 4592, section 3.3).
    fn at_wildcard(
        &self,
        hooks: bool,
        qtype: u16,
        wildcard: &Key,
        encloser: &Node,
    ) -> Resolution<'_> {
        let hash = self.hash(qtype, wildcard.bytes());
        // A hooked name that no record has lies below a hooked wildcard's parent, so
        // that the wildcard is hooked too.
        let found = if hooks {
            self.find_hashed(hash, qtype, wildcard.bytes())
        } else {
            self.find_behind_hook(hash, qtype, wildcard.bytes())
        };
        if let Some(answer) = found {
            return Resolution::Answer(answer);
        }
        match self.node(wildcard.bytes()) {
            Some(node) => self.at_name(qtype, &node),
            None => Resolution::NxDomain(self.answer(encloser.negative)),
        }
    }
}
