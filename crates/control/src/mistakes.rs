//! Lists everything that is wrong with a text file.

use std::fmt::{self, Display};

/// Maximum number of mistakes that a message names. Further ones are only counted.
const MAX_NAMED: usize = 100;

/// Mistakes in a text file, each with its place. `Display` lists them for the operator, behind words such as
/// `the file has`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    named: Vec<String>,
    count: usize,
}

impl Mistakes {
    /// Adds a mistake at a line and a column, both from 1. `why` says what is wrong.
    pub fn add(&mut self, (line, column): (usize, usize), why: impl Display) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named
                .push(format!("line {line}, column {column}: {why}"));
        }
    }

    /// Returns true if nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = &self.named[..] {
            return write!(f, "a mistake in {one}");
        }
        write!(f, "{} mistakes", self.count)?;
        for one in &self.named {
            write!(f, "\n  {one}")?;
        }
        match self.count - self.named.len() {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_mistakes_have_a_line_each() {
        let mut mistakes = Mistakes::default();
        assert!(mistakes.is_empty());
        mistakes.add((1, 4), "no colon");
        let one = mistakes.to_string();
        assert_eq!(one, "a mistake in line 1, column 4: no colon");
        mistakes.add((7, 1), "no name");
        let two = "2 mistakes\n  line 1, column 4: no colon\n  line 7, column 1: no name";
        assert_eq!(mistakes.to_string(), two);
        (8..108).for_each(|line| mistakes.add((line, 1), "no name"));
        let many = mistakes.to_string();
        assert_eq!(many.lines().count(), 1 + MAX_NAMED + 1);
        assert!(many.starts_with("102 mistakes\n") && many.ends_with("\n  and 2 more"));
    }
}
