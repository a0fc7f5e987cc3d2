//! Counts passed and failed checks, and collects failure messages.

use std::fmt::{self, Display};
use std::time::Duration;

use crate::interrupt;
use anyhow::Result;

/// Maximum number of attempts at a timing check. An attempt can fail because other work slows the
/// machine.
const TRIES: u32 = 3;

/// Results of a set of checks.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    passed: u32,
    failed: u32,
    /// Failure messages and server output, which are printed at the end.
    details: Vec<String>,
}

impl Checks {
    /// Runs one check, and counts whether it passes.
    pub(crate) fn check(&mut self, name: impl Display, check: impl FnOnce() -> Result<()>) {
        match check() {
            Ok(()) => self.passed += 1,
            Err(failure) => self.fail(name, &format!("{failure:#}")),
        }
    }

    /// Runs a timing check up to [`TRIES`] times, until it passes. Prints the line of figures that
    /// `attempt` returns.
    pub(crate) fn measure(&mut self, name: impl Display, attempt: impl Fn() -> Result<String>) {
        self.check(name, || {
            for _ in 1..TRIES {
                interrupt::check()?;
                match attempt() {
                    Ok(line) => {
                        println!("{line}");
                        return Ok(());
                    }
                    Err(failure) => println!("not this time: {failure:#}"),
                }
            }
            attempt().map(|line| println!("{line}"))
        });
    }

    pub(crate) fn fail(&mut self, name: impl Display, message: &str) {
        self.failed += 1;
        self.keep(format_args!("failed: {name}"), message);
    }

    /// Adds a program's output to the text that is printed after the failures.
    pub(crate) fn note(&mut self, output: &str) {
        self.keep("output:", output);
    }

    fn keep(&mut self, title: impl Display, text: &str) {
        let lines = text
            .trim_end()
            .lines()
            .map(|line| format!("\n      {line}"));
        let detail = format!("\n  {title}{}", lines.collect::<String>());
        self.details.push(detail);
    }

    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.details.extend(other.details);
    }

    /// Prints one line of results and all failure messages. A single write prevents other threads
    /// from printing in between.
    pub(crate) fn print(&self, what: &str, seed: Option<u64>, duration: Duration) {
        let word = if self.failed == 0 { "ok  " } else { "FAIL" };
        let seed = seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
        let (passed, seconds) = (self.passed, duration.as_secs_f64());
        let details = self.details.concat();
        println!("{word} {what} ({passed} checks, {seconds:.1} s{seed}){details}");
    }
}

impl Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Parses a line that [`Checks`] has printed, such as `3 passed, 0 failed`.
pub(crate) fn counts(line: &str) -> Option<(u32, u32)> {
    let (passed, failed) = line.split_once(" passed, ")?;
    let failed = failed.strip_suffix(" failed")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

/// Splits a table line such as `a | b | c` into its cells, without spaces around them.
pub(crate) fn row<const N: usize>(line: &str) -> [&str; N] {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    cells
        .try_into()
        .expect("a line has the table's number of cells")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn the_counts_of_a_printed_report_are_parsed() {
        let mut checks = Checks::default();
        checks.check("right", || Ok(()));
        checks.check("right", || Ok(()));
        checks.check("wrong", || Err(anyhow!("why")));
        assert_eq!(counts(&checks.to_string()), Some((2, 1)));
        assert_eq!(counts("ok   something (3 passed, 0 failed)"), None);
    }
}
