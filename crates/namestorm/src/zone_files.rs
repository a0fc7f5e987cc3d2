//! The zones of a server as read from their files. Those without errors can be served. What has not
//! changed is not read again.

mod facts;
mod reading;
mod unserved;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use control::report::count;

pub(crate) use self::facts::ZoneFacts;
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

/// Maximum number of zones that a description of a change names.
const NAMED: usize = 5;

/// A zone that can be served, and what it was read from.
#[derive(Debug)]
struct GoodZone {
    facts: Arc<ZoneFacts>,
    answers: Arc<ZoneAnswers>,
    files: Vec<ReadFile>,
}

/// The zones of a server, in the order in which they are given.
#[derive(Debug)]
pub(crate) struct ZoneFiles {
    hashing: Hashing,
    good: Vec<Arc<GoodZone>>,
    /// The files with errors whose zones stay as they were.
    stale: Vec<UnservedFile>,
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
            stale: Vec::new(),
            unserved: Arc::default(),
            group_labels: GroupLabels::default(),
            example: None,
            read: 0,
        }
    }

    /// Reads those zones of `specs` that have changed, are new, or were not served, on this number of
    /// threads. Keeps the answers of the others, and of a zone that has errors now. Passes findings to
    /// `say`.
    pub(crate) fn read(
        &self,
        specs: &[ZoneSpec],
        threads: usize,
        say: &mut dyn FnMut(String),
    ) -> Self {
        let known = self.good.iter().map(|zone| (zone.facts.file(), zone));
        let known: HashMap<&Path, _> = known.collect();
        let kept = |spec: &ZoneSpec| {
            let zone = known.get(spec.file.as_path())?;
            let is_unchanged =
                zone.facts.spec() == spec && zone.files.iter().all(ReadFile::is_unchanged);
            is_unchanged.then(|| Arc::clone(zone))
        };
        let kept: Vec<_> = specs.iter().map(kept).collect();
        let changed = specs.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        let changed: Vec<_> = changed.map(|(spec, _)| spec).collect();
        let mut read =
            read_all(&changed, threads, |spec| read_zone(spec, &self.hashing)).into_iter();
        let mut gatherer = Gatherer::new(self);
        for (spec, kept) in specs.iter().zip(kept) {
            let next = match kept {
                Some(zone) => Ok(zone),
                None => match read.next() {
                    Some(read) => gatherer.zone(spec, read, say),
                    None => continue,
                },
            };
            // A zone that has become broken stays as it was.
            let old = known.get(spec.file.as_path());
            match (next, old) {
                (Ok(zone), _) => gatherer.add(zone),
                (Err(broken), Some(old)) => gatherer.add_stale(broken, Arc::clone(old)),
                (Err(broken), None) => gatherer
                    .broken
                    .push((spec.file.display().to_string(), broken)),
            }
        }
        gatherer.finish(changed.len())
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
        let Some(at) = self.good.iter().position(|zone| zone.facts.apex() == apex) else {
            return Ok(None);
        };
        let spec = self.good[at].facts.spec();
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
            stale: Vec::new(),
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
            let Some(parent) = name::parent(zone.facts.apex()) else {
                continue;
            };
            key.set(answers.form(), parent);
            let above = answers.zone(answers.zone_of(rtype::NS, key.bytes()));
            key.set(answers.form(), zone.facts.apex());
            if above.is_some_and(|above| !above.is_broken() && !above.has_cut(key.bytes())) {
                let (file, apex) = (zone.facts.file().display(), name::Shown(zone.facts.apex()));
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
            .map(|zone| (zone.facts.apex(), zone.answers.size()))
    }

    /// Returns the number of zones that can be served.
    pub(crate) fn good(&self) -> usize {
        self.good.len()
    }

    /// Returns what is known of each zone that can be served.
    pub(crate) fn facts(&self) -> impl ExactSizeIterator<Item = &Arc<ZoneFacts>> {
        self.good.iter().map(|zone| &zone.facts)
    }

    /// Returns what is known of the zone named `apex` (in lower case), if it can be served.
    pub(crate) fn find(&self, apex: &[u8]) -> Option<&Arc<ZoneFacts>> {
        self.facts().find(|zone| zone.apex() == apex)
    }

    /// Returns the number of zones that were read, not kept.
    pub(crate) fn read_count(&self) -> usize {
        self.read
    }

    /// Returns true if other zones are served than `before`, or other answers of them.
    pub(crate) fn differ_from(&self, before: &Self) -> bool {
        let same = self
            .good
            .iter()
            .zip(&before.good)
            .all(|(a, b)| Arc::ptr_eq(a, b));
        let broken = |files: &Self| {
            files
                .unserved
                .iter()
                .filter_map(UnservedFile::apex)
                .map(<[u8]>::to_vec)
                .collect::<HashSet<_>>()
        };
        !same || self.good.len() != before.good.len() || broken(self) != broken(before)
    }

    /// Names the zones that can be served in addition to `before`, and those that no longer can. The
    /// text is empty, or begins with a semicolon.
    pub(crate) fn changes_since(&self, before: &Self) -> String {
        let names = |files: &Self, others: &Self| {
            let others: HashSet<_> = others.facts().map(|zone| zone.apex()).collect();
            let zones = files.facts().map(|zone| zone.apex());
            let zones: Vec<_> = zones.filter(|apex| !others.contains(apex)).collect();
            let names = zones
                .iter()
                .take(NAMED)
                .map(|apex| name::Shown(apex).to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            match zones.len().saturating_sub(NAMED) {
                0 => names,
                more => format!("{names} and {} more", count(more as u64)),
            }
        };
        let changes = [
            ("new", names(self, before)),
            ("removed", names(before, self)),
        ];
        let changes = changes.into_iter().filter(|(_, names)| !names.is_empty());
        let changes = changes.map(|(what, names)| format!("; {what}: {names}"));
        changes.collect::<Vec<_>>().concat()
    }

    /// Returns the files that the zones were read from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.good
            .iter()
            .flat_map(|zone| zone.files.iter().map(ReadFile::path))
    }

    /// Returns the files with errors whose zones stay as they were.
    pub(crate) fn stale(&self) -> &[UnservedFile] {
        &self.stale
    }

    /// Returns the files that are not served.
    pub(crate) fn unserved(&self) -> &Arc<[UnservedFile]> {
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
            facts: Arc::new(ZoneFacts::new(spec, apex, &answers)),
            answers: Arc::new(answers),
            files,
        }
    }
}

