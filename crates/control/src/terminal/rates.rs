//! Rates: the difference between two statuses of a server.

use std::cmp::Ordering;

use crate::status::{PORT, SITE, Status, StatusCount, WorkerStatus, ZONES};

/// A count of all workers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The program, the name, and the values of the labels.
    pub(super) name: String,
    /// Whether the count can fall. Such a count has no rate.
    pub(super) is_level: bool,
    /// Sum over all workers since the start, or now.
    pub(super) total: u64,
    /// Increase per second at each worker.
    pub(super) rates: Vec<f64>,
}

impl Row {
    /// Returns the increase per second of the sum.
    pub(super) fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// All counts of a server with their rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// The counts of the programs.
    pub(super) counts: Vec<Row>,
    /// The counts of the ports.
    pub(super) port: Vec<Row>,
    /// The dropped packets by reason.
    pub(super) drops: Vec<Row>,
}

/// Number of sites, and of zones, that are shown: those with the most requests.
const TOP: usize = 10;

/// A count of one worker: its name, whether it is a level, and its value.
type One = (String, bool, u64);

impl Rates {
    /// Compares a status with an earlier one of the same server. Without one, all rates are 0.
    pub(super) fn between(before: Option<&Status>, now: &Status) -> Self {
        let rows = |of: fn(&WorkerStatus) -> Vec<One>| rows(before, now, of);
        let mut counts = rows(|worker| {
            let counts = worker.counts.iter();
            let counts = counts.filter(|one| one.program != PORT && !has(one, ZONES));
            // Most kinds of a level, such as states of connections, are usually empty.
            let counts =
                counts.filter(|one| !one.is_level || one.count > 0 || one.labels.is_empty());
            summed(counts.map(|one| (name_without_site(one), one.is_level, one.count)))
        });
        counts.extend(busiest(rows(|worker| {
            let counts = worker.counts.iter();
            let sites = counts.filter(|one| has(one, SITE) && one.name == "requests");
            summed(sites.map(|one| (one.full_name(), false, one.count)))
        })));
        counts.extend(busiest(rows(|worker| {
            let zones = worker.counts.iter().filter(|one| has(one, ZONES));
            summed(zones.map(|one| (one.full_name(), false, one.count)))
        })));
        Self {
            counts,
            port: rows(|worker| {
                let counts = worker.port.iter();
                let ones = counts.map(|(name, count)| (name.clone(), false, *count));
                let levels = worker.counts.iter().filter(|one| one.program == PORT);
                let levels = levels.map(|one| (one.full_name(), true, one.count));
                ones.chain(levels).collect()
            }),
            drops: rows(|worker| {
                let drops = worker.drops.iter();
                summed(drops.map(|one| (name_without_site(one), false, one.count)))
            }),
        }
    }

    /// Returns the rates at each worker of a port's count, or nothing if there is no such count.
    pub(super) fn of_port(&self, name: &str) -> &[f64] {
        let row = self.port.iter().find(|row| row.name == name);
        row.map_or(&[], |row| &row.rates)
    }
}

fn has(count: &StatusCount, label: &str) -> bool {
    count.labels.contains_key(label)
}

/// Returns a count's full name without the label that tells its site.
fn name_without_site(count: &StatusCount) -> String {
    let mut all_sites = count.clone();
    all_sites.labels.remove(SITE);
    all_sites.full_name()
}

/// Adds up the counts of each name.
fn summed(ones: impl Iterator<Item = One>) -> Vec<One> {
    let mut sums: Vec<One> = Vec::new();
    for one in ones {
        match sums.iter_mut().find(|sum| sum.0 == one.0) {
            Some(sum) => sum.2 += one.2,
            None => sums.push(one),
        }
    }
    sums
}

/// Returns the first [`TOP`] rows in descending order of their rates and totals.
fn busiest(mut rows: Vec<Row>) -> Vec<Row> {
    let order = |row: &Row| (row.rate(), row.total as f64);
    rows.sort_by(|a, b| order(b).partial_cmp(&order(a)).unwrap_or(Ordering::Equal));
    rows.truncate(TOP);
    rows
}

