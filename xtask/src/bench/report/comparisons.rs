//! Ratios between servers: the project's marks (goals), the paper's figures, and the comparison of
//! our load generators with others.

use std::fmt::Write as _;

use super::lines::{Line, is_same, lines, matches, place};
use super::numbers::{Spread, digits, ratio, thousands};
use crate::bench::results::Quantity::{self, Cost, Lost, P50, P99, P999, Rate, Throughput};
use crate::bench::results::{Results, Run};

/// Target value of a ratio between two servers.
#[derive(Clone, Copy, Debug)]
enum Aim {
    AtMost(f64),
    AtLeast(f64),
    /// Near 1, with this maximum distance.
    Near(f64),
    /// The paper's value, for information only, because its machines differ from ours.
    Paper(&'static str),
}
use Aim::{AtLeast, AtMost, Near, Paper};

/// Values of the figure's variable at which servers are compared.
#[derive(Clone, Copy, Debug)]
enum Xs {
    All,
    At(&'static [f64]),
    /// Our value at the first point, against the others' at the second.
    Against(f64, f64),
}
use Xs::{Against, All, At};

struct Comparison {
    what: &'static str,
    aim: Aim,
    quantity: Quantity,
    figure: &'static str,
    /// Names of the panels, separated by bars. A trailing star matches any ending.
    panel: &'static str,
    xs: Xs,
    ours: &'static str,
    /// Servers to compare with. At each point, only the best of them counts. If there are none, our value
    /// itself is the ratio.
    others: &'static [&'static str],
    /// Whether each point has a row. Otherwise only the worst point has a row. A comparison with
    /// the paper always has one row for all points.
    each: bool,
}

macro_rules! comparisons {
    ($($what:literal, $aim:expr, $quantity:ident, $figure:literal, $panel:expr, $xs:expr,
       $ours:expr, $others:expr, $each:literal;)+) => {
        &[$(Comparison {
            what: $what, aim: $aim, quantity: $quantity, figure: $figure, panel: $panel, xs: $xs,
            ours: $ours, others: $others, each: $each,
        }),+]
    };
}

const KB: f64 = 1024.0;
const TURNAROUND: &str = "namestorm turnaround";
const SANDSTORM: &str = "sandstorm memcopy";
const PRE_COPY: &str = "sandstorm pre-copy";
#[rustfmt::skip]
const NGINX: &[&str] = &["nginx", "nginx busy-poll", "nginx without tcp_nopush", "nginx aio threads"];
#[rustfmt::skip]
const SITES: &[&str] =
    &["nginx", "nginx without tcp_nopush", "nginx aio threads", "h2o", "Caddy", "static-web-server"];
/// Panels with at least 16 connections.
const MANY: &str = "16 connections|256 connections|1,024 connections";
const WEB: &[&str] = &["nginx", "h2o", "lighttpd"];
const ZONES: &[f64] = &[1.0, 10.0, 100.0, 1e3, 1e4];

#[rustfmt::skip]
const COMPARISONS: &[Comparison] = comparisons![
    "Namestorm's rate to the reflector's", AtLeast(0.85), Rate, "dns-names", "", At(&[100.0]), TURNAROUND, &["reflector"], true;
    "Namestorm's rate to the reflector's, signed answers", AtLeast(0.85), Rate, "dns-signed", "signed", All, TURNAROUND, &["reflector"], true;
    "Namestorm's rate to the reflector's, proofs", AtLeast(0.75), Rate, "dns-signed", "NXDOMAIN with NSEC", All, TURNAROUND, &["reflector"], true;
    "Namestorm's rate to the reflector's, proofs", AtLeast(0.6), Rate, "dns-signed", "NXDOMAIN with NSEC3", All, TURNAROUND, &["reflector"], true;
    "Namestorm's rate to the reflector's, proofs", AtLeast(0.75), Rate, "dns-signed", "wildcard*", All, TURNAROUND, &["reflector"], true;
    "Namestorm's rate to the reflector's, chains", AtLeast(0.75), Rate, "dns-signed", "two DNAMEs", All, TURNAROUND, &["reflector"], true;
    "Namestorm's rate to Knot DNS XDP's", AtLeast(1.5), Rate, "dns-signed", "*", All, TURNAROUND, &["Knot DNS XDP"], true;
    "Namestorm's rate to NSD's", AtLeast(3.0), Rate, "dns-signed", "*", All, TURNAROUND, &["NSD"], true;
    "Namestorm's cost to Knot DNS XDP's", AtMost(0.8), Cost, "dns-cost", "*", At(&[100.0]), TURNAROUND, &["Knot DNS XDP"], true;
    "Namestorm's cost to Knot DNS XDP's, full rate", AtMost(0.8), Cost, "dns-names", "", At(&[100.0]), TURNAROUND, &["Knot DNS XDP"], true;
    "Namestorm's cost to NSD's", AtMost(0.25), Cost, "dns-cost", "*", At(&[100.0]), TURNAROUND, &["NSD"], true;
    "Namestorm's cost to NSD's, full rate", AtMost(0.25), Cost, "dns-names", "", At(&[100.0]), TURNAROUND, &["NSD"], true;
    "Namestorm's cost, 1,000,000 names to 100", AtMost(1.15), Cost, "dns-cost", "*", Against(1e6, 100.0), TURNAROUND, &[TURNAROUND], true;
    "Namestorm's cost, 1,000,000 names to 100, full rate", AtMost(1.1), Cost, "dns-names", "", Against(1e6, 100.0), TURNAROUND, &[TURNAROUND], true;
    "Namestorm's rate, 100,000 zones to one", AtLeast(0.9), Rate, "dns-zones", "", Against(1e5, 1.0), TURNAROUND, &[TURNAROUND], true;
    "Namestorm's cost to Knot DNS XDP's, low rates", AtMost(0.8), Cost, "dns-rates", "", All, TURNAROUND, &["Knot DNS XDP"], true;
    "Namestorm's cost to NSD's, low rates", AtMost(0.6), Cost, "dns-rates", "", All, TURNAROUND, &["NSD"], true;
    "Sandstorm's cost to the best other server's, low rates", AtMost(0.6), Cost, "web-rates", "*", All, SANDSTORM, WEB, true;
    "Sandstorm's p50 to the best other server's, low rates", AtMost(1.0), P50, "web-rates", "*", All, SANDSTORM, WEB, true;
    "Sandstorm's p99 to the best other server's, low rates", AtMost(1.0), P99, "web-rates", "*", All, SANDSTORM, WEB, true;
    "Sandstorm's rate to nginx's, new connections", AtLeast(1.3), Rate, "web-new", "threads that receive", All, SANDSTORM, NGINX, true;
    "Sandstorm's rate to nginx's, new connections", AtLeast(1.7), Rate, "web-new", "no such threads", All, SANDSTORM, NGINX, true;
    "Sandstorm's cost to nginx's, new connections", AtMost(0.6), Cost, "web-new", "threads that receive", All, SANDSTORM, NGINX, true;
    "Sandstorm's p99 to nginx's, no queueing discipline", AtMost(1.5), P99, "web-bursts", "*", All, SANDSTORM, NGINX, true;
    "Sandstorm's p99.9 to nginx's, no queueing discipline", AtMost(1.0), P999, "web-bursts", "*", All, SANDSTORM, NGINX, true;
    "Sandstorm's lost frames in %, no queueing discipline", AtMost(0.1), Lost, "web-bursts", "*", All, SANDSTORM, &[], true;
    "Sandstorm's cost to h2o's, 64 KB without offloads", AtMost(1.0), Cost, "web-sizes", "16 connections", At(&[64.0 * KB]), SANDSTORM, &["h2o"], true;
    "Sandstorm's cost to nginx's", AtMost(1.0 / 6.0), Cost, "web-cost", "keep-alive*", At(&[KB]), SANDSTORM, NGINX, true;
    "Sandstorm's cost to nginx's", AtMost(0.2), Cost, "web-cost", "new connection*", At(&[KB]), SANDSTORM, NGINX, true;
    "Sandstorm's cost to nginx's, worst size up to 64 KB", AtMost(1.0), Cost, "web-cost", "keep-alive", All, SANDSTORM, NGINX, false;
    "Sandstorm's cost to nginx's, worst size up to 64 KB", AtMost(1.0), Cost, "web-cost", "new connection", All, SANDSTORM, NGINX, false;
    "Sandstorm's cost to nginx's with offloads, 16 KB, worst point", AtMost(0.5), Cost, "web-offload", "*", At(&[16.0 * KB]), SANDSTORM, NGINX, false;
    "Sandstorm's cost to nginx's with offloads, 64 KB, worst point from 16 connections", AtMost(1.0 / 3.0), Cost, "web-offload", MANY, At(&[64.0 * KB]), SANDSTORM, NGINX, false;
    "Sandstorm's cost to nginx's with offloads, 1 MB, worst point from 16 connections", AtMost(1.0 / 3.0), Cost, "web-offload", MANY, At(&[1024.0 * KB]), SANDSTORM, NGINX, false;
    "Sandstorm's throughput to nginx's with offloads, worst point", AtLeast(1.0), Throughput, "web-offload", "*", All, SANDSTORM, NGINX, false;
    "Sandstorm's cost to nginx's, 304, parts and compressed forms", AtMost(1.0 / 3.0), Cost, "web-forms", "*", All, SANDSTORM, NGINX, true;
    "Sandstorm's cost to nginx's, many files", AtMost(1.0 / 3.0), Cost, "web-files", "", All, SANDSTORM, NGINX, true;
    "Sandstorm's cost to the best other server's, 304, parts and compressed forms", AtMost(1.0), Cost, "web-forms", "*", All, SANDSTORM, SITES, true;
    "Sandstorm's cost to the best other server's, many files", AtMost(1.0), Cost, "web-files", "", All, SANDSTORM, SITES, true;
    "Sandstorm's cost to the best other server's, from the disk", AtMost(0.67), Cost, "web-disk", "*", All, SANDSTORM, SITES, true;
    "Our generator's rate to dnsperf's, worst point", Near(0.05), Rate, "agreement", "DNS*", All, "load", &["dnsperf"], false;
    "Our generator's rate to kxdpgun's, worst point", Near(0.05), Rate, "agreement", "DNS*", All, "load", &["kxdpgun"], false;
    "Our generator's rate to wrk's", Near(0.05), Rate, "agreement", "HTTP*", All, "load", &["wrk"], true;
    "Figure 4: throughput to nginx's, small files", Paper("1.23 to 3.4"), Throughput, "web-sizes", "256 connections", At(&[KB, 4.0 * KB, 16.0 * KB]), PRE_COPY, NGINX, false;
    "Figure 4: throughput to nginx's, 4 to 256 KB", Paper("1.1 to 10"), Throughput, "web-sizes", "256 connections", At(&[4.0 * KB, 16.0 * KB, 64.0 * KB, 256.0 * KB]), PRE_COPY, NGINX, false;
    "Figure 5: throughput to nginx's, sizes of a CDN", Paper("> 2"), Throughput, "web-mix", "", All, PRE_COPY, NGINX, false;
    "Figure 8a: rate to NSD's, wire keys", Paper("11 to 13"), Rate, "dns-names", "", At(ZONES), "namestorm memcopy", &["NSD"], false;
    "Figure 8a: rate to NSD's, FQDN keys", Paper("9 to 13"), Rate, "dns-names", "", At(ZONES), "namestorm memcopy fqdn", &["NSD"], false;
    "Figure 8a: rate, FQDN keys to wire keys", Paper("0.80 to 0.90"), Rate, "dns-names", "", At(ZONES), "namestorm memcopy fqdn", &["namestorm memcopy"], false;
    "Figure 8b: rate, batches of 32 to 1", Paper("> 2"), Rate, "dns-batch", "", Against(32.0, 1.0), TURNAROUND, &[TURNAROUND], false;
    "Section 3.2: throughput to the kernel's TCP, 1 % loss", Paper("0.75"), Throughput, "web-loss", "", All, SANDSTORM, NGINX, false;
];

/// Column heads of [`rows`].
pub(super) const HEADS: [&str; 6] = ["comparison", "at", "wanted", "ratio", "", "medians"];

/// Returns the rows of all comparisons whose figures were measured.
pub(super) fn rows(results: &Results) -> Vec<Vec<String>> {
    let measured = |comparison: &&Comparison| {
        results
            .runs
            .iter()
            .any(|run| run.figure == comparison.figure)
    };
    COMPARISONS
        .iter()
        .filter(measured)
        .flat_map(|comparison| comparison.rows(results))
        .collect()
}

/// A ratio at one point of a figure, and the runs behind it.
struct Point<'a> {
    place: String,
    ratio: Spread,
    ours: Vec<&'a Run>,
    others: Vec<&'a Run>,
}

