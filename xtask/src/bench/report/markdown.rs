//! The results in short, as Markdown for the repository's own pages.

use std::fmt::Write as _;

use super::marks::marks;
use super::model::{Cell, Figure, Limit, Panel, Quantity, figures, noise, thousands, x_shown};
use super::page::noise_lines;
use super::paper;
use super::sections::{AGREEMENT_HEADS, agreements, growth, with_errors};
use crate::bench::results::Results;
use crate::markdown::{escape, owned, write_table};

/// Headings, tables and lists; no links and no pictures.
pub(super) fn table(results: &Results) -> String {
    let limit = Limit::new(results);
    let figures = figures(results);
    let mut text = String::new();
    setting(&mut text, results, &figures, &limit);
    marks_table(&mut text, results);
    for figure in &figures {
        match figure.name {
            "agreement" => agreement(&mut text, figure, &limit),
            _ => figure_tables(&mut text, figure, &limit),
        }
    }
    paper_table(&mut text, results);
    instructions(&mut text, results);
    missing(&mut text, results);
    errors(&mut text, &figures);
    text
}

fn setting(text: &mut String, results: &Results, figures: &[Figure<'_>], limit: &Limit) {
    let _ = writeln!(
        text,
        "{}, `cargo xtask {}`, {} runs: medians (least to greatest repeat).\n",
        escape(&results.started),
        results.command.replace('`', ""),
        results.runs.len()
    );
    for (name, value) in &results.machine {
        let _ = writeln!(text, "- {}: {}", escape(name), escape(value));
    }
    let versions = results
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"));
    let versions = versions.collect::<Vec<_>>().join(", ");
    if !versions.is_empty() {
        let _ = writeln!(text, "- versions: {}", escape(&versions));
    }
    for (name, value) in noise_lines(&noise(results, figures, limit)) {
        let _ = writeln!(text, "- {name}: {value}");
    }
    for sentence in &results.cores {
        let _ = writeln!(text, "- {}", escape(sentence));
    }
    text.push('\n');
}

fn marks_table(text: &mut String, results: &Results) {
    text.push_str("### Marks\n\n");
    let rows: Vec<Vec<String>> = marks(results)
        .iter()
        .map(|mark| {
            vec![
                escape(&mark.what),
                mark.wanted.shown(),
                mark.measured.map_or("–".into(), |ratio| ratio.shown()),
                match mark.met() {
                    Some(false) => "**missed**".to_owned(),
                    _ => mark.verdict().to_owned(),
                },
                escape(&mark.note),
            ]
        })
        .collect();
    let heads = ["mark", "wanted", "measured", "", "medians"];
    write_table(text, &owned(&heads), &rows);
}

/// The quantities of a figure that a short table has.
fn tabled(figure: &str) -> &'static [Quantity] {
    use Quantity::{ClientBusy, Core, Fraction, Memory, Rate, Throughput};
    match figure {
        "dns-cost" | "web-cost" => &[Core],
        "dns-names" | "dns-batch" => &[Rate, Fraction],
        "web-sizes" => &[Throughput, Rate, Core],
        "web-offload" => &[Throughput, Rate, Core, ClientBusy],
        "web-mix" | "web-loss" => &[Throughput],
        "connections" => &[Rate, Memory],
        _ => &[Rate, Core],
    }
}

/// For each panel and quantity a table of servers by `x`.
fn figure_tables(text: &mut String, figure: &Figure<'_>, limit: &Limit) {
    let _ = writeln!(text, "### {}\n", escape(figure.title));
    for panel in &figure.panels {
        for quantity in tabled(figure.name) {
            panel_table(text, figure, panel, *quantity, limit);
        }
    }
    if figure.name == "connections" {
        bytes_per_connection(text, figure);
    }
}

