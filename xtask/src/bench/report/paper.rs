//! The paper's figures beside ours. Its machines had four cores and one to
//! six cards of 10 Gb/s, ours is one core and a veth pair: what can be
//! compared is a ratio.

use super::model::{Limit, Quantity, Ratio, Spread, axis_shown, digits, percent, runs};
use crate::bench::results::{Results, Run};

/// One figure of the paper.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Where it stands in the paper.
    pub(super) place: &'static str,
    pub(super) what: &'static str,
    pub(super) paper: &'static str,
    /// Ours; empty when it was not measured.
    pub(super) ours: String,
}

const MEMCOPY: &str = "namestorm memcopy";
const TURNAROUND: &str = "namestorm turnaround";
const KB: f64 = 1024.0;

/// All of them.
pub(super) fn rows(results: &Results) -> Vec<Row> {
    let reader = Reader {
        results,
        limit: Limit::new(results),
    };
    let row = |place, what, paper, ours: Option<String>| Row {
        place,
        what,
        paper,
        ours: ours.unwrap_or_default(),
    };
    vec![
        row(
            "Figure 4",
            "small files, to nginx (one card of 10 Gb/s)",
            "1.23 to 3.4",
            reader.to_nginx(&[KB, 4.0 * KB, 16.0 * KB]),
        ),
        row(
            "Figure 4",
            "4 KB to 256 KB, to nginx (six cards)",
            "1.1 to 10",
            reader.to_nginx(&[4.0 * KB, 16.0 * KB, 64.0 * KB, 256.0 * KB]),
        ),
        row(
            "Figure 5",
            "1,000 files of a CDN's sizes, to nginx",
            "> 2",
            reader.mix(),
        ),
        row(
            "Figure 8a",
            "wire keys, memcopy, 1 to 10,000 names, answers/s",
            "9.31 M to 6.41 M",
            reader.fall(MEMCOPY),
        ),
        row(
            "Figure 8a",
            "NSD on Linux, 1 to 10,000 names, answers/s",
            "689 k to 590 k",
            reader.fall("NSD"),
        ),
        row(
            "Figure 8a",
            "wire keys, memcopy, to NSD",
            "11 to 13",
            reader.names(MEMCOPY, "NSD"),
        ),
        row(
            "Figure 8a",
            "FQDN keys, memcopy, to NSD",
            "9 to 13",
            reader.names("namestorm memcopy fqdn", "NSD"),
        ),
        row(
            "Figure 8a",
            "FQDN keys to wire keys, memcopy",
            "0.80 to 0.90",
            reader.names("namestorm memcopy fqdn", MEMCOPY),
        ),
        row(
            "Figure 8b",
            "batches of 32 to batches of 1",
            "> 2",
            reader.batch(32.0),
        ),
        row(
            "Section 3.2",
            "1 % loss, 80 clients, to the kernel's TCP",
            "0.75 (FreeBSD)",
            reader.loss(),
        ),
    ]
}

struct Reader<'a> {
    results: &'a Results,
    limit: Limit,
}

impl Reader<'_> {
    fn ratio(&self, quantity: Quantity, ours: &[&Run], others: &[&Run]) -> Option<f64> {
        Ratio::of(quantity, ours, others, &self.limit).map(|ratio| ratio.value)
    }

    fn rate(&self, figure: &str, server: &str, x: f64) -> Option<f64> {
        let runs = runs(self.results, figure, "", server, x);
        Spread::of(runs.iter().map(|run| run.load.rate)).map(|spread| spread.median)
    }

    /// Throughput of pre-copy, else memcopy, to nginx's at these sizes, where
    /// the paper has as many clients as its servers take.
    fn to_nginx(&self, sizes: &[f64]) -> Option<String> {
        let ratios = sizes.iter().filter_map(|&size| {
            let at = |server| runs(self.results, "web-sizes", "256 connections", server, size);
            let nginx = at("nginx");
            let ours = ["sandstorm pre-copy", "sandstorm memcopy"];
            ours.into_iter()
                .find_map(|server| self.ratio(Quantity::Throughput, &at(server), &nginx))
        });
        range(ratios)
    }

    fn all_x(&self, figure: &str) -> Vec<f64> {
        let mut xs: Vec<f64> = self
            .results
            .runs
            .iter()
            .filter(|run| run.figure == figure)
            .map(|run| run.x)
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    fn to(&self, figure: &str, quantity: Quantity, ours: &str, other: &str) -> Option<String> {
        let at = |server, x| runs(self.results, figure, "", server, x);
        let xs = self.all_x(figure);
        range(
            xs.into_iter()
                .filter_map(|x| self.ratio(quantity, &at(ours, x), &at(other, x))),
        )
    }

    fn mix(&self) -> Option<String> {
        let to = |server| self.to("web-mix", Quantity::Throughput, server, "nginx");
        to("sandstorm pre-copy").or_else(|| to("sandstorm memcopy"))
    }

    fn loss(&self) -> Option<String> {
        self.to(
            "web-loss",
            Quantity::Throughput,
            "sandstorm memcopy",
            "nginx",
        )
    }

    fn names(&self, ours: &str, other: &str) -> Option<String> {
        let at = |server, x| runs(self.results, "dns-names", "", server, x);
        // As far as the paper's zones go.
        let xs = self.all_x("dns-names").into_iter().filter(|x| *x <= 1e4);
        range(xs.filter_map(|x| self.ratio(Quantity::Rate, &at(ours, x), &at(other, x))))
    }

    fn fall(&self, server: &str) -> Option<String> {
        let one = self.rate("dns-names", server, 1.0)?;
        let many = self.rate("dns-names", server, 1e4)?;
        Some(format!(
            "{} to {} ({})",
            axis_shown(round(one)),
            axis_shown(round(many)),
            percent(many / one - 1.0)
        ))
    }

    fn batch(&self, batch: f64) -> Option<String> {
        let at = |x| runs(self.results, "dns-batch", "", TURNAROUND, x);
        let ratio = self.ratio(Quantity::Rate, &at(batch), &at(1.0))?;
        Some(digits(ratio))
    }
}

/// To three digits.
fn round(value: f64) -> f64 {
    let unit = 10_f64.powf(value.abs().max(1.0).log10().floor() - 2.0);
    (value / unit).round() * unit
}

fn range(values: impl Iterator<Item = f64>) -> Option<String> {
    let spread = Spread::of(values)?;
    let (min, max) = (digits(spread.min), digits(spread.max));
    Some(if min == max {
        min
    } else {
        format!("{min} to {max}")
    })
}
