//! Reading zones from master files (RFC 1035, section 5).
//!
//! A zone is read whole or not at all: every error of its files is reported
//! with file and line, as far as one error does not hide the next.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use domain::base::Name;
use domain::base::iana::Class;
use domain::base::name::ToName;
use domain::base::rdata::{ComposeRecordData, ParseRecordData};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;
use domain::zonefile::inplace::{self, ScannedDname, ScannedRecord, Zonefile};

use crate::check;
use crate::master::{self, Entries, Unclosed};
use crate::name;
use crate::report::Report;
use crate::rtype;
use crate::zone::{Builder, Place, Refused, Zone};

/// `$INCLUDE`s inside one another.
pub(crate) const MAX_INCLUDE_DEPTH: usize = 8;
/// Files of one zone.
pub(crate) const MAX_FILES: usize = 1024;
/// The longest TTL, in seconds (RFC 2181, section 8).
pub(crate) const MAX_TTL: u32 = i32::MAX as u32;
/// Records between two calls of a progress function.
pub(crate) const PROGRESS_STEP: usize = 250_000;
/// The TTL of records before any is stated.
const DEFAULT_TTL: u32 = 3600;
/// Characters of an entry that a message shows.
const EXCERPT: usize = 60;
/// Ends of file names that are not part of the zone's name.
const FILE_SUFFIXES: [&str; 3] = [".zone", ".db", ".txt"];
/// A start of file names that is not part of the zone's name.
const FILE_PREFIX: &str = "db.";

/// A zone as it is named on the command line: `[ORIGIN=]FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneSpec {
    /// The zone's name in wire format, if given.
    pub origin: Option<Vec<u8>>,
    /// The master file.
    pub file: PathBuf,
}

impl FromStr for ZoneSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What looks like a path is one, whatever signs are in it.
        let is_path = text.starts_with(['/', '.']);
        let (origin, file) = match text.split_once('=') {
            Some((origin, file)) if !is_path || origin == "." => (Some(origin), file),
            _ => (None, text),
        };
        let origin = match origin {
            Some(origin) => Some(name::parse(origin).ok_or_else(|| {
                format!("'{origin}' is no domain name; write ORIGIN=FILE, or ./FILE")
            })?),
            None => None,
        };
        if file.is_empty() {
            return Err("the file is missing; write ORIGIN=FILE".into());
        }
        Ok(Self {
            origin,
            file: file.into(),
        })
    }
}

impl fmt::Display for ZoneSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{}=", name::Shown(origin))?;
        }
        write!(f, "{}", self.file.display())
    }
}

/// A zone that was read without an error.
#[derive(Debug)]
pub struct Loaded {
    /// Its records.
    pub zone: Zone,
    /// The warnings, if any.
    pub report: Report,
}

/// Reads a zone. `progress` is told how many records have been read, every
/// 250,000 of them.
///
/// # Errors
/// A report with at least one error.
pub fn load(spec: &ZoneSpec, progress: &mut dyn FnMut(usize)) -> Result<Loaded, Report> {
    let mut loader = Loader::new(progress);
    loader.read_first(spec);
    loader.finish()
}

/// Reads a zone from a text, as if it were a file named `file`.
///
/// # Errors
/// A report with at least one error.
pub fn load_text(file: &str, origin: Option<&str>, text: &str) -> Result<Loaded, Report> {
    let mut quiet = |_| {};
    let mut loader = Loader::new(&mut quiet);
    let origin = origin.and_then(name::parse);
    loader.read_zone(Path::new(file), origin, text);
    loader.finish()
}

/// The zone's name, as far as it is known before the first record.
enum Apex {
    /// Given, or set by the file's first `$ORIGIN`.
    Known(Vec<u8>),
    /// Only guessed: an SOA record right at the start decides.
    Guessed(Option<Vec<u8>>),
}

struct Loader<'p> {
    report: Report,
    builder: Option<Builder>,
    apex: Apex,
    progress: &'p mut dyn FnMut(usize),
    owner: Vec<u8>,
    data: Vec<u8>,
    again: Vec<u8>,
}

