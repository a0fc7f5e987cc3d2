//! The zones of a server as read from their files. Those without errors can be served. What has not
//! changed is not read again.

mod reading;
mod unserved;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

pub(crate) use self::reading::example;
use self::reading::{ReadZone, read_all, read_zone};
pub(crate) use self::unserved::{UnservedFile, summary};

use crate::answers::{Answers, Size, ZoneAnswers};
use crate::groups::GroupLabels;
use crate::key::{Hashing, Key};
use crate::load::{Broken, ReadFile, ZoneSpec};
use crate::name;
use crate::report::Report;
use crate::rtype;

/// A zone that can be served, and what it was read from.
#[derive(Debug)]
struct GoodZone {
    spec: ZoneSpec,
    /// The zone's name in lower case.
    apex: Box<[u8]>,
    answers: Arc<ZoneAnswers>,
    files: Vec<ReadFile>,
}

/// The zones of a server, in the order in which they are given.
#[derive(Debug)]
pub(crate) struct ZoneFiles {
    hashing: Hashing,
    good: Vec<Arc<GoodZone>>,
    /// The files that are not served.
    unserved: Arc<[UnservedFile]>,
    group_labels: GroupLabels,
    /// Name and type of an example query.
    example: Option<String>,
    /// Number of zones that were read, not kept.
    read: usize,
}

impl ZoneFiles {
    /// Starts without zones.
    pub(crate) fn new(hashing: Hashing) -> Self {
        Self {
            hashing,
            good: Vec::new(),
            unserved: Arc::default(),
            group_labels: GroupLabels::default(),
            example: None,
            read: 0,
        }
    }

    /// Reads those zones of `specs` that have changed, are new, or were not served, on this number of
    /// threads. Keeps the answers of the others. Passes findings to `say`.
    pub(crate) fn read(
        &self,
        specs: &[ZoneSpec],
        threads: usize,
        say: &mut dyn FnMut(String),
    ) -> Self {
        let known = self
            .good
            .iter()
            .map(|zone| (zone.spec.file.as_path(), zone));
        let known: HashMap<&Path, _> = known.collect();
        let kept = |spec: &ZoneSpec| {
            let zone = known.get(spec.file.as_path())?;
            let is_unchanged = zone.spec == *spec && zone.files.iter().all(ReadFile::is_unchanged);
            is_unchanged.then(|| Arc::clone(zone))
        };
        let kept: Vec<_> = specs.iter().map(kept).collect();
        let changed = specs.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        let changed: Vec<_> = changed.map(|(spec, _)| spec).collect();
        let mut read =
            read_all(&changed, threads, |spec| read_zone(spec, &self.hashing)).into_iter();
        let mut gatherer = Gatherer::new(self.group_labels.clone());
        for (spec, kept) in specs.iter().zip(kept) {
            match kept {
                Some(zone) => gatherer.keep(zone),
                None => {
                    if let Some(read) = read.next() {
                        gatherer.take(spec, read, say);
                    }
                }
            }
        }
        let this = gatherer.finish(self.hashing.clone(), changed.len());
        Self {
            example: this.example.or_else(|| self.example.clone()),
            ..this
        }
    }

    /// Reads the zone named `apex` (in lower case) again, and keeps the answers of the others. Passes
    /// findings to `say`. Returns `None` if no zone of this name is served, or if its file now holds
    /// another zone.
    ///
    /// # Errors
    ///
    /// Returns the file if the zone has an error.
    pub(crate) fn read_one(
        &self,
        apex: &[u8],
        say: &mut dyn FnMut(String),
    ) -> Result<Option<Self>, Box<UnservedFile>> {
        let Some(at) = self.good.iter().position(|zone| *zone.apex == *apex) else {
            return Ok(None);
        };
        let spec = &self.good[at].spec;
        let read = read_zone(spec, &self.hashing).map_err(|broken| {
            say_findings(&broken.report, say);
            let error = broken.report.first_error().cloned();
            let file = spec.file.display().to_string();
            Box::new(UnservedFile::broken(file, broken.apex, error))
        })?;
        if *read.apex != *apex {
            return Ok(None);
        }
        say_findings(&read.report, say);
        let mut good = self.good.clone();
        let mut group_labels = self.group_labels.clone();
        good[at] = Arc::new(GoodZone::new(spec.clone(), read, &mut group_labels));
        Ok(Some(Self {
            hashing: self.hashing.clone(),
            good,
            unserved: Arc::clone(&self.unserved),
            group_labels,
            example: self.example.clone(),
            read: 1,
        }))
    }

    /// Returns the answers of all zones. Queries for zones with errors get SERVFAIL.
    pub(crate) fn answers(&self) -> Answers {
        let good = self.good.iter().map(|zone| Arc::clone(&zone.answers));
        let broken: HashSet<_> = self
            .unserved
            .iter()
            .filter_map(UnservedFile::apex)
            .collect();
        let broken = broken.into_iter();
        let broken = broken.map(|apex| Arc::new(ZoneAnswers::broken(self.hashing.clone(), apex)));
        let zones = good.chain(broken).collect();
        Answers::new(
            self.hashing.clone(),
            zones,
            self.group_labels.clone(),
            false,
        )
    }

