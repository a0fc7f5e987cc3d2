//! Runs what was planned, one run after the other, and keeps what came of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::calls::{self, Counting};
use super::content::Content;
use super::generators::{Generator, Lengths};
use super::instructions::{self, Baseline};
use super::options::Options;
use super::plan::{Group, Job, Set};
use super::results::{Calls, Load, Missing, Results, Run};
use super::rig::{self, CLIENT_CORE, Rig, SERVER_CORE, SERVER_LINK};
use super::servers::{self, Folders, Program, Started};
use super::time_line;
use super::usage::{self, Sample, Usage, Watched};
use crate::interrupt;
use crate::shell::{self, Context as _, Failure, Result};

/// The file of the raw results.
pub(crate) const RESULTS: &str = "results.json";

/// Lines of a log that go with what is missing.
const LOG_LINES: usize = 20;

/// A run in which system calls are counted.
const CALLS_LENGTHS: Lengths = Lengths {
    warm_up: 0.3,
    measured: 1.0,
};
/// How long they are counted in it.
const CALLS_SECONDS: f64 = 0.6;

/// What a run was, beside what its load says.
struct Measured {
    load: Load,
    usage: Usage,
    resident: Option<u64>,
    /// Bytes that the kernel's tables have grown by since the server was
    /// started.
    tables: u64,
}

pub(crate) struct Runner {
    results: Results,
    content: Content,
    folders: Folders,
    folder: PathBuf,
    /// Peers and generators that are not there.
    absent: BTreeSet<&'static str>,
    /// Runs that are done, and all.
    done: usize,
    all: usize,
    /// Parts of the time that receiving took in the kernel's threads, at both
    /// ends, by run.
    receiving: Vec<[f64; 2]>,
}

impl Runner {
    pub(crate) fn new(
        options: &Options,
        results: Results,
        programs: &Path,
        folder: &Path,
    ) -> Result<Self> {
        Ok(Self {
            results,
            content: Content::create()?,
            folders: Folders {
                programs: programs.to_path_buf(),
                configs: folder.join("configs"),
                nsd_xdp: options.nsd_xdp.clone(),
            },
            folder: folder.to_path_buf(),
            absent: BTreeSet::new(),
            done: 0,
            all: 0,
            receiving: Vec::new(),
        })
    }

    pub(crate) fn into_results(self) -> Results {
        self.results
    }

    /// Runs all sets; an error only when nothing further can be run.
    pub(crate) fn run(&mut self, sets: &[Set]) -> Result<()> {
        let jobs = |set: &Set| {
            let jobs: usize = set.groups.iter().map(|group| group.jobs.len()).sum();
            jobs * set.repeats as usize
        };
        self.all = sets.iter().map(jobs).sum();
        for set in sets {
            // What has failed once is not tried again.
            let mut failed = BTreeSet::new();
            for repeat in 0..set.repeats {
                for (index, group) in set.groups.iter().enumerate() {
                    if failed.contains(&index) || !self.is_there(group) {
                        self.done += group.jobs.len();
                        continue;
                    }
                    let outcome = self.run_group(group, repeat);
                    interrupt::check()?;
                    if let Err(failure) = outcome {
                        failed.insert(index);
                        let jobs: Vec<String> = group.jobs.iter().map(title).collect();
                        let what = format!("{}: {}", group.spec.program.name(), jobs.join("; "));
                        self.miss(what, &failure.to_string());
                    }
                    self.save()?;
                }
            }
        }
        self.save()
    }

    /// Whether the group's program is installed; says so once when not.
    fn is_there(&mut self, group: &Group) -> bool {
        let program = group.spec.program;
        let Some((package, name)) = program.package() else {
            return true;
        };
        if is_installed(name) {
            return true;
        }
        if self.absent.insert(package) {
            let why = format!("{name} is not installed: apt-get install {package}");
            self.miss(program.name(), &why);
        }
        false
    }

    fn miss(&mut self, what: String, failure: &str) {
        let (why, log) = failure.split_once('\n').unwrap_or((failure, ""));
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        println!("bench: missing: {what}: {why}");
        for line in last {
            println!("    {line}");
        }
        let missing = Missing {
            what,
            why: why.to_owned(),
            log: last.join("\n"),
        };
        let is_known = |one: &Missing| one.what == missing.what && one.why == missing.why;
        if !self.results.missing.iter().any(is_known) {
            self.results.missing.push(missing);
        }
    }

