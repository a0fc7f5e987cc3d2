//! `xtask bench`: the servers beside their peers and the rig's limit.
//!
//! Server and client are in network namespaces of their own, joined by a veth
//! pair; the server and all the kernel's work for it are on one core, the
//! client on another.

mod busy_poll;
mod calls;
mod configs;
mod content;
mod generators;
mod instructions;
pub(crate) mod machine;
mod options;
mod plan;
mod report;
pub(crate) mod results;
pub(crate) mod rig;
mod runner;
mod servers;
mod time_line;
mod usage;

use std::path::Path;

use crate::setup;
use crate::shell::{self, Context as _, Failure, Result};
use options::{Options, TIME_LINE};
use results::{Missing, Results};
use runner::Runner;

/// Packages of the peers, of other load generators, and of perf.
const PACKAGES: &[&str] = &[
    "nginx",
    "lighttpd",
    "h2o",
    "nsd",
    "knot",
    "knot-dnsutils",
    "bind9",
    "dnsperf",
    "wrk",
    "linux-perf",
];

/// Where results lie, in the target folder.
const FOLDER: &str = "bench";

/// Runs the command; an error when something that was asked for is missing.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args.first().map(String::as_str) {
        Some("instructions") => return instructions::run(&args[1..]),
        Some("report") => return report::run(&args[1..]),
        _ => {}
    }
    let options = Options::parse(args)?;
    if !options.built {
        setup::run()?;
        // Named in the results when it is needed.
        for (package, failure) in setup::install_quietly(PACKAGES) {
            println!("bench: {package} cannot be installed: {failure}");
        }
        let packages = ["sandstorm", "namestorm", "examples", "benches"];
        shell::build_release("bench", &packages)?;
    }
    if !shell::is_root() {
        return shell::again_as_root("bench");
    }
    let target = shell::target_folder()?;
    let folder = target.join(FOLDER);
    let outcome =
        measure(&options, args, &target, &folder).and_then(|results| finish(&results, &folder));
    shell::give_back(&folder);
    outcome
}

fn measure(options: &Options, args: &[String], target: &Path, folder: &Path) -> Result<Results> {
    std::fs::create_dir_all(folder).context(format_args!("making {}", folder.display()))?;
    rig::keep_away()?;
    let asked: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| *arg != "--built")
        .collect();
    let command = ["bench"].into_iter().chain(asked).collect::<Vec<_>>();
    let programs = target.join("release");
    let mut machine = machine::describe();
    machine.push(machine::busy_before([rig::SERVER_CORE, rig::CLIENT_CORE])?);
    let mut versions = machine::versions(&programs);
    if let Some(tree) = &options.nsd_xdp {
        let version = servers::package_version_in(tree, "nsd").ok_or_else(|| {
            Failure::new(format!(
                "no NSD is installed in {0}: debootstrap --variant=minbase --include=nsd testing {0}",
                tree.display()
            ))
        })?;
        versions.insert("NSD XDP".to_owned(), version);
    }
    let results = Results {
        started: machine::now(),
        command: command.join(" "),
        machine,
        versions,
        ..Results::default()
    };
    let sets = plan::plan(options);
    let mut runner = Runner::new(options, results, &programs, folder)?;
    runner.run(&sets)?;
    if options.wants(TIME_LINE) {
        runner.record_time_line()?;
    }
    if options.instructions {
        runner.count_instructions()?;
    }
    Ok(runner.into_results())
}

/// Says where everything is, and what is missing.
fn finish(results: &Results, folder: &Path) -> Result<()> {
    report::write(results, folder)?;
    println!("bench: {} runs", results.runs.len());
    for file in [runner::RESULTS, report::PAGE, report::TABLE] {
        println!("bench: written {}", folder.join(file).display());
    }
    for Missing { what, why, .. } in &results.missing {
        println!("bench: missing: {what}: {why}");
    }
    match results.missing.len() {
        0 => Ok(()),
        n => Err(Failure::new(format!(
            "{n} of what was asked for is missing"
        ))),
    }
}
