//! Writes the report: a Markdown page for the repository, and an HTML page with charts and all
//! numbers.

mod chart;
mod comparisons;
mod lines;
mod numbers;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::plan::{FIGURES, Figure};
use super::quotes;
use super::results::{Missing, Quantity, Results};
use crate::markdown::{escape, owned, write_table};
use anyhow::{Context as _, Result};
use chart::Series;
use lines::{Line, is_same, lines, place};
pub(super) use numbers::{Spread, digits, thousands};
use numbers::{percentile, x_shown};

/// Pages in the folder of the raw results: the Markdown page and the HTML page.
const SHORT: &str = "RESULTS.md";
const FULL: &str = "report.html";

/// Reads raw results from a file.
pub(crate) fn read(path: &Path) -> Result<Results> {
    let text = std::fs::read(path).with_context(|| {
        format!(
            "reading {}, which `cargo xtask bench` writes",
            path.display()
        )
    })?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}

/// Writes the Markdown page and the HTML page into `folder`.
pub(crate) fn write(all: &[Results], folder: &Path) -> Result<()> {
    for (name, text) in [(SHORT, page(all, false)?), (FULL, html(&page(all, true)?))] {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        println!("bench: written {}", path.display());
    }
    Ok(())
}

fn html(markdown: &str) -> String {
    let parser = pulldown_cmark::Parser::new_ext(markdown, pulldown_cmark::Options::ENABLE_TABLES);
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Comparison</title>\n\
         <style>body { font: 15px sans-serif; margin: 2em } table { border-collapse: collapse }\n\
         td, th { border: 1px solid #ccc; padding: 2px 8px; white-space: nowrap }\n\
         table { display: block; overflow-x: auto }</style>\n",
    );
    pulldown_cmark::html::push_html(&mut html, parser);
    html.push_str("</html>\n");
    html
}

