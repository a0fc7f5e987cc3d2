//! Reads a configuration file into options.

use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use nmio::WrongWords;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::example::is_text;
use super::keys::{Key, SECTIONS, Section, is_of_another, keys};
use super::position::{Position, TextLines};
use super::problem::{Problems, nearest};
use super::value::toml_value;
use crate::file_version::FileVersion;
use crate::ordinary_file::open_ordinary;

/// A key in the file, with its place.
type Name<'t> = Spanned<DeString<'t>>;

/// Maximum size of a configuration file in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The options of a file that concern one command.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) path: PathBuf,
    /// The file's version before it was read, if it could be found out.
    pub(super) version: Option<FileVersion>,
    pub(super) settings: Vec<Setting>,
    /// The settings of each further `[[web]]`.
    pub(super) more: Vec<Vec<Setting>>,
    /// The name of each section in the file, and the place of its header.
    pub(super) headers: Vec<(&'static str, Position)>,
    /// Where the file ends.
    pub(super) end: Position,
}

impl File {
    /// Returns a file without what the first site has for itself, if there is something.
    pub(super) fn for_all_sites(&self) -> Option<Self> {
        let all = self.settings.iter().filter(|one| !one.is_own);
        let settings: Vec<_> = all.cloned().collect();
        (settings.len() < self.settings.len()).then(|| Self {
            path: self.path.clone(),
            version: self.version,
            settings,
            ..Self::default()
        })
    }

    /// Returns a file for each further table: with this table in the place of the first one, and the
    /// same settings in all other sections.
    pub(super) fn with_further_tables(&mut self) -> Vec<Self> {
        let tables = std::mem::take(&mut self.more);
        let file = |table: Vec<Setting>| {
            let others = self.settings.iter().filter(|one| !one.section.is_site);
            Self {
                path: self.path.clone(),
                version: self.version,
                settings: with_own(others.cloned().chain(table).collect()),
                ..Self::default()
            }
        };
        let further = tables.into_iter().map(file).collect();
        self.settings = with_own(std::mem::take(&mut self.settings));
        further
    }
}

/// Leaves out the settings for all sites that the site has for itself.
fn with_own(mut settings: Vec<Setting>) -> Vec<Setting> {
    let own = settings.iter().filter(|one| one.is_own);
    let own: Vec<_> = own.map(|one| one.id.clone()).collect();
    settings.retain(|one| one.is_own || !own.contains(&one.id));
    settings
}

/// A key that the file sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The section of the key.
    pub(super) section: Section,
    /// Whether it is the key of another section that a site has for itself.
    pub(super) is_own: bool,
    /// The option's identifier in the command.
    pub(super) id: String,
    /// The option as words of a command line, one for each value.
    pub(super) words: Vec<Word>,
    /// Where the key stands, or where it is missing.
    pub(super) position: Position,
    /// Whether the value is not what the author of the file means. A part of it is wrong, or all of it, or the
    /// key itself.
    pub(super) is_wrong: bool,
}

impl Setting {
    /// Whether nothing is known of the value.
    pub(super) fn is_lost(&self) -> bool {
        self.is_wrong && self.words.is_empty()
    }
}

/// A value of a key, as a word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Where the value stands.
    pub(super) position: Position,
}

/// What a file is read for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose<'c> {
    pub(super) command: &'c Command,
    /// Identifiers of the options on the command line.
    pub(super) given: &'c [String],
    /// Whether `[[web]]` may stand there several times.
    pub(super) has_sites: bool,
    /// Maximum number of errors that are named. Further ones are only counted.
    pub(super) max_problems: usize,
}

/// Reads a file for a command. What belongs to other programs is skipped, so that programs can share a file.
///
/// Returns what is right in the file, and a message for the operator with a line for each error.
///
/// # Errors
/// A message for the operator, if the file cannot be read or is not valid TOML.
pub(super) fn read(path: &Path, purpose: Purpose<'_>) -> Result<(File, Option<String>), String> {
    let version = FileVersion::at(path).ok();
    let text = text_of(path)?;
    let told = |problems: Problems| problems.told(path, &text);
    let (file, problems) = parse(&text, purpose).map_err(told)?;
    let file = File {
        path: path.to_owned(),
        version,
        ..file
    };
    Ok((file, (!problems.is_empty()).then(|| told(problems))))
}

