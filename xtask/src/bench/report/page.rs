//! The page: one file that needs nothing else.

use std::fmt::Write as _;

use super::marks::{Mark, marks};
use super::model::{Figure, Limit, Noise, Quantity, figures, noise, percent};
use super::paper;
use super::table::Table;
use super::{extras, sections};
use crate::bench::results::Results;
use crate::shell::Result;

/// Text as it stands in HTML, in an attribute too.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The whole page.
pub(super) fn page(results: &Results) -> Result<String> {
    let limit = Limit::new(results);
    let figures = figures(results);
    let mut html = String::with_capacity(1 << 20);
    html.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.push_str("<title>Sandstorm and Namestorm beside their peers</title>\n<style>\n");
    html.push_str(include_str!("page.css"));
    html.push_str("</style>\n</head>\n<body>\n");
    head(&mut html, results);
    contents(&mut html, results, &figures);
    marks_table(&mut html, &marks(results));
    paper_table(&mut html, results);
    missing(&mut html, results);
    errors(&mut html, &figures);
    setting(&mut html, results, &noise(results, &figures, &limit));
    for figure in &figures {
        sections::figure(&mut html, figure, &limit)?;
    }
    extras::time_line(&mut html, &results.time_line)?;
    extras::batches(&mut html, &figures);
    extras::instructions(&mut html, results);
    html.push_str("</body>\n</html>\n");
    Ok(html)
}

fn head(html: &mut String, results: &Results) {
    html.push_str("<h1>Sandstorm and Namestorm beside their peers and the limit</h1>\n");
    let command = if results.command.is_empty() {
        String::new()
    } else {
        format!(", <code>cargo xtask {}</code>", escape(&results.command))
    };
    let _ = writeln!(
        html,
        "<p class=\"soft\">{}{command}, {} runs. Medians of interleaved repeats with least and \
         greatest; a comparison is a ratio inside this run.</p>",
        escape(&results.started),
        results.runs.len()
    );
}

