//! Summary of the results in a few rows, which README.md quotes.

use super::lines::{Line, lines, matches};
use super::numbers::{Spread, rounded, thousands};
use crate::bench::results::Quantity::{self, Cost, Memory, Rate};
use crate::bench::results::Results;

const KB: f64 = 1024.0;

/// One row of the summary: a quantity at one point of a figure.
struct Summary {
    what: &'static str,
    /// The generator, its connections and its part in the load.
    load: &'static str,
    quantity: Quantity,
    figure: &'static str,
    panel: &'static str,
    x: f64,
    /// Servers. The first is ours. A trailing star matches any ending.
    servers: &'static [&'static str],
}

macro_rules! summary {
    ($($what:literal, $load:literal, $quantity:ident, $figure:literal, $panel:literal, $x:expr, $servers:expr;)+) => {
        &[$(Summary {
            what: $what, load: $load, quantity: $quantity, figure: $figure, panel: $panel, x: $x,
            servers: $servers,
        }),+]
    };
}

#[rustfmt::skip]
const DNS: &[&str] = &["namestorm*", "reflector", "Knot DNS XDP", "NSD", "Knot DNS", "BIND"];
const WEB: &[&str] = &["sandstorm*", "nginx*", "h2o", "lighttpd"];
#[rustfmt::skip]
const SITES: &[&str] = &["sandstorm*", "nginx*", "h2o", "static-web-server", "Caddy"];

#[rustfmt::skip]
const SUMMARY: &[Summary] = summary![
    "DNS, 100 names, answers/s", "`load`, 240 queries in flight", Rate, "dns-names", "", 100.0, DNS;
    "DNS, 1,000,000 names, answers/s", "`load`, 240 queries in flight", Rate, "dns-names", "", 1e6, DNS;
    "DNS, signed answers, 100 names, answers/s", "`load`, 240 queries in flight", Rate, "dns-signed", "signed", 100.0, DNS;
    "DNS, signed answers, 1,000,000 names, answers/s", "`load`, 240 queries in flight", Rate, "dns-signed", "signed", 1e6, DNS;
    "DNS, NXDOMAIN with NSEC3, 100 names, answers/s", "`load`, 240 queries in flight", Rate, "dns-signed", "NXDOMAIN with NSEC3", 100.0, DNS;
    "DNS, NXDOMAIN with NSEC3, 1,000,000 names, answers/s", "`load`, 240 queries in flight", Rate, "dns-signed", "NXDOMAIN with NSEC3", 1e6, DNS;
    "HTTP, 1 KB, keep-alive, CPU µs per request", "`load`, 64 connections", Cost, "web-cost", "keep-alive, full rate", KB, WEB;
    "HTTP, 1 KB, new connection, CPU µs per request", "`load`, 64 connections", Cost, "web-cost", "new connection, full rate", KB, WEB;
    "HTTP, 64 KB, CPU µs per request", "`load`, 16 connections", Cost, "web-sizes", "16 connections", 64.0 * KB, WEB;
    "the same with segmentation offload", "wrk, 16 connections, offloads on", Cost, "web-offload", "16 connections", 64.0 * KB, WEB;
    "HTTP, 1 KB, requests/s, at home", "wrk, 64 connections, plain pair", Rate, "home", "HTTP, 64 connections", KB, WEB;
    "DNS, 100 names, answers/s, at home", "dnsperf, 100 queries in flight, plain pair", Rate, "home", "DNS", 100.0, DNS;
    "HTTP, 304 for 1 KB, CPU µs per request", "`load`, 64 connections", Cost, "web-forms", "304", KB, SITES;
    "HTTP, 1 of 1,000,000 files of 1 KB, CPU µs per request", "`load`, 64 connections", Cost, "web-files", "", 1e6, SITES;
    "HTTP, 64 KB from a cold disk, CPU µs per request", "`load`, 64 connections", Cost, "web-disk", "cold", 64.0 * KB, SITES;
    "HTTP, 64 KB from a cold disk, offloads on, CPU µs per request", "wrk, 64 connections", Cost, "web-disk", "cold, with offloads", 64.0 * KB, SITES;
    "HTTP, 1 MB from a cold disk, CPU µs per request", "`load`, 64 connections", Cost, "web-disk", "cold", 1024.0 * KB, SITES;
    "HTTP, 1 MB from a cold disk, offloads on, CPU µs per request", "wrk, 64 connections", Cost, "web-disk", "cold, with offloads", 1024.0 * KB, SITES;
];