/// Returns the text of a file, or a message for the operator.
fn text_of(path: &Path) -> Result<String, String> {
    let name = path.display().to_string();
    let name = name.escape_debug();
    let unreadable = |error: io::Error| format!("cannot read {name}: {error}{}", remedy(&error));
    let mut bytes = Vec::new();
    let file = open_ordinary(path).map_err(unreadable)?;
    let mut file = file.take(MAX_BYTES + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let most = MAX_BYTES >> 20;
        return Err(format!("{name} has more than {most} MiB; shorten it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes());
        let position = TextLines::new(&text).position(error.utf8_error().valid_up_to());
        format!("{name}:{position}: this character is not UTF-8; save the file as UTF-8")
    })
}

/// Returns what helps against an error of reading the file, behind the error.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; let this user read it",
        // Something that is not a file is of the kind `Other`.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::Other => {
            "; --config takes the path of a TOML file"
        }
        _ => "",
    }
}

/// Returns what a file's text says, without its path, and everything that is wrong with it.
///
/// # Errors
/// Everything that is wrong with its form, if it is not valid TOML. A key that stands there twice does not count:
/// the rest of the file is known.
fn parse(text: &str, purpose: Purpose<'_>) -> Result<(File, Problems), Problems> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems = Problems::new(purpose.max_problems);
    let mut twice = Vec::new();
    for error in &errors {
        let span = error.span().unwrap_or_default();
        if error.message() == "duplicate key" {
            let name = text.get(span.clone()).unwrap_or_default();
            let name = name.trim_matches(['"', '\'']);
            problems.add(span.clone(), format!("{name} stands here twice"));
            twice.push((span, name));
        } else {
            problems.add(span, error.message());
        }
    }
    if twice.len() < errors.len() {
        return Err(problems);
    }
    let mut reader = Reader {
        text,
        lines: TextLines::new(text),
        command: purpose.command.clone().args_override_self(true),
        keys: keys(purpose.command),
        purpose,
        settings: vec![Vec::new()],
        headers: Vec::new(),
        problems,
    };
    let mut sections: Vec<_> = table.get_ref().iter().collect();
    // What is lost by an unknown section depends on the known ones.
    sections.sort_by_key(|(name, _)| Section::named(name.get_ref()).is_none());
    for (name, value) in sections {
        reader.section(name, value);
    }
    reader.missing_sections(table.get_ref(), text.len());
    for (span, name) in &twice {
        reader.lose_twice(span, name);
    }
    reader.stand_in();
    let file = File {
        settings: reader.settings.remove(0),
        more: reader.settings,
        headers: reader.headers,
        end: reader.lines.position(text.len()),
        ..File::default()
    };
    Ok((file, reader.problems))
}

struct Reader<'t, 'c> {
    text: &'t str,
    lines: TextLines<'t>,
    purpose: Purpose<'c>,
    command: Command,
    keys: Vec<Key<'c>>,
    /// The settings of all first tables, and then those of each further one.
    settings: Vec<Vec<Setting>>,
    headers: Vec<(&'static str, Position)>,
    problems: Problems,
}

impl<'c> Reader<'_, 'c> {
    fn fail(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.problems.add(span, message);
    }

