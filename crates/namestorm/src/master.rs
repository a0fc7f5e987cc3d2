//! Splits the text of a master file (RFC 1035, section 5) into entries. Each entry is one record or
//! directive, with the line at which it starts.
//!
//! The `domain` crate parses the entries. Because the text is split first, the line of each record
//! is known, and the loader can continue after an error. The `domain` crate does not support times
//! with units (`1h30m`) or `@` in record data, so entries are rewritten first.

use std::borrow::Cow;
use std::ops::Range;

use crate::fields;

/// The largest TTL, in seconds (RFC 2181, section 8).
pub(crate) const MAX_TTL: u32 = i32::MAX as u32;

/// One entry: the text of one line, or of several lines that parentheses join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The number of the line on which the entry starts, from 1.
    pub line: u32,
    /// The entry's text, including comments but not the final newline.
    pub text: &'a str,
}

/// Why an entry of the text is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unclosed {
    /// A quoted string is not closed on its line.
    Quote {
        /// Number of the line with the opening quote, from 1.
        line: u32,
    },
    /// A parenthesis is never closed.
    Parenthesis {
        /// Number of the line on which the entry with the parenthesis starts, from 1.
        line: u32,
    },
}

/// Splits a text into its entries. Skips lines that hold only blanks and comments.
#[derive(Clone, Debug)]
pub(crate) struct Entries<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Entries<'a> {
    /// Creates an iterator that starts at the first line of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
        }
    }

    /// Measures the entry at the start of the remaining text. Returns the entry's length in bytes,
    /// the number of newlines in it, and whether it contains more than blanks and comments. An
    /// error comes with the number of bytes to skip.
    fn measure(&self) -> Result<(usize, u32, bool), (Unclosed, usize)> {
        let bytes = self.rest.as_bytes();
        let (mut at, mut newlines, mut depth) = (0, 0, 0u32);
        let mut holds_something = false;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\n' if depth == 0 => break,
                b'\n' => newlines += 1,
                b';' => {
                    at = line_end(bytes, at);
                    continue;
                }
                b'"' => {
                    let Some(end) = quoted_end(bytes, at + 1) else {
                        let line = self.line + newlines;
                        return Err((Unclosed::Quote { line }, line_end(bytes, at)));
                    };
                    at = end;
                    holds_something = true;
                }
                b'\\' => {
                    holds_something = true;
                    // An escaped character neither opens a quoted string nor starts a comment. A
                    // newline cannot be escaped.
                    if bytes.get(at + 1).is_some_and(|next| *next != b'\n') {
                        at += 1;
                    }
                }
                b'(' => depth += 1,
                // An unmatched closing parenthesis is left in the entry, so that the parser reports
                // it.
                b')' => {
                    depth = depth.saturating_sub(1);
                    holds_something = true;
                }
                b' ' | b'\t' | b'\r' => {}
                _ => holds_something = true,
            }
            at += 1;
        }
        if depth > 0 {
            return Err((Unclosed::Parenthesis { line: self.line }, bytes.len()));
        }
        Ok((at, newlines, holds_something))
    }
}

/// Returns the offset of the newline that ends the line containing `at`. Without a newline, returns
/// the end of the text.
fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
}

/// Returns the offset of the quote that closes a quoted string. `at` is the offset after the
/// opening quote. Returns `None` if the string is not closed on its line.
fn quoted_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\n' => return None,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Unclosed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let line = self.line;
            let (end, found) = match self.measure() {
                Ok((end, newlines, holds_something)) => {
                    self.line += newlines;
                    let text = &self.rest[..end];
                    (end, holds_something.then_some(Ok(Entry { line, text })))
                }
                Err((unclosed, end)) => {
                    let skipped = &self.rest.as_bytes()[..end];
                    self.line += skipped.split(|byte| *byte == b'\n').count() as u32 - 1;
                    (end, Some(Err(unclosed)))
                }
            };
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            self.line += 1;
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// Index of the refresh interval among the data fields of an SOA record. All fields from this index
/// on are times.
const FIRST_SOA_TIME: usize = 3;
/// The text that replaces `@`. The `domain` crate reads an empty string as the origin.
const ORIGIN: &str = "\"\"";

