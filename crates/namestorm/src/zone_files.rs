//! The zones of a server as read from their files. Those without errors can be served. What has not
//! changed is not read again.

mod by_file;
mod by_path;
mod facts;
mod good_zone;
mod news;
mod read_again;
mod reading;
mod unserved;

use std::collections::{BTreeSet, HashSet};
use std::io::{self, ErrorKind};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ahash::HashMap;
use control::report::count;

use self::by_file::{ByFile, Known};
use self::by_path::ByPath;
pub(crate) use self::facts::ZoneFacts;
use self::good_zone::GoodZone;
pub(crate) use self::read_again::ReadAgain;
use self::reading::{ReadZone, read_all, read_zone};
pub(crate) use self::reading::{example, has_www};
pub(crate) use self::unserved::{UnservedFile, faulty_files, summary};

use crate::answers::{Answers, Size, ZoneAnswers};
use crate::groups::GroupLabels;
use crate::key::{Hashing, Key};
use crate::load::{Broken, ReadFile, ZoneSpec};
use crate::name;
use crate::report::Report;
use crate::rtype;
use crate::zone_records::ZoneRecords;

/// Maximum number of zones that a description of a change names.
const NAMED: usize = 5;

/// The zones of a server, in the order in which they are given.
#[derive(Debug)]
pub(crate) struct ZoneFiles {
    hashing: Hashing,
    /// Whether the records of zones are kept, for transfers.
    keeps_records: bool,
    good: Vec<Arc<GoodZone>>,
    /// The index of the files of `good`, which is made when it is first needed.
    by_path: Arc<OnceLock<ByPath>>,
    /// The files with errors whose zones stay as they were.
    stale: Vec<UnservedFile>,
    /// The files that are not served.
    unserved: Arc<[UnservedFile]>,
    group_labels: GroupLabels,
    /// Name and type of an example query.
    example: Option<String>,
    /// Number of zones that were read, not kept.
    read: usize,
    /// The files of zones with errors in readings that have changed nothing.
    tried: BTreeSet<PathBuf>,
}

impl ZoneFiles {
    /// Starts without zones.
    pub(crate) fn new(hashing: Hashing) -> Self {
        Self {
            hashing,
            keeps_records: false,
            good: Vec::new(),
            by_path: Arc::default(),
            stale: Vec::new(),
            unserved: Arc::default(),
            group_labels: GroupLabels::default(),
            example: None,
            read: 0,
            tried: BTreeSet::new(),
        }
    }

    /// Returns the same without zones.
    pub(crate) fn without_zones(&self) -> Self {
        Self::new(self.hashing.clone())
    }

    /// Keeps the records of zones beside their answers, for transfers, if `keeps` is set.
    pub(crate) fn keeping_records(self, keeps: bool) -> Self {
        Self {
            keeps_records: keeps,
            ..self
        }
    }

    /// Reads those zones of `specs` that have changed, are new, or were not served, on this number of
    /// threads. Keeps the answers of the others, and of a zone that has errors now, even in another file.
    /// Passes findings to `say`.
    pub(crate) fn read(
        &self,
        specs: &[ZoneSpec],
        threads: usize,
        say: &mut dyn FnMut(String),
    ) -> Self {
        self.read_others(&[], specs, threads, say)
    }

