//! What a running server tells of itself: the same facts and counts for the command `status`, the
//! status page and metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nmio::{BatchSizes, PortCounters, PortLevels, Times};
use serde::{Deserialize, Serialize};

use crate::config::Unread;
use crate::latency::{Latency, QUANTILES, Range};
use crate::live::{Snapshot, WorkerSnapshot};
use crate::report::{self, Block, count, counted};
use crate::tally::{Count, CountKind, Labels};

/// Number of ranges of times that a status distinguishes. The longest of them ends at 34 s.
const TIME_RANGES: usize = 26;

/// The program of what a port counts.
pub(crate) const PORT: &str = "port";
/// The label of a count of one of several sites.
pub(crate) const SITE: &str = "site";
/// The label of the line that says where a site is served.
pub(crate) const SITE_AT: &str = "site at";
/// The label of a count of a zone, or of a group of zones.
pub(crate) const ZONES: &str = "zones";

/// The state of a server at one time. Its JSON is what `status --json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's name.
    pub program: String,
    /// The program's version.
    pub version: String,
    /// Whether the server serves.
    pub phase: Phase,
    /// Time since the server began to start, in seconds.
    pub uptime_seconds: f64,
    /// How often the system's clock was set, by two seconds or more.
    #[serde(default)]
    pub clock_steps: u64,
    /// The reloads so far.
    pub reloads: Reloads,
    /// The sockets for the operator, `metrics` and `control`, each with whether it can be used. One that is
    /// switched off is not among them.
    #[serde(default)]
    pub endpoints: BTreeMap<String, bool>,
    /// The interface.
    #[serde(default)]
    pub interface: InterfaceStatus,
    /// The lines of the start block.
    pub facts: Vec<(String, String)>,
    /// The counts of each worker, ordered by worker number.
    pub workers: Vec<WorkerStatus>,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Not all workers are ready.
    #[default]
    Starting,
    /// All workers serve.
    Serving,
    /// The interface was removed, and the server waits until it returns.
    Waiting,
    /// The server has been asked to stop.
    Stopping,
    /// The server has ended, also after an error. Only a [`Handle`](crate::Handle) can see this.
    Ended,
}

/// The interface that a server serves, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Whether it exists.
    pub is_present: bool,
    /// Whether it is up and has a carrier.
    pub is_up: bool,
    /// The addresses that are served.
    pub addresses: Vec<String>,
    /// The addresses that are not served, each with the reason.
    #[serde(default)]
    pub refused: Vec<(String, String)>,
    /// Why the interface cannot be served again, if it has returned after a removal.
    #[serde(default)]
    pub not_reopened: Option<String>,
    /// Where each program and site is served, with the addresses that are served now.
    #[serde(default)]
    pub listening: Vec<PlaceStatus>,
    /// Numbers of its changes since the start, by kind.
    pub changes: BTreeMap<String, u64>,
}

/// Where a program, or one of its sites, is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceStatus {
    /// The program's name.
    pub program: String,
    /// The site, if the program has several, or if the site has addresses of its own.
    pub site: Option<String>,
    /// Each address with a port: `192.0.2.80:80`, `[2001:db8::80]:80`.
    pub at: Vec<String>,
}

impl PlaceStatus {
    /// Describes the place of a site in one line: `/srv/www: 192.0.2.80:80`.
    pub(crate) fn site_line(&self) -> Option<String> {
        let site = self.site.as_ref()?;
        if self.at.is_empty() {
            return Some(format!("{site}: no address"));
        }
        Some(format!("{site}: {}", self.at.join(" ")))
    }
}

impl InterfaceStatus {
    /// Counts a change of this kind.
    pub(crate) fn count(&mut self, change: &str) {
        *self.changes.entry(change.to_owned()).or_default() += 1;
    }

    /// Describes the interface in one line.
    fn describe(&self) -> String {
        let state = match (self.is_present, self.is_up) {
            (false, _) => "removed",
            (true, true) => "up",
            (true, false) => "down",
        };
        let addresses = self.addresses.join(" ");
        let addresses = if addresses.is_empty() {
            "no address"
        } else {
            &addresses
        };
        let line = format!("{}, {state}, {addresses}", self.name);
        match &self.not_reopened {
            Some(why) => format!("{line}; it cannot be served again: {why}"),
            None => line,
        }
    }
}

/// The reloads of a server's content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reloads {
    /// Number of the content that is served. The content of the start has number 1, and each
    /// reload adds 1, unless it failed.
    pub generation: u64,
    /// Number of reloads that kept a part of the old content because of an error.
    #[serde(default)]
    pub partial: u64,
    /// Number of reloads that kept all of the old content because of an error.
    pub failed: u64,
    /// Numbers of reloads that could not read the configuration file again.
    #[serde(default)]
    pub unread: UnreadCounts,
    /// Whether a reload is running.
    pub running: bool,
    /// The reload that ended last.
    pub last: Option<LastReload>,
}

