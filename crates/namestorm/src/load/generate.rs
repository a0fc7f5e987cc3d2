//! The directive `$GENERATE` of BIND, which stands for many similar records:
//! `$GENERATE START-STOP[/STEP] OWNER [TTL] [CLASS] TYPE DATA`.
//!
//! In the owner and the data, `$` stands for the present number. `${OFFSET,WIDTH,BASE}` adds an
//! offset, fills up to a width, and sets the base: `d`, `o`, `x`, `X`, or `n` and `N` for
//! hexadecimal digits in reverse order with dots. `\$` is a dollar sign.

use std::ops::Range;

use crate::fields;
use crate::words;

/// Maximum number of records of one directive: those of a network of 16 bits.
pub(super) const MAX_RECORDS: u64 = 65_536;
/// The largest number of a range.
const MAX_NUMBER: u64 = i32::MAX as u64;
/// The largest width of a number, in characters. A name has no more.
const MAX_WIDTH: usize = 255;

/// Index of the word of a directive that is its range.
pub(super) const RANGE: usize = 1;
/// Index of the word with which the text of its records begins.
pub(super) const OWNER: usize = 2;

/// Why a directive is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GenerateError {
    #[error("$GENERATE lacks words; write $GENERATE 1-100 OWNER TYPE DATA, with $ for the number")]
    Missing,
    #[error(
        "a range is START-STOP or START-STOP/STEP: numbers up to {MAX_NUMBER}, a step of at least \
         1, and a start that is not above the stop"
    )]
    Range,
    #[error("$GENERATE makes at most {MAX_RECORDS} records; divide its range")]
    TooMany,
    #[error(
        "write ${{OFFSET,WIDTH,BASE}}, with a width up to {MAX_WIDTH} and the base d, o, x, X, n \
         or N; write \\$ for a dollar sign"
    )]
    Modifier,
    #[error("an offset makes the number {0}; numbers must be 0 to {MAX_NUMBER}")]
    Number(i64),
}

impl GenerateError {
    /// Returns the index of the wrong word in the directive `text`.
    pub(super) fn index(self, text: &str) -> usize {
        let mut words = words::ranges(text)
            .map(|word| &text[word])
            .enumerate()
            .skip(OWNER);
        let found = match self {
            Self::Missing => return 0,
            Self::Range | Self::TooMany => return RANGE,
            Self::Modifier => words.find(|(_, word)| parse_parts(word).is_err()),
            Self::Number(_) => words.find(|(_, word)| word.contains("${")),
        };
        found.map_or(OWNER, |(index, _)| index)
    }
}

/// A part of the text with which each record is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Number {
        offset: i64,
        width: usize,
        base: Base,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Decimal,
    Octal,
    Hex { is_upper: bool },
    Nibbles { is_upper: bool },
}

/// A directive: its numbers, and the text of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generate {
    start: u64,
    stop: u64,
    step: u64,
    parts: Vec<Part>,
}

impl Generate {
    /// Reads a directive. `text` is the whole entry.
    ///
    /// # Errors
    ///
    /// See [`GenerateError`].
    pub(super) fn parse(text: &str) -> Result<Self, GenerateError> {
        let ranges: Vec<_> = words::ranges(text).collect();
        let [_, range, owner, rest @ ..] = &ranges[..] else {
            return Err(GenerateError::Missing);
        };
        let [.., data] = rest else {
            return Err(GenerateError::Missing);
        };
        let (start, stop, step) = parse_range(&text[range.clone()]).ok_or(GenerateError::Range)?;
        if (stop - start) / step >= MAX_RECORDS {
            return Err(GenerateError::TooMany);
        }
        // BIND takes the data as one word. If the data has several, the word is quoted.
        let first = &text[owner.start..data.start];
        let data = &text[data.clone()];
        let unquoted = words::content(data);
        let record = if unquoted.len() < data.len() && is_only_data(text, rest) {
            format!("{first}{}", unquoted.replace("\\\"", "\""))
        } else {
            format!("{first}{data}")
        };
        // Comments end with their line, so only the words may be joined to one line.
        let words: Vec<_> = words::ranges(&record).map(|word| &record[word]).collect();
        let parts = parse_parts(&words.join(" "))?;
        Ok(Self {
            start,
            stop,
            step,
            parts,
        })
    }

    /// Returns the number of records.
    pub(super) fn count(&self) -> u64 {
        (self.stop - self.start) / self.step + 1
    }

