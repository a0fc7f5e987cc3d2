//! Adds what belongs to each folder's site to the tally of a worker.

use control::Tally;

use super::Sandstorm;
use super::tallies::{tally_memory_of, tally_some_answers};
use crate::site::Site;
use crate::web::Counters;

/// The name of what belongs to none of several sites, such as a request for another host.
const NO_SITE: &str = "no site";

impl<A, F, C> Sandstorm<A, F, C> {
    /// Adds the answers of each folder's site, with those of the hosts that it redirects. `all` has those
    /// for no site too.
    pub(super) fn tally_parts(&self, tally: &mut Tally, all: &Counters, hosted: &[Counters]) {
        let mut rest = *all;
        for (index, (part, own)) in self.parts.iter().zip(hosted).enumerate() {
            let mut sum = *own;
            let redirecting = self.redirecting.iter().zip(&hosted[self.parts.len()..]);
            for (_, counters) in redirecting.filter(|(one, _)| one.part == index) {
                sum.add(counters);
            }
            rest.take_away(&sum);
            tally.for_site(part.name(), |tally| tally_some_answers(tally, &sum));
        }
        tally.for_site(NO_SITE, |tally| tally_some_answers(tally, &rest));
    }

    /// Adds what the site of each folder takes. `site` is that of the worker.
    pub(super) fn tally_memory(&self, tally: &mut Tally, site: &Site) {
        let taken = |index| self.sending.get().map_or(0, |one| one.taken_from(index));
        let Some(by_host) = site.by_host() else {
            return tally_memory_of(tally, site, taken(0));
        };
        for (index, (part, own)) in self.parts.iter().zip(by_host.sites()).enumerate() {
            let one = |tally: &mut Tally| tally_memory_of(tally, own, taken(index));
            if self.parts.len() > 1 {
                tally.for_site(part.name(), one);
            } else {
                one(tally);
            }
        }
    }
}
