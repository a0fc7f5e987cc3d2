//! Rates: the difference between two statuses of a server.

use std::cmp::Ordering;

use crate::status::{PORT, Status, StatusCount, WorkerStatus};

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

/// Number of zones that are shown: those with the most replies.
const TOP: usize = 10;

/// A count of one worker: its name, whether it is a level, and its value.
type One = (String, bool, u64);

impl Rates {
    /// Compares a status with an earlier one of the same server. Without one, all rates are 0.
    pub(super) fn between(before: Option<&Status>, now: &Status) -> Self {
        let rows = |of: fn(&WorkerStatus) -> Vec<One>| rows(before, now, of);
        let mut zones = rows(|worker| {
            let zones = worker.counts.iter().filter(|one| is_of_zones(one));
            let ones = zones.map(|one| (one.full_name(), false, one.count));
            ones.collect()
        });
        let order = |row: &Row| (row.rate(), row.total as f64);
        zones.sort_by(|a, b| order(b).partial_cmp(&order(a)).unwrap_or(Ordering::Equal));
        zones.truncate(TOP);
        let mut counts = rows(|worker| {
            let counts = worker.counts.iter();
            let counts = counts.filter(|one| one.program != PORT && !is_of_zones(one));
            // Most kinds of a level, such as states of connections, are usually empty.
            let counts =
                counts.filter(|one| !one.is_level || one.count > 0 || one.labels.is_empty());
            let ones = counts.map(|one| (one.full_name(), one.is_level, one.count));
            ones.collect()
        });
        counts.extend(zones);
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
                drops
                    .map(|one| (one.full_name(), false, one.count))
                    .collect()
            }),
        }
    }

    /// Returns the rates at each worker of a port's count, or nothing if there is no such count.
    pub(super) fn of_port(&self, name: &str) -> &[f64] {
        let row = self.port.iter().find(|row| row.name == name);
        row.map_or(&[], |row| &row.rates)
    }
}

/// Returns true for the count of the replies of a zone or of a group of zones.
fn is_of_zones(count: &StatusCount) -> bool {
    count.labels.contains_key("zones")
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
            reloads: crate::status::Reloads::default(),
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
            let zone = |(number, count): (usize, &u64)| StatusCount {
                labels: [("zones".to_owned(), format!("z{number}."))].into(),
                ..self::count("replies by zone", false, *count)
            };
            status.workers[0].counts = counts.iter().enumerate().map(zone).collect();
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
