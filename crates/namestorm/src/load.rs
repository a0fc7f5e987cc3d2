//! Reads zones from master files (RFC 1035, section 5).
//!
//! A zone is loaded completely or not at all. One run reports the errors in all its files, at most
//! 50, each with file, line and column. The zone is checked for consistency only if there are no such
//! errors.

mod entry;
mod generate;
mod origin;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use control::{FileVersion, FileVersions};
use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::ScannedRecord;

use self::entry::{EntryError, EntryParser, Parsed, State};
use self::generate::{Generate, OWNER, RANGE};
pub(crate) use self::origin::ZoneKey;
pub use self::origin::ZoneSpec;
use self::origin::{leading_origin, origin_of_file};
use self::source::{MAX_TEXT, TOO_MUCH_TEXT};
use crate::check;
use crate::master::{self, Entries, Entry};
use crate::name;
use crate::rdata;
use crate::report::Report;
use crate::rtype;
use crate::words::{self, Position};
use crate::zone::{Builder, Place, PushError, Zone};

/// Maximum depth of nested `$INCLUDE`s.
pub(crate) const MAX_INCLUDE_DEPTH: usize = 8;
/// Maximum number of files of one zone. A file that is included twice counts twice.
pub(crate) const MAX_FILES: usize = 1024;
/// Maximum number of records that all `$GENERATE` directives of a zone make.
pub(crate) const MAX_GENERATED: u64 = 1 << 20;
/// Number of records between two calls of [`load`]'s `progress` function.
pub(crate) const PROGRESS_STEP: usize = 10_000;

/// A zone that was loaded without errors.
#[derive(Debug)]
pub struct Loaded {
    /// The zone's records.
    pub zone: Zone,
    /// The warnings about the zone, if there are any.
    pub report: Report,
    /// The files that the zone was read from.
    pub(crate) files: Vec<ReadFile>,
}

/// A file that a zone was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadFile {
    path: PathBuf,
    /// The version that was read, or `None` if it was so young that it cannot be recognised.
    version: Option<FileVersion>,
}

impl ReadFile {
    fn new(path: &Path, version: FileVersion) -> Self {
        Self {
            path: path.to_owned(),
            version: Some(version).filter(|version| version.is_settled(SystemTime::now())),
        }
    }

    /// A file that could not be read, so that it counts as changed.
    pub(crate) fn unread(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            version: None,
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Same as [`path`](Self::path), without a borrow.
    pub(crate) fn into_path(self) -> PathBuf {
        self.path
    }

    /// Returns true if there is still the same version of the file.
    pub(crate) fn is_unchanged(&self, versions: &mut FileVersions) -> bool {
        self.version.is_some() && versions.at(&self.path).ok() == self.version
    }
}

/// A zone that could not be loaded. None of its records are served.
#[derive(Debug)]
pub struct Broken {
    /// The zone's name in wire format, or `None` if the name is unknown.
    pub apex: Option<Vec<u8>>,
    /// What is wrong with the zone: at least one error.
    pub report: Report,
    /// The files that the zone was read from, also those that could not be read.
    pub(crate) files: Vec<PathBuf>,
}

/// Loads a zone. After every 10,000 records, calls `progress` with the number of records read so
/// far.
///
/// # Errors
///
/// Returns a [`Broken`] zone, whose report holds at least one error.
pub fn load(spec: &ZoneSpec, progress: &mut dyn FnMut(usize)) -> Result<Loaded, Broken> {
    let mut loader = Loader::new(progress);
    loader.read_first(spec);
    loader.finish()
}

/// Loads a zone from a text, as if the text were the content of `file`. `origin` is the zone's
/// name, if it is known.
///
/// # Errors
///
/// Returns a report with at least one error.
pub fn load_text(file: &str, origin: Option<&str>, text: &str) -> Result<Loaded, Report> {
    let mut quiet = |_| {};
    let mut loader = Loader::new(&mut quiet);
    let origin = origin.and_then(name::parse);
    loader.read_zone(Path::new(file), origin, text);
    loader.finish().map_err(|broken| broken.report)
}

/// What is known about the zone's name so far.
#[derive(Clone)]
enum Apex {
    /// The name is certain: it was given by the caller, by an `$ORIGIN` before the first record, or
    /// by an SOA record that came first.
    Known(Vec<u8>),
    /// The name is a guess, or unknown. If the first record is an SOA record, its owner becomes the
    /// zone's name.
    Guessed(Option<Vec<u8>>),
}

/// Where a record or a directive is written.
struct Source<'a> {
    /// The place of the first word.
    place: Place,
    /// The text of the entry.
    text: &'a str,
    /// Whether the text does not come from a file.
    is_generated: bool,
}