    /// Same as [`read`](Self::read), but does not read the zones with the numbers `just_read` once more. Their
    /// files may be so young that they would count as changed.
    pub(crate) fn read_others(
        &self,
        just_read: &[usize],
        specs: &[ZoneSpec],
        threads: usize,
        say: &mut dyn FnMut(String),
    ) -> Self {
        let mut known = ByFile::new(&self.good, just_read, &self.hashing);
        let known: Vec<_> = specs.iter().map(|spec| known.find(spec)).collect();
        let is_changed = |(_, known): &(_, &Known<'_>)| !matches!(known, Known::Unchanged(_));
        let changed = specs.iter().zip(&known).filter(is_changed);
        let changed: Vec<_> = changed.map(|(spec, _)| spec).collect();
        let read = |spec: &ZoneSpec| read_zone(spec, &self.hashing, self.keeps_records);
        let mut read = read_all(&changed, threads, read);
        let mut gatherer = Gatherer::new(self);
        for (spec, known) in specs.iter().zip(known) {
            let old = match known {
                Known::Unchanged(zone) => {
                    gatherer.add(Arc::clone(zone));
                    continue;
                }
                Known::Changed(old) => Some(old),
                Known::Not => None,
            };
            let Some(read) = read.next() else {
                continue;
            };
            // A zone that has become broken stays as it was.
            match (gatherer.zone(spec, read, say), old) {
                (Ok(zone), _) => gatherer.add(zone),
                (Err(broken), Some(old)) => gatherer.add_stale(broken, Arc::clone(old)),
                (Err(broken), None) => gatherer.broken.push((spec.clone(), broken)),
            }
        }
        gatherer.finish(just_read.len() + changed.len())
    }

    /// Returns the number of the zone named `apex` (in lower case), if it can be served. With the right
    /// `guess`, no other zone is looked at.
    pub(crate) fn position(&self, apex: &[u8], guess: Option<usize>) -> Option<usize> {
        let is_it = |zone: &Arc<GoodZone>| zone.facts.apex() == apex;
        let guess = guess.filter(|at| self.good.get(*at).is_some_and(is_it));
        guess.or_else(|| self.good.iter().position(is_it))
    }

    /// Returns the answers of all zones. Queries for zones with errors get SERVFAIL.
    pub(crate) fn answers(&self) -> Answers {
        let good = self.good.iter().map(|zone| Arc::clone(&zone.answers));
        let broken = self.broken().into_iter();
        let broken = broken.map(|apex| Arc::new(ZoneAnswers::broken(self.hashing.clone(), apex)));
        let zones = good.chain(broken).collect();
        Answers::new(
            self.hashing.clone(),
            zones,
            self.group_labels.clone(),
            false,
        )
    }

    /// Same as [`answers`](Self::answers), but cheaper if only a few zones have changed. `old` are the
    /// answers of `before`.
    pub(crate) fn answers_after(&self, before: &Self, old: &Answers) -> Answers {
        let Some(replaced) = self.replaced_since(before) else {
            return self.answers();
        };
        let replaced = replaced.into_iter();
        let replaced = replaced.map(|number| (number, &self.good[number].answers));
        old.with_zones(replaced, self.group_labels.clone())
    }

    /// Returns the names of the zones that could not be loaded.
    fn broken(&self) -> HashSet<&[u8]> {
        let unserved = self.unserved.iter();
        unserved.filter_map(UnservedFile::apex).collect()
    }

    /// Returns the numbers of the zones that were read again since `before`. Returns `None` if other
    /// zones can be served, or if others are broken.
    pub(crate) fn replaced_since(&self, before: &Self) -> Option<Vec<usize>> {
        if self.good.len() != before.good.len() || self.broken() != before.broken() {
            return None;
        }
        let pairs = self.good.iter().zip(&before.good).enumerate();
        let replaced = pairs.filter(|(_, (zone, old))| !Arc::ptr_eq(zone, old));
        let replaced = replaced.map(|(number, (zone, old))| {
            let has_same_name = zone.facts.apex() == old.facts.apex();
            has_same_name.then_some(number)
        });
        replaced.collect()
    }

    /// Returns the records that are kept of zones, unless `others` have the same records.
    pub(crate) fn records_not_in<'f>(
        &'f self,
        others: &'f Self,
    ) -> impl Iterator<Item = &'f Arc<ZoneRecords>> {
        let numbers = self.keeps_records.then(|| others.replaced_since(self));
        let zones: Vec<_> = match numbers {
            None => Vec::new(),
            Some(Some(replaced)) => {
                let pairs = replaced
                    .into_iter()
                    .map(|at| [self, others].map(|files| &files.good[at].answers));
                let pairs = pairs.filter(|[own, other]| !Arc::ptr_eq(own, other));
                pairs.map(|[own, _]| own).collect()
            }
            Some(None) => {
                let others = others.good.iter();
                let others: HashSet<_> = others.map(|zone| Arc::as_ptr(&zone.answers)).collect();
                let own = self.good.iter().map(|zone| &zone.answers);
                own.filter(|zone| !others.contains(&Arc::as_ptr(zone)))
                    .collect()
            }
        };
        zones.into_iter().filter_map(|zone| zone.records())
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
            key.set(answers.hashing(), parent);
            let above = answers.zone(answers.zone_of(rtype::NS, &key));
            key.set(answers.hashing(), zone.facts.apex());
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

    /// Returns what is known of the zone with this number.
    ///
    /// # Panics
    /// If there is no such zone.
    pub(crate) fn facts_of(&self, number: usize) -> &Arc<ZoneFacts> {
        &self.good[number].facts
    }

    /// Returns the number of zones that were read, not kept.
    pub(crate) fn read_count(&self) -> usize {
        self.read
    }