/// Returns the ranges of an entry's tokens: quoted strings with their quotes, and unquoted text
/// between blanks, parentheses, quotes and comments.
fn tokens(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
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
            at = quoted_end(bytes, at + 1)? + 1;
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

/// A text in which some tokens are replaced.
#[derive(Default)]
struct Rewritten {
    out: Option<String>,
    /// End of the part of the original text that has been copied to `out`.
    copied: usize,
}

impl Rewritten {
    /// Replaces a token by `by`. The token must come after all tokens replaced so far.
    fn replace(&mut self, text: &str, token: Range<usize>, by: &str) {
        let out = self.out.get_or_insert_default();
        out.push_str(&text[self.copied..token.start]);
        out.push_str(by);
        self.copied = token.end;
    }

    /// Returns the whole text with its replacements.
    fn finish(self, text: &str) -> Cow<'_, str> {
        match self.out {
            Some(mut out) => {
                out.push_str(&text[self.copied..]);
                Cow::Owned(out)
            }
            None => Cow::Borrowed(text),
        }
    }
}

/// Parses a time with units into seconds. The text is one or more numbers, each followed by a unit
/// (s, m, h, d, w). Returns `None` if the text is not such a time, or if the result does not fit 32
/// bits.
fn seconds(token: &str) -> Option<u32> {
    let mut total = 0u32;
    let mut number = None;
    for byte in token.bytes() {
        if byte.is_ascii_digit() {
            let digit = u32::from(byte - b'0');
            let tens = number.unwrap_or(0u32).checked_mul(10)?;
            number = Some(tens.checked_add(digit)?);
            continue;
        }
        let unit = match byte.to_ascii_lowercase() {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    // `number` is still set after a plain number, which needs no rewriting, and after "1h30", which
    // is not a valid time.
    (number.is_none() && !token.is_empty()).then_some(total)
}

/// An entry's text, rewritten for the `domain` crate, and the fields that were found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryFields<'a> {
    /// The entry's text, rewritten as [`prepare`] says. Text that the `domain` crate reads as the
    /// origin replaces `@`.
    pub text: Cow<'a, str>,
    /// Whether the entry states a TTL, or is a `$TTL` directive.
    pub has_ttl: bool,
    /// Whether the entry is a directive (`$…`), not a record.
    pub is_directive: bool,
    /// The record type, if the entry is a record and states one.
    pub rtype: Option<&'a str>,
    /// The word in the place of the TTL, if that word is not a valid TTL.
    pub bad_ttl: Option<&'a str>,
}

/// Reads the fields before an entry's type. Converts times with units to seconds: the TTL, `$TTL`,
/// and the times of an SOA record. Replaces each `@` that stands for the origin (RFC 1035, section
/// 5.1) in record data and directives. The `domain` crate accepts `@` only as owner.
pub(crate) fn prepare(text: &str) -> EntryFields<'_> {
    let is_directive = text.starts_with('$');
    let directive = tokens(text).next().filter(|_| is_directive);
    let directive = directive.map(|range| &text[range]);
    let is_ttl_directive = directive.is_some_and(|name| name.eq_ignore_ascii_case("$TTL"));
    let mut rewritten = Rewritten::default();
    let mut has_ttl = is_ttl_directive;
    let mut bad_ttl = None;
    // The first token of an entry that is not indented is the owner or the directive's name.
    let indented = text.starts_with([' ', '\t', '\r']);
    // The fields of the data, and the index of the next field. Set once the type is known.
    let directive = directive.filter(|_| !is_ttl_directive);
    let mut data = directive.map(|name| (fields::of_directive(name), 0));
    let mut rtype = None;
    let mut is_soa = false;
    for range in tokens(text).skip(usize::from(!indented)) {
        let token = &text[range.clone()];
        let mut time = seconds(token);
        let mut is_origin = false;
        if let Some((fields, index)) = &mut data {
            if fields.is_empty() && !is_soa {
                break;
            }
            is_origin = token == "@" && fields::is_name(fields, *index);
            time = time.filter(|_| is_soa && *index >= FIRST_SOA_TIME);
            *index += 1;
        } else {
            let ttl = time.or_else(|| token.parse().ok());
            if ttl.is_some_and(|ttl| ttl <= MAX_TTL) {
                has_ttl = true;
            } else if is_ttl_directive || ttl.is_some() || is_like_time(token) {
                has_ttl = true;
                bad_ttl = bad_ttl.or(Some(token));
            } else if !is_class(token) {
                rtype = Some(token);
                is_soa = token.eq_ignore_ascii_case("SOA");
                // To save time, the fields are looked up only if one of them may be `@`.
                let may_be_origin = text[range.end..].contains('@');
                data = Some((if may_be_origin { fields::of(token) } else { "" }, 0));
            }
        }
        if let Some(time) = time {
            rewritten.replace(text, range, &time.to_string());
        } else if is_origin {
            rewritten.replace(text, range, ORIGIN);
        }
    }
    EntryFields {
        text: rewritten.finish(text),
        has_ttl,
        is_directive,
        rtype,
        bad_ttl,
    }
}

