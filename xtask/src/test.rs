//! `xtask test`: runs every check that CI runs.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::shell;
use crate::{e2e, fuzz, guest, image, interrupt, loss, package, setup, structure};
use anyhow::Result;

/// Number of output lines to show after a step fails.
const SHOWN_LINES: usize = 400;
/// If a step writes no output for this time, it is assumed to hang and is killed.
const SILENCE: Duration = Duration::from_mins(15);
/// Value of [`SILENCE`] with `--all`, where a single test has thousands of cases.
const FULL_SILENCE: Duration = Duration::from_mins(90);
/// Interval at which a running step is checked.
const TICK: Duration = Duration::from_millis(50);
/// Time between SIGTERM and SIGKILL when a step is killed.
const GRACE: Duration = Duration::from_secs(5);
/// The Rust target of FreeBSD.
const FREEBSD: &str = "x86_64-unknown-freebsd";
/// Programs that the tests need in the release profile, each with its package.
const RELEASED: [(&str, &str); 4] = [
    ("sandstorm", "sandstorm"),
    ("namestorm", "namestorm"),
    ("benches", "forward"),
    ("benches", "instructions"),
];
/// The largest exposure that a systemd unit may have, in tenths. systemd 252 rates ours at 2.0. Other
/// versions may give some settings another weight.
const MAX_EXPOSURE: &str = "--threshold=22";
/// The words by which a Rust test program reports a slow test.
const SLOW: &str = " has been running for over ";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run the whole end-to-end matrix and the whole transfer matrix instead of samples, fuzz each
    /// target, and try the Debian packages and the OCI image.
    #[arg(long)]
    all: bool,
    /// Run only tests, scenarios and cases whose name contains this text.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    setup::run()?;
    setup::require_components()?;
    let is_whole = options.filter.is_empty();
    let mut tests = Tests {
        is_whole,
        silence: if options.all { FULL_SILENCE } else { SILENCE },
        ..Tests::default()
    };
    let release = tests.begin("release build", release_build());
    let checked = if is_whole {
        check_sources(&mut tests)
    } else {
        Ok(())
    };
    if checked.is_err() {
        tests.end(release);
        return checked;
    }
    // The last program of the release build needs one core. Tests of whole programs often wait for
    // the network. Both leave time to the compiler.
    let build = gentle(&cargo("test --workspace --no-run"));
    let build = tests.begin("build of the tests", build);
    tests.end(release);
    let outcome = run_programs(&mut tests, options);
    tests.end(build);
    outcome?;
    run_tests(&mut tests, options)?;
    tests.finish()
}

/// Runs the steps that need programs in the release profile.
fn run_programs(tests: &mut Tests, options: &Options) -> Result<()> {
    if tests.is_whole {
        let counts = without_lines(xtask("bench instructions --check")?);
        tests.step("instruction counts", counts);
        tests.step("demo", xtask("demo --built --once")?);
        let step = xtask(guest::IN_TESTS)?;
        let missing = without(guest::probe(), "QEMU for this kind of guest, cpio or apt");
        tests.optional("a guest with zero-copy", missing, step);
        tests.packages(options.all)?;
    }
    tests.counted("end to end", || {
        e2e::run_apart(options.all, &options.filter)
    })?;
    tests.counted("clients on a bad network", || {
        loss::run_clients_apart(options.all, &options.filter)
    })
}

/// Runs the steps that need no program in the release profile.
fn run_tests(tests: &mut Tests, options: &Options) -> Result<()> {
    let is_whole = tests.is_whole;
    let mut test = cargo("test --workspace --no-fail-fast");
    test.args(Some(&options.filter).filter(|_| !is_whole));
    if options.all {
        test.env("MATRIX", "full").env("DIFFERENTIAL", "full");
    }
    run_as_root(&mut test);
    let mut test = tests.begin("unit, property and simulation tests", test);
    if !is_whole {
        tests.end(test);
        return Ok(());
    }
    // Until then, cargo builds in the same folder.
    wait_for_output(&mut test, "Running ")?;
    let project = "the guide's project, outside the workspace";
    let guide = tests.begin(project, gentle(&xtask("guide")?));
    let inputs = if options.all {
        fuzz::IN_FULL_TESTS
    } else {
        fuzz::IN_TESTS
    };
    let inputs = tests.begin("inputs of the fuzz targets", gentle(&xtask(inputs)?));
    tests.end(test);
    tests.end(guide);
    tests.end(inputs);
    tests.screens();
    Ok(())
}

