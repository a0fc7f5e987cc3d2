//! Where the values of options come from: the defaults, a file, or the command line.
//!
//! The process keeps what comes from its file, for messages after parsing.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use clap::{ArgMatches, Command};

use super::file::File;
use super::keys::keys;
use super::position::Position;
use crate::file_version::FileVersion;

/// The options of the subcommand that was given, and where their values come from.
#[derive(Debug)]
pub(super) struct Origins {
    pub(super) command: Command,
    pub(super) matches: ArgMatches,
    pub(super) file: File,
    /// Identifiers of the options on the command line.
    pub(super) given: Vec<String>,
}

impl Origins {
    /// Whether the command line has the option.
    pub(super) fn is_given(&self, id: &str) -> bool {
        self.given.iter().any(|given| given == id)
    }
}

/// What messages say of the file that this process has read last.
static READ: RwLock<Option<Arc<Read>>> = RwLock::new(None);

#[derive(Debug, Default)]
pub(super) struct Read {
    file: PathBuf,
    /// The version that was read, if it could be found out.
    version: Option<FileVersion>,
    places: Places,
    /// For each site, the position of each value. The first one counts.
    values: Vec<HashMap<String, Position>>,
    /// For each site, the options whose values in the file are wrong.
    wrong: Vec<HashSet<String>>,
    /// Whether the file has mistakes, and the command checks the rest of it.
    is_wrong: bool,
}

/// The options that come from a file: `--OPTION`, and the key with its places.
#[derive(Debug, Default)]
struct Places(Vec<(String, String)>);

/// Keeps the origins of this process's options, those of each site. Returns the messages that were kept
/// before.
pub(super) fn remember<'o>(
    sites: impl Iterator<Item = &'o Origins>,
    is_wrong: bool,
) -> Option<Arc<Read>> {
    let sites: Vec<_> = sites.collect();
    let file = &sites[0].file.path;
    let read = (!file.as_os_str().is_empty()).then(|| Read {
        file: file.clone(),
        version: sites[0].file.version,
        places: places(&sites),
        values: sites.iter().map(|origins| values(origins)).collect(),
        wrong: sites.iter().map(|origins| wrong(origins)).collect(),
        is_wrong,
    });
    keep(read.map(Arc::new))
}

/// Keeps what [`remember`] has returned. Returns what was kept before.
pub(super) fn keep(read: Option<Arc<Read>>) -> Option<Arc<Read>> {
    let mut kept = READ.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *kept, read)
}