    /// Notes in the settings at index `to` that nothing is known of the values of these keys.
    fn lose(&mut self, span: &Range<usize>, to: usize, keys: impl Fn(&Key<'_>) -> bool) {
        let position = self.lines.position(span.start);
        let keys = self.keys.iter().filter(|key| keys(key));
        self.settings[to].extend(keys.map(|key| Setting {
            section: key.section,
            is_own: false,
            id: key.arg.get_id().to_string(),
            words: Vec::new(),
            position,
            is_wrong: true,
        }));
    }

    /// Same as [`lose`](Self::lose) for the first tables, but not for keys that they have themselves.
    fn lose_unset(&mut self, span: &Range<usize>, keys: impl Fn(&Key<'_>) -> bool) {
        let set = self.settings[0].iter().filter(|one| !one.is_own);
        let set: Vec<_> = set.map(|one| one.id.clone()).collect();
        let is_set = |key: &Key<'_>| set.iter().any(|id| key.arg.get_id() == &**id);
        self.lose(span, 0, |key| keys(key) && !is_set(key));
    }

    /// Reports a section that is written in another way, and whose keys are lost.
    fn wrong_form(&mut self, section: Section, span: Range<usize>, to: usize) {
        self.lose(&span, to, |key| key.section == section);
        self.fail(span, section.right_form());
    }

    /// Notes that a key or all keys of a section have other values elsewhere in the file.
    fn lose_twice(&mut self, span: &Range<usize>, name: &str) {
        for to in 0..self.settings.len() {
            self.lose(span, to, |key| {
                key.name() == name || key.section.name == name
            });
        }
    }

    /// Lets the header of their section stand in for required values that are lost, so that the rest of the
    /// file can be checked.
    fn stand_in(&mut self) {
        let required: Vec<_> = self
            .keys
            .iter()
            .filter(|key| self.is_required(key))
            .collect();
        for settings in &mut self.settings {
            for key in &required {
                let is_of_key = |one: &&mut Setting| key.arg.get_id() == &*one.id;
                let mut lost = None;
                for setting in settings.iter_mut().filter(is_of_key) {
                    if !setting.is_lost() {
                        lost = None;
                        break;
                    }
                    lost.get_or_insert(setting);
                }
                if let Some(setting) = lost {
                    let word = Word {
                        text: key.words(&key.section.header()),
                        position: setting.position,
                    };
                    setting.words.push(word);
                }
            }
        }
    }

    fn section(&mut self, name: &Name<'_>, value: &Spanned<DeValue<'_>>) {
        let Some(section) = Section::named(name.get_ref()) else {
            return self.unknown_section(name, value.get_ref());
        };
        if !self.keys.iter().any(|key| key.section == section) {
            // The section belongs to another program.
            return;
        }
        let spans = match value.get_ref() {
            DeValue::Array(tables) => tables.iter().map(Spanned::span).collect(),
            _ => vec![name.span()],
        };
        for span in spans {
            let position = self.lines.position(span.start);
            self.headers.push((section.name, position));
        }
        match (value.get_ref(), section.is_list) {
            (DeValue::Table(table), false) => self.table(section, table, value.span(), 0),
            (DeValue::Array(tables), true) => {
                for (n, table) in tables.iter().enumerate() {
                    let span = table.span();
                    let is_further = n > 0 && section.is_site && self.purpose.has_sites;
                    if is_further {
                        self.settings.push(Vec::new());
                    }
                    let to = if is_further {
                        self.settings.len() - 1
                    } else {
                        0
                    };
                    let is_read = n == 0 || is_further;
                    match table.get_ref() {
                        DeValue::Table(table) if is_read => self.table(section, table, span, to),
                        DeValue::Table(_) => self.fail(
                            span,
                            format!(
                                "only one {0} is possible in one server; start another server for \
                                 the other {0}",
                                section.header()
                            ),
                        ),
                        _ if is_read => self.wrong_form(section, span, to),
                        _ => self.fail(span, section.right_form()),
                    }
                }
            }
            _ => self.wrong_form(section, name.span(), 0),
        }
    }

    fn unknown_section(&mut self, name: &Name<'_>, value: &DeValue<'_>) {
        let (word, span) = (name.get_ref().as_ref(), name.span());
        let shown = word.escape_debug();
        let message = match self.nearest_key(word) {
            Some(key) if key == word || !is_section(value) => {
                self.lose_unset(&span, |one| one.name() == key);
                if key == word {
                    self.belongs(word)
                } else {
                    let sections = self.sections_of(&key);
                    format!("{shown} stands before all sections; did you mean {key} of {sections}?")
                }
            }
            _ => {
                let near = nearest(word, SECTIONS.map(|section| section.name));
                let near = SECTIONS.iter().find(|section| Some(section.name) == near);
                let hint = near.map_or_else(
                    || format!("sections are {}", self.headers().join(", ")),
                    |near| format!("did you mean {}?", near.header()),
                );
                self.lose_unset(&span, |key| Some(&key.section) == near);
                format!("there is no section {shown}; {hint}")
            }
        };
        self.fail(span, message);
    }

    /// Returns the key of any section that is most similar to `word`, if one is similar at all.
    fn nearest_key(&self, word: &str) -> Option<String> {
        let names: Vec<_> = self.keys.iter().map(Key::name).collect();
        nearest(word, names.iter().map(String::as_str)).map(str::to_owned)
    }

    /// Names the sections that have this key, such as `[[web]] or [[dns]]`.
    fn sections_of(&self, name: &str) -> String {
        let keys = self.keys.iter().filter(|key| key.name() == name);
        let headers: Vec<_> = keys.map(|key| key.section.header()).collect();
        headers.join(" or ")
    }

    /// Says which sections a key belongs to that stands elsewhere.
    fn belongs(&self, name: &str) -> String {
        format!("{name} belongs to the section {}", self.sections_of(name))
    }

    /// The headers of the sections that have keys.
    fn headers(&self) -> Vec<String> {
        let has_keys = |section: &Section| self.keys.iter().any(|key| key.section == *section);
        let sections = SECTIONS.into_iter().filter(has_keys);
        sections.map(|section| section.header()).collect()
    }

    /// Whether the command requires a key, and the command line does not have it.
    fn is_required(&self, key: &Key<'_>) -> bool {
        let is_given = self.purpose.given.iter().any(|id| key.arg.get_id() == id);
        key.arg.is_required_set() && !is_given
    }

    /// Returns the required keys of a section.
    fn required(&self, section: Section) -> Vec<Key<'c>> {
        let keys = self.keys.iter().filter(|key| key.section == section);
        keys.filter(|key| self.is_required(key)).copied().collect()
    }

    /// Reports required keys whose sections are not in the file, which ends at `end`.
    fn missing_sections(&mut self, file: &DeTable<'_>, end: usize) {
        for section in SECTIONS {
            let is_there = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
                DeValue::Array(tables) => !tables.is_empty(),
                _ => true,
            };
            if file.get(section.name).is_some_and(is_there) {
                continue;
            }
            for key in self.required(section) {
                let (header, name) = (section.header(), key.name());
                self.lose(&(end..end), 0, |key| key.section == section);
                self.fail(
                    end..end,
                    format!("there is no {header} with the key {name}"),
                );
            }
        }
    }

