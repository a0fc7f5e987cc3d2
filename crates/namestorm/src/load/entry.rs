//! Parses one entry of a master file with the `domain` crate. The crate's error messages are
//! rewritten so that they say how to correct the entry.
//!
//! The `domain` crate lacks the text form of many types. Data of these types is converted to the
//! generic form of RFC 3597, which the crate reads for all types.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use domain::base::Name;
use domain::base::iana::Class;
use domain::base::name::ToName;
use domain::zonefile::inplace::{self, ScannedDname, ScannedRecord, Zonefile};

use crate::fields::{self, Form};
use crate::master::{self, Entry, EntryFields, MAX_TTL, StatedType};
use crate::name::{self, MAX_LABEL};
use crate::rdata::text;
use crate::rtype;
use crate::words::{self, Position};

/// The TTL that the `domain` crate gives to records before the first stated TTL, in seconds.
const DEFAULT_TTL: u32 = 3600;
/// Maximum number of characters that an error message quotes from an entry.
const EXCERPT: usize = 60;
/// Blanks at the start of an entry without an owner.
pub(super) const INDENT: [char; 3] = [' ', '\t', '\r'];
const NO_OWNER: &str = "the record has no owner, and no earlier record has one";
/// Directives, and what is wrong with one that has no other word.
const DIRECTIVES: [(&str, &str); 3] = [
    ("$TTL", "time; write $TTL and a time such as 1h"),
    ("$ORIGIN", "name; write $ORIGIN NAME"),
    ("$INCLUDE", "file; write $INCLUDE FILE"),
];
/// The `domain` crate's message about a parenthesis without its counterpart.
const UNBALANCED: &str = "unbalanced parens";
/// An index that stands for the last word.
const LAST_WORD: usize = usize::MAX;
/// Sizes in bytes of the buffer from which the `domain` crate reads. It takes a new one of this size when
/// earlier records still use the old one. Below 1 KiB, it would take one for each entry.
const BUFFER: RangeInclusive<usize> = 1 << 10..=64 << 10;
/// Text that starts data in the generic form (RFC 3597, section 5).
const GENERIC: &str = "\\#";

/// The state with which a parser starts: at the zone's file, at an included file, or after an
/// error.
pub(super) struct State {
    /// The origin in wire format.
    pub(super) origin: Option<Vec<u8>>,
    /// The TTL set by `$TTL`, in seconds.
    pub(super) ttl: Option<u32>,
    /// The TTL that a record stated last, in seconds. It holds for records that state none if there is no
    /// `$TTL`.
    pub(super) last_ttl: Option<u32>,
}

pub(super) enum Parsed {
    Record {
        record: Box<ScannedRecord>,
        /// The default TTL in seconds, if the record takes it because the file has stated no TTL so
        /// far.
        assumed_ttl: Option<u32>,
    },
    Include {
        path: PathBuf,
        origin: Option<Vec<u8>>,
    },
    Nothing,
}

/// Why an entry is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EntryError {
    /// The reason and the remedy, with the start of the entry.
    pub(super) message: String,
    /// The position of the wrong word in the entry, if it is not the first one.
    pub(super) position: Option<Position>,
}

/// A message, and the index of the wrong word if it is known.
type Fault = (String, Option<usize>);

/// A parser of entries. After an error, it can continue with the next entry.
pub(super) struct EntryParser {
    zonefile: Zonefile,
    /// The TTL set by `$TTL`, in seconds.
    ttl: Option<u32>,
    /// The TTL that a record stated last, in seconds, as long as there is no `$TTL`.
    last_ttl: Option<u32>,
    has_ttl: bool,
    last_owner: Option<ScannedDname>,
    /// Number of lines that the `domain` crate has got before the present entry.
    lines: usize,
    /// Length of the text in bytes.
    text_len: usize,
}

