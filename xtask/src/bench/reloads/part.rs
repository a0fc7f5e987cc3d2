//! A part of a run, and the batches of packets that took long in it.

use std::ops::Sub;
use std::path::Path;

use anyhow::Result;

use crate::bench::results::Load;
use crate::metrics::Metrics;

/// Bound of the servers' histogram in seconds. A worker should not stop for longer.
const BOUND: &str = "0.0002";

/// A part of a run.
pub(super) struct Part {
    pub(super) load: Load,
    batches: Batches,
}

/// Numbers of batches.
#[derive(Clone, Copy, Default)]
struct Batches {
    all: u64,
    /// Requests that were not answered within [`BOUND`].
    slow: u64,
}

impl Part {
    /// Calls `load`. Also counts the batches meanwhile, of a server with this socket for its metrics.
    pub(super) fn measure(socket: &Path, load: impl FnOnce() -> Result<Load>) -> Result<Self> {
        let before = Batches::read(socket)?;
        let load = load()?;
        let batches = Batches::read(socket)? - before;
        Ok(Self { load, batches })
    }
}

impl Batches {
    fn read(socket: &Path) -> Result<Self> {
        let metrics = Metrics::at_rest(socket)?;
        let within = |bound| metrics.sum("storm_batch_seconds_bucket", &[("le", bound)]);
        let all = within("+Inf")?;
        let slow = all - within(BOUND)?;
        Ok(Self { all, slow })
    }
}

impl Sub for Batches {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            all: self.all - earlier.all,
            slow: self.slow - earlier.slow,
        }
    }
}

/// Formats the share of the batches in these parts that took long.
pub(super) fn slow_batches(parts: &[Part]) -> String {
    let sum = |count: fn(&Batches) -> u64| parts.iter().map(|part| count(&part.batches)).sum();
    let [slow, all]: [u64; 2] = [sum(|batches| batches.slow), sum(|batches| batches.all)];
    if all == 0 {
        return "no batches".to_owned();
    }
    format!("{:.3} %", 100.0 * slow as f64 / all as f64)
}
