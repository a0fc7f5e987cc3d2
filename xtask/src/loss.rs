//! `xtask loss`: our TCP beside the kernel's on bad networks.
//!
//! A client of the kernel fetches the same files from nginx on the kernel's
//! TCP and from our server, through a forwarder that loses, delays and
//! reorders by a seed, so that both meet the same. Every byte is compared.

mod cells;
mod clients;
mod fetch;
mod forwarder;
mod lab;
mod report;
mod results;
mod rig;

use std::path::{Path, PathBuf};

use crate::bench::machine;
use crate::e2e;
use crate::shell::{self, Context as _, Failure, Result};
use crate::{interrupt, setup};
use cells::Cell;
use lab::Lab;
use results::{Results, Summary};
use rig::Stack;

/// Where results lie, in the target folder.
const FOLDER: &str = "loss";
const RESULTS: &str = "results.json";
const TABLE: &str = "table.md";

const FIRST_SEED: u64 = 1;
const REPEATS: u64 = 3;
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
        build()?;
    }
    if !shell::is_root() {
        return shell::again_as_root("loss");
    }
    if options.clients {
        return run_clients(&options);
    }
    let folder = shell::target_folder()?.join(FOLDER);
    let outcome = measure(&options, args, &folder).and_then(|results| finish(&results, &folder));
    shell::give_back(&folder);
    outcome
}

/// Builds the server and the bad network as users do.
fn build() -> Result<()> {
    println!("loss: building (the first time takes some minutes)");
    let mut build = shell::cargo();
    build.args(["build", "--release", "-p", "sandstorm", "-p", "benches"]);
    build.args(["--bin", "sandstorm", "--bin", "forward"]);
    shell::run(&mut build)
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
    let mut lab = Lab::build(&programs, options.trace.then(|| folder.join("traces")))?;
    let limit = lab.measure(&cells::limit(), FIRST_SEED..FIRST_SEED + 1)?;
    println!("{}", report::line(&limit));
    for stack in Stack::BOTH {
        let figures = limit.figures(stack);
        results
            .limit
            .extend(figures.map(|figures| (stack, figures.goodput)));
    }
    results.rig = Some(limit);
    measure_cells(options, &mut lab, &mut results, folder)?;
    // Few are no harm, and many would be seen in every cell.
    results.machine.push((
        "frames that the kernel dropped beside the forwarder".to_owned(),
        lab.dropped()?.to_string(),
    ));
    Ok(results)
}

/// Measures one cell after the other; what there is is kept, whatever comes
/// of the rest.
fn measure_cells(
    options: &Options,
    lab: &mut Lab<'_>,
    results: &mut Results,
    folder: &Path,
) -> Result<()> {
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
        write(results, folder)?;
    }
    Ok(())
}

/// Writes everything down.
fn write(results: &Results, folder: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(results).context("the results as JSON")?;
    for (name, text) in [(RESULTS, json), (TABLE, report::page(results))] {
        let file = folder.join(name);
        std::fs::write(&file, text).context(format_args!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Says where everything is, and how the marks stand.
fn finish(results: &Results, folder: &Path) -> Result<()> {
    write(results, folder)?;
    for name in [RESULTS, TABLE] {
        println!("loss: written {}", folder.join(name).display());
    }
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
