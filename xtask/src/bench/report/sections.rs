//! The parts of the page that come from runs: charts, and tables with every
//! number that is in them.

use std::fmt::Write as _;

use super::charts::{self, Bar, Chart, Series};
use super::model::{
    Figure, Limit, Line, Panel, Quantity, Ratio, Spread, percent, thousands, x_shown,
};
use super::page::{charted, escape};
use crate::bench::results::{Batches, Results, Run, TimeLinePoint};
use crate::shell::Result;

/// A table of HTML.
pub(super) struct Table {
    columns: Vec<String>,
    text: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|head| escape(head)).collect(),
            text: vec![0],
            rows: Vec::new(),
        }
    }

    /// Columns of words, which may be broken.
    pub(super) fn text_columns(&mut self, columns: &[usize]) {
        self.text = columns.to_vec();
    }

    /// Cells are HTML.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn write(&self, html: &mut String) {
        html.push_str("<div class=\"wide\"><table>\n<thead><tr>");
        for (at, head) in self.columns.iter().enumerate() {
            let class = if self.text.contains(&at) {
                " class=\"text\""
            } else {
                ""
            };
            let _ = write!(html, "<th{class}>{head}</th>");
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let class = if self.text.contains(&at) {
                    " class=\"text\""
                } else {
                    ""
                };
                let _ = write!(html, "<td{class}>{cell}</td>");
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n</table></div>\n");
    }
}

/// A figure: charts for each of its panels, then its numbers.
pub(super) fn figure(html: &mut String, figure: &Figure<'_>, limit: &Limit) -> Result<()> {
    let _ = writeln!(
        html,
        "<h2 id=\"{}\">{}</h2>",
        escape(figure.name),
        escape(figure.title)
    );
    if figure.name == "agreement" {
        agreement(html, figure, limit);
    }
    if figure.name == "connections" {
        bytes_per_connection(html, figure);
    }
    for panel in &figure.panels {
        let heading = panel.heading();
        if !heading.is_empty() {
            let _ = writeln!(html, "<h3>{}</h3>", escape(&heading));
        }
        if figure.name != "agreement" {
            legend(html, figure, panel, limit);
            html.push_str("<div class=\"charts\">\n");
            for quantity in charted(figure.name) {
                chart(html, figure, panel, *quantity, limit)?;
            }
            html.push_str("</div>\n");
        }
        numbers(html, figure, panel, limit);
    }
    every_run(html, figure, limit);
    Ok(())
}

fn legend(html: &mut String, figure: &Figure<'_>, panel: &Panel<'_>, limit: &Limit) {
    html.push_str("<ul class=\"legend\">");
    for line in &panel.lines {
        let look = charts::look(line.server);
        let dash = if look.dashed {
            " stroke-dasharray=\"4 3\""
        } else {
            ""
        };
        let fill = if look.hollow {
            "var(--paper)".to_owned()
        } else {
            format!("var(--c{})", look.colour)
        };
        let _ = write!(
            html,
            "<li><svg viewBox=\"0 0 36 12\" aria-hidden=\"true\"><line x1=\"0\" y1=\"6\" \
             x2=\"36\" y2=\"6\" stroke=\"var(--c{0})\" stroke-width=\"2\"{dash}/><circle \
             cx=\"18\" cy=\"6\" r=\"4\" fill=\"{fill}\" stroke=\"var(--c{0})\" \
             stroke-width=\"2\"/></svg>{1}</li>",
            look.colour,
            escape(line.server)
        );
    }
    let limited = charted(figure.name)
        .iter()
        .any(|quantity| !limits(panel, *quantity, limit).is_empty());
    if limited {
        html.push_str(
            "<li><svg viewBox=\"0 0 36 12\" aria-hidden=\"true\"><line x1=\"0\" y1=\"6\" \
             x2=\"36\" y2=\"6\" stroke=\"var(--ink)\" stroke-width=\"2\" stroke-dasharray=\"8 \
             5\"/></svg>the rig's limit</li>",
        );
    }
    html.push_str("</ul>\n");
}

