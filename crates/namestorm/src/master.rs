//! Splits the text of a master file (RFC 1035, section 5) into entries. Each entry is one record or
//! directive, with the line at which it starts.
//!
//! The `domain` crate parses the entries. Because the text is split first, the line of each record
//! is known, and the loader can continue after an error. The `domain` crate does not support times
//! with units (`1h30m`) or `@` in record data, so entries are rewritten first.

use std::borrow::Cow;
use std::ops::Range;

use crate::fields::{self, Form};
use crate::rtype;
use crate::words::{self, Position, line_end, quoted_end};

/// The largest TTL, in seconds (RFC 2181, section 8).
pub(crate) const MAX_TTL: u32 = i32::MAX as u32;

/// One entry: the text of one line, or of several lines that parentheses join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The number of the line on which the entry starts, from 1.
    pub line: u32,
    /// The entry's text, including comments but not the final newline.
    pub text: &'a str,
    /// Number of newlines in the text.
    pub newlines: u32,
    /// Whether [`escape`] changes the text.
    needs_escapes: bool,
}

/// Why an entry of the text is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unclosed {
    /// A quoted string is not closed on its line.
    #[error("a quoted string is not closed; write \" at its end, on the same line")]
    Quote {
        /// Line and column of the opening quote, from 1.
        at: (u32, u16),
    },
    /// A parenthesis is never closed.
    #[error("a parenthesis is not closed; write ) at the end of the record")]
    Parenthesis {
        /// Line and column of the outermost opening parenthesis, from 1.
        at: (u32, u16),
    },
}

impl Unclosed {
    /// Returns the line and the column of the fault, from 1.
    pub(crate) fn at(self) -> (u32, u16) {
        match self {
            Self::Quote { at } | Self::Parenthesis { at } => at,
        }
    }
}

/// Splits a text into its entries. Skips lines that hold only blanks and comments.
#[derive(Clone, Debug)]
pub(crate) struct Entries<'a> {
    rest: &'a str,
    line: u32,
    is_ascii: bool,
}

/// What [`Entries::measure`] finds out about an entry.
struct Measured {
    /// Length of the entry, in bytes.
    len: usize,
    newlines: u32,
    /// Whether the entry contains more than blanks and comments.
    holds_something: bool,
    has_quoted_tab: bool,
}