    /// Returns true if other zones are served than `before`, or other answers of them.
    pub(crate) fn differ_from(&self, before: &Self) -> bool {
        self.replaced_since(before)
            .is_none_or(|replaced| !replaced.is_empty())
    }

    /// Names the zones that can be served in addition to `before`, and those that no longer can. The
    /// text is empty, or begins with a semicolon.
    pub(crate) fn changes_since(&self, before: &Self) -> String {
        if self.replaced_since(before).is_some() {
            return String::new();
        }
        let names = |files: &Self, others: &Self| {
            let zones = files.zones_beside(others);
            let names = zones
                .iter()
                .take(NAMED)
                .map(|zone| name::Shown(zone.apex()).to_string());
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

    /// Returns the zones that can be served, except for those that `others` have too.
    fn zones_beside(&self, others: &Self) -> Vec<&ZoneFacts> {
        let others: HashSet<_> = others.facts().map(|zone| zone.apex()).collect();
        let zones = self.facts().map(|zone| &**zone);
        zones.filter(|zone| !others.contains(zone.apex())).collect()
    }

    /// Looks for a file that seemed to be missing, and whose zone is in `before` only. Returns its path and
    /// the error if nobody can say that the file is missing.
    pub(crate) fn hidden_since<'b>(&self, before: &'b Self) -> Option<(&'b Path, io::Error)> {
        if self.replaced_since(before).is_some() {
            return None;
        }
        let removed = before.zones_beside(self).into_iter();
        let mut looked = removed.filter_map(|zone| {
            let error = zone.file().symlink_metadata().err()?;
            Some((zone.file(), error))
        });
        looked.find(|(_, error)| {
            !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        })
    }

    /// Returns the files that the zones were read from, also those of zones with errors. A file may come
    /// several times.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let good = self.good.iter();
        let good = good.flat_map(|zone| zone.files.iter().map(ReadFile::path));
        let wrong = self.stale.iter().chain(self.unserved.iter());
        let wrong = wrong.flat_map(UnservedFile::files).chain(&self.tried);
        good.chain(wrong.map(PathBuf::as_path))
    }

    /// Notes that a reading had these zones with errors, even if it changes nothing else.
    pub(crate) fn note_tried<'f>(&mut self, wrong: impl IntoIterator<Item = &'f UnservedFile>) {
        let files = wrong.into_iter().flat_map(UnservedFile::files);
        self.tried.extend(files.cloned());
    }

    /// Returns the files with errors whose zones stay as they were.
    pub(crate) fn stale(&self) -> &[UnservedFile] {
        &self.stale
    }

    /// Returns the files that are not served.
    pub(crate) fn unserved(&self) -> &Arc<[UnservedFile]> {
        &self.unserved
    }

    /// Says why the zone named `apex` cannot be served. `name` is the name as the operator wrote it. Only files
    /// with errors count that have this zone, or whose zone is unknown.
    pub(crate) fn why_missing(&self, name: &str, apex: &[u8]) -> String {
        let wrong = || self.stale.iter().chain(self.unserved.iter());
        let has = |one: &[u8]| one.eq_ignore_ascii_case(apex);
        let is_it = |file: &&UnservedFile| file.apex().is_some_and(has);
        if let Some(file) = wrong().find(is_it) {
            return file.cannot_be_loaded(apex);
        }
        let why = faulty_files(wrong().filter(|file| file.name().is_none()));
        let why = why.map_or(String::new(), |why| format!("; {why}"));
        format!("{name:?} is no zone; the command zones lists them{why}")
    }

    /// Returns name and type of an example query.
    pub(crate) fn example(&self) -> Option<String> {
        self.example.clone()
    }
}

/// Collects the zones, and detects duplicates.
struct Gatherer<'z> {
    /// The zones as they were before.
    before: &'z ZoneFiles,
    good: Vec<Arc<GoodZone>>,
    /// Maps the name of each good zone to its number. It is made when it is first needed.
    by_apex: Option<HashMap<Arc<[u8]>, usize>>,
    broken: Vec<(ZoneSpec, Broken)>,
    stale: Vec<UnservedFile>,
    unserved: Vec<UnservedFile>,
    group_labels: GroupLabels,
    example: Option<String>,
}

impl<'z> Gatherer<'z> {
    fn new(before: &'z ZoneFiles) -> Self {
        Self {
            before,
            good: Vec::with_capacity(before.good.len()),
            by_apex: None,
            broken: Vec::new(),
            stale: Vec::new(),
            unserved: Vec::new(),
            group_labels: before.group_labels.clone(),
            example: before.example.clone(),
        }
    }

