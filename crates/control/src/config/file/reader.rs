//! Reads the sections of a configuration file into settings.

use std::ops::Range;

use clap::Command;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::known_keys::KnownKeys;
use super::settings::{Setting, Settings, Word};
use super::words::{check, place_in, word};
use crate::config::keys::{Key, SECTIONS, Section, is_of_another};
use crate::config::position::{Position, TextLines};
use crate::config::problem::{Problems, nearest};

/// A key in the file, with its place.
type Name<'t> = Spanned<DeString<'t>>;

/// What a file is read for.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Purpose<'c> {
    pub(in crate::config) command: &'c Command,
    /// Identifiers of the options on the command line.
    pub(in crate::config) given: &'c [String],
    /// Whether `[[web]]` may stand there several times.
    pub(in crate::config) has_sites: bool,
    /// Maximum number of errors that are named. Further ones are only counted.
    pub(in crate::config) max_problems: usize,
}

/// Reads the tables of a file.
pub(super) struct Reader<'t, 'c> {
    text: &'t str,
    lines: TextLines<'t>,
    purpose: Purpose<'c>,
    command: Command,
    keys: KnownKeys<'c>,
    settings: Settings,
    headers: Vec<(&'static str, Position)>,
    problems: Problems,
}

/// What a reader has found in a file.
pub(super) struct Found {
    /// The settings of all first tables.
    pub(super) settings: Vec<Setting>,
    /// The settings of each further table.
    pub(super) more: Vec<Vec<Setting>>,
    /// The name of each section, and the place of its header.
    pub(super) headers: Vec<(&'static str, Position)>,
    /// Where the file ends.
    pub(super) end: Position,
    /// Everything that is wrong.
    pub(super) problems: Problems,
}

impl<'t, 'c> Reader<'t, 'c> {
    /// Prepares reading a file with this text. `problems` has what is wrong with its form.
    pub(super) fn new(text: &'t str, purpose: Purpose<'c>, problems: Problems) -> Self {
        Self {
            text,
            lines: TextLines::new(text),
            command: purpose.command.clone().args_override_self(true),
            keys: KnownKeys::of(purpose.command),
            purpose,
            settings: Settings::new(),
            headers: Vec::new(),
            problems,
        }
    }

    /// Reads all sections. The keys and sections `twice` stand in the file a second time, at these places.
    pub(super) fn read(mut self, file: &DeTable<'_>, twice: &[(Range<usize>, &str)]) -> Found {
        let mut sections: Vec<_> = file.iter().collect();
        // What is lost by an unknown section depends on the known ones.
        sections.sort_by_key(|(name, _)| Section::named(name.get_ref()).is_none());
        for (name, value) in sections {
            self.section(name, value);
        }
        self.missing_sections(file, self.text.len());
        for (span, name) in twice {
            self.lose_twice(span, name);
        }
        let required = self.keys.all().filter(|key| self.is_required(key));
        let required: Vec<_> = required.collect();
        self.settings.stand_in(&required);
        let (settings, more) = self.settings.into_tables();
        Found {
            settings,
            more,
            headers: self.headers,
            end: self.lines.position(self.text.len()),
            problems: self.problems,
        }
    }

    fn fail(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.problems.add(span, message);
    }

