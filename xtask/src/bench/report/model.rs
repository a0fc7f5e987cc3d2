//! The results in the order in which they are shown, and what is read from
//! them: medians, ratios, parts of the limit.

use crate::bench::results::{FIGURES, Results, Run};

/// A value over the repeats of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) repeats: usize,
}

impl Spread {
    /// Of at least one finite value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Self {
            median: percentile(&values, 50),
            min,
            max,
            repeats: values.len(),
        })
    }

    /// From least to greatest, as a part of the median.
    pub(super) fn relative(&self) -> Option<f64> {
        (self.median > 0.0).then(|| (self.max - self.min) / self.median)
    }
}

/// A percentile of sorted values, at least one; between two of them their
/// mean, weighted.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = percent * (sorted.len() - 1);
    let (low, high) = (sorted[at / 100], sorted[at.div_ceil(100)]);
    low + (high - low) * (at % 100) as f64 / 100.0
}

/// What is read from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Rate,
    /// The rate as a part of the limit, where the load takes what it gets.
    Fraction,
    Throughput,
    Core,
    User,
    System,
    CallsPerRequest,
    CallsPerSecond,
    PacketsPerCall,
    P50,
    P99,
    P999,
    Greatest,
    SlowConnections,
    Memory,
    ClientBusy,
    Stolen,
}

impl Quantity {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Rate => "Rate, replies/s",
            Self::Fraction => "Rate, part of the limit",
            Self::Throughput => "Throughput, Gb/s",
            Self::Core => "Cost, CPU µs a request on the server's core",
            Self::User => "In the server process, CPU µs a request",
            Self::System => "In the kernel, CPU µs a request",
            Self::CallsPerRequest => "System calls a request",
            Self::CallsPerSecond => "System calls/s",
            Self::PacketsPerCall => "Packets a system call",
            Self::P50 => "Latency, median, µs",
            Self::P99 => "Latency, 99th percentile, µs",
            Self::P999 => "Latency, 99.9th percentile, µs",
            Self::Greatest => "Latency, greatest, µs",
            Self::SlowConnections => {
                "Slow connections: 10th percentile of their rates to the median"
            }
            Self::Memory => "Memory of the server, MB",
            Self::ClientBusy => "Client's core busy",
            Self::Stolen => "Taken by the host",
        }
    }

    /// The head of a table's column.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Rate => "replies/s",
            Self::Fraction => "of limit",
            Self::Throughput => "Gb/s",
            Self::Core => "CPU µs",
            Self::User => "user µs",
            Self::System => "system µs",
            Self::CallsPerRequest => "calls/request",
            Self::CallsPerSecond => "calls/s",
            Self::PacketsPerCall => "packets/call",
            Self::P50 => "p50 µs",
            Self::P99 => "p99 µs",
            Self::P999 => "p99.9 µs",
            Self::Greatest => "max µs",
            Self::SlowConnections => "fairness",
            Self::Memory => "memory, MB",
            Self::ClientBusy => "client busy",
            Self::Stolen => "stolen",
        }
    }

    pub(super) fn shown(self, value: f64) -> String {
        match self {
            Self::Rate | Self::CallsPerSecond => thousands(value),
            Self::Fraction | Self::ClientBusy | Self::Stolen => percent(value),
            _ => digits(value),
        }
    }

    pub(super) fn of(self, run: &Run, limit: &Limit) -> Option<f64> {
        let load = &run.load;
        let cost = run.cost.as_ref();
        let calls = run.calls.as_ref();
        let latency = |n: usize| (load.latency_us[3] > 0.0).then_some(load.latency_us[n]);
        match self {
            Self::Rate => Some(load.rate),
            Self::Fraction if load.asked_rate > 0.0 => None,
            Self::Fraction => limit.of(run).map(|limit| load.rate / limit),
            Self::Throughput => Some(load.bytes_per_second * 8.0 / 1e9),
            Self::Core => cost.map(|cost| cost.core_us),
            Self::User => cost.map(|cost| cost.user_us),
            Self::System => cost.map(|cost| cost.system_us),
            Self::CallsPerRequest => calls.map(|calls| calls.per_request),
            Self::CallsPerSecond => calls.map(|calls| calls.per_second),
            Self::PacketsPerCall => calls.map(|calls| calls.packets_per_call),
            Self::P50 => latency(0),
            Self::P99 => latency(1),
            Self::P999 => latency(2),
            Self::Greatest => latency(3),
            Self::SlowConnections => load
                .connection_rate
                .filter(|[_, median]| *median > 0.0)
                .map(|[slow, median]| slow / median),
            Self::Memory => run.memory.map(|bytes| bytes as f64 / 1e6),
            Self::ClientBusy => cost.map(|cost| cost.client_busy),
            Self::Stolen => cost.map(|cost| cost.stolen),
        }
        .filter(|value| value.is_finite())
    }
}

