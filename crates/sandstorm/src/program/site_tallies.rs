//! Adds what belongs to each folder's site to the tally of a worker.

use control::Tally;

use super::Sandstorm;
use super::tallies::{tally_memory_of, tally_some_answers};
use crate::known_sites::KnownSites;
use crate::site::{HostedId, Site};
use crate::web::Counters;

/// The name of what belongs to none of several sites, such as a request for another host.
const NO_SITE: &str = "no site";

/// Adds the answers of each known site, with those of the hosts that it redirects. A site that is gone keeps its
/// counts, so that no sum falls. `all` has those for no site too.
pub(super) fn tally_sites(
    tally: &mut Tally,
    all: &Counters,
    (known, hosted): (&KnownSites, &[Counters]),
) {
    let mut rest = *all;
    for (name, own) in known.names().zip(hosted) {
        rest.take_away(own);
        tally.for_site(name, |tally| tally_some_answers(tally, own));
    }
    tally.for_site(NO_SITE, |tally| tally_some_answers(tally, &rest));
}

impl<A, F, C> Sandstorm<A, F, C> {
    /// Adds what the site of each folder takes. `site` is that of the worker.
    pub(super) fn tally_memory(&self, tally: &mut Tally, site: &Site) {
        let taken = |id| self.taken_from(id);
        let Some(by_host) = site.by_host() else {
            return tally_memory_of(tally, site, taken(HostedId(1)));
        };
        let known = by_host.known();
        for (id, own) in by_host.folders() {
            let one = |tally: &mut Tally| tally_memory_of(tally, own, taken(id));
            match known.get(id) {
                Some(site) if known.len() > 1 => tally.for_site(site.name, one),
                _ => one(tally),
            }
        }
    }
}