/// Returns a row for each count, ordered as the workers list them.
fn rows(before: Option<&Status>, now: &Status, of: fn(&WorkerStatus) -> Vec<One>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (number, worker) in now.workers.iter().enumerate() {
        let earlier = before.and_then(|before| before.workers.get(number).map(|one| (before, one)));
        let passed = earlier.map_or(0.0, |(before, one)| clock(now, worker) - clock(before, one));
        let earlier = earlier.map_or_else(Vec::new, |(_, one)| of(one));
        for (place, (name, is_level, count)) in of(worker).into_iter().enumerate() {
            let found = rows.iter().position(|row| row.name == name);
            let at = found.unwrap_or_else(|| {
                rows.push(Row {
                    name: name.clone(),
                    is_level,
                    total: 0,
                    rates: vec![0.0; now.workers.len()],
                });
                rows.len() - 1
            });
            // Counts keep their places, except where a program adds one later.
            let old = earlier.get(place).filter(|old| old.0 == name);
            let old = old.or_else(|| earlier.iter().find(|old| old.0 == name));
            let gained = count.saturating_sub(old.map_or(0, |old| old.2));
            rows[at].total += count;
            if passed > 0.0 && !is_level {
                rows[at].rates[number] = gained as f64 / passed;
            }
        }
    }
    rows
}

/// Returns the time at which a worker published its counts, in seconds since the server's start.
/// Workers publish at different times.
fn clock(status: &Status, worker: &WorkerStatus) -> f64 {
    status.uptime_seconds - worker.age_seconds.unwrap_or(0.0)
}

