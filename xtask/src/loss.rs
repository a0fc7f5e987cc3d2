//! `xtask loss`: our TCP beside the kernel's on bad networks.
//!
//! A client of the kernel fetches the same files from nginx on the kernel's
//! TCP and from our server, through a forwarder that loses, delays and
//! reorders by a seed, so that both meet the same. Every byte is compared.

mod cells;
mod clients;
mod fetch;
mod forwarder;
mod report;
mod results;
mod rig;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::bench::machine;
use crate::e2e::{self, web};
use crate::shell::{self, Context as _, Failure, Result, Scratch};
use crate::{interrupt, setup};
use cells::{Cell, SIZES};
use fetch::{Reading, Times, fetch};
use forwarder::Paths;
use results::{Measured, Results, Run, Summary};
use rig::{Rig, Stack};

/// Where results lie, in the target folder.
const FOLDER: &str = "loss";
const RESULTS: &str = "results.json";
const TABLE: &str = "table.md";

const FIRST_SEED: u64 = 1;
const REPEATS: u64 = 3;
/// A fetch that takes longer has failed.
const FETCH_LIMIT: Duration = Duration::from_secs(30);
/// A small file, beside those of the cells.
const TINY: usize = 1_000;
/// Rates up to this part of the rig's limit are measured.
const LIMIT_PART: f64 = 0.8;

/// What the command line asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    quick: bool,
    /// Real clients of many kinds, instead of the matrix.
    clients: bool,
    /// All of these instead of a sample.
    full: bool,
    /// Only cells whose group and name contain this.
    filter: String,
    list: bool,
    trace: bool,
    /// Instead of [`FIRST_SEED`].
    seed: Option<u64>,
    repeats: Option<u64>,
    /// Where the programs lie, instead of the release build's folder.
    programs: Option<PathBuf>,
    /// Set-up and build are done: we were run again, as root.
    built: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = |what: &str| {
                let number = args.next().and_then(|number| number.parse::<u64>().ok());
                number.ok_or_else(|| Failure::new(format!("{what} wants a number")))
            };
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--full" => options.full = true,
                "--clients" => options.clients = true,
                "--list" => options.list = true,
                "--trace" => options.trace = true,
                "--built" => options.built = true,
                "--seed" => options.seed = Some(number(arg)?),
                "--repeats" => options.repeats = Some(number(arg)?.clamp(1, 100)),
                "--programs" => options.programs = args.next().map(PathBuf::from),
                _ if arg.starts_with('-') => {
                    return Err(Failure::new(format!("unexpected argument {arg}")));
                }
                _ => options.filter.clone_from(arg),
            }
        }
        Ok(options)
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = cells::all();
        cells.retain(|cell| {
            let name = format!("{}, {}", cell.group, cell.name);
            (cell.quick || !self.quick) && name.contains(&self.filter)
        });
        cells
    }

    fn programs(&self) -> Result<PathBuf> {
        match &self.programs {
            Some(folder) => Ok(folder.clone()),
            None => Ok(shell::target_folder()?.join("release")),
        }
    }

    fn seeds(&self) -> std::ops::Range<u64> {
        let first = self.seed.unwrap_or(FIRST_SEED);
        let repeats = self.repeats.unwrap_or(if self.quick { 1 } else { REPEATS });
        first..first.saturating_add(repeats)
    }
}

/// Runs the command; an error when something that was asked for is missing.
/// A mark that is missed is none.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    if options.list {
        for cell in options.cells() {
            println!("{}, {}", cell.group, cell.name);
        }
        return Ok(());
    }
    if !options.built && options.programs.is_none() {
        setup::run()?;
        for (package, failure) in setup::install_quietly(&["nginx"]) {
            println!("loss: {package} cannot be installed: {failure}");
        }
        shell::build_release("loss", &["sandstorm", "benches"])?;
    }
    if !shell::is_root() {
        println!("loss: going on as root, for network namespaces and AF_XDP");
        let mut again = vec!["loss", "--built"];
        again.extend(args.iter().map(String::as_str));
        return shell::again_as_root(&again);
    }
    if options.clients {
        return run_clients(&options);
    }
    let folder = shell::target_folder()?.join(FOLDER);
    let outcome = measure(&options, args, &folder).and_then(|results| finish(&results, &folder));
    shell::give_back(&folder);
    outcome
}