impl EntryParser {
    /// Creates a parser of a text with about this number of bytes.
    pub(super) fn new(state: &State, text_len: usize) -> Self {
        let buffer = text_len.clamp(*BUFFER.start(), *BUFFER.end());
        let mut zonefile = Zonefile::with_capacity(buffer);
        zonefile.set_default_class(Class::IN);
        if let Some(Ok(origin)) = state.origin.as_deref().map(Name::from_slice) {
            zonefile.set_origin(origin.to_bytes());
        }
        let mut parser = Self {
            zonefile,
            ttl: state.ttl,
            last_ttl: state.last_ttl,
            has_ttl: state.ttl.or(state.last_ttl).is_some(),
            last_owner: None,
            lines: 0,
            text_len,
        };
        if let Some(ttl) = state.ttl {
            let _ = parser.read(&format!("$TTL {ttl}"), 0);
        } else if let Some(ttl) = state.last_ttl {
            // Only a record sets this TTL. It is ignored, and the next record needs an owner.
            let _ = parser.read(&format!(". {ttl} IN A 192.0.2.1"), 0);
        }
        parser
    }

    fn origin(&self) -> Option<Vec<u8>> {
        let origin = self.zonefile.origin().ok()?;
        Some(origin.as_slice().to_vec())
    }

    /// Returns the state for an included file or a new parser. If `origin` is given, it replaces
    /// the current origin.
    pub(super) fn state(&self, origin: Option<Vec<u8>>) -> State {
        State {
            origin: origin.or_else(|| self.origin()),
            ttl: self.ttl,
            last_ttl: self.last_ttl,
        }
    }

    /// Lets the `domain` crate read one entry, which has this number of newlines.
    fn read(&mut self, text: &str, newlines: u32) -> Result<Option<inplace::Entry>, DomainError> {
        self.zonefile.extend_from_slice(text.as_bytes());
        self.zonefile.extend_from_slice(b"\n");
        let lines = self.lines;
        self.lines += newlines as usize + 1;
        let entry = self.zonefile.next_entry();
        entry.map_err(|error| DomainError::new(&error, lines, text))
    }

    pub(super) fn parse(&mut self, entry: &Entry<'_>) -> Result<Parsed, EntryError> {
        let (text, newlines) = (entry.text, entry.newlines);
        let escaped = master::escape(entry);
        let prepared = master::prepare(&escaped);
        self.has_ttl |= prepared.has_ttl;
        let fault = |message: String, index: Option<usize>| EntryError {
            message: format!("{message}: \"{}\"", excerpt(text)),
            position: index.and_then(|index| words::position(text, index)),
        };
        if let Some((bad, index)) = prepared.bad_ttl {
            return Err(EntryError {
                message: format!(
                    "'{}' is not a TTL: write 0 to {MAX_TTL} seconds, or a time such as 1h30m",
                    excerpt(bad)
                ),
                position: words::position(text, index),
            });
        }
        if text.starts_with(INDENT) && self.last_owner.is_none() {
            return Err(fault(NO_OWNER.into(), None));
        }
        if let Some((field, index)) = prepared.repeated {
            return Err(fault(
                format!("the {field} is stated twice; write it once"),
                Some(index),
            ));
        }
        if let Some(message) = lacking_word(text) {
            return Err(fault(message, None));
        }
        if let Some((message, index)) = bad_origin(text) {
            return Err(fault(message, Some(index)));
        }
        let path = included(text).map_err(|(message, index)| fault(message, index))?;
        let rtype = prepared.rtype;
        // Each type with a form can be in a zone.
        if let Some(rtype) = rtype
            && rtype.form.is_none()
            && let Some(number) = fields::number(rtype.word)
            && !rtype::is_data(number)
        {
            let message = format!(
                "{} records cannot be in a zone; remove this entry",
                rtype::show(number)
            );
            return Err(fault(message, Some(rtype.index)));
        }
        let lacking = rtype.and_then(|rtype| Some((rtype, rtype.form?)));
        let lacking = lacking.filter(|(_, form)| !form.is_known_to_domain());
        let generic = lacking.map(|(rtype, form)| self.generic(&prepared.text, rtype, form));
        let generic = generic.transpose();
        let generic = generic.map_err(|(message, index)| fault(message, index))?;
        match self.read(generic.as_deref().unwrap_or(&prepared.text), newlines) {
            Ok(entry) => Ok(self.parsed(entry, &prepared, path)),
            Err(error) => {
                self.reset_parser();
                let reread = rtype.and_then(|rtype| self.reread(&prepared.text, newlines, rtype));
                if error.message == UNBALANCED {
                    return Err(unopened(text));
                }
                let entry = reread.unwrap_or_else(|| Err(error.explain(text, rtype)));
                let entry = entry.map_err(|(message, index)| fault(message, index))?;
                Ok(self.parsed(entry, &prepared, path))
            }
        }
    }

