//! `xtask e2e`: both servers, as built for release, against ordinary clients
//! (curl, dig, sockets of the kernel) in network namespaces.

pub(crate) mod abusers;
mod bad_input;
pub(crate) mod checks;
mod crowd;
mod dig;
mod dns;
mod echo;
mod expected;
mod flood;
mod gigabyte;
mod headers;
pub(crate) mod http;
mod matrix;
mod pressure;
mod readers;
mod rig;
mod rights;
mod secrets;
mod stations;
pub(crate) mod supers;
pub(crate) mod web;

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::process::Signal;

use crate::shell::{self, Context as _, Failure, Result, Scratch};
use crate::{interrupt, setup};
use checks::Checks;
use matrix::{Program, Scenario};
use rig::Rig;

/// Scenarios that run at the same time, each in namespaces of its own.
const LANES: usize = 3;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run a sample in which every pair of choices meets (the default).
    #[arg(long = "quick", overrides_with = "full")]
    _quick: bool,
    /// Run every combination.
    #[arg(long)]
    full: bool,
    /// Only print the names of the scenarios.
    #[arg(long)]
    list: bool,
    /// The seed of the losses in the matrix's first scenario.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    seed: u64,
    /// Use the two programs from DIR instead of a release build.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Skip packages and build.
    #[arg(long, hide = true)]
    built: bool,
    /// Only scenarios and cases whose name contains this.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

/// Runs the command; an error when any check failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for scenario in scenarios_of(options) {
            println!("{scenario}");
        }
        return Ok(());
    }
    if !options.built && options.programs.is_none() {
        setup::run()?;
        build()?;
        if PRESSURE.iter().any(|(name, _)| presses(options, name)) {
            shell::build_release("e2e", &["benches"])?;
        }
    }
    let checks = run_built(options)?;
    println!("{checks}");
    if checks.failed() == 0 {
        Ok(())
    } else {
        Err(Failure::new("not everything is right"))
    }
}

/// Runs this command, already built, by [`count_apart`].
pub(crate) fn run_apart(is_full: bool, filter: &str) -> Result<(u32, u32)> {
    let mut args = vec!["e2e", "--built"];
    args.extend(is_full.then_some("--full"));
    args.extend(Some(filter).filter(|filter| !filter.is_empty()));
    count_apart(&args)
}

/// Runs a command of ours as a process of its own, as root; passes its output
/// on, and returns how many checks passed and failed.
pub(crate) fn count_apart(args: &[&str]) -> Result<(u32, u32)> {
    let exe = std::env::current_exe().context("finding this program's own file")?;
    let mut command = shell::as_root(exe)?;
    command.args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context(shell::shown(&command))?;
    let mut counts = None;
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|pipe| BufReader::new(pipe).lines())
    {
        let line = line.context("reading what the tests say")?;
        match checks::counts(&line) {
            Some(last) => counts = Some(last),
            None => println!("{line}"),
        }
    }
    child.wait().context("waiting for the tests")?;
    counts.ok_or_else(|| Failure::new("the tests did not come to their end"))
}

/// Builds the two programs as users do.
pub(crate) fn build() -> Result<()> {
    shell::build_release("e2e", &["sandstorm", "namestorm"])
}

fn scenarios_of(options: &Options) -> Vec<Scenario> {
    let mut scenarios = if options.full {
        matrix::full()
    } else {
        matrix::sample()
    };
    scenarios.retain(|scenario| scenario.to_string().contains(&options.filter));
    scenarios
}

/// Runs the scenarios and the bad input, with what is built. As root.
fn run_built(options: &Options) -> Result<Checks> {
    let programs = match &options.programs {
        Some(folder) => folder.clone(),
        None => shell::target_folder()?.join("release"),
    };
    let scratch = Scratch::create("e2e")?;
    let content = Content::prepare(&scratch)?;
    let everything = matrix::full();
    let mut scenarios: Vec<(Scenario, Option<u64>)> = Vec::new();
    for scenario in scenarios_of(options) {
        let place = everything.iter().position(|one| *one == scenario);
        let seed = place.map(|place| options.seed + place as u64);
        scenarios.push((scenario, seed.filter(|_| scenario.loss)));
    }
    // Those that wait for retransmissions take long: the others fill the gaps.
    scenarios.sort_by_key(|(scenario, _)| !scenario.loss);
    let mut all = run_side_by_side(&scenarios, &programs, &content);
    for (name, run) in APART {
        if name.contains(&options.filter) {
            all.add(run_alone(name, run, &programs, &content)?);
        }
    }
    // One by one: they measure times and memory.
    for (name, run) in PRESSURE {
        if presses(options, name) {
            all.add(run_alone(name, run, &programs, &content)?);
        }
    }
    Ok(all)
}

/// What is run by itself.
type Alone = fn(&Path, &Content, &mut Checks) -> Result<()>;

/// What is outside the matrix, and always run.
const APART: [(&str, Alone); 7] = [
    ("bad input", bad_input::run),
    ("super-segments", supers::run),
    ("slow readers", readers::run),
    ("who gives way", pressure::sample),
    ("rights", rights::run),
    ("secrets", secrets::run),
    ("other stations", stations::run),
];