/// The limit at each `x` of a panel, in the quantity's unit.
fn limits(panel: &Panel<'_>, quantity: Quantity, limit: &Limit) -> Vec<(f64, f64)> {
    let of_run = |run: &&Run| {
        let load = &run.load;
        // What is asked for at a fixed rate says nothing about a limit.
        if load.asked_rate > 0.0 {
            return None;
        }
        let rate = limit.of(run)?;
        match quantity {
            Quantity::Rate => Some(rate),
            Quantity::Throughput => Some(rate * load.bytes_per_second / load.rate * 8.0 / 1e9),
            _ => None,
        }
    };
    let at = |x: f64| {
        let cells = panel.lines.iter().flat_map(|line| &line.cells);
        let runs = cells
            .filter(|cell| super::model::same(cell.x, x))
            .flat_map(|cell| &cell.runs);
        Spread::of(runs.filter_map(of_run)).map(|spread| (x, spread.median))
    };
    panel.xs().into_iter().filter_map(at).collect()
}

fn chart(
    html: &mut String,
    figure: &Figure<'_>,
    panel: &Panel<'_>,
    quantity: Quantity,
    limit: &Limit,
) -> Result<()> {
    let series: Vec<Series<'_>> = panel
        .lines
        .iter()
        .map(|line| Series {
            server: line.server,
            points: points(line, quantity, limit),
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let mut xs: Vec<f64> = series
        .iter()
        .flat_map(|s| s.points.iter().map(|p| p.0))
        .collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    if xs.is_empty() {
        return Ok(());
    }
    let what = format!("{}: {} {}", figure.title, quantity.title(), panel.heading());
    // What is split into parts, and what has one point only, is shown as bars.
    let is_cost = quantity == Quantity::Core && figure.name.ends_with("-cost");
    if is_cost || xs.len() == 1 {
        for x in xs {
            let title = format!(
                "{}, {}",
                x_title(x, figure.x_label),
                quantity.title().to_lowercase_first()
            );
            let split = if is_cost {
                " <small class=\"soft\">(full: server process, pale: kernel)</small>"
            } else {
                ""
            };
            let _ = writeln!(
                html,
                "<figure><figcaption>{}{split}</figcaption>",
                escape(&title)
            );
            html.push_str(&bars(panel, x, quantity, limit, &what)?);
            html.push_str("</figure>\n");
        }
        return Ok(());
    }
    let shown = |x: f64| x_shown(x, figure.x_label);
    let svg = charts::lines(
        &Chart {
            x_label: figure.x_label,
            x_shown: &shown,
            series,
            limit: limits(panel, quantity, limit),
        },
        &what,
    )?;
    let _ = writeln!(
        html,
        "<figure><figcaption>{}</figcaption>{svg}</figure>",
        escape(quantity.title())
    );
    Ok(())
}

trait LowercaseFirst {
    fn to_lowercase_first(&self) -> String;
}

impl LowercaseFirst for str {
    /// As it stands inside a sentence; what begins with capitals keeps them.
    fn to_lowercase_first(&self) -> String {
        let mut chars = self.chars();
        match (chars.next(), self.chars().nth(1)) {
            (Some(first), Some(second)) if second.is_lowercase() => {
                first.to_lowercase().chain(chars).collect()
            }
            _ => self.to_owned(),
        }
    }
}

/// A point of `x` with its name: `100 names`, `1 KB`.
fn x_title(x: f64, label: &str) -> String {
    let shown = x_shown(x, label);
    match label {
        _ if shown.ends_with('B') => shown,
        "frame, bytes" => format!("frames of {shown} B"),
        "body, bytes" => format!("{shown} B"),
        "names" if shown == "1" => "1 name".into(),
        label => format!("{shown} {label}"),
    }
}

fn points(line: &Line<'_>, quantity: Quantity, limit: &Limit) -> Vec<(f64, Spread)> {
    let point = |cell: &super::model::Cell<'_>| Some((cell.x, cell.spread(quantity, limit)?));
    line.cells.iter().filter_map(point).collect()
}

fn bars(
    panel: &Panel<'_>,
    x: f64,
    quantity: Quantity,
    limit: &Limit,
    what: &str,
) -> Result<String> {
    let bar = |line: &Line<'_>| {
        let cell = line
            .cells
            .iter()
            .find(|cell| super::model::same(cell.x, x))?;
        let spread = cell.spread(quantity, limit)?;
        let user = cell.spread(Quantity::User, limit);
        let parts = match user {
            Some(user) if quantity == Quantity::Core => {
                let user = user.median.clamp(0.0, spread.median);
                vec![user, spread.median - user]
            }
            _ => vec![spread.median],
        };
        Some((line.server.to_owned(), parts, spread))
    };
    let found: Vec<_> = panel.lines.iter().filter_map(bar).collect();
    let bars: Vec<Bar<'_>> = found
        .iter()
        .map(|(server, parts, spread)| Bar {
            server,
            parts: parts.clone(),
            spread: *spread,
        })
        .collect();
    let limit = limits(panel, quantity, limit);
    let limit = limit.iter().find(|point| super::model::same(point.0, x));
    charts::bars(&bars, limit.map(|point| point.1), what)
}

/// Medians with least and greatest, a row for each server and point.
fn numbers(html: &mut String, figure: &Figure<'_>, panel: &Panel<'_>, limit: &Limit) {
    const COLUMNS: &[Quantity] = &[
        Quantity::Rate,
        Quantity::Fraction,
        Quantity::Throughput,
        Quantity::Core,
        Quantity::User,
        Quantity::System,
        Quantity::CallsPerRequest,
        Quantity::PacketsPerCall,
        Quantity::P50,
        Quantity::P99,
        Quantity::P999,
        Quantity::SlowConnections,
        Quantity::Memory,
        Quantity::ClientBusy,
    ];
    let cells = || {
        panel
            .lines
            .iter()
            .flat_map(|line| line.cells.iter().map(move |c| (line, c)))
    };
    let columns: Vec<Quantity> = COLUMNS
        .iter()
        .copied()
        .filter(|quantity| cells().any(|(_, cell)| cell.spread(*quantity, limit).is_some()))
        .collect();
    let mut heads = vec!["server", figure.x_label];
    heads.extend(columns.iter().map(|quantity| quantity.short()));
    heads.push("errors");
    let mut table = Table::new(&heads);
    for (line, cell) in cells() {
        let mut row = vec![escape(line.server), x_shown(cell.x, figure.x_label)];
        for quantity in &columns {
            row.push(
                cell.spread(*quantity, limit)
                    .map_or(String::new(), |spread| {
                        let median = quantity.shown(spread.median);
                        if spread.repeats < 2 {
                            return median;
                        }
                        format!(
                            "{median} <small>{}–{}</small>",
                            quantity.shown(spread.min),
                            quantity.shown(spread.max)
                        )
                    }),
            );
        }
        row.push(errors(cell.runs.iter().copied()));
        table.row(row);
    }
    html.push_str("<details><summary>Numbers: median, least–greatest</summary>\n");
    table.write(html);
    html.push_str("</details>\n");
}

/// Errors by kind, added up.
fn errors<'a>(runs: impl Iterator<Item = &'a Run>) -> String {
    let mut kinds = std::collections::BTreeMap::new();
    for (kind, count) in runs.flat_map(|run| &run.load.errors) {
        *kinds.entry(kind.as_str()).or_insert(0) += count;
    }
    kinds.retain(|_, count| *count > 0);
    let shown = kinds
        .iter()
        .map(|(kind, count)| format!("{} {}", escape(kind), thousands(*count as f64)));
    shown.collect::<Vec<_>>().join(", ")
}

