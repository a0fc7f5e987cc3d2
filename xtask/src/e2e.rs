//! `xtask e2e`: tests both servers with ordinary clients (curl, dig, kernel sockets) in network
//! namespaces.

mod abusers;
mod browser;
mod browsing;
pub(crate) mod checks;
mod chromium;
mod clients;
mod counts;
mod crawl;
mod disk;
mod dns;
mod flood;
pub(crate) mod http;
mod large_site;
mod mangled;
mod many;
mod many_zones;
mod matrix;
mod options;
mod passwords;
mod peers;
mod pressure;
mod privileges;
mod refusals;
mod rig;
mod secrets;
mod stations;
pub(crate) mod supers;
mod transfers;
mod validators;
pub(crate) mod web;

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::shell;
use crate::{interrupt, setup};
use checks::Checks;
use matrix::Scenario;
use rig::Rig;

/// Number of scenarios or parts that run at the same time, each in its own namespaces.
const LANES: usize = 4;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run every combination of choices, instead of a sample that has every pair of choices.
    #[arg(long)]
    all: bool,
    /// Only print the names of the matrix's scenarios.
    #[arg(long)]
    list: bool,
    /// Seed of the packet loss in the matrix's first scenario. Later scenarios add their index.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    seed: u64,
    /// Test the sandstorm and namestorm in DIR instead of building them.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Do not install packages or build programs.
    #[arg(long, hide = true)]
    built: bool,
    /// Run only scenarios and cases whose name contains this text.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

/// A test outside the matrix of scenarios.
type Part = fn(&Env, &mut Checks) -> Result<()>;

/// Tests outside the matrix that run by default, by name. Those that take longest come first.
const PARTS: [(&str, Part); 18] = [
    ("mangled messages", mangled::sample),
    ("many zones", many_zones::sample),
    ("validators", validators::sample),
    ("other DNS servers", peers::sample),
    ("zone transfers", transfers::run),
    ("who gives way", pressure::sample),
    ("a browser", browser::sample),
    ("browsing", browsing::run),
    ("privileges", privileges::run),
    ("bad input", refusals::run),
    ("super-segments", supers::run),
    ("counts", counts::run),
    ("other programs", clients::run),
    ("slow readers", many::readers),
    ("files on the disk", disk::run),
    ("passwords", passwords::run),
    ("secrets", secrets::run),
    ("other stations", stations::run),
];

/// Tests under heavy load, by name. Some need the benchmarks' load generator, and all need an idle
/// machine, so they run only by name or with `--all`.
const PRESSURE: [(&str, Part); 5] = [
    ("flood", flood::run),
    ("crowd", many::crowd),
    ("gigabyte", supers::gigabyte),
    ("pressure", pressure::whole),
    ("a browser beside 10,000 slow readers", browser::whole),
];

/// Tests that take minutes, by name. They run only by name or with `--all`.
const LONG: [(&str, Part); 6] = [
    ("a minute of mangled messages", mangled::whole),
    ("100,000 zones", many_zones::whole),
    ("validators of many zones", validators::whole),
    ("a large site", large_site::run),
    ("crawl", crawl::run),
    ("DNS servers with many seeds", peers::whole),
];

impl Options {
    fn scenarios(&self) -> Vec<Scenario> {
        let all = if self.all {
            matrix::full
        } else {
            matrix::sample
        };
        let mut scenarios = all();
        scenarios.retain(|scenario| scenario.to_string().contains(&self.filter));
        scenarios
    }

    fn parts(&self) -> impl Iterator<Item = &(&'static str, Part)> {
        let usual = PARTS.iter().filter(|(name, _)| name.contains(&self.filter));
        usual.chain(self.only_full(&LONG))
    }

    fn pressure(&self) -> impl Iterator<Item = &(&'static str, Part)> {
        self.only_full(&PRESSURE)
    }

    /// Returns the tests that were named, or those that the filter leaves of a full run.
    fn only_full<'a>(
        &'a self,
        all: &'a [(&'static str, Part)],
    ) -> impl Iterator<Item = &'a (&'static str, Part)> {
        all.iter()
            .filter(|(name, _)| self.filter == *name || self.all && name.contains(&self.filter))
    }
}