fn bytes_per_connection(text: &mut String, figure: &Figure<'_>) {
    let lines = figure.panels.iter().flat_map(|panel| &panel.lines);
    let rows: Vec<Vec<String>> = lines
        .flat_map(|line| {
            growth(line)
                .into_iter()
                .map(move |growth| (line.server, growth))
        })
        .map(|(server, (from, to, bytes))| {
            vec![
                escape(server),
                thousands(from),
                thousands(to),
                thousands(bytes),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text.push_str("Growth of memory, the kernel's for the server included:\n\n");
        let heads = ["server", "from", "to connections", "bytes a connection"];
        write_table(text, &owned(&heads), &rows);
    }
}

fn panel_table(
    text: &mut String,
    figure: &Figure<'_>,
    panel: &Panel<'_>,
    quantity: Quantity,
    limit: &Limit,
) {
    let xs = panel.xs();
    let spread = |cell: &Cell<'_>| cell.spread(quantity, limit);
    let mut rows = Vec::new();
    for line in &panel.lines {
        let at = |x: &f64| {
            let cell = line
                .cells
                .iter()
                .find(|cell| super::model::same(cell.x, *x));
            cell.and_then(spread).map_or("–".to_owned(), |spread| {
                let median = quantity.shown(spread.median);
                if spread.repeats < 2 {
                    return median;
                }
                let (min, max) = (quantity.shown(spread.min), quantity.shown(spread.max));
                format!("{median} ({min} to {max})")
            })
        };
        if line.cells.iter().any(|cell| spread(cell).is_some()) {
            let mut row = vec![escape(line.server)];
            row.extend(xs.iter().map(at));
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return;
    }
    let heading = panel.heading();
    let of = if heading.is_empty() {
        String::new()
    } else {
        format!("; {heading}")
    };
    let _ = writeln!(text, "{}{}:\n", quantity.title(), escape(&of));
    let mut heads = vec![figure.x_label.to_owned()];
    heads.extend(xs.iter().map(|x| x_shown(*x, figure.x_label)));
    write_table(text, &heads, &rows);
}

fn agreement(text: &mut String, figure: &Figure<'_>, limit: &Limit) {
    let _ = writeln!(text, "### {}\n", escape(figure.title));
    let rows: Vec<Vec<String>> = agreements(figure, limit)
        .iter()
        .map(|row| row.iter().map(|cell| escape(cell)).collect())
        .collect();
    write_table(text, &owned(&AGREEMENT_HEADS), &rows);
}

fn paper_table(text: &mut String, results: &Results) {
    text.push_str("### The paper's figures beside ours\n\n");
    let rows: Vec<Vec<String>> = paper::rows(results)
        .into_iter()
        .map(|row| {
            let ours = if row.ours.is_empty() {
                "not measured"
            } else {
                &row.ours
            };
            let what = format!("{}: {}", row.place, row.what);
            vec![what, row.paper.to_owned(), ours.to_owned()]
        })
        .collect();
    write_table(text, &owned(&["", "paper", "here"]), &rows);
}

fn instructions(text: &mut String, results: &Results) {
    if results.instructions.is_empty() {
        return;
    }
    text.push_str("### Instructions in our own code\n\n");
    let rows: Vec<Vec<String>> = results
        .instructions
        .iter()
        .map(|(name, count)| {
            let baseline = results.instructions_baseline.get(name);
            let change = baseline
                .filter(|old| **old > 0.0)
                .map(|old| count / old - 1.0);
            vec![
                escape(name),
                thousands(*count),
                change.map_or("–".into(), |change| format!("{:+.1} %", change * 100.0)),
            ]
        })
        .collect();
    write_table(
        text,
        &owned(&["work", "instructions", "to the baseline"]),
        &rows,
    );
}

fn missing(text: &mut String, results: &Results) {
    if results.missing.is_empty() {
        return;
    }
    text.push_str("### Missing\n\n");
    for one in &results.missing {
        let _ = writeln!(text, "- {}: {}", escape(&one.what), escape(&one.why));
    }
}

fn errors(text: &mut String, figures: &[Figure<'_>]) {
    let rows: Vec<Vec<String>> = with_errors(figures)
        .iter()
        .map(|row| row.iter().map(|cell| escape(cell)).collect())
        .collect();
    if !rows.is_empty() {
        text.push_str("\n### Errors, which count in no rate\n\n");
        write_table(text, &owned(&["figure", "run", "errors"]), &rows);
    }
}