/// Returns true if a token is probably meant as a time. Such a token consists of digits and letters
/// and starts with a digit, perhaps after a minus sign. No class or type starts with a digit.
fn is_like_time(token: &str) -> bool {
    let digits = token.strip_prefix('-').unwrap_or(token);
    digits.starts_with(|first: char| first.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_class(token: &str) -> bool {
    ["IN", "CH", "HS", "CS"]
        .iter()
        .any(|class| token.eq_ignore_ascii_case(class))
        || token
            .get(..5)
            .is_some_and(|start| start.eq_ignore_ascii_case("CLASS"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries(text: &str) -> Vec<(u32, String)> {
        Entries::new(text)
            .map(|e| e.unwrap())
            .map(|e| (e.line, e.text.to_owned()))
            .collect()
    }

    #[test]
    fn entries_have_their_line_numbers() {
        let text = "; comment (\n\na IN A 1 ; (\nb SOA (\n 1 ; )\n 2 )\n\nc TXT \"x;(\\\"\" \\; \n";
        let found = entries(text);
        let lines: Vec<_> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4, 8]);
        assert_eq!(found[1].1, "b SOA (\n 1 ; )\n 2 )");
    }

    #[test]
    fn unclosed_quotes_and_parentheses_are_reported_with_their_line() {
        let mut entries = Entries::new("a TXT \"x\nb A 1\nc SOA (\nd\n");
        assert_eq!(entries.next(), Some(Err(Unclosed::Quote { line: 1 })));
        assert_eq!(entries.next().unwrap().unwrap().line, 2);
        assert_eq!(entries.next(), Some(Err(Unclosed::Parenthesis { line: 3 })));
        assert_eq!(entries.next(), None);
    }

    #[test]
    fn times_may_have_units() {
        let prepared = |text| prepare(text).text.into_owned();
        assert_eq!(prepared("$TTL 1h"), "$TTL 3600");
        assert_eq!(prepared("$ttl 1h30m ; x"), "$ttl 5400 ; x");
        assert_eq!(prepared("a 2d IN A 1.2.3.4"), "a 172800 IN A 1.2.3.4");
        assert_eq!(prepared(" IN 1w A 1.2.3.4"), " IN 604800 A 1.2.3.4");
        assert_eq!(
            prepared("@ SOA a b (1 2h 15M ; 1h\n 4W 1D)"),
            "@ SOA a b (1 7200 900 ; 1h\n 2419200 86400)"
        );
        for same in [
            "1h IN A 1.2.3.4",
            "a TXT 1h",
            "a 300 IN A 1.2.3.4",
            "$ORIGIN 1h",
            "a 9999999999w A 1",
            "a 1h30 A 1",
        ] {
            assert_eq!(prepared(same), same);
        }
    }

    #[test]
    fn invalid_ttls_are_found() {
        let bad = |text: &str| prepare(text).bad_ttl.map(str::to_owned);
        for good in [
            "a 2147483647 A 1",
            "a IN 3550w A 1",
            "4294967296 IN A 1",
            "a TXT 4294967296",
            "a 192.0.2.1",
            "$TTL 0",
            "$ORIGIN 9x",
            "@ SOA a b (9999999999 1h30 3 4 5)",
        ] {
            assert_eq!(bad(good), None, "{good}");
        }
        for wrong in ["2147483648", "99999999999", "3551w", "1h30", "-1", "1y"] {
            assert_eq!(bad(&format!("a IN {wrong} A 1")).as_deref(), Some(wrong));
            assert_eq!(bad(&format!(" {wrong} IN A 1")).as_deref(), Some(wrong));
            assert_eq!(bad(&format!("$TTL {wrong} ; x")).as_deref(), Some(wrong));
        }
        assert_eq!(bad("$TTL soon").as_deref(), Some("soon"));
    }

    #[test]
    fn an_explicit_ttl_is_detected() {
        let has_ttl = |text| prepare(text).has_ttl;
        assert!(has_ttl("a 300 IN A 1") && has_ttl("a IN 1h A 1") && has_ttl("$TTL 5"));
        assert!(!has_ttl("300 IN A 1") && !has_ttl(" TXT 300") && !has_ttl("a MX 10 b"));
    }

    proptest! {
        #[test]
        fn arbitrary_zone_text_causes_no_panic(text in "[ -~\n\t\\\\\"();$@ü]{0,200}") {
            for entry in Entries::new(&text).flatten() {
                prop_assert!(entry.line as usize <= text.lines().count().max(1));
                prepare(entry.text);
            }
        }
    }
}