    /// Reads an entry again that the `domain` crate has refused, with its data in generic form. The
    /// crate refuses some valid forms, such as the names of algorithms. Besides, the fault that is
    /// found here names the field. Returns `None` if the fault is not in the data.
    fn reread(
        &mut self,
        text: &str,
        newlines: u32,
        rtype: StatedType<'_>,
    ) -> Option<Result<Option<inplace::Entry>, Fault>> {
        let form = rtype.form?;
        if !form.is_readable() {
            let fault = text_fault(text, self.origin().as_deref())?;
            return Some(Err(fault));
        }
        let generic = match self.generic(text, rtype, form) {
            Ok(generic) => generic,
            Err(fault) => return Some(Err(fault)),
        };
        let entry = self.read(&generic, newlines);
        if entry.is_err() {
            self.reset_parser();
        }
        entry.ok().map(Ok)
    }

    /// Returns the entry with its data in generic form.
    fn generic(&self, text: &str, rtype: StatedType<'_>, form: &Form) -> Result<String, Fault> {
        let ranges: Vec<_> = words::ranges(text).skip(rtype.index).collect();
        let (at, ranges) = ranges.split_first().unwrap_or((&(0..0), &[]));
        let words: Vec<_> = ranges.iter().map(|range| &text[range.clone()]).collect();
        let mut entry = format!("{}TYPE{}", &text[..at.start], form.rtype());
        if words.first() == Some(&GENERIC) {
            entry.push_str(&text[at.end..]);
            return Ok(entry);
        }
        let data = text::parse(form, &words, self.origin().as_deref());
        let data = data.map_err(|error| {
            let (message, index) = explain_text(&error, rtype.index + 1, form);
            (message, Some(index))
        })?;
        let _ = write!(entry, " {GENERIC} {} ", data.len());
        for byte in data {
            let _ = write!(entry, "{byte:02x}");
        }
        // The parentheses and the ends of lines between the words remain.
        let mut end = at.end;
        for range in ranges {
            entry.push_str(&text[end..range.start]);
            end = range.end;
        }
        entry.push_str(&text[end..]);
        Ok(entry)
    }

    /// Returns what the `domain` crate has read, and notes what holds for the entries that follow. `path`
    /// is the path of an included file.
    fn parsed(
        &mut self,
        entry: Option<inplace::Entry>,
        prepared: &EntryFields<'_>,
        path: Option<PathBuf>,
    ) -> Parsed {
        match entry {
            Some(inplace::Entry::Record(record)) => {
                if !prepared.text.starts_with(INDENT) {
                    self.last_owner = Some(record.owner().clone());
                }
                if self.has_ttl && self.ttl.is_none() {
                    self.last_ttl = Some(record.ttl().as_secs());
                }
                let assumed_ttl = (!self.has_ttl).then_some(DEFAULT_TTL);
                Parsed::Record {
                    record: Box::new(record),
                    assumed_ttl,
                }
            }
            Some(inplace::Entry::Include { origin, .. }) => Parsed::Include {
                path: path.unwrap_or_default(),
                origin: origin.map(|origin| origin.as_slice().to_vec()),
            },
            None => {
                if prepared.is_directive && prepared.has_ttl {
                    let mut words = prepared.text.split_whitespace();
                    self.ttl = words.nth(1).and_then(|word| word.parse().ok());
                }
                Parsed::Nothing
            }
        }
    }