/// The servers under pressure.
const PRESSURE: [(&str, Alone); 4] = [
    ("flood", flood::run),
    ("crowd", crowd::run),
    ("gigabyte", gigabyte::run),
    ("pressure", pressure::whole),
];

fn run_alone(name: &str, run: Alone, programs: &Path, content: &Content) -> Result<Checks> {
    interrupt::check()?;
    let start = Instant::now();
    let mut checks = Checks::default();
    run(programs, content, &mut checks)?;
    checks.print(name, None, start.elapsed());
    Ok(checks)
}

/// Whether a part of [`PRESSURE`] is asked for: they take a generator of the
/// benchmarks, and the machine for themselves.
fn presses(options: &Options, name: &str) -> bool {
    options.filter == name || options.full && name.contains(&options.filter)
}

/// Runs scenarios, [`LANES`] at a time.
fn run_side_by_side(
    scenarios: &[(Scenario, Option<u64>)],
    programs: &Path,
    content: &Content,
) -> Checks {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Checks::default());
    let lane = || {
        while let Some((scenario, seed)) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            if interrupt::seen() {
                return;
            }
            let start = Instant::now();
            let mut checks = Checks::default();
            let outcome = run_scenario(scenario, *seed, programs, content, &mut checks);
            if let Err(failure) = outcome {
                checks.fail("the scenario itself", &failure.to_string());
            }
            if interrupt::seen() {
                return;
            }
            checks.print(&scenario.to_string(), *seed, start.elapsed());
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(checks);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What the servers serve.
pub(crate) struct Content {
    /// Scratch space of the run.
    pub(crate) folder: PathBuf,
    /// A site: the sample's pages and the sized bodies.
    pub(crate) site: PathBuf,
    /// The folder of the sample zones.
    pub(crate) zones: PathBuf,
    /// What the zones must answer.
    pub(crate) table: Vec<expected::Entry>,
    /// The table's questions, one a line, for dig.
    pub(crate) questions: PathBuf,
}

impl Content {
    fn prepare(scratch: &Scratch) -> Result<Self> {
        let sample = shell::repository().join("xtask/sample");
        let site = scratch.path().join("site");
        web::make_site(&sample.join("site"), &site)?;
        let folder = scratch.path().to_path_buf();
        let zones = sample.join("zones");
        let content = Self {
            table: expected::read(&zones.join("storm.test.expected"))?,
            questions: folder.join("questions"),
            folder,
            site,
            zones,
        };
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).context(format_args!("writing {}", path.display()))
        };
        write(&content.folder.join(web::SECRET_FILE), web::SECRET)?;
        write(&content.questions, &dns::questions(&content.table))?;
        Ok(content)
    }

    /// The value for `--zone` of each sample zone: one with its origin in the
    /// file, one with its origin on the command line.
    pub(crate) fn zone_arguments(&self) -> [String; 2] {
        [
            self.zones.join("storm.test.zone").display().to_string(),
            format!(
                "2.0.192.in-addr.arpa={}",
                self.zones.join("2.0.192.in-addr.arpa.zone").display()
            ),
        ]
    }
}

fn run_scenario(
    scenario: &Scenario,
    seed: Option<u64>,
    programs: &Path,
    content: &Content,
    checks: &mut Checks,
) -> Result<()> {
    let rig = Rig::build(scenario)?;
    let before = rig.links()?;
    let start = || rig.start(scenario, seed, programs, content);

    let (server, place) = start()?;
    rig.as_client(|| {
        echo::check(&place, checks);
        headers::check(&place, &scenario.program, checks);
        match scenario.program {
            Program::Sandstorm { .. } => web::check(&place, content, checks),
            Program::Namestorm { .. } => dns::check(&place, content, checks),
        }
    })?;
    if checks.failed() > 0 {
        checks.note(&server.output());
    }
    let waiting = rig.as_client(|| {
        let to = |address| TcpStream::connect_timeout(&place.socket(address), http::PATIENCE);
        place.addresses().map(to)
    })?;
    let stopped = server.stop(Signal::TERM);
    checks.check("SIGTERM ends it with status 0 and a summary", || {
        let (status, output) = stopped?;
        if !status.success() || !output.contains("uptime:") {
            return Err(Failure::new(format!("{status}:\n{output}")));
        }
        Ok(())
    });
    // (What is lost goes no second time then.)
    if !place.loss {
        checks.check("whoever is connected hears of the end", || {
            waiting.into_iter().try_for_each(hears_the_end)
        });
    }
    checks.check("nothing is left after SIGTERM", || {
        rig.expect_links(&before)
    });

    // A killed one leaves nothing that the next one trips over.
    let (server, _) = start()?;
    let killed = server.stop(Signal::KILL);
    checks.check("kill -9 leaves nothing attached", || {
        killed?;
        rig.expect_links(&before)
    });
    let again = start();
    checks.check("it starts again after kill -9", || {
        let (server, _) = again?;
        let (status, output) = server.stop(Signal::INT)?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new(format!("{status}:\n{output}")))
        }
    });
    Ok(())
}

/// Whether a client that waits for something learns that nothing will come.
fn hears_the_end(stream: io::Result<TcpStream>) -> Result<()> {
    let mut stream = stream.context("connecting")?;
    let patience = Some(http::PATIENCE);
    stream.set_read_timeout(patience).context("its time")?;
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        other => Err(Failure::new(format!("it reads {other:?}"))),
    }
}
