//! Reading all zones of a command line: good zones are served, and what
//! becomes of the others is said.

use std::collections::HashMap;
use std::fmt;

use control::report::count;

use crate::load::{Broken, Loaded, ZoneSpec, load};
use crate::name;
use crate::report::Report;
use crate::zones::Zones;

/// Reads zones one after the other, and knows those before.
#[derive(Default)]
pub(crate) struct Gatherer {
    /// The file that each good zone was read from, by the zone's name in
    /// lower case.
    files: HashMap<Vec<u8>, String>,
}

/// What has become of one zone of a command line.
pub(crate) enum Outcome {
    /// It can be served.
    Good(Loaded),
    /// It cannot.
    Broken(Broken),
    /// A good zone of its name was read before.
    Twice(Lost),
}

/// A file of a command line that is not served.
#[derive(Debug)]
pub(crate) struct Lost {
    file: String,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// It is broken; the zone's name.
    Broken(Vec<u8>),
    /// It is broken so that the zone's name is not known.
    Nameless,
    /// The zone of this name is served from another file.
    Twice { apex: Vec<u8>, by: String },
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        match &self.why {
            Why::Broken(apex) => {
                let zone = name::Shown(apex);
                write!(f, "{file}: not loaded; queries for {zone} get SERVFAIL")
            }
            Why::Nameless => write!(
                f,
                "{file}: not loaded; queries for it are refused, as the zone's name is not \
                 known: give ORIGIN=FILE"
            ),
            Why::Twice { apex, by } => {
                let zone = name::Shown(apex);
                write!(
                    f,
                    "{file}: not loaded; {by} holds the zone {zone} too: give it once"
                )
            }
        }
    }
}

impl Lost {
    /// Whether another file holds the zone of this name.
    pub(crate) fn is_given_twice(&self) -> bool {
        matches!(self.why, Why::Twice { .. })
    }
}

impl Gatherer {
    /// Reads one zone. `say` is told how far it has come, and what was found
    /// in the zone.
    pub(crate) fn read(&mut self, spec: &ZoneSpec, say: &mut dyn FnMut(String)) -> Outcome {
        let mut progress = |records| {
            say(format!("{spec}: {} records read", count(records as u64)));
        };
        let loaded = match load(spec, &mut progress) {
            Ok(loaded) => loaded,
            Err(broken) => {
                tell(&broken.report, say);
                return Outcome::Broken(broken);
            }
        };
        let apex = loaded.zone.apex().to_ascii_lowercase();
        let file = spec.file.display().to_string();
        if let Some(lost) = self.twice(&apex, &file) {
            return Outcome::Twice(lost);
        }
        tell(&loaded.report, say);
        self.files.insert(apex, file);
        Outcome::Good(loaded)
    }

    /// Whether a good zone has this name, in lower case: why `file` is lost
    /// then.
    fn twice(&self, apex: &[u8], file: &str) -> Option<Lost> {
        let by = self.files.get(apex)?.clone();
        Some(Lost {
            file: file.to_owned(),
            why: Why::Twice {
                apex: apex.to_vec(),
                by,
            },
        })
    }

    /// Why a file with a broken zone is lost.
    fn broken(&self, file: String, apex: Option<Vec<u8>>) -> Lost {
        let Some(mut apex) = apex else {
            return Lost {
                file,
                why: Why::Nameless,
            };
        };
        apex.make_ascii_lowercase();
        self.twice(&apex, &file).unwrap_or(Lost {
            file,
            why: Why::Broken(apex),
        })
    }
}

/// Says what was found in a zone, if anything.
fn tell(report: &Report, say: &mut dyn FnMut(String)) {
    if !report.findings().is_empty() {
        say(report.to_string());
    }
}

/// The zones of a command line.
pub(crate) struct Gathered {
    pub(crate) zones: Zones,
    /// The files that are not served.
    pub(crate) lost: Vec<Lost>,
}

/// Reads the zones of `specs`. `say` is given lines about how far it has
/// come, and what was found in them.
pub(crate) fn gather(specs: &[ZoneSpec], say: &mut dyn FnMut(String)) -> Gathered {
    let mut gatherer = Gatherer::default();
    let (mut good, mut broken, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for spec in specs {
        match gatherer.read(spec, say) {
            Outcome::Good(loaded) => good.push(loaded.zone),
            Outcome::Broken(zone) => broken.push((spec.file.display().to_string(), zone.apex)),
            Outcome::Twice(twice) => lost.push(twice),
        }
    }
    // A good zone may have come behind a broken one of the same name.
    let broken = broken.into_iter();
    lost.extend(broken.map(|(file, apex)| gatherer.broken(file, apex)));
    let apexes = lost.iter().filter_map(|lost| match &lost.why {
        Why::Broken(apex) => Some(apex.clone()),
        Why::Nameless | Why::Twice { .. } => None,
    });
    Gathered {
        zones: Zones::with_broken(good, apexes.collect())
            .unwrap_or_else(|_| unreachable!("a zone is gathered once")),
        lost,
    }
}

/// How many of each kind there are, in a line.
pub(crate) fn summary(lost: &[Lost]) -> String {
    let number = |is: fn(&Why) -> bool| lost.iter().filter(|lost| is(&lost.why)).count();
    let kinds = [
        (
            number(|why| matches!(why, Why::Broken(_))),
            "answered with SERVFAIL",
        ),
        (
            number(|why| matches!(why, Why::Nameless)),
            "refused, their names not known",
        ),
        (
            number(|why| matches!(why, Why::Twice { .. })),
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
