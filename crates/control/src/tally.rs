//! Counts of a server's events and dropped packets, each with a name, and the few that the log
//! reports.

use std::fmt;
use std::ops::Add;

use nmio::Times;

/// Number of times that one event happened, or number of things that exist now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The program that counted the event, in a server of [several programs](crate::Both).
    /// `None` in a server of one program, and for counts that all programs share.
    pub program: Option<&'static str>,
    /// The site that counted the event, in a program of [several sites](crate::Many).
    pub site: Option<&'static str>,
    /// Name of the event, such as `requests`, or of the things, such as `connections open`.
    pub name: &'static str,
    /// What distinguishes this count from others with the same name.
    pub labels: Labels,
    /// Whether the count can fall.
    pub kind: CountKind,
    /// Number of events since the start, or of things now.
    pub count: u64,
}

/// Whether a count can fall, and who is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKind {
    /// Events since the start.
    Total,
    /// Events since the start that are in the metrics only, and not in the summary.
    Detail,
    /// Things that exist now.
    Level,
    /// Things that exist now and are in the metrics only, and not in the summary.
    LevelDetail,
}

impl CountKind {
    /// Returns true if the count can fall.
    pub(crate) fn is_level(self) -> bool {
        matches!(self, Self::Level | Self::LevelDetail)
    }

    /// Returns true if the summary has the count.
    pub(crate) fn is_in_summary(self) -> bool {
        matches!(self, Self::Total | Self::Level)
    }
}

/// A histogram of times that a program measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredTimes {
    /// The program that measured the times, as in [`Count::program`].
    pub program: Option<&'static str>,
    /// The site that measured the times, as in [`Count::site`].
    pub site: Option<&'static str>,
    /// Name of what took these times, such as `rtt`.
    pub name: &'static str,
    /// The histogram.
    pub times: Times,
}

/// What counts mean: pairs of a count's name and a text, such as `requests` and `Requests`.
pub type Meanings = &'static [(&'static str, &'static str)];

/// Up to three labels of a [`Count`], each a name and a value, such as `status` and `404`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels([Option<Label>; 3]);

/// The name and the value of a label.
type Label = (&'static str, &'static str);

impl Labels {
    /// No labels.
    pub const NONE: Self = Self([None; 3]);

    /// Returns the name and the value of each label.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Returns the value of the label with this name, or `None` if there is no such label.
    pub fn get(&self, name: &str) -> Option<&'static str> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Returns true if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Returns the values, separated by spaces.
    pub(crate) fn values(&self) -> String {
        let values: Vec<_> = self.iter().map(|(_, value)| value).collect();
        values.join(" ")
    }
}

impl From<Label> for Labels {
    fn from(label: Label) -> Self {
        Self([Some(label), None, None])
    }
}

impl From<[Label; 2]> for Labels {
    fn from(labels: [Label; 2]) -> Self {
        let [first, second] = labels.map(Some);
        Self([first, second, None])
    }
}

impl From<[Label; 3]> for Labels {
    fn from(labels: [Label; 3]) -> Self {
        Self(labels.map(Some))
    }
}

impl Count {
    /// Returns what counted: the program and the site.
    pub(crate) fn counter(&self) -> (Option<&'static str>, Option<&'static str>) {
        (self.program, self.site)
    }

    /// Returns what counted, as words in front of the count, if there are several counters.
    pub(crate) fn counter_name(&self) -> Option<String> {
        match self.counter() {
            (Some(program), Some(site)) => Some(format!("{program} {site}")),
            (program, site) => program.or(site).map(str::to_owned),
        }
    }

    /// Returns true if `other` is a kind of the same event.
    pub(crate) fn is_kin(&self, other: &Self) -> bool {
        self.name == other.name && self.counter() == other.counter()
    }

    /// Returns true if `other` counts the same.
    fn is_same(&self, other: &Self) -> bool {
        self.is_kin(other) && self.labels == other.labels
    }
}