/// Column heads of [`rows`].
pub(super) const HEADS: [&str; 5] = ["work", "load", "ours", "others", "measured"];

/// Returns a row for each kind of work. Each row comes from the last results that have that work.
pub(super) fn rows(all: &[Results]) -> Vec<Vec<String>> {
    let rows = (0..=SUMMARY.len()).map(|at| {
        all.iter().rev().find_map(|results| {
            let row = SUMMARY
                .get(at)
                .map_or_else(|| memory_row(results), |one| one.row(results));
            let day = results.started.split(' ').next().unwrap_or_default();
            let commit = results
                .versions
                .get("commit")
                .map_or("unknown", String::as_str);
            Some([row?, vec![format!("{day}, commit {commit}")]].concat())
        })
    });
    rows.flatten().collect()
}

impl Summary {
    fn row(&self, results: &Results) -> Option<Vec<String>> {
        let lines: Vec<Line<'_>> = lines(results, self.figure).collect();
        let median =
            |line: &Line<'_>| Some(Spread::of_runs(self.quantity, &line.at(self.x))?.median);
        let shown = |pattern: &&str| {
            let ours = lines.iter().filter(|line| matches(pattern, line.server));
            let of_panel = ours.filter(|line| line.panel == self.panel);
            let all = Spread::of(of_panel.filter_map(median))?;
            let name = pattern.trim_end_matches('*');
            Some(format!("{name} {}", all.range(rounded)))
        };
        let ours = shown(self.servers.first()?)?;
        let others: Vec<String> = self.servers[1..].iter().filter_map(shown).collect();
        Some(vec![
            self.what.to_owned(),
            self.load.to_owned(),
            ours,
            others.join("; "),
        ])
    }
}

/// Returns the row about memory at the largest number of connections.
fn memory_row(results: &Results) -> Option<Vec<String>> {
    let rows = growth(results);
    let max_connections = rows
        .iter()
        .map(|(_, connections, _)| *connections)
        .reduce(f64::max)?;
    let at_most = rows
        .iter()
        .filter(|(_, connections, _)| *connections >= max_connections);
    let shown = at_most.map(|(server, _, bytes)| format!("{server} {}", thousands(*bytes)));
    let (ours, others): (Vec<_>, Vec<_>) = shown.partition(|text| text.starts_with("sandstorm"));
    let what = format!(
        "one of {} open connections, bytes of memory",
        thousands(max_connections)
    );
    let load = "`load`, 16 of them busy".to_owned();
    Some(vec![what, load, ours.join("; "), others.join("; ")])
}

/// Returns rows with the server, its largest number of connections, and the bytes per connection.
pub(super) fn memory(results: &Results) -> Vec<Vec<String>> {
    let rows = growth(results).into_iter();
    rows.map(|(server, connections, bytes)| vec![server, thousands(connections), thousands(bytes)])
        .collect()
}

/// Returns each server's name, its largest number of connections, and the growth of memory per
/// connection in bytes. The growth is from the run with the fewest connections to the run with the
/// most, and includes the kernel's memory.
fn growth(results: &Results) -> Vec<(String, f64, f64)> {
    let growth = |line: Line<'_>| {
        let (first, last) = (*line.xs().first()?, *line.xs().last()?);
        let memory = |x| Some(Spread::of_runs(Memory, &line.at(x))?.median * 1e6);
        let bytes = (memory(last)? - memory(first)?) / (last - first);
        bytes
            .is_finite()
            .then(|| (line.server.to_owned(), last, bytes))
    };
    lines(results, "connections").filter_map(growth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::quotes;
    use crate::shell;

    #[test]
    fn all_rows_of_the_page_are_written_by_this_module() {
        let page = std::fs::read_to_string(shell::repository().join("benches/RESULTS.md")).unwrap();
        let block = quotes::block(&page, quotes::SUMMARY).unwrap();
        let rows = block.lines().filter(|line| line.starts_with("| "));
        let rows: Vec<_> = rows.skip(2).collect();
        let is_of =
            |row: &str, one: &Summary| row.starts_with(&format!("| {} | {} |", one.what, one.load));
        for row in &rows {
            let is_memory = row.contains("open connections, bytes of memory");
            assert!(
                is_memory || SUMMARY.iter().any(|one| is_of(row, one)),
                "{row}"
            );
        }
        for one in SUMMARY {
            assert!(
                rows.iter().any(|row| is_of(row, one)),
                "no row {}",
                one.what
            );
        }
    }
}