    /// Returns the text of each record.
    pub(super) fn records(&self) -> impl Iterator<Item = Result<String, GenerateError>> + '_ {
        let numbers = (self.start..=self.stop).step_by(self.step as usize);
        numbers.map(|number| self.record(number.cast_signed()))
    }

    fn record(&self, number: i64) -> Result<String, GenerateError> {
        let mut record = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => record.push_str(text),
                Part::Number {
                    offset,
                    width,
                    base,
                } => {
                    let number = number + offset;
                    let valid = u64::try_from(number).ok();
                    let valid = valid.filter(|number| *number <= MAX_NUMBER);
                    let valid = valid.ok_or(GenerateError::Number(number))?;
                    record.push_str(&base.show(valid, *width));
                }
            }
        }
        Ok(record)
    }
}

/// Returns true if the last word is the only word of the data. `rest` has the words after the
/// owner.
fn is_only_data(text: &str, rest: &[Range<usize>]) -> bool {
    let is_type = |word: &Range<usize>| fields::number(&text[word.clone()]).is_some();
    let before = &rest[..rest.len() - 1];
    let rtype = before.iter().position(is_type);
    rtype.is_some_and(|at| at + 1 == before.len())
}

fn parse_range(text: &str) -> Option<(u64, u64, u64)> {
    let number = |text: &str| {
        let is_valid = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_valid);
        number.filter(|number| *number <= MAX_NUMBER)
    };
    let (start, rest) = text.split_once('-')?;
    let (stop, step) = match rest.split_once('/') {
        Some((stop, step)) => (number(stop)?, number(step)?),
        None => (number(rest)?, 1),
    };
    let start = number(start)?;
    (start <= stop && step > 0).then_some((start, stop, step))
}

fn parse_parts(text: &str) -> Result<Vec<Part>, GenerateError> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('\\') {
            let len = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            plain.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        rest = &rest[1..];
        // BIND reads `$$` as a dollar sign, too.
        if let Some(after) = rest.strip_prefix('$') {
            plain.push_str("\\$");
            rest = after;
            continue;
        }
        parts.push(Part::Text(std::mem::take(&mut plain)));
        let mut modifier = (0, 0, Base::Decimal);
        if let Some(after) = rest.strip_prefix('{') {
            let (inner, after) = after.split_once('}').ok_or(GenerateError::Modifier)?;
            modifier = parse_modifier(inner).ok_or(GenerateError::Modifier)?;
            rest = after;
        }
        let (offset, width, base) = modifier;
        parts.push(Part::Number {
            offset,
            width,
            base,
        });
    }
    plain.push_str(rest);
    parts.push(Part::Text(plain));
    Ok(parts)
}

/// Parses `OFFSET`, `OFFSET,WIDTH` or `OFFSET,WIDTH,BASE`.
fn parse_modifier(text: &str) -> Option<(i64, usize, Base)> {
    let mut fields = text.split(',');
    let offset: i32 = fields.next()?.parse().ok()?;
    let width = fields.next().unwrap_or("0").parse().ok()?;
    let base = match fields.next().unwrap_or("d") {
        "d" => Base::Decimal,
        "o" => Base::Octal,
        "x" => Base::Hex { is_upper: false },
        "X" => Base::Hex { is_upper: true },
        "n" => Base::Nibbles { is_upper: false },
        "N" => Base::Nibbles { is_upper: true },
        _ => return None,
    };
    let is_valid = width <= MAX_WIDTH && fields.next().is_none();
    is_valid.then_some((i64::from(offset), width, base))
}

impl Base {
    /// Writes a number with at least `width` characters.
    fn show(self, number: u64, width: usize) -> String {
        match self {
            Self::Decimal => format!("{number:0width$}"),
            Self::Octal => format!("{number:0width$o}"),
            Self::Hex { is_upper: false } => format!("{number:0width$x}"),
            Self::Hex { is_upper: true } => format!("{number:0width$X}"),
            Self::Nibbles { is_upper } => {
                let digits = if is_upper {
                    format!("{number:X}")
                } else {
                    format!("{number:x}")
                };
                // The width includes the dots, so an even width ends in a dot.
                let padding = width.saturating_sub(2 * digits.len() - 1);
                let mut shown = String::new();
                for digit in digits.chars().rev() {
                    if !shown.is_empty() {
                        shown.push('.');
                    }
                    shown.push(digit);
                }
                shown.extend(['.', '0'].into_iter().cycle().take(padding));
                shown
            }
        }
    }
}
