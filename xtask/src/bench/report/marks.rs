//! The first marks: what is wanted, what was measured, met or missed.

use std::fmt::Write as _;

use super::model::{
    Limit, OFFLOAD, Quantity, Ratio, Spread, digits, panels, runs, same, thousands, x_shown,
};
use crate::bench::results::{Results, Run};

/// What a ratio is wanted to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Wanted {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    pub(super) fn shown(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {}", digits(least)),
            Self::AtMost(most) => format!("≤ {}", digits(most)),
        }
    }
}

/// One mark.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) what: String,
    pub(super) wanted: Wanted,
    /// `None` when a run that it needs is missing.
    pub(super) measured: Option<Ratio>,
    /// The two values behind the ratio, and what one should know of them.
    pub(super) note: String,
}

impl Mark {
    pub(super) fn met(&self) -> Option<bool> {
        let measured = self.measured?;
        Some(self.wanted.is_met_by(measured.value))
    }

    pub(super) fn verdict(&self) -> &'static str {
        match self.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        }
    }
}

const NAMESTORM: &str = "namestorm turnaround";
/// What the rig costs, whoever answers.
const REFLECTOR: &str = "reflect";
const SANDSTORM: &str = "sandstorm memcopy";
const KB: f64 = 1024.0;
/// A run that reaches less than this part of the rate that was asked for is
/// no run at that rate.
const REACHED: f64 = 0.98;

/// Where runs are on their figure's axis.
fn sizes<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<f64> {
    let mut sizes: Vec<f64> = runs.map(|run| run.x).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    sizes
}

/// What was not measured is less than all else.
fn by_value(a: &Mark, b: &Mark) -> std::cmp::Ordering {
    let value = |mark: &Mark| mark.measured.map_or(f64::NEG_INFINITY, |m| m.value);
    value(a).total_cmp(&value(b))
}

/// All marks.
pub(super) fn marks(results: &Results) -> Vec<Mark> {
    let maker = Maker {
        results,
        limit: Limit::new(results),
    };
    let mut marks = vec![maker.dns_rate()];
    maker.dns_costs(&mut marks);
    maker.web_costs(&mut marks);
    maker.offload(&mut marks);
    marks
}

struct Maker<'a> {
    results: &'a Results,
    limit: Limit,
}

