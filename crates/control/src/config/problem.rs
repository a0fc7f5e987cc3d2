//! What is wrong with a configuration file.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use strsim::jaro_winkler;

use super::position::TextLines;

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
        let mut lines = TextLines::new(self.text);
        for (n, problem) in list.into_iter().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(
                f,
                "{end}{}:{}: {}",
                self.file.display().to_string().escape_debug(),
                lines.position(problem.at),
                problem.message
            )?;
        }
        Ok(())
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
    fn only_a_similar_name_is_the_nearest() {
        let names = ["addresses", "device", "workers"];
        assert_eq!(nearest("adress", names), Some("addresses"));
        assert_eq!(nearest("worker", names), Some("workers"));
        assert_eq!(nearest("zzz", names), None);
    }
}