impl<'a> Source<'a> {
    fn new(file: u16, entry: &Entry<'a>) -> Self {
        let text = entry.text;
        let indent = text.len() - text.trim_start_matches(entry::INDENT).len();
        let place = Place {
            file,
            line: entry.line,
            column: u16::try_from(indent + 1).unwrap_or(0),
        };
        Self {
            place,
            text,
            is_generated: false,
        }
    }

    fn generated(place: Place, text: &'a str) -> Self {
        Self {
            place,
            text,
            is_generated: true,
        }
    }

    /// Returns the place of a position in the text.
    fn at(&self, position: Position) -> Place {
        Place {
            line: self.place.line + position.lines,
            column: position.column,
            ..self.place
        }
    }

    /// Returns the place of the word at `index`, or of the last word if there are fewer.
    fn of_word(&self, index: usize) -> Place {
        let position = words::position(self.text, index).filter(|_| !self.is_generated);
        position.map_or(self.place, |position| self.at(position))
    }
}

struct Loader<'p> {
    report: Report,
    builder: Option<Builder>,
    apex: Apex,
    progress: &'p mut dyn FnMut(usize),
    /// The path of the zone's file, as it is given.
    file: PathBuf,
    /// The files that are being read, without symbolic links, from the zone's first `$INCLUDE` on. Each
    /// includes the next one.
    open: Vec<PathBuf>,
    /// The folder of the zone's file, without symbolic links. It is found at the first `$INCLUDE`, which
    /// most zones do not have.
    folder: Option<PathBuf>,
    /// The files that have been read so far, also those that could not be read.
    files: Vec<ReadFile>,
    /// Number of records made by `$GENERATE` so far.
    generated: u64,
    /// Number of bytes of text that the zone may still have.
    text_left: u64,
    owner: Vec<u8>,
    data: Vec<u8>,
}

impl<'p> Loader<'p> {
    fn new(progress: &'p mut dyn FnMut(usize)) -> Self {
        Self {
            report: Report::default(),
            builder: None,
            apex: Apex::Guessed(None),
            progress,
            file: PathBuf::new(),
            open: Vec::new(),
            folder: None,
            files: Vec::new(),
            generated: 0,
            text_left: MAX_TEXT,
            owner: Vec::new(),
            data: Vec::new(),
        }
    }

    fn read_first(&mut self, spec: &ZoneSpec) {
        match source::read(&spec.file, &mut self.text_left) {
            Ok((text, version)) => {
                self.files.push(ReadFile::new(&spec.file, version));
                self.read_zone(&spec.file, spec.origin.clone(), &text);
            }
            Err(reason) => {
                self.apex = match &spec.origin {
                    Some(given) => Apex::Known(given.clone()),
                    None => Apex::Guessed(origin_of_file(&spec.file)),
                };
                let file = self.report.add_file(&spec.file);
                let place = Place::of_line(file, 0);
                let by = control::config::place_of("zones", &spec.to_string());
                let by = by.map_or(String::new(), |by| format!(", which {by} names"));
                self.report
                    .error(place, format!("cannot read the file{by}: {reason}"));
            }
        }
    }

    /// Determines the zone's name, as far as this is possible before the first record, and reads
    /// the zone's text.
    fn read_zone(&mut self, path: &Path, given: Option<Vec<u8>>, text: &str) {
        path.clone_into(&mut self.file);
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
        let origin = self.apex.clone().into_name();
        let state = State {
            origin,
            ttl: None,
            last_ttl: None,
        };
        self.read_text(path, text, &state, skip_line);
    }

    fn read_text(&mut self, path: &Path, text: &str, state: &State, skip_line: Option<u32>) {
        let file = self.report.add_file(path);
        let mut parser = EntryParser::new(state, text.len());
        for entry in Entries::new(text) {
            if self.report.is_full() {
                return;
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(unclosed) => {
                    let (line, column) = unclosed.at();
                    let place = Place { file, line, column };
                    self.report.error(place, unclosed.to_string());
                    continue;
                }
            };
            if Some(entry.line) == skip_line {
                continue;
            }
            let source = Source::new(file, &entry);
            let place = source.place;
            if master::is_named(entry.text, "$GENERATE") {
                // A record without an owner takes the owner before the directive, as in BIND.
                parser.keep_owner(|parser| self.generate(parser, &source));
                continue;
            }
            match parser.parse(&entry) {
                Ok(Parsed::Record {
                    record,
                    assumed_ttl,
                }) => {
                    self.warn_of_ttl(assumed_ttl, place);
                    self.add_record(&record, &source);
                }
                Ok(Parsed::Include {
                    path: included,
                    origin,
                }) => {
                    let state = parser.state(origin);
                    let included = path.parent().unwrap_or(Path::new("")).join(included);
                    self.include(&included, &state, source.of_word(1));
                }
                Ok(Parsed::Nothing) => {}
                Err(EntryError { message, position }) => {
                    let at = position.map_or(place, |position| source.at(position));
                    self.report.error(at, message);
                }
            }
        }
    }