    /// Calls `read`, which may read any entries. Afterwards, the last owner is the one before them.
    pub(super) fn keep_owner(&mut self, read: impl FnOnce(&mut Self)) {
        let last_owner = self.last_owner.clone();
        read(self);
        match last_owner {
            Some(owner) => self.set_owner(owner),
            None => self.last_owner = None,
        }
    }

    /// Sets the last owner. The `domain` crate's parser reads a record for this, which is ignored.
    /// The record states no TTL, because that would hold for later records.
    fn set_owner(&mut self, owner: ScannedDname) {
        let mut wire = Vec::new();
        let Ok(()) = owner.compose(&mut wire);
        let _ = self.read(&format!("{} IN A 192.0.2.1", name::Shown(&wire)), 0);
        self.last_owner = Some(owner);
    }

    /// Replaces the `domain` crate's parser, because an error leaves its state undefined. The new
    /// parser starts with the same origin, TTLs and owner.
    fn reset_parser(&mut self) {
        let state = self.state(None);
        let last_owner = self.last_owner.take();
        let has_ttl = self.has_ttl;
        *self = Self::new(&state, self.text_len);
        self.has_ttl = has_ttl;
        if let Some(owner) = last_owner {
            self.set_owner(owner);
        }
    }
}

/// An error of the `domain` crate.
struct DomainError {
    message: String,
    /// Number of words of the entry that start before the place at which the crate stopped, and at
    /// that place or before it.
    before: usize,
    until: usize,
}

impl DomainError {
    /// `lines` is the number of lines before the entry, and `text` is the entry.
    fn new(error: &inplace::Error, lines: usize, text: &str) -> Self {
        let shown = error.to_string();
        let mut fields = shown.splitn(3, ':');
        let mut number = || {
            fields
                .next()
                .and_then(|field| field.parse().ok())
                .unwrap_or(0)
        };
        let (line, column): (usize, usize) = (number(), number());
        let message = fields.next().unwrap_or(&shown).trim_start().to_owned();
        let line = line.saturating_sub(lines + 1);
        let start = text.split_inclusive('\n').take(line).map(str::len);
        let stop = start.sum::<usize>() + column.saturating_sub(1);
        let starts = || words::ranges(text).map(|range| range.start);
        Self {
            message,
            before: starts().take_while(|start| *start < stop).count(),
            until: starts().take_while(|start| *start <= stop).count(),
        }
    }

    /// Says what is wrong with the entry `text`. Also returns the index of the wrong word, if it is known.
    fn explain(&self, text: &str, rtype: Option<StatedType<'_>>) -> Fault {
        let index = self.index(rtype);
        let word = index.and_then(|index| words::ranges(text).nth(index));
        let message = match word {
            Some(word) if self.message == "bad name" => name_fault(&text[word]),
            _ => explain(&self.message, rtype),
        };
        (message, index)
    }

    /// Returns the index of the word that the error is about, if it is known.
    fn index(&self, rtype: Option<StatedType<'_>>) -> Option<usize> {
        match self.message.as_str() {
            "missing last owner" => None,
            "unexpected end of entry" | "short buffer" => Some(LAST_WORD),
            "unknown record type with concrete data" | "bad charstr" => {
                rtype.map(|rtype| rtype.index)
            }
            // The crate stops after the class.
            message if message.starts_with("different class") => self.before.checked_sub(1),
            // The crate stops at the first word that it does not need.
            "trailing tokens" => self.until.checked_sub(1),
            // The crate stops at the symbol that it does not understand.
            message if message.starts_with("bad symbol") => self.until.checked_sub(1),
            // The crate stops after the word or within it.
            _ => self.before.checked_sub(1),
        }
    }
}

/// Returns the error about an entry with a closing parenthesis that has no opening one.
fn unopened(text: &str) -> EntryError {
    let position = words::unopened_parenthesis(text);
    EntryError {
        message: format!(
            "a closing parenthesis has no opening one; remove it, or write ( before it: \"{}\"",
            excerpt(text)
        ),
        position: position.map(|at| words::position_at(text, at)),
    }
}

