//! `xtask bench`: compares our servers with other servers, and with what the rig itself can do.
//!
//! Server and client each have a network namespace, joined by a veth pair. One core runs the server
//! and all the kernel's work for it. Another core runs the client.

mod busy_poll;
mod content;
mod dns_load;
mod generators;
mod instructions;
pub(crate) mod machine;
pub(crate) mod peers;
mod plan;
pub(crate) mod quotes;
mod reloads;
mod report;
mod results;
pub(crate) mod rig;
mod runner;
mod servers;
mod usage;
mod waits;
mod witness;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Subcommand;
use clap::builder::PossibleValuesParser;

use crate::setup;
use crate::shell;
use results::Results;
use runner::{RESULTS, Runner};

/// Debian packages of the other servers, of third-party load generators and of compressors.
#[rustfmt::skip]
const PACKAGES: &[&str] = &[
    "nginx", "libnginx-mod-http-brotli-static", "lighttpd", "h2o", "caddy",
    "nsd", "knot", "knot-dnsutils", "bind9", "dnsperf", "wrk", "gzip", "brotli", "ldnsutils",
];

/// Folder of the results in the target folder.
const FOLDER: &str = "bench";

/// Options of `cargo xtask bench`.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    selection: Selection,
}

/// Options of all comparisons.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// Duration of each measurement, without its warm-up.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,

    /// Run only servers whose name contains this text.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    server: String,

    /// Do not install packages or build programs.
    #[arg(long, hide = true)]
    built: bool,
}

impl Common {
    /// Returns true if the server of this name is selected.
    fn selects(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.server.to_lowercase())
    }
}

/// Options that select what to measure.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Figures or groups of figures to measure. Default: limit, dns and web.
    #[arg(value_name = "FIGURE", value_parser = PossibleValuesParser::new(plan::words()))]
    figures: Vec<String>,

    /// Measure few points, once each. This takes less than 3 minutes.
    #[arg(long)]
    quick: bool,

    /// How often to measure each point. Every server is measured once before any is measured again.
    /// Default: 3, or 1 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: Option<u32>,

    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Write the report again from raw results.
    Report {
        /// Files of raw results. Default: the file of the last run.
        files: Vec<PathBuf>,
    },
    /// Count the instructions that our code executes per packet or request.
    Instructions(instructions::Options),
    /// Compare ways of waiting for packets, at 1 to 100 % of each server's capacity.
    Waits(waits::Options),
    /// Reload content under load: replies, latency, and the time of a reload.
    Reloads(reloads::Options),
    /// Load large zones and many: time to the first answer, memory, and the time of a reload.
    DnsLoad(dns_load::Options),
    /// Copy measured figures from benches/ into README.md.
    Figures {
        /// Fail if README.md has different figures.
        #[arg(long)]
        check: bool,
    },
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.2..=600.0).contains(seconds));
    seconds.ok_or_else(|| "not a number from 0.2 to 600".to_owned())
}

/// Runs the command. A comparison fails if a run fails. A server that is not installed is skipped.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = shell::target_folder()?;
    let folder = target.join(FOLDER);
    match &options.command {
        Some(Command::Instructions(options)) => instructions::run(options),
        Some(Command::Waits(options)) => with_rig(options.common.built, &folder, || {
            waits::run(options, &target, &folder)
        }),
        Some(Command::Reloads(options)) => with_rig(options.common.built, &folder, || {
            reloads::run(options, &target, &folder)
        }),
        Some(Command::DnsLoad(options)) => with_rig(options.built, &folder, || {
            dns_load::run(options, &target, &folder)
        }),
        Some(Command::Figures { check }) => quotes::run(*check),
        Some(Command::Report { files }) => {
            let last = [folder.join(RESULTS)];
            let files = if files.is_empty() { &last } else { &files[..] };
            let all = files
                .iter()
                .map(|file| report::read(file))
                .collect::<Result<Vec<_>>>()?;
            report::write(&all, files[0].parent().unwrap_or(Path::new("")))
        }
        None => with_rig(options.selection.common.built, &folder, || {
            compare(&options.selection, &target, &folder)
        }),
    }
}

/// Calls `measure` as root, on the client's core, after packages, programs and the folder for the results
/// are there.
fn with_rig(built: bool, folder: &Path, measure: impl FnOnce() -> Result<()>) -> Result<()> {
    if !prepare(built)? {
        return Ok(());
    }
    shell::make_folder(folder)?;
    let outcome = rig::keep_away().and_then(|()| measure());
    shell::give_back(folder);
    outcome
}

/// Installs packages and builds programs, unless `built` is set. Returns true if this process is
/// root and should go on. Otherwise another process has done the rest as root.
fn prepare(built: bool) -> Result<bool> {
    if !built {
        setup::run()?;
        // A failed installation is not an error, because the results list each missing server.
        for (package, failure) in setup::install_quietly(PACKAGES) {
            println!("bench: {package} cannot be installed: {failure:#}");
        }
        shell::build_release("bench", &["sandstorm", "namestorm", "benches"])?;
        // The other examples would take minutes.
        let reflector = ["build", "--release", "-p", "examples", "--bin", "reflect"];
        shell::run(shell::cargo().args(reflector))?;
    }
    if !shell::is_root() {
        return shell::again_as_root("bench").map(|()| false);
    }
    Ok(true)
}

fn compare(selection: &Selection, target: &Path, folder: &Path) -> Result<()> {
    let words = std::env::args().skip(1).filter(|word| *word != "--built");
    let command = words.collect::<Vec<_>>().join(" ");
    let programs = target.join("release");
    let mut machine = machine::describe();
    machine.push(machine::busy_before()?);
    let results = Results {
        started: machine::now(),
        command,
        machine,
        versions: machine::versions(&programs),
        ..Results::default()
    };
    let results = Runner::new(results, programs, folder)?.run(&plan::plan(selection))?;
    println!("bench: {} runs", results.runs.len());
    let missing = results.missing.iter();
    let missing = missing.filter(|missing| missing.is_failure()).count();
    report::write(&[results], folder)?;
    match missing {
        0 => Ok(()),
        n => bail!("{n} runs or servers have failed"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser, Debug)]
    #[command(no_binary_name = true)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn command_line_errors_quote_the_refused_word() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.options);
        let options = parse("limit dns-batch --seconds 2 --repeats 5").unwrap();
        assert_eq!(options.selection.figures, ["limit", "dns-batch"]);
        let command = parse("figures --check").unwrap().command;
        assert!(matches!(command, Some(Command::Figures { check: true })));
        for line in [
            "wbe",
            "--fast",
            "--seconds 0",
            "--repeats x",
            "report --quick",
        ] {
            let error = parse(line).unwrap_err().to_string();
            let word = line.split(' ').next_back().unwrap_or_default();
            assert!(error.contains(word), "{error}");
        }
    }
}
