//! Adds what a worker has counted to its tally.

use control::{Labels, Tally};

use super::Sandstorm;
use crate::disk::Chunks;
use crate::login::LoginCounts;
use crate::site::Site;
use crate::status::Status;
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

/// Adds what a site takes. Resident packets have `packets` bytes.
fn tally_memory_of(tally: &mut Tally, site: &Site, packets: u64) {
    const NAME: &str = "site memory bytes";
    let (totals, budget) = (site.totals(), site.settings().memory);
    if let Some(budget) = budget {
        tally.level_detail("site memory budget bytes", Labels::NONE, budget.bytes());
    }
    tally.level_detail(NAME, ("of", "responses"), totals.memory());
    tally.level_detail(NAME, ("of", "packets"), packets);
    let in_memory = totals.files - totals.disk_files;
    tally.level_detail("site files", ("place", "memory"), in_memory);
    tally.level_detail("site files", ("place", "disk"), totals.disk_files);
}

/// Adds the answers of one of several sites, with the statuses that have occurred. There may be many
/// sites.
fn tally_some_answers(tally: &mut Tally, web: &Counters) {
    tally.event("requests", web.requests);
    for status in Status::ALL {
        if web.of(status) > 0 {
            tally.event_of("answers", ("status", status.digits()), web.of(status));
        }
    }
}

/// Adds what a worker has read from the disk.
pub(super) fn tally_disk(tally: &mut Tally, chunks: &Chunks, gave_way: u64) {
    let counts = chunks.counts();
    tally.event("file pieces read", counts.read);
    tally.event("file bytes read", counts.bytes_read);
    tally.event("file pieces unreadable", counts.failed);
    tally.event("clients reset for memory", gave_way);
    tally.level("file piece bytes", chunks.bytes() as u64);
}

/// Adds what was checked for a worker.
pub(super) fn tally_logins(tally: &mut Tally, counts: LoginCounts) {
    tally.event("logins right", counts.right);
    tally.event("logins wrong", counts.wrong);
    tally.event("logins given up", counts.given_up);
}
