//! What the matrix has measured, and what follows from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::Cell;
use super::fetch::Times;
use super::forwarder::{Paths, Seen};
use super::rig::Stack;

/// Goodput as a part of the kernel's, at least.
pub(crate) const GOODPUT_MARK: f64 = 0.95;
/// Repeated bytes as a multiple of the kernel's, at most.
pub(crate) const REPEATED_MARK: f64 = 1.1;
/// Where the kernel repeats less than this part of what is fetched, ours is
/// compared with this part: a ratio to next to nothing says nothing.
const REPEATED_FLOOR: f64 = 0.002;

/// Everything that one command has measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// When it began, as `2026-11-21 12:00 UTC`.
    pub(crate) started: String,
    /// How it was called, as typed after `cargo xtask`.
    pub(crate) command: String,
    /// The machine: pairs of a name and a value.
    pub(crate) machine: Vec<(String, String)>,
    pub(crate) versions: BTreeMap<String, String>,
    /// Goodput without any harm or limit, in bits per second, by stack.
    pub(crate) limit: BTreeMap<Stack, f64>,
    /// The run that this comes from.
    pub(crate) rig: Option<Measured>,
    pub(crate) cells: Vec<Measured>,
    /// What could not be measured, and why.
    pub(crate) missing: Vec<(String, String)>,
}

/// A cell with all its runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    pub(crate) runs: Vec<Run>,
}

/// One server behind one network, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) stack: Stack,
    pub(crate) paths: Paths,
    /// From the first connection that is asked for to the last byte, in
    /// seconds.
    pub(crate) seconds: f64,
    /// Of every fetch that came to its end.
    pub(crate) fetches: Vec<Times>,
    /// What went wrong with others.
    pub(crate) failures: Vec<String>,
    pub(crate) seen: Seen,
    /// What other work on the machine did to the run, if anything.
    pub(crate) noise: Option<String>,
}

impl Run {
    /// Bits of bodies per second; nothing when not all came to their end.
    fn goodput(&self, cell: &Cell) -> f64 {
        let bytes = self.fetches.len() * cell.size;
        if self.failures.is_empty() && self.seconds > 0.0 {
            bytes as f64 * 8.0 / self.seconds
        } else {
            0.0
        }
    }
}

/// One stack's figures in one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Bits per second, the median of the runs.
    pub(crate) goodput: f64,
    /// Repeated bytes of all runs.
    pub(crate) repeated: u64,
    /// Of these, bytes that had not been lost.
    pub(crate) needless: u64,
    /// Bytes of payload sent in all runs.
    pub(crate) sent: u64,
    /// Silences of all runs.
    pub(crate) silences: u64,
    /// The longest of them, in ms.
    pub(crate) longest_ms: f64,
    /// Time to the first and to the last byte, medians of all fetches, in ms.
    pub(crate) first_ms: f64,
    pub(crate) last_ms: f64,
    pub(crate) failures: usize,
}

impl Measured {
    pub(crate) fn figures(&self, stack: Stack) -> Option<Figures> {
        let runs = || self.runs.iter().filter(|run| run.stack == stack);
        let goodput = median(runs().map(|run| run.goodput(&self.cell)))?;
        let down = || runs().map(|run| &run.seen.down.sent);
        let fetches = || runs().flat_map(|run| &run.fetches);
        let longest = down().map(|sent| sent.longest_silence_us).max();
        Some(Figures {
            goodput,
            repeated: down().map(|sent| sent.repeated_bytes).sum(),
            needless: down().map(|sent| sent.needless_bytes).sum(),
            sent: down().map(|sent| sent.bytes).sum(),
            silences: down().map(|sent| sent.silences).sum(),
            longest_ms: longest.unwrap_or(0) as f64 / 1_000.0,
            first_ms: median(fetches().map(|times| times.first as f64 / 1_000.0)).unwrap_or(0.0),
            last_ms: median(fetches().map(|times| times.last as f64 / 1_000.0)).unwrap_or(0.0),
            failures: runs().map(|run| run.failures.len()).sum(),
        })
    }

    /// The kernel's figures and ours, when both were measured.
    pub(crate) fn both(&self) -> Option<[Figures; 2]> {
        let [kernel, ours] = Stack::BOTH.map(|stack| self.figures(stack));
        Some([kernel?, ours?])
    }

    pub(crate) fn noisy_runs(&self) -> usize {
        self.runs.iter().filter(|run| run.noise.is_some()).count()
    }
}