    /// Warns of zones below another zone of this server that does not delegate to them. `answers` are
    /// those of these zones.
    pub(crate) fn warn_of_missing_delegations(
        &self,
        answers: &Answers,
        say: &mut dyn FnMut(String),
    ) {
        let mut key = Key::new();
        for zone in &self.good {
            let Some(parent) = name::parent(&zone.apex) else {
                continue;
            };
            key.set(answers.form(), parent);
            let above = answers.zone(answers.zone_of(rtype::NS, key.bytes()));
            key.set(answers.form(), &zone.apex);
            if above.is_some_and(|above| !above.is_broken() && !above.has_cut(key.bytes())) {
                let (file, apex) = (zone.spec.file.display(), name::Shown(&zone.apex));
                say(format!(
                    "{file}: warning: a zone above {apex} is served too, but has no NS records for it: \
                     resolvers do not find {apex} there; add them"
                ));
            }
        }
    }

    /// Returns the name of each zone that can be served, with the size of its answers.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&[u8], &Size)> {
        self.good
            .iter()
            .map(|zone| (&*zone.apex, zone.answers.size()))
    }

    /// Returns the number of zones that can be served.
    pub(crate) fn good(&self) -> usize {
        self.good.len()
    }

    /// Returns true if a zone named `apex` (in lower case) can be served.
    pub(crate) fn has(&self, apex: &[u8]) -> bool {
        self.good.iter().any(|zone| *zone.apex == *apex)
    }

    /// Returns the number of zones that were read, not kept.
    pub(crate) fn read_count(&self) -> usize {
        self.read
    }

    /// Returns the files that are not served.
    pub(crate) fn unserved(&self) -> &[UnservedFile] {
        &self.unserved
    }

    /// Returns name and type of an example query.
    pub(crate) fn example(&self) -> Option<String> {
        self.example.clone()
    }
}

impl GoodZone {
    fn new(spec: ZoneSpec, read: ReadZone, group_labels: &mut GroupLabels) -> Self {
        let ReadZone {
            mut answers,
            apex,
            files,
            ..
        } = read;
        let group = match &spec.group {
            Some(group) => group_labels.number(group),
            None => group_labels.number(&name::Shown(&apex).to_string()),
        };
        answers.set_group(group);
        Self {
            spec,
            apex,
            answers: Arc::new(answers),
            files,
        }
    }
}

/// Puts zones together, and detects those that are given twice.
struct Gatherer {
    good: Vec<Arc<GoodZone>>,
    /// Maps the name of each good zone to its number.
    by_apex: HashMap<Box<[u8]>, usize>,
    broken: Vec<(String, Broken)>,
    unserved: Vec<UnservedFile>,
    group_labels: GroupLabels,
    example: Option<String>,
}

impl Gatherer {
    fn new(group_labels: GroupLabels) -> Self {
        Self {
            good: Vec::new(),
            by_apex: HashMap::new(),
            broken: Vec::new(),
            unserved: Vec::new(),
            group_labels,
            example: None,
        }
    }

    /// Adds a zone that has not changed.
    fn keep(&mut self, zone: Arc<GoodZone>) {
        match self.duplicate(&zone.apex, &zone.spec) {
            Some(duplicate) => self.unserved.push(duplicate),
            None => self.add(zone),
        }
    }

    /// Adds the result of reading a zone. Passes findings to `say`, but not the warnings about a zone
    /// that is given twice.
    fn take(
        &mut self,
        spec: &ZoneSpec,
        read: Result<ReadZone, Broken>,
        say: &mut dyn FnMut(String),
    ) {
        let read = match read {
            Ok(read) => read,
            Err(broken) => {
                say_findings(&broken.report, say);
                self.broken.push((spec.file.display().to_string(), broken));
                return;
            }
        };
        if let Some(duplicate) = self.duplicate(&read.apex, spec) {
            self.unserved.push(duplicate);
            return;
        }
        say_findings(&read.report, say);
        self.example.get_or_insert_with(|| read.example.clone());
        let zone = GoodZone::new(spec.clone(), read, &mut self.group_labels);
        self.add(Arc::new(zone));
    }

    fn add(&mut self, zone: Arc<GoodZone>) {
        self.by_apex.insert(zone.apex.clone(), self.good.len());
        self.good.push(zone);
    }

    /// If an earlier good zone has the name `apex` (in lower case), returns the reason why the file
    /// of `spec` is not served. Otherwise, returns `None`.
    fn duplicate(&self, apex: &[u8], spec: &ZoneSpec) -> Option<UnservedFile> {
        let by = &self.good[*self.by_apex.get(apex)?].spec.file;
        let by = by.display().to_string();
        let file = spec.file.display().to_string();
        Some(UnservedFile::duplicate(file, apex, by))
    }

    /// Returns all zones. `read` is the number of those that were read, not kept.
    fn finish(mut self, hashing: Hashing, read: usize) -> ZoneFiles {
        // The reasons why broken zones are not served are determined only now, because a good zone
        // may follow a broken zone of the same name.
        for (file, broken) in self.broken {
            let error = broken.report.first_error().cloned();
            let apex = broken.apex.map(|apex| apex.to_ascii_lowercase());
            let by = apex.as_ref().and_then(|apex| self.by_apex.get(&**apex));
            let by = by.map(|at| self.good[*at].spec.file.display().to_string());
            self.unserved.push(match (apex, by) {
                (Some(apex), Some(by)) => UnservedFile::duplicate(file, &apex, by),
                (apex, _) => UnservedFile::broken(file, apex, error),
            });
        }
        ZoneFiles {
            hashing,
            good: self.good,
            unserved: self.unserved.into(),
            group_labels: self.group_labels,
            example: self.example,
            read,
        }
    }
}

/// Passes the findings of a zone to `say`, if there are any.
fn say_findings(report: &Report, say: &mut dyn FnMut(String)) {
    if !report.findings().is_empty() {
        say(report.to_string());
    }
}

#[cfg(test)]
#[path = "zone_files_tests.rs"]
mod tests;
