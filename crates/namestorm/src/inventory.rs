//! The zones of a running server as its operator sees them, and their list for the command `zones`.

mod expiry;
mod line;
mod old_records;
mod signature_watch;

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use control::{ContentList, Tally};

use self::expiry::Signatures;
pub(crate) use self::line::{Heading, Line};
use self::line::{Row, State, Summary};
use self::old_records::OldRecords;
use self::signature_watch::SignatureWatch;
use crate::answers::Answers;
use crate::load::ZoneSpec;
use crate::name::Name;
use crate::zone_counts::ZoneCounts;
use crate::zone_files::{UnservedFile, ZoneFacts, ZoneFiles};

/// The name of the list.
pub(crate) const ZONES: &str = "zones";
/// The counts of replies for each group of zones, and the label with the name of the group.
pub(crate) const REPLIES_BY_ZONE: &str = "replies by zone";
/// The counts of completed transfers, with the same label.
pub(crate) const TRANSFERS_BY_ZONE: &str = "transfers by zone";

/// The zones of a server and their states. The reload thread changes them, and the control thread
/// lists them. Neither of them waits long for the other one, and no answers are kept for a list.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    contents: Mutex<Arc<Contents>>,
    /// Number of zones in each state. A worker reports them.
    counts: [AtomicU64; State::ALL.len()],
    /// Number of signed zones whose signatures are in each state. A worker reports them.
    signed: [AtomicU64; Signatures::ALL.len()],
    /// The control thread warns of signatures.
    watch: Mutex<SignatureWatch>,
    /// The control thread frees them.
    old_records: OldRecords,
}

/// The zones at one time.
#[derive(Clone, Debug, Default)]
struct Contents {
    served: Vec<Arc<ZoneFacts>>,
    unserved: Arc<[UnservedFile]>,
    /// The zones that keep their old answers because their files have errors, and the first errors. A
    /// file may have several zones.
    stale: HashMap<ZoneSpec, String>,
    /// The counts of the zones in `served`, which have the same numbers.
    counts: Arc<ZoneCounts>,
    /// The counts of queries and transfers of each zone from the time when zones had other numbers.
    past: Arc<HashMap<Arc<[u8]>, [u64; 2]>>,
}

impl Inventory {
    /// Notes the zones that are served from now on with these answers.
    pub(crate) fn note_served(&self, files: &ZoneFiles, answers: &Answers) {
        let served = files.facts().cloned().collect();
        let unserved = Arc::clone(files.unserved());
        self.change(|now| {
            now.replace_served(served, answers.zone_counts());
            now.unserved = unserved;
        });
    }

    /// Same as [`note_served`](Self::note_served), but cheaper if only a few zones have changed since those
    /// of `before` were noted. No worker uses older answers than `answers` any more.
    pub(crate) fn note_reloaded(&self, files: &ZoneFiles, before: &ZoneFiles, answers: &Answers) {
        self.old_records.keep(before.records_not_in(files));
        let is_same = Arc::ptr_eq(files.unserved(), before.unserved());
        let Some(numbers) = files.replaced_since(before).filter(|_| is_same) else {
            return self.note_served(files, answers);
        };
        let mut contents = self.lock();
        let served = &mut Arc::make_mut(&mut contents).served;
        let mut are_signed = false;
        for number in numbers {
            let facts = files.facts_of(number);
            let old = mem::replace(&mut served[number], Arc::clone(facts));
            let is_signed = |zone: &ZoneFacts| expiry::of_zone(zone, 0).is_some();
            are_signed |= is_signed(&old) || is_signed(facts);
        }
        if are_signed {
            self.count_signatures(served, SystemTime::now());
        }
    }

    /// Notes all files with errors whose zones keep their old answers.
    pub(crate) fn note_stale(&self, stale: &[UnservedFile]) {
        let of_file = |file: &UnservedFile| (file.spec().clone(), file.error());
        self.change(|now| now.stale = stale.iter().map(of_file).collect());
    }

    /// Notes that a file has an error, and that its zone keeps its old answers.
    pub(crate) fn note_stale_file(&self, file: &UnservedFile) {
        self.change(|now| drop(now.stale.insert(file.spec().clone(), file.error())));
    }

