//! `xtask fuzz`: runs each fuzz target for a limited time on a stable compiler, starting from the
//! committed corpus. Other tasks, such as shrinking an input, need `cargo fuzz`.
//!
//! `target/fuzz` holds the results: new inputs in `corpus`, failing inputs in `crashes`, and
//! libFuzzer's output in `logs`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::shell;
use crate::{interrupt, setup};
use anyhow::{Context as _, Result, bail, ensure};

/// Arguments with which `xtask test` runs this command.
pub(crate) const IN_TESTS: &str = "fuzz --replay";
/// Arguments with which `xtask test --all` runs this command.
pub(crate) const IN_FULL_TESTS: &str = "fuzz --seconds 60";
/// libFuzzer's limits per input. Targets stay far below the memory and time limits.
const LIMITS: &str = "-max_len=4096 -len_control=20 -rss_limit_mb=1024 -timeout=30";

/// Names of the libFuzzer statistics to print.
const SHOWN: [&str; 2] = ["number_of_executed_units", "new_units_added"];
/// Number of output lines to show after a failure. They include the panic message and the path of
/// the failing input.
const SHOWN_LINES: usize = 60;

/// Compiler flags that instrument code for libFuzzer: edge counters, a table of the edges, and the
/// operands of comparisons.
const INSTRUMENTATION: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Targets to run, by their file names in `fuzz/fuzz_targets` without `.rs`. Default: all.
    targets: Vec<String>,
    /// How long to run each target, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only run the inputs of the committed corpus, as ordinary tests without instrumentation.
    #[arg(long, conflicts_with = "seconds")]
    replay: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let targets = chosen(&options.targets)?;
    setup::run()?;
    let target_folder = shell::target_folder()?;
    if options.replay {
        return replay(&options.targets, &target_folder);
    }
    let output_folder = target_folder.join("fuzz");
    let programs = build(&output_folder.join("build"))?;
    let limit = format!("-max_total_time={}", options.seconds);
    let waiting: Mutex<VecDeque<&String>> = Mutex::new(targets.iter().collect());
    let failed = Mutex::new(Vec::new());
    // Run as many targets at a time as there are CPU cores.
    let lane = || {
        loop {
            let next = locked(&waiting).pop_front();
            let Some(target) = next.filter(|_| !interrupt::seen()) else {
                return;
            };
            match fuzz(&programs.join(target), target, &limit, &output_folder) {
                Ok(done) => println!("fuzz: {target}: {done}"),
                Err(failure) => locked(&failed).push(format!("{target}: {failure:#}")),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(lane);
        }
    });
    interrupt::check()?;
    let failed = locked(&failed);
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the named targets, or all targets if `names` is empty.
fn chosen(names: &[String]) -> Result<Vec<String>> {
    let folder = shell::repository().join("fuzz/fuzz_targets");
    let files = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let files = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut all: Vec<String> = files
        .filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()))
        .collect();
    all.sort();
    if names.is_empty() {
        return Ok(all);
    }
    if let Some(name) = names.iter().find(|name| !all.contains(name)) {
        bail!(
            "there is no fuzz target {name}; there are {}",
            all.join(", ")
        );
    }
    Ok(names.to_vec())
}

/// Runs these targets, or all of them, on the committed corpus, in one ordinary test program.
fn replay(targets: &[String], target_folder: &Path) -> Result<()> {
    let mut test = shell::cargo();
    // The workspace's target folder already has most of what the targets need.
    test.args(["test", "--lib", "--no-default-features"])
        .args(["--manifest-path", "fuzz/Cargo.toml", "--target-dir"])
        .arg(target_folder)
        .arg("--")
        .args(targets.iter().map(|target| format!("corpus::{target}")))
        .args((!targets.is_empty()).then_some("--exact"));
    shell::run(&mut test)
}

/// Builds all targets with coverage instrumentation. Returns the folder with the programs.
fn build(folder: &Path) -> Result<PathBuf> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = shell::capture_text(Command::new(compiler).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV does not name its host")?;
    println!("fuzz: building (the first time takes some minutes)");
    let mut build = shell::cargo();
    // With `--target`, cargo does not instrument build scripts and procedural macros.
    build
        .args(["build", "--quiet", "--bins", "--release"])
        .args(["--manifest-path", "fuzz/Cargo.toml"])
        .args(["--target", host, "--target-dir"])
        .arg(folder)
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTATION.join("\x1f"));
    shell::run(&mut build)?;
    Ok(folder.join(host).join("release"))
}

/// Runs one target until the `limit`, and returns its statistics. Results go to the folder
/// `output_folder`.
fn fuzz(program: &Path, target: &str, limit: &str, output_folder: &Path) -> Result<String> {
    let folder = |name: &str| {
        let path = output_folder.join(name);
        shell::make_folder(&path).map(|()| path)
    };
    let (found, crashes) = (folder(&format!("corpus/{target}"))?, folder("crashes")?);
    let committed = shell::repository().join("fuzz/corpus").join(target);
    let mut command = Command::new(program);
    command
        .args(LIMITS.split(' '))
        .arg(limit)
        .arg(format!("-artifact_prefix={}/{target}-", crashes.display()))
        .arg("-print_final_stats=1")
        .arg(found)
        .args(Some(committed).filter(|path| path.is_dir()));
    let output = shell::output(&mut command)?;
    let report = String::from_utf8_lossy(&output.stderr);
    let log = folder("logs")?.join(target);
    shell::write(&log, report.as_bytes())?;
    if output.status.success() {
        return Ok(counts(&report));
    }
    bail!(
        "{}\n  to run an input again: RUST_BACKTRACE=1 {} INPUT\n  all output: {}",
        shell::end_of(&report, SHOWN_LINES),
        program.display(),
        log.display()
    )
}

/// Returns the statistics that [`SHOWN`] names, from the end of libFuzzer's report.
fn counts(report: &str) -> String {
    let stats = report
        .lines()
        .filter_map(|line| line.strip_prefix("stat::"));
    let shown = stats.filter(|stat| SHOWN.iter().any(|name| stat.starts_with(name)));
    let words = shown.map(|stat| stat.split_whitespace().collect::<Vec<_>>().join(" "));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_targets_are_the_files_of_the_folder_and_are_built_and_replayed() {
        let all = chosen(&[]).unwrap();
        assert!(all.contains(&"tcp_segments".to_owned()), "{all:?}");
        assert_eq!(chosen(&all[..1]).unwrap(), all[..1]);
        let error = chosen(&["nothing".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("nothing") && error.contains(&all[0]),
            "{error}"
        );
        let read = |file| shell::read(&shell::repository().join(file)).unwrap();
        let (manifest, corpus) = (read("fuzz/Cargo.toml"), read("fuzz/src/corpus.rs"));
        for target in all {
            let line = format!("path = \"fuzz_targets/{target}.rs\"");
            assert!(manifest.contains(&line), "{target}");
            assert!(corpus.contains(&format!("    {target} ")), "{target}");
        }
    }
}
