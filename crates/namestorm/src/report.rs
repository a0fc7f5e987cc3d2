//! The report about a zone: its errors and warnings, one line each.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::zone::Place;

/// Maximum number of errors reported for one zone. Additional errors are only counted.
pub(crate) const MAX_ERRORS: usize = 50;
/// Maximum number of warnings reported for one zone. Additional warnings are only counted.
pub(crate) const MAX_WARNINGS: usize = 50;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The zone is served, but probably not as intended.
    Warning,
    /// The zone is not served.
    Error,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How serious the finding is.
    pub severity: Severity,
    /// The file that contains the problem.
    pub file: PathBuf,
    /// The line number, from 1; 0 if the finding concerns the whole file.
    pub line: u32,
    /// The column of the wrong word, from 1; 0 if the finding concerns the whole entry.
    pub column: u16,
    /// What is wrong, and often how to correct it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        let severity = match self.severity {
            Severity::Warning => "warning: ",
            Severity::Error => "",
        };
        write!(f, ": {severity}{}", self.message)
    }
}

/// The findings about one zone, and the files that it was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    files: Vec<PathBuf>,
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Report {
    /// Adds a file and returns its index. A `Place` refers to the file by this index.
    pub fn add_file(&mut self, file: &Path) -> u16 {
        let number = self.files.len();
        self.files.push(file.to_owned());
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    /// Returns the number of files added so far.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Adds an error at `place`.
    pub fn error(&mut self, place: Place, message: impl Into<String>) {
        self.errors += 1;
        if self.errors <= MAX_ERRORS {
            self.add(Severity::Error, place, message.into());
        }
    }

    /// Adds a warning at `place`.
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
            column: place.column,
            message,
        });
    }

    /// Returns the number of errors, listed or only counted.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Returns true if there are more errors than the report lists. Reading the zone can then stop.
    pub fn is_full(&self) -> bool {
        self.errors > MAX_ERRORS
    }

    /// Returns the findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the first error.
    pub(crate) fn first_error(&self) -> Option<&Finding> {
        let is_error = |finding: &&Finding| finding.severity == Severity::Error;
        self.findings.iter().find(is_error)
    }

    /// Sorts the findings by file, line and column.
    pub fn sort(&mut self) {
        let files = &self.files;
        let number = |finding: &Finding| files.iter().position(|file| *file == finding.file);
        self.findings
            .sort_by_key(|finding| (number(finding), finding.line, finding.column));
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
        for (count, max, what) in [
            (self.errors, MAX_ERRORS, "errors"),
            (self.warnings, MAX_WARNINGS, "warnings"),
        ] {
            if count > max {
                write!(f, "\nand {} more {what}", count - max)?;
            }
        }
        Ok(())
    }
}
