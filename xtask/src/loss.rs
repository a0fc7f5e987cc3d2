//! `xtask loss`: compares our TCP with the kernel's on impaired networks.
//!
//! A Linux client fetches the same files from nginx on the kernel's TCP, from Sandstorm with CUBIC,
//! and from Sandstorm with BBR. A forwarder between client and server drops, delays and reorders
//! frames. A seed decides which frames, so that all three face the same impairments. The client
//! checks every byte that it receives against the expected file.

mod cells;
mod clients;
mod forwarder;
mod lab;
mod page;
mod results;
mod rig;

use std::path::{Path, PathBuf};

use crate::bench::machine;
use crate::e2e;
use crate::shell;
use crate::{interrupt, setup};
use anyhow::{Context as _, Result, ensure};
use cells::Cell;
use lab::Lab;
use results::Results;

/// Folder of the results in the target folder. [`RESULTS`] and [`PAGE`] are its files.
const FOLDER: &str = "loss";
const RESULTS: &str = "results.json";
const PAGE: &str = "LOSS.md";

const FIRST_SEED: u64 = 1;
const REPEATS: u64 = 3;
/// Maximum rate of a cell, as a fraction of the rate that the rig itself reaches.
const LIMIT_PART: f64 = 0.8;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Instead, run Linux clients with many TCP settings, and check that every byte arrives.
    #[arg(long)]
    clients: bool,
    /// With --clients: run every combination of settings instead of a sample.
    #[arg(long, requires = "clients")]
    all: bool,
    /// Measure only a few cells, with one seed each.
    #[arg(long)]
    quick: bool,
    /// Seed of the first run of each cell. Each further run adds 1.
    #[arg(long, value_name = "N", default_value_t = FIRST_SEED)]
    seed: u64,
    /// Number of seeds per cell. Default: 3, or 1 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    repeats: Option<u64>,
    /// Write a trace of every run's segments to the folder loss/traces in the target folder.
    #[arg(long)]
    trace: bool,
    /// Only print the names of the cells.
    #[arg(long)]
    list: bool,
    /// Use the sandstorm and forward in DIR instead of building them.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Do not install packages or build programs.
    #[arg(long, hide = true)]
    built: bool,
    /// Run only cells or clients whose name contains this text.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

impl Options {
    fn cells(&self) -> Vec<Cell> {
        let mut cells = cells::all();
        cells.retain(|cell| {
            (cell.is_quick() || !self.quick) && cell.full_name().contains(&self.filter)
        });
        cells
    }

    fn repeats(&self) -> u64 {
        let default = if self.quick { 1 } else { REPEATS };
        self.repeats.unwrap_or(default)
    }
}

/// Runs the command. It fails if a cell cannot be measured or a client's check fails. It does not
/// fail if a mark (a goal in `results.rs`) is missed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for cell in options.cells() {
            println!("{}", cell.full_name());
        }
        return Ok(());
    }
    if !options.built && options.programs.is_none() {
        setup::run()?;
        for (package, failure) in setup::install_quietly(&["nginx"]) {
            println!("loss: {package} cannot be installed: {failure:#}");
        }
        shell::build_release("loss", &["sandstorm", "benches"])?;
    }
    if !shell::is_root() {
        return shell::again_as_root("loss");
    }
    let programs = match &options.programs {
        Some(folder) => folder.clone(),
        None => shell::target_folder()?.join("release"),
    };
    if options.clients {
        let checks = clients::run(options.all, &options.filter, options.seed, &programs)?;
        println!("{checks}");
        ensure!(checks.failed() == 0, "some checks failed");
        return Ok(());
    }
    let folder = shell::target_folder()?.join(FOLDER);
    let outcome = measure(options, &programs, &folder);
    shell::give_back(&folder);
    outcome
}

/// Runs the clients as root in a separate process, without a build. Returns how many checks passed
/// and failed.
pub(crate) fn run_clients_apart(is_full: bool, filter: &str) -> Result<(u32, u32)> {
    let mut args = vec!["loss", "--clients", "--built"];
    args.extend(is_full.then_some("--all"));
    args.extend(Some(filter).filter(|filter| !filter.is_empty()));
    e2e::count_apart(&args)
}

fn measure(options: &Options, programs: &Path, folder: &Path) -> Result<()> {
    shell::make_folder(folder)?;
    let mut results = Results::default();
    let mut note = |name: &str, value: String| results.setting.push((name.to_owned(), value));
    let arguments = std::env::args().skip(1).filter(|arg| arg != "--built");
    let command = arguments.collect::<Vec<_>>().join(" ");
    note(
        "measured",
        format!("{}, cargo xtask {command}", machine::now()),
    );
    note("seeds for each network", options.repeats().to_string());
    note("real-time priority", rig::has_priorities().to_string());
    let mut versions = machine::versions(programs);
    versions.retain(|name, _| ["commit", "nginx", "rustc", "sandstorm"].contains(&&**name));
    for (name, value) in machine::describe().into_iter().chain(versions) {
        note(&name, value);
    }
    let traces = options.trace.then(|| folder.join("traces"));
    traces.as_deref().map_or(Ok(()), shell::make_folder)?;
    let mut lab = Lab::build(programs, traces)?;
    let limit = lab.measure(cells::limit(), FIRST_SEED..FIRST_SEED + 1)?;
    println!("{}", page::line(&limit));
    let goodputs = limit.figures().map(|figures| figures.goodput);
    let max_rate = goodputs.into_iter().fold(f64::MAX, f64::min) * LIMIT_PART;
    note(
        "limit of the rig in Mb/s",
        format!("{:.0?}", goodputs.map(|bits| bits / 1e6)),
    );
    let mut skipped = 0;
    for cell in options.cells() {
        interrupt::check()?;
        if cell.mbits as f64 * 1e6 > max_rate {
            skipped += 1;
            continue;
        }
        let seeds = options.seed..options.seed + options.repeats();
        let measured = lab.measure(cell, seeds)?;
        println!("{}", page::line(&measured));
        results.cells.push(measured);
        // Save the results now, so that a later failure does not lose them.
        write(&results, folder)?;
    }
    let dropped = (
        "frames that the kernel dropped".to_owned(),
        lab.dropped()?.to_string(),
    );
    results.setting.push(dropped);
    write(&results, folder)?;
    for (target, measured, met) in results::marks(&results.cells) {
        let verdict = if met { "met   " } else { "missed" };
        println!("loss: {verdict} {target}: {measured}");
    }
    println!("loss: written {}", folder.join(PAGE).display());
    ensure!(skipped == 0, "{skipped} networks are faster than the rig");
    Ok(())
}

/// Writes the raw results as JSON, and the page.
fn write(results: &Results, folder: &Path) -> Result<()> {
    let json = serde_json::to_string(results).context("the results as JSON")?;
    shell::write(&folder.join(RESULTS), json)?;
    shell::write(&folder.join(PAGE), page::page(results))
}