/// What the reflector has reached: the rig's limit, by the size of a frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit(Vec<(f64, f64)>);

/// Ethernet, IPv4 and UDP.
const UDP_HEADERS: f64 = 42.0;
/// Ethernet, IPv4 and TCP.
const TCP_HEADERS: f64 = 54.0;
/// Of a response, about.
const HTTP_HEAD: f64 = 250.0;
/// Bytes of a full segment.
const MSS: f64 = 1460.0;

impl Limit {
    pub(super) fn new(results: &Results) -> Self {
        let mut sizes: Vec<f64> = limit_runs(results).map(|run| run.x).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let rate = |size: f64| {
            let runs = limit_runs(results).filter(|run| same(run.x, size));
            let spread = Spread::of(runs.map(|run| run.load.rate))?;
            (spread.median > 0.0).then_some((size, spread.median))
        };
        Self(sizes.into_iter().filter_map(rate).collect())
    }

    /// Frames a second of about this size, each received and sent.
    pub(super) fn frames(&self, size: f64) -> Option<f64> {
        let distance = |of: f64| (of - size).abs();
        let nearest = |a: &&(f64, f64), b: &&(f64, f64)| distance(a.0).total_cmp(&distance(b.0));
        Some(self.0.iter().min_by(nearest)?.1)
    }

    /// Replies a second like those of `run`.
    pub(super) fn of(&self, run: &Run) -> Option<f64> {
        let load = &run.load;
        if run.offloads || load.rate <= 0.0 {
            return None;
        }
        let body = load.bytes_per_second / load.rate;
        if is_http(run) {
            let sent = body + HTTP_HEAD;
            let frames = (sent / MSS).ceil().max(1.0);
            let size = TCP_HEADERS + sent.min(MSS);
            // The answer to the SYN.
            let opening = f64::from(run.panel.contains("new connection"));
            Some(self.frames(size)? / (frames + opening))
        } else if is_dns(run) {
            self.frames(body + UDP_HEADERS)
        } else {
            None
        }
    }
}

fn limit_runs(results: &Results) -> impl Iterator<Item = &Run> {
    results
        .runs
        .iter()
        .filter(|run| run.figure == "limit" && !run.offloads)
}

fn is_http(run: &Run) -> bool {
    let by = run.load.generator.as_str();
    by.contains("http") || by == "wrk" || by == "ab"
}

fn is_dns(run: &Run) -> bool {
    let by = run.load.generator.as_str();
    by.contains("dns") || by.contains("kxdpgun")
}

/// Runs that differ in nothing but the repeat.
#[derive(Clone, Debug)]
pub(super) struct Cell<'a> {
    pub(super) x: f64,
    pub(super) runs: Vec<&'a Run>,
}

impl Cell<'_> {
    pub(super) fn spread(&self, quantity: Quantity, limit: &Limit) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| quantity.of(run, limit)))
    }
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    pub(super) server: &'a str,
    pub(super) cells: Vec<Cell<'a>>,
}

/// A chart, or several of different quantities.
#[derive(Clone, Debug)]
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    pub(super) offloads: bool,
    pub(super) lines: Vec<Line<'a>>,
}