/// Formats as `requests 5`. Puts a program and a site before the name, and the values of labels after
/// it: `sandstorm: answers 404 5`.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(counter) = self.counter_name() {
            write!(f, "{counter}: ")?;
        }
        write!(f, "{} ", self.name)?;
        if !self.labels.is_empty() {
            write!(f, "{} ", self.labels.values())?;
        }
        write!(f, "{}", self.count)
    }
}

/// Numbers of events and of dropped packets that workers counted.
///
/// Counts with the same program, site, name and labels are added up. Counts are listed in the order in
/// which they were first added.
///
/// # Metrics
/// Each count becomes a metric named after its program and its name, with the labels of the count.
/// The characters of the name that metrics do not allow become underscores. The event `requests` of
/// the program `sandstorm` becomes `sandstorm_requests_total`. Its level `connections open` becomes
/// `sandstorm_connections_open`. A site becomes the label `site`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    events: Vec<Count>,
    drops: Vec<Count>,
    times: Vec<MeasuredTimes>,
    /// What the counts of each program mean.
    meanings: Vec<(Option<&'static str>, Meanings)>,
    /// The program whose counts are currently being added, or `None` for unlabelled counts.
    program: Option<&'static str>,
    /// The site whose counts are currently being added.
    site: Option<&'static str>,
}

impl Tally {
    /// Returns all events, such as `requests`, including those that never happened.
    pub fn events(&self) -> &[Count] {
        &self.events
    }

    /// Returns the dropped packets by reason, including reasons that never applied.
    pub fn drops(&self) -> &[Count] {
        &self.drops
    }

    /// Returns all histograms of times.
    pub fn times(&self) -> &[MeasuredTimes] {
        &self.times
    }

    /// Returns the count of the event with this name, summed over all programs and labels. Returns
    /// `None` if no program has this event.
    pub fn of(&self, event: &str) -> Option<u64> {
        self.sum(|one| one.name == event)
    }

    /// Returns the count of one program's event, in a server of several programs. Returns `None` if
    /// the program has no event with this name.
    pub fn of_program(&self, program: &str, event: &str) -> Option<u64> {
        self.sum(|one| one.program == Some(program) && one.name == event)
    }

    /// Returns the count of the event with this name and a label with this value, summed over all
    /// programs and other labels. Returns `None` if there is no such event.
    pub fn of_label(&self, event: &str, value: &str) -> Option<u64> {
        self.sum(|one| one.name == event && one.labels.iter().any(|(_, its)| its == value))
    }

    fn sum(&self, is_it: impl Fn(&Count) -> bool) -> Option<u64> {
        let counts = self.events.iter().filter(|one| is_it(one));
        counts.map(|one| one.count).reduce(|sum, one| sum + one)
    }

    /// Adds `count` to an event, such as `requests`. The summary shows the count even if it is 0.
    pub fn event(&mut self, name: &'static str, count: u64) {
        self.add_event(name, Labels::NONE, CountKind::Total, count);
    }

    /// Adds `count` to one kind of an event, such as `answers` with the label `status` of `404`. The
    /// summary has one line for the event, with the kinds whose count is not 0.
    pub fn event_of(&mut self, name: &'static str, labels: impl Into<Labels>, count: u64) {
        self.add_event(name, labels.into(), CountKind::Total, count);
    }

    /// Adds `count` to things that exist now, such as `connections open`.
    pub fn level(&mut self, name: &'static str, count: u64) {
        self.add_event(name, Labels::NONE, CountKind::Level, count);
    }

    /// Adds `count` to an event that metrics show, but not the summary.
    pub fn detail(&mut self, name: &'static str, labels: impl Into<Labels>, count: u64) {
        self.add_event(name, labels.into(), CountKind::Detail, count);
    }

    /// Adds `count` to things that exist now, which metrics show, but not the summary.
    pub fn level_detail(&mut self, name: &'static str, labels: impl Into<Labels>, count: u64) {
        self.add_event(name, labels.into(), CountKind::LevelDetail, count);
    }

