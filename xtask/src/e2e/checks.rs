//! Counting what was right, and keeping what was wrong.

use std::fmt;
use std::time::Duration;

use crate::shell::Result;

/// The outcome of some checks.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    passed: u32,
    failures: Vec<(String, String)>,
    notes: Vec<String>,
}

impl Checks {
    /// Runs one check.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        match check() {
            Ok(()) => self.passed += 1,
            Err(failure) => self.fail(name, &failure.to_string()),
        }
    }

    pub(crate) fn fail(&mut self, name: &str, message: &str) {
        self.failures.push((name.to_owned(), message.to_owned()));
    }

    /// Keeps something that helps to understand a failure.
    pub(crate) fn note(&mut self, text: &str) {
        self.notes.push(text.trim_end().to_owned());
    }

    pub(crate) fn failed(&self) -> u32 {
        self.failures.len() as u32
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
    }

    /// Prints one line when all was right, and everything known when not.
    pub(crate) fn print(&self, what: &str, seed: Option<u64>, took: Duration) {
        let word = if self.failures.is_empty() {
            "ok  "
        } else {
            "FAIL"
        };
        let seed = seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
        let passed = self.passed;
        let mut lines = vec![format!(
            "{word} {what} ({passed} checks, {:.1} s{seed})",
            took.as_secs_f64()
        )];
        for (name, message) in &self.failures {
            lines.push(format!("  failed: {name}\n{}", indented(message, 6)));
        }
        for note in &self.notes {
            lines.push(format!("  the server's output:\n{}", indented(note, 6)));
        }
        // At once: others print as well.
        println!("{}", lines.join("\n"));
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failures.len())
    }
}

/// Reads the line that [`Checks`] displays as.
pub(crate) fn counts(line: &str) -> Option<(u32, u32)> {
    let (passed, failed) = line.split_once(" passed, ")?;
    Some((
        passed.parse().ok()?,
        failed.strip_suffix(" failed")?.parse().ok()?,
    ))
}

fn indented(text: &str, by: usize) -> String {
    let margin = " ".repeat(by);
    text.lines()
        .map(|line| format!("{margin}{line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Failure;

    #[test]
    fn what_is_shown_is_read_back() {
        let mut checks = Checks::default();
        checks.check("right", || Ok(()));
        checks.check("right", || Ok(()));
        checks.check("wrong", || Err(Failure::new("why")));
        assert_eq!(counts(&checks.to_string()), Some((2, 1)));
        assert_eq!(counts("ok   something (3 passed, 0 failed)"), None);
    }
}
