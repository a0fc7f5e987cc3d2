//! What is wrong with a zone, and where: one line each for a person.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::zone::Place;

/// Errors told of one zone; what is behind them is only counted.
pub(crate) const MAX_ERRORS: usize = 50;
/// Warnings told of one zone; what is behind them is only counted.
pub(crate) const MAX_WARNINGS: usize = 50;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The zone is served, but probably not as it is meant.
    Warning,
    /// The zone is not served.
    Error,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 when it is about the file as a whole.
    pub line: u32,
    /// What is wrong, and how to mend it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        let severity = match self.severity {
            Severity::Warning => "warning: ",
            Severity::Error => "",
        };
        write!(f, ": {severity}{}", self.message)
    }
}

/// What has been found in one zone: the files it was read from, errors and
/// warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    files: Vec<PathBuf>,
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Report {
    /// Takes note of a file; its number is what a place of a finding holds.
    pub fn add_file(&mut self, file: &Path) -> u16 {
        let number = self.files.len();
        self.files.push(file.to_owned());
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    /// Files read so far.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// An error at `place`.
    pub fn error(&mut self, place: Place, message: impl Into<String>) {
        self.errors += 1;
        if self.errors <= MAX_ERRORS {
            self.add(Severity::Error, place, message.into());
        }
    }

    /// A warning at `place`.
    pub fn warning(&mut self, place: Place, message: impl Into<String>) {
        self.warnings += 1;
        if self.warnings <= MAX_WARNINGS {
            self.add(Severity::Warning, place, message.into());
        }
    }

    fn add(&mut self, severity: Severity, place: Place, message: String) {
        let file = self.files.get(usize::from(place.file));
        self.findings.push(Finding {
            severity,
            file: file.cloned().unwrap_or_default(),
            line: place.line,
            message,
        });
    }

    /// Errors found, told or not.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Whether enough errors have been found for one reading.
    pub fn is_full(&self) -> bool {
        self.errors > MAX_ERRORS
    }

    /// What was found, in the order of finding.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Orders the findings by file and line.
    pub fn sort(&mut self) {
        let files = &self.files;
        let number = |finding: &Finding| files.iter().position(|file| *file == finding.file);
        self.findings
            .sort_by_key(|finding| (number(finding), finding.line));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.findings.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{finding}")?;
        }
        for (count, most, what) in [
            (self.errors, MAX_ERRORS, "errors"),
            (self.warnings, MAX_WARNINGS, "warnings"),
        ] {
            if count > most {
                write!(f, "\nand {} more {what}", count - most)?;
            }
        }
        Ok(())
    }
}
