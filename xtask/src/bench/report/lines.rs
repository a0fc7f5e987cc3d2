//! Groups runs into the lines of the report. A line has a panel and a server.

use super::numbers::x_shown;
use crate::bench::plan::FIGURES;
use crate::bench::results::{Results, Run};

/// Runs of a figure that share a panel and a server.
pub(super) struct Line<'a> {
    pub(super) panel: &'a str,
    pub(super) server: &'a str,
    runs: Vec<&'a Run>,
}

impl<'a> Line<'a> {
    pub(super) fn at(&self, x: f64) -> Vec<&'a Run> {
        self.runs
            .iter()
            .copied()
            .filter(|run| is_same(run.x, x))
            .collect()
    }

    pub(super) fn xs(&self) -> Vec<f64> {
        let mut xs: Vec<f64> = self.runs.iter().map(|run| run.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }
}

/// Returns the lines of a figure, with panels and servers in the order in which they ran.
pub(super) fn lines<'a>(
    results: &'a Results,
    figure: &str,
) -> impl Iterator<Item = Line<'a>> + use<'a> {
    let mut panels: Vec<&str> = Vec::new();
    let mut lines: Vec<Line<'a>> = Vec::new();
    for run in results.runs.iter().filter(|run| run.figure == figure) {
        if !panels.contains(&run.panel.as_str()) {
            panels.push(&run.panel);
        }
        match lines
            .iter_mut()
            .find(|line| line.panel == run.panel && line.server == run.server)
        {
            Some(line) => line.runs.push(run),
            None => lines.push(Line {
                panel: &run.panel,
                server: &run.server,
                runs: vec![run],
            }),
        }
    }
    lines.sort_by_key(|line| panels.iter().position(|panel| *panel == line.panel));
    lines.into_iter()
}

/// Describes a point of a figure by its panel and its value of the variable.
pub(super) fn place(figure: &str, panel: &str, x: f64) -> String {
    let label = FIGURES
        .iter()
        .find(|one| one.name == figure)
        .map_or("", |one| one.x);
    let unit = if label.contains("body") { "" } else { label };
    let x = format!("{} {unit}", x_shown(x, label));
    [panel, x.trim()]
        .join(", ")
        .trim_start_matches(", ")
        .to_owned()
}

/// Returns true if two values of a variable are equal.
pub(super) fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// Returns true if `name` equals one of the alternatives in `pattern`, which bars separate. If an
/// alternative ends in a star, `name` must only begin with the rest.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    pattern.split('|').any(|one| match one.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == one,
    })
}
