//! Reads zone files with several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use control::progress;
use control::report::count;

use crate::answers::ZoneAnswers;
use crate::compile::compile_zone;
use crate::hooked::HookedNames;
use crate::key::Hashing;
use crate::load::{Broken, Loaded, ReadFile, ZoneSpec, load};
use crate::name;
use crate::report::Report;
use crate::rtype;
use crate::zone::{Place, Zone};
use crate::zone_records::ZoneRecords;

const TOO_LONG_TO_TRANSFER: &str =
    "this record is too long for a message, so clients cannot get a transfer of the zone";

/// A zone that was read and prepared.
#[derive(Debug)]
pub(super) struct ReadZone {
    pub(super) answers: ZoneAnswers,
    /// The zone's name in lower case.
    pub(super) apex: Arc<[u8]>,
    /// The files that the zone was read from.
    pub(super) files: Vec<ReadFile>,
    /// The warnings about the zone.
    pub(super) report: Report,
    /// Whether the zone has an example query for the address of `www`.
    pub(super) has_www: bool,
}

/// Calls `read` for each of `specs`, on this number of threads. Returns the results in the order of
/// `specs`. If the system has no more threads, fewer do the work.
pub(super) fn read_all<T: Send + Sync>(
    specs: &[&ZoneSpec],
    threads: usize,
    read: impl Fn(&ZoneSpec) -> T + Sync,
) -> impl Iterator<Item = T> {
    let next = AtomicUsize::new(0);
    // A result may be large, so each has a place of its own from the start.
    let results: Vec<OnceLock<Box<T>>> = specs.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(spec) = specs.get(number) else {
                return;
            };
            let of = |number: usize| count(number as u64);
            progress::say(|| format!("{} of {} zones", of(number), of(specs.len())));
            results[number].get_or_init(|| Box::new(read(spec)));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(specs.len()) {
            let loader = thread::Builder::new().name("loader".into());
            // Without this thread, the others do its work.
            let _ = loader.spawn_scoped(scope, work);
        }
        work();
    });
    let results = results.into_iter().filter_map(OnceLock::into_inner);
    results.map(|result| *result)
}

/// Reads one zone and prepares its answers. Also keeps its records if `keeps_records` is set.
///
/// # Errors
///
/// Returns a [`Broken`] zone, whose report holds at least one error.
pub(super) fn read_zone(
    spec: &ZoneSpec,
    hashing: &Hashing,
    keeps_records: bool,
) -> Result<ReadZone, Broken> {
    let mut read = |records| {
        progress::say(|| format!("{spec}: {} records", count(records as u64)));
    };
    let Loaded {
        zone,
        mut report,
        files,
    } = load(spec, &mut read)?;
    let mut prepared = |names| {
        progress::say(|| format!("{spec}: {} names prepared", count(names as u64)));
    };
    let hooked = HookedNames::default();
    let hooked = (&hooked, std::iter::empty());
    let apex = zone.apex().to_ascii_lowercase();
    let Ok(mut answers) = compile_zone(&zone, hashing, hooked, &mut prepared) else {
        let message = "the answers of a zone take at most 32 GiB; divide the zone";
        report.error(Place::of_line(0, 0), message);
        return Err(Broken {
            apex: Some(apex),
            report,
            files: files.into_iter().map(ReadFile::into_path).collect(),
        });
    };
    if keeps_records {
        match ZoneRecords::new(&zone) {
            Ok(records) => answers.set_records(records),
            Err(place) => report.warning(place, TOO_LONG_TO_TRANSFER),
        }
    }
    Ok(ReadZone {
        answers,
        apex: apex.into(),
        files,
        report,
        has_www: has_www(&zone),
    })
}

/// Returns true if there are addresses of type A for the name `www` of `zone`.
pub(crate) fn has_www(zone: &Zone) -> bool {
    let www = zone.find(b"www\0").ok();
    www.is_some_and(|www| www.rrset(rtype::A).is_some())
}

/// Returns a name and a type that exist in the zone `apex`, for an example query.
pub(crate) fn example(apex: &[u8], has_www: bool) -> String {
    if has_www {
        format!("{} A", name::Shown(&[b"\x03www", apex].concat()))
    } else {
        format!("{} SOA", name::Shown(apex))
    }
}
