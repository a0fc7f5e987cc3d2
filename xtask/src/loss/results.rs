//! Results of the matrix, and the marks (goals) that they should meet.

use serde::Serialize;

use super::lab::Measured;
use super::rig::Stack;

/// Lower limit on Sandstorm's goodput, as a multiple of nginx's.
const GOODPUT_MARK: f64 = 0.95;
/// Upper limit on Sandstorm's retransmitted bytes, as a multiple of nginx's.
const RETRANSMITTED_MARK: f64 = 1.1;
/// If nginx retransmits less than this fraction of the fetched bytes, this fraction counts instead.
/// Otherwise a few retransmissions could be a large multiple of almost none.
const RETRANSMITTED_FLOOR: f64 = 0.002;
/// BBR meets its mark if its goodput is at least this multiple of CUBIC's in a quarter of the
/// cells.
const BBR_GAIN: f64 = 1.1;

/// Results of one `xtask loss` command.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    /// Names and values that describe the measurement: time, command, machine, versions.
    pub(crate) setting: Vec<(String, String)>,
    pub(crate) cells: Vec<Measured>,
}

/// Figures of one server in one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Median goodput of the runs in bits per second. A failed run counts as 0.
    pub(crate) goodput: f64,
    /// Number of retransmitted bytes in all runs.
    pub(crate) retransmitted: f64,
    /// Number of payload bytes sent in all runs, without retransmissions.
    pub(crate) fetched: f64,
    /// Number of runs with a failed fetch.
    pub(crate) failures: usize,
}

impl Measured {
    /// Returns the figures of all servers, in the order of [`Stack::ALL`].
    pub(crate) fn figures(&self) -> [Figures; 3] {
        Stack::ALL.map(|stack| {
            let runs = || self.runs.iter().filter(|run| run.stack == stack);
            let goodput = runs().map(|run| match run.failure {
                None => (run.fetches.len() * self.cell.size) as f64 * 8.0 / run.seconds.max(1e-9),
                Some(_) => 0.0,
            });
            let retransmitted = runs().map(|run| run.retransmitted as f64).sum();
            Figures {
                goodput: median(goodput.collect()),
                retransmitted,
                fetched: runs().map(|run| run.sent as f64).sum::<f64>() - retransmitted,
                failures: runs().filter(|run| run.failure.is_some()).count(),
            }
        })
    }
}

/// Figures of one server as multiples of those of another server, the base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratios {
    /// Ratio of goodputs, or 1 if the base's goodput is 0.
    pub(crate) goodput: f64,
    pub(crate) retransmitted: f64,
}

impl Ratios {
    pub(crate) fn new(base: &Figures, other: &Figures) -> Self {
        let floor = (base.fetched * RETRANSMITTED_FLOOR).max(1.0);
        let goodput = if base.goodput > 0.0 {
            other.goodput / base.goodput
        } else {
            1.0
        };
        Self {
            goodput,
            retransmitted: other.retransmitted / base.retransmitted.max(floor),
        }
    }

    /// Returns true if the goodput meets Sandstorm's mark.
    pub(crate) fn is_fast(&self) -> bool {
        self.goodput >= GOODPUT_MARK
    }

    /// Returns true if the retransmissions meet Sandstorm's mark.
    pub(crate) fn is_sparing(&self) -> bool {
        self.retransmitted <= RETRANSMITTED_MARK
    }
}

/// Returns the marks. Each has the wanted value, the measured value, and whether it is met.
pub(crate) fn marks(cells: &[Measured]) -> Vec<(String, String, bool)> {
    let cells: Vec<_> = cells.iter().map(Measured::figures).collect();
    let n = cells.len();
    let total = |figure: fn(&Figures) -> f64| {
        let sum = |which: usize| cells.iter().map(|all| figure(&all[which])).sum::<f64>();
        [sum(1) / sum(0).max(1.0), sum(2) / sum(1).max(1.0)]
    };
    let ratios = |base: usize| -> Vec<Ratios> {
        let one = |all: &[Figures; 3]| Ratios::new(&all[base], &all[base + 1]);
        cells.iter().map(one).collect()
    };
    let mean = |all: &[Ratios]| {
        // A cell with zero goodput would dominate the geometric mean.
        let logs = all.iter().map(|ratios| ratios.goodput.max(1e-3).ln());
        (logs.sum::<f64>() / n.max(1) as f64).exp()
    };
    let (ours, bbr) = (ratios(0), ratios(1));
    let fast = ours.iter().filter(|all| all.is_fast()).count();
    let sparing = ours.iter().filter(|all| all.is_sparing()).count();
    let minimum = ours.iter().map(|all| all.goodput).fold(f64::MAX, f64::min);
    let [goodput, _] = total(|figures| figures.goodput);
    let [retransmitted, by_bbr] = total(|figures| figures.retransmitted);
    let [nginx_failures, failures, bbr_failures] =
        [0, 1, 2].map(|which| cells.iter().map(|all| all[which].failures).sum::<usize>());
    let faster = bbr.iter().filter(|all| all.goodput >= BBR_GAIN).count();
    let slower = bbr.iter().filter(|all| !all.is_fast()).count();
    let (mean, mean_bbr) = (mean(&ours), mean(&bbr));
    vec![
        (
            format!("goodput at least {GOODPUT_MARK} times nginx's in every network"),
            format!("{fast} of {n}; minimum {minimum:.2}"),
            n > 0 && fast == n,
        ),
        (
            "sum of all goodputs above nginx's".to_owned(),
            format!("{goodput:.3} times; geometric mean {mean:.3}"),
            goodput > 1.0,
        ),
        (
            format!("retransmitted bytes at most {RETRANSMITTED_MARK} times nginx's"),
            format!("{retransmitted:.2} times in total; {sparing} of {n}"),
            n > 0 && retransmitted <= RETRANSMITTED_MARK && sparing == n,
        ),
        (
            "every fetch gets the right bytes".to_owned(),
            format!("{failures} failures (BBR: {bbr_failures}, nginx: {nginx_failures})"),
            failures + bbr_failures == 0,
        ),
        (
            format!("BBR's goodput at least {BBR_GAIN} times CUBIC's in a quarter of the networks"),
            format!(
                "{faster} of {n}; below {GOODPUT_MARK} in {slower}; geometric mean \
                 {mean_bbr:.2}; {by_bbr:.1} times the retransmitted bytes"
            ),
            n > 0 && faster * 4 >= n,
        ),
    ]
}