/// Ours as a part of the kernel's.
pub(crate) fn goodput_ratio([kernel, ours]: &[Figures; 2]) -> Option<f64> {
    (kernel.goodput > 0.0).then(|| ours.goodput / kernel.goodput)
}

/// Ours as a multiple of the kernel's, or of [`REPEATED_FLOOR`].
pub(crate) fn repeated_ratio([kernel, ours]: &[Figures; 2]) -> f64 {
    let floor = kernel.sent.saturating_sub(kernel.repeated) as f64 * REPEATED_FLOOR;
    let base = (kernel.repeated as f64).max(floor).max(1.0);
    ours.repeated as f64 / base
}

/// What the whole matrix says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    /// Cells in which both were measured.
    pub(crate) cells: usize,
    /// Of these, those with [`GOODPUT_MARK`].
    pub(crate) met: usize,
    /// Of these, those with [`REPEATED_MARK`].
    pub(crate) sparing: usize,
    /// The least ratio of goodputs, and its cell.
    pub(crate) worst: Option<(f64, String)>,
    /// Sum of our goodputs as a part of the sum of the kernel's.
    pub(crate) sum: f64,
    /// Geometric mean of the ratios.
    pub(crate) mean: f64,
    /// Sum of our repeated bytes as a multiple of the kernel's.
    pub(crate) repeated: f64,
    /// Fetches of either that did not come to their end.
    pub(crate) failures: [usize; 2],
    pub(crate) noisy_runs: usize,
}

impl Summary {
    pub(crate) fn of(results: &Results) -> Self {
        let mut summary = Self::default();
        let (mut goodput, mut repeated, mut logs) = ([0.0; 2], [0u64; 2], 0.0);
        for measured in &results.cells {
            let Some(both) = measured.both() else {
                continue;
            };
            for (i, figures) in both.iter().enumerate() {
                goodput[i] += figures.goodput;
                repeated[i] += figures.repeated;
                summary.failures[i] += figures.failures;
            }
            summary.cells += 1;
            summary.noisy_runs += measured.noisy_runs();
            summary.sparing += usize::from(repeated_ratio(&both) <= REPEATED_MARK);
            // A cell in which the kernel does not come through is met by
            // whoever does.
            let ratio = goodput_ratio(&both).unwrap_or(1.0);
            summary.met += usize::from(ratio >= GOODPUT_MARK);
            // A cell without goodput would be the whole mean.
            logs += ratio.max(0.001).ln();
            if summary
                .worst
                .as_ref()
                .is_none_or(|(worst, _)| ratio < *worst)
            {
                let cell = &measured.cell;
                summary.worst = Some((ratio, format!("{}, {}", cell.group, cell.name)));
            }
        }
        summary.sum = goodput[1] / goodput[0].max(1.0);
        summary.mean = (logs / summary.cells.max(1) as f64).exp();
        summary.repeated = repeated[1] as f64 / (repeated[0] as f64).max(1.0);
        summary
    }

    /// The marks: what is wanted, what was measured, whether it was met.
    pub(crate) fn marks(&self) -> Vec<(String, String, bool)> {
        let worst = self.worst.as_ref();
        let [kernel, ours] = self.failures;
        vec![
            (
                format!("goodput at least {GOODPUT_MARK} of the kernel's in every cell"),
                format!(
                    "{} of {} cells; least {}",
                    self.met,
                    self.cells,
                    worst.map_or("–".into(), |(ratio, cell)| format!("{ratio:.2} ({cell})"))
                ),
                self.cells > 0 && self.met == self.cells,
            ),
            (
                "goodput above the kernel's in the sum".to_owned(),
                format!("{:.3}; geometric mean {:.3}", self.sum, self.mean),
                self.sum > 1.0,
            ),
            (
                format!("repeated bytes at most {REPEATED_MARK} times the kernel's"),
                format!(
                    "{:.2} in all; {} of {} cells",
                    self.repeated, self.sparing, self.cells
                ),
                self.cells > 0 && self.repeated <= REPEATED_MARK && self.sparing == self.cells,
            ),
            (
                "every fetch comes to its end with the right bytes".to_owned(),
                format!("{ours} failures (the kernel: {kernel})"),
                ours == 0,
            ),
        ]
    }
}

/// The median; of an even number of values, the mean of the middle two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some(f64::midpoint(sorted[low], sorted[high]))
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