impl<'a> Entries<'a> {
    /// Creates an iterator that starts at the first line of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
            is_ascii: text.is_ascii(),
        }
    }

    /// Measures the entry at the start of the remaining text. An error comes with the number of
    /// bytes to skip.
    fn measure(&self) -> Result<Measured, (Unclosed, usize)> {
        let bytes = self.rest.as_bytes();
        let (mut at, mut newlines, mut depth, mut opened) = (0, 0, 0u32, 0);
        let place = |at| {
            let Position { lines, column } = words::position_at(self.rest, at);
            (self.line + lines, column)
        };
        let (mut holds_something, mut has_quoted_tab) = (false, false);
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
                        let unclosed = Unclosed::Quote { at: place(at) };
                        return Err((unclosed, line_end(bytes, at)));
                    };
                    has_quoted_tab |= bytes[at..end].contains(&b'\t');
                    holds_something = true;
                    at = end;
                }
                b'\\' => {
                    holds_something = true;
                    // An escaped character neither opens a quoted string nor starts a comment. A
                    // newline cannot be escaped.
                    if bytes.get(at + 1).is_some_and(|next| *next != b'\n') {
                        at += 1;
                    }
                }
                b'(' => {
                    if depth == 0 {
                        opened = at;
                    }
                    depth += 1;
                }
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
            return Err((Unclosed::Parenthesis { at: place(opened) }, bytes.len()));
        }
        Ok(Measured {
            len: at,
            newlines,
            holds_something,
            has_quoted_tab,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Unclosed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let (end, found) = match self.measure() {
                Ok(measured) => {
                    let text = &self.rest[..measured.len];
                    let entry = Entry {
                        line: self.line,
                        text,
                        newlines: measured.newlines,
                        needs_escapes: measured.has_quoted_tab
                            || !self.is_ascii && !text.is_ascii(),
                    };
                    self.line += measured.newlines;
                    let found = measured.holds_something.then_some(Ok(entry));
                    (measured.len, found)
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

/// The text that replaces `@`. The `domain` crate reads an empty string as the origin.
const ORIGIN: &str = EMPTY;
/// A quoted string without content.
const EMPTY: &str = "\"\"";
/// The text that replaces an empty string as a name, so that the `domain` crate refuses it.
const EMPTY_LABEL: &str = "..";
/// The text that replaces the path of an included file. The `domain` crate does not understand quotes in it.
const PATH: &str = "path";

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

/// The record type that an entry states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatedType<'a> {
    /// The type as written.
    pub word: &'a str,
    /// Index of the type among the entry's words.
    pub index: usize,
    /// The fields of the type's data, if the type is known and has a text form.
    pub form: Option<&'static Form>,
}

/// An entry's text, rewritten for the `domain` crate, and the fields that were found in it.
#[derive(Clone, Debug)]
pub(crate) struct EntryFields<'a> {
    /// The entry's text, rewritten as [`prepare`] says. Text that the `domain` crate reads as the
    /// origin replaces `@`. It has the same words as the entry, so their indices hold in both.
    pub text: Cow<'a, str>,
    /// Whether the entry states a TTL, or is a `$TTL` directive.
    pub has_ttl: bool,
    /// Whether the entry is a directive (`$…`), not a record.
    pub is_directive: bool,
    /// The record type, if the entry is a record and states one.
    pub rtype: Option<StatedType<'a>>,
    /// The word in the place of the TTL and its index, if that word is not a valid TTL.
    pub bad_ttl: Option<(&'a str, usize)>,
    /// Whether the entry states a class.
    has_class: bool,
    /// The field that the entry states twice (a TTL or a class), and the index of the second word.
    pub repeated: Option<(&'static str, usize)>,
}

/// Replaces bytes that the `domain` crate refuses by escapes: bytes beyond ASCII, and tabs in
/// quoted strings.
pub(crate) fn escape<'a>(entry: &Entry<'a>) -> Cow<'a, str> {
    let text = entry.text;
    if !entry.needs_escapes {
        return Cow::Borrowed(text);
    }
    let mut escaped = Vec::with_capacity(2 * text.len());
    let bytes = text.as_bytes();
    let (mut at, mut is_quoted) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        match (byte, bytes.get(at + 1)) {
            // Before a byte beyond ASCII, a backslash changes nothing.
            (b'\\', Some(next)) if next.is_ascii() => {
                escaped.extend([byte, *next]);
                at += 1;
            }
            (b'\\', Some(_)) => {}
            (b';', _) if !is_quoted => {
                // A comment has no meaning, so it can lose its bytes.
                at = line_end(bytes, at);
                continue;
            }
            (b'\t', _) if is_quoted => escaped.extend(b"\\009"),
            (0x80.., _) => escaped.extend(format!("\\{byte:03}").bytes()),
            _ => {
                is_quoted ^= byte == b'"';
                escaped.push(byte);
            }
        }
        at += 1;
    }
    // All bytes are ASCII now.
    Cow::Owned(String::from_utf8(escaped).unwrap_or_default())
}

/// Returns true if an entry is the directive `name`, in any case.
pub(crate) fn is_named(text: &str, name: &str) -> bool {
    let mut words = words::ranges(text);
    text.starts_with('$')
        && words
            .next()
            .is_some_and(|word| text[word].eq_ignore_ascii_case(name))
}

/// Reads the fields before an entry's type. Converts times with units to seconds: the TTL, `$TTL`,
/// and the times of an SOA record. Replaces each `@` that stands for the origin (RFC 1035, section
/// 5.1) in record data and directives. The `domain` crate accepts `@` only as owner. Replaces the path of
/// an included file, which must be read from the original text.
pub(crate) fn prepare(text: &str) -> EntryFields<'_> {
    let is_directive = text.starts_with('$');
    let directive = words::ranges(text).next().filter(|_| is_directive);
    let directive = directive.map(|range| &text[range]);
    let is_ttl_directive = directive.is_some_and(|name| name.eq_ignore_ascii_case("$TTL"));
    let mut rewritten = Rewritten::default();
    let mut prepared = EntryFields {
        text: Cow::Borrowed(text),
        has_ttl: is_ttl_directive,
        is_directive,
        rtype: None,
        bad_ttl: None,
        has_class: false,
        repeated: None,
    };
    // The first word of an entry that is not indented is the owner or the directive's name.
    let indented = text.starts_with([' ', '\t', '\r']);
    // Index among the data of the next field, once the type is known.
    let mut data = directive.filter(|_| !is_ttl_directive).map(|_| 0);
    let mut words = words::ranges(text).enumerate();
    if !indented
        && let Some((_, owner)) = words.next()
        && &text[owner.clone()] == EMPTY
    {
        rewritten.replace(text, owner, EMPTY_LABEL);
    }
    for (index, range) in words {
        let word = &text[range.clone()];
        let mut time = seconds(word);
        if let Some(field) = &mut data {
            let form = prepared.rtype.and_then(|rtype| rtype.form);
            let is_name = match directive {
                Some(name) => is_name_of_directive(name, *field),
                None => form.is_some_and(|form| form.is_name(*field)),
            };
            time = time.filter(|_| form.is_some_and(|form| form.is_time(*field)));
            if *field == 0 && directive.is_some_and(is_include) {
                rewritten.replace(text, range.clone(), PATH);
            }
            if word == "@" && is_name {
                rewritten.replace(text, range.clone(), ORIGIN);
            }
            if word == EMPTY && is_name {
                rewritten.replace(text, range.clone(), EMPTY_LABEL);
            }
            *field += 1;
        } else if let Some(rtype) = read_before_data(&mut prepared, word, index, time) {
            // To save time, the data is read only if a word in it may be `@` or a time.
            let after = &text[range.end..];
            let may_be_origin = after.contains('@') || after.contains(EMPTY);
            let form = rtype.form;
            let may_be_rewritten =
                form.is_some_and(|form| may_be_origin || form.rtype() == rtype::SOA);
            if !may_be_rewritten {
                break;
            }
            data = Some(0);
            continue;
        }
        if let Some(time) = time {
            rewritten.replace(text, range, &time.to_string());
        }
    }
    prepared.text = rewritten.finish(text);
    prepared
}