/// Runs the command. Returns an error if any check failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for scenario in options.scenarios() {
            println!("{scenario}");
        }
        return Ok(());
    }
    if !options.built && options.programs.is_none() {
        setup::run()?;
        shell::build_release("e2e", &["sandstorm", "namestorm"])?;
        if options.pressure().next().is_some() {
            shell::build_release("e2e", &["benches"])?;
        }
    }
    let scratch = shell::scratch("e2e")?;
    let programs = match &options.programs {
        Some(folder) => folder.clone(),
        None => shell::target_folder()?.join("release"),
    };
    let env = Env::prepare(&scratch, programs)?;
    let mut checks = run_scenarios(options, &env);
    let parts: Vec<_> = options.parts().collect();
    checks.add(in_lanes(&parts, |part| run_part(part, &env)));
    for part in options.pressure() {
        interrupt::check()?;
        checks.add(run_part(part, &env));
    }
    println!("{checks}");
    ensure!(checks.failed() == 0, "{} checks failed", checks.failed());
    Ok(())
}

/// Runs `xtask e2e` as root in a separate process, without a build. Returns how many checks passed
/// and failed.
pub(crate) fn run_apart(is_full: bool, filter: &str) -> Result<(u32, u32)> {
    let mut args = vec!["e2e", "--built"];
    args.extend(is_full.then_some("--all"));
    args.extend(Some(filter).filter(|filter| !filter.is_empty()));
    count_apart(&args)
}

/// Runs an xtask command as root in a separate process. Prints its output, and returns how many
/// checks passed and failed.
pub(crate) fn count_apart(args: &[&str]) -> Result<(u32, u32)> {
    let mut command = shell::as_root(shell::this_program()?)?;
    command.args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context(shell::shown(&command))?;
    let mut counts = None;
    let pipe = child.stdout.take().context("no pipe from the tests")?;
    for line in BufReader::new(pipe).lines() {
        let line = line.context("reading from the tests")?;
        match checks::counts(&line) {
            Some(last) => counts = Some(last),
            None => println!("{line}"),
        }
    }
    child.wait().context("waiting for the tests")?;
    counts.context("the tests did not run to their end")
}

/// Runs `run` for each of `jobs`, [`LANES`] at a time. Returns all checks.
fn in_lanes<T: Sync>(jobs: &[T], run: impl Fn(&T) -> Checks + Sync) -> Checks {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Checks::default());
    let lane = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let checks = run(job);
            if interrupt::seen() {
                return;
            }
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

/// Runs a test outside the matrix, and prints its checks.
fn run_part(&(name, part): &(&str, Part), env: &Env) -> Checks {
    let (start, mut checks) = (Instant::now(), Checks::default());
    if let Err(failure) = part(env, &mut checks) {
        checks.fail("the test itself", &format!("{failure:#}"));
    }
    checks.print(name, None, start.elapsed());
    checks
}

/// Runs the scenarios. The seed depends on the scenario's index in the full
/// matrix, so every run gives a scenario the same seed.
fn run_scenarios(options: &Options, env: &Env) -> Checks {
    let everything = matrix::full();
    let mut scenarios = options.scenarios();
    // Start lossy scenarios first, because they wait for retransmissions and take longest.
    scenarios.sort_by_key(|scenario| !scenario.is_lossy());
    in_lanes(&scenarios, |scenario| {
        let place = everything.iter().position(|one| one == scenario);
        let seed = place.filter(|_| scenario.is_lossy());
        let seed = seed.map(|place| options.seed + place as u64);
        let (start, mut checks) = (Instant::now(), Checks::default());
        if let Err(failure) = run_scenario(scenario, seed, env, &mut checks) {
            checks.fail("the scenario itself", &format!("{failure:#}"));
        }
        if !interrupt::seen() {
            checks.print(&scenario.to_string(), seed, start.elapsed());
        }
        checks
    })
}

