//! Reads a zone's name from the command line, from an `$ORIGIN` before the first record, or from
//! the file's name.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use control::WrongWords;

use crate::master::Entries;
use crate::name;

/// File name suffixes that are not part of the zone's name.
const FILE_SUFFIXES: [&str; 3] = [".zone", ".db", ".txt"];
/// A file name prefix that is not part of the zone's name.
const FILE_PREFIX: &str = "db.";

/// A zone argument on the command line: `[ORIGIN=]FILE`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZoneSpec {
    /// The zone's name in wire format, if given.
    pub origin: Option<Vec<u8>>,
    /// The master file.
    pub file: PathBuf,
    /// The group in which metrics count the zone's replies. `None` counts them under its name.
    pub group: Option<Arc<str>>,
}

/// The path of a zone's file, and the origin that an option gives it.
pub(crate) type ZoneKey<'s> = (&'s [u8], Option<&'s [u8]>);

impl ZoneSpec {
    /// Returns what tells the zones of different files and origins apart: the path and the origin.
    pub(crate) fn key(&self) -> ZoneKey<'_> {
        (self.file.as_os_str().as_bytes(), self.origin.as_deref())
    }
}

impl FromStr for ZoneSpec {
    type Err = WrongWords<String>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Text that starts like a path is a path, even if it contains `=`. The exception is
        // `.=FILE`, where `.` is the root zone.
        let is_path = text.starts_with(['/', '.']);
        let (origin, file) = match text.split_once('=') {
            Some((origin, file)) if !is_path || origin == "." => (Some(origin), file),
            _ => (None, text),
        };
        let mut wrong = WrongWords::default();
        let origin = origin.and_then(|origin| {
            let name = name::parse(origin).ok_or_else(|| {
                format!("'{origin}' is not a domain name; write ORIGIN=FILE, or ./FILE")
            });
            wrong.take(text, origin, name)
        });
        if file.is_empty() {
            wrong.add(text, file, "the file is missing; write ORIGIN=FILE".into());
        }
        wrong.finish(Some(Self {
            origin,
            file: file.into(),
            group: None,
        }))
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

/// Returns the line number and the value of the first `$ORIGIN` that precedes all records and
/// `$INCLUDE`s, if there is one.
pub(super) fn leading_origin(text: &str) -> Option<(u32, Vec<u8>)> {
    for entry in Entries::new(text) {
        let entry = entry.ok()?;
        let mut words = entry.text.split_whitespace();
        let first = words.next()?;
        if first.eq_ignore_ascii_case("$ORIGIN") && !entry.text.starts_with([' ', '\t']) {
            let word = words.next()?;
            let word = word.split(';').next().unwrap_or(word);
            if word == "@" {
                // `$ORIGIN @` does not change the origin.
                continue;
            }
            return Some((entry.line, name::parse(word)?));
        }
        if !first.eq_ignore_ascii_case("$TTL") {
            return None;
        }
    }
    None
}

/// Returns the zone's name derived from a file name such as `example.org`, `example.org.zone` or
/// `db.example.org`.
pub(super) fn origin_of_file(path: &Path) -> Option<Vec<u8>> {
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