/// Runs the checks that need no built program.
fn check_sources(tests: &mut Tests) -> Result<()> {
    tests.step("format", cargo("fmt --all --check"));
    let fuzz = cargo("fmt --manifest-path fuzz/Cargo.toml --check");
    tests.step("format of the fuzz targets", fuzz);
    let clippy = cargo("clippy --workspace --all-targets -- -D warnings");
    tests.step("clippy", clippy);
    let mut doc = cargo("doc --workspace --no-deps");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    tests.step("documentation", doc);
    tests.counted("structure of the crates", structure::check)?;
    let figures = xtask("bench figures --check")?;
    tests.step("figures that README quotes", figures);
    tests.optional(
        "licences, duplicates and sources of dependencies",
        without(cargo("deny --version"), "cargo-deny"),
        cargo("deny --offline check licenses bans sources"),
    );
    let mut book = Command::new("mdbook");
    book.args(["build", "docs"])
        .current_dir(shell::repository());
    tests.optional("the guides as a book", shell::missing(&["mdbook"]), book);
    let mut units = Command::new("systemd-analyze");
    units.args(["security", "--no-pager", "--offline=true", MAX_EXPOSURE]);
    units.args(package::PROGRAMS.map(|program| format!("packaging/{program}.service")));
    units.current_dir(shell::repository());
    let missing = without(can_rate_units(), "systemd-analyze of systemd 250 or later");
    tests.optional("exposure of the systemd units", missing, units);
    let target = format!("{FREEBSD} (rustup target add {FREEBSD})");
    let missing = without(has_target(FREEBSD), &target);
    let name = "the product compiles for FreeBSD";
    tests.optional(name, missing, check_for(FREEBSD));
    Ok(())
}

/// Returns a command that builds what tests need in the release profile.
fn release_build() -> Command {
    let mut build = without_lines(cargo("build --release"));
    for (package, program) in RELEASED {
        build.args(["-p", package, "--bin", program]);
    }
    build
}

/// Returns the same command, which only gets the time that everything else leaves.
fn gentle(command: &Command) -> Command {
    let mut gentle = Command::new("nice");
    gentle.args(["-n", "19"]).arg(command.get_program());
    gentle.args(command.get_args());
    let set = command.get_envs();
    gentle.envs(set.filter_map(|(name, value)| Some((name, value?))));
    gentle.current_dir(shell::repository());
    gentle
}

/// Returns `tool` if the command `probe`, which needs it, fails.
fn without(mut probe: Command, tool: &str) -> Option<&str> {
    (!shell::succeeds(&mut probe)).then_some(tool)
}

/// Returns a command that succeeds if systemd-analyze can rate the exposure of units as files.
fn can_rate_units() -> Command {
    let mut command = Command::new("sh");
    let script = "systemd-analyze --help | grep -q -- --threshold";
    command.args(["-c", script]);
    command
}

/// Returns a command that succeeds if the standard library for `target` is installed.
fn has_target(target: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("test -d \"$(rustc --print target-libdir --target {target})\"");
    command.args(["-c", &script]);
    command
}

/// Returns a command that checks the product and the examples for another target. It needs neither a
/// linker nor C headers for that target.
fn check_for(target: &str) -> Command {
    let tools = "--exclude xtask --exclude benches --exclude testkit";
    let mut check = cargo(&format!("check --workspace {tools} --target {target}"));
    check.env("RUSTFLAGS", "-D warnings");
    check
}

fn cargo(arguments: &str) -> Command {
    let mut command = shell::cargo();
    command.args(arguments.split(' '));
    command
}

/// Lets the release profile leave out line tables. They do not change the code, and the optimizer
/// needs longer with them.
fn without_lines(mut command: Command) -> Command {
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    command
}

/// Returns a command that runs `xtask ARGUMENTS`.
fn xtask(arguments: &str) -> Result<Command> {
    let mut command = Command::new(shell::this_program()?);
    command.args(arguments.split(' '));
    Ok(command)
}