/// Says what is wrong with words of data, and returns the index of the wrong one. The data begins with
/// the word at index `first`.
fn explain_text(error: &text::TextFault, first: usize, form: &Form) -> (String, usize) {
    let index = error.index().map_or(LAST_WORD, |index| first + index);
    let message = if error.is_about_form() {
        format!("{error}; write {}", form.usage())
    } else {
        error.to_string()
    };
    (message, index)
}

/// Says what is wrong with the words of the data in the entry `text`, if it is one of them. Also returns the
/// index of that word.
fn text_fault(text: &str, origin: Option<&[u8]>) -> Option<Fault> {
    let rtype = master::prepare(text).rtype?;
    let (form, first) = (rtype.form?, rtype.index + 1);
    let words: Vec<_> = words::ranges(text)
        .skip(first)
        .map(|word| &text[word])
        .collect();
    let is_generic = words.first() == Some(&GENERIC);
    let error = text::parse(form, &words, origin).err();
    let error = error.filter(|error| !is_generic && *error != text::TextFault::Unread)?;
    let (message, index) = explain_text(&error, first, form);
    Some((message, Some(index)))
}

/// Like [`text_fault`], for data that the `domain` crate accepts, such as a name with an empty label.
pub(super) fn accepted_fault(text: &str) -> Option<(String, usize)> {
    // No origin makes a right name wrong.
    let (message, index) = text_fault(text, Some(name::ROOT))?;
    Some((format!("{message}: \"{}\"", excerpt(text)), index?))
}

/// Returns the index in the entry `text` of the word for a field of a record's data. Data in generic form
/// and unknown fields have the first word of the data.
pub(super) fn data_word(text: &str, field: Option<&str>) -> usize {
    let Some(rtype) = master::prepare(text).rtype else {
        return 0;
    };
    let first = rtype.index + 1;
    let is_generic = words::ranges(text)
        .nth(first)
        .is_some_and(|word| &text[word] == GENERIC);
    let mut fields = rtype.form.map_or(&[][..], Form::fields).iter();
    let index = fields.position(|(word, _)| Some(*word) == field && !is_generic);
    first + index.unwrap_or(0)
}

/// Says what is wrong with a directive that has no other word.
fn lacking_word(text: &str) -> Option<String> {
    let mut directives = DIRECTIVES.iter();
    let (name, lacking) = directives.find(|(name, _)| master::is_named(text, name))?;
    let has_none = words::ranges(text).nth(1).is_none();
    has_none.then(|| format!("{name} has no {lacking}"))
}

/// Says what is wrong with a directive whose origin has an empty label, which the `domain` crate accepts.
/// Also returns the index of the origin.
fn bad_origin(text: &str) -> Option<(String, usize)> {
    let mut origins = [("$ORIGIN", 1), ("$INCLUDE", 2)].into_iter();
    let (_, index) = origins.find(|(name, _)| master::is_named(text, name))?;
    let word = &text[words::ranges(text).nth(index)?];
    let has_empty = || {
        words::label_lengths(word)
            .iter()
            .rev()
            .skip(1)
            .any(|len| *len == 0)
    };
    (word != "." && has_empty()).then(|| (name_fault(word), index))
}

/// Returns the path of the file that an entry includes, if it is such a directive.
fn included(text: &str) -> Result<Option<PathBuf>, Fault> {
    if !master::is_named(text, "$INCLUDE") {
        return Ok(None);
    }
    let word = words::ranges(text).nth(1).unwrap_or_default();
    let wrong = |message: &str| Err((explain(message, None), Some(1)));
    match words::decode(&text[word]) {
        None => wrong("bad symbol: illegal escape sequence"),
        Some(path) if path.iter().any(u8::is_ascii_control) => wrong("bad symbol"),
        Some(path) => Ok(Some(OsString::from_vec(path).into())),
    }
}

