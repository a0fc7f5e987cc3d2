//! The set of names that a hook answers for.

use std::collections::HashSet;

use crate::name;

/// Two flags of a name: whether a hook answers for the name, and whether it answers for all names
/// below the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hooked(pub u8);

impl Hooked {
    /// Neither flag is set.
    pub(crate) const NOTHING: Self = Self(0);
    const ITSELF: u8 = 1;
    const BELOW: u8 = 2;

    /// Returns true if a hook answers for the name.
    #[inline(always)]
    pub(crate) const fn itself(self) -> bool {
        self.0 & Self::ITSELF != 0
    }

    /// Returns true if a hook answers for all names below this name. A lookup uses this flag only
    /// if the name below is not in the index, because names in the index have flags of their own.
    #[inline(always)]
    pub(crate) const fn below(self) -> bool {
        self.0 & Self::BELOW != 0
    }
}

/// The names that a hook answers for, in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct HookedNames {
    names: HashSet<Vec<u8>>,
    /// The parents of the registered wildcards. A hook answers for all names below each of them.
    wildcard_parents: HashSet<Vec<u8>>,
}

impl HookedNames {
    /// Adds a name for which a hook answers.
    pub(crate) fn add(&mut self, name: &[u8]) {
        self.names.insert(name.to_ascii_lowercase());
    }

    /// Adds all names below `apex`, but not `apex` itself.
    pub(crate) fn add_below(&mut self, apex: &[u8]) {
        self.wildcard_parents.insert(apex.to_ascii_lowercase());
    }

    /// Returns true if the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.wildcard_parents.is_empty()
    }

    /// Returns the registered names, and the parent of each registered wildcard.
    pub(crate) fn bases(&self) -> impl Iterator<Item = &[u8]> {
        self.names
            .iter()
            .chain(&self.wildcard_parents)
            .map(Vec::as_slice)
    }

    /// Returns the flags of `name`.
    pub(crate) fn of(&self, name: &[u8]) -> Hooked {
        if self.is_empty() {
            return Hooked::NOTHING;
        }
        let lower = name.to_ascii_lowercase();
        let mut ancestors = name::label_starts(&lower).chain([lower.len() - 1]).skip(1);
        let is_below = ancestors.any(|start| self.wildcard_parents.contains(&lower[start..]));
        let itself = is_below || self.names.contains(&lower);
        let below = is_below || self.wildcard_parents.contains(&lower);
        Hooked(u8::from(itself) * Hooked::ITSELF + u8::from(below) * Hooked::BELOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hooked_directly_or_through_an_ancestor() {
        let name = |text| name::parse(text).unwrap();
        let mut names = HookedNames::default();
        assert_eq!(names.of(&name("a.z")), Hooked::NOTHING);
        names.add(&name("One.z"));
        names.add_below(&name("all.z"));
        for (text, itself, below) in [
            ("one.Z", true, false),
            ("x.one.z", false, false),
            ("z", false, false),
            (".", false, false),
            ("All.z", false, true),
            ("x.all.z", true, true),
            ("y.x.all.z", true, true),
            ("xall.z", false, false),
        ] {
            let of = names.of(&name(text));
            assert_eq!((of.itself(), of.below()), (itself, below), "{text}");
        }
        let mut all = HookedNames::default();
        all.add_below(name::ROOT);
        assert!(all.of(&name("a")).itself() && !all.of(name::ROOT).itself());
        assert!(all.of(name::ROOT).below());
    }
}