impl Panel<'_> {
    /// All values of `x` that occur.
    pub(super) fn xs(&self) -> Vec<f64> {
        let cells = self.lines.iter().flat_map(|line| &line.cells);
        let mut xs: Vec<f64> = cells.map(|cell| cell.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// All cells, with the lines that they are of.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&Line<'_>, &Cell<'_>)> {
        let lines = self.lines.iter();
        lines.flat_map(|line| line.cells.iter().map(move |cell| (line, cell)))
    }

    /// The panel's name, with what is true of all its runs.
    pub(super) fn heading(&self) -> String {
        let offloads = if self.offloads { "offloads on" } else { "" };
        let words = [self.title, offloads];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(", ")
    }
}

/// A figure of the report.
#[derive(Clone, Debug)]
pub(super) struct Figure<'a> {
    pub(super) name: &'a str,
    pub(super) title: &'a str,
    pub(super) x_label: &'a str,
    pub(super) panels: Vec<Panel<'a>>,
}

/// All runs: the known figures in their order, then what else there is.
pub(super) fn figures(results: &Results) -> Vec<Figure<'_>> {
    let known = FIGURES.iter().map(|&(name, title, x)| (name, title, x));
    let unknown = distinct(results.runs.iter().map(|run| run.figure.as_str()))
        .into_iter()
        .filter(|name| FIGURES.iter().all(|(known, _, _)| known != name))
        .map(|name| (name, name, "x"));
    known
        .chain(unknown)
        .map(|(name, title, x_label)| {
            let runs = || results.runs.iter().filter(move |run| run.figure == name);
            let keys = distinct(runs().map(|run| (run.offloads, run.panel.as_str())));
            let panel = |(offloads, title)| {
                let of_panel: Vec<&Run> = runs()
                    .filter(|run| run.offloads == offloads && run.panel == title)
                    .collect();
                Panel {
                    title,
                    offloads,
                    lines: lines(&of_panel),
                }
            };
            Figure {
                name,
                title,
                x_label,
                panels: keys.into_iter().map(panel).collect(),
            }
        })
        .filter(|figure| !figure.panels.is_empty())
        .collect()
}

fn lines<'a>(runs: &[&'a Run]) -> Vec<Line<'a>> {
    let of_server = |server: &'a str| {
        let mut cells: Vec<Cell<'a>> = Vec::new();
        for run in runs.iter().filter(|run| run.server == server) {
            match cells.iter_mut().find(|cell| same(cell.x, run.x)) {
                Some(cell) => cell.runs.push(run),
                None => cells.push(Cell {
                    x: run.x,
                    runs: vec![run],
                }),
            }
        }
        cells.sort_by(|a, b| a.x.total_cmp(&b.x));
        Line { server, cells }
    };
    distinct(runs.iter().map(|run| run.server.as_str()))
        .into_iter()
        .map(of_server)
        .collect()
}

/// Every value once, in the order in which they first occur.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Whether two values of `x` are the same: they were written by the same hand.
pub(super) fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// A ratio of medians, and the ratios of the single repeats, each to the one
/// that was run beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) value: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Ratio {
    /// Of a quantity of some runs to that of others.
    pub(super) fn of(
        quantity: Quantity,
        runs: &[&Run],
        others: &[&Run],
        limit: &Limit,
    ) -> Option<Self> {
        let median = |runs: &[&Run]| {
            let values = runs.iter().filter_map(|run| quantity.of(run, limit));
            Spread::of(values).map(|spread| spread.median)
        };
        let value = median(runs)? / median(others)?;
        let pairs = runs.iter().flat_map(|run| {
            let beside = others.iter().filter(|other| other.repeat == run.repeat);
            beside.map(|other| Some(quantity.of(run, limit)? / quantity.of(other, limit)?))
        });
        let single = Spread::of(pairs.flatten().chain([value]))?;
        value.is_finite().then_some(Self {
            value,
            min: single.min,
            max: single.max,
        })
    }

    pub(super) fn shown(&self) -> String {
        if same(self.min, self.max) {
            digits(self.value)
        } else {
            format!(
                "{} ({} to {})",
                digits(self.value),
                digits(self.min),
                digits(self.max)
            )
        }
    }
}