impl Comparison {
    fn rows(&self, results: &Results) -> Vec<Vec<String>> {
        let mut points = self.points(results);
        let wanted = match self.aim {
            AtMost(most) => format!("≤ {}", digits(most)),
            AtLeast(least) => format!("≥ {}", digits(least)),
            Near(part) => format!("1 ± {}", digits(part)),
            Paper(value) => format!("paper: {value}"),
        };
        let row = |place: &str, ratio: &str, verdict: &str, note: &str| {
            [self.what, place, &wanted, ratio, verdict, note]
                .map(str::to_owned)
                .to_vec()
        };
        if points.is_empty() {
            return vec![row("", "–", "not measured", "")];
        }
        if let Paper(_) = self.aim {
            let all = Spread::of(points.iter().map(|point| point.ratio.median));
            return vec![row(
                "",
                &all.map_or(String::new(), |all| all.range(digits)),
                "",
                "",
            )];
        }
        if !self.each {
            points.sort_by(|a, b| self.distance(&b.ratio).total_cmp(&self.distance(&a.ratio)));
            points.truncate(1);
        }
        let shown = |point: &Point<'_>| {
            let verdict = if self.is_met(&point.ratio) {
                "met"
            } else {
                "**missed**"
            };
            row(
                &point.place,
                &point.ratio.shown(),
                verdict,
                &self.note(point),
            )
        };
        points.iter().map(shown).collect()
    }

    /// Returns how bad a ratio is; larger is worse. Only values of one comparison can be compared.
    fn distance(&self, ratio: &Spread) -> f64 {
        match self.aim {
            AtMost(_) | Paper(_) => ratio.median,
            AtLeast(_) => -ratio.median,
            Near(_) => (ratio.median - 1.0).abs(),
        }
    }

    fn is_met(&self, ratio: &Spread) -> bool {
        match self.aim {
            AtMost(most) => ratio.median <= most,
            AtLeast(least) => ratio.median >= least,
            Near(part) => (ratio.median - 1.0).abs() <= part,
            Paper(_) => true,
        }
    }

    fn points<'a>(&self, results: &'a Results) -> Vec<Point<'a>> {
        let lines: Vec<Line<'a>> = lines(results, self.figure).collect();
        let is_ours =
            |line: &&Line<'_>| line.server == self.ours && matches(self.panel, line.panel);
        let mut points = Vec::new();
        for line in lines.iter().filter(is_ours) {
            for x in line.xs() {
                let base = match self.xs {
                    All => x,
                    At(xs) if xs.contains(&x) => x,
                    Against(at, base) if is_same(at, x) => base,
                    _ => continue,
                };
                let ours = line.at(x);
                let place = place(self.figure, line.panel, x);
                if self.others.is_empty() {
                    let value = Spread::of_runs(self.quantity, &ours);
                    points.extend(value.map(|ratio| Point {
                        place,
                        ratio,
                        ours,
                        others: Vec::new(),
                    }));
                    continue;
                }
                let peers = lines.iter().filter(|other| {
                    other.panel == line.panel && self.others.contains(&other.server)
                });
                let ratios = peers.filter_map(|peer| {
                    let others = peer.at(base);
                    Some((ratio(self.quantity, &ours, &others)?, others))
                });
                let best =
                    ratios.max_by(|a, b| self.distance(&a.0).total_cmp(&self.distance(&b.0)));
                points.extend(best.map(|(ratio, others)| Point {
                    place,
                    ratio,
                    ours,
                    others,
                }));
            }
        }
        points
    }

    /// Returns the two medians of a ratio, and any reasons to doubt the ratio.
    fn note(&self, point: &Point<'_>) -> String {
        /// Minimum fraction of the requested rate that a valid run reaches.
        const REACHED: f64 = 0.98;
        /// Utilization above which the client's core counts as full.
        const FULL: f64 = 0.97;
        if point.others.is_empty() {
            return String::new();
        }
        let median = |quantity, runs| Spread::of_runs(quantity, runs).map_or(0.0, |s| s.median);
        let of = |runs| digits(median(self.quantity, runs));
        let mut note = format!("{} to {}", of(&point.ours), of(&point.others));
        if self.others.len() > 1 {
            let _ = write!(note, " of {}", point.others[0].server);
        }
        let both = [&point.ours, &point.others];
        for runs in both {
            let (name, asked) = (&runs[0].server, runs[0].load.asked_rate);
            let rate = median(Rate, runs);
            if rate < asked * REACHED {
                let (rate, asked) = (thousands(rate), thousands(asked));
                let _ = write!(note, "; {name} reached {rate}/s of {asked}/s");
            }
        }
        let is_full = both.map(|runs| median(Quantity::ClientBusy, runs) > FULL);
        if self.quantity != Cost && is_full.contains(&true) {
            note.push_str("; the client's core was full");
        }
        note
    }
}