impl<'p> Loader<'p> {
    fn new(progress: &'p mut dyn FnMut(usize)) -> Self {
        Self {
            report: Report::default(),
            builder: None,
            apex: Apex::Guessed(None),
            progress,
            owner: Vec::new(),
            data: Vec::new(),
            again: Vec::new(),
        }
    }

    fn read_first(&mut self, spec: &ZoneSpec) {
        match std::fs::read(&spec.file) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                self.read_zone(&spec.file, spec.origin.clone(), &text);
            }
            Err(error) => {
                let file = self.report.add_file(&spec.file);
                let place = Place { file, line: 0 };
                self.report
                    .error(place, format!("cannot read the file: {error}"));
            }
        }
    }

    /// Decides the zone's name, then reads its text.
    fn read_zone(&mut self, path: &Path, given: Option<Vec<u8>>, text: &str) {
        let first = leading_origin(text);
        let mut skip_line = None;
        self.apex = match (given, first) {
            (Some(given), _) => Apex::Known(given),
            (None, Some((line, origin))) => {
                skip_line = Some(line);
                if origin == name::ROOT {
                    Apex::Guessed(Some(origin))
                } else {
                    Apex::Known(origin)
                }
            }
            (None, None) => Apex::Guessed(origin_of_file(path)),
        };
        let origin = match &self.apex {
            Apex::Known(origin) => Some(origin.clone()),
            Apex::Guessed(origin) => origin.clone(),
        };
        let state = State { origin, ttl: None };
        self.read_text(path, text, &state, skip_line, 0);
    }

    fn read_text(
        &mut self,
        path: &Path,
        text: &str,
        state: &State,
        skip_line: Option<u32>,
        depth: usize,
    ) {
        let file = self.report.add_file(path);
        let mut parser = EntryParser::new(state);
        for entry in Entries::new(text) {
            if self.report.is_full() {
                return;
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(unclosed) => {
                    let (line, message) = match unclosed {
                        Unclosed::Quote { line } => (line, "a quoted string is not closed"),
                        Unclosed::Parenthesis { line } => (line, "a parenthesis is not closed"),
                    };
                    self.report.error(Place { file, line }, message);
                    continue;
                }
            };
            if Some(entry.line) == skip_line {
                continue;
            }
            let place = Place {
                file,
                line: entry.line,
            };
            match parser.parse(entry.text) {
                Ok(Parsed::Record { record, ttl_taken }) => {
                    if let Some(ttl) = ttl_taken {
                        self.report.warning(
                            place,
                            format!("no TTL here, and no $TTL before: {ttl} s is taken"),
                        );
                    }
                    self.take(&record, place);
                }
                Ok(Parsed::Include {
                    path: included,
                    origin,
                }) => {
                    let state = State {
                        origin: origin.or_else(|| parser.origin()),
                        ttl: parser.ttl,
                    };
                    let included = path.parent().unwrap_or(Path::new("")).join(included);
                    self.include(&included, &state, place, depth + 1);
                }
                Ok(Parsed::Nothing) => {}
                Err(message) => self.report.error(place, message),
            }
        }
    }

    fn include(&mut self, path: &Path, state: &State, place: Place, depth: usize) {
        if depth > MAX_INCLUDE_DEPTH || self.report.file_count() >= MAX_FILES {
            self.report.error(
                place,
                format!(
                    "more than {MAX_INCLUDE_DEPTH} files included inside one another, \
                     or {MAX_FILES} altogether"
                ),
            );
            return;
        }
        match std::fs::read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                self.read_text(path, &text, state, None, depth);
            }
            Err(error) => self
                .report
                .error(place, format!("cannot read {}: {error}", path.display())),
        }
    }

    /// Checks one record by itself and takes it into the zone.
    fn take(&mut self, record: &ScannedRecord, place: Place) {
        self.owner.clear();
        self.data.clear();
        let (Ok(()), Ok(())) = (
            record.owner().compose(&mut self.owner),
            record.data().compose_rdata(&mut self.data),
        );
        let rtype = record.rtype().to_int();
        let ttl = record.ttl().as_secs();
        if let Err(message) = self.check_record(rtype, ttl) {
            self.report.error(place, message);
            return;
        }
        let builder = match &mut self.builder {
            Some(builder) => builder,
            none => {
                let apex = match &self.apex {
                    Apex::Guessed(_) if rtype == rtype::SOA => &self.owner,
                    Apex::Known(apex) | Apex::Guessed(Some(apex)) => apex,
                    // No name in this file can have been relative.
                    Apex::Guessed(None) => {
                        self.report.error(
                            place,
                            "the zone's name is not known: give ORIGIN=FILE, or write an \
                             $ORIGIN or the SOA record first",
                        );
                        &self.owner
                    }
                };
                none.insert(Builder::new(apex))
            }
        };
        match builder.push(&self.owner, rtype, ttl, &self.data, place) {
            Ok(()) => {
                if builder.record_count().is_multiple_of(PROGRESS_STEP) {
                    (self.progress)(builder.record_count());
                }
            }
            Err(Refused::OutOfZone) => {
                let message = format!(
                    "{} does not lie in the zone {}",
                    name::Shown(&self.owner),
                    name::Shown(builder.apex()),
                );
                self.report.error(place, message);
            }
            Err(Refused::TooMuch) => self
                .report
                .error(place, "a zone may have 4 GiB of records, not more"),
        }
    }

    fn check_record(&mut self, rtype: u16, ttl: u32) -> Result<(), String> {
        let shown = || rtype::show(rtype);
        if !rtype::is_data(rtype) {
            return Err(format!("{} records cannot be in a zone", shown()));
        }
        if !name::is_name(&self.owner) {
            return Err("the owner has an empty label or is too long".into());
        }
        if ttl > MAX_TTL {
            return Err(format!("a TTL is at most {MAX_TTL} s, not {ttl}"));
        }
        if self.data.len() > usize::from(u16::MAX) {
            return Err(format!("the data of this {} is too long", shown()));
        }
        // Data in the form of RFC 3597 must be whole too, and names in it
        // must be names: it is what it parses back to.
        self.again.clear();
        let mut parser = Parser::from_ref(self.data.as_slice());
        let whole = ZoneRecordData::<_, domain::base::ParsedName<_>>::parse_rdata(
            rtype.into(),
            &mut parser,
        )
        .is_ok_and(|parsed| {
            parsed.is_some_and(|data| {
                let Ok(()) = data.compose_rdata(&mut self.again);
                parser.remaining() == 0 && self.again == self.data
            })
        });
        if whole {
            Ok(())
        } else {
            Err(format!("the data is not that of a {} record", shown()))
        }
    }

    fn finish(mut self) -> Result<Loaded, Report> {
        let Some(builder) = self.builder.take() else {
            if self.report.errors() == 0 {
                self.report
                    .error(Place { file: 0, line: 0 }, "there is no record in it");
            }
            return Err(self.report);
        };
        let report = &mut self.report;
        let zone = builder.finish(|place| report.warning(place, "the same record again: dropped"));
        // What a half-read zone lacks says nothing.
        if report.errors() == 0 {
            check::check(&zone, report);
        }
        report.sort();
        if report.errors() > 0 {
            return Err(self.report);
        }
        Ok(Loaded {
            zone,
            report: self.report,
        })
    }
}