fn contents(html: &mut String, results: &Results, figures: &[Figure<'_>]) {
    html.push_str("<nav>");
    let mut entry = |id: &str, title: &str| {
        let _ = write!(html, "<a href=\"#{}\">{}</a> ", escape(id), escape(title));
    };
    entry("marks", "Marks");
    entry("paper", "The paper's figures");
    if !results.missing.is_empty() {
        entry("missing", "Missing");
    }
    if !sections::with_errors(figures).is_empty() {
        entry("errors", "Errors");
    }
    entry("setting", "Machine and noise");
    for figure in figures {
        let title = figure.title.split(':').next().unwrap_or(figure.title);
        entry(figure.name, title);
    }
    if !results.time_line.is_empty() {
        entry("time-line", "Figure 2");
    }
    entry("batches", "Batches");
    entry("instructions", "Instructions");
    html.push_str("</nav>\n");
}

fn marks_table(html: &mut String, marks: &[Mark]) {
    html.push_str(
        "<h2 id=\"marks\">Marks</h2>\n<p>Offloads off, one server core. A ratio of medians, and \
         in brackets the least and greatest of the repeats, each beside its neighbour in time. \
         Costs are CPU µs a request on the server's core, the kernel's work included, at the \
         same rate for both; nginx is the cheaper of its tunings.</p>\n",
    );
    let mut table = Table::new(&["mark", "wanted", "measured", "", "medians"]);
    table.text_columns(&[0, 4]);
    for mark in marks {
        let measured = mark.measured.map_or("–".into(), |ratio| ratio.shown());
        let verdict = match mark.met() {
            Some(true) => "<span class=\"met\">✓ met</span>".to_owned(),
            Some(false) => "<span class=\"missed\">✗ missed</span>".to_owned(),
            None => format!("<span class=\"soft\">{}</span>", mark.verdict()),
        };
        table.row(vec![
            escape(&mark.what),
            mark.wanted.shown(),
            measured,
            verdict,
            escape(&mark.note),
        ]);
    }
    table.write(html);
}

fn paper_table(html: &mut String, results: &Results) {
    html.push_str(
        "<h2 id=\"paper\">The paper's figures beside ours</h2>\n<p>The paper: four cores of a \
         Xeon E5-2643, cards of 10 Gb/s, netmap. Here: one core, a veth pair, AF_XDP. Ratios \
         compare; absolute figures only show the distance.</p>\n",
    );
    let mut table = Table::new(&["", "what", "paper", "here"]);
    table.text_columns(&[0, 1]);
    for row in paper::rows(results) {
        let ours = if row.ours.is_empty() {
            "<span class=\"soft\">not measured</span>".to_owned()
        } else {
            escape(&row.ours)
        };
        table.row(vec![
            row.place.to_owned(),
            escape(row.what),
            escape(row.paper),
            ours,
        ]);
    }
    table.write(html);
}

fn missing(html: &mut String, results: &Results) {
    if results.missing.is_empty() {
        return;
    }
    html.push_str("<h2 id=\"missing\">Missing</h2>\n");
    for one in &results.missing {
        let _ = writeln!(
            html,
            "<p><b>{}</b>: {}</p>",
            escape(&one.what),
            escape(&one.why)
        );
        if !one.log.is_empty() {
            let _ = writeln!(html, "<pre>{}</pre>", escape(&one.log));
        }
    }
}

fn errors(html: &mut String, figures: &[Figure<'_>]) {
    let rows = sections::with_errors(figures);
    if rows.is_empty() {
        return;
    }
    html.push_str(
        "<h2 id=\"errors\">Errors</h2>\n<p>Replies that did not come or were wrong, in all \
         repeats together. They count in no rate.</p>\n",
    );
    let mut table = Table::new(&["figure", "run", "errors"]);
    table.text_columns(&[0, 1, 2]);
    for row in rows {
        table.row(row.iter().map(|cell| escape(cell)).collect());
    }
    table.write(html);
}

fn setting(html: &mut String, results: &Results, noise: &Noise) {
    html.push_str("<h2 id=\"setting\">Machine and noise</h2>\n<dl>\n");
    let versions = results
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect::<Vec<_>>()
        .join(", ");
    let own = [("versions".to_owned(), versions)];
    for (name, value) in results.machine.iter().chain(&own) {
        if !value.is_empty() {
            let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
        }
    }
    for (name, value) in noise_lines(noise) {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{value}</dd>");
    }
    html.push_str("</dl>\n");
    for sentence in &results.cores {
        let _ = writeln!(html, "<p>{}</p>", escape(sentence));
    }
}

/// What the noise was, for people.
pub(super) fn noise_lines(noise: &Noise) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let spread = |[median, most]: [f64; 2]| {
        format!(
            "{} of the median from least to greatest repeat in half of the runs, {} in nine of ten",
            percent(median),
            percent(most)
        )
    };
    if let Some(rate) = noise.rate {
        lines.push(("spread of rates", spread(rate)));
    }
    if let Some(cost) = noise.cost {
        lines.push(("spread of costs", spread(cost)));
    }
    if let Some([median, most]) = noise.stolen {
        let text = format!(
            "{} of the server core's time in half of the runs, {} at most",
            percent(median),
            percent(most)
        );
        lines.push(("taken by the host", text));
    }
    if let Some(full) = noise.client_full.filter(|full| *full > 0.0) {
        let text = format!(
            "in {} of the runs: their rate is a joint one of server and client, and no more than \
             a lower bound of the server's",
            percent(full)
        );
        lines.push(("client's core full", text));
    }
    lines
}

/// What a figure's charts show.
pub(super) fn charted(figure: &str) -> &'static [Quantity] {
    use Quantity::{
        CallsPerRequest, CallsPerSecond, Core, Fraction, Memory, P50, P99, Rate, SlowConnections,
        Throughput,
    };
    match figure {
        "limit" => &[Rate, Throughput, Core, P99],
        "dns-cost" | "web-cost" => &[Core, CallsPerRequest, P50, P99],
        "dns-names" | "dns-batch" => &[Rate, Fraction, Core, P99],
        "web-sizes" => &[Throughput, Rate, Fraction, Core, CallsPerSecond, P99],
        "web-offload" => &[Throughput, Rate, Core, P99],
        "web-mix" => &[Throughput, Fraction, Core, P99],
        "web-loss" => &[Throughput, P99, SlowConnections],
        "connections" => &[Rate, Memory, P99],
        _ => &[Rate, Core, P50, P99],
    }
}
