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
    sites: Vec<SiteKeys>,
    /// The header of each section in the file, and its place.
    headers: Vec<(&'static str, Position)>,
    /// Where the file ends.
    end: Position,
    /// Whether the file has mistakes, and the command checks the rest of it.
    is_wrong: bool,
}

/// What the file says for a site: its own keys, and those of all sites.
#[derive(Debug, Default)]
struct SiteKeys {
    /// Each key that the file has.
    places: Vec<KeyPlace>,
    /// The values of each option.
    values: HashMap<String, Values>,
    /// The options whose values are wrong.
    wrong: HashSet<String>,
}

/// An option that comes from the file.
#[derive(Debug)]
struct KeyPlace {
    /// `--OPTION`, as on the command line.
    option: String,
    key: String,
    position: Position,
}

/// Where the values of an option stand in the file.
#[derive(Debug, Default)]
struct Values {
    /// In their order.
    positions: Vec<Position>,
    /// The index of each value. The first one counts.
    index: HashMap<String, usize>,
}

/// Keeps the origins of this process's options, those of each site. Returns the messages that were kept
/// before.
pub(super) fn remember<'o>(
    sites: impl Iterator<Item = &'o Origins>,
    is_wrong: bool,
) -> Option<Arc<Read>> {
    let sites: Vec<_> = sites.collect();
    let file = &sites[0].file;
    let read = (!file.path.as_os_str().is_empty()).then(|| Read {
        file: file.path.clone(),
        version: file.version,
        sites: sites.iter().map(|origins| SiteKeys::of(origins)).collect(),
        headers: file.headers.clone(),
        end: file.end,
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

impl SiteKeys {
    fn of(origins: &Origins) -> Self {
        let keys = keys(&origins.command);
        let mut this = Self::default();
        let settings = origins.file.settings.iter();
        for setting in settings.filter(|setting| !origins.is_given(&setting.id)) {
            if setting.is_wrong {
                this.wrong.insert(setting.id.clone());
            }
            if setting.is_lost() {
                continue;
            }
            let key = keys.iter().find(|key| key.arg.get_id() == &*setting.id);
            if let Some((key, long)) = key.and_then(|key| Some((key, key.arg.get_long()?))) {
                this.places.push(KeyPlace {
                    option: format!("--{long}"),
                    key: key.name(),
                    position: setting.position,
                });
            }
            let values = this.values.entry(setting.id.clone()).or_default();
            for word in &setting.words {
                let value = value_of(&word.text).to_owned();
                values.index.entry(value).or_insert(values.positions.len());
                values.positions.push(word.position);
            }
        }
        this
    }
}

/// Returns the value in a word of a command line: that of an option, or else the word.
fn value_of(word: &str) -> &str {
    let of_option = word.split_once('=').filter(|_| word.starts_with("--"));
    of_option.map_or(word, |(_, value)| value)
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
    let keys = read.as_ref().and_then(|read| read.sites.get(site));
    keys.is_some_and(|keys| keys.wrong.contains(option))
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

/// Returns the place in this process's configuration file where an option has this value, such as
/// `storm.toml:4:8`. The option is named by its identifier. The first such place counts.
pub fn place_of(option: &str, value: &str) -> Option<String> {
    place_from(0, option, value)
}

/// Returns what stands in front of a message about this value of an option: its place and a colon. It is empty
/// if the value is not from the configuration file.
pub fn before(option: &str, value: &str) -> String {
    in_front(place_of(option, value))
}

/// Returns what stands in front of a message about this place, if there is one.
fn in_front(place: Option<String>) -> String {
    place.map_or(String::new(), |place| format!("{place}: "))
}

/// Same as [`place_of`], for a value of the site with this number, from 0, or else of a later one.
pub fn place_from(site: usize, option: &str, value: &str) -> Option<String> {
    let read = kept()?;
    let mut sites = read.sites.iter().skip(site);
    let position = sites.find_map(|keys| {
        let values = keys.values.get(option)?;
        values.positions.get(*values.index.get(value)?)
    });
    position.map(|position| read.place(*position))
}

/// Same as [`place_of`], for the value with this index, from 0, of the site with this number.
pub fn place_of_nth(site: usize, option: &str, index: usize) -> Option<String> {
    let read = kept()?;
    let values = read.sites.get(site)?.values.get(option)?;
    Some(read.place(*values.positions.get(index)?))
}

/// Same as [`before`], for the value with this index, from 0. The option is one of all sites.
pub fn before_nth(option: &str, index: usize) -> String {
    in_front(place_of_nth(0, option, index))
}

/// Same as [`before`], for what is missing in this section of the configuration file. The place is that of the
/// section, or the end of the file.
pub fn before_section(section: &str) -> String {
    in_front(kept().map(|read| {
        let mut headers = read.headers.iter();
        let header = headers.find(|(name, _)| *name == section);
        read.place(header.map_or(read.end, |(_, position)| *position))
    }))
}

/// Names the key and its place instead of each option that comes from the file. The message is that
/// of a check that runs after parsing, and knows only options. It is about all sites.
pub fn with_places(message: &str) -> String {
    match kept() {
        Some(read) => name_options(message, |option| read.key_of(&read.sites, option)),
        None => message.to_owned(),
    }
}

/// Same as [`with_places`], for a message about the site with this number, from 0.
pub fn with_places_of(site: usize, message: &str) -> String {
    let read = kept();
    let keys = read
        .as_ref()
        .and_then(|read| Some((read, read.sites.get(site)?)));
    match keys {
        Some((read, keys)) => {
            let keys = std::slice::from_ref(keys);
            name_options(message, |option| read.key_of(keys, option))
        }
        None => message.to_owned(),
    }
}

impl Read {
    fn place(&self, position: Position) -> String {
        let file = self.file.display().to_string();
        format!("{}:{position}", file.escape_debug())
    }

    /// Returns the key of an option with its places in these sites, such as `port (storm.toml:3:1)`.
    fn key_of(&self, sites: &[SiteKeys], option: &str) -> Option<String> {
        let places = sites.iter().flat_map(|keys| &keys.places);
        let mut places = places.filter(|place| place.option == option);
        let first = places.next()?;
        let mut positions = vec![first.position];
        for KeyPlace { position, .. } in places {
            if !positions.contains(position) {
                positions.push(*position);
            }
        }
        let places: Vec<_> = positions.into_iter().map(|one| self.place(one)).collect();
        Some(format!("{} ({})", first.key, places.join(", ")))
    }
}

/// Replaces the options in a message that have another name.
fn name_options(message: &str, named: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        let is_part = |c: char| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit();
        let end = option.find(|c| !is_part(c)).unwrap_or(option.len());
        let (option, after) = option.split_at(end);
        text += before;
        text += &named(option).unwrap_or_else(|| option.to_owned());
        rest = after;
    }
    text + rest
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
        let named = |option: &str| match option {
            "--port" => Some("port (f:2)".to_owned()),
            "--dns-port" => Some("port (f:5)".to_owned()),
            _ => None,
        };
        assert_eq!(
            name_options(
                "web (--port) and dns (--dns-port): give --port, not --ports",
                named
            ),
            "web (port (f:2)) and dns (port (f:5)): give port (f:2), not --ports"
        );
        assert_eq!(name_options("a -- b --port", named), "a -- b port (f:2)");
    }
}