    /// Notes that the file of a zone has no error any more.
    pub(crate) fn note_correct_file(&self, spec: &ZoneSpec) {
        if self.lock().stale.contains_key(spec) {
            self.change(|now| drop(now.stale.remove(spec)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Contents)) {
        let mut contents = self.lock();
        // A list that is being made keeps the old contents.
        let now = Arc::make_mut(&mut contents);
        change(now);
        let mut counts = [0; State::ALL.len()];
        let served = now.served.iter().map(|zone| now.state_of(zone).0);
        for state in served.chain(now.unserved.iter().map(state_of_unserved)) {
            counts[state as usize] += 1;
        }
        for (count, number) in self.counts.iter().zip(counts) {
            count.store(number, Ordering::Relaxed);
        }
        self.count_signatures(&now.served, SystemTime::now());
    }

    /// Counts the signed zones by the state of their signatures.
    fn count_signatures(&self, served: &[Arc<ZoneFacts>], now: SystemTime) {
        let now = expiry::seconds(now);
        let mut counts = [0; Signatures::ALL.len()];
        for (_, state) in served.iter().filter_map(|zone| expiry::of_zone(zone, now)) {
            counts[state as usize] += 1;
        }
        for (count, number) in self.signed.iter().zip(counts) {
            count.store(number, Ordering::Relaxed);
        }
    }

    /// Returns each state of signatures with the number of signed zones. Takes no lock.
    pub(crate) fn by_signatures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let states = Signatures::ALL.iter().zip(&self.signed);
        states.map(|(state, count)| (state.name(), count.load(Ordering::Relaxed)))
    }

    /// Counts the signed zones, and returns warnings about those whose signatures expire.
    fn warnings(&self, now: SystemTime) -> Vec<String> {
        let contents = Arc::clone(&self.lock());
        self.count_signatures(&contents.served, now);
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.lines(&contents.served, now)
    }

    /// Returns the name of each state with the number of zones in it. Takes no lock.
    pub(crate) fn by_state(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let states = State::ALL.iter().zip(&self.counts);
        states.map(|(state, count)| (state.name(), count.load(Ordering::Relaxed)))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Contents>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    /// Replaces the zones that are served. If they have other numbers, keeps what was counted of them.
    fn replace_served(&mut self, served: Vec<Arc<ZoneFacts>>, counts: &Arc<ZoneCounts>) {
        if !Arc::ptr_eq(&self.counts, counts) {
            let known =
                (0..self.served.len()).map(|at| (self.served[at].apex(), self.counts_of(at)));
            let known: HashMap<_, _> = known.filter(|(_, counts)| *counts != [0; 2]).collect();
            let past = served.iter().filter_map(|zone| {
                let counts = known.get(zone.apex())?;
                Some((zone.shared_apex(), *counts))
            });
            let past = past.collect();
            self.past = Arc::new(past);
            self.counts = Arc::clone(counts);
        }
        self.served = served;
    }

    /// Returns the numbers of queries and transfers of the zone with this number.
    fn counts_of(&self, number: usize) -> [u64; 2] {
        let past = self.past.get(self.served[number].apex());
        let [[queries, transfers], past] =
            [self.counts.of(number), past.copied().unwrap_or_default()];
        [queries + past[0], transfers + past[1]]
    }

    /// Returns the state of a zone that is served, and the error in its file.
    fn state_of(&self, zone: &ZoneFacts) -> (State, Option<&String>) {
        if self.stale.is_empty() {
            return (State::Served, None);
        }
        let error = self.stale.get(zone.spec());
        (error.map_or(State::Served, |_| State::Old), error)
    }
}

fn state_of_unserved(file: &UnservedFile) -> State {
    if file.is_duplicate() {
        State::Twice
    } else {
        State::Broken
    }
}

impl ContentList for Inventory {
    fn name(&self) -> &'static str {
        ZONES
    }

    fn lines(&self, names: Vec<String>, _: &Tally) -> Box<dyn Iterator<Item = String> + Send> {
        let contents = Arc::clone(&self.lock());
        Box::new(Listing::new(contents, names))
    }

    fn notice(&self, now: SystemTime) {
        self.old_records.free();
        for line in self.warnings(now) {
            tracing::warn!("{line}");
        }
    }
}

/// A list of zones that is being made.
struct Listing {
    contents: Arc<Contents>,
    /// The zones that are wanted, if not all of them: the name as it was given, and whether a zone has
    /// it. The keys are the names in wire format and lower case.
    wanted: HashMap<Vec<u8>, (String, bool)>,
    /// Number of zones that were visited.
    visited: usize,
    /// The time when the list began, in seconds since 1970, modulo 2^32.
    now: u32,
    summary: Summary,
    has_ended: bool,
}

impl Listing {
    fn new(contents: Arc<Contents>, names: Vec<String>) -> Self {
        let mut summary = Summary::default();
        let mut wanted = HashMap::new();
        for text in names {
            match text.parse::<Name>() {
                Ok(name) => {
                    wanted.insert(name.as_wire().to_ascii_lowercase(), (text, false));
                }
                Err(_) => summary.unknown.push(text),
            }
        }
        Self {
            contents,
            wanted,
            visited: 0,
            now: expiry::seconds(SystemTime::now()),
            summary,
            has_ended: false,
        }
    }

    /// Returns true if a zone with this name is wanted.
    fn wants(&mut self, name: Option<&[u8]>) -> bool {
        if self.wanted.is_empty() && self.summary.unknown.is_empty() {
            return true;
        }
        let wanted = name.and_then(|name| self.wanted.get_mut(name));
        wanted.map(|(_, is_found)| *is_found = true).is_some()
    }

    /// Returns the line of the next zone that is wanted.
    fn next_row(&mut self) -> Option<Row> {
        let contents = Arc::clone(&self.contents);
        loop {
            let (state, row) = if let Some(zone) = contents.served.get(self.visited) {
                let (state, error) = contents.state_of(zone);
                let is_wanted = self.wants(Some(zone.apex()));
                let signatures = expiry::of_zone(zone, self.now).map(|(_, state)| state);
                self.summary.add_signatures(signatures);
                let row = is_wanted.then(|| {
                    let counts = contents.counts_of(self.visited);
                    Row::served(zone, state, error.cloned(), counts)
                });
                (state, row.map(|row| row.with_signatures(signatures)))
            } else {
                let at = self.visited - contents.served.len();
                let file = contents.unserved.get(at)?;
                let state = state_of_unserved(file);
                let is_wanted = self.wants(file.name());
                (state, is_wanted.then(|| Row::unserved(file, state)))
            };
            self.visited += 1;
            self.summary.add(state, row.is_some());
            if row.is_some() {
                return row;
            }
        }
    }
}

impl Iterator for Listing {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.has_ended {
            return None;
        }
        let line = if let Some(row) = self.next_row() {
            Line::Zone(row)
        } else {
            self.has_ended = true;
            let mut summary = std::mem::take(&mut self.summary);
            let unknown = self.wanted.values().filter(|(_, is_found)| !is_found);
            summary
                .unknown
                .extend(unknown.map(|(text, _)| text.clone()));
            summary.unknown.sort();
            Line::End { summary }
        };
        // A line has no map, so it can always be written.
        Some(serde_json::to_string(&line).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