/// Numbers of reloads that could not read the configuration file again, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadCounts {
    /// The file has changed, but the server may not read it.
    pub forbidden: u64,
    /// The server may not enter the folder of the file, so it may have changed.
    pub hidden: u64,
    /// The file is gone.
    pub gone: u64,
}

impl UnreadCounts {
    /// Counts a file that could not be read.
    pub(crate) fn count(&mut self, unread: &Unread) {
        *match unread {
            Unread::Forbidden(_) => &mut self.forbidden,
            Unread::Hidden(_) => &mut self.hidden,
            Unread::Gone(..) => &mut self.gone,
        } += 1;
    }
}

impl Default for Reloads {
    fn default() -> Self {
        Self {
            generation: 1,
            partial: 0,
            failed: 0,
            unread: UnreadCounts::default(),
            running: false,
            last: None,
        }
    }
}

impl Reloads {
    /// Adds a reload that has ended.
    pub(crate) fn add(&mut self, last: LastReload) {
        match last.result {
            ReloadResult::Succeeded => self.generation += 1,
            ReloadResult::Partial => {
                self.generation += 1;
                self.partial += 1;
            }
            ReloadResult::Failed => self.failed += 1,
        }
        self.last = Some(last);
    }

    /// Returns the number of reloads after which all content was new.
    pub(crate) fn succeeded(&self) -> u64 {
        self.generation.saturating_sub(1 + self.partial)
    }

    /// Describes the reloads that kept old content: `1 reload failed, 2 were partial`.
    pub(crate) fn errors(&self) -> String {
        let failed = match self.failed {
            0 => "no reload failed".to_owned(),
            failed => counted(failed, "reload") + " failed",
        };
        match self.partial {
            0 => failed,
            1 => failed + ", 1 was partial",
            n => failed + &format!(", {} were partial", count(n)),
        }
    }

    /// Describes the last reload if it kept old content.
    pub(crate) fn last_error(&self) -> Option<String> {
        let last = self.last.as_ref()?;
        let what = match last.result {
            ReloadResult::Succeeded => return None,
            ReloadResult::Partial => "was partial",
            ReloadResult::Failed => "failed",
        };
        Some(format!("the last reload {what}: {}", last.message))
    }
}

/// What has become of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReloadResult {
    /// The new content is served.
    Succeeded,
    /// New content is served, but a part keeps its old content because of an error.
    Partial,
    /// The old content stays because of an error.
    Failed,
}

/// A reload that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastReload {
    /// What has become of it.
    pub result: ReloadResult,
    /// Why content is old, and then a description of the new content.
    pub message: String,
    /// How long it took.
    pub seconds: f64,
    /// When it ended, in seconds since 1970.
    pub unix_time: f64,
}

/// The counts of one worker since its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Time since the worker published these counts. `None`: it is not ready yet.
    pub age_seconds: Option<f64>,
    /// Counts of the worker's port, by name.
    pub port: BTreeMap<String, u64>,
    /// The program's counts, and how full the port's memory and rings are. The program of the
    /// latter is `port`.
    pub counts: Vec<StatusCount>,
    /// The dropped packets, by reason. The program of those that the port dropped is `port`.
    pub drops: Vec<StatusCount>,
    /// How often values lay in each range.
    pub histograms: Vec<Histogram>,
}

/// A histogram of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The program that measured the values, or `port`.
    pub program: String,
    /// Name of the values, with their unit at the end.
    pub name: String,
    /// What the values are, if the program has said so.
    #[serde(skip)]
    pub meaning: Option<&'static str>,
    /// The histogram's labels.
    pub labels: BTreeMap<String, String>,
    /// Sum of all values.
    pub sum: f64,
    /// The inclusive upper bound and the count of each range, in ascending order. The last range has
    /// no upper bound.
    pub ranges: Vec<Range>,
}

impl Histogram {
    fn batches(direction: &str, frames: u64, batches: &BatchSizes) -> Self {
        let classes = batches.classes();
        let ranges = classes.iter().enumerate().map(|(class, count)| {
            let bound = (class + 1 < classes.len()).then(|| f64::from((2_u32 << class) - 1));
            (bound, *count)
        });
        Self {
            program: PORT.to_owned(),
            name: "batch frames".to_owned(),
            meaning: None,
            labels: [("direction".to_owned(), direction.to_owned())].into(),
            sum: frames as f64,
            ranges: ranges.collect(),
        }
    }

