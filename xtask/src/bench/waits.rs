//! `xtask bench waits`: ways of waiting for packets, at several loads.
//!
//! Each server runs with each way of waiting that it has. The loads are shares of its capacity,
//! which is its rate in a closed loop with its usual way. They are open loops: latency counts from
//! the time at which a request was due, so a stalled server cannot hide its delay. Every server is measured
//! once before any is measured again.

mod table;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use super::content::Content;
use super::generators;
use super::instructions::Baseline;
use super::results::{Cost, Load};
use super::rig::{Interrupts, Rig, SERVER_CORE, Tuning};
use super::servers::{
    KNOT, KNOT_XDP, NGINX, NSD, Program, SANDSTORM, Serves, Spec, TURNAROUND, is_installed,
};
use super::usage::{self, Sample};
use super::{Common, machine};
use crate::{interrupt, shell};

/// Options of `cargo xtask bench waits`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Measure three loads once for a second each, instead of five for 3 seconds.
    #[arg(long)]
    quick: bool,

    /// How often to measure each load. Every server is measured once before any is measured again.
    /// Default: 3, or 1 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: Option<u32>,

    #[command(flatten)]
    pub(super) common: Common,
}

/// Loads in percent of capacity.
const LOADS: &[u32] = &[1, 10, 50, 90, 100];
const QUICK_LOADS: &[u32] = &[10, 50, 90];
/// Number of names in the zone.
const NAMES: u32 = 100;
/// Number of connections that the servers hold.
const CONNECTIONS: u32 = 8_192;
/// Time in seconds for which system calls are counted, within a load of its own. Counting makes
/// system calls slower.
const COUNTED: f64 = 0.5;
/// Events that `perf` counts, in the order of [`Cell::events`].
const EVENTS: [&str; 3] = ["raw_syscalls:sys_enter", "instructions", "cycles"];

/// A way of waiting: its name, our option if the server is ours, and the kernel's part.
type Policy = (&'static str, &'static str, Interrupts);

const OURS: &[Policy] = &[
    ("block", "--wait block", Interrupts::Immediate),
    ("adaptive", "--wait adaptive", Interrupts::Immediate),
    ("deferral", "--wait block", Interrupts::Deferred),
    ("spin", "--wait spin", Interrupts::Immediate),
    ("busy-poll", "--wait busy-poll", Interrupts::Immediate),
];
const KERNEL: &[Policy] = &[
    ("default", "", Interrupts::Immediate),
    ("deferral", "", Interrupts::Deferred),
    ("busy polling", "", Interrupts::Polled),
];

/// Servers with their ways of waiting. Capacity is measured with the first way.
const SERVERS: &[(&Program, Serves, &[Policy])] = &[
    (&SANDSTORM, Serves::Files, OURS),
    (&NGINX, Serves::Files, KERNEL),
    (&TURNAROUND, Serves::Zone(Some(NAMES)), OURS),
    (&KNOT_XDP, Serves::Zone(Some(NAMES)), KERNEL.split_at(2).0),
    (&KNOT, Serves::Zone(Some(NAMES)), KERNEL),
    (&NSD, Serves::Zone(Some(NAMES)), KERNEL),
];

/// What was measured for a server with one way of waiting, at one load.
#[derive(Clone, Debug, Default, Serialize)]
struct Cell {
    server: &'static str,
    policy: &'static str,
    /// Load in percent of capacity.
    percent: u32,
    /// Index of the repeat, from 0.
    repeat: u32,
    load: Load,
    /// Use of both cores, which other work on the machine distorts.
    cost: Cost,
    /// CPU time for each reply in µs: of the server's threads, and of the kernel's threads that
    /// receive for the server.
    cpu_us: [f64; 2],
    /// Number of times that the server's threads slept, and that the kernel's receiving thread did.
    sleeps: [u64; 2],
    /// Number of [`EVENTS`] for each reply, where the machine can count them.
    events: [Option<f64>; 3],
}