    /// Reads a table, which has this place, into the settings at index `to`.
    fn table(&mut self, section: Section, table: &DeTable<'_>, span: Range<usize>, to: usize) {
        for key in self.required(section) {
            let name = key.name();
            if !table.contains_key(name.as_str()) {
                self.lose(&span, to, |one| one.arg.get_id() == key.arg.get_id());
                let message = format!("{} has no key {name}, which it needs", section.header());
                self.fail(span.clone(), message);
            }
        }
        let of_section = |key: &&Key<'_>| key.is_in(section);
        let keys: Vec<_> = self.keys.iter().filter(of_section).copied().collect();
        for (name, value) in table {
            let word = name.get_ref().as_ref();
            let Some(key) = keys.iter().find(|key| key.name() == word) else {
                if !is_of_another(section, word) {
                    self.unknown_key(section, name, to);
                }
                continue;
            };
            let (words, is_right) = self.words(key, value);
            self.settings[to].push(Setting {
                section,
                is_own: key.section != section,
                id: key.arg.get_id().to_string(),
                words,
                position: self.lines.position(name.span().start),
                is_wrong: !is_right,
            });
        }
    }

    fn unknown_key(&mut self, section: Section, name: &Name<'_>, to: usize) {
        let (word, span) = (name.get_ref().as_ref(), name.span());
        let (header, shown) = (section.header(), word.escape_debug());
        let elsewhere = self.nearest_key(word);
        let here = self.keys.iter().filter(|key| key.is_in(section));
        let here: Vec<_> = here.map(Key::name).collect();
        let near = nearest(word, here.iter().map(String::as_str));
        let message = match (elsewhere, near) {
            (Some(key), _) if key == word => {
                self.lose(&span, to, |one| one.name() == key);
                self.belongs(word)
            }
            (_, Some(near)) => {
                self.lose(&span, to, |key| key.is_in(section) && key.name() == near);
                format!("{header} has no key {shown}; did you mean {near}?")
            }
            (Some(key), None) => {
                self.lose(&span, to, |one| one.name() == key);
                let sections = self.sections_of(&key);
                format!("{header} has no key {shown}; did you mean {key} of {sections}?")
            }
            (None, None) => format!("{header} has no key {shown}"),
        };
        self.fail(span, message);
    }

