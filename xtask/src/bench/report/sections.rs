//! The figures of the page: charts, and tables with every number that is in
//! them.

use std::fmt::Write as _;

use super::charts::{self, Bar, Chart, Series};
use super::model::{
    Cell, FULL, Figure, Limit, Line, Panel, Quantity, Ratio, Spread, axis_shown, percent,
    thousands, x_shown,
};
use super::page::{charted, escape};
use super::table::Table;
use crate::bench::results::Run;
use crate::shell::Result;

/// A figure: charts for each of its panels, then its numbers.
pub(super) fn figure(html: &mut String, figure: &Figure<'_>, limit: &Limit) -> Result<()> {
    let _ = writeln!(
        html,
        "<h2 id=\"{}\">{}</h2>",
        escape(figure.name),
        escape(figure.title)
    );
    if let Some(note) = note(figure.name) {
        let _ = writeln!(html, "<p>{note}</p>");
    }
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

/// What one should know to read a figure.
fn note(figure: &str) -> Option<&'static str> {
    match figure {
        "limit" => Some(
            "One frame in, the same frame out, nothing looked at: what wire, kernel and client let \
             through. Elsewhere in this report the limit is the reflector's rate at the nearest \
             size of a reply's frame; for HTTP it is divided by the frames of a response. Large \
             responses may pass it, as not each of their frames is acknowledged by one.",
        ),
        "dns-cost" | "web-cost" => Some(
            "The same rate for every server, below what the slowest reaches: CPU time of the \
             server's core for each request, the kernel's work for both directions included.",
        ),
        "dns-names" | "dns-batch" => Some("Closed loop: as fast as server and client can."),
        "web-sizes" => Some(
            "Closed loop, keep-alive. Offloads are off, so that each frame is one packet for \
             everybody.",
        ),
        "web-offload" => Some(
            "Closed loop, keep-alive, with segmentation and checksum offloads on at both ends, \
             super-segments of 256 KB allowed: a kernel's server hands that much to its card at \
             once, as far as its pages allow, and so does ours.",
        ),
        "web-loss" => {
            Some("Frames are lost at the client's end, in both directions, by a seeded generator.")
        }
        _ => None,
    }
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
        .any(|quantity| !limits(figure, panel, *quantity, limit).is_empty());
    if limited {
        html.push_str(
            "<li><svg viewBox=\"0 0 36 12\" aria-hidden=\"true\"><line x1=\"0\" y1=\"6\" \
             x2=\"36\" y2=\"6\" stroke=\"var(--ink)\" stroke-width=\"2\" stroke-dasharray=\"8 \
             5\"/></svg>the rig's limit</li>",
        );
    }
    html.push_str("</ul>\n");
}

/// The limit at each `x` of a panel, in the quantity's unit; none where the
/// load is not meant to come near it.
fn limits(
    figure: &Figure<'_>,
    panel: &Panel<'_>,
    quantity: Quantity,
    limit: &Limit,
) -> Vec<(f64, f64)> {
    if ["web-loss", "connections"].contains(&figure.name) {
        return Vec::new();
    }
    let of_run = |run: &&Run| {
        let load = &run.load;
        // What is asked for at a fixed rate says nothing about a limit.
        if load.asked_rate > 0.0 {
            return None;
        }
        let rate = limit.of(run)?;
        match quantity {
            Quantity::Rate => Some(rate),
            Quantity::Fraction => Some(1.0),
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
            html.push_str(&bars(figure, panel, x, quantity, limit, &what)?);
            html.push_str("</figure>\n");
        }
        return Ok(());
    }
    let shown = |x: f64| x_shown(x, figure.x_label);
    let chart = Chart {
        x_label: figure.x_label,
        x_shown: &shown,
        y_shown: match quantity {
            Quantity::Fraction | Quantity::SlowConnections => &percent,
            _ => &axis_shown,
        },
        series,
        limit: limits(figure, panel, quantity, limit),
    };
    let scale = if charts::is_logarithmic(&chart) {
        " <small class=\"soft\">(logarithmic)</small>"
    } else {
        ""
    };
    let svg = charts::lines(&chart, &what)?;
    let _ = writeln!(
        html,
        "<figure><figcaption>{}{scale}</figcaption>{svg}</figure>",
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
        "frames in a batch" => format!("batches of {shown}"),
        label => format!("{shown} {label}"),
    }
}

fn points(line: &Line<'_>, quantity: Quantity, limit: &Limit) -> Vec<(f64, Spread)> {
    let point = |cell: &Cell<'_>| Some((cell.x, cell.spread(quantity, limit)?));
    line.cells.iter().filter_map(point).collect()
}

fn bars(
    figure: &Figure<'_>,
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
    let limit = limits(figure, panel, quantity, limit);
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
    let cells = || panel.cells();
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
        row.push(escape(&errors(cell.runs.iter().copied())));
        table.row(row);
    }
    html.push_str("<details><summary>Numbers: median, least–greatest</summary>\n");
    table.write(html);
    html.push_str("</details>\n");
}

