//! What a comparison has measured: the raw JSON, and what the report is drawn
//! from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything that one command has measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// When it began, as `2026-11-21 12:00 UTC`.
    pub(crate) started: String,
    /// How it was called, as typed after `cargo xtask`.
    pub(crate) command: String,
    /// The machine: pairs of a name and a value, such as `kernel`.
    pub(crate) machine: Vec<(String, String)>,
    /// Programs and their versions.
    pub(crate) versions: BTreeMap<String, String>,
    /// Which core did what, in sentences.
    pub(crate) cores: Vec<String>,
    pub(crate) runs: Vec<Run>,
    /// What should have been run and was not.
    pub(crate) missing: Vec<Missing>,
    /// Instructions by workload, from the count under callgrind.
    pub(crate) instructions: BTreeMap<String, f64>,
    /// Instructions by workload that were committed as the baseline.
    pub(crate) instructions_baseline: BTreeMap<String, f64>,
    /// The busy connection of the paper's Figure 2; empty when not recorded.
    pub(crate) time_line: Vec<TimeLinePoint>,
}

/// One server under one load, once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    /// What it belongs to: see [`FIGURES`].
    pub(crate) figure: String,
    /// The server and how it was run, such as `namestorm turnaround` or
    /// `nginx`: one line of a chart.
    pub(crate) server: String,
    /// The figure's variable: bytes, names, frames, connections, µs.
    pub(crate) x: f64,
    /// What else tells this run from its neighbours in the figure, such as
    /// `16 connections`; a figure has a chart for each.
    pub(crate) panel: String,
    /// Segmentation and checksum offloads on at both ends.
    pub(crate) offloads: bool,
    /// 0 for the first of the interleaved repeats.
    pub(crate) repeat: u32,
    pub(crate) load: Load,
    pub(crate) cost: Option<Cost>,
    /// Counted in a run of its own, as counting costs time.
    pub(crate) calls: Option<Calls>,
    pub(crate) batches: Option<Batches>,
    /// The server's resident memory while it was loaded, in bytes.
    pub(crate) memory: Option<u64>,
}

/// What the load generator says: the JSON object that it prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Load {
    /// The program that made the load, such as `load dns` or `wrk`.
    pub(crate) generator: String,
    /// Requests a second that were asked for (open loop); 0 for a closed one.
    pub(crate) asked_rate: f64,
    /// Length of the measured part, in seconds.
    pub(crate) seconds: f64,
    /// Right replies in that time.
    pub(crate) completed: u64,
    /// Right replies a second.
    pub(crate) rate: f64,
    /// Bytes of bodies or messages in right replies a second.
    pub(crate) bytes_per_second: f64,
    /// Latency in µs: p50, p99, p99.9, greatest.
    pub(crate) latency_us: [f64; 4],
    /// What went wrong, by kind, in the measured part.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Requests a second of one connection: 10th percentile and median, where
    /// there are connections.
    pub(crate) connection_rate: Option<[f64; 2]>,
}

/// What a run cost on the server's core.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// CPU µs a request: the server core's time that was not idle.
    pub(crate) core_us: f64,
    /// CPU µs a request in the server process, user mode.
    pub(crate) user_us: f64,
    /// CPU µs a request in the kernel on the server's core: all but `user_us`.
    pub(crate) system_us: f64,
    /// Part of the time that the core was busy, 0 to 1.
    pub(crate) busy: f64,
    /// Part of the time that the host took the core away (steal), 0 to 1.
    pub(crate) stolen: f64,
    /// Part of the time that the client's core was busy, 0 to 1.
    pub(crate) client_busy: f64,
}

/// What the server process asked of the kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) per_request: f64,
    pub(crate) per_second: f64,
    /// Frames that its interface has received and sent for each call.
    pub(crate) packets_per_call: f64,
}

/// How many frames a server of ours received and sent at a time: the `n`-th
/// number counts batches of 2^n to 2^(n+1) - 1 frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Batches {
    pub(crate) received: Vec<u64>,
    pub(crate) sent: Vec<u64>,
}

/// Something that could not be measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) what: String,
    pub(crate) why: String,
    /// The last lines of its log.
    pub(crate) log: String,
}

/// A segment of the busy connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct TimeLinePoint {
    /// Since the connection's first segment.
    pub(crate) us: f64,
    /// From the server; otherwise from the client.
    pub(crate) sent: bool,
    /// Relative to the direction's first: the sequence number behind the
    /// segment's data when sent, else the acknowledgement number.
    pub(crate) seq: u32,
    /// Bytes of data.
    pub(crate) len: u32,
}

/// The figures: name in [`Run::figure`], title, label of `x`.
pub(crate) const FIGURES: &[(&str, &str, &str)] = &[
    ("limit", "The rig's limit: the reflector", "frame, bytes"),
    (
        "dns-cost",
        "DNS at 100,000 queries/s: cost of an answer",
        "names",
    ),
    ("dns-names", "Figure 8a: answers by zone size", "names"),
    (
        "dns-batch",
        "Figure 8b: answers by batch size",
        "frames in a batch",
    ),
    (
        "web-cost",
        "HTTP at a fixed rate: cost of a request",
        "body, bytes",
    ),
    (
        "web-sizes",
        "Figures 4 and 6: throughput by file size",
        "body, bytes",
    ),
    (
        "web-offload",
        "Figure 4 with segmentation offload: throughput by file size",
        "body, bytes",
    ),
    (
        "web-mix",
        "Figure 5: 1,000 files of a CDN's sizes",
        "connections",
    ),
    ("web-loss", "1 % of packets lost, 80 clients", "body, bytes"),
    ("delta-t", "Flush interval δt", "µs"),
    ("connections", "Open connections", "connections"),
    (
        "agreement",
        "Our generators beside others",
        "requests/s asked for",
    ),
];
