//! What is wrong with a configuration file.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use strsim::jaro_winkler;

use super::position::TextLines;
use crate::report::counted;

/// Errors in a file.
#[derive(Debug)]
pub(super) struct Problems {
    /// The offset of each in the file, and what to write instead.
    all: Vec<(usize, String)>,
    /// Maximum number of errors that are named.
    max: usize,
}

impl Problems {
    /// Names the first `max` errors, and counts the others.
    pub(super) fn new(max: usize) -> Self {
        Self {
            all: Vec::new(),
            max,
        }
    }

    /// Adds an error. The message says what is wrong, and what to write instead.
    pub(super) fn add(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.all.push((span.start, message.into()));
    }

    /// Returns true if nothing is wrong.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns a line for each error, in the order of their places. `text` is the text of `file`.
    pub(super) fn told(mut self, file: &Path, text: &str) -> String {
        self.all.sort_by_key(|(at, _)| *at);
        let more = self.all.len().saturating_sub(self.max);
        let file = file.display().to_string();
        let file = file.escape_debug();
        let (mut lines, mut told) = (TextLines::new(text), String::new());
        for (at, message) in self.all.into_iter().take(self.max) {
            // Writing to a string cannot fail.
            let _ = writeln!(told, "{file}:{}: {message}", lines.position(at));
        }
        if more > 0 {
            let more = counted(more as u64, "more mistake");
            let _ = writeln!(told, "{file}: and {more}");
        }
        told.truncate(told.trim_end().len());
        told
    }
}

/// Similarity above which a name counts as a misspelling of another one.
const SIMILAR: f64 = 0.8;

/// Returns the name that is most similar to `wrong`, if one is similar at all.
pub(super) fn nearest<'n>(
    wrong: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let rated = names
        .into_iter()
        .map(|name| (jaro_winkler(wrong, name), name));
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 > SIMILAR).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_beyond_the_limit_are_counted() {
        let told = |max| {
            let mut problems = Problems::new(max);
            assert!(problems.is_empty());
            problems.add(2..3, "second");
            problems.add(4..5, "third");
            problems.add(0..1, "first");
            assert!(!problems.is_empty());
            problems.told(Path::new("f"), "a\nb\nc\n")
        };
        let first = "f:1:1: first\nf:2:1: second";
        assert_eq!(told(3), format!("{first}\nf:3:1: third"));
        assert_eq!(told(2), format!("{first}\nf: and 1 more mistake"));
        assert_eq!(told(1), "f:1:1: first\nf: and 2 more mistakes");
    }

    #[test]
    fn only_a_similar_name_is_the_nearest() {
        let names = ["addresses", "device", "workers"];
        assert_eq!(nearest("adress", names), Some("addresses"));
        assert_eq!(nearest("worker", names), Some("workers"));
        assert_eq!(nearest("zzz", names), None);
    }
}
