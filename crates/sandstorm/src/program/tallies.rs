//! Adds what a worker has counted to its tally.

use control::{Labels, Meanings, Tally};

use crate::disk::Chunks;
use crate::known_sites::KnownSites;
use crate::login::LoginCounts;
use crate::site::Site;
use crate::status::Status;
use crate::web::Counters;

/// The name of what belongs to none of several sites, such as a request for another host.
const NO_SITE: &str = "no site";

/// What the counts of a web server mean.
pub(super) const MEANINGS: Meanings = &[
    (
        "access log lines lost",
        "Lines of the access log that did not fit its ring, or could not be written",
    ),
    ("answers", "Answers by status"),
    (
        "clients reset for memory",
        "Clients that were reset because files on the disk needed their memory",
    ),
    ("file bytes read", "Bytes of files read from the disk"),
    (
        "file piece bytes",
        "Memory that pieces of files on the disk take",
    ),
    ("file pieces read", "Pieces of files read from the disk"),
    (
        "file pieces unreadable",
        "Pieces of files that could not be read",
    ),
    (
        "logins given up",
        "Requests whose credentials could not be checked in time",
    ),
    ("logins right", "Checks that found the credentials right"),
    ("logins wrong", "Checks that found the credentials wrong"),
    (
        "request",
        "Time from a request until the client has acknowledged the whole response",
    ),
    ("requests", "Requests"),
    (
        "requests too slow",
        "Connections that were closed because a request took too long to arrive",
    ),
    ("site files", "Files of the site, by where they are"),
    ("site memory budget bytes", "Memory that the site may take"),
    ("site memory bytes", "Memory that the site takes, by use"),
];

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

/// Adds what a site takes. Resident packets have `packets` bytes.
pub(super) fn tally_memory_of(tally: &mut Tally, site: &Site, packets: u64) {
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