/// Puts zones together, and detects those that are given twice.
struct Gatherer<'z> {
    /// The zones as they were before.
    before: &'z ZoneFiles,
    good: Vec<Arc<GoodZone>>,
    /// Maps the name of each good zone to its number.
    by_apex: HashMap<Box<[u8]>, usize>,
    broken: Vec<(String, Broken)>,
    stale: Vec<UnservedFile>,
    unserved: Vec<UnservedFile>,
    group_labels: GroupLabels,
    example: Option<String>,
}

impl<'z> Gatherer<'z> {
    fn new(before: &'z ZoneFiles) -> Self {
        Self {
            before,
            good: Vec::new(),
            by_apex: HashMap::new(),
            broken: Vec::new(),
            stale: Vec::new(),
            unserved: Vec::new(),
            group_labels: before.group_labels.clone(),
            example: before.example.clone(),
        }
    }

    /// Returns the zone of a result of reading. Passes findings to `say`.
    fn zone(
        &mut self,
        spec: &ZoneSpec,
        read: Result<ReadZone, Broken>,
        say: &mut dyn FnMut(String),
    ) -> Result<Arc<GoodZone>, Broken> {
        let read = read.inspect_err(|broken| say_findings(&broken.report, say))?;
        // The warnings about a zone that is given twice are not of interest.
        if !self.by_apex.contains_key(&read.apex) {
            say_findings(&read.report, say);
        }
        self.example.get_or_insert_with(|| read.example.clone());
        Ok(Arc::new(GoodZone::new(
            spec.clone(),
            read,
            &mut self.group_labels,
        )))
    }

    /// Adds a zone. Of two files with the same zone, the one that was served before is served, or else
    /// the first.
    fn add(&mut self, zone: Arc<GoodZone>) {
        let Some(&at) = self.by_apex.get(zone.facts.apex()) else {
            self.by_apex
                .insert(zone.facts.apex().into(), self.good.len());
            self.good.push(zone);
            return;
        };
        let mut served = self.before.good.iter();
        let is_known = |zone: &GoodZone, known: &GoodZone| {
            known.facts.apex() == zone.facts.apex() && known.facts.file() == zone.facts.file()
        };
        let mut other = zone;
        if served.any(|known| is_known(&other, known)) {
            std::mem::swap(&mut self.good[at], &mut other);
        }
        let by = self.good[at].facts.file().display().to_string();
        let file = other.facts.file().display().to_string();
        self.unserved
            .push(UnservedFile::duplicate(file, other.facts.apex(), by));
    }

    /// Adds a zone as it was before, because its file has errors now.
    fn add_stale(&mut self, broken: Broken, old: Arc<GoodZone>) {
        let error = broken.report.first_error().cloned();
        let file = old.facts.file().display().to_string();
        self.stale
            .push(UnservedFile::broken(file, broken.apex, error));
        self.add(old);
    }

    /// Returns all zones. `read` is the number of those that were read, not kept.
    fn finish(mut self, read: usize) -> ZoneFiles {
        // The reasons why broken zones are not served are determined only now, because a good zone
        // may follow a broken zone of the same name.
        for (file, broken) in self.broken {
            let error = broken.report.first_error().cloned();
            let apex = broken.apex.map(|apex| apex.to_ascii_lowercase());
            let by = apex.as_ref().and_then(|apex| self.by_apex.get(&**apex));
            let by = by.map(|at| self.good[*at].facts.file().display().to_string());
            self.unserved.push(match (apex, by) {
                (Some(apex), Some(by)) => UnservedFile::duplicate(file, &apex, by),
                (apex, _) => UnservedFile::broken(file, apex, error),
            });
        }
        ZoneFiles {
            hashing: self.before.hashing.clone(),
            good: self.good,
            stale: self.stale,
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
