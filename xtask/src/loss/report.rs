//! The results as Markdown.

use std::fmt::Write as _;

use super::results::{
    Figures, GOODPUT_MARK, Measured, REPEATED_MARK, Results, Summary, goodput_ratio, repeated_ratio,
};
use super::rig::Stack;
use crate::markdown::{escape, owned, write_table};

/// The whole page, without a heading of its own.
pub(crate) fn page(results: &Results) -> String {
    let mut text = String::new();
    setting(&mut text, results);
    let summary = Summary::of(results);
    marks(&mut text, &summary);
    let mut groups: Vec<&str> = Vec::new();
    for measured in &results.cells {
        if !groups.contains(&measured.cell.group.as_str()) {
            groups.push(&measured.cell.group);
        }
    }
    for group in groups {
        let of_group = |measured: &&Measured| measured.cell.group == group;
        table(&mut text, group, results.cells.iter().filter(of_group));
    }
    if !results.missing.is_empty() {
        text.push_str("### Missing\n\n");
        for (what, why) in &results.missing {
            let _ = writeln!(text, "- {}: {}", escape(what), escape(why));
        }
    }
    text
}

fn setting(text: &mut String, results: &Results) {
    let _ = writeln!(
        text,
        "{}, `cargo xtask {}`.\n",
        escape(&results.started),
        results.command.replace('`', "")
    );
    for (name, value) in &results.machine {
        let _ = writeln!(text, "- {}: {}", escape(name), escape(value));
    }
    let versions = results.versions.iter();
    let versions: Vec<String> = versions
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let _ = writeln!(text, "- versions: {}", escape(&versions.join(", ")));
    for (stack, bits) in &results.limit {
        let _ = writeln!(
            text,
            "- the rig's limit with {}: {}",
            stack.name(),
            bits_shown(*bits)
        );
    }
    text.push('\n');
}

fn marks(text: &mut String, summary: &Summary) {
    text.push_str("### Marks\n\n");
    let rows: Vec<Vec<String>> = summary
        .marks()
        .into_iter()
        .map(|(wanted, measured, met)| {
            let verdict = if met { "met" } else { "**missed**" };
            vec![wanted, escape(&measured), verdict.to_owned()]
        })
        .collect();
    write_table(text, &owned(&["mark", "measured", ""]), &rows);
    if summary.noisy_runs > 0 {
        let _ = writeln!(
            text,
            "{} runs were disturbed by other work on the machine, also when they were repeated.\n",
            summary.noisy_runs
        );
    }
}

const HEADS: [&str; 12] = [
    "network",
    "bytes",
    "kernel",
    "sandstorm",
    "ratio",
    "repeated: kernel",
    "sandstorm",
    "ratio",
    "needless: kernel / sandstorm",
    "first byte, ms",
    "last byte, ms",
    "silences (longest, ms)",
];

fn table<'a>(text: &mut String, group: &str, cells: impl Iterator<Item = &'a Measured>) {
    let _ = writeln!(text, "### {}\n", escape(group));
    let rows: Vec<Vec<String>> = cells.filter_map(row).collect();
    write_table(text, &owned(&HEADS), &rows);
}

fn row(measured: &Measured) -> Option<Vec<String>> {
    let both = measured.both()?;
    let [kernel, ours] = &both;
    let cell = &measured.cell;
    let ratio = goodput_ratio(&both);
    let repeated = repeated_ratio(&both);
    let pair = |shown: fn(&Figures) -> String| format!("{} / {}", shown(kernel), shown(ours));
    let part = |figures: &Figures, bytes: u64| {
        let fetched = figures.sent.saturating_sub(figures.repeated).max(1);
        format!("{:.2} %", bytes as f64 / fetched as f64 * 100.0)
    };
    let goodput = |figures: &Figures| {
        let failed = match figures.failures {
            0 => String::new(),
            n => format!(", {n} failed"),
        };
        format!("{}{failed}", bits_shown(figures.goodput))
    };
    let fetches = cell.at_once * cell.in_turn;
    let size = if fetches == 1 {
        cell.size.to_string()
    } else {
        format!("{fetches} × {}", cell.size)
    };
    let marked = |ratio: f64, met: bool| {
        if met {
            format!("{ratio:.2}")
        } else {
            format!("**{ratio:.2}**")
        }
    };
    Some(vec![
        escape(&cell.name),
        size,
        goodput(kernel),
        goodput(ours),
        ratio.map_or("–".into(), |ratio| marked(ratio, ratio >= GOODPUT_MARK)),
        part(kernel, kernel.repeated),
        part(ours, ours.repeated),
        marked(repeated, repeated <= REPEATED_MARK),
        format!(
            "{} / {}",
            part(kernel, kernel.needless),
            part(ours, ours.needless)
        ),
        pair(|figures| format!("{:.1}", figures.first_ms)),
        pair(|figures| format!("{:.0}", figures.last_ms)),
        pair(|figures| format!("{} ({:.0})", figures.silences, figures.longest_ms)),
    ])
}

/// One cell in a line, for the terminal.
pub(crate) fn line(measured: &Measured) -> String {
    let name = format!("{}, {}", measured.cell.group, measured.cell.name);
    let Some(both) = measured.both() else {
        return format!("{name}: not measured");
    };
    let [kernel, ours] = &both;
    let mut line = format!(
        "{name:<44} {:>12} {:>12}  × {:<5} repeated {:>5.2} {:>5.2} %  first {:>6.1} {:>6.1} ms",
        bits_shown(kernel.goodput),
        bits_shown(ours.goodput),
        goodput_ratio(&both).map_or("–".into(), |ratio| format!("{ratio:.2}")),
        kernel.repeated as f64 / kernel.sent.max(1) as f64 * 100.0,
        ours.repeated as f64 / ours.sent.max(1) as f64 * 100.0,
        kernel.first_ms,
        ours.first_ms,
    );
    let silences = [kernel.silences, ours.silences];
    if silences != [0, 0] {
        let _ = write!(line, "  silences {} {}", silences[0], silences[1]);
    }
    let noisy = measured.noisy_runs();
    if noisy > 0 {
        let _ = write!(line, "  ({noisy} noisy)");
    }
    for stack in Stack::BOTH {
        let failures = measured.runs.iter().filter(|run| run.stack == stack);
        for failure in failures.flat_map(|run| &run.failures).take(1) {
            let _ = write!(line, "\n    {}: {failure}", stack.name());
        }
    }
    line
}

fn bits_shown(bits: f64) -> String {
    if bits >= 1e9 {
        format!("{:.2} Gb/s", bits / 1e9)
    } else if bits >= 1e6 {
        format!("{:.1} Mb/s", bits / 1e6)
    } else {
        format!("{:.0} kb/s", bits / 1e3)
    }
}