/// Converts a message of the `domain` crate to one that says how to correct the entry.
fn explain(message: &str, rtype: Option<StatedType<'_>>) -> String {
    match message {
        "expected rtype" => no_type(rtype),
        "unknown record type with concrete data" => {
            "data of this record type must be written as in RFC 3597: \\# LENGTH HEX".into()
        }
        "missing origin" => {
            "a relative name without an origin: give ORIGIN=FILE, or an $ORIGIN".into()
        }
        "missing last owner" => NO_OWNER.into(),
        "trailing tokens" if rtype.is_none() => "more words than the directive takes".into(),
        "trailing tokens" => with_fields("more fields than the record type has", rtype),
        "unexpected end of entry" | "short buffer" => {
            with_fields("fields are missing at the end", rtype)
        }
        "bad name" => "a label or name is too long or empty".into(),
        "decimal number overflow" => "a number is too large for its field".into(),
        "expected decimal number" => with_fields("a field must be a number", rtype),
        "generic data has incorrect length" => {
            "the length after \\# is not the number of bytes: each byte is two hexadecimal digits"
                .into()
        }
        "expected hex digits" | "uneven number of hex digits" => {
            "each byte is two hexadecimal digits".into()
        }
        "bad charstr" => {
            "a string has at most 255 bytes; write a longer text as several quoted strings".into()
        }
        "bad symbol: illegal escape sequence" => {
            "an escape is \\ and three digits, \\000 to \\255, or \\ before any other character"
                .into()
        }
        "bad symbol" => {
            "a control character is allowed only as an escape, \\ and three digits".into()
        }
        other => explain_word(other, rtype),
    }
}

/// Says what is wrong with a word that is no name.
pub(super) fn name_fault(word: &str) -> String {
    let labels = words::label_lengths(word);
    let is_last = |at: usize| at + 1 == labels.len();
    let wrong = labels.iter().enumerate();
    let wrong = wrong.filter(|(at, len)| **len > MAX_LABEL || **len == 0 && !is_last(*at));
    match wrong.map(|(_, len)| *len).next() {
        Some(0) => "a name has an empty label; write one dot between two labels".into(),
        Some(len) => format!("a label has {len} bytes, but at most {MAX_LABEL} are allowed"),
        None => {
            "the name with its origin has more than 255 bytes; end it with a dot if it is complete"
                .into()
        }
    }
}

/// Says that an entry has no type, or one that is not known.
fn no_type(rtype: Option<StatedType<'_>>) -> String {
    match rtype {
        Some(rtype) => format!(
            "{} is not a known record type; a type without a name is written as TYPE and its number",
            excerpt(rtype.word)
        ),
        None => "the record type is missing; write OWNER TTL TYPE DATA".into(),
    }
}

/// Appends a hint to `meaning` that lists the data fields of this record type, if they are known.
fn with_fields(meaning: &str, rtype: Option<StatedType<'_>>) -> String {
    match rtype.and_then(|rtype| rtype.form) {
        None => meaning.to_owned(),
        Some(form) => format!("{meaning}; write {}", form.usage()),
    }
}

/// Rewrites a parser error about a class or an unknown directive. Any other error is about the data, which
/// [`text_fault`] explains better.
fn explain_word(message: &str, rtype: Option<StatedType<'_>>) -> String {
    match message.split_once(": ") {
        Some(("different class", classes)) => {
            let class = classes.split(' ').next().unwrap_or(classes);
            format!("class {class} is not supported; write IN, or omit the class")
        }
        Some(("unknown control", word)) => {
            format!("{word} is not known; the directives are $ORIGIN, $TTL, $INCLUDE and $GENERATE")
        }
        _ => with_fields("a field has not the form that it needs", rtype),
    }
}

/// Returns the start of an entry as one line of printable text.
fn excerpt(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    let printable = |c: char| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    let mut shown: String = line.chars().take(EXCERPT).map(printable).collect();
    if line.chars().nth(EXCERPT).is_some() {
        shown.push('…');
    }
    shown
}