    /// Adds `count` packets that were dropped for one reason. The summary omits reasons whose count
    /// is 0.
    pub fn drop(&mut self, reason: &'static str, count: u64) {
        self.drops.push(Count {
            program: self.program,
            site: self.site,
            name: reason,
            labels: Labels::NONE,
            kind: CountKind::Total,
            count,
        });
    }

    /// Adds times that were measured, such as `rtt`. They are in the metrics only, as a histogram in
    /// seconds: `rtt` of the program `sandstorm` becomes `sandstorm_rtt_seconds`.
    pub fn measured(&mut self, name: &'static str, times: &Times) {
        self.times.push(MeasuredTimes {
            program: self.program,
            site: self.site,
            name,
            times: *times,
        });
    }

    /// Says what some counts and times of this program mean. The text becomes the HELP line of their
    /// metric. Without a text, the HELP line is made from the name.
    pub fn describe(&mut self, meanings: Meanings) {
        self.note_meanings(self.program, meanings);
    }

    /// Notes what counts of a program mean, if that is new. There may be many sites of one program.
    fn note_meanings(&mut self, program: Option<&'static str>, meanings: Meanings) {
        let is_it = |&(of, known): &(_, Meanings)| of == program && std::ptr::eq(known, meanings);
        if !self.meanings.iter().any(is_it) {
            self.meanings.push((program, meanings));
        }
    }

    /// Returns what a program's count or times with this name mean, if the program has said so.
    pub(crate) fn meaning(&self, program: Option<&str>, name: &str) -> Option<&'static str> {
        let own = self.meanings.iter().filter(|(of, _)| *of == program);
        let mut texts = own.flat_map(|(_, meanings)| *meanings);
        texts
            .find(|(of, _)| *of == name)
            .map(|(_, meaning)| *meaning)
    }

    /// Calls `count`, and labels all counts that it adds with the name `program`.
    /// [`Both`](crate::Both) calls this method for each of its programs. In nested calls, the
    /// innermost label applies.
    pub fn for_program(&mut self, program: &'static str, count: impl FnOnce(&mut Self)) {
        let outer = self.program.replace(program);
        count(self);
        self.program = outer;
    }

    /// Calls `count`, and labels all counts that it adds with this site. [`Many`](crate::Many) calls
    /// this method for each of several sites. In nested calls, the innermost label applies.
    pub fn for_site(&mut self, site: &'static str, count: impl FnOnce(&mut Self)) {
        let outer = self.site.replace(site);
        count(self);
        self.site = outer;
    }

    fn add_event(&mut self, name: &'static str, labels: Labels, kind: CountKind, count: u64) {
        self.events.push(Count {
            program: self.program,
            site: self.site,
            name,
            labels,
            kind,
            count,
        });
    }

    /// Removes all counts, but keeps the allocated memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.drops.clear();
        self.times.clear();
        self.meanings.clear();
    }

    /// Adds all counts of `other` to the same counts here.
    ///
    /// A worker only lists its counts, because it should not spend time on a search. So `other` may
    /// have the same count several times.
    pub(crate) fn merge(&mut self, other: &Self) {
        merge(&mut self.events, &other.events);
        merge(&mut self.drops, &other.drops);
        for (program, meanings) in &other.meanings {
            self.note_meanings(*program, meanings);
        }
        for one in &other.times {
            let of = |one: &MeasuredTimes| (one.program, one.site, one.name);
            let is_same = |sum: &&mut MeasuredTimes| of(sum) == of(one);
            match self.times.iter_mut().find(is_same) {
                Some(sum) => sum.times.merge(&one.times),
                None => self.times.push(*one),
            }
        }
    }
}

fn merge(sums: &mut Vec<Count>, counts: &[Count]) {
    // Workers list their counts in the same order, so the next one is mostly the right one.
    let mut next = 0;
    for one in counts {
        let is_next = sums.get(next).is_some_and(|sum| sum.is_same(one));
        let at = if is_next {
            Some(next)
        } else {
            sums.iter().position(|sum| sum.is_same(one))
        };
        match at {
            Some(at) => sums[at].count += one.count,
            None => sums.push(*one),
        }
        next = at.unwrap_or(sums.len() - 1) + 1;
    }
}