    fn times(program: &str, name: &str, times: &Times) -> Self {
        let (ranges, longer) = times.ranges().split_at(TIME_RANGES);
        let ranges = ranges.iter().enumerate();
        let ranges = ranges.map(|(range, count)| (Some(Times::end_of(range) as f64 / 1e6), *count));
        let last = (None, longer.iter().sum());
        Self {
            program: program.to_owned(),
            name: format!("{name} seconds"),
            meaning: None,
            labels: BTreeMap::new(),
            sum: times.micros() as f64 / 1e6,
            ranges: ranges.chain([last]).collect(),
        }
    }
}

/// A count of events or things.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCount {
    /// The program that counts.
    pub program: String,
    /// Name of the events or things.
    pub name: String,
    /// What is counted, if the program has said so.
    #[serde(skip)]
    pub meaning: Option<&'static str>,
    /// The count's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether the count can fall.
    pub is_level: bool,
    /// The count.
    pub count: u64,
}

impl Status {
    /// Returns the counts of all workers of the program named `program`.
    pub(crate) fn workers_of(snapshot: &Snapshot, program: &str) -> Vec<WorkerStatus> {
        let workers = snapshot.workers().iter();
        workers
            .map(|worker| WorkerStatus::new(worker, program))
            .collect()
    }
}

impl Status {
    /// Returns the state and the counts of all workers as lines for a terminal. Leaves out counts that
    /// are 0.
    pub fn block(&self) -> Block {
        let mut block = Block::default();
        let since = format!("{}, for {}", self.phase, time(self.uptime_seconds));
        block.line(&self.program, format!("{}, {since}", self.version));
        let content = &self.reloads;
        let mut reloads = format!("{} ({})", content.generation, content.errors());
        if let Some(error) = content.last_error() {
            reloads += "; ";
            reloads += &error;
        }
        block.line("generation", reloads);
        block.line("interface", self.interface.describe());
        for (address, why) in &self.interface.refused {
            block.line("not served", format!("{address}: {why}"));
        }
        let sites = self.interface.listening.iter();
        for site in sites.filter_map(PlaceStatus::site_line) {
            block.line(SITE_AT, site);
        }
        for (number, worker) in self.workers.iter().enumerate() {
            let age = match worker.age_seconds {
                Some(age) => format!("last seen {age:.1} s ago"),
                None => "not ready".to_owned(),
            };
            block.line(format!("worker {number}"), age);
        }
        for latency in self.latencies() {
            if !latency.is_empty() {
                let each = QUANTILES.map(|(quantile, _)| latency.quantile(quantile));
                let names = QUANTILES.map(|(_, name)| name).join(", ");
                block.line(format!("{}, {names}", latency.name), each.join(", "));
            }
        }
        let port = |worker: &WorkerStatus| worker.port.clone().into_iter().collect();
        for (name, count) in self.sums(port) {
            block.line(name, report::count(count));
        }
        let named = |count: &StatusCount| (count.full_name(), count.count);
        for (name, count) in self.sums(|worker| worker.counts.iter().map(named).collect()) {
            block.line(name, report::count(count));
        }
        for (name, count) in self.sums(|worker| worker.drops.iter().map(named).collect()) {
            block.line(format!("dropped, {name}"), report::count(count));
        }
        block
    }

    /// Returns how long things took since the start, at all workers and for all sites.
    pub(crate) fn latencies(&self) -> Vec<Latency> {
        let histograms = self.workers.iter().flat_map(|worker| &worker.histograms);
        Latency::sums(histograms.map(|one| (&*one.program, &*one.name, &*one.ranges)))
    }

    /// Returns the sum of each count over all workers, ordered by name. It leaves out zeros.
    fn sums(&self, counts: impl Fn(&WorkerStatus) -> Vec<(String, u64)>) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (name, count) in self.workers.iter().flat_map(counts) {
            if count > 0 {
                *sums.entry(name).or_default() += count;
            }
        }
        sums
    }
}

/// Formats a time in seconds with units: `2days 3h 4s`.
pub(crate) fn time(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Waiting => "waiting for its interface",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        })
    }
}

impl WorkerStatus {
    /// Returns a level of the worker's port, such as how full its rings are.
    pub(crate) fn level(&self, name: &str) -> u64 {
        let levels = self.counts.iter();
        let levels = levels.filter(|one| one.program == PORT && one.name == name);
        levels.map(|one| one.count).sum()
    }

