//! The keys of a command, and how messages name them.

use clap::Command;

use crate::config::keys::{Key, SECTIONS, Section, keys};
use crate::config::problem::nearest;

/// The keys that a command's file may have.
#[derive(Debug)]
pub(super) struct KnownKeys<'c>(Vec<Key<'c>>);

impl<'c> KnownKeys<'c> {
    pub(super) fn of(command: &'c Command) -> Self {
        Self(keys(command))
    }

    /// Returns all keys, in the order of the command's options.
    pub(super) fn all(&self) -> impl Iterator<Item = &Key<'c>> {
        self.0.iter()
    }

    /// Returns the keys that may stand in a section.
    pub(super) fn within(&self, section: Section) -> Vec<Key<'c>> {
        let keys = self.all().filter(|key| key.is_in(section));
        keys.copied().collect()
    }

    /// Returns true if the section has keys. Otherwise it belongs to another program.
    pub(super) fn has(&self, section: Section) -> bool {
        self.all().any(|key| key.section == section)
    }

    /// Returns the key of any section that is most similar to `word`, if one is similar at all.
    pub(super) fn nearest(&self, word: &str) -> Option<String> {
        let names: Vec<_> = self.all().map(Key::name).collect();
        nearest(word, names.iter().map(String::as_str)).map(str::to_owned)
    }

    /// Names the sections that have this key, such as `[[web]] or [[dns]]`.
    pub(super) fn sections_of(&self, name: &str) -> String {
        let keys = self.all().filter(|key| key.name() == name);
        let headers: Vec<_> = keys.map(|key| key.section.header()).collect();
        headers.join(" or ")
    }

    /// Says which sections a key belongs to that stands elsewhere.
    pub(super) fn belongs(&self, name: &str) -> String {
        format!("{name} belongs to the section {}", self.sections_of(name))
    }

    /// The headers of the sections that have keys.
    pub(super) fn headers(&self) -> Vec<String> {
        let sections = SECTIONS.into_iter().filter(|section| self.has(*section));
        sections.map(|section| section.header()).collect()
    }
}