/// The origin that the text sets before its first record, and where.
fn leading_origin(text: &str) -> Option<(u32, Vec<u8>)> {
    for entry in Entries::new(text) {
        let entry = entry.ok()?;
        let mut words = entry.text.split_whitespace();
        let first = words.next()?;
        if first.eq_ignore_ascii_case("$ORIGIN") && !entry.text.starts_with([' ', '\t']) {
            let word = words.next()?;
            let word = word.split(';').next().unwrap_or(word);
            return Some((entry.line, name::parse(word)?));
        }
        if !first.eq_ignore_ascii_case("$TTL") {
            return None;
        }
    }
    None
}

/// The zone's name as a file's name has it: `example.org`,
/// `example.org.zone`, `db.example.org`.
fn origin_of_file(path: &Path) -> Option<Vec<u8>> {
    let mut name = path.file_name()?.to_str()?;
    name = name.strip_prefix(FILE_PREFIX).unwrap_or(name);
    for suffix in FILE_SUFFIXES {
        if let Some(stem) = name.strip_suffix(suffix) {
            name = stem;
            break;
        }
    }
    name::parse(name)
}

/// What one part of a file hands on to the next, or to an included file.
struct State {
    /// In wire format.
    origin: Option<Vec<u8>>,
    ttl: Option<u32>,
}