impl Maker<'_> {
    /// The rate beside the reflector's at the size of a query.
    fn dns_rate(&self) -> Mark {
        let ours = runs(self.results, "dns-names", "", NAMESTORM, 100.0);
        let fraction = |run: &&Run| Some((run.repeat, run.load.rate / self.limit.of(run)?));
        let parts: Vec<(u32, f64)> = ours.iter().filter_map(fraction).collect();
        let spread = Spread::of(parts.iter().map(|(_, part)| *part));
        let rate = Spread::of(ours.iter().map(|run| run.load.rate));
        let note = match (rate, ours.first().and_then(|run| self.limit.of(run))) {
            (Some(rate), Some(limit)) => {
                format!("{}/s of {}/s", thousands(rate.median), thousands(limit))
            }
            _ => String::new(),
        };
        Mark {
            what: "Namestorm, 100 names: rate to the reflector's".into(),
            wanted: Wanted::AtLeast(0.85),
            measured: spread.map(|spread| Ratio {
                value: spread.median,
                min: spread.min,
                max: spread.max,
            }),
            note,
        }
    }

    fn dns_costs(&self, marks: &mut Vec<Mark>) {
        let at = |panel: &str, server: &str, names: f64| {
            runs(self.results, "dns-cost", panel, server, names)
        };
        let mut rates = panels(self.results, "dns-cost", "");
        if rates.is_empty() {
            // The marks are told all the same, as not measured.
            rates.push("100,000 queries/s");
        }
        for (peer, wanted) in [("Knot DNS XDP", 0.8), ("NSD", 0.25)] {
            for (index, rate) in rates.iter().enumerate() {
                let others = at(rate, peer, 100.0);
                if index > 0 && others.is_empty() {
                    continue;
                }
                let mut mark = self.cost(
                    format!("Namestorm, 100 names, {rate}: cost to {peer}'s"),
                    wanted,
                    &at(rate, NAMESTORM, 100.0),
                    &others,
                );
                if let Some(floor) = self.median(&at(rate, REFLECTOR, 100.0)) {
                    let _ = write!(mark.note, "; the reflector: {} µs", digits(floor));
                }
                marks.push(mark);
            }
            let full = |server| runs(self.results, "dns-names", "", server, 100.0);
            if !full(peer).is_empty() {
                marks.push(self.cost(
                    format!("Namestorm, 100 names, each at its full rate: cost to {peer}'s"),
                    wanted,
                    &full(NAMESTORM),
                    &full(peer),
                ));
            }
        }
        for (index, rate) in rates.iter().enumerate() {
            let many = at(rate, NAMESTORM, 1e6);
            if index > 0 && many.is_empty() {
                continue;
            }
            let mut mark = self.cost(
                format!("Namestorm, {rate}: cost of 1,000,000 names to that of 100"),
                1.15,
                &many,
                &at(rate, NAMESTORM, 100.0),
            );
            let knot = |names| at(rate, "Knot DNS XDP", names);
            let knot = Ratio::of(Quantity::Core, &knot(1e6), &knot(100.0), &self.limit);
            if let Some(knot) = knot {
                let knot = digits(knot.value);
                let _ = write!(mark.note, "; Knot DNS XDP: {knot}");
            }
            marks.push(mark);
        }
    }

    fn web_costs(&self, marks: &mut Vec<Mark>) {
        for (panel, part, always) in [
            ("keep-alive", 6.0, true),
            ("keep-alive, full rate", 6.0, false),
            ("new connection", 5.0, true),
            ("new connection, full rate", 5.0, false),
        ] {
            let ours = runs(self.results, "web-cost", panel, SANDSTORM, KB);
            if ours.is_empty() && !always {
                continue;
            }
            let (nginx, others) = self.best_nginx(panel, KB);
            marks.push(self.cost(
                format!("Sandstorm, 1 KB, {panel}: cost to {nginx}'s"),
                1.0 / part,
                &ours,
                &others,
            ));
        }
        for panel in ["keep-alive", "new connection"] {
            marks.push(self.dearest(panel));
        }
    }

    /// The size up to 64 KB at which our cost comes nearest to nginx's.
    fn dearest(&self, panel: &str) -> Mark {
        let of_figure = self.results.runs.iter().filter(|run| {
            run.figure == "web-cost" && run.panel == panel && run.x <= 64.0 * KB && !run.offloads
        });
        let sizes = sizes(of_figure);
        let at = |size: f64| {
            let ours = runs(self.results, "web-cost", panel, SANDSTORM, size);
            let (nginx, others) = self.best_nginx(panel, size);
            let shown = x_shown(size, "bytes");
            let what = format!(
                "Sandstorm, up to 64 KB, {panel}: cost to {nginx}'s at the worst size, {shown}"
            );
            self.cost(what, 1.0, &ours, &others)
        };
        let worst = sizes.into_iter().map(at).max_by(by_value);
        worst.unwrap_or_else(|| {
            let what =
                format!("Sandstorm, up to 64 KB, {panel}: cost to nginx's at the worst size");
            self.cost(what, 1.0, &[], &[])
        })
    }

    /// Both with segmentation offload: at each size the number of connections
    /// at which we are worst.
    fn offload(&self, marks: &mut Vec<Mark>) {
        let panels = panels(self.results, OFFLOAD, "");
        let at = |panel: &str, size: f64| {
            let of = |server| runs(self.results, OFFLOAD, panel, server, size);
            (of(SANDSTORM), of("nginx"))
        };
        for (kb, most) in [(16.0, 1.0 / 2.0), (64.0, 1.0 / 3.0), (1_024.0, 1.0 / 3.0)] {
            let size = kb * KB;
            let what = |panel: &str| {
                let shown = x_shown(size, "bytes");
                format!("Sandstorm, offloads on, {shown}: cost to nginx's, {panel}")
            };
            let cost = |panel: &&str| {
                let (ours, others) = at(panel, size);
                self.cost(what(panel), most, &ours, &others)
            };
            let worst = panels.iter().map(cost).max_by(by_value);
            let none = || self.cost(what("not run"), most, &[], &[]);
            marks.push(worst.unwrap_or_else(none));
        }
        let of_figure = self.results.runs.iter().filter(|run| run.figure == OFFLOAD);
        let sizes = sizes(of_figure);
        let throughput = |(panel, size): (&str, f64)| {
            let (ours, others) = at(panel, size);
            Mark {
                what: "Sandstorm, offloads on: throughput to nginx's at the worst point".into(),
                wanted: Wanted::AtLeast(1.0),
                measured: Ratio::of(Quantity::Throughput, &ours, &others, &self.limit),
                note: format!("{}, {panel}", x_shown(size, "bytes")),
            }
        };
        let points = panels
            .iter()
            .flat_map(|&panel| sizes.iter().map(move |&size| (panel, size)));
        let points = points
            .map(throughput)
            .filter(|mark| mark.measured.is_some());
        let none = || throughput(("not run", 0.0));
        marks.push(points.min_by(by_value).unwrap_or_else(none));
    }

    /// The cheapest of nginx's tunings: a mark is one against the best peer.
    fn best_nginx(&self, panel: &str, size: f64) -> (&str, Vec<&Run>) {
        let mut tunings: Vec<&str> = Vec::new();
        for run in &self.results.runs {
            let server = run.server.as_str();
            if server.starts_with("nginx") && !tunings.contains(&server) {
                tunings.push(server);
            }
        }
        let cost = |server: &str| {
            let runs = runs(self.results, "web-cost", panel, server, size);
            self.median(&runs)
        };
        let costs = tunings
            .into_iter()
            .filter_map(|name| Some((name, cost(name)?)));
        let best = costs.min_by(|a, b| a.1.total_cmp(&b.1));
        let name = best.map_or("nginx", |(name, _)| name);
        (name, runs(self.results, "web-cost", panel, name, size))
    }

    /// The median cost of a request.
    fn median(&self, runs: &[&Run]) -> Option<f64> {
        let costs = runs
            .iter()
            .filter_map(|run| Quantity::Core.of(run, &self.limit));
        Spread::of(costs).map(|spread| spread.median)
    }

    fn cost(&self, what: String, most: f64, ours: &[&Run], others: &[&Run]) -> Mark {
        let mut note = match (self.median(ours), self.median(others)) {
            (Some(ours), Some(others)) => {
                format!("{} µs to {} µs", digits(ours), digits(others))
            }
            _ => String::new(),
        };
        for runs in [ours, others] {
            let rate = Spread::of(runs.iter().map(|run| run.load.rate));
            let (Some(run), Some(rate)) = (runs.first(), rate) else {
                continue;
            };
            if rate.median < run.load.asked_rate * REACHED {
                let _ = write!(
                    note,
                    "; {} has reached {}/s of {}/s",
                    run.server,
                    thousands(rate.median),
                    thousands(run.load.asked_rate)
                );
            }
        }
        let rates = |runs: &[&Run]| runs.first().map(|run| run.load.asked_rate);
        if let (Some(a), Some(b)) = (rates(ours), rates(others))
            && !same(a, b)
        {
            note += "; not at the same rate";
        }
        Mark {
            what,
            wanted: Wanted::AtMost(most),
            measured: Ratio::of(Quantity::Core, ours, others, &self.limit),
            note,
        }
    }
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
