//! `xtask bench reloads`: what a reload costs the clients.
//!
//! Each server answers an open loop at half of its capacity, in ten parts. In every other part content
//! changes, and is reloaded once a second. The reload thread shares the generator's core, and every reply
//! must have the old or the new content, never parts of both. Only dnsperf does not check this. The thread
//! does some work after the new content is served, so the time of a reload is not only that until then.
//!
//! A shared host changes latencies from minute to minute. So quiet parts and those with reloads take
//! turns, and the medians of their latencies are compared. A part that the host of a virtual machine holds
//! up is repeated: see [`witness`].
//!
//! No worker should stop for more than 200 µs. The servers count the batches of packets that took so long,
//! and the table has their share. A batch of many requests under load, or the host, may also take so long.
//! So the share of the quiet parts stands beside it.

mod content;
mod part;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use super::content::{Content, HOSTER};
use super::report::Spread;
use super::rig::{self, CLIENT_CORE, Rig, Tuning};
use super::servers::{Program, SANDSTORM, Serves, Spec, TURNAROUND};
use super::{Common, generators, machine, witness};
use crate::markdown::{owned, write_table};
use crate::metrics::Metrics;
use crate::server::Server;
use crate::{interrupt, shell};
use content::Served;
use part::{Part, slow_batches};

/// Options of `cargo xtask bench reloads`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: Common,

    /// Run only cases whose name contains this text.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

/// Total duration of the parts with reloads, and of the quiet ones, in seconds.
const SECONDS: f64 = 60.0;
/// Number of parts of either kind.
const PARTS: usize = 5;
/// Duration of the run that measures a server's capacity, in seconds.
const CAPACITY_SECONDS: f64 = 3.0;
/// Duration of the load during which `find` is timed, in seconds.
const FIND_SECONDS: f64 = 15.0;
/// Time from one reload to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// Time limit for a reload.
const RELOAD_LIMIT: Duration = Duration::from_mins(2);
/// Number of connections that the servers hold.
const CONNECTIONS: u32 = 8_192;
const QUERIES_OVER_TCP: &str = "dnsperf -m tcp -s {address} -d {questions} -l {seconds} -c 16";
const HOSTER_QUERIES: &str = "load dns --kind hoster --hosts 100000 --versions";

/// How content changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// All of it, from one version to the other.
    Whole,
    /// All of it. Every third version is broken, and another file is being written all the time.
    Broken,
    /// A small part of much content.
    Part,
    /// The same, but the command `reload NAME` asks for this part, instead of SIGHUP.
    Named,
}

/// A server, a load, and what changes meanwhile.
struct Case {
    name: &'static str,
    program: &'static Program,
    serves: Serves,
    load: &'static str,
    change: Change,
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { name: "keep-alive", program: &SANDSTORM, serves: Serves::Files, load: "load http --connections 64", change: Change::Whole },
    Case { name: "new connections", program: &SANDSTORM, serves: Serves::Files, load: "load http --connections 64 --requests 1", change: Change::Whole },
    Case { name: "keep-alive, broken versions and a file being written", program: &SANDSTORM, serves: Serves::Files, load: "load http --connections 64", change: Change::Broken },
    Case { name: "keep-alive, 10 of 100,000 files change", program: &SANDSTORM, serves: Serves::Files, load: "load http --connections 64", change: Change::Part },
    Case { name: "queries over UDP", program: &TURNAROUND, serves: Serves::Zone(Some(100)), load: "load dns --hosts 100 --versions", change: Change::Whole },
    Case { name: "queries over TCP", program: &TURNAROUND, serves: Serves::Zone(Some(100)), load: QUERIES_OVER_TCP, change: Change::Whole },
    Case { name: "queries over UDP, broken versions", program: &TURNAROUND, serves: Serves::Zone(Some(100)), load: "load dns --hosts 100 --versions", change: Change::Broken },
    Case { name: "queries over UDP, 1 of 1,000,000 names changes", program: &TURNAROUND, serves: Serves::Zone(Some(1_000_000)), load: "load dns --hosts 1000000 --versions", change: Change::Part },
    Case { name: "hoster's queries, 1 of 100,000 zones changes", program: &TURNAROUND, serves: Serves::ZoneOf(HOSTER, Some(100_000)), load: HOSTER_QUERIES, change: Change::Part },
    Case { name: "hoster's queries, 1 of 100,000 zones is reloaded by name", program: &TURNAROUND, serves: Serves::ZoneOf(HOSTER, Some(100_000)), load: HOSTER_QUERIES, change: Change::Named },
];

/// The reloads of a server so far.
#[derive(Default)]
struct Reloads {
    /// Times of those that succeeded, from SIGHUP or the command until all workers serve the new content.
    times: Vec<Duration>,
    /// Number of those with a broken version.
    broken: u32,
}

/// What a case found out.
#[derive(Default)]
struct Findings {
    quiet: Vec<Part>,
    reloading: Vec<Part>,
    reloads: Reloads,
    /// How long `find` takes for the same files under the same load.
    find: Option<Duration>,
    /// Number of parts that the host of the machine has held up: see [`witness::undisturbed`].
    held_up: u32,
    /// The packets that the server has dropped, by its own account. Other losses are the generator's.
    dropped: String,
}

