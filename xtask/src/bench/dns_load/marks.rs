//! What was measured, its marks, and the page of them.

use std::fmt::Write as _;

use super::zones::Body;
use super::{Ask, Case, SERVERS};
use crate::bench::report::{Spread, digits};
use crate::markdown::{owned, write_table};

/// Memory beside NSD's.
const MEMORY: f64 = 1.6;
/// Time of a reload of one zone among many, in ms.
const RELOAD_MS: f64 = 50.0;
/// Time of a reload of a large zone, beside that of NSD's load.
const RELOAD: f64 = 1.5;

/// What a case found out. Pairs are in the order of [`SERVERS`].
pub(super) struct Findings {
    name: &'static str,
    body: Body,
    is_measured: bool,
    /// Times from the start to the first right answer, in seconds.
    pub(super) seconds: [Vec<f64>; 2],
    /// Memory in MB.
    pub(super) memory: [Vec<f64>; 2],
    /// Times of reloads in ms.
    pub(super) reloads: Vec<(Ask, f64)>,
    /// Number of lines in which Namestorm told its progress.
    pub(super) progress: usize,
}

impl Findings {
    pub(super) fn new(case: &Case) -> Self {
        Self {
            name: case.name,
            body: case.body,
            is_measured: case.is_measured,
            seconds: [const { Vec::new() }; 2],
            memory: [const { Vec::new() }; 2],
            reloads: Vec::new(),
            progress: 0,
        }
    }

    /// Returns the line of the first table.
    pub(super) fn row(&self) -> Vec<String> {
        let mut row = vec![self.name.to_owned()];
        for values in [&self.seconds, &self.memory] {
            row.extend(values.each_ref().map(|values| shown(values)));
            row.push(ratio(values).map_or_else(dash, digits));
        }
        let memory = ratio(&self.memory).filter(|_| self.is_measured);
        row.push(memory.map_or_else(dash, |ratio| verdict(ratio <= MEMORY)));
        row
    }

    /// Returns the lines of the second table.
    fn marks(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let mut add = |what: &str, wanted: String, found: String, is_met: bool| {
            let what = format!("{}: {what}", self.name);
            rows.push(vec![what, wanted, found, verdict(is_met)]);
        };
        if let (Body::Zones(_), Some(ratio)) = (self.body, ratio(&self.seconds)) {
            let wanted = "at most NSD's time".to_owned();
            add(
                "load",
                wanted,
                format!("{} times", digits(ratio)),
                ratio <= 1.0,
            );
        }
        let [_, nsd] = self.seconds.each_ref().map(|values| median(values));
        for (ask, what) in [
            (Ask::Hup, "reload of one zone, SIGHUP"),
            (Ask::Named, "reload of one zone, `reload NAME`"),
        ] {
            let times = self.reloads.iter().filter(|reload| reload.0 == ask);
            let times: Vec<_> = times.map(|reload| reload.1).collect();
            let Some(taken) = median(&times) else {
                continue;
            };
            let found = format!("{} ms", shown(&times));
            if matches!(self.body, Body::Zones(_)) {
                let wanted = format!("{RELOAD_MS} ms");
                add(what, wanted, found, taken <= RELOAD_MS);
            } else if let Some(nsd) = nsd {
                let wanted = format!(
                    "{} ms, {RELOAD} times NSD's load",
                    digits(RELOAD * nsd * 1e3)
                );
                add(what, wanted, found, taken <= RELOAD * nsd * 1e3);
            }
        }
        if self.body == Body::Hosts(10_000_000) && !self.seconds[0].is_empty() {
            let found = format!("{} lines", self.progress);
            add("progress", "a line".to_owned(), found, self.progress > 0);
        }
        rows
    }
}

/// Returns the page of all cases.
pub(super) fn page(busy: &(String, String), all: &[Findings], missing: &[String]) -> String {
    let mut page = format!("{}: {}\n\n", busy.0, busy.1);
    let [ours, nsd] = SERVERS;
    let heads = [
        "zones".to_owned(),
        format!("{ours}, s"),
        format!("{nsd}, s"),
        "ratio".to_owned(),
        format!("{ours}, MB"),
        format!("{nsd}, MB"),
        "ratio".to_owned(),
        format!("memory ≤ {MEMORY}"),
    ];
    let rows: Vec<_> = all.iter().map(Findings::row).collect();
    write_table(&mut page, &heads, &rows);
    let rows: Vec<_> = all.iter().flat_map(Findings::marks).collect();
    write_table(
        &mut page,
        &owned(&["mark", "wanted", "measured", ""]),
        &rows,
    );
    for line in missing {
        let _ = writeln!(page, "- {line}");
    }
    page
}

fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values.iter().copied()).map(|spread| spread.median)
}

/// Returns the ratio of the medians.
fn ratio(values: &[Vec<f64>; 2]) -> Option<f64> {
    Some(median(&values[0])? / median(&values[1])?)
}

fn shown(values: &[f64]) -> String {
    Spread::of(values.iter().copied()).map_or_else(dash, |spread| spread.shown())
}

fn dash() -> String {
    "–".to_owned()
}

fn verdict(is_met: bool) -> String {
    if is_met { "met" } else { "**missed**" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str) -> Findings {
        let case = super::super::CASES.iter().find(|case| case.name == name);
        Findings::new(case.unwrap())
    }

    #[test]
    fn medians_are_compared_with_the_marks() {
        let mut zones = findings("100,000 zones");
        assert!(zones.marks().is_empty() && zones.row()[7] == "–");
        zones.seconds = [vec![5.0, 3.0, 4.0], vec![4.0]];
        zones.memory = [vec![161.0], vec![100.0]];
        zones.reloads = vec![(Ask::Hup, 300.0), (Ask::Named, 30.0), (Ask::Hup, 20.0)];
        assert_eq!(zones.row()[3], "1.00");
        assert_eq!(zones.row()[7], "**missed**");
        let verdicts = zones.marks().into_iter().map(|mut row| row.pop().unwrap());
        assert_eq!(verdicts.collect::<Vec<_>>(), ["met", "**missed**", "met"]);
        let mut names = findings("1,000,000 names");
        names.seconds = [vec![3.0], vec![2.0]];
        names.reloads = vec![(Ask::Hup, 2_900.0)];
        let [mark] = &names.marks()[..] else {
            panic!("one mark");
        };
        assert_eq!(mark[1], "3,000 ms, 1.5 times NSD's load");
        assert_eq!(mark[3], "met");
    }
}
