//! Formats the results as a Markdown page and as lines for the terminal.

use std::fmt::Write as _;

use super::lab::Measured;
use super::results::{Figures, Ratios, Results, marks};
use crate::bench::quotes;
use crate::markdown::{escape, owned, write_table};

const TITLE: &str = "\
# Our TCP beside the kernel's on bad networks

`cargo xtask loss` writes this page. nginx on the kernel's TCP with CUBIC and Sandstorm serve the
same files to a Linux client, which compares every byte. A forwarder between them loses, delays,
reorders, duplicates and marks by a seed, so that all servers meet the same. Goodputs are medians
over the seeds. Retransmitted bytes are a part of the fetched bytes. Where nginx retransmits less
than 0.2 %, the ratio is to 0.2 %. BBR is Sandstorm with `--congestion bbr`; its ratio is to CUBIC.
";

#[rustfmt::skip]
const HEADS: [&str; 11] = [
    "network", "bytes", "nginx", "Sandstorm", "ratio", "retransmitted: nginx", "Sandstorm", "ratio",
    "BBR", "ratio", "retransmitted",
];

/// Formats the whole page.
pub(crate) fn page(results: &Results) -> String {
    let mut text = format!("{TITLE}\n## Marks\n\n");
    let mark = |(wanted, measured, met)| {
        let verdict = if met { "met" } else { "**missed**" };
        vec![wanted, measured, verdict.to_owned()]
    };
    let rows: Vec<_> = marks(&results.cells).into_iter().map(mark).collect();
    let mut table = String::new();
    write_table(&mut table, &owned(&["mark", "measured", ""]), &rows);
    quotes::write(&mut text, quotes::LOSS, &table);
    text.push_str("\n## Measurement\n\n");
    for (name, value) in &results.setting {
        let _ = writeln!(text, "- {name}: {}", escape(value));
    }
    text.push_str("\n## Networks\n\n");
    let rows: Vec<_> = results.cells.iter().map(row).collect();
    write_table(&mut text, &owned(&HEADS), &rows);
    text
}

fn row(measured: &Measured) -> Vec<String> {
    let cell = &measured.cell;
    let [nginx, ours, bbr] = &measured.figures();
    let (ratios, gain) = (Ratios::new(nginx, ours), Ratios::new(ours, bbr));
    // Figures that miss their mark are bold.
    let shown = |ratio: f64, met: bool| {
        let bold = if met { "" } else { "**" };
        format!("{bold}{ratio:.2}{bold}")
    };
    vec![
        escape(&cell.full_name()),
        match cell.at_once * cell.in_turn {
            1 => cell.size.to_string(),
            n => format!("{n} × {}", cell.size),
        },
        goodput(nginx),
        goodput(ours),
        shown(ratios.goodput, ratios.is_fast()),
        retransmitted(nginx),
        retransmitted(ours),
        shown(ratios.retransmitted, ratios.is_sparing()),
        goodput(bbr),
        shown(gain.goodput, true),
        retransmitted(bbr),
    ]
}

fn goodput(figures: &Figures) -> String {
    let bits = match figures.goodput {
        bits if bits >= 1e9 => format!("{:.2} Gb/s", bits / 1e9),
        bits if bits >= 1e6 => format!("{:.1} Mb/s", bits / 1e6),
        bits => format!("{:.0} kb/s", bits / 1e3),
    };
    match figures.failures {
        0 => bits,
        n => format!("{bits}, {n} failed"),
    }
}

fn retransmitted(figures: &Figures) -> String {
    let part = figures.retransmitted / figures.fetched.max(1.0);
    format!("{:.2} %", part * 100.0)
}

/// Formats a cell's results for the terminal.
pub(crate) fn line(measured: &Measured) -> String {
    let figures = measured.figures();
    let mut line = format!("{:<46}", measured.cell.full_name());
    for figures in &figures {
        let _ = write!(
            line,
            " {:>10} {:>7}",
            goodput(figures),
            retransmitted(figures)
        );
    }
    for pair in figures.windows(2) {
        let _ = write!(line, " × {:.2}", Ratios::new(&pair[0], &pair[1]).goodput);
    }
    for run in &measured.runs {
        if let Some(what) = run.failure.as_ref().or(run.disturbance.as_ref()) {
            let _ = write!(line, "\n    {:?}: {what}", run.stack);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::measured;
    use super::*;

    #[test]
    fn the_page_has_every_cell_and_shows_which_marks_are_missed() {
        let fast = measured("fast", [(1.0, 10_000), (0.5, 10_000), (0.25, 0)]);
        let slow = measured("slow", [(1.0, 10_000), (2.0, 90_000), (2.0, 0)]);
        let results = Results {
            setting: vec![("name".to_owned(), "a|b".to_owned())],
            cells: vec![fast, slow],
        };
        let page = page(&results);
        for part in [
            "| rig, fast | 1000000 | 8.0 Mb/s | 16.0 Mb/s | 2.00 | 1.00 % | 1.00 % | 1.00 | \
             32.0 Mb/s | 2.00 | 0.00 % |",
            "| rig, slow | 1000000 | 8.0 Mb/s | 4.0 Mb/s | **0.50** | 1.00 % | 9.00 % | **9.00** | \
             4.0 Mb/s | 1.00 | 0.00 % |",
            "- name: a\\|b\n",
            "**missed**",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let line = line(&results.cells[1]);
        assert!(line.ends_with("× 0.50 × 1.00"), "{line}");
    }
}