/// Formats a rate: `0`, `2.5`, `3456`, `12.3 k`, `1.23 M`.
pub(super) fn shown(rate: f64) -> String {
    for (limit, unit, name) in [(1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")] {
        if rate >= limit {
            let scaled = rate / unit;
            let digits = if scaled < 10.0 {
                2
            } else {
                usize::from(scaled < 100.0)
            };
            return format!("{scaled:.digits$} {name}");
        }
    }
    let digits = usize::from(rate < 10.0 && rate.fract() != 0.0);
    format!("{rate:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::InterfaceStatus;

    fn count(name: &str, is_level: bool, count: u64) -> StatusCount {
        StatusCount {
            program: "web".to_owned(),
            name: name.to_owned(),
            meaning: None,
            labels: [("status".to_owned(), "200".to_owned())].into(),
            is_level,
            count,
        }
    }

    fn status(uptime_seconds: f64, workers: &[(f64, u64, u64)]) -> Status {
        let workers = workers.iter().map(|(age, frames, answers)| WorkerStatus {
            age_seconds: Some(*age),
            port: [("received frames".to_owned(), *frames)].into(),
            counts: vec![
                count("answers", false, *answers),
                count("open", true, 2),
                count("closing", true, 0),
                StatusCount {
                    program: PORT.to_owned(),
                    ..count("ring", true, 0)
                },
            ],
            drops: vec![count("late", false, 1)],
            histograms: Vec::new(),
        });
        Status {
            program: "web".to_owned(),
            version: "1".to_owned(),
            phase: crate::status::Phase::Serving,
            uptime_seconds,
            clock_steps: 0,
            reloads: crate::status::Reloads::default(),
            endpoints: [].into(),
            interface: InterfaceStatus::default(),
            facts: Vec::new(),
            workers: workers.collect(),
        }
    }

    #[test]
    fn each_workers_rate_is_taken_by_its_own_clock() {
        let before = status(10.0, &[(0.5, 0, 100), (0.0, 7, 0)]);
        let now = status(11.0, &[(0.0, 300, 250), (0.5, 9, 50)]);
        let rates = Rates::between(Some(&before), &now);
        let names: Vec<_> = rates.counts.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["web: answers 200", "web: open 200"]);
        let answers = &rates.counts[0];
        assert_eq!(answers.rates, [100.0, 100.0]);
        assert_eq!((answers.total, answers.rate()), (300, 200.0));
        let open = &rates.counts[1];
        assert_eq!((open.total, open.rate(), open.is_level), (4, 0.0, true));
        assert_eq!(rates.of_port("received frames"), [200.0, 4.0]);
        let levels: Vec<_> = rates.port.iter().filter(|row| row.is_level).collect();
        assert_eq!((levels.len(), &*levels[0].name), (1, "port: ring 200"));
        assert_eq!((rates.drops[0].total, rates.drops[0].rate()), (2, 0.0));
    }

    #[test]
    fn the_zones_with_the_most_replies_come_first() {
        let zones = |counts: &[u64]| {
            let mut status = status(0.0, &[(0.0, 0, 0)]);
            let zone = |(number, count): (usize, &u64), rcode: &str| StatusCount {
                labels: [("zones", &*format!("z{number}.")), ("rcode", rcode)]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                ..self::count("replies by zone", false, *count)
            };
            let each = counts.iter().enumerate();
            status.workers[0].counts = each
                .flat_map(|one| ["NOERROR", "NXDOMAIN"].map(|rcode| zone(one, rcode)))
                .collect();
            status
        };
        let before = zones(&[0; 12]);
        let mut now = zones(&[5, 0, 0, 9, 1, 2, 3, 0, 0, 0, 0, 7]);
        now.uptime_seconds = 1.0;
        let rates = Rates::between(Some(&before), &now);
        let names = rates.counts.iter().map(|row| row.name.as_str());
        let names: Vec<_> = names.map(|name| name.rsplit(' ').next().unwrap()).collect();
        assert_eq!(names[..6], ["z3.", "z11.", "z0.", "z6.", "z5.", "z4."]);
        assert_eq!(names.len(), TOP);
        let first = &rates.counts[0];
        assert_eq!(
            (&*first.name, first.total),
            ("web: replies by zone z3.", 18)
        );
    }

    #[test]
    fn sites_are_added_up_and_those_with_the_most_requests_are_named() {
        let of = |name: &str, site: &str, number| StatusCount {
            labels: [("site".to_owned(), site.to_owned())].into(),
            ..count(name, false, number)
        };
        let mut now = status(11.0, &[(0.0, 0, 0)]);
        now.workers[0].drops = vec![of("late", "a", 1), of("late", "b", 2)];
        now.workers[0].counts = vec![
            of("requests", "a", 1),
            of("bytes", "a", 10),
            of("requests", "b", 5),
            of("bytes", "b", 50),
        ];
        let rates = Rates::between(None, &now);
        let rows = |rows: &[Row]| -> Vec<_> {
            let rows = rows.iter();
            rows.map(|row| format!("{} {}", row.name, row.total))
                .collect()
        };
        let expected = [
            "web: requests 6",
            "web: bytes 60",
            "web: requests b 5",
            "web: requests a 1",
        ];
        assert_eq!(rows(&rates.counts), expected);
        assert_eq!(rows(&rates.drops), ["web: late 3"]);
    }

    #[test]
    fn there_is_no_rate_without_an_earlier_status_or_without_time() {
        let now = status(11.0, &[(0.0, 300, 250)]);
        for before in [None, Some(&now)] {
            let rates = Rates::between(before, &now);
            assert_eq!((rates.counts[0].total, rates.counts[0].rate()), (250, 0.0));
        }
    }

    #[test]
    fn rates_are_short() {
        for (rate, text) in [
            (0.0, "0"),
            (2.5, "2.5"),
            (3.0, "3"),
            (3456.4, "3456"),
            (12_345.0, "12.3 k"),
            (123_456.0, "123 k"),
            (1_234_567.0, "1.23 M"),
            (5e10, "50.0 G"),
        ] {
            assert_eq!(shown(rate), text);
        }
    }
}