/// Errors by kind, added up, and runs that gave nothing at all.
fn errors<'a>(runs: impl Iterator<Item = &'a Run>) -> String {
    let mut kinds = std::collections::BTreeMap::new();
    for load in runs.map(|run| &run.load) {
        for (kind, count) in &load.errors {
            *kinds.entry(kind.as_str()).or_insert(0) += count;
        }
        *kinds.entry("runs without one reply:").or_insert(0) += u64::from(load.completed == 0);
    }
    kinds.retain(|_, count| *count > 0);
    let shown = kinds
        .iter()
        .map(|(kind, count)| format!("{kind} {}", thousands(*count as f64)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Runs in which a generator has seen errors: a row for each server and
/// point, with figure, name, and errors by kind.
pub(super) fn with_errors(figures: &[Figure<'_>]) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    for figure in figures {
        for panel in &figure.panels {
            for (line, cell) in panel.cells() {
                let errors = errors(cell.runs.iter().copied());
                if !errors.is_empty() {
                    let name = name(line, panel, cell, figure);
                    rows.push([figure.title.to_owned(), name, errors]);
                }
            }
        }
    }
    rows
}

/// A server at a point, in words.
pub(super) fn name(
    line: &Line<'_>,
    panel: &Panel<'_>,
    cell: &Cell<'_>,
    figure: &Figure<'_>,
) -> String {
    let point = match figure.x_label {
        "µs" => format!("δt {} µs", x_shown(cell.x, "")),
        label => x_title(cell.x, label),
    };
    let words = [line.server.to_owned(), panel.heading(), point];
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(", ")
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
            row.push(escape(&errors(std::iter::once(*run))));
            table.row(row);
        }
    }
    let runs = if count == 1 { "run" } else { "runs" };
    let _ = writeln!(html, "<details><summary>All {count} {runs}</summary>");
    table.write(html);
    html.push_str("</details>\n");
}

/// Our generators beside others on the same server.
fn agreement(html: &mut String, figure: &Figure<'_>, limit: &Limit) {
    html.push_str(
        "<p>The same server under our generator and under others, at the same fixed rate or with \
         as many connections: what they report should be the same.</p>\n",
    );
    let mut table = Table::new(&AGREEMENT_HEADS);
    table.text_columns(&[0, 7]);
    for row in agreements(figure, limit) {
        table.row(row.iter().map(|cell| escape(cell)).collect());
    }
    table.write(html);
}

/// Generators agree when their rates differ by no more than this part, or by
/// no more than the repeats do.
const AGREEMENT: f64 = 0.05;

/// Whether two generators say the same.
fn agree(ratio: Option<Ratio>, cells: [&Cell<'_>; 2], limit: &Limit) -> &'static str {
    let Some(ratio) = ratio else { return "" };
    let within = (ratio.min..=ratio.max).contains(&1.0);
    let is_full = |cell: &Cell<'_>| {
        let busy = cell.spread(Quantity::ClientBusy, limit);
        busy.is_some_and(|busy| busy.median > FULL)
    };
    match cells.map(is_full) {
        _ if within || (ratio.value - 1.0).abs() <= AGREEMENT => "they agree",
        [false, false] => "they differ",
        [true, false] => "they differ: our client's core is full",
        [false, true] => "they differ: the other's client's core is full",
        [true, true] => "they differ: both clients' cores are full",
    }
}

/// The columns of [`agreements`].
pub(super) const AGREEMENT_HEADS: [&str; 8] = [
    "load",
    "asked for",
    "other",
    "ours/s",
    "other's/s",
    "rate, ours to other",
    "server's cost, ours to other",
    "",
];

/// A row for each of the others: panel, rate asked for, its name, both
/// rates, the ratios of rate and cost, and whether they agree.
pub(super) fn agreements(figure: &Figure<'_>, limit: &Limit) -> Vec<[String; 8]> {
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
                let rate = |cell: &Cell<'_>| {
                    let rate = cell.spread(Quantity::Rate, limit);
                    rate.map_or(String::new(), |rate| thousands(rate.median))
                };
                let ratio = |quantity| Ratio::of(quantity, &cell.runs, &beside.runs, limit);
                let shown =
                    |ratio: Option<Ratio>| ratio.map_or(String::new(), |ratio| ratio.shown());
                let rates = ratio(Quantity::Rate);
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
                    shown(rates),
                    shown(ratio(Quantity::Core)),
                    agree(rates, [cell, beside], limit).to_owned(),
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
/// bytes for each that there are more. A run without a reply had not come so
/// far that all were open.
pub(super) fn growth(line: &Line<'_>) -> Vec<(f64, f64, f64)> {
    let memory = |cell: &Cell<'_>| {
        let served = cell.runs.iter().filter(|run| run.load.completed > 0);
        let bytes = served.filter_map(|run| run.memory.map(|bytes| bytes as f64));
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