    fn new(worker: &WorkerSnapshot, program: &str) -> Self {
        let tally = worker.tally();
        let counts = |counts: &[Count]| {
            let each = counts.iter().map(|one| StatusCount {
                meaning: tally.meaning(one.program, one.name),
                ..StatusCount::new(one, program)
            });
            each.collect()
        };
        let port = worker.port();
        let mut drops: Vec<_> = counts(tally.drops());
        drops.extend(report::port_drops(port).map(|one| StatusCount::new(&one, PORT)));
        let mut events: Vec<_> = counts(tally.events());
        events.extend(port_levels(worker.levels()).map(|one| StatusCount::new(&one, PORT)));
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        let mut histograms = vec![
            Histogram::batches("received", port.rx_frames, &port.rx_batches),
            Histogram::batches("sent", port.tx_frames, &port.tx_batches),
            Histogram::times(PORT, "batch", worker.batch_times()),
        ];
        let measured = tally.times().iter();
        histograms.extend(measured.map(|one| {
            let times = Histogram::times(one.program.unwrap_or(program), one.name, &one.times);
            Histogram {
                meaning: tally.meaning(one.program, one.name),
                labels: site_label(one.site).collect(),
                ..times
            }
        }));
        Self {
            age_seconds: worker.age().map(|age| age.as_secs_f64()),
            port: port_counts(port).map(named).into(),
            counts: events,
            drops,
            histograms,
        }
    }
}

impl StatusCount {
    /// Returns the program, the name and the values of the labels. People see one sum for each zone, or
    /// group of zones, so the labels that split it are left out.
    pub(crate) fn full_name(&self) -> String {
        let mut text = format!("{}: {}", self.program, self.name);
        let is_of_zones = self.labels.contains_key(ZONES);
        for (label, value) in &self.labels {
            if !is_of_zones || [SITE, ZONES].contains(&&**label) {
                text.push(' ');
                text += value;
            }
        }
        text
    }

    fn new(count: &Count, program: &str) -> Self {
        let labels = count.labels.iter();
        Self {
            program: count.program.unwrap_or(program).to_owned(),
            name: count.name.to_owned(),
            meaning: None,
            labels: labels
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .chain(site_label(count.site))
                .collect(),
            is_level: count.kind.is_level(),
            count: count.count,
        }
    }
}

/// Returns the label of a count of one of several sites.
fn site_label(site: Option<&str>) -> impl Iterator<Item = (String, String)> {
    site.into_iter()
        .map(|site| (SITE.to_owned(), site.to_owned()))
}

/// Returns the name and value of each count of a port, except drops and histograms.
fn port_counts(port: &PortCounters) -> [(&'static str, u64); 8] {
    [
        ("received frames", port.rx_frames),
        ("received bytes", port.rx_bytes),
        ("sent frames", port.tx_frames),
        ("sent bytes", port.tx_bytes),
        ("super-segments sent", port.tx_supers),
        ("frames sent again", port.tx_retries),
        ("system calls to send", port.tx_wakeups),
        ("system calls to wait", port.waits),
    ]
}

/// Returns how full a port's packet memory and rings are.
fn port_levels(levels: &PortLevels) -> [Count; 4] {
    let level = |name, labels, count: u32| Count {
        program: None,
        site: None,
        name,
        labels,
        kind: CountKind::Level,
        count: count.into(),
    };
    let ring = |direction| Labels::from(("direction", direction));
    [
        level("pool frames", Labels::NONE, levels.frames),
        level("pool frames free", Labels::NONE, levels.free),
        level("ring frames", ring("received"), levels.receiving),
        level("ring frames", ring("sent"), levels.sending),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_counts_that_differ_only_in_labels_that_are_left_out() {
        let count = |rcode: &str, count| StatusCount {
            program: "dns".to_owned(),
            name: "replies by zone".to_owned(),
            meaning: None,
            labels: [(ZONES, "a.test."), ("rcode", rcode)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            is_level: false,
            count,
        };
        let worker = WorkerStatus {
            age_seconds: Some(0.0),
            port: BTreeMap::new(),
            counts: vec![count("NOERROR", 4), count("NXDOMAIN", 3)],
            drops: Vec::new(),
            histograms: Vec::new(),
        };
        let status = Status {
            program: "dns".to_owned(),
            version: "1".to_owned(),
            phase: Phase::Serving,
            uptime_seconds: 1.0,
            clock_steps: 0,
            reloads: Reloads::default(),
            endpoints: BTreeMap::new(),
            interface: InterfaceStatus::default(),
            facts: Vec::new(),
            workers: vec![worker.clone(), worker],
        };
        let lines = status.block().to_string();
        assert!(
            lines.contains("dns: replies by zone a.test.: 14"),
            "{lines}"
        );
    }
}
