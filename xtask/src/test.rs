//! `xtask test`: every check that CI runs.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::shell::{self, Context as _, Result};
use crate::{e2e, fuzz, interrupt, loss, setup, structure, watched};

/// Of a failing step this much of the end is shown.
const SHOWN_LINES: usize = 200;
/// A step that writes no line for so long has hung, and is ended.
const SILENCE: Duration = Duration::from_mins(15);
/// The same with `--full`, where one test has thousands of cells.
const FULL_SILENCE: Duration = Duration::from_mins(90);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sample the end-to-end matrix and the transfer matrix (the default).
    #[arg(long = "quick", overrides_with = "full")]
    _quick: bool,
    /// Run the whole end-to-end matrix and the whole transfer matrix.
    #[arg(long)]
    full: bool,
    /// Only tests, scenarios and cases whose name contains this.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    setup::run()?;
    setup::require_components()?;
    let mut tests = Tests {
        silence: if options.full { FULL_SILENCE } else { SILENCE },
        ..Tests::default()
    };
    let xtask = std::env::current_exe().context("finding this program's own file")?;
    if options.filter.is_empty() {
        tests.step("format", || cargo(&["fmt", "--all", "--check"]));
        tests.step("format of the fuzz targets", || {
            cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])
        });
        tests.step("clippy", || {
            cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])
        });
        tests.step("documentation", || {
            let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
            doc.env("RUSTDOCFLAGS", "-D warnings");
            doc
        });
        tests.counted("structure of the crates", structure::check)?;
        tests.step("figures that README quotes", || {
            let mut figures = Command::new(&xtask);
            figures.args(["bench", "figures", "--check"]);
            figures
        });
    }
    if options.filter.is_empty() {
        tests.step_where_installed(
            "licences, duplicates and sources of dependencies",
            "deny",
            &["--offline", "check", "licenses", "bans", "sources"],
        );
    }
    tests.step("unit, property and simulation tests", || {
        let mut test = cargo(&["test", "--workspace", "--no-fail-fast"]);
        if !options.filter.is_empty() {
            test.arg(&options.filter);
        }
        if options.full {
            test.env("MATRIX", "full");
        }
        run_as_root(&mut test);
        test
    });
    tests.step("release build", || {
        cargo(&["build", "--release", "-p", "sandstorm", "-p", "namestorm"])
    });
    tests.step("release build of the bad network", || {
        cargo(&["build", "--release", "-p", "benches", "--bin", "forward"])
    });
    if options.filter.is_empty() {
        tests.step("the guide's project, outside the workspace", || {
            let mut guide = Command::new(&xtask);
            guide.arg("guide");
            guide
        });
        tests.step("instruction counts", || {
            let mut counts = Command::new(&xtask);
            counts.args(["bench", "instructions", "--check"]);
            counts
        });
        tests.step("fuzzing", || {
            let mut fuzz = Command::new(&xtask);
            fuzz.args(["fuzz", "--seconds", &fuzz::TEST_SECONDS.to_string()]);
            fuzz
        });
        tests.step("demo", || {
            let mut demo = Command::new(xtask);
            demo.args(["demo", "--built", "--once"]);
            demo
        });
    }
    tests.counted("end to end", || {
        e2e::run_apart(options.full, &options.filter)
    })?;
    tests.counted("clients on a bad network", || {
        loss::run_clients_apart(options.full, &options.filter)
    })?;
    tests.finish()
}

fn cargo(args: &[&str]) -> Command {
    let mut command = shell::cargo();
    command.args(args);
    command
}

/// Has cargo run test programs through sudo where we are not root: those that
/// make network namespaces need it.
fn run_as_root(test: &mut Command) {
    if !shell::is_root() {
        for target in ["X86_64_UNKNOWN_LINUX_GNU", "AARCH64_UNKNOWN_LINUX_GNU"] {
            test.env(format!("CARGO_TARGET_{target}_RUNNER"), "sudo -E");
        }
    }
}

/// What has passed and failed so far.
#[derive(Default)]
struct Tests {
    passed: u32,
    failed: u32,
    summary: String,
    silence: Duration,
}

