//! Parses one entry of a master file with the `domain` crate. The crate's error messages are
//! rewritten so that they say how to correct the entry.

use std::path::PathBuf;

use domain::base::Name;
use domain::base::iana::Class;
use domain::base::name::ToName;
use domain::zonefile::inplace::{self, ScannedDname, ScannedRecord, Zonefile};

use crate::fields;
use crate::master::{self, MAX_TTL};
use crate::name;

/// The TTL that the `domain` crate gives to records before the first stated TTL, in seconds.
const DEFAULT_TTL: u32 = 3600;
/// Maximum number of characters that an error message quotes from an entry.
const EXCERPT: usize = 60;

/// The state with which a parser starts: at the zone's file, at an included file, or after an
/// error.
pub(super) struct State {
    /// The origin in wire format.
    pub(super) origin: Option<Vec<u8>>,
    /// The TTL set by `$TTL`, in seconds.
    pub(super) ttl: Option<u32>,
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

/// A parser of entries. After an error, it can continue with the next entry.
pub(super) struct EntryParser {
    zonefile: Zonefile,
    /// The TTL set by `$TTL`, in seconds.
    ttl: Option<u32>,
    has_ttl: bool,
    last_owner: Option<ScannedDname>,
}

impl EntryParser {
    pub(super) fn new(state: &State) -> Self {
        let mut zonefile = Zonefile::new();
        zonefile.set_default_class(Class::IN);
        if let Some(Ok(origin)) = state.origin.as_deref().map(Name::from_slice) {
            zonefile.set_origin(origin.to_bytes());
        }
        let mut parser = Self {
            zonefile,
            ttl: state.ttl,
            has_ttl: state.ttl.is_some(),
            last_owner: None,
        };
        if let Some(ttl) = state.ttl {
            parser.feed(&format!("$TTL {ttl}"));
            let _ = parser.zonefile.next_entry();
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
        }
    }

    fn feed(&mut self, text: &str) {
        self.zonefile.extend_from_slice(text.as_bytes());
        self.zonefile.extend_from_slice(b"\n");
    }

    pub(super) fn parse(&mut self, text: &str) -> Result<Parsed, String> {
        let prepared = master::prepare(text);
        self.has_ttl |= prepared.has_ttl;
        if let Some(bad) = prepared.bad_ttl {
            return Err(format!(
                "'{}' is not a TTL: write 0 to {MAX_TTL} seconds, or a time such as 1h30m",
                excerpt(bad)
            ));
        }
        self.feed(&prepared.text);
        let entry = match self.zonefile.next_entry() {
            Ok(entry) => entry,
            Err(error) => {
                self.reset_parser();
                return Err(explain(&error, text, prepared.rtype));
            }
        };
        match entry {
            Some(inplace::Entry::Record(record)) => {
                if !text.starts_with([' ', '\t', '\r']) {
                    self.last_owner = Some(record.owner().clone());
                }
                let assumed_ttl = (!self.has_ttl).then_some(DEFAULT_TTL);
                Ok(Parsed::Record {
                    record: Box::new(record),
                    assumed_ttl,
                })
            }
            Some(inplace::Entry::Include { path, origin }) => Ok(Parsed::Include {
                path: PathBuf::from(&path[..]),
                origin: origin.map(|origin| origin.as_slice().to_vec()),
            }),
            None => {
                if prepared.is_directive && prepared.has_ttl {
                    let mut words = prepared.text.split_whitespace();
                    self.ttl = words.nth(1).and_then(|word| word.parse().ok());
                }
                Ok(Parsed::Nothing)
            }
        }
    }

    /// Replaces the `domain` crate's parser, because an error leaves its state undefined. The new
    /// parser starts with the same origin, TTL and owner.
    fn reset_parser(&mut self) {
        let state = self.state(None);
        let last_owner = self.last_owner.take();
        let has_ttl = self.has_ttl;
        *self = Self::new(&state);
        self.has_ttl = has_ttl;
        if let Some(owner) = last_owner {
            // To set the last owner, the new parser parses a record that is then ignored.
            let mut wire = Vec::new();
            let Ok(()) = owner.compose(&mut wire);
            self.feed(&format!("{} 0 IN A 192.0.2.1", name::Shown(&wire)));
            let _ = self.zonefile.next_entry();
            self.last_owner = Some(owner);
        }
    }
}

/// Converts the parser's error to a message that says how to correct the entry. `text` is the
/// entry, and `rtype` is its type.
fn explain(error: &inplace::Error, text: &str, rtype: Option<&str>) -> String {
    let shown = error.to_string();
    // The message starts with the parser's own line and column numbers, which do not apply to the
    // file.
    let message = shown.split_once(": ").map_or(shown.as_str(), |(_, m)| m);
    let meaning = match message {
        "expected rtype" => "a known record type is missing",
        "unknown record type with concrete data" => {
            "data of this record type must be written as in RFC 3597: \\# LENGTH HEX"
        }
        "missing origin" => "a relative name without an origin: give ORIGIN=FILE, or an $ORIGIN",
        "missing last owner" => "the record has no owner, and no earlier record has one",
        "trailing tokens" => &with_fields("more fields than the record type has", rtype),
        "unexpected end of entry" | "short buffer" => {
            &with_fields("fields are missing at the end", rtype)
        }
        "bad name" => "a label or name is too long or empty",
        "decimal number overflow" => "a number is too large for its field",
        "expected decimal number" => &with_fields("a field must be a number", rtype),
        "bad charstr" => {
            "a string has at most 255 bytes; write a longer text as several quoted strings"
        }
        "bad symbol: illegal escape sequence" => {
            "an escape is \\ and three digits, \\000 to \\255, or \\ before any other character"
        }
        "bad symbol" => {
            "only printable ASCII is allowed here; write each other byte as an escape, \\ and \
             three digits"
        }
        other => return explain_word(other, text),
    };
    format!("{meaning}: \"{}\"", excerpt(text))
}

/// Appends a hint to `meaning` that lists the data fields of this record type, if they are known.
fn with_fields(meaning: &str, rtype: Option<&str>) -> String {
    let rtype = rtype.unwrap_or_default();
    match fields::of(rtype) {
        "" => meaning.to_owned(),
        fields => format!("{meaning}; write {} {fields}", rtype.to_ascii_uppercase()),
    }
}

/// Rewrites a parser error about a class or an unknown directive. Any other error keeps its text.
/// Appends the start of the entry to the message.
fn explain_word(message: &str, text: &str) -> String {
    let meaning = match message.split_once(": ") {
        Some(("different class", classes)) => {
            let class = classes.split(' ').next().unwrap_or(classes);
            format!("class {class} is not supported; write IN, or omit the class")
        }
        Some(("unknown control", word)) => {
            format!("{word} is not known; the directives are $ORIGIN, $TTL and $INCLUDE")
        }
        _ => message.to_owned(),
    };
    format!("{meaning}: \"{}\"", excerpt(text))
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