/// Everything that the command found out.
#[derive(Clone, Debug, Default, Serialize)]
struct Findings {
    machine: Vec<(String, String)>,
    repeats: u32,
    cells: Vec<Cell>,
    /// Cells of ways of waiting that change nothing here.
    inert: Vec<Cell>,
    /// Servers and ways of waiting that could not be measured, and why.
    missing: Vec<String>,
}

/// Measures all cells, and writes them as a table and as raw results.
pub(crate) fn run(options: &Options, target: &Path, folder: &Path) -> Result<()> {
    let content = Content::create(target.join("release"), folder)?;
    let (loads, seconds, repeats) = if options.quick {
        (QUICK_LOADS, 1.0, 1)
    } else {
        (LOADS, 3.0, 3)
    };
    let mut findings = Findings {
        machine: machine::describe(),
        repeats: options.repeats.unwrap_or(repeats),
        ..Findings::default()
    };
    findings.machine.push(machine::busy_before()?);
    let mut benches = Vec::new();
    for (program, serves, policies) in SERVERS {
        if !options.common.selects(program.name) {
            continue;
        }
        if !program.is_ours() && !is_installed(program.executable()) {
            let missing = format!("{}: skipped, as it is not installed", program.name);
            findings.missing.push(missing);
            continue;
        }
        benches.push(Bench {
            content: &content,
            program,
            serves: *serves,
            policies: policies.to_vec(),
            seconds: options.common.seconds.unwrap_or(seconds),
            capacity: 0.0,
        });
    }
    for repeat in 0..findings.repeats {
        for bench in &mut benches {
            bench.measure_all(repeat, loads, &mut findings)?;
        }
    }
    let raw = serde_json::to_string_pretty(&findings).context("writing the results")?;
    let page = table::page(&findings, &Baseline::read()?);
    for (name, text) in [("waits.json", &raw), ("waits.md", &page)] {
        shell::write(&folder.join(name), text)?;
    }
    println!("{page}");
    match findings.missing.len() {
        0 => Ok(()),
        n => bail!("{n} servers or ways of waiting are missing"),
    }
}

/// A server with what it serves, and how it is measured.
struct Bench<'a> {
    content: &'a Content,
    program: &'static Program,
    serves: Serves,
    /// Ways of waiting that are not known to be inert. The first is the usual one.
    policies: Vec<Policy>,
    /// Duration of the measured part of a load.
    seconds: f64,
    /// Replies per second in a closed loop, or 0 until it is measured.
    capacity: f64,
}