/// Measures all cases, and writes a table.
pub(crate) fn run(options: &Options, target: &Path, folder: &Path) -> Result<()> {
    let content = Content::create(target.join("release"), folder)?;
    let heads = [
        "case",
        "requests/s",
        "errors",
        "dropped by the server",
        "p50, p99, p99.9 µs, quiet",
        "p50, p99, p99.9 µs, reloading",
        "batches of 200 µs and more: quiet, reloading",
        "reloads",
        "broken versions",
        "a reload takes, ms",
        "longest, ms",
        "`find` takes, ms",
        "parts held up by the host",
    ];
    let (busy, share) = machine::busy_before()?;
    let mut rows = Vec::new();
    let mut faults = Vec::new();
    for case in CASES {
        let wanted = case.name.contains(&options.filter);
        if !wanted || !options.common.selects(case.program.name) {
            continue;
        }
        let seconds = options.common.seconds.unwrap_or(SECONDS);
        match case.measure(&content, seconds) {
            Ok(findings) => {
                let row = findings.row(case.name);
                eprintln!("reloads: {}", row.join(" | "));
                faults.extend(findings.faults(case.name));
                rows.push(row);
            }
            Err(failure) => {
                interrupt::check()?;
                faults.push(format!("{}: {failure:#}", case.name));
            }
        }
    }
    let mut page = format!("{busy}: {share}\n\n");
    write_table(&mut page, &owned(&heads), &rows);
    shell::write(&folder.join("reloads.md"), &page)?;
    println!("{page}");
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

impl Case {
    fn measure(&self, content: &Content, seconds: f64) -> Result<Findings> {
        let is_much = matches!(self.change, Change::Part | Change::Named);
        let served = Served::create(content, self.serves, is_much)?;
        let [socket, metrics] = ["socket", "metrics"].map(|name| content.folder().join(name));
        let spec = Spec {
            program: self.program,
            serves: self.serves,
            options: format!(
                "--control-socket {} {}",
                socket.display(),
                Metrics::option(&metrics)
            ),
            connections: CONNECTIONS,
            tuning: Tuning::USUAL,
            limited: false,
        };
        let rig = Rig::build(spec.tuning)?;
        let (server, _) = spec.start(&rig, content)?;
        let load = |rate: Option<f64>, seconds: f64| {
            let load = format!("{}{}{}", self.load, served.options(), self.pace(rate));
            let mut pinned = rig.pin_receivers();
            let load = generators::run(&load, CONNECTIONS, &rig, content, [0.5, seconds], || {
                // Attaching the generator's XDP program may have created new threads.
                pinned = rig.pin_receivers();
            });
            pinned.and(load)
        };
        let ask = || match self.change {
            Change::Named => served.reload_by_name(content, &socket),
            _ => server.signal(Signal::HUP),
        };
        let capacity = load(None, CAPACITY_SECONDS)?.rate;
        let mut findings = Findings::default();
        if self.change == Change::Part && self.serves == Serves::Files {
            let core = CLIENT_CORE.to_string();
            // As the reload thread.
            let find = ["nice", "-n", "10", "taskset", "-c", &core, "find"];
            findings.find = Some(std::thread::scope(|scope| {
                let find = scope.spawn(|| served.time_of_find(&find));
                load(Some(capacity / 2.0), FIND_SECONDS)?;
                find.join().expect("this thread does not panic")
            })?);
        }
        for _ in 0..PARTS {
            let load = || load(Some(capacity / 2.0), seconds / PARTS as f64);
            let part = || Part::measure(&metrics, load);
            let (quiet, held_up) = witness::undisturbed(part)?;
            findings.quiet.push(quiet);
            findings.held_up += held_up;
            let (reloading, held_up) = witness::undisturbed(|| {
                self.load_during_reloads(part, &served, &server, ask, &mut findings.reloads)
            })?;
            findings.reloading.push(reloading);
            findings.held_up += held_up;
        }
        let summary = server.stop_well()?;
        let dropped = summary
            .lines()
            .find_map(|line| line.strip_prefix("dropped:"))
            .context("the server has printed no summary")?;
        dropped.trim().clone_into(&mut findings.dropped);
        Ok(findings)
    }

    /// Calls `part` while the content changes once a second. Returns what `part` has measured, and adds to
    /// `reloads`.
    fn load_during_reloads(
        &self,
        part: impl FnOnce() -> Result<Part>,
        served: &Served,
        server: &Server,
        ask: impl Fn() -> Result<()> + Send,
        reloads: &mut Reloads,
    ) -> Result<Part> {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| self.change_until(&ended, served, server, ask, reloads));
            let writer = scope.spawn(|| self.keep_writing_until(&ended, served));
            let part = part();
            ended.store(true, Ordering::Relaxed);
            let written = writer.join().expect("the writer does not panic");
            let changed = changer.join().expect("the changer does not panic");
            written.and(changed)?;
            part
        })
    }

    /// Returns the generator's options for this rate, or for a closed loop.
    fn pace(&self, rate: Option<f64>) -> String {
        let option = if self.load == QUERIES_OVER_TCP {
            "-Q"
        } else {
            "--rate"
        };
        rate.map_or(String::new(), |rate| format!(" {option} {rate:.0}"))
    }

    /// Changes the content and calls `ask` for a reload once a second, until `ended` is set. Adds to
    /// `reloads`.
    fn change_until(
        &self,
        ended: &AtomicBool,
        served: &Served,
        server: &Server,
        ask: impl Fn() -> Result<()>,
        Reloads { times, broken }: &mut Reloads,
    ) -> Result<()> {
        pin_reloads(server)?;
        for turn in 0_usize.. {
            let start = Instant::now();
            let is_broken = self.change == Change::Broken && turn % 3 == 2;
            let word = if is_broken {
                *broken += 1;
                served.break_it()?;
                "not reloaded, the old content stays"
            } else {
                served.change((times.len() + 1) % 2)?;
                "\nreloaded: "
            };
            let taken = server.time_until(word, RELOAD_LIMIT, &ask)?;
            if is_broken {
                served.mend()?;
            } else {
                times.push(taken);
            }
            if ended.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(PERIOD.saturating_sub(start.elapsed()));
        }
        Ok(())
    }

    /// With [`Change::Broken`], writes a served file in place until `ended` is set.
    fn keep_writing_until(&self, ended: &AtomicBool, served: &Served) -> Result<()> {
        while self.change == Change::Broken && !ended.load(Ordering::Relaxed) {
            served.write_slowly()?;
        }
        Ok(())
    }
}