/// If this process is not root, makes cargo run the test programs through sudo, because some of
/// them make network namespaces.
fn run_as_root(test: &mut Command) {
    if !shell::is_root() {
        for target in ["X86_64_UNKNOWN_LINUX_GNU", "AARCH64_UNKNOWN_LINUX_GNU"] {
            test.env(format!("CARGO_TARGET_{target}_RUNNER"), "sudo -E");
        }
    }
}

/// A step that has begun.
struct Step {
    name: String,
    start: Instant,
    command: String,
    program: Result<Server>,
}

/// Results of the steps so far. A step is killed after `silence` without output.
#[derive(Default)]
struct Tests {
    passed: u32,
    failed: u32,
    summary: String,
    silence: Duration,
    /// Whether all steps run.
    is_whole: bool,
}

impl Tests {
    /// Runs a command as one step, and shows the end of its output if it fails.
    fn step(&mut self, name: &str, command: Command) {
        let step = self.begin(name, command);
        self.end(step);
    }

    /// Starts a command as one step. Returns `None` after Ctrl-C.
    fn begin(&self, name: &str, mut command: Command) -> Option<Step> {
        if interrupt::seen() {
            return None;
        }
        if self.is_whole {
            // What incremental builds and debuggers need later costs time and disk space now. A run of
            // everything is seldom repeated.
            command.env("CARGO_INCREMENTAL", "0");
            command.env("CARGO_PROFILE_DEV_DEBUG", "false");
        }
        println!("==== {name}");
        Some(Step {
            name: name.to_owned(),
            start: Instant::now(),
            command: shell::shown(&command),
            program: Server::spawn(&mut command),
        })
    }

    /// Waits for the end of a step, and shows the end of its output if it fails.
    fn end(&mut self, step: Option<Step>) {
        let Some(Step {
            name,
            start,
            command,
            program,
        }) = step
        else {
            return;
        };
        let (output, fault) = program
            .and_then(|mut program| watch(&mut program, self.silence))
            .unwrap_or_else(|failure| (String::new(), Some(format!("{failure:#}"))));
        let (passed, failed) = counts(&output);
        self.passed += passed;
        self.failed += failed;
        if let Some(fault) = &fault {
            self.failed += u32::from(failed == 0);
            println!(
                "$ {command}\n{}\n{fault}",
                shell::end_of(&output, SHOWN_LINES)
            );
        } else if passed == 0 {
            // A step whose output reports no tests counts as one test.
            self.passed += 1;
        }
        self.close(&name, fault.is_none(), start.elapsed());
        // The summary may be all that a reader gets to see.
        for failure in failures(&output) {
            self.report(&format!("     {failure}"));
        }
    }

    /// Runs a step that needs tools which this project does not install. If one is `missing`, the step is
    /// reported as skipped.
    fn optional(&mut self, name: &str, missing: Option<&str>, step: Command) {
        match missing {
            None => self.step(name, step),
            Some(tool) => self.report(&format!("skip {name}: {tool} is not installed")),
        }
    }

    /// Builds a Debian package. With `all`, also tries those of all programs and the OCI image.
    fn packages(&mut self, all: bool) -> Result<()> {
        let missing = shell::missing(&package::BUILDERS);
        self.optional("a Debian package", missing, xtask(package::IN_TESTS)?);
        if !all {
            return Ok(());
        }
        let program = shell::this_program()?;
        if let Err(why) = shell::as_root(&program) {
            self.report(&format!(
                "skip the Debian packages and the OCI image in a container: {why}"
            ));
            return Ok(());
        }
        let for_packages = shell::missing(&package::TRIERS);
        let for_image = shell::missing(&[image::BUILDERS, image::RUNNERS].concat());
        if for_packages.is_none() || for_image.is_none() {
            // The other programs are built already.
            let build = without_lines(cargo("build --release -p storm"));
            self.step("release build of storm", build);
        }
        for (name, missing, words) in [
            (
                "the Debian packages in a container",
                for_packages,
                package::IN_FULL_TESTS,
            ),
            (
                "the OCI image in a container",
                for_image,
                image::IN_FULL_TESTS,
            ),
        ] {
            let mut step = shell::as_root(&program)?;
            step.args(words.split(' '));
            self.optional(name, missing, step);
        }
        Ok(())
    }