    fn warn_of_ttl(&mut self, assumed_ttl: Option<u32>, place: Place) {
        if let Some(ttl) = assumed_ttl {
            let message = format!("no TTL here, and no $TTL before: using {ttl} s");
            self.report.warning(place, message);
        }
    }

    /// Adds the records of a `$GENERATE` directive. Reports only the first error in them, because
    /// the others are probably the same.
    fn generate(&mut self, parser: &mut EntryParser, source: &Source<'_>) {
        let generate = match Generate::parse(source.text) {
            Ok(generate) => generate,
            Err(error) => {
                let place = source.of_word(error.index(source.text));
                return self.report.error(place, error.to_string());
            }
        };
        self.generated += generate.count();
        if self.generated > MAX_GENERATED {
            let message =
                format!("the $GENERATE directives of a zone make at most {MAX_GENERATED} records");
            return self.report.error(source.of_word(RANGE), message);
        }
        let errors = self.report.errors();
        // All records have the place at which the directive begins to describe them.
        let place = source.of_word(OWNER);
        for (at, text) in generate.records().enumerate() {
            let text = match text {
                Ok(text) => text,
                Err(error) => {
                    let place = source.of_word(error.index(source.text));
                    return self.report.error(place, error.to_string());
                }
            };
            match self.parse_generated(parser, &text) {
                Ok(Parsed::Record {
                    record,
                    assumed_ttl,
                }) => {
                    self.warn_of_ttl(assumed_ttl.filter(|_| at == 0), place);
                    self.add_record(&record, &Source::generated(place, &text));
                }
                Ok(_) => self.report.error(place, "$GENERATE makes only records"),
                Err(message) => self.report.error(place, message),
            }
            if self.report.errors() > errors {
                return;
            }
        }
    }

    fn parse_generated(
        &mut self,
        parser: &mut EntryParser,
        record: &str,
    ) -> Result<Parsed, String> {
        let left = self.text_left.checked_sub(record.len() as u64);
        self.text_left = left.ok_or(TOO_MUCH_TEXT)?;
        match Entries::new(record).next() {
            Some(Ok(entry)) => parser.parse(&entry).map_err(|error| error.message),
            Some(Err(unclosed)) => Err(unclosed.to_string()),
            None => Ok(Parsed::Nothing),
        }
    }

    fn include(&mut self, path: &Path, state: &State, place: Place) {
        let read = self.read_included(path);
        let (text, real) = match read {
            Ok(read) => read,
            Err(reason) => {
                let message = format!("cannot read {}: {reason}", path.display());
                return self.report.error(place, message);
            }
        };
        self.open.push(real);
        self.read_text(path, &text, state, None);
        self.open.pop();
    }

    /// Reads a file below the folder of the zone's file. The server may read more than the zone's
    /// author may, and its messages show words of the file, so it reads no other file.
    ///
    /// Returns the file's text and its path without symbolic links.
    fn read_included(&mut self, path: &Path) -> Result<(String, PathBuf), String> {
        if self.report.file_count() >= MAX_FILES {
            return Err(format!("a zone may have at most {MAX_FILES} files"));
        }
        let folder = self.folder.get_or_insert_with(|| {
            self.open.extend(self.file.canonicalize());
            let folder = Path::new(".").join(&self.file);
            let folder = folder.parent().map(Path::canonicalize);
            folder.and_then(Result::ok).unwrap_or_default()
        });
        if self.open.len() > MAX_INCLUDE_DEPTH {
            return Err(format!(
                "files are included more than {MAX_INCLUDE_DEPTH} levels deep"
            ));
        }
        let real = fs::canonicalize(path).map_err(|error| {
            self.files.push(ReadFile::unread(path));
            error.to_string()
        })?;
        // Without a folder, no file is included.
        if folder.as_os_str().is_empty() || !real.starts_with(&*folder) {
            return Err(format!(
                "it is not below the folder of the zone's file, {}; move it there",
                folder.display()
            ));
        }
        if self.open.contains(&real) {
            return Err("it includes itself, perhaps through other files; remove this line".into());
        }
        let read = source::read(&real, &mut self.text_left);
        // Links may lead to another file later.
        self.files.push(match &read {
            Ok((_, version)) => ReadFile::new(path, *version),
            Err(_) => ReadFile::unread(path),
        });
        Ok((read?.0, real))
    }

