//! `xtask fuzz`: the fuzz targets, for a while, from the committed corpus on.
//!
//! They are built here and not by a plug-in of cargo, with what the stable
//! compiler has: coverage that guides libFuzzer, and every check of our own.
//! What a target finds lies in `target/fuzz`: interesting inputs in `corpus`,
//! those that fail in `crashes`, and what libFuzzer says in `logs`.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::shell::{self, Context as _, Failure, Result, Scratch};
use crate::{interrupt, setup};

/// Seconds for each target in `xtask test`.
pub(crate) const TEST_SECONDS: u32 = 10;
/// Bytes of an input, at most: what the targets read goes no further.
const MAX_LEN: usize = 4_096;
/// MiB that a target may take before that is an error: none needs a tenth.
const MAX_MEMORY: usize = 1_024;
/// Seconds for one input; each takes milliseconds, also where a machine has
/// much else to do.
const MAX_INPUT_SECONDS: u32 = 30;
/// How long inputs stay short: the smaller, the sooner they grow.
const LEN_CONTROL: u32 = 20;

/// What makes a program tell libFuzzer where it has been: a counter for each
/// edge, a table of what the edges are, and the operands of comparisons.
const INSTRUMENTATION: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these targets; `fuzz/fuzz_targets` has one file for each.
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Then reduce `fuzz/corpus` to the fewest inputs that cover the same edges.
    #[arg(long)]
    minimize: bool,
    /// Run one target on this input alone; print the input, and a backtrace if it fails.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Build with a sanitizer of a nightly compiler, such as address.
    #[arg(long, value_name = "NAME")]
    sanitizer: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let targets = chosen(&options.targets)?;
    if options.input.is_some() && options.targets.len() != 1 {
        return Err(Failure::new(
            "--input needs exactly one target: cargo xtask fuzz TARGET --input FILE",
        ));
    }
    setup::run()?;
    let place = Place {
        committed: shell::repository().join("fuzz/corpus"),
        made: shell::target_folder()?.join("fuzz"),
    };
    let programs = build(&place, options.sanitizer.as_deref())?;
    if let Some(input) = &options.input {
        return place.run_one(&programs.join(&targets[0]), input);
    }
    if options.seconds > 0 {
        place.run_all(&programs, &targets, options.seconds)?;
    }
    if options.minimize {
        for target in &targets {
            place.minimize(&programs, target)?;
        }
    }
    Ok(())
}

/// The targets by their names; all when there is none.
fn chosen(names: &[String]) -> Result<Vec<String>> {
    let folder = shell::repository().join("fuzz/fuzz_targets");
    let mut all: Vec<String> = files(&folder)?
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    all.sort();
    if names.is_empty() {
        return Ok(all);
    }
    match names.iter().find(|name| !all.contains(name)) {
        None => Ok(names.to_vec()),
        Some(name) => Err(Failure::new(format!(
            "there is no fuzz target {name}; there are {}",
            all.join(", ")
        ))),
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", folder.display());
    let entries = fs::read_dir(folder).context(reading())?;
    entries
        .map(|entry| Ok(entry.context(reading())?.path()))
        .collect()
}

/// Builds all targets with coverage; returns where the programs are.
fn build(place: &Place, sanitizer: Option<&str>) -> Result<PathBuf> {
    println!("fuzz: building (the first time takes some minutes)");
    let host = host()?;
    let mut flags: Vec<String> = INSTRUMENTATION.iter().map(|&flag| flag.into()).collect();
    flags.extend(sanitizer.map(|name| format!("-Zsanitizer={name}")));
    // Both are built once.
    let folder = place.folder(sanitizer.unwrap_or("build"))?;
    let mut build = shell::cargo();
    build
        .args(["build", "--release", "--quiet", "--bins"])
        .args(["--manifest-path", "fuzz/Cargo.toml"])
        // With a target, build scripts and macros are not instrumented.
        .args(["--target", &host])
        .arg("--target-dir")
        .arg(&folder)
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    shell::run(&mut build)?;
    Ok(folder.join(host).join("release"))
}

/// The target that this machine's compiler compiles for.
fn host() -> Result<String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = shell::capture_text(Command::new(compiler).arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::new("rustc -vV does not say what it compiles for"))
}