/// Whether a run is as its figure has it: one has offloads on.
fn is_of_figure(run: &Run, figure: &str) -> bool {
    run.figure == figure && run.offloads == (figure == OFFLOAD)
}

/// The figure with offloads.
pub(super) const OFFLOAD: &str = "web-offload";

/// The runs of a server at a point of a figure.
pub(super) fn runs<'a>(
    results: &'a Results,
    figure: &str,
    panel: &str,
    server: &str,
    x: f64,
) -> Vec<&'a Run> {
    results
        .runs
        .iter()
        .filter(|run| {
            is_of_figure(run, figure)
                && run.panel == panel
                && run.server == server
                && same(run.x, x)
        })
        .collect()
}

/// Panels of a figure whose name begins so.
pub(super) fn panels<'a>(results: &'a Results, figure: &str, start: &str) -> Vec<&'a str> {
    let runs = results.runs.iter();
    distinct(
        runs.filter(|run| is_of_figure(run, figure) && run.panel.starts_with(start))
            .map(|run| run.panel.as_str()),
    )
}

/// A number with three digits that count.
pub(super) fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 1_000.0 => return thousands(value),
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 || v == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A whole number with its thousands set apart.
pub(super) fn thousands(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let mut text = String::new();
    if value <= -0.5 {
        text.push('-');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn percent(part: f64) -> String {
    let value = part * 100.0;
    if value.abs() < 9.95 && value != 0.0 {
        format!("{value:.1} %")
    } else {
        format!("{value:.0} %")
    }
}

/// A value of `x` as one says it: bytes in binary thousands.
pub(super) fn x_shown(x: f64, label: &str) -> String {
    const UNITS: [(f64, &str); 2] = [((1 << 20) as f64, "MB"), (1024.0, "KB")];
    if label.contains("bytes") && !label.contains("frame") {
        for (unit, name) in UNITS {
            if x >= unit && same((x / unit).fract(), 0.0) {
                return format!("{} {name}", thousands(x / unit));
            }
        }
    }
    if x >= 10.0 || same(x.fract(), 0.0) {
        thousands(x)
    } else {
        digits(x)
    }
}

/// A number for an axis: `1.5 M`, `20 k`.
pub(super) fn axis_shown(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

/// How much the repeats differ from each other and how much the host took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise {
    /// From least to greatest rate of the repeats of one run, as a part of
    /// their median: the median and the 90th percentile over all runs.
    pub(super) rate: Option<[f64; 2]>,
    /// The same for the cost.
    pub(super) cost: Option<[f64; 2]>,
    /// Part of the time that the host took the server's core away: median
    /// and greatest.
    pub(super) stolen: Option<[f64; 2]>,
    /// Part of the runs in which the client's core was full: their rate is a
    /// joint one of both.
    pub(super) client_full: Option<f64>,
}

/// A core that is busy for more than this part is full.
pub(super) const FULL: f64 = 0.97;

pub(super) fn noise(results: &Results, figures: &[Figure<'_>], limit: &Limit) -> Noise {
    let spread = |quantity: Quantity| {
        let panels = figures.iter().flat_map(|figure| &figure.panels);
        let cells = panels
            .flat_map(|panel| &panel.lines)
            .flat_map(|line| &line.cells);
        let spreads = cells.filter_map(|cell| cell.spread(quantity, limit));
        let repeated = spreads.filter(|spread| spread.repeats > 1);
        sorted(repeated.filter_map(|spread| spread.relative()))
            .map(|all| [percentile(&all, 50), percentile(&all, 90)])
    };
    let costs = || results.runs.iter().filter_map(|run| run.cost.as_ref());
    let full = costs().filter(|cost| cost.client_busy > FULL).count();
    Noise {
        rate: spread(Quantity::Rate),
        cost: spread(Quantity::Core),
        stolen: sorted(costs().map(|cost| cost.stolen))
            .map(|all| [percentile(&all, 50), percentile(&all, 100)]),
        client_full: (costs().count() > 0).then(|| full as f64 / costs().count() as f64),
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Option<Vec<f64>> {
    let mut all: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