    /// Returns the words of a key's value that the option's own check accepts, and whether these are all.
    fn words(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> (Vec<Word>, bool) {
        let name = key.name();
        let values: Vec<_> = match value.get_ref() {
            DeValue::Array(list) if key.is_list() => list.iter().collect(),
            DeValue::Array(_) if !key.is_flag() => {
                let message = format!("{name} takes one value, not a list");
                self.fail(value.span(), message);
                return (Vec::new(), false);
            }
            _ => vec![value],
        };
        let (mut words, mut origins) = (Vec::new(), Vec::new());
        for value in &values {
            let position = self.lines.position(value.span().start);
            match word(key, value) {
                Ok(text) => {
                    words.push(Word { text, position });
                    origins.push(*value);
                }
                Err(message) => self.fail(value.span(), message),
            }
        }
        if check(&self.command, &words).is_err() {
            // A list may have very many elements, so only a wrong one is checked element by element.
            let mut origins = origins.into_iter();
            words.retain(|word| {
                let checked = check(&self.command, std::slice::from_ref(word));
                let wrong = checked.err().unwrap_or_default();
                let Some(value) = origins.next().filter(|_| !wrong.is_empty()) else {
                    return true;
                };
                for (at, reason) in wrong {
                    let start = at.and_then(|at| place_in(self.text, value, at));
                    let span = start.map_or(value.span(), |start| start..start);
                    self.fail(span, format!("{name} is wrong: {reason}"));
                }
                false
            });
        }
        let is_right = words.len() == values.len();
        (words, is_right)
    }
}

/// Returns one value of a key as a word of a command line, or what is wrong with it.
fn word(key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    let name = key.name();
    let is_text = is_text(key);
    let text = match value.get_ref() {
        DeValue::Boolean(is_set) if key.is_flag() => is_set.to_string(),
        _ if key.is_flag() => return Err(format!("{name} must be true or false")),
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 && !is_text => {
            number.as_str().replace('_', "")
        }
        DeValue::Float(number) if !is_text => number.as_str().to_owned(),
        _ => {
            let values = key.arg.get_possible_values();
            let values: Vec<_> = values
                .iter()
                .map(|value| toml_value(value.get_name()))
                .collect();
            let number = if is_text { "" } else { " or a decimal number" };
            return Err(if values.is_empty() {
                format!("{name} must be a text in quotes{number}")
            } else {
                format!("{name} must be one of {}", values.join(", "))
            });
        }
    };
    if text.contains('\0') {
        return Err(format!("{name} must not contain a NUL character"));
    }
    Ok(key.words(&text))
}

/// Returns where the byte at `at` of a value stands in the `file`. Returns `None` if the file does not have the
/// same text between the quotes, for example because of escapes.
fn place_in(file: &str, value: &Spanned<DeValue<'_>>, at: usize) -> Option<usize> {
    let DeValue::String(text) = value.get_ref() else {
        return None;
    };
    let span = value.span();
    let quoted = file.get(span.clone())?;
    // A line end that follows three quotes is not part of the text.
    let long = ["'''", "\"\"\""]
        .iter()
        .find_map(|quotes| quoted.strip_prefix(quotes));
    let inner = match long {
        Some(inner) => inner
            .strip_prefix("\r\n")
            .or(inner.strip_prefix('\n'))
            .unwrap_or(inner),
        None => quoted.get(1..)?,
    };
    inner
        .starts_with(&**text)
        .then_some(span.end - inner.len() + at)
}

/// Lets the command check one option. Other errors, such as a missing option, do not count.
///
/// # Errors
/// What is wrong with the value, or with each of its words. A word has its offset in the value.
fn check(command: &Command, words: &[Word]) -> Result<(), Vec<(Option<usize>, String)>> {
    let words = words.iter().map(|word| word.text.as_str());
    let line = std::iter::once(command.get_name()).chain(words);
    let Err(error) = command.clone().try_get_matches_from(line) else {
        return Ok(());
    };
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let reason = match error.kind() {
        ErrorKind::InvalidValue => {
            let (value, all) = (
                text(ContextKind::InvalidValue),
                text(ContextKind::ValidValue),
            );
            if all.is_empty() {
                "it must not be empty".to_owned()
            } else {
                match nearest(&value, all.split(", ")) {
                    Some(near) => format!("there is no value {value:?}; did you mean {near:?}?"),
                    None => format!("there is no value {value:?}; values are {all}"),
                }
            }
        }
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(&error);
            if let Some(wrong) =
                source.and_then(|source| source.downcast_ref::<WrongWords<String>>())
            {
                return Err(wrong
                    .iter()
                    .map(|(at, why)| (Some(at), why.clone()))
                    .collect());
            }
            source.map(ToString::to_string).unwrap_or_default()
        }
        _ => return Ok(()),
    };
    Err(vec![(None, reason)])
}

/// Returns true if a value is a table or an array of tables.
fn is_section(value: &DeValue<'_>) -> bool {
    let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
    match value {
        DeValue::Array(list) => list.iter().any(|one| is_table(one.get_ref())),
        value => is_table(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_a_text_is_found_behind_the_quotes() {
        for (value, expected) in [
            ("'ab'", Some(1)),
            ("''", Some(1)),
            ("\"\"\"ab\"\"\"", Some(3)),
            ("'''\nab'''", Some(4)),
            ("'''\r\nab'''", Some(5)),
            ("\"\\\"\"", None),
            ("7", None),
        ] {
            let file = format!("a = {value}");
            let table = DeTable::parse(&file).unwrap();
            let found = place_in(&file, &table.get_ref()["a"], 0);
            assert_eq!(found, expected.map(|at: usize| at + 4), "{value}");
        }
    }

    #[test]
    fn the_remedy_for_an_unreadable_file_fits_the_error() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), &folder.path().join("none")] {
            let error = text_of(path).unwrap_err();
            assert!(error.ends_with("; --config takes the path of a TOML file"));
        }
        let denied = remedy(&io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied, "; let this user read it");
    }
}
