//! What is wrong with a configuration file.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use strsim::jaro_winkler;

/// One error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Offset in the file, in bytes.
    pub(super) at: usize,
    /// What is wrong, and what to write instead.
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            at: span.start,
            message: message.into(),
        }
    }
}

/// All errors in a file, in the order of their places.
#[derive(Debug)]
pub(super) struct Problems<'f> {
    pub(super) file: &'f Path,
    pub(super) text: &'f str,
    pub(super) list: Vec<Problem>,
}

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list: Vec<_> = self.list.iter().collect();
        list.sort_by_key(|problem| problem.at);
        for (n, problem) in list.into_iter().enumerate() {
            let (line, column) = place(self.text, problem.at);
            let end = if n == 0 { "" } else { "\n" };
            write!(
                f,
                "{end}{}:{line}:{column}: {}",
                self.file.display().to_string().escape_debug(),
                problem.message
            )?;
        }
        Ok(())
    }
}

/// Returns line and column of a byte's offset, both from 1. A column counts characters.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
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
    fn a_place_counts_lines_and_characters_from_one() {
        let text = "a = 1\nü = 2\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 6), (2, 1));
        // "ü" takes two bytes, but one column.
        assert_eq!(place(text, 8), (2, 2));
        assert_eq!(place(text, 99), (3, 1));
    }

    #[test]
    fn only_a_similar_name_is_the_nearest() {
        let names = ["addresses", "device", "workers"];
        assert_eq!(nearest("adress", names), Some("addresses"));
        assert_eq!(nearest("worker", names), Some("workers"));
        assert_eq!(nearest("zzz", names), None);
    }
}