    /// Checks one record and adds it to the zone.
    fn add_record(&mut self, record: &ScannedRecord, source: &Source<'_>) {
        let place = source.place;
        self.owner.clear();
        self.data.clear();
        let (Ok(()), Ok(())) = (
            record.owner().compose(&mut self.owner),
            record.data().compose_rdata(&mut self.data),
        );
        let rtype = record.rtype().to_int();
        let ttl = record.ttl().as_secs();
        if let Err((message, word)) = self.check_record(rtype, source.text) {
            self.report.error(source.of_word(word), message);
            return;
        }
        let builder = match &mut self.builder {
            Some(builder) => builder,
            none => {
                if rtype == rtype::SOA && matches!(self.apex, Apex::Guessed(_)) {
                    self.apex = Apex::Known(self.owner.clone());
                }
                let apex = match &self.apex {
                    Apex::Known(apex) | Apex::Guessed(Some(apex)) => apex,
                    // The record's owner stands in for the zone's name, so that reading can
                    // continue and find further errors.
                    Apex::Guessed(None) => {
                        self.report.error(
                            place,
                            "the zone's name is unknown: give ORIGIN=FILE, or write an \
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
            Err(PushError::OutOfZone) if rtype == rtype::SOA && builder.record_count() > 0 => {
                let message = format!(
                    "a second zone starts here, {}: this file holds the zone {}; put the other \
                     zone into its own file",
                    name::Shown(&self.owner),
                    name::Shown(builder.apex()),
                );
                self.report.error(place, message);
            }
            Err(PushError::OutOfZone) => {
                let message = format!(
                    "{} does not lie in the zone {}",
                    name::Shown(&self.owner),
                    name::Shown(builder.apex()),
                );
                self.report.error(place, message);
            }
            Err(PushError::TooLarge) => self
                .report
                .error(place, "a zone may have at most 4 GiB of records"),
        }
    }

    /// Checks a record with the entry `text`. An error comes with the index of the wrong word.
    fn check_record(&self, rtype: u16, text: &str) -> Result<(), (String, usize)> {
        let type_name = || rtype::show(rtype);
        if !rtype::is_data(rtype) {
            return Err((format!("{} records cannot be in a zone", type_name()), 0));
        }
        if !name::is_name(&self.owner) {
            let owner = words::ranges(text).next().unwrap_or_default();
            return Err((entry::name_fault(&text[owner]), 0));
        }
        if self.data.len() > usize::from(u16::MAX) {
            let message = format!("the data of this {} is too long", type_name());
            return Err((message, entry::data_word(text, None)));
        }
        // This check also covers data in the generic form of RFC 3597.
        rdata::check(rtype, &self.data).map_err(|fault| {
            entry::accepted_fault(text).unwrap_or_else(|| {
                let message = format!("the data is not valid for type {}: {fault}", type_name());
                (message, entry::data_word(text, fault.word()))
            })
        })
    }

    fn finish(mut self) -> Result<Loaded, Broken> {
        let report = &mut self.report;
        // The records of one $GENERATE have the same place.
        let mut duplicates = BTreeMap::new();
        let zone = self
            .builder
            .map(|builder| builder.finish(|place| *duplicates.entry(place).or_insert(0_u64) += 1));
        for (place, count) in duplicates {
            let message = match count {
                1 => "duplicate record: dropped".to_owned(),
                count => format!("{count} duplicate records: dropped"),
            };
            report.warning(place, message);
        }
        match &zone {
            // After an error, some records are missing. The zone is not checked, because the check
            // would report misleading problems.
            _ if report.errors() > 0 => {}
            Some(zone) => check::check(zone, report),
            None => report.error(Place::of_line(0, 0), "the file has no records"),
        }
        report.sort();
        match zone {
            Some(zone) if self.report.errors() == 0 => Ok(Loaded {
                zone,
                report: self.report,
                files: self.files,
            }),
            _ => Err(Broken {
                apex: match self.apex {
                    // A file of any zone may begin with `$ORIGIN .`, so the root is not a useful
                    // guess.
                    Apex::Guessed(Some(apex)) if apex == name::ROOT => None,
                    apex => apex.into_name(),
                },
                report: self.report,
                files: self.files.into_iter().map(ReadFile::into_path).collect(),
            }),
        }
    }
}

impl Apex {
    fn into_name(self) -> Option<Vec<u8>> {
        match self {
            Self::Known(name) => Some(name),
            Self::Guessed(name) => name,
        }
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "load_include_tests.rs"]
mod include_tests;

#[cfg(test)]
#[path = "load_place_tests.rs"]
mod place_tests;

#[cfg(test)]
#[path = "load_generate_tests.rs"]
mod generate_tests;