    /// Notes in the settings at index `to` that nothing is known of the values of these keys.
    fn lose(&mut self, span: &Range<usize>, to: usize, keys: impl Fn(&Key<'_>) -> bool) {
        let position = self.lines.position(span.start);
        let keys = self.keys.all().filter(|key| keys(key));
        self.settings.lose(to, position, keys);
    }

    /// Same as [`lose`](Self::lose) for the first tables, but not for keys that they have themselves.
    fn lose_unset(&mut self, span: &Range<usize>, keys: impl Fn(&Key<'_>) -> bool) {
        let position = self.lines.position(span.start);
        let lost = self.keys.all().filter(|key| keys(key));
        let lost: Vec<_> = lost.filter(|key| !self.settings.first_have(key)).collect();
        self.settings.lose(0, position, lost.into_iter());
    }

    /// Reports a section that is written in another way, and whose keys are lost.
    fn wrong_form(&mut self, section: Section, span: Range<usize>, to: usize) {
        self.lose(&span, to, |key| key.section == section);
        self.fail(span, section.right_form());
    }

    /// Notes that a key or all keys of a section have other values elsewhere in the file.
    fn lose_twice(&mut self, span: &Range<usize>, name: &str) {
        for to in self.settings.tables() {
            self.lose(span, to, |key| {
                key.name() == name || key.section.name == name
            });
        }
    }

    fn section(&mut self, name: &Name<'_>, value: &Spanned<DeValue<'_>>) {
        let Some(section) = Section::named(name.get_ref()) else {
            return self.unknown_section(name, value.get_ref());
        };
        if !self.keys.has(section) {
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
                    let to = if is_further {
                        self.settings.begin_table()
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
        let message = match self.keys.nearest(word) {
            Some(key) if key == word || !is_section(value) => {
                self.lose_unset(&span, |one| one.name() == key);
                if key == word {
                    self.keys.belongs(word)
                } else {
                    let sections = self.keys.sections_of(&key);
                    format!("{shown} stands before all sections; did you mean {key} of {sections}?")
                }
            }
            _ => {
                let near = nearest(word, SECTIONS.map(|section| section.name));
                let near = SECTIONS.iter().find(|section| Some(section.name) == near);
                let hint = near.map_or_else(
                    || format!("sections are {}", self.keys.headers().join(", ")),
                    |near| format!("did you mean {}?", near.header()),
                );
                self.lose_unset(&span, |key| Some(&key.section) == near);
                format!("there is no section {shown}; {hint}")
            }
        };
        self.fail(span, message);
    }

    /// Whether the command requires a key, and the command line does not have it.
    fn is_required(&self, key: &Key<'_>) -> bool {
        let is_given = self.purpose.given.iter().any(|id| key.arg.get_id() == id);
        key.arg.is_required_set() && !is_given
    }

    /// Returns the required keys of a section.
    fn required(&self, section: Section) -> Vec<Key<'c>> {
        let keys = self.keys.all().filter(|key| key.section == section);
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
        let keys = self.keys.within(section);
        for (name, value) in table {
            let word = name.get_ref().as_ref();
            let Some(key) = keys.iter().find(|key| key.name() == word) else {
                if !is_of_another(section, word) {
                    self.unknown_key((section, table), name, to);
                }
                continue;
            };
            let (words, is_right) = self.words(key, value);
            let setting = Setting {
                section,
                is_own: key.section != section,
                id: key.arg.get_id().to_string(),
                words,
                position: self.lines.position(name.span().start),
                is_wrong: !is_right,
            };
            self.settings.add(to, setting);
        }
    }

    /// Reports a key that the section does not have. It stands in a table that has set some keys of the section.
    fn unknown_key(
        &mut self,
        (section, table): (Section, &DeTable<'_>),
        name: &Name<'_>,
        to: usize,
    ) {
        let (word, span) = (name.get_ref().as_ref(), name.span());
        let (header, shown) = (section.header(), word.escape_debug());
        let here: Vec<_> = self.keys.within(section).iter().map(Key::name).collect();
        let unset = here
            .iter()
            .filter(|name| !table.contains_key(name.as_str()));
        let near = nearest(word, unset.map(String::as_str));
        let message = match (self.keys.nearest(word), near) {
            (Some(key), _) if key == word => {
                self.lose(&span, to, |one| one.name() == key);
                self.keys.belongs(word)
            }
            (_, Some(near)) => {
                self.lose(&span, to, |key| key.is_in(section) && key.name() == near);
                format!("{header} has no key {shown}; did you mean {near}?")
            }
            (Some(key), None) if here.contains(&key) => {
                format!("{header} has no key {shown}; {key} is set already, so leave {shown} out")
            }
            (Some(key), None) => {
                self.lose(&span, to, |one| one.name() == key);
                let sections = self.keys.sections_of(&key);
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

/// Returns true if a value is a table or an array of tables.
fn is_section(value: &DeValue<'_>) -> bool {
    let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
    match value {
        DeValue::Array(list) => list.iter().any(|one| is_table(one.get_ref())),
        value => is_table(value),
    }
}
