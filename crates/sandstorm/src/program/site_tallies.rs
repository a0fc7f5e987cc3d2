//! Adds what the site of each folder takes to the tally of a worker.

use control::Tally;

use super::Sandstorm;
use super::tallies::tally_memory_of;
use crate::known_sites::HostedId;
use crate::site::Site;

impl<A, F, C> Sandstorm<A, F, C> {
    /// Adds what the site of each folder takes. `site` is the worker's site.
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