/// All runs of a figure, one by one, as they came.
fn every_run(html: &mut String, figure: &Figure<'_>, limit: &Limit) {
    const COLUMNS: &[Quantity] = &[
        Quantity::Rate,
        Quantity::Throughput,
        Quantity::Core,
        Quantity::User,
        Quantity::System,
        Quantity::P50,
        Quantity::P99,
        Quantity::P999,
        Quantity::Greatest,
        Quantity::ClientBusy,
        Quantity::Stolen,
    ];
    let mut heads = vec![
        "server",
        "panel",
        figure.x_label,
        "repeat",
        "generator",
        "asked for",
    ];
    heads.extend(COLUMNS.iter().map(|quantity| quantity.short()));
    heads.push("errors");
    let mut table = Table::new(&heads);
    let mut count = 0;
    for panel in &figure.panels {
        let cells = panel.lines.iter().flat_map(|line| &line.cells);
        for run in cells.flat_map(|cell| &cell.runs) {
            count += 1;
            let asked = match run.load.asked_rate {
                rate if rate > 0.0 => format!("{}/s", thousands(rate)),
                _ => "closed loop".into(),
            };
            let mut row = vec![
                escape(&run.server),
                escape(&panel.heading()),
                x_shown(run.x, figure.x_label),
                (run.repeat + 1).to_string(),
                escape(&run.load.generator),
                asked,
            ];
            let shown = |quantity: &Quantity| {
                let value = quantity.of(run, limit);
                value.map_or(String::new(), |value| quantity.shown(value))
            };
            row.extend(COLUMNS.iter().map(shown));
            row.push(errors(std::iter::once(*run)));
            table.row(row);
        }
    }
    let _ = writeln!(html, "<details><summary>All {count} runs</summary>");
    table.write(html);
    html.push_str("</details>\n");
}