/// Reads a word before an entry's data: a TTL, a class, or the type. `time` is the word's value if
/// it is a time with units. Returns the type.
fn read_before_data<'a>(
    prepared: &mut EntryFields<'a>,
    word: &'a str,
    index: usize,
    time: Option<u32>,
) -> Option<StatedType<'a>> {
    let is_ttl_directive = prepared.is_directive;
    let ttl = time.or_else(|| word.parse().ok());
    let is_ttl = ttl.is_some_and(|ttl| ttl <= MAX_TTL);
    let again = [
        ("TTL", is_ttl && prepared.has_ttl),
        ("class", is_class(word) && prepared.has_class),
    ];
    let again = again
        .into_iter()
        .find(|(_, is_again)| *is_again && !is_ttl_directive);
    prepared.repeated = prepared.repeated.or(again.map(|(field, _)| (field, index)));
    prepared.has_class |= is_class(word);
    if is_ttl {
        prepared.has_ttl = true;
    } else if is_ttl_directive || ttl.is_some() || is_like_time(word) {
        prepared.has_ttl = true;
        prepared.bad_ttl = prepared.bad_ttl.or(Some((word, index)));
    } else if !is_class(word) {
        prepared.rtype = Some(StatedType {
            word,
            index,
            form: fields::of_text(word),
        });
        return prepared.rtype;
    }
    None
}

/// Returns true if the word at `index` after the name of a directive is a domain name.
fn is_name_of_directive(name: &str, index: usize) -> bool {
    let at = if name.eq_ignore_ascii_case("$ORIGIN") {
        Some(0)
    } else {
        is_include(name).then_some(1)
    };
    at == Some(index)
}

fn is_include(directive: &str) -> bool {
    directive.eq_ignore_ascii_case("$INCLUDE")
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
    fn unclosed_quotes_and_parentheses_are_reported_with_their_place() {
        let mut entries = Entries::new("a TXT \"x\\\nb A 1\nc SOA () (\n(d)\n");
        assert_eq!(entries.next(), Some(Err(Unclosed::Quote { at: (1, 7) })));
        assert_eq!(entries.next().unwrap().unwrap().line, 2);
        let unclosed = Unclosed::Parenthesis { at: (3, 10) };
        assert_eq!(entries.next(), Some(Err(unclosed)));
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
        let bad = |text: &str| prepare(text).bad_ttl.map(|(word, _)| word.to_owned());
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
                prepare(&escape(&entry));
            }
        }
    }
}