/// Runs the clients, already built, as a process of its own, as root; returns
/// how many checks passed and failed.
pub(crate) fn run_clients_apart(is_full: bool, filter: &str) -> Result<(u32, u32)> {
    let mut args = vec!["loss", "--clients", "--built"];
    args.extend(is_full.then_some("--full"));
    args.extend(Some(filter).filter(|filter| !filter.is_empty()));
    e2e::count_apart(&args)
}

fn run_clients(options: &Options) -> Result<()> {
    let programs = options.programs()?;
    let checks = clients::run(options.full, &options.filter, options.seed, &programs)?;
    println!("{checks}");
    if checks.failed() == 0 {
        Ok(())
    } else {
        Err(Failure::new("not everything is right"))
    }
}

fn measure(options: &Options, args: &[String], folder: &Path) -> Result<Results> {
    std::fs::create_dir_all(folder).context(format_args!("making {}", folder.display()))?;
    let programs = options.programs()?;
    let asked = args.iter().map(String::as_str);
    let asked: Vec<&str> = asked.filter(|arg| *arg != "--built").collect();
    let mut results = Results {
        started: machine::now(),
        command: ["loss"]
            .into_iter()
            .chain(asked)
            .collect::<Vec<_>>()
            .join(" "),
        machine: machine::describe(),
        versions: machine::versions(&programs),
        ..Results::default()
    };
    let wanted = ["sandstorm", "nginx", "commit", "rustc"];
    results
        .versions
        .retain(|name, _| wanted.contains(&name.as_str()));
    let priority = if rig::is_first_served() {
        "forwarder and servers before all else (real-time priority)"
    } else {
        "as for all else: real-time priority is not allowed here"
    };
    results
        .machine
        .push(("scheduling".to_owned(), priority.to_owned()));
    let scratch = Scratch::create("loss")?;
    let site = Site::prepare(&scratch)?;
    let mut rigs = Vec::new();
    for stack in Stack::BOTH {
        rigs.push(Rig::build(stack, &programs, &site.folder, scratch.path())?);
    }
    let lab = Lab {
        rigs,
        site,
        traces: options.trace.then(|| folder.join("traces")),
    };
    if let Some(traces) = &lab.traces {
        std::fs::create_dir_all(traces).context(format_args!("making {}", traces.display()))?;
    }
    let limit = lab.measure(&cells::limit(), FIRST_SEED..FIRST_SEED + 1)?;
    println!("{}", report::line(&limit));
    for stack in Stack::BOTH {
        let figures = limit.figures(stack);
        results
            .limit
            .extend(figures.map(|figures| (stack, figures.goodput)));
    }
    results.rig = Some(limit);
    let most = results.limit.values().copied().fold(f64::MAX, f64::min) * LIMIT_PART;
    for cell in options.cells() {
        interrupt::check()?;
        if cell.mbits as f64 * 1e6 > most {
            let why = "the rig cannot do that rate".to_owned();
            results
                .missing
                .push((format!("{}, {}", cell.group, cell.name), why));
            continue;
        }
        let measured = lab.measure(&cell, options.seeds())?;
        println!("{}", report::line(&measured));
        results.cells.push(measured);
    }
    for rig in &lab.rigs {
        let dropped = rig.dropped()?;
        if dropped > 0 {
            results.missing.push((
                format!("{dropped} frames to or from {}", rig.stack().name()),
                "the kernel has dropped them beside the forwarder".to_owned(),
            ));
        }
    }
    Ok(results)
}

/// Writes everything down; says where it is, and how the marks stand.
fn finish(results: &Results, folder: &Path) -> Result<()> {
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).context(format_args!("writing {}", file.display()))?;
        println!("loss: written {}", file.display());
        Ok(())
    };
    let json = serde_json::to_string_pretty(results).context("the results as JSON")?;
    write(RESULTS, &json)?;
    write(TABLE, &report::page(results))?;
    for (wanted, measured, met) in Summary::of(results).marks() {
        let verdict = if met { "met   " } else { "missed" };
        println!("loss: {verdict} {wanted}: {measured}");
    }
    for (what, why) in &results.missing {
        println!("loss: missing: {what}: {why}");
    }
    match results.missing.len() {
        0 => Ok(()),
        n => Err(Failure::new(format!(
            "{n} of what was asked for is missing"
        ))),
    }
}