/// Our generators beside others on the same server.
fn agreement(html: &mut String, figure: &Figure<'_>, limit: &Limit) {
    html.push_str(
        "<p>The same server under our generator and under others, at the same fixed rate or with \
         as many connections: what they report should be the same.</p>\n",
    );
    let mut table = Table::new(&[
        "load",
        "asked for",
        "other",
        "ours/s",
        "other's/s",
        "rate, ours to other",
        "server's cost, ours to other",
    ]);
    for row in agreements(figure, limit) {
        table.row(row.iter().map(|cell| escape(cell)).collect());
    }
    table.write(html);
}

/// A row for each of the others: panel, rate asked for, its name, both
/// rates, and the ratios of rate and cost.
pub(super) fn agreements(figure: &Figure<'_>, limit: &Limit) -> Vec<[String; 7]> {
    let mut rows = Vec::new();
    for panel in &figure.panels {
        let ours = panel
            .lines
            .iter()
            .filter(|line| line.server.starts_with("load"));
        for (line, cell) in ours.flat_map(|line| line.cells.iter().map(move |c| (line, c))) {
            let others = panel
                .lines
                .iter()
                .filter(|other| other.server != line.server);
            for other in others {
                let Some(beside) = other.cells.iter().find(|c| super::model::same(c.x, cell.x))
                else {
                    continue;
                };
                let rate = |cell: &super::model::Cell<'_>| {
                    let rate = cell.spread(Quantity::Rate, limit);
                    rate.map_or(String::new(), |rate| thousands(rate.median))
                };
                let ratio = |quantity| {
                    let ratio = Ratio::of(quantity, &cell.runs, &beside.runs, limit);
                    ratio.map_or(String::new(), |ratio| ratio.shown())
                };
                let asked = if cell.x > 0.0 {
                    format!("{}/s", thousands(cell.x))
                } else {
                    "closed loop".into()
                };
                rows.push([
                    panel.heading(),
                    asked,
                    other.server.to_owned(),
                    rate(cell),
                    rate(beside),
                    ratio(Quantity::Rate),
                    ratio(Quantity::Core),
                ]);
            }
        }
    }
    rows
}