/// Returns the median, or 0 if there are no values. For an even number of values, the median is the
/// mean of the middle two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return 0.0;
    }
    f64::midpoint(values[(n - 1) / 2], values[n / 2])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::loss::cells;
    use crate::loss::lab::{Run, Times};

    /// Makes a cell with one run per server. `runs` holds the duration in seconds and the number of
    /// retransmitted bytes of each run.
    pub(crate) fn measured(name: &str, runs: [(f64, u64); 3]) -> Measured {
        let mut cell = cells::limit();
        name.clone_into(&mut cell.name);
        cell.size = 1_000_000;
        let run = |(stack, (seconds, retransmitted))| Run {
            stack,
            seconds,
            fetches: vec![Times::default()],
            sent: 1_000_000 + retransmitted,
            retransmitted,
            ..Run::default()
        };
        let runs = Stack::ALL.into_iter().zip(runs).map(run).collect();
        Measured { cell, runs }
    }

    fn met(cells: &[Measured]) -> Vec<bool> {
        marks(cells).into_iter().map(|(_, _, met)| met).collect()
    }

    #[test]
    fn figures_are_medians_of_goodput_and_sums_of_bytes() {
        for (runs, bits) in [(2, 6e6), (3, 4e6)] {
            let mut cell = measured("a", [(1.0, 10_000), (2.0, 20_000), (4.0, 0)]);
            cell.runs.truncate(runs);
            cell.runs.iter_mut().for_each(|run| run.stack = Stack::Bbr);
            let [nginx, _, bbr] = cell.figures();
            assert!((bbr.goodput - bits).abs() < 1.0);
            let bytes = (bbr.retransmitted, bbr.fetched);
            assert_eq!(bytes, (30_000.0, runs as f64 * 1e6));
            assert_eq!(nginx, Figures::default());
        }
    }

    #[test]
    fn every_mark_can_be_met_and_missed() {
        let good = || measured("a", [(1.0, 10_000), (0.9, 10_000), (0.5, 10_000)]);
        assert_eq!(met(&[good()]), [true; 5]);
        // The sum of all goodputs is above nginx's in spite of one slow cell.
        let slow = measured("a", [(100.0, 10_000), (200.0, 10_000), (200.0, 0)]);
        assert_eq!(met(&[good(), slow]), [false, true, true, true, true]);
        let wasteful = measured("a", [(1.0, 10_000), (0.9, 12_000), (0.85, 0)]);
        assert_eq!(met(&[wasteful]), [true, true, false, true, false]);
        let broken = |run: usize| {
            let mut cell = good();
            cell.runs[run].failure = Some("why".to_owned());
            met(&[cell])
        };
        assert_eq!(broken(1), [false, false, true, false, false]);
        // If nginx fails in a cell, the goodput mark counts as met there.
        assert!(broken(0)[0]);
        assert!(!broken(2)[3]);
        assert_eq!(met(&[]), [false, false, false, true, false]);
    }

    #[test]
    fn few_retransmissions_by_nginx_do_not_inflate_the_ratio() {
        let ratio = |nginx, ours| {
            let [nginx, ours, _] = measured("a", [(1.0, nginx), (1.0, ours), (1.0, 0)]).figures();
            Ratios::new(&nginx, &ours).retransmitted
        };
        assert!(ratio(0, 1_448) <= RETRANSMITTED_MARK);
        assert!(ratio(0, 5_000) > RETRANSMITTED_MARK);
        assert!((ratio(10_000, 20_000) - 2.0).abs() < 1e-9);
    }
}