/// The files that are served.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    bodies: BTreeMap<usize, Vec<u8>>,
}

impl Site {
    pub(crate) fn prepare(scratch: &Scratch) -> Result<Self> {
        let folder = scratch.path().join("site");
        std::fs::create_dir(&folder).context(format_args!("making {}", folder.display()))?;
        let mut bodies = BTreeMap::new();
        for size in SIZES.into_iter().chain([TINY]) {
            let body = web::body(size);
            let file = folder.join(format!("{size}.bin"));
            std::fs::write(&file, &body).context(format_args!("writing {}", file.display()))?;
            bodies.insert(size, body);
        }
        Ok(Self { folder, bodies })
    }

    /// The path of the file of this size, and what it holds.
    pub(crate) fn file(&self, size: usize) -> (String, &[u8]) {
        let body = self.bodies.get(&size).map_or(&[][..], Vec::as_slice);
        (format!("/{size}.bin"), body)
    }
}

/// A rig of each stack, and what they serve.
struct Lab {
    rigs: Vec<Rig>,
    site: Site,
    traces: Option<PathBuf>,
}

impl Lab {
    /// Runs a cell with each seed, the stacks in turn.
    fn measure(&self, cell: &Cell, seeds: std::ops::Range<u64>) -> Result<Measured> {
        let mut runs = Vec::new();
        for seed in seeds {
            for rig in &self.rigs {
                interrupt::check()?;
                let mut run = self.run(rig, cell, seed)?;
                if run.noise.is_some() {
                    // Once more: the machine may have been busy by chance.
                    run = self.run(rig, cell, seed)?;
                }
                runs.push(run);
            }
        }
        Ok(Measured {
            cell: cell.clone(),
            runs,
        })
    }

    fn run(&self, rig: &Rig, cell: &Cell, seed: u64) -> Result<Run> {
        let paths = Paths {
            down: cell.down.clone(),
            up: cell.up.clone(),
            seed,
            silence_ms: cell.silence_ms(),
        };
        let trace = self.traces.as_ref().map(|folder| {
            let words = format!("{} {}", cell.group, cell.name);
            let words: Vec<&str> = words.split([' ', ',', '/']).collect();
            folder.join(format!(
                "{}-{seed}-{}.txt",
                words.join("-"),
                rig.stack().name()
            ))
        });
        rig.set_client(&[&format!("net.ipv4.tcp_ecn={}", u32::from(cell.ecn))])?;
        let forwarder = rig.join(&paths, trace.as_deref())?;
        let (outcomes, seconds) = rig.as_client(|| {
            let start = Instant::now();
            let outcomes = self.fetch_all(cell);
            (outcomes, start.elapsed().as_secs_f64())
        })?;
        let seen = forwarder.finish()?;
        let mut run = Run {
            stack: rig.stack(),
            paths,
            seconds,
            fetches: Vec::new(),
            failures: Vec::new(),
            noise: seen.noise(),
            seen,
        };
        run.failures.extend(run.seen.fault());
        for outcome in outcomes {
            match outcome {
                Ok(times) => run.fetches.push(times),
                Err(failure) => run.failures.push(failure.to_string()),
            }
        }
        Ok(run)
    }

    fn fetch_all(&self, cell: &Cell) -> Vec<Result<Times>> {
        let (path, body) = self.site.file(cell.size);
        let [v4, _] = Rig::addresses();
        let one = || fetch(v4, &path, body, &Reading::fast(FETCH_LIMIT));
        let in_turn = || (0..cell.in_turn).map(|_| one()).collect::<Vec<_>>();
        if cell.at_once == 1 {
            return in_turn();
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cell.at_once).map(|_| scope.spawn(in_turn)).collect();
            let joined = threads.into_iter().map(|thread| {
                let panicked = |_| vec![Err(Failure::new("a fetching thread has panicked"))];
                thread.join().unwrap_or_else(panicked)
            });
            joined.flatten().collect()
        })
    }
}