/// What an idle connection takes, from the growth between two points.
fn bytes_per_connection(html: &mut String, figure: &Figure<'_>) {
    let mut table = Table::new(&["server", "from", "to connections", "bytes a connection"]);
    for line in figure.panels.iter().flat_map(|panel| &panel.lines) {
        for (from, to, bytes) in growth(line) {
            table.row(vec![
                escape(line.server),
                thousands(from),
                thousands(to),
                thousands(bytes),
            ]);
        }
    }
    html.push_str(
        "<p>Memory that the server, and the kernel for it, has more than at the least number of \
         connections, divided by their number.</p>\n",
    );
    table.write(html);
}

/// For each point after the first: least connections, connections here, and
/// bytes for each that there are more.
pub(super) fn growth(line: &Line<'_>) -> Vec<(f64, f64, f64)> {
    let memory = |cell: &super::model::Cell<'_>| {
        let bytes = cell
            .runs
            .iter()
            .filter_map(|run| run.memory.map(|bytes| bytes as f64));
        Some((cell.x, Spread::of(bytes)?.median))
    };
    let points: Vec<(f64, f64)> = line.cells.iter().filter_map(memory).collect();
    let Some((&(first, base), rest)) = points.split_first() else {
        return Vec::new();
    };
    rest.iter()
        .map(|&(x, bytes)| (first, x, (bytes - base) / (x - first)))
        .collect()
}

/// The busy connection.
pub(super) fn time_line(html: &mut String, points: &[TimeLinePoint]) -> Result<()> {
    if points.is_empty() {
        return Ok(());
    }
    html.push_str(
        "<h2 id=\"time-line\">Figure 2: one busy connection</h2>\n<p>Each stroke is a segment that \
         the server has sent, from its first to its last byte; the line of steps is what the \
         client has acknowledged. Segments that stand above each other went out in one batch.</p>\n\
         <ul class=\"legend\"><li><svg viewBox=\"0 0 36 12\" aria-hidden=\"true\"><line x1=\"18\" \
         y1=\"0\" x2=\"18\" y2=\"12\" stroke=\"var(--c0)\" stroke-width=\"3\"/></svg>sent, KB</li>\
         <li><svg viewBox=\"0 0 36 12\" aria-hidden=\"true\"><line x1=\"0\" y1=\"6\" x2=\"36\" \
         y2=\"6\" stroke=\"var(--c3)\" stroke-width=\"2\"/></svg>acknowledged, KB</li></ul>\n",
    );
    let svg = charts::time_line(points, "Figure 2: sequence numbers over time")?;
    let _ = writeln!(html, "<figure>{svg}</figure>");
    Ok(())
}

/// Labels of [`Batches`]' classes.
fn class_label(class: usize, last: usize) -> String {
    let least = 1_u64 << class;
    match class {
        0 => "1".into(),
        class if class == last => format!("≥ {least}"),
        _ => format!("{least}–{}", 2 * least - 1),
    }
}