impl Tests {
    /// Runs a command as one step. Its output is shown if it fails.
    fn step(&mut self, name: &str, command: impl FnOnce() -> Command) {
        if interrupt::seen() {
            return;
        }
        println!("==== {name}");
        let start = Instant::now();
        let mut command = command();
        match watched::run(&mut command, self.silence) {
            Ok(outcome) => {
                let counts = Counts::of(&outcome.stdout);
                // A step that runs no tests is one itself.
                let itself = u32::from(counts == Counts::default());
                self.passed += counts.passed;
                self.failed += counts.failed;
                let well = outcome.status.success() && !outcome.hung;
                if well {
                    self.passed += itself;
                } else {
                    self.failed += u32::from(counts.failed == 0);
                    println!("$ {}", shell::shown(&command));
                    println!("{}", end_of(&outcome.stdout));
                    println!("{}", end_of(&outcome.stderr));
                }
                if outcome.hung {
                    println!("{}", hung(self.silence, &outcome.running_tests()));
                }
                self.close(name, well, start.elapsed());
            }
            Err(failure) => {
                println!("{failure}");
                self.failed += 1;
                self.close(name, false, start.elapsed());
            }
        }
    }

    /// Runs a command of a tool that is not built here: skipped where it is
    /// not installed.
    fn step_where_installed(&mut self, name: &str, tool: &str, args: &[&str]) {
        let mut version = cargo(&[tool, "--version"]);
        if shell::output(&mut version).is_ok_and(|output| output.status.success()) {
            self.step(name, || cargo(&[&[tool], args].concat()));
            return;
        }
        let line = format!("skip {name}: cargo-{tool} is not installed");
        println!("{line}");
        // Writing to a string cannot fail.
        let _ = writeln!(self.summary, "{line}");
    }

    /// Runs a step that counts its own checks and says what has failed.
    fn counted(&mut self, name: &str, step: impl FnOnce() -> Result<(u32, u32)>) -> Result<()> {
        interrupt::check()?;
        println!("==== {name}");
        let start = Instant::now();
        let (passed, failed) = step()?;
        self.passed += passed;
        self.failed += failed;
        self.close(name, failed == 0, start.elapsed());
        Ok(())
    }

    fn close(&mut self, name: &str, well: bool, took: Duration) {
        let word = if well { "ok  " } else { "FAIL" };
        let line = format!("{word} {name}: {:.1} s", took.as_secs_f64());
        println!("{line}");
        // Writing to a string cannot fail.
        let _ = writeln!(self.summary, "{line}");
    }

    fn finish(self) -> Result<()> {
        interrupt::check()?;
        println!(
            "\n{}{} passed, {} failed",
            self.summary, self.passed, self.failed
        );
        if self.failed == 0 {
            return Ok(());
        }
        // Everything is said; only the status is left.
        std::process::exit(1);
    }
}

/// Tests as counted in what `cargo test` prints.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
}

impl Counts {
    fn of(output: &str) -> Self {
        let mut counts = Self::default();
        for line in output
            .lines()
            .filter(|line| line.starts_with("test result: "))
        {
            let words: Vec<&str> = line.split([' ', ';']).collect();
            for pair in words.windows(2) {
                let number = pair[0].parse().unwrap_or(0);
                match pair[1] {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    _ => {}
                }
            }
        }
        counts
    }
}

/// Why a step was ended.
fn hung(silence: Duration, running: &[&str]) -> String {
    let running = match running {
        [] => "no test had said that it runs for long".to_owned(),
        names => format!("still running: {}", names.join(", ")),
    };
    let minutes = silence.as_secs() / 60;
    format!("ended, as nothing was heard for {minutes} minutes; {running}")
}

fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_cargo_test_are_added_up() {
        let output = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        assert_eq!(
            Counts::of(output),
            Counts {
                passed: 4,
                failed: 2
            }
        );
        assert_eq!(Counts::of("   Compiling nmio\n"), Counts::default());
    }

    #[test]
    fn of_long_output_the_end_is_shown() {
        let text = (0..500)
            .map(|i| i.to_string())
            .collect::<Vec<_>>()
            .join("\n");
        let shown = end_of(&text);
        assert!(shown.starts_with("300\n") && shown.ends_with("\n499"));
    }
}
