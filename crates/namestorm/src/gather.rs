//! Reads all zones given on the command line. Reports their errors and warnings, and collects the
//! zones without errors, which can be served.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use control::progress;
use control::report::count;

use crate::load::{Broken, Loaded, ZoneSpec, load};
use crate::name;
use crate::report::{Finding, Report};
use crate::zones::Zones;

/// Reads zones one by one and detects zones that are given twice.
#[derive(Default)]
pub(crate) struct Gatherer {
    /// Maps the lower-case name of each good zone to its file.
    files: HashMap<Vec<u8>, String>,
}

/// The result of reading one zone given on the command line.
pub(crate) enum Outcome {
    /// The zone can be served.
    Good(Loaded),
    /// The zone cannot be served.
    Broken(Broken),
    /// An earlier good zone has the same name.
    Duplicate(UnservedFile),
}

/// A file on the command line that is not served, with the reason.
#[derive(Debug)]
pub(crate) struct UnservedFile {
    file: String,
    reason: Reason,
    /// The first error in a broken zone.
    error: Option<Finding>,
}

#[derive(Debug)]
enum Reason {
    /// The zone with this name could not be loaded.
    Broken(Vec<u8>),
    /// The zone could not be loaded, and its name is unknown.
    Nameless,
    /// The zone named `apex` is served from the file `by`.
    Duplicate { apex: Vec<u8>, by: String },
}

impl fmt::Display for UnservedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        match &self.reason {
            Reason::Broken(apex) => {
                let zone = name::Shown(apex);
                write!(f, "{file}: not loaded; queries for {zone} get SERVFAIL")
            }
            Reason::Nameless => write!(
                f,
                "{file}: not loaded; queries for it are refused because the zone's name is \
                 unknown: give ORIGIN=FILE"
            ),
            Reason::Duplicate { apex, by } => {
                let zone = name::Shown(apex);
                write!(
                    f,
                    "{file}: not loaded; {by} holds the zone {zone} too: give it only once"
                )
            }
        }
    }
}

impl UnservedFile {
    /// The file's path.
    pub(crate) fn file(&self) -> String {
        self.file.clone()
    }

    /// Returns the first error in the file with its place, or else why the file is not served.
    pub(crate) fn error(&self) -> String {
        match &self.error {
            Some(error) => error.to_string(),
            None => self.to_string(),
        }
    }

    /// Returns true if the same zone is served from another file.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self.reason, Reason::Duplicate { .. })
    }
}

impl Gatherer {
    /// Reads one zone. Passes findings to `say`, but not the warnings about a zone that is given
    /// twice.
    pub(crate) fn read(&mut self, spec: &ZoneSpec, say: &mut dyn FnMut(String)) -> Outcome {
        let mut progress = |records| {
            progress::say(|| format!("{spec}: {} records", count(records as u64)));
        };
        let loaded = match load(spec, &mut progress) {
            Ok(loaded) => loaded,
            Err(broken) => {
                say_findings(&broken.report, say);
                return Outcome::Broken(broken);
            }
        };
        let apex = loaded.zone.apex().to_ascii_lowercase();
        let file = spec.file.display().to_string();
        if let Some(unserved) = self.duplicate(&apex, &file) {
            return Outcome::Duplicate(unserved);
        }
        say_findings(&loaded.report, say);
        self.files.insert(apex, file);
        Outcome::Good(loaded)
    }

    /// If an earlier good zone has the name `apex` (in lower case), returns the reason why `file`
    /// is not served. Otherwise, returns `None`.
    fn duplicate(&self, apex: &[u8], file: &str) -> Option<UnservedFile> {
        let by = self.files.get(apex)?.clone();
        Some(UnservedFile {
            file: file.to_owned(),
            reason: Reason::Duplicate {
                apex: apex.to_vec(),
                by,
            },
            error: None,
        })
    }

    /// Returns the reason why a file with a broken zone is not served.
    fn broken(&self, file: String, zone: Broken) -> UnservedFile {
        let error = zone.report.first_error().cloned();
        let Some(mut apex) = zone.apex else {
            return UnservedFile {
                file,
                reason: Reason::Nameless,
                error,
            };
        };
        apex.make_ascii_lowercase();
        self.duplicate(&apex, &file).unwrap_or(UnservedFile {
            file,
            reason: Reason::Broken(apex),
            error,
        })
    }
}

/// Passes the findings of a zone to `say`, if there are any.
fn say_findings(report: &Report, say: &mut dyn FnMut(String)) {
    if !report.findings().is_empty() {
        say(report.to_string());
    }
}

/// The zones given on the command line.
pub(crate) struct Gathered {
    pub(crate) zones: Zones,
    /// The files that are not served.
    pub(crate) unserved: Vec<UnservedFile>,
}

/// Reads the zones of `specs`. Passes findings to `say`.
pub(crate) fn gather(specs: &[ZoneSpec], say: &mut dyn FnMut(String)) -> Gathered {
    let mut gatherer = Gatherer::default();
    let (mut good, mut broken, mut unserved) = (Vec::new(), Vec::new(), Vec::new());
    for (number, spec) in specs.iter().enumerate() {
        let of = |number: usize| count(number as u64);
        progress::say(|| format!("{} of {} zones", of(number), of(specs.len())));
        match gatherer.read(spec, say) {
            Outcome::Good(mut loaded) => {
                if let Some(group) = &spec.group {
                    loaded.zone.set_group(Arc::clone(group));
                }
                good.push(loaded.zone);
            }
            Outcome::Broken(zone) => broken.push((spec.file.display().to_string(), zone)),
            Outcome::Duplicate(duplicate) => unserved.push(duplicate),
        }
    }
    // The reasons why broken zones are not served are determined only now, because a good zone may
    // follow a broken zone of the same name.
    let broken = broken.into_iter();
    unserved.extend(broken.map(|(file, zone)| gatherer.broken(file, zone)));
    let apexes = unserved.iter().filter_map(|file| match &file.reason {
        Reason::Broken(apex) => Some(apex.clone()),
        Reason::Nameless | Reason::Duplicate { .. } => None,
    });
    Gathered {
        zones: Zones::with_broken(good, apexes.collect())
            .unwrap_or_else(|_| unreachable!("each zone is gathered only once")),
        unserved,
    }
}

/// Summarises in one line how many files are not served for each reason.
pub(crate) fn summary(unserved: &[UnservedFile]) -> String {
    let number = |is: fn(&Reason) -> bool| unserved.iter().filter(|file| is(&file.reason)).count();
    let kinds = [
        (
            number(|reason| matches!(reason, Reason::Broken(_))),
            "answered with SERVFAIL",
        ),
        (
            number(|reason| matches!(reason, Reason::Nameless)),
            "refused because their names are unknown",
        ),
        (
            number(|reason| matches!(reason, Reason::Duplicate { .. })),
            "given twice",
        ),
    ];
    let kinds = kinds.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<_> = kinds
        .map(|(number, what)| format!("{} {what}", count(number as u64)))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