/// One worker's counts since its start. The log reports these counts while the worker serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets dropped because their checksums cover only the pseudo-header.
    pub partial_checksums: u64,
    /// Connections that were evicted to make room for other connections.
    pub evicted: u64,
    /// Requests that failed because the application or hook returned an error.
    pub app_errors: u64,
}

impl Add for Counted {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            partial_checksums: self.partial_checksums + other.partial_checksums,
            evicted: self.evicted + other.evicted,
            app_errors: self.app_errors + other.app_errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_strings(counts: &[Count]) -> Vec<String> {
        counts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_with_the_same_name_are_added() {
        let mut sum = Tally::default();
        for requests in [3, 4] {
            let mut one = Tally::default();
            one.event("requests", requests);
            one.drop("bad checksum", 1);
            sum.merge(&one);
        }
        assert_eq!(to_strings(sum.events()), ["requests 7"]);
        assert_eq!(to_strings(sum.drops()), ["bad checksum 2"]);
    }

    #[test]
    fn kinds_of_an_event_stay_apart_and_add_up() {
        let mut tally = Tally::default();
        tally.event_of("replies", [("transport", "udp"), ("rcode", "NOERROR")], 5);
        tally.event_of("replies", [("transport", "tcp"), ("rcode", "NOERROR")], 2);
        tally.event_of("answers", ("status", "404"), 1);
        let texts = [
            "replies udp NOERROR 5",
            "replies tcp NOERROR 2",
            "answers 404 1",
        ];
        assert_eq!(to_strings(tally.events()), texts);
        assert_eq!(tally.of("replies"), Some(7));
        assert_eq!(tally.of_label("replies", "NOERROR"), Some(7));
        assert_eq!(tally.of_label("replies", "tcp"), Some(2));
        assert_eq!(tally.of_label("replies", "SERVFAIL"), None);
        let mut sum = Tally::default();
        sum.merge(&tally);
        sum.merge(&tally);
        assert_eq!(sum.events().len(), 3);
        assert_eq!(sum.of_label("replies", "udp"), Some(10));
    }

    #[test]
    fn times_with_the_same_name_are_merged() {
        let mut times = Times::default();
        times.count(100);
        let mut sum = Tally::default();
        for _worker in 0..2 {
            let mut one = Tally::default();
            one.for_program("web", |tally| tally.measured("rtt", &times));
            one.measured("rtt", &times);
            one.measured("rtt", &times);
            sum.merge(&one);
        }
        let sums = sum.times().iter();
        let sums: Vec<_> = sums.map(|one| (one.program, one.times.micros())).collect();
        assert_eq!(sums, [(Some("web"), 200), (None, 400)]);
    }

    #[test]
    fn counts_of_several_programs_stay_apart() {
        let mut sum = Tally::default();
        for _worker in 0..2 {
            let mut one = Tally::default();
            one.for_program("outer", |tally| {
                tally.for_program("web", |tally| tally.event("connections", 1));
                tally.event("connections", 2);
                tally.drop("bad checksum", 3);
            });
            one.event("connections", 4);
            one.drop("bad checksum", 5);
            sum.merge(&one);
        }
        let events = [
            "web: connections 2",
            "outer: connections 4",
            "connections 8",
        ];
        assert_eq!(to_strings(sum.events()), events);
        let drops = ["outer: bad checksum 6", "bad checksum 10"];
        assert_eq!(to_strings(sum.drops()), drops);
        assert_eq!(sum.of("connections"), Some(14));
        assert_eq!(sum.of_program("web", "connections"), Some(2));
        assert_eq!(sum.of_program("web", "requests"), None);
        assert_eq!(sum.of("requests"), None);
    }
}
