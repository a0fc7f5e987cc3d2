//! `xtask bench waits`: ways of waiting for packets, at several loads.
//!
//! Each server runs with each way of waiting that it has. The loads are shares of its capacity,
//! which is its rate in a closed loop with its usual way. They are open loops: latency counts from
//! the time at which a request was due, so a stalled server cannot hide its delay.

mod table;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use serde::Serialize;

use super::content::Content;
use super::generators;
use super::results::{Cost, Load};
use super::rig::{self, Interrupts, Rig};
use super::servers::{
    KNOT, KNOT_XDP, NGINX, NSD, Program, SANDSTORM, Serves, Spec, TURNAROUND, is_installed,
};
use super::usage::{self, Sample};
use super::{machine, seconds};
use crate::{interrupt, shell};

/// Options of `cargo xtask bench waits`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Measure three loads for a second each, instead of five for 3 seconds.
    #[arg(long)]
    quick: bool,

    /// Duration of each measurement, without its warm-up.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,

    /// Do not install packages or build programs.
    #[arg(long, hide = true)]
    pub(super) built: bool,
}

/// Loads in percent of capacity. 0 stands for a closed loop.
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
    load: Load,
    cost: Cost,
    /// Number of times that the server's threads slept, and that the kernel's receiving thread did.
    sleeps: [u64; 2],
    /// Number of [`EVENTS`] for each reply, where the machine can count them.
    events: [Option<f64>; 3],
}

/// Measures all cells, and writes them as a table and as raw results.
pub(crate) fn run(options: &Options, target: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    rig::keep_away()?;
    let content = Content::create(target.join("release"), folder.join("configs"))?;
    let seconds = options
        .seconds
        .unwrap_or(if options.quick { 1.0 } else { 3.0 });
    let loads = if options.quick { QUICK_LOADS } else { LOADS };
    let mut machine = machine::describe();
    machine.push(machine::busy_before()?);
    let (mut cells, mut missing) = (Vec::new(), Vec::new());
    for (program, serves, policies) in SERVERS {
        if !program.is_ours() && !is_installed(program.executable()) {
            missing.push(format!("{}: it is not installed", program.name));
            continue;
        }
        let mut bench = Bench {
            content: &content,
            program,
            serves: *serves,
            seconds,
            capacity: 0.0,
        };
        for policy in *policies {
            match bench.measure(policy, loads) {
                Ok(measured) => cells.extend(measured),
                Err(failure) => {
                    interrupt::check()?;
                    println!("waits: {}, {}: {failure:#}", program.name, policy.0);
                    missing.push(format!("{}, {}: {failure:#}", program.name, policy.0));
                }
            }
        }
    }
    let raw = serde_json::to_string_pretty(&cells).context("writing the results")?;
    let page = table::page(&cells, &machine, &missing);
    for (name, text) in [("waits.json", raw), ("waits.md", page.clone())] {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("{page}");
    match missing.len() {
        0 => Ok(()),
        n => bail!("{n} servers or ways of waiting are missing"),
    }
}

/// A server with what it serves, and how it is measured.
struct Bench<'a> {
    content: &'a Content,
    program: &'static Program,
    serves: Serves,
    /// Duration of the measured part of a load.
    seconds: f64,
    /// Replies per second in a closed loop, or 0 until it is measured.
    capacity: f64,
}

impl Bench<'_> {
    /// Starts the server with one way of waiting, and measures it at each load.
    fn measure(&mut self, policy: &Policy, loads: &[u32]) -> Result<Vec<Cell>> {
        let spec = Spec {
            program: self.program,
            serves: self.serves,
            options: policy.1.to_owned(),
            connections: CONNECTIONS,
            offloads: false,
            plain: false,
            interrupts: policy.2,
        };
        let rig = Rig::build(spec.tuning())?;
        let (server, processes) = spec.start(&rig, self.content)?;
        if self.capacity == 0.0 {
            let load = self.command(None);
            self.capacity = self.load(&load, self.seconds, &rig, || {})?.rate;
            println!("waits: {}: {:.0}/s", self.program.name, self.capacity);
        }
        let mut cells = Vec::new();
        for &percent in loads {
            interrupt::check()?;
            let mut cell = self.cell(percent, &rig, &processes)?;
            (cell.policy, cell.percent) = (policy.0, percent);
            println!("waits: {}", table::line(&cell).join(" | "));
            cells.push(cell);
        }
        if self.program.is_ours() {
            server.stop(Signal::TERM)?;
        } else {
            processes.iter().copied().for_each(rig::kill);
            server.stop(Signal::KILL)?;
        }
        Ok(cells)
    }

    /// Returns the generator's command line, for an open loop if there is a rate.
    fn command(&self, rate: Option<f64>) -> String {
        let load = match self.serves {
            Serves::Files => {
                "load http --site {files} --path /1024.bin --connections 64".to_owned()
            }
            _ => format!("load dns --hosts {NAMES} --window 240"),
        };
        match rate {
            Some(rate) => format!("{} --rate {rate:.0}", load.replace(" --window 240", "")),
            None => load,
        }
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
        let command = self.command(Some(self.capacity * f64::from(percent) / 100.0));
        let mut samples = Vec::new();
        let load = self.load(&command, self.seconds, rig, || {
            let sample = rig.pin_receivers().and_then(|receivers| {
                let sleeps = [usage::sleeps(processes), usage::sleeps(&receivers)];
                Ok((Sample::take(processes, &receivers)?, sleeps))
            });
            samples.push(sample);
        })?;
        let samples = samples.into_iter().collect::<Result<Vec<_>>>()?;
        let [(first, before), (last, after)] = &samples[..] else {
            bail!("the load did not report its measured part");
        };
        Ok(Cell {
            server: self.program.name,
            cost: first.cost_until(last, load.completed),
            sleeps: [0, 1].map(|n| after[n].saturating_sub(before[n])),
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
}