impl Findings {
    fn row(&self, name: &str) -> Vec<String> {
        let mut times = self.reloads.times.clone();
        times.sort_unstable();
        let millis = |at: Option<&Duration>| {
            at.map_or("none".to_owned(), |time| {
                format!("{:.1}", time.as_secs_f64() * 1e3)
            })
        };
        let rate = (self.reloading.iter())
            .map(|part| part.load.rate)
            .sum::<f64>();
        vec![
            name.to_owned(),
            format!("{:.0}", rate / PARTS as f64),
            self.errors().to_string(),
            self.dropped.clone(),
            latencies(&self.quiet),
            latencies(&self.reloading),
            [&self.quiet, &self.reloading]
                .map(|parts| slow_batches(parts))
                .join(", "),
            times.len().to_string(),
            self.reloads.broken.to_string(),
            millis(times.get(times.len() / 2)),
            millis(times.last()),
            millis(self.find.as_ref()),
            self.held_up.to_string(),
        ]
    }

    /// Returns the number of requests in all parts that had no answer or a wrong one.
    fn errors(&self) -> u64 {
        let parts = self.quiet.iter().chain(&self.reloading);
        parts.flat_map(|part| part.load.errors.values()).sum()
    }

    /// Returns the marks that are missed.
    fn faults(&self, name: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.errors() > 0 {
            let parts = self.quiet.iter().chain(&self.reloading);
            let errors: Vec<_> = parts.map(|part| &part.load.errors).collect();
            faults.push(format!("{name}: not every answer is right: {errors:?}"));
        }
        let [quiet, reloading] =
            [&self.quiet, &self.reloading].map(|parts| latency(parts, 2).median);
        if reloading > 2.0 * quiet {
            faults.push(format!(
                "{name}: p99.9 is {reloading:.0} µs during reloads, more than twice {quiet:.0} µs"
            ));
        }
        let times = self.reloads.times.iter().map(Duration::as_secs_f64);
        if let (Some(find), Some(times)) = (self.find, Spread::of(times))
            && times.median > 3.0 * find.as_secs_f64()
        {
            faults.push(format!(
                "{name}: a reload takes {:.0} ms, more than three times the {} ms of find",
                times.median * 1e3,
                find.as_millis()
            ));
        }
        faults
    }
}

/// Returns one of the latencies in these parts.
fn latency(parts: &[Part], which: usize) -> Spread {
    let values = parts.iter().map(|part| part.load.latency_us[which]);
    Spread::of(values).expect("there are parts")
}

/// Formats p50, p99 and p99.9: medians, and the smallest and the greatest p99.9.
fn latencies(parts: &[Part]) -> String {
    let [p50, p99, p999] = [0, 1, 2].map(|which| latency(parts, which));
    if p999.max == 0.0 {
        return "not reported".to_owned();
    }
    format!(
        "{:.0}, {:.0}, {:.0} ({:.0} to {:.0})",
        p50.median, p99.median, p999.median, p999.min, p999.max
    )
}

/// Moves the server's reload thread to the generator's core.
fn pin_reloads(server: &Server) -> Result<()> {
    let folder = format!("/proc/{}/task", server.id());
    let threads = std::fs::read_dir(&folder).with_context(|| folder.clone())?;
    for thread in threads.flatten() {
        let name = shell::read(&thread.path().join("comm"))?;
        if name.trim_end().ends_with("-load") {
            let id = thread.file_name().to_string_lossy().parse()?;
            ensure!(rig::pin(id, CLIENT_CORE), "cannot pin the reload thread");
            return Ok(());
        }
    }
    bail!("the server has no reload thread")
}
