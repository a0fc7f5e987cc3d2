//! Raw results of a comparison, stored as JSON. The report uses no other data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All results of one `bench` command.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Start time of the command, such as `2026-11-21 12:00 UTC`.
    pub(crate) started: String,
    /// Command line after `cargo xtask`.
    pub(crate) command: String,
    /// Properties of the machine by name, such as `kernel`.
    pub(crate) machine: Vec<(String, String)>,
    /// Versions by program. `commit` is the version of this repository.
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) runs: Vec<Run>,
    /// Runs and servers that could not be measured.
    pub(crate) missing: Vec<Missing>,
}

/// One run of a server under a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Name of the figure, as in [`FIGURES`](super::plan::FIGURES).
    pub(crate) figure: String,
    /// Part of the figure, such as `16 connections`. It distinguishes runs with the same `x`.
    pub(crate) panel: String,
    /// Server and its mode, such as `namestorm turnaround`. In the figure that compares generators,
    /// this is the generator.
    pub(crate) server: String,
    /// Value of the figure's variable, in its unit: bytes, names, frames, connections, µs, or
    /// queries per second.
    pub(crate) x: f64,
    /// Index of the repeat, from 0. All servers run once before the next repeat.
    pub(crate) repeat: u32,
    pub(crate) load: Load,
    pub(crate) cost: Cost,
    /// Resident memory of the server under load plus the growth of the kernel's tables, in bytes.
    pub(crate) memory: u64,
    /// Share of frames that the server's link refused because the client's ring was full, from 0 to 1. Our
    /// servers send such a frame again.
    #[serde(default)]
    pub(crate) refused: f64,
    /// Share of sent frames that were lost on the server's host, from 0 to 1. Its link refused them, and it did
    /// not send them again. `None` if this was not measured.
    #[serde(default)]
    pub(crate) lost: Option<f64>,
}

/// Result of a load generator. Our generators print it as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Program that generated the load, such as `load dns` or `wrk`.
    pub(crate) generator: String,
    /// Requested rate of an open loop, in requests per second. 0 for a closed loop, and for
    /// generators that do not report the rate.
    pub(crate) asked_rate: f64,
    /// Duration of the measured part, in seconds.
    pub(crate) seconds: f64,
    /// Number of correct replies in the measured part.
    pub(crate) completed: u64,
    /// Number of correct replies per second.
    pub(crate) rate: f64,
    /// Number of body or message bytes in correct replies, per second. wrk also counts the heads.
    pub(crate) bytes_per_second: f64,
    /// Latency in µs: p50, p99, p99.9 and maximum. The values are 0 if the generator reports none.
    pub(crate) latency_us: [f64; 4],
    /// Number of errors in the measured part, by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Highest p50 of a single connection in µs. Only our HTTP generator reports it, in an open
    /// loop.
    #[serde(default)]
    pub(crate) slowest_p50_us: Option<f64>,
    /// Field by which the server recognizes unchanged files, if the load asks for changes.
    #[serde(default)]
    pub(crate) validator: Option<String>,
}

/// CPU time of a run, per request and as utilization.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// CPU time per request on the server's core, in µs. All time counts that was neither idle nor
    /// stolen.
    pub(crate) core_us: f64,
    /// CPU time per request that the server's processes spent in user mode, in µs.
    pub(crate) user_us: f64,
    /// Utilization of the server's core, from 0 to 1.
    pub(crate) busy: f64,
    /// Fraction of the time that the host stole from the server's core, 0 to 1.
    pub(crate) stolen: f64,
    /// Fraction of the time that the server's core spent on other work or interrupts, 0 to 1. This time
    /// also counts in `core_us` and `busy`.
    #[serde(default)]
    pub(crate) foreign: f64,
    /// Utilization of the client's core, from 0 to 1.
    pub(crate) client_busy: f64,
}

/// Begins the reason of a run or server that is skipped, usually because something is not installed.
pub(crate) const SKIPPED: &str = "skipped, as ";

/// A run or server that could not be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) what: String,
    pub(crate) why: String,
    /// Last lines of the program's output.
    pub(crate) log: String,
}

impl Missing {
    /// Returns true if the run or server failed. Otherwise it was skipped.
    pub(crate) fn is_failure(&self) -> bool {
        !self.why.starts_with(SKIPPED)
    }
}

/// A quantity that a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Rate,
    Throughput,
    Cost,
    UserCost,
    P50,
    P99,
    P999,
    Memory,
    Refused,
    Lost,
    ClientBusy,
}

impl Quantity {
    /// Quantities that are shown for every figure on the HTML page.
    pub(crate) const USUAL: &[Self] = &[
        Self::Rate,
        Self::Throughput,
        Self::Cost,
        Self::UserCost,
        Self::P99,
        Self::ClientBusy,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Rate => "Replies per second",
            Self::Throughput => "Throughput, Gb/s",
            Self::Cost => "CPU µs per request on the server's core",
            Self::UserCost => "CPU µs per request in user mode",
            Self::P50 => "Latency, p50, µs",
            Self::P99 => "Latency, p99, µs",
            Self::P999 => "Latency, p99.9, µs",
            Self::Refused => "Frames that the full device refused, %",
            Self::Lost => "Frames lost at the full device, %",
            Self::Memory => "Memory, MB",
            Self::ClientBusy => "Client's core, part busy",
        }
    }

    /// Returns the value, or `None` if it was not measured. Most quantities are then 0.
    pub(crate) fn of(self, run: &Run) -> Option<f64> {
        let value = match self {
            Self::Rate => run.load.rate,
            Self::Throughput => run.load.bytes_per_second * 8.0 / 1e9,
            Self::Cost => run.cost.core_us,
            Self::UserCost => run.cost.user_us,
            Self::P50 => run.load.latency_us[0],
            Self::P99 => run.load.latency_us[1],
            Self::P999 => run.load.latency_us[2],
            Self::Refused => run.refused * 100.0,
            Self::Lost => return run.lost.map(|share| share * 100.0),
            Self::Memory => run.memory as f64 / 1e6,
            Self::ClientBusy => run.cost.client_busy,
        };
        Some(value).filter(|value| *value > 0.0)
    }
}