    /// Runs the tests of what a person sees, which need programs that this project does not install.
    fn screens(&mut self) {
        for (name, test, tool) in [
            ("the status page in a browser", "page", "chromium"),
            ("the status page in a terminal", "terminal", "tmux"),
        ] {
            // This program shares procedural macros with the others. Without it in the selection, cargo
            // would build them again, and with them everything else.
            let selection = format!("--test {test} --bin xtask");
            let mut step = cargo(&format!("test --workspace {selection} -- --ignored"));
            run_as_root(&mut step);
            self.optional(name, shell::missing(&[tool]), step);
        }
    }

    /// Runs a step that prints its failures. The step returns how many of its checks passed and
    /// failed.
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

    fn close(&mut self, name: &str, well: bool, duration: Duration) {
        let word = if well { "ok  " } else { "FAIL" };
        self.report(&format!("{word} {name}: {:.1} s", duration.as_secs_f64()));
    }

    fn report(&mut self, line: &str) {
        println!("{line}");
        // Writing to a string cannot fail.
        let _ = writeln!(self.summary, "{line}");
    }

    fn finish(self) -> Result<()> {
        interrupt::check()?;
        let (summary, passed, failed) = (self.summary, self.passed, self.failed);
        println!("\n{summary}{passed} passed, {failed} failed");
        if failed == 0 {
            return Ok(());
        }
        // The failures are already printed, so set only the exit status.
        std::process::exit(1);
    }
}

/// Waits until a step writes a word, or ends.
fn wait_for_output(step: &mut Option<Step>, word: &str) -> Result<()> {
    if let Some(Ok(program)) = step.as_mut().map(|step| &mut step.program) {
        while program.ended()?.is_none() && !program.output().contains(word) {
            interrupt::check()?;
            std::thread::sleep(TICK);
        }
    }
    Ok(())
}

/// Waits until a program ends. Kills it after Ctrl-C, or if it writes nothing for `silence`. Returns its
/// output, and a message if it failed or was killed.
fn watch(step: &mut Server, silence: Duration) -> Result<(String, Option<String>)> {
    loop {
        if let Some(status) = step.ended()? {
            let fault = (!status.success()).then(|| format!("it ended with {status}"));
            return Ok((step.output(), fault));
        }
        if step.silent_for() >= silence || interrupt::seen() {
            end_family(step)?;
            let output = step.output();
            let tests = match running_tests(&output).join(", ") {
                none if none.is_empty() => "no test had said that it runs for long".to_owned(),
                tests => format!("still running: {tests}"),
            };
            let fault = format!("it wrote nothing for {:?}; {tests}", step.silent_for());
            return Ok((output, Some(fault)));
        }
        std::thread::sleep(TICK);
    }
}

/// Kills a program and all its descendants. This needs root, because tests run through sudo.
fn end_family(program: &mut Server) -> Result<()> {
    let processes = family(program.id());
    for signal in ["-TERM", "-KILL"] {
        let mut kill = shell::as_root("kill")?;
        // The status is ignored, because `kill` fails if a process has already exited.
        shell::output(kill.args([signal, "--"]).args(&processes))?;
        program.wait(GRACE)?;
    }
    Ok(())
}