/// Where things are.
struct Place {
    /// The corpus in the repository, a folder a target.
    committed: PathBuf,
    /// What is made, a folder a kind.
    made: PathBuf,
}

impl Place {
    /// A folder for what is made.
    fn folder(&self, kind: &str) -> Result<PathBuf> {
        let path = self.made.join(kind);
        fs::create_dir_all(&path).context(format_args!("making {}", path.display()))?;
        Ok(path)
    }

    /// The committed corpus of `target`, if it has one.
    fn seeds(&self, target: &str) -> Option<PathBuf> {
        Some(self.committed.join(target)).filter(|path| path.is_dir())
    }

    /// Runs the targets, as many at a time as there are cores.
    fn run_all(&self, programs: &Path, targets: &[String], seconds: u32) -> Result<()> {
        let waiting: Mutex<VecDeque<&String>> = Mutex::new(targets.iter().collect());
        let failed = Mutex::new(Vec::new());
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..cores.min(targets.len()) {
                scope.spawn(|| {
                    loop {
                        let next = locked(&waiting).pop_front();
                        let Some(target) = next.filter(|_| !interrupt::seen()) else {
                            return;
                        };
                        match self.fuzz(programs, target, seconds) {
                            Ok(done) => println!("fuzz: {target}: {done}"),
                            Err(failure) => locked(&failed).push(format!("{target}: {failure}")),
                        }
                    }
                });
            }
        });
        interrupt::check()?;
        let failed = locked(&failed);
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure::new(failed.join("\n")))
    }

    /// Runs one target; what it has done.
    fn fuzz(&self, programs: &Path, target: &str, seconds: u32) -> Result<String> {
        let found = self.folder(&format!("corpus/{target}"))?;
        let crashes = self.folder("crashes")?;
        let mut command = Command::new(programs.join(target));
        command
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={MAX_LEN}"))
            .arg(format!("-len_control={LEN_CONTROL}"))
            .arg(format!("-rss_limit_mb={MAX_MEMORY}"))
            .arg(format!("-timeout={MAX_INPUT_SECONDS}"))
            .arg(format!("-artifact_prefix={}/{target}-", crashes.display()))
            .arg("-print_final_stats=1")
            .arg(found)
            .args(self.seeds(target));
        let output = shell::output(&mut command)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let log = self.folder("logs")?.join(target);
        fs::write(&log, said.as_bytes()).context(format_args!("writing {}", log.display()))?;
        if output.status.success() {
            return Ok(summary(&said));
        }
        Err(Failure::new(match crash(&said) {
            Some((what, input)) => format!(
                "{what}\n  the input: {input}\n  again, with a backtrace: cargo xtask fuzz \
                 {target} --input {input}\n  all that was said: {}",
                log.display()
            ),
            None => format!("{}; see {}", output.status, log.display()),
        }))
    }

    /// Runs one input, and shows what it is.
    fn run_one(&self, program: &Path, input: &Path) -> Result<()> {
        let shown = self.folder("logs")?.join("input");
        // Either it tells the structure, or it runs it.
        let mut command = Command::new(program);
        command.arg(input).env("RUST_LIBFUZZER_DEBUG_PATH", &shown);
        shell::capture(&mut command)?;
        let text = fs::read_to_string(&shown);
        println!(
            "{}",
            text.context(format_args!("reading {}", shown.display()))?
        );
        let mut command = Command::new(program);
        command
            .arg(input)
            .env("RUST_BACKTRACE", "1")
            .env("FUZZ_TRACE", "1");
        shell::run(&mut command)
    }

    /// Puts the fewest inputs in the committed corpus that cover what it and
    /// all that was found cover.
    fn minimize(&self, programs: &Path, target: &str) -> Result<()> {
        interrupt::check()?;
        let least = Scratch::create_in(&self.made, target)?;
        let mut merge = Command::new(programs.join(target));
        merge
            .args(["-merge=1", "-set_cover_merge=1", "-use_counters=0"])
            .arg(format!("-max_len={MAX_LEN}"))
            .arg(least.path())
            .args(self.seeds(target))
            .arg(self.folder(&format!("corpus/{target}"))?);
        shell::capture(&mut merge)?;
        let committed = self.committed.join(target);
        if committed.is_dir() {
            let removing = format!("removing {}", committed.display());
            fs::remove_dir_all(&committed).context(removing)?;
        }
        fs::create_dir_all(&committed).context(format_args!("making {}", committed.display()))?;
        let (mut count, mut bytes) = (0_u64, 0);
        for file in files(least.path())? {
            let to = committed.join(file.file_name().unwrap_or_default());
            bytes += fs::copy(&file, &to).context(format_args!("writing {}", to.display()))?;
            count += 1;
        }
        println!(
            "fuzz: {target}: {count} inputs of {bytes} bytes in {}",
            committed.display()
        );
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What libFuzzer has done, of what it says at the end.
fn summary(said: &str) -> String {
    let stat = |name: &str| {
        let prefix = format!("stat::{name}:");
        let line = said.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or("?", str::trim)
    };
    let covered = said.rsplit_once(" cov: ").map_or("?", |(_, rest)| {
        rest.split_whitespace().next().unwrap_or("?")
    });
    format!(
        "{} inputs run, {} kept, {covered} edges seen, {} MiB",
        stat("number_of_executed_units"),
        stat("new_units_added"),
        stat("peak_rss_mb")
    )
}

/// What was wrong, and the file with the input.
fn crash(said: &str) -> Option<(String, String)> {
    let input = said
        .lines()
        .find_map(|line| line.split_once("Test unit written to "))?
        .1;
    let mut lines = said.lines();
    let panic = lines.by_ref().find(|line| line.contains("panicked at "));
    let what = match panic {
        Some(place) => {
            let place = place.split_once("panicked at ").map_or(place, |(_, at)| at);
            format!("{} ({place})", lines.next().unwrap_or("a panic").trim())
        }
        // Too slow, or too much memory.
        None => said
            .lines()
            .find_map(|line| line.strip_prefix("SUMMARY: "))
            .unwrap_or("no reason given")
            .to_owned(),
    };
    Some((what, input.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_the_folder() {
        let all = chosen(&[]).unwrap();
        assert!(all.contains(&"tcp_segments".to_owned()), "{all:?}");
        assert_eq!(chosen(&all[..1]).unwrap(), all[..1]);
        let error = chosen(&["nothing".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("nothing") && error.contains(&all[0]),
            "{error}"
        );
    }

    #[test]
    fn each_target_is_in_the_manifest() {
        let manifest = shell::repository().join("fuzz/Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        for target in chosen(&[]).unwrap() {
            let line = format!("path = \"fuzz_targets/{target}.rs\"");
            assert!(manifest.contains(&line), "{target}");
        }
    }

    #[test]
    fn what_a_run_has_done_is_read_from_its_end() {
        let said = "#2\tINITED cov: 2 ft: 3 corp: 1/1b\n\
            #100\tDONE   cov: 2983 ft: 15634 corp: 1479/293Kb\n\
            stat::number_of_executed_units: 63576\n\
            stat::new_units_added:          726\n\
            stat::peak_rss_mb:              56\n";
        let summary = summary(said);
        assert_eq!(
            summary,
            "63576 inputs run, 726 kept, 2983 edges seen, 56 MiB"
        );
    }

    #[test]
    fn a_crash_is_told_with_its_input() {
        let said = "thread '<unnamed>' (4030) panicked at src/tcp.rs:162:9:\n\
            a server that talks on\n\
            stack backtrace:\n\
            SUMMARY: libFuzzer: deadly signal\n\
            artifact_prefix='c/'; Test unit written to c/tcp_segments-crash-01\n";
        let (what, input) = crash(said).unwrap();
        assert_eq!(what, "a server that talks on (src/tcp.rs:162:9:)");
        assert_eq!(input, "c/tcp_segments-crash-01");
        let said = "artifact_prefix='c/'; Test unit written to c/timeout-01\n\
            SUMMARY: libFuzzer: timeout\n";
        let (what, _) = crash(said).unwrap();
        assert_eq!(what, "libFuzzer: timeout");
        assert_eq!(crash("cannot execute"), None);
    }
}
