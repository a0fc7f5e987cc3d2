//! The keys that a file sets.

use crate::config::keys::{Key, Section};
use crate::config::position::Position;

/// A key that the file sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Setting {
    /// The section of the key.
    pub(in crate::config) section: Section,
    /// Whether it is the key of another section that a site has for itself.
    pub(in crate::config) is_own: bool,
    /// The option's identifier in the command.
    pub(in crate::config) id: String,
    /// The option as words of a command line, one for each value.
    pub(in crate::config) words: Vec<Word>,
    /// Where the key stands, or where it is missing.
    pub(in crate::config) position: Position,
    /// Whether the value is not what the author of the file means. A part of it is wrong, or all of it, or the
    /// key itself.
    pub(in crate::config) is_wrong: bool,
}

impl Setting {
    /// Whether nothing is known of the value.
    pub(in crate::config) fn is_lost(&self) -> bool {
        self.is_wrong && self.words.is_empty()
    }
}

/// A value of a key, as a word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Word {
    pub(in crate::config) text: String,
    /// Where the value stands.
    pub(in crate::config) position: Position,
}

/// The settings of all first tables, and then those of each further one.
#[derive(Debug)]
pub(super) struct Settings(Vec<Vec<Setting>>);

impl Settings {
    /// Begins with the first tables, which have no setting yet.
    pub(super) fn new() -> Self {
        Self(vec![Vec::new()])
    }

    /// Begins a further table. Returns its index.
    pub(super) fn begin_table(&mut self) -> usize {
        self.0.push(Vec::new());
        self.0.len() - 1
    }

    /// Returns the indices of all tables.
    pub(super) fn tables(&self) -> std::ops::Range<usize> {
        0..self.0.len()
    }

    /// Adds a setting of the table at index `to`.
    pub(super) fn add(&mut self, to: usize, setting: Setting) {
        self.0[to].push(setting);
    }

    /// Notes in the table at index `to` that nothing is known of the values of these keys, because of what stands
    /// at `position`.
    pub(super) fn lose<'k, 'c: 'k>(
        &mut self,
        to: usize,
        position: Position,
        keys: impl Iterator<Item = &'k Key<'c>>,
    ) {
        self.0[to].extend(keys.map(|key| Setting {
            section: key.section,
            is_own: false,
            id: key.arg.get_id().to_string(),
            words: Vec::new(),
            position,
            is_wrong: true,
        }));
    }

    /// Returns true if one of the first tables has set the key of its own section.
    pub(super) fn first_have(&self, key: &Key<'_>) -> bool {
        let mut set = self.0[0].iter().filter(|one| !one.is_own);
        set.any(|one| key.arg.get_id() == &*one.id)
    }

    /// Lets the header of their section stand in for values of these keys that are lost. The rest of the file can
    /// then be checked.
    pub(super) fn stand_in(&mut self, required: &[&Key<'_>]) {
        for settings in &mut self.0 {
            for key in required {
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

    /// Returns the settings of all first tables, and those of each further one.
    pub(super) fn into_tables(mut self) -> (Vec<Setting>, Vec<Vec<Setting>>) {
        let first = self.0.remove(0);
        (first, self.0)
    }
}