impl Bench<'_> {
    /// Measures the server once with all its ways of waiting.
    fn measure_all(&mut self, repeat: u32, loads: &[u32], findings: &mut Findings) -> Result<()> {
        let first = findings.cells.len();
        for policy in self.policies.clone() {
            let what = format!("{}, {}", self.program.name, policy.0);
            match self.measure(&policy, loads, repeat) {
                Ok(cells) if repeat == 0 && is_inert(&cells, &findings.cells[first..]) => {
                    eprintln!("waits: {what}: inert");
                    findings.inert.extend(cells);
                    self.policies.retain(|other| other.0 != policy.0);
                }
                Ok(cells) => findings.cells.extend(cells),
                Err(failure) => {
                    interrupt::check()?;
                    eprintln!("waits: {what}: {failure:#}");
                    let missing = format!("{what}: {failure:#}");
                    if !findings.missing.contains(&missing) {
                        findings.missing.push(missing);
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts the server with one way of waiting, and measures it at each load.
    fn measure(&mut self, policy: &Policy, loads: &[u32], repeat: u32) -> Result<Vec<Cell>> {
        let spec = Spec {
            program: self.program,
            serves: self.serves,
            options: policy.1.to_owned(),
            connections: CONNECTIONS,
            tuning: Tuning {
                unqueued: true,
                interrupts: policy.2,
                ..Tuning::USUAL
            },
            limited: false,
        };
        let rig = Rig::build(spec.tuning)?;
        let (server, processes) = spec.start(&rig, self.content)?;
        if self.capacity == 0.0 {
            let load = command(self.serves, None);
            self.capacity = self.load(&load, self.seconds, &rig, || {})?.rate;
            eprintln!("waits: {}: {:.0}/s", self.program.name, self.capacity);
        }
        let mut cells = Vec::new();
        for &percent in loads {
            interrupt::check()?;
            let cell = Cell {
                policy: policy.0,
                repeat,
                ..self.cell(percent, &rig, &processes)?
            };
            eprintln!("waits: {}", table::line(&[&cell]).join(" | "));
            cells.push(cell);
        }
        spec.stop(server, &processes)?;
        Ok(cells)
    }

    fn load(&self, load: &str, seconds: f64, rig: &Rig, edge: impl FnMut() + Send) -> Result<Load> {
        let load = generators::run(load, CONNECTIONS, rig, self.content, [0.3, seconds], edge)?;
        if load.completed == 0 {
            bail!("no request was answered; errors: {:?}", load.errors);
        }
        Ok(load)
    }

    /// Measures one cell.
    fn cell(&self, percent: u32, rig: &Rig, processes: &[i32]) -> Result<Cell> {
        let command = command(self.serves, Some(share(self.capacity, percent)));
        let softirqs = usage::softirq_thread(SERVER_CORE);
        let mut samples = Vec::new();
        let load = self.load(&command, self.seconds, rig, || {
            let sample = rig.pin_receivers().and_then(|receivers| {
                let kernel: Vec<i32> = receivers.iter().copied().chain(softirqs).collect();
                Ok((
                    Sample::take(processes, &receivers)?,
                    [processes, &kernel].map(usage::run_time),
                    [processes, &receivers].map(usage::sleeps),
                ))
            });
            samples.push(sample);
        })?;
        let samples = samples.into_iter().collect::<Result<Vec<_>>>()?;
        let [(first, times, sleeps), (last, last_times, last_sleeps)] = &samples[..] else {
            bail!("the load did not report its measured part");
        };
        let grown = |from: &[u64; 2], to: &[u64; 2]| [0, 1].map(|n| to[n].saturating_sub(from[n]));
        let completed = load.completed as f64;
        Ok(Cell {
            server: self.program.name,
            percent,
            cost: first.cost_until(last, load.completed),
            cpu_us: grown(times, last_times).map(|nanos| nanos as f64 / 1e3 / completed),
            sleeps: grown(sleeps, last_sleeps),
            events: self.count(&command, rig, processes)?,
            load,
            ..Cell::default()
        })
    }

    /// Counts the events of the server's processes for each reply, in a load of its own.
    fn count(&self, command: &str, rig: &Rig, processes: &[i32]) -> Result<[Option<f64>; 3]> {
        if !shell::is_installed("perf") {
            return Ok([None; 3]);
        }
        let mut perf = None;
        let load = self.load(command, COUNTED, rig, || {
            if perf.is_none() {
                perf = Some(perf_command(processes).spawn());
            }
        })?;
        let output = perf
            .context("the load did not begin")?
            .and_then(std::process::Child::wait_with_output)
            .context("running perf")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(EVENTS.map(|event| Some(counted(&text, event)? / (load.rate * COUNTED / 2.0))))
    }
}

/// Returns the rate of a load in requests per second.
fn share(capacity: f64, percent: u32) -> f64 {
    (capacity * f64::from(percent) / 100.0).max(1.0)
}

/// Returns the generator's command line, for an open loop if there is a rate.
fn command(serves: Serves, rate: Option<f64>) -> String {
    let load = match serves {
        Serves::Files => "load http --site {files} --path /1024.bin --connections 64".to_owned(),
        _ => format!("load dns --hosts {NAMES} --window 240"),
    };
    match rate {
        Some(rate) => format!("{} --rate {rate:.0}", load.replace(" --window 240", "")),
        None => load,
    }
}

/// Returns true if `cells` are of a server that should poll, but does not. A server that polls
/// spends more CPU time of its own at low loads, or takes over the work of the kernel's threads.
/// `usual` are cells of the same server and loads without polling.
fn is_inert(cells: &[Cell], usual: &[Cell]) -> bool {
    let should_poll = cells.iter().all(|cell| cell.policy.starts_with("busy"));
    let is_alike = |(cell, usual): (&Cell, &Cell)| {
        let [server, kernel] = [0, 1].map(|n| cell.cpu_us[n] / usual.cpu_us[n]);
        server < 1.5 && kernel > 0.5
    };
    should_poll && (1..=usual.len()).contains(&cells.len()) && cells.iter().zip(usual).all(is_alike)
}

/// Returns a command that counts [`EVENTS`] of these processes for half of [`COUNTED`].
fn perf_command(processes: &[i32]) -> Command {
    let ids: Vec<_> = processes.iter().map(ToString::to_string).collect();
    let mut perf = Command::new("perf");
    perf.args([
        "stat",
        "-x",
        ";",
        "-e",
        &EVENTS.join(","),
        "-p",
        &ids.join(","),
    ])
    .args(["--", "sleep", &(COUNTED / 2.0).to_string()])
    .stdin(Stdio::null())
    .stdout(Stdio::null())
    .stderr(Stdio::piped());
    perf
}

/// Returns the count of an event in the output of `perf stat`, unless the machine cannot count it.
fn counted(output: &str, event: &str) -> Option<f64> {
    let mut lines = output
        .lines()
        .map(|line| line.split(';').collect::<Vec<_>>());
    let line = lines.find(|line| line.get(2).is_some_and(|name| name.starts_with(event)))?;
    line[0].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_where_the_machine_counts_them() {
        let output = "1200;;raw_syscalls:sys_enter;250000000;100.00;;\n\
                      <not supported>;;instructions;0;100.00;;\n";
        assert_eq!(counted(output, EVENTS[0]), Some(1_200.0));
        assert_eq!(counted(output, EVENTS[1]), None);
        assert_eq!(counted(output, EVENTS[2]), None);
    }

    #[test]
    fn an_open_loop_has_a_share_of_the_capacity_and_no_window() {
        let rate = Some(share(200_000.0, 1));
        assert_eq!(
            command(Serves::Zone(Some(NAMES)), rate),
            "load dns --hosts 100 --rate 2000"
        );
        assert!(command(Serves::Files, rate).ends_with(" --connections 64 --rate 2000"));
        assert!(command(Serves::Zone(Some(NAMES)), None).ends_with(" --window 240"));
        assert_eq!(
            command(Serves::Files, Some(share(3.0, 10))),
            command(Serves::Files, Some(1.0))
        );
    }

    #[test]
    fn busy_polling_is_inert_if_it_moves_no_work_to_the_server() {
        let cells = |policy, times: [[f64; 2]; 2]| {
            times.map(|cpu_us| Cell {
                policy,
                cpu_us,
                ..Cell::default()
            })
        };
        let usual = cells("default", [[5.0, 8.0], [4.0, 6.0]]);
        let inert = cells("busy polling", [[6.0, 7.0], [4.0, 5.0]]);
        assert!(is_inert(&inert, &usual));
        assert!(!is_inert(&inert, &[]));
        for (policy, times) in [
            ("busy polling", [[15.0, 7.0], [4.0, 5.0]]),
            ("busy polling", [[6.0, 0.1], [4.0, 5.0]]),
            ("deferral", [[6.0, 7.0], [4.0, 5.0]]),
        ] {
            assert!(!is_inert(&cells(policy, times), &usual));
        }
    }
}
