//! Positions in the text of a configuration file.

use std::fmt;

/// Line and column in a file, both from 1. A column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    line: usize,
    column: usize,
}

/// The start of the file.
impl Default for Position {
    fn default() -> Self {
        Self { line: 1, column: 1 }
    }
}

/// Prints `LINE:COLUMN`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The lines of a text. The positions of a long line's values cost little if they are asked for in
/// their order.
#[derive(Debug)]
pub(super) struct TextLines<'t> {
    text: &'t str,
    /// The offset of each line, in bytes.
    starts: Vec<usize>,
    /// The offset of the last position.
    at: usize,
    last: Position,
}

impl<'t> TextLines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(ends).collect(),
            at: 0,
            last: Position::default(),
        }
    }

    /// Returns the position of a character at this offset, or the end of the text.
    pub(super) fn position(&mut self, at: usize) -> Position {
        let at = if self.text.is_char_boundary(at) {
            at
        } else {
            self.text.len()
        };
        let line = self.starts.partition_point(|start| *start <= at);
        if line != self.last.line || at < self.at {
            self.at = self.starts[line - 1];
            self.last = Position { line, column: 1 };
        }
        self.last.column += self.text[self.at..at].chars().count();
        self.at = at;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        let mut lines = TextLines::new("a = 1\nü = 2\n");
        // "ü" takes two bytes, but one column. The offsets also go back.
        for (at, expected) in [
            (0, "1:1"),
            (4, "1:5"),
            (2, "1:3"),
            (8, "2:2"),
            (6, "2:1"),
            (11, "2:5"),
            (99, "3:1"),
            (7, "3:1"),
            (0, "1:1"),
        ] {
            assert_eq!(lines.position(at).to_string(), expected, "offset {at}");
        }
    }
}
