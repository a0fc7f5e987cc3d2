//! Files that are not served, and why.

use std::fmt;
use std::path::PathBuf;

use control::report::count;

use crate::load::{Broken, ZoneSpec};
use crate::name::Shown;
use crate::report::Finding;

/// A file on the command line that is not served, with the reason.
#[derive(Debug)]
pub(crate) struct UnservedFile {
    /// The zone and its file, as they are given. A file may have several zones.
    spec: ZoneSpec,
    reason: Reason,
    /// The first error in a broken zone.
    error: Option<Finding>,
    /// The files of a broken zone, also those that could not be read.
    files: Vec<PathBuf>,
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
        let file = self.spec.file.display();
        match &self.reason {
            Reason::Broken(apex) => {
                let zone = Shown(apex);
                write!(f, "{file}: not loaded; queries for {zone} get SERVFAIL")
            }
            Reason::Nameless => write!(
                f,
                "{file}: not loaded; queries for it are refused because the zone's name is \
                 unknown: give ORIGIN=FILE"
            ),
            Reason::Duplicate { apex, by } => {
                let zone = Shown(apex);
                write!(
                    f,
                    "{file}: not loaded; {by} holds the zone {zone} too: give it only once"
                )
            }
        }
    }
}

impl UnservedFile {
    /// A file with the zone `apex`, which is served from the file `by`.
    pub(super) fn duplicate(spec: ZoneSpec, apex: &[u8], by: String) -> Self {
        let apex = apex.to_vec();
        Self {
            spec,
            reason: Reason::Duplicate { apex, by },
            error: None,
            files: Vec::new(),
        }
    }

    /// A file whose zone could not be loaded.
    pub(crate) fn broken(spec: ZoneSpec, broken: Broken) -> Self {
        Self {
            spec,
            error: broken.report.first_error().cloned(),
            reason: broken.apex.map_or(Reason::Nameless, Reason::Broken),
            files: broken.files,
        }
    }

    /// Returns the name of the zone in the file, if it is known.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        match &self.reason {
            Reason::Broken(apex) | Reason::Duplicate { apex, .. } => Some(apex),
            Reason::Nameless => None,
        }
    }

    /// Returns the name of a zone that could not be loaded.
    pub(super) fn apex(&self) -> Option<&[u8]> {
        match &self.reason {
            Reason::Broken(apex) => Some(apex),
            Reason::Nameless | Reason::Duplicate { .. } => None,
        }
    }

    /// The zone and its file, as they are given.
    pub(crate) fn spec(&self) -> &ZoneSpec {
        &self.spec
    }

    /// The files of a zone that could not be loaded. A correction may be in any of them.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The file's path.
    pub(crate) fn file(&self) -> String {
        self.spec.file.display().to_string()
    }

    /// Returns the first error in the file with its place, or else why the file is not served.
    pub(crate) fn error(&self) -> String {
        match &self.error {
            Some(error) => error.to_string(),
            None => self.to_string(),
        }
    }

    /// Says why the zone named `apex`, whose file this is, cannot be loaded.
    pub(crate) fn cannot_be_loaded(&self, apex: &[u8]) -> String {
        format!("{} cannot be loaded: {}", Shown(apex), self.error())
    }

    /// Returns true if the same zone is served from another file.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self.reason, Reason::Duplicate { .. })
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

/// Describes the files with errors, or else the first that holds a zone of another file.
pub(crate) fn faulty_files<'f>(
    files: impl IntoIterator<Item = &'f UnservedFile>,
) -> Option<String> {
    let (twice, broken): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_duplicate());
    let Some(first) = broken.first() else {
        return twice.first().map(ToString::to_string);
    };
    let (number, why) = (count(broken.len() as u64), first.error());
    Some(format!(
        "zones with errors: {number}; the first error is {why}"
    ))
}
