//! The words of an entry in a master file (RFC 1035, section 5.1).

use std::ops::Range;

/// Returns the offset of the newline that ends the line containing `at`. Without a newline, returns
/// the end of the text.
pub(crate) fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
}

/// Returns the offset of the quote that closes a quoted string. `at` is the offset after the
/// opening quote. Returns `None` if the string is not closed on its line.
pub(crate) fn quoted_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\n' => return None,
            // A newline cannot be escaped.
            b'\\' if bytes.get(at + 1) != Some(&b'\n') => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the ranges of an entry's words: quoted strings with their quotes, and unquoted text
/// between blanks, parentheses, quotes and comments. A quoted string that is not closed ends with
/// the text.
pub(crate) fn ranges(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            match bytes.get(at)? {
                b' ' | b'\t' | b'\r' | b'\n' | b'(' | b')' => at += 1,
                b';' => at = line_end(bytes, at),
                _ => break,
            }
        }
        let start = at;
        if bytes[at] == b'"' {
            at = quoted_end(bytes, at + 1).map_or(bytes.len(), |end| end + 1);
            return Some(start..at);
        }
        while let Some(byte) = bytes.get(at) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b'(' | b')' | b';' | b'"' => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        at = at.min(bytes.len());
        Some(start..at)
    })
}

/// Returns the content of a word: without its quotes, if it has some. Escapes are kept.
pub(crate) fn content(word: &str) -> &str {
    let inner = word
        .strip_prefix('"')
        .and_then(|word| word.strip_suffix('"'));
    inner.unwrap_or(word)
}

/// Returns the bytes that a word stands for: without its quotes, and with its escapes decoded. Returns
/// `None` if a backslash is followed by a number above 255, or by nothing.
pub(crate) fn decode(word: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(word.len());
    let mut rest = content(word).as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let mut byte = *byte;
        if byte == b'\\' {
            (byte, rest) = match *rest {
                [a, b, c, ref after @ ..] if a.is_ascii_digit() => {
                    let digits = [a, b, c];
                    (str::from_utf8(&digits).ok()?.parse().ok()?, after)
                }
                [byte, ref after @ ..] if !byte.is_ascii_digit() => (byte, after),
                _ => return None,
            };
        }
        decoded.push(byte);
    }
    Some(decoded)
}

/// A position in an entry: the number of lines before it in the entry, and its column from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub lines: u32,
    pub column: u16,
}

/// Returns the position of the word at `index`, or of the last word if there are fewer.
pub(crate) fn position(text: &str, index: usize) -> Option<Position> {
    let range = ranges(text).take(index.saturating_add(1)).last()?;
    Some(position_at(text, range.start))
}

/// Returns the position of the character at offset `at`.
pub(crate) fn position_at(text: &str, at: usize) -> Position {
    let before = &text[..at];
    let line = before.rsplit('\n').next().unwrap_or(before);
    Position {
        lines: before.matches('\n').count() as u32,
        column: u16::try_from(line.chars().count() + 1).unwrap_or(0),
    }
}

/// Returns the offset of the first closing parenthesis that has no opening one.
pub(crate) fn unopened_parenthesis(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut end = 0;
    let mut words = ranges(text);
    loop {
        let word = words.next().unwrap_or(text.len()..text.len());
        let mut comment = false;
        for (at, byte) in text[end..word.start].bytes().enumerate() {
            match byte {
                b';' => comment = true,
                b'\n' => comment = false,
                b'(' if !comment => depth += 1,
                b')' if !comment => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => return Some(end + at),
                },
                _ => {}
            }
        }
        if word.is_empty() {
            return None;
        }
        end = word.end;
    }
}

/// Returns the length of each label of a name, in bytes. An escape is one byte. After a final dot, there
/// is an empty label.
pub(crate) fn label_lengths(word: &str) -> Vec<usize> {
    let mut lengths = vec![0];
    let mut bytes = word.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'.' {
            lengths.push(0);
            continue;
        }
        if byte == b'\\' && bytes.next().is_some_and(|next| next.is_ascii_digit()) {
            // Two more digits follow.
            bytes.by_ref().take(2).for_each(drop);
        }
        if let Some(last) = lengths.last_mut() {
            *last += 1;
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_positions() {
        let text = "a \"b c\" ( d\n ; x\n\té\\;f ) \"\"";
        let words: Vec<_> = ranges(text).map(|range| &text[range]).collect();
        assert_eq!(words, ["a", "\"b c\"", "d", "é\\;f", "\"\""]);
        assert_eq!(content(words[1]), "b c");
        let position = |index| position(text, index).map(|at| (at.lines, at.column));
        assert_eq!(position(1), Some((0, 3)));
        assert_eq!(position(3), Some((2, 2)));
        assert_eq!(position(9), Some((2, 9)), "the last word");
        assert_eq!(super::position(" ", 0), None);
        assert_eq!(ranges("a \"b c").last(), Some(2..6));
    }

    #[test]
    fn a_closing_parenthesis_needs_an_opening_one() {
        for (text, at) in [
            ("a ( b ) c", None),
            ("a ( b )) \")\"", Some(7)),
            ("a \")\" \\) ; )\n) b", Some(13)),
            (")", Some(0)),
        ] {
            assert_eq!(unopened_parenthesis(text), at, "{text}");
        }
    }

    #[test]
    fn words_are_decoded() {
        let decoded = |word: &str| decode(word).map(|bytes| String::from_utf8(bytes).unwrap());
        for (word, expected) in [
            ("a/b", "a/b"),
            ("\"a b\"", "a b"),
            (r#""a \"b\" \\ é""#, "a \"b\" \\ é"),
            (r"a\032b\.c", "a b.c"),
            ("\"\"", ""),
        ] {
            assert_eq!(decoded(word).as_deref(), Some(expected), "{word}");
        }
        for wrong in [r"\256", r"\25", r"\+12x\1", "\\"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