/// Returns the ids of a process and of all its descendants.
fn family(of: u32) -> Vec<String> {
    let mut family = vec![of.to_string()];
    let threads = std::fs::read_dir(format!("/proc/{of}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(thread.path().join("children"));
        let children = children.unwrap_or_default();
        let ids = children.split_whitespace().filter_map(|id| id.parse().ok());
        family.extend(ids.flat_map(self::family));
    }
    family
}

/// Returns the tests that were reported as slow and have not finished.
fn running_tests(output: &str) -> Vec<&str> {
    let mut running = Vec::new();
    for test in output.lines().filter_map(|line| line.strip_prefix("test ")) {
        if let Some((name, _)) = test.split_once(SLOW) {
            running.push(name);
        } else if let Some((name, _)) = test.split_once(" ... ") {
            running.retain(|one| *one != name);
        }
    }
    running
}

/// Returns the lines that name the failed tests, and those that say where and why each panicked.
fn failures(output: &str) -> impl Iterator<Item = &str> {
    let is_panic = |line: &str| line.starts_with("thread '") && line.contains("panicked at ");
    let is_failed = |line: &str| line.starts_with("test ") && line.ends_with(" ... FAILED");
    let before = std::iter::once("").chain(output.lines());
    before
        .zip(output.lines())
        .filter(move |(before, line)| is_failed(line) || is_panic(line) || is_panic(before))
        .map(|(_, line)| line)
}

/// Counts the passed and failed tests in the output of `cargo test`.
fn counts(output: &str) -> (u32, u32) {
    let results = output
        .lines()
        .filter(|line| line.starts_with("test result: "));
    let (mut passed, mut failed) = (0, 0);
    for line in results {
        let words: Vec<&str> = line.split([' ', ';']).collect();
        for pair in words.windows(2) {
            let number = pair[0].parse().unwrap_or(0);
            match pair[1] {
                "passed" => passed += number,
                "failed" => failed += number,
                _ => {}
            }
        }
    }
    (passed, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, silence: Duration) -> (String, Option<String>) {
        let mut program = Server::spawn(Command::new("sh").args(["-c", script])).unwrap();
        watch(&mut program, silence).unwrap()
    }

    #[test]
    fn a_target_is_found_only_if_it_is_installed() {
        assert!(shell::succeeds(&mut has_target("x86_64-unknown-linux-gnu")));
        assert!(!shell::succeeds(&mut has_target("no-such-target")));
    }

    #[test]
    fn a_step_is_skipped_if_one_of_its_tools_is_missing() {
        assert_eq!(shell::missing(&["sh", "cat"]), None);
        assert_eq!(without(Command::new("true"), "x"), None);
        let mut tests = Tests::default();
        let missing = shell::missing(&["sh", "no-such-tool"]);
        tests.optional("a", missing, Command::new("false"));
        tests.optional(
            "b",
            without(Command::new("false"), "x"),
            Command::new("false"),
        );
        assert_eq!(tests.failed, 0);
        let expected = "skip a: no-such-tool is not installed\nskip b: x is not installed\n";
        assert_eq!(tests.summary, expected);
    }

    #[test]
    fn a_command_that_keeps_writing_is_not_killed() {
        let script = "for i in 1 2 3 4; do echo $i; sleep 0.2; done; echo error >&2; exit 3";
        let (output, fault) = sh(script, Duration::from_millis(700));
        assert_eq!(output, "1\n2\n3\n4\nerror\n");
        assert_eq!(fault.as_deref(), Some("it ended with exit status: 3"));
    }

    #[test]
    fn a_silent_command_is_killed_with_its_children_and_its_running_tests_are_named() {
        let begun = Instant::now();
        let script = "echo 'test a::b has been running for over 60 seconds'; sleep 1000 & \
                      echo $!; sleep 1000";
        let (output, fault) = sh(script, Duration::from_millis(300));
        assert!(fault.is_some_and(|fault| fault.ends_with("still running: a::b")));
        assert!(begun.elapsed() < GRACE);
        let child = output.lines().nth(1).unwrap();
        // A killed process may need a moment to exit.
        let ended = interrupt::wait_for(GRACE, || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            Ok(stat.map_or(Some(()), |stat| stat.contains(") Z ").then_some(())))
        });
        assert!(ended.unwrap().is_some());
    }

    #[test]
    fn failed_tests_are_named_with_their_reasons() {
        let output = "test a ... ok\ntest b ... FAILED\n\n---- b stdout ----\n\n\
                      thread 'b' (7) panicked at src/b.rs:3:5:\none is not two\nstack backtrace:\n";
        let expected = [
            "test b ... FAILED",
            "thread 'b' (7) panicked at src/b.rs:3:5:",
            "one is not two",
        ];
        assert!(failures(output).eq(expected));
    }

    #[test]
    fn a_slow_test_that_has_ended_is_not_reported_as_running() {
        let output = "test a has been running for over 60 seconds\n\
                      test b has been running for over 60 seconds\n\
                      test a ... ok\ntest c ... ok\n";
        assert_eq!(running_tests(output), ["b"]);
    }

    #[test]
    fn results_of_cargo_test_are_added_up() {
        let output = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(counts(output), (4, 2));
        assert_eq!(counts("   Compiling nmio\n"), (0, 0));
    }

    #[test]
    fn only_the_end_of_long_output_is_shown() {
        let text = (0..500)
            .map(|i| i.to_string())
            .collect::<Vec<_>>()
            .join("\n");
        let shown = shell::end_of(&text, SHOWN_LINES);
        assert!(shown.starts_with("100\n") && shown.ends_with("\n499"));
    }
}