    /// Starts a server, runs its jobs and ends it.
    fn run_group(&mut self, group: &Group, repeat: u32) -> Result<()> {
        let rig = Rig::build(group.tuning)?;
        let tables = usage::kernel_tables();
        let mut started = servers::start(&group.spec, &rig, &self.content, &self.folders)?;
        let first = self.results.runs.len();
        for job in &group.jobs {
            interrupt::check()?;
            self.done += 1;
            let outcome = self.run_job(job, group, repeat, &rig, &started, tables);
            if let Some(status) = started.server.ended()? {
                return Err(Failure::new(format!(
                    "it has ended by itself with {status}\n{}",
                    started.server.output()
                )));
            }
            if let Err(failure) = outcome {
                interrupt::check()?;
                let what = format!("{}: {}", group.spec.program.name(), title(job));
                self.miss(what, &failure.to_string());
            }
            self.save()?;
        }
        if !group.spec.program.is_ours() {
            // Some wait for their clients when they are asked to end, and their
            // workers stay when only the first process is killed.
            started.processes.iter().copied().for_each(rig::kill);
            return started.server.stop(Signal::KILL).map(drop);
        }
        let (_, output) = started.server.stop(Signal::TERM)?;
        // Its summary is of all jobs together.
        if group.jobs.len() == 1 {
            for run in &mut self.results.runs[first..] {
                run.batches = calls::batches(&output);
            }
        }
        Ok(())
    }

    fn run_job(
        &mut self,
        job: &Job,
        group: &Group,
        repeat: u32,
        rig: &Rig,
        started: &Started,
        tables: u64,
    ) -> Result<()> {
        if let Some(program) = job.generator.program()
            && !is_installed(program)
        {
            return Err(Failure::new(format!("{program} is not installed")));
        }
        let server = job
            .line
            .map_or_else(|| group.spec.program.name(), str::to_owned);
        print!("[{:3}/{}] {server}: {}: ", self.done, self.all, title(job));
        flush();
        let measured = self.measure(&job.generator, job.lengths, rig, started, tables);
        let measured = measured.inspect_err(|_| println!("failed"))?;
        let (load, usage) = (measured.load, measured.usage);
        let cost = usage.cost(load.completed);
        if load.completed == 0 {
            println!("no answers");
            return Err(Failure::new(format!(
                "no request was answered; errors: {:?}",
                load.errors
            )));
        }
        let polled = group.spec.program == (Program::Nginx { busy_poll: true });
        let placed = usage.receiving[0] > 0.0 || usage.steered || polled;
        if !placed {
            println!("not placed");
            return Err(Failure::new(format!(
                "the kernel has received nothing for {SERVER_LINK} on core {SERVER_CORE}: its \
                 work was done elsewhere"
            )));
        }
        if !group.tuning.offloads {
            self.receiving.push(usage.receiving);
        }
        println!("{}", outcome(&load, cost.as_ref()));
        let memory = if job.figure == "connections" {
            measured.resident.map(|resident| resident + measured.tables)
        } else {
            measured.resident
        };
        let mut calls = None;
        if job.calls && repeat == 0 {
            match self.count_calls(&job.generator, rig, started) {
                Ok(counted) => calls = Some(counted),
                Err(failure) => {
                    interrupt::check()?;
                    self.miss("system calls".into(), &failure.to_string());
                }
            }
        }
        self.results.runs.push(Run {
            figure: job.figure.to_owned(),
            server,
            x: job.x,
            panel: job.panel.clone(),
            offloads: group.tuning.offloads,
            repeat,
            load,
            cost,
            calls,
            batches: None,
            memory,
        });
        Ok(())
    }

    fn measure(
        &self,
        generator: &Generator,
        lengths: Lengths,
        rig: &Rig,
        started: &Started,
        tables: u64,
    ) -> Result<Measured> {
        let mut watched = Watched {
            cores: [SERVER_CORE, CLIENT_CORE],
            server: started.processes.clone(),
            interface: SERVER_LINK,
            receivers: rig.pin_receivers()?,
        };
        let mut samples: Vec<Result<Sample>> = Vec::new();
        let mut memory = (None, 0);
        let programs = &self.folders.programs;
        let load = generator.run(rig, &self.content, programs, lengths, || {
            if samples.is_empty() {
                // The generator's own program may have brought new threads.
                match rig.pin_receivers() {
                    Ok(receivers) => watched.receivers = receivers,
                    Err(failure) => samples.push(Err(failure)),
                }
            } else {
                let grown = usage::kernel_tables().saturating_sub(tables);
                memory = (usage::resident(&watched.server), grown);
            }
            samples.push(Sample::take(&watched));
        })?;
        let mut samples = samples.into_iter();
        let mut next = || {
            samples
                .next()
                .unwrap_or_else(|| Err(Failure::new("the load did not say when it measured")))
        };
        let (first, last) = (next()?, next()?);
        Ok(Measured {
            load,
            usage: Usage::between(&first, &last),
            resident: memory.0,
            tables: memory.1,
        })
    }

