//! The parts of the page that are no figures of runs: the time line, the sizes
//! of batches, and the count of instructions.

use std::fmt::Write as _;

use super::charts;
use super::model::{Figure, percent, thousands};
use super::page::escape;
use super::sections::name;
use super::table::Table;
use crate::bench::results::{Batches, Results, TimeLinePoint};
use crate::shell::Result;

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

/// The class of [`Batches`] that has all larger ones too: no server of ours
/// receives more than 256 frames at a time, and more than that in one flush
/// are not told apart.
const OPEN_CLASS: usize = 8;

fn class_label(class: usize) -> String {
    let least = 1_u64 << class;
    match class {
        0 => "1".into(),
        OPEN_CLASS.. => format!("≥ {least}"),
        _ => format!("{least}–{}", 2 * least - 1),
    }
}

/// How large batches were: a row for each server and point, received and
/// sent.
pub(super) fn batches(html: &mut String, figures: &[Figure<'_>]) {
    let mut rows = Vec::new();
    for figure in figures {
        for panel in &figure.panels {
            for (line, cell) in panel.cells() {
                let all = added(cell.runs.iter().filter_map(|run| run.batches.as_ref()));
                let Some(all) = all else { continue };
                rows.push((figure.title, name(line, panel, cell, figure), all));
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
        let _ = write!(html, "<th>{}</th>", class_label(class));
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
