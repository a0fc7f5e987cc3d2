//! The sites for different hosts that a program serves, or has served since its start.

use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of sites that a program has served since its start, if a reload adds the last of them.
/// Former sites have a name and counts too, and each worker reports them repeatedly.
pub(crate) const MAX_SITES: usize = 4_096;

const _: () = assert!(MAX_SITES <= u16::MAX as usize, "each has a number");

/// The number of a site among those for different hosts that a program has served, from 1. 0 stands for none
/// of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostedId(pub(crate) u16);

/// One of these sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownSite {
    /// The name in counts and logs.
    pub(crate) name: &'static str,
    /// The index of its log among those of the program, if it has one.
    pub(crate) log: Option<usize>,
}

/// These sites, by their numbers. A number always belongs to one name. So counts and logs are never those
/// of another site, and those of a site that comes back go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownSites(Arc<[KnownSite]>);

impl KnownSites {
    /// Returns so many sites without a name and a log.
    pub(crate) fn unnamed(count: usize) -> Self {
        Self(vec![KnownSite::default(); count].into())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a reload may add so many sites.
    pub(crate) fn has_room_for(&self, more: usize) -> bool {
        self.len() + more <= MAX_SITES
    }

    /// Returns the site with this number, unless it is 0.
    #[inline(always)]
    pub(crate) fn get(&self, id: HostedId) -> Option<&KnownSite> {
        self.0.get(usize::from(id.0).wrapping_sub(1))
    }

    /// The names, in the order of the numbers from 1.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|site| site.name)
    }

    /// Returns the number of the site with this name, or 0.
    pub(crate) fn number_of(&self, name: &str) -> HostedId {
        let at = self.names().position(|known| known == name);
        // Counts and logs of further sites would be those of no site.
        let number = at.and_then(|at| u16::try_from(at + 1).ok());
        HostedId(number.unwrap_or_default())
    }

    /// Adds a site, or gives another log to the known site of this name. Returns its number.
    pub(crate) fn add(&mut self, name: &'static str, log: Option<usize>) -> HostedId {
        let mut sites = self.0.to_vec();
        match sites.iter_mut().find(|site| site.name == name) {
            Some(known) => known.log = log,
            None => sites.push(KnownSite { name, log }),
        }
        self.0 = sites.into();
        self.number_of(name)
    }
}

/// The names of sites for logs, including sites that are added later.
#[derive(Clone, Debug)]
pub(crate) struct SiteNames {
    /// The name for requests that belong to no hosted site.
    of_none: &'static str,
    known: Arc<Mutex<KnownSites>>,
}

impl SiteNames {
    pub(crate) fn new(of_none: &'static str, known: Arc<Mutex<KnownSites>>) -> Self {
        Self { of_none, known }
    }

    /// Returns the name of the site with this number.
    pub(crate) fn of(&self, id: HostedId) -> &'static str {
        if id == HostedId::default() {
            return self.of_none;
        }
        let known = self.known.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.get(id).map_or("", |site| site.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_that_comes_back_has_its_number_and_no_other_site_gets_it() {
        let mut known = KnownSites::default();
        assert_eq!(known.add("a", None), HostedId(1));
        let before = known.clone();
        assert_eq!(known.add("b", Some(0)), HostedId(2));
        assert_eq!(known.add("a", Some(1)), HostedId(1));
        assert_eq!(known.len(), 2);
        assert_eq!(known.get(HostedId(1)).unwrap().log, Some(1));
        assert_eq!(known.number_of("c"), HostedId(0));
        assert!(known.get(HostedId(0)).is_none() && known.get(HostedId(3)).is_none());
        assert_eq!(before.names().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn each_site_that_a_reload_may_add_has_a_number() {
        let mut known = KnownSites::unnamed(MAX_SITES - 1);
        assert!(known.has_room_for(1) && !known.has_room_for(2));
        assert_eq!(known.add("last", None), HostedId(4_096));
        assert!(!known.has_room_for(1));
    }
}