enum Parsed {
    Record {
        record: Box<ScannedRecord>,
        /// The TTL, when the file has stated none so far.
        ttl_taken: Option<u32>,
    },
    Include {
        path: PathBuf,
        origin: Option<Vec<u8>>,
    },
    Nothing,
}

/// The parser of entries, which can be started again after an error.
struct EntryParser {
    zonefile: Zonefile,
    /// What `$TTL` has set.
    ttl: Option<u32>,
    ttl_known: bool,
    last_owner: Option<ScannedDname>,
}

impl EntryParser {
    fn new(state: &State) -> Self {
        let mut zonefile = Zonefile::new();
        zonefile.set_default_class(Class::IN);
        if let Some(Ok(origin)) = state.origin.as_deref().map(Name::from_slice) {
            zonefile.set_origin(origin.to_bytes());
        }
        let mut parser = Self {
            zonefile,
            ttl: state.ttl,
            ttl_known: state.ttl.is_some(),
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

    fn feed(&mut self, text: &str) {
        self.zonefile.extend_from_slice(text.as_bytes());
        self.zonefile.extend_from_slice(b"\n");
    }

    fn parse(&mut self, text: &str) -> Result<Parsed, String> {
        let prepared = master::prepare(text);
        self.ttl_known |= prepared.has_ttl;
        self.feed(&prepared.text);
        let entry = match self.zonefile.next_entry() {
            Ok(entry) => entry,
            Err(error) => {
                self.start_again();
                return Err(explain(&error, text));
            }
        };
        match entry {
            Some(inplace::Entry::Record(record)) => {
                if !text.starts_with([' ', '\t', '\r']) {
                    self.last_owner = Some(record.owner().clone());
                }
                let ttl_taken = (!self.ttl_known).then_some(DEFAULT_TTL);
                Ok(Parsed::Record {
                    record: Box::new(record),
                    ttl_taken,
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

    /// After an error the parser's state is undefined: a new one goes on
    /// with the same origin, TTL and owner.
    fn start_again(&mut self) {
        let state = State {
            origin: self.origin(),
            ttl: self.ttl,
        };
        let last_owner = self.last_owner.take();
        let ttl_known = self.ttl_known;
        *self = Self::new(&state);
        self.ttl_known = ttl_known;
        if let Some(owner) = last_owner {
            let mut wire = Vec::new();
            let Ok(()) = owner.compose(&mut wire);
            self.feed(&format!("{} 0 IN A 192.0.2.1", name::Shown(&wire)));
            let _ = self.zonefile.next_entry();
            self.last_owner = Some(owner);
        }
    }
}

/// The parser's message, in words that say what to mend.
fn explain(error: &inplace::Error, text: &str) -> String {
    let shown = error.to_string();
    // It starts with a line and column of the parser's own counting.
    let message = shown.split_once(": ").map_or(shown.as_str(), |(_, m)| m);
    let meaning = match message {
        "expected rtype" => "no known record type where one must be",
        "unknown record type with concrete data" => {
            "data of this record type must be written as RFC 3597 has it: \\# LENGTH HEX"
        }
        "missing origin" => "a relative name, and no origin: give ORIGIN=FILE, or an $ORIGIN",
        "missing last owner" => "no owner here, and none before",
        "trailing tokens" => "more fields than the record type has",
        "unexpected end of entry" | "short buffer" => "fields are missing at the end",
        "bad name" => "a label or name is too long or empty",
        other => other,
    };
    let mut excerpt: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = excerpt.char_indices().nth(EXCERPT) {
        excerpt.truncate(end);
        excerpt.push('…');
    }
    format!("{meaning}: \"{excerpt}\"")
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