    /// Runs the load again, shortly, and counts the server's system calls.
    fn count_calls(&self, generator: &Generator, rig: &Rig, started: &Started) -> Result<Calls> {
        if !is_installed("perf") {
            return Err(Failure::new(
                "perf is not installed: apt-get install linux-perf",
            ));
        }
        let watched = Watched {
            cores: [SERVER_CORE, CLIENT_CORE],
            server: started.processes.clone(),
            interface: SERVER_LINK,
            receivers: rig.pin_receivers()?,
        };
        let mut counting = None;
        let mut samples: Vec<Result<Sample>> = Vec::new();
        let programs = &self.folders.programs;
        let load = generator.run(rig, &self.content, programs, CALLS_LENGTHS, || {
            if counting.is_none() {
                counting = Some(Counting::start(&started.processes, CALLS_SECONDS));
            }
            samples.push(Sample::take(&watched));
        })?;
        let per_second = match counting {
            Some(counting) => counting?.finish()?,
            None => return Err(Failure::new("the load did not say when it measured")),
        };
        let samples = samples.into_iter().collect::<Result<Vec<_>>>()?;
        let [first, last] = &samples[..] else {
            return Err(Failure::new("the load did not say when it measured"));
        };
        let usage = Usage::between(first, last);
        let frames_per_second = usage.frames as f64 / usage.seconds.max(1e-9);
        Ok(Calls {
            per_request: per_second / load.rate.max(1e-9),
            per_second,
            packets_per_call: frames_per_second / per_second.max(1e-9),
        })
    }

    /// Records one busy connection for the time line.
    pub(crate) fn record_time_line(&mut self) -> Result<()> {
        print!("time line: ");
        flush();
        match time_line::record(&self.content, &self.folders) {
            Ok(points) => {
                println!("{} segments", points.len());
                self.results.time_line = points;
            }
            Err(failure) => {
                interrupt::check()?;
                self.miss("time line".into(), &failure.to_string());
            }
        }
        self.save()
    }

    /// Counts the instructions of our own code.
    pub(crate) fn count_instructions(&mut self) -> Result<()> {
        let counted = Baseline::read().and_then(|baseline| {
            self.results.instructions_baseline = baseline.instructions;
            instructions::count()
        });
        match counted {
            Ok(counted) => self.results.instructions = counted,
            Err(failure) => {
                interrupt::check()?;
                self.miss("instructions".into(), &failure.to_string());
            }
        }
        self.save()
    }

    /// Writes what there is, so that nothing is lost whatever comes.
    fn save(&mut self) -> Result<()> {
        self.results.cores = self.cores();
        let path = self.folder.join(RESULTS);
        let part = self.folder.join("results.json.part");
        let text = serde_json::to_string_pretty(&self.results).context("writing the results")?;
        fs::write(&part, text).context(format_args!("writing {}", part.display()))?;
        fs::rename(&part, &path).context(format_args!("writing {}", path.display()))
    }

    /// Which core did what.
    fn cores(&self) -> Vec<String> {
        let mut cores = vec![
            format!(
                "Core {SERVER_CORE}: the server's processes, and the kernel's threaded NAPI of \
                 its end of the veth pair (napi/{SERVER_LINK}-*)."
            ),
            format!(
                "Core {CLIENT_CORE}: the load generator, the kernel's threaded NAPI of the \
                 client's end, and this command, which sleeps while a run is on."
            ),
        ];
        let median = |end: usize| {
            let mut parts: Vec<f64> = self.receiving.iter().map(|parts| parts[end]).collect();
            parts.sort_by(f64::total_cmp);
            parts.get(parts.len() / 2).map(|part| part * 100.0)
        };
        if let (Some(server), Some(client)) = (median(0), median(1)) {
            cores.push(
                "With segmentation offload veth leaves TCP to the stack's backlog instead, which \
                 receive packet steering (rps_cpus) puts on the same two cores."
                    .to_owned(),
            );
            cores.push(format!(
                "Looked at in each run: these threads exist, may run nowhere else, and ran: {server:.0} % \
                 of the time at the server's end, {client:.0} % at the client's (medians of {} \
                 runs).",
                self.receiving.len()
            ));
        }
        cores
    }
}

/// What a job is called in progress and in what is missing.
fn title(job: &Job) -> String {
    let mut title = format!("{} {}", job.figure, job.x);
    if !job.panel.is_empty() {
        title.push_str(", ");
        title.push_str(&job.panel);
    }
    title
}

fn outcome(load: &Load, cost: Option<&super::results::Cost>) -> String {
    let cost = cost.map_or(String::new(), |cost| {
        format!(
            ", {:.2} µs each ({:.2} user), core {:.0} % busy",
            cost.core_us,
            cost.user_us,
            cost.busy * 100.0
        )
    });
    let errors = match load.errors.values().sum::<u64>() {
        0 => String::new(),
        n => format!(", {n} errors"),
    };
    let (rate, p99) = (load.rate, load.latency_us[1]);
    format!("{rate:.0}/s{cost}, p99 {p99:.0} µs{errors}")
}

fn flush() {
    use std::io::Write as _;
    // Progress that nobody can see is no reason to end.
    let _ = std::io::stdout().flush();
}

/// Root's own programs may be missing on the path of the one who calls.
fn is_installed(program: &str) -> bool {
    let places = ["/usr/sbin", "/usr/local/sbin", "/sbin"];
    shell::is_installed(program)
        || places
            .iter()
            .any(|folder| Path::new(folder).join(program).is_file())
}