/// How large batches were: a row for each server and point, received and
/// sent.
pub(super) fn batches(html: &mut String, figures: &[Figure<'_>]) {
    let mut rows = Vec::new();
    for figure in figures {
        for panel in &figure.panels {
            for line in &panel.lines {
                for cell in &line.cells {
                    let all = added(cell.runs.iter().filter_map(|run| run.batches.as_ref()));
                    let Some(all) = all else { continue };
                    let place = [line.server.to_owned(), panel.heading()];
                    let place = place.into_iter().filter(|word| !word.is_empty());
                    let place = place.collect::<Vec<_>>().join(", ");
                    let name = format!("{place}, {}", x_title(cell.x, figure.x_label));
                    rows.push((figure.title, name, all));
                }
            }
        }
    }
    html.push_str("<h2 id=\"batches\">Batches</h2>\n");
    if rows.is_empty() {
        html.push_str("<p class=\"soft\">Not recorded in this run.</p>\n");
        return;
    }
    html.push_str(
        "<p>Frames that a server of ours has received, and sent with one flush, at a time: parts \
         of all batches.</p>\n",
    );
    for (title, of) in [
        (
            "Received",
            (|all: &Batches| all.received.clone()) as fn(&Batches) -> Vec<u64>,
        ),
        ("Sent", |all: &Batches| all.sent.clone()),
    ] {
        let _ = writeln!(html, "<details open><summary>{title}</summary>");
        heat(
            html,
            rows.iter()
                .map(|(figure, name, all)| (*figure, name.as_str(), of(all))),
        );
        html.push_str("</details>\n");
    }
}

fn added<'a>(batches: impl Iterator<Item = &'a Batches>) -> Option<Batches> {
    let add = |sum: &mut Vec<u64>, more: &[u64]| {
        sum.resize(sum.len().max(more.len()), 0);
        for (sum, more) in sum.iter_mut().zip(more) {
            *sum += more;
        }
    };
    batches.fold(None, |sum, one| {
        let mut sum: Batches = sum.unwrap_or_default();
        add(&mut sum.received, &one.received);
        add(&mut sum.sent, &one.sent);
        Some(sum)
    })
}

fn heat<'a>(html: &mut String, rows: impl Iterator<Item = (&'a str, &'a str, Vec<u64>)>) {
    let rows: Vec<_> = rows.collect();
    let classes = rows
        .iter()
        .map(|(_, _, counts)| counts.len())
        .max()
        .unwrap_or(0);
    html.push_str("<div class=\"wide\"><table class=\"heat\">\n<thead><tr><th>frames</th>");
    for class in 0..classes {
        let _ = write!(html, "<th>{}</th>", class_label(class, classes - 1));
    }
    html.push_str("<th>batches</th></tr></thead>\n<tbody>\n");
    let mut of_figure = "";
    for (figure, name, counts) in &rows {
        if *figure != of_figure {
            of_figure = figure;
            let _ = writeln!(
                html,
                "<tr><th colspan=\"{}\">{}</th></tr>",
                classes + 2,
                escape(figure)
            );
        }
        let all: u64 = counts.iter().sum();
        let _ = write!(html, "<tr><td>{}</td>", escape(name));
        for class in 0..classes {
            let count = counts.get(class).copied().unwrap_or(0);
            let part = if all == 0 {
                0.0
            } else {
                count as f64 / all as f64
            };
            let text = if count == 0 {
                String::new()
            } else {
                percent(part)
            };
            let _ = write!(
                html,
                "<td class=\"cell\" style=\"background: rgba(var(--heat), {:.2})\">{text}</td>",
                part * 0.75
            );
        }
        let _ = writeln!(html, "<td>{}</td></tr>", thousands(all as f64));
    }
    html.push_str("</tbody>\n</table></div>\n");
}

/// Instructions of our own code.
pub(super) fn instructions(html: &mut String, results: &Results) {
    html.push_str("<h2 id=\"instructions\">Instructions in our own code</h2>\n");
    if results.instructions.is_empty() {
        html.push_str(
            "<p class=\"soft\">Not counted in this run: <code>cargo xtask bench \
             instructions</code>.</p>\n",
        );
        return;
    }
    html.push_str(
        "<p>For one packet or one request, from the received frame to the sent one, over a port \
         without a kernel, by callgrind; making the client's frame is part of it.</p>\n",
    );
    let mut table = Table::new(&["work", "instructions", "baseline", "change"]);
    for (name, count) in &results.instructions {
        let baseline = results.instructions_baseline.get(name);
        let change = baseline
            .filter(|old| **old > 0.0)
            .map(|old| format!("{:+.1} %", (count / old - 1.0) * 100.0));
        table.row(vec![
            escape(name),
            thousands(*count),
            baseline.map_or(String::new(), |old| thousands(*old)),
            change.unwrap_or_default(),
        ]);
    }
    table.write(html);
}