/// Returns what this process has read last.
fn kept() -> Option<Arc<Read>> {
    READ.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the position of each value. The first one counts.
fn values(origins: &Origins) -> HashMap<String, Position> {
    let mut values = HashMap::new();
    let settings = origins.file.settings.iter();
    let settings = settings.filter(|setting| !origins.is_given(&setting.id));
    for word in settings.flat_map(|setting| &setting.words) {
        let value = value_of(&word.text).to_owned();
        values.entry(value).or_insert(word.position);
    }
    values
}

/// Returns the options that come from the file and are wrong there.
fn wrong(origins: &Origins) -> HashSet<String> {
    let settings = origins.file.settings.iter();
    let wrong = settings.filter(|setting| setting.is_wrong && !origins.is_given(&setting.id));
    wrong.map(|setting| setting.id.clone()).collect()
}

/// Returns the value in a word of a command line: that of an option, or else the word.
fn value_of(word: &str) -> &str {
    let of_option = word.split_once('=').filter(|_| word.starts_with("--"));
    of_option.map_or(word, |(_, value)| value)
}

/// Returns the options that come from the file. A key that several sites have has several places.
fn places(sites: &[&Origins]) -> Places {
    let mut places: Vec<(String, String, Vec<Position>)> = Vec::new();
    for origins in sites {
        let keys = keys(&origins.command);
        for setting in &origins.file.settings {
            let key = keys.iter().find(|key| key.arg.get_id() == &*setting.id);
            let Some((key, long)) = key.and_then(|key| Some((key, key.arg.get_long()?))) else {
                continue;
            };
            if origins.is_given(&setting.id) || setting.is_lost() {
                continue;
            }
            let option = format!("--{long}");
            match places.iter_mut().find(|(known, ..)| *known == option) {
                Some((.., positions)) if positions.contains(&setting.position) => {}
                Some((.., positions)) => positions.push(setting.position),
                None => places.push((option, key.name(), vec![setting.position])),
            }
        }
    }
    let file = sites[0].file.path.display().to_string();
    let file = file.escape_debug();
    let place = |(option, key, positions): (_, String, Vec<Position>)| {
        let places = positions
            .iter()
            .map(|position| format!("{file}:{position}"));
        let places: Vec<_> = places.collect();
        (option, format!("{key} ({})", places.join(", ")))
    };
    Places(places.into_iter().map(place).collect())
}

/// Returns true if the configuration file of this process has mistakes, which have been told. A command
/// `check` then checks the rest of the file, and fails.
pub fn file_is_wrong() -> bool {
    kept().is_some_and(|read| read.is_wrong)
}

/// Returns true if the configuration file has a wrong value of this option for the site with this number, from
/// 0. The option may then have another value than its author means, such as the default. What a check
/// concludes from that value could be untrue. A required option that the file lacks is wrong, too.
pub fn is_wrong(site: usize, option: &str) -> bool {
    let read = kept().filter(|read| read.is_wrong);
    let wrong = read.as_ref().and_then(|read| read.wrong.get(site));
    wrong.is_some_and(|wrong| wrong.contains(option))
}

/// Returns the configuration file of this process, if it has one.
pub(crate) fn file() -> Option<PathBuf> {
    Some(kept()?.file.clone())
}

/// What has become of the configuration file of this process since it was read.
#[derive(Debug)]
pub(crate) enum FileNow {
    /// It is the same, or there is none.
    Same,
    /// It was written, or another one has taken its place.
    Changed(PathBuf),
    /// There is nothing at its path, for this reason.
    Gone(PathBuf, io::Error),
    /// This thread may not look at it, so nobody knows.
    Hidden(PathBuf),
}

/// Looks for the configuration file of this process.
pub(crate) fn file_now() -> FileNow {
    match kept() {
        Some(read) => (read.version).map_or(FileNow::Same, |version| now(&read.file, version)),
        None => FileNow::Same,
    }
}

/// Returns what has become of a file that had this version. It has changed if it is another one, or if its
/// length or the time of its last change differs.
fn now(file: &Path, version: FileVersion) -> FileNow {
    let content = |of: FileVersion| (of.file, of.len, of.modified);
    let path = file.to_owned();
    match FileVersion::at(file) {
        Ok(now) if content(now) == content(version) => FileNow::Same,
        Ok(_) => FileNow::Changed(path),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => FileNow::Hidden(path),
        Err(error) => FileNow::Gone(path, error),
    }
}

/// Returns the place in this process's configuration file where a key has this value, such as
/// `storm.toml:4:8`. The first such place counts.
pub fn place_of(value: &str) -> Option<String> {
    place_from(0, value)
}

/// Returns what stands in front of a message about this value: its place and a colon. It is empty if the
/// value is not from the configuration file.
pub fn before(value: &str) -> String {
    place_of(value).map_or(String::new(), |place| format!("{place}: "))
}

/// Same as [`place_of`], for a value of the site with this number, from 0, or else of a later one.
pub fn place_from(site: usize, value: &str) -> Option<String> {
    let read = kept()?;
    let mut sites = read.values.iter().skip(site);
    let position = sites.find_map(|values| values.get(value))?;
    Some(format!("{}:{position}", read.file.display()))
}

/// Names the key and its place instead of each option that comes from the file. The message is that
/// of a check that runs after parsing, and knows only options.
pub fn with_places(message: &str) -> String {
    match kept() {
        Some(read) => read.places.name_in(message),
        None => message.to_owned(),
    }
}

impl Places {
    /// Replaces the options in a message.
    pub(super) fn name_in(&self, message: &str) -> String {
        let mut text = String::with_capacity(message.len());
        let mut rest = message;
        while let Some(at) = rest.find("--") {
            let (before, option) = rest.split_at(at);
            let is_part = |c: char| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit();
            let end = option.find(|c| !is_part(c)).unwrap_or(option.len());
            let (option, after) = option.split_at(end);
            let found = self.0.iter().find(|(name, _)| name == option);
            text += before;
            text += found.map_or(option, |(_, place)| place);
            rest = after;
        }
        text + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_an_option_follows_its_first_equals_sign() {
        for (word, value) in [
            ("--zone=a=b", "a=b"),
            ("a=b", "a=b"),
            ("www", "www"),
            ("--strict", "--strict"),
        ] {
            assert_eq!(value_of(word), value);
        }
    }

    #[test]
    fn a_file_has_changed_if_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("storm.toml");
        std::fs::write(&file, "[control]\n").unwrap();
        let version = FileVersion::at(&file).unwrap();
        assert!(matches!(now(&file, version), FileNow::Same));
        let copy = folder.path().join("copy");
        std::fs::hard_link(&file, &copy).unwrap();
        let is_same = matches!(now(&file, version), FileNow::Same);
        assert!(is_same, "only the metadata has changed");
        std::fs::write(&file, "[control]\nwatch = true\n").unwrap();
        assert!(matches!(now(&file, version), FileNow::Changed(_)));
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("nowhere", &file).unwrap();
        assert!(matches!(now(&file, version), FileNow::Gone(..)));
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(matches!(now(&file, version), FileNow::Gone(..)));
    }

    #[test]
    fn only_options_of_the_file_are_named_by_their_places() {
        let place = |option: &str, key: &str| (option.to_owned(), key.to_owned());
        let places = Places(vec![
            place("--port", "port (f:2)"),
            place("--dns-port", "port (f:5)"),
        ]);
        assert_eq!(
            places.name_in("web (--port) and dns (--dns-port): give --port, not --ports"),
            "web (port (f:2)) and dns (port (f:5)): give port (f:2), not --ports"
        );
        assert_eq!(places.name_in("a -- b --port"), "a -- b port (f:2)");
    }
}