/// Returns the page as Markdown. A `full` page has charts and every quantity.
fn page(all: &[Results], full: bool) -> Result<String> {
    let mut text = String::from(
        "# Results of the comparison\n\n\
         `cargo xtask bench` measures these figures. The tables of a comparison are written by `cargo \
         xtask bench report`. Notes below them were written by hand, as were the tables of \
         instructions, guests, reloads and zones. Values are medians of interleaved repeats; brackets have minimum and maximum. \
         Compare values of one measurement only: a shared host moves absolute values by a tenth \
         from hour to hour. The server has one core. Costs include the kernel's work on it. Headings \
         name the load generators; `load` is our own.\n\n\
         ## In short\n\n",
    );
    let mut short = String::new();
    table(&mut short, "", &summary::HEADS, &summary::rows(all));
    quotes::write(&mut text, quotes::SUMMARY, &short);
    for results in all {
        measurement(&mut text, results, full)?;
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// Writes a heading and a table, unless the table has no rows.
fn table(text: &mut String, heading: &str, heads: &[&str], rows: &[Vec<String>]) {
    if !rows.is_empty() {
        text.push_str(heading);
        write_table(text, &owned(heads), rows);
    }
}

fn measurement(text: &mut String, results: &Results, full: bool) -> Result<()> {
    text.truncate(text.trim_end().len());
    let _ = writeln!(text, "\n\n## Measurement of {}\n", escape(&results.started));
    let (command, runs) = (results.command.replace('`', ""), results.runs.len());
    let _ = writeln!(text, "`cargo xtask {command}`, {runs} runs.\n");
    let versions = results
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"));
    let versions = versions.collect::<Vec<_>>().join(", ");
    let machine = results
        .machine
        .iter()
        .cloned()
        .chain([("versions".to_owned(), versions)]);
    for (name, value) in machine {
        let _ = writeln!(text, "- {}: {}", escape(&name), escape(&value));
    }
    validators(text, results);
    noise(text, results);
    text.push('\n');
    let marks = comparisons::rows(results);
    table(
        text,
        "### Marks, and the paper's figures\n\n",
        &comparisons::HEADS,
        &marks,
    );
    for figure in FIGURES {
        let lines: Vec<Line<'_>> = lines(results, figure.name).collect();
        if lines.is_empty() {
            continue;
        }
        let clients = clients(results, figure.name);
        let _ = writeln!(text, "### {}{clients}\n", figure.title);
        let others = Quantity::USUAL
            .iter()
            .filter(|one| full && !figure.tables.contains(one));
        for quantity in figure.tables.iter().chain(others) {
            quantity_table(text, figure, *quantity, &lines);
        }
        if figure.name == "connections" {
            let heading = "Memory, from the fewest to the most connections:\n\n";
            let heads = ["server", "most connections", "bytes for each"];
            table(text, heading, &heads, &summary::memory(results));
        }
        if full {
            charts(text, figure, &lines)?;
        }
    }
    let heading = "### Errors, which count in no rate\n\n";
    let heads = ["figure", "server", "at", "errors"];
    table(text, heading, &heads, &errors(results));
    let row = |missing: &Missing| {
        [&missing.what, &missing.why]
            .map(|text| escape(text))
            .to_vec()
    };
    let rows: Vec<_> = results.missing.iter().map(row).collect();
    table(
        text,
        "### Missing\n\n",
        &["run", "why it is missing"],
        &rows,
    );
    Ok(())
}

/// Names the load generators of a figure, as the end of the figure's heading.
fn clients(results: &Results, figure: &str) -> String {
    let runs = results.runs.iter().filter(|run| run.figure == figure);
    let mut names: Vec<&str> = Vec::new();
    for generator in runs.map(|run| run.load.generator.as_str()) {
        // Our generator's commands, such as `load dns`, are one program.
        let is_ours = generator.split(' ').next() == Some("load");
        let name = if is_ours { "`load`" } else { generator };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.split_last() {
        None => String::new(),
        Some((one, [])) => format!(", {one} as the client"),
        Some((last, others)) => format!(", {} and {last} as clients", others.join(", ")),
    }
}

/// Writes by which field each server recognized unchanged files.
fn validators(text: &mut String, results: &Results) {
    let mut servers = BTreeMap::<&str, BTreeSet<&str>>::new();
    for run in &results.runs {
        if let Some(field) = &run.load.validator {
            servers.entry(field).or_default().insert(&run.server);
        }
    }
    for (field, servers) in servers {
        let servers = servers.into_iter().collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "- 304 by {field}: {}", escape(&servers));
    }
}

/// Writes how much the repeats differ, and how much CPU time the host stole.
fn noise(text: &mut String, results: &Results) {
    let spreads = |quantity| {
        let lines = FIGURES
            .iter()
            .flat_map(|figure| lines(results, figure.name));
        let of = |line: &Line<'_>, x: &f64| Spread::of_runs(quantity, &line.at(*x))?.relative();
        lines
            .flat_map(|line| {
                line.xs()
                    .iter()
                    .filter_map(|x| of(&line, x))
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let costs = || results.runs.iter().map(|run| &run.cost);
    let stolen: Vec<f64> = costs().map(|cost| cost.stolen).collect();
    let foreign = costs().map(|cost| cost.foreign).collect();
    for (name, mut values) in [
        (
            "spread of rates between repeats, as a part of the median",
            spreads(Quantity::Rate),
        ),
        (
            "spread of costs between repeats, as a part of the median",
            spreads(Quantity::Cost),
        ),
        ("time of the server's core that the host took", stolen),
        ("time of the server's core that other work took", foreign),
    ] {
        values.sort_by(f64::total_cmp);
        if let [Some(half), Some(most)] = [50, 90].map(|percent| percentile(&values, percent)) {
            let [half, most] = [half, most].map(|part| format!("{:.1} %", part * 100.0));
            let _ = writeln!(
                text,
                "- {name}: {half} in half of the runs, {most} in nine of ten"
            );
        }
    }
}

/// Writes a table with a row for each line of the figure and a column for each value of its
/// variable.
fn quantity_table(text: &mut String, figure: &Figure, quantity: Quantity, lines: &[Line<'_>]) {
    let xs = all_xs(lines);
    let labels: Vec<String> = xs.iter().map(|x| x_shown(*x, figure.x)).collect();
    let mut heads = vec![figure.x];
    heads.extend(labels.iter().map(String::as_str));
    let row = |line: &Line<'_>| {
        let name = [line.server, line.panel].join(", ");
        let mut row = vec![escape(name.trim_end_matches(", "))];
        let cell = |x: &f64| Spread::of_runs(quantity, &line.at(*x)).map(|spread| spread.shown());
        row.extend(xs.iter().map(|x| cell(x).unwrap_or("–".to_owned())));
        row
    };
    let mut rows: Vec<_> = lines.iter().map(row).collect();
    rows.retain(|row| row[1..].iter().any(|cell| cell != "–"));
    table(text, &format!("{}:\n\n", quantity.title()), &heads, &rows);
}

fn all_xs(lines: &[Line<'_>]) -> Vec<f64> {
    let mut xs: Vec<f64> = lines.iter().flat_map(Line::xs).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup_by(|a, b| is_same(*a, *b));
    xs
}

/// Writes charts for each panel: one for each quantity that has a table, and one for the p99
/// latency.
fn charts(text: &mut String, figure: &Figure, lines: &[Line<'_>]) -> Result<()> {
    let xs = all_xs(lines);
    let labels: Vec<String> = xs.iter().map(|x| x_shown(*x, figure.x)).collect();
    for panel in lines.chunk_by(|a, b| a.panel == b.panel) {
        for quantity in figure.tables.iter().chain([&Quantity::P99]) {
            let spread = |line: &Line<'_>, x: &f64| Spread::of_runs(*quantity, &line.at(*x));
            let series = panel.iter().map(|line| Series {
                name: line.server,
                values: xs.iter().map(|x| spread(line, x)).collect(),
            });
            let title = [quantity.title(), panel[0].panel].join("; ");
            let title = format!("{}, by {}", title.trim_end_matches("; "), figure.x);
            let svg = chart::draw(&title, &labels, &series.collect::<Vec<_>>())?;
            // Blank lines are removed, because in Markdown a blank line ends an HTML block.
            let svg: Vec<&str> = svg.lines().filter(|line| !line.trim().is_empty()).collect();
            let _ = writeln!(text, "<figure>\n{}\n</figure>\n", svg.join("\n"));
        }
    }
    Ok(())
}

/// Returns a row for each point at which a generator counted errors.
fn errors(results: &Results) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for figure in FIGURES {
        for line in lines(results, figure.name) {
            for x in line.xs() {
                let mut kinds = BTreeMap::new();
                for (kind, count) in line.at(x).iter().flat_map(|run| &run.load.errors) {
                    *kinds.entry(kind.as_str()).or_insert(0) += count;
                }
                let shown = kinds.iter().map(|(kind, count)| format!("{kind} {count}"));
                let shown = shown.collect::<Vec<_>>().join(", ");
                let place = place(figure.name, line.panel, x);
                rows.push(
                    [figure.name, line.server, &place, &shown]
                        .map(escape)
                        .to_vec(),
                );
            }
        }
    }
    rows.retain(|row| !row[3].is_empty());
    rows
}