    /// Returns the map from the name of each good zone to its number.
    fn by_apex(&mut self) -> &mut HashMap<Arc<[u8]>, usize> {
        self.by_apex.get_or_insert_with(|| {
            let mut numbers = self.before.hashing.map(self.before.good.len());
            let names = self.good.iter().map(|zone| zone.facts.shared_apex());
            numbers.extend(names.zip(0..));
            numbers
        })
    }

    /// Returns true if the next zone has the name that it had before, and so have all earlier ones. Then
    /// it is not given twice.
    fn is_as_before(&self, next: &Arc<GoodZone>) -> bool {
        let old = self.before.good.get(self.good.len());
        let is_same =
            |old: &Arc<GoodZone>| Arc::ptr_eq(old, next) || old.facts.apex() == next.facts.apex();
        self.by_apex.is_none() && old.is_some_and(is_same)
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
        let has_findings = !read.report.findings().is_empty();
        if has_findings && !self.by_apex().contains_key(&*read.apex) {
            say_findings(&read.report, say);
        }
        self.example
            .get_or_insert_with(|| example(&read.apex, read.has_www));
        Ok(Arc::new(GoodZone::new(
            spec.clone(),
            read,
            &mut self.group_labels,
        )))
    }

    /// Adds a zone. Of two files with the same zone, the one that was served before is served, or else
    /// the first.
    fn add(&mut self, zone: Arc<GoodZone>) {
        if self.is_as_before(&zone) {
            self.good.push(zone);
            return;
        }
        let Some(&at) = self.by_apex().get(zone.facts.apex()) else {
            let number = self.good.len();
            self.by_apex().insert(zone.facts.shared_apex(), number);
            self.good.push(zone);
            return;
        };
        let mut served = self.before.good.iter();
        let is_known = |zone: &GoodZone, known: &GoodZone| {
            known.facts.apex() == zone.facts.apex() && known.facts.spec() == zone.facts.spec()
        };
        let mut other = zone;
        if served.any(|known| is_known(&other, known)) {
            mem::swap(&mut self.good[at], &mut other);
        }
        let by = self.good[at].facts.file().display().to_string();
        let spec = other.facts.spec().clone();
        self.unserved
            .push(UnservedFile::duplicate(spec, other.facts.apex(), by));
    }

    /// Adds a zone as it was before, because its file has errors now.
    fn add_stale(&mut self, broken: Broken, old: Arc<GoodZone>) {
        let spec = old.facts.spec().clone();
        self.stale.push(UnservedFile::broken(spec, broken));
        self.add(old);
    }

    /// Keeps each zone that no file has any more, except for one with errors that was not known before.
    fn keep_moved(&mut self) {
        if self.broken.is_empty() {
            return;
        }
        let before = self.before;
        let old = before.good.iter().map(|zone| (zone.facts.apex(), zone));
        let mut by_apex = before.hashing.map(before.good.len());
        by_apex.extend(old);
        for (spec, broken) in mem::take(&mut self.broken) {
            let apex = broken.apex.as_ref().map(|apex| apex.to_ascii_lowercase());
            let apex = apex.filter(|apex| !self.by_apex().contains_key(&**apex));
            match apex.and_then(|apex| by_apex.get(&*apex)) {
                Some(old) => self.add_stale(broken, Arc::new(old.moved_to(spec))),
                None => self.broken.push((spec, broken)),
            }
        }
    }

    /// Returns all zones. `read` is the number of zones that were read and not kept.
    fn finish(mut self, read: usize) -> ZoneFiles {
        self.keep_moved();
        // The reasons why broken zones are not served are determined only now, because a good zone
        // may follow a broken zone of the same name.
        for (spec, mut broken) in mem::take(&mut self.broken) {
            broken.apex = broken.apex.map(|apex| apex.to_ascii_lowercase());
            let by = broken.apex.as_ref();
            let by = by.and_then(|apex| self.by_apex().get(&**apex).copied());
            let by = by.map(|at| self.good[at].facts.file().display().to_string());
            self.unserved.push(match (&broken.apex, by) {
                (Some(apex), Some(by)) => UnservedFile::duplicate(spec, apex, by),
                _ => UnservedFile::broken(spec, broken),
            });
        }
        ZoneFiles {
            hashing: self.before.hashing.clone(),
            keeps_records: self.before.keeps_records,
            by_path: self.before.index_for(&self.good),
            good: self.good,
            stale: self.stale,
            unserved: self.unserved.into(),
            group_labels: self.group_labels,
            example: self.example,
            read,
            tried: BTreeSet::new(),
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