/// The programs under test, and their content.
#[derive(Clone)]
pub(crate) struct Env {
    programs: PathBuf,
    /// Scratch folder of the run.
    folder: PathBuf,
    /// Folder of the site: the sample pages and the generated bodies.
    site: PathBuf,
    /// Values of `--zone`. One zone has its origin in the file, and the other on the command line.
    zones: [String; 2],
    /// Correct answers for the zones, from the file `storm.test.expected`.
    table: Vec<dns::Message>,
    /// File with the questions of `table`, one per line, for `dig -f`.
    questions: PathBuf,
}

impl Env {
    fn prepare(scratch: &TempDir, programs: PathBuf) -> Result<Self> {
        let sample = shell::repository().join("xtask/sample");
        let zone = |name: &str| sample.join("zones").join(name).display().to_string();
        let folder = scratch.path().to_path_buf();
        let table = dns::expected(&shell::read(zone("storm.test.expected").as_ref())?)?;
        let env = Self {
            programs,
            site: folder.join("site"),
            zones: [
                zone("storm.test.zone"),
                format!("2.0.192.in-addr.arpa={}", zone("2.0.192.in-addr.arpa.zone")),
            ],
            questions: folder.join("questions"),
            table,
            folder,
        };
        web::make_site(&sample.join("site"), &env.site)?;
        shell::write(&env.folder.join(web::SECRET_FILE), web::SECRET)?;
        let questions = env
            .table
            .iter()
            .map(|entry| entry.question.replace(" IN ", " "));
        shell::write(&env.questions, questions.collect::<Vec<_>>().join("\n"))?;
        Ok(env)
    }

    fn zone_options(&self) -> Vec<String> {
        let options = self
            .zones
            .iter()
            .map(|zone| ["--zone".to_owned(), zone.clone()]);
        options.flatten().collect()
    }
}

fn run_scenario(
    scenario: &Scenario,
    seed: Option<u64>,
    env: &Env,
    checks: &mut Checks,
) -> Result<()> {
    let rig = Rig::build(scenario)?;
    let before = rig.links()?;
    let fault = seed.map(|seed| format!("drop=0.01,seed={seed}"));
    let more: Vec<&str> = fault.iter().flat_map(|fault| ["--fault", fault]).collect();
    let start = || rig.start(env, scenario, &more);

    let (server, place) = start()?;
    rig.as_client(|| {
        options::check(&place, scenario, checks);
        if scenario.is_dns() {
            dns::check(&place, env, checks);
        } else {
            web::check(&place, env, checks);
        }
    })?;
    if checks.failed() > 0 {
        checks.note(&server.output());
    }
    let connect = || place.addresses().map(|to| http::connect(place.socket(to)));
    let waiting = rig.as_client(connect)?;
    let stopped = server.stop_well();
    checks.check("SIGTERM ends it with status 0 and a summary", || {
        let output = stopped?;
        ensure!(output.contains("uptime:"), "no uptime in\n{output}");
        Ok(())
    });
    // After SIGTERM the server does not retransmit a lost FIN or RST, so this check needs a path
    // without loss.
    if !place.loss {
        checks.check("an open connection ends with the server", || {
            waiting
                .into_iter()
                .try_for_each(|stream| expect_end(stream?))
        });
    }
    checks.check("nothing is left after SIGTERM", || {
        rig.expect_links(&before)
    });

    // A killed server cannot clean up. The kernel must do so, and the next server must start.
    let killed = start()?.0.stop(Signal::KILL);
    checks.check("kill -9 leaves nothing attached", || {
        killed?;
        rig.expect_links(&before)
    });
    checks.check("it starts again after kill -9", || {
        let (status, output) = start()?.0.stop(Signal::INT)?;
        ensure!(status.success(), "{status}:\n{output}");
        Ok(())
    });
    Ok(())
}

/// Returns an error unless the server closes the connection with a FIN or a RST.
fn expect_end(mut stream: TcpStream) -> Result<()> {
    match std::io::Read::read(&mut stream, &mut [0]) {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        other => anyhow::bail!("it reads {other:?}"),
    }
}
