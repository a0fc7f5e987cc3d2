//! Stores the coded forms that have been made.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::codecs::encode;
use super::effort::Effort;
use super::folder::Folder;
use super::form::{Form, Key};
use crate::coding::Coding;

/// Maximum number of forms in memory that are known not to be worth it. They need about 20 MB. If
/// there are more, the store forgets them all, and they are tried once more.
const MAX_NOT_WORTH_IT: usize = 1 << 18;

/// The result of encoding a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// The coded form.
    Coded(Arc<[u8]>),
    /// The coded form would be hardly shorter than the content.
    NotWorthIt,
}

/// The coded forms that have been made, in a folder or in memory. All methods may be called by
/// several threads at once.
///
/// The folder outlives the server, and several servers can share it. Its size has no limit, and no
/// file is ever too old. An operator may remove any of its files at any time, also while servers run.
/// A form whose file is missing is made again when it is needed. For example,
/// `find FOLDER -type f -mtime +90 -delete` removes the forms that are older than 90 days.
///
/// Memory holds the forms that are not in the folder: all forms if there is no folder, and those
/// made after an error while writing.
#[derive(Debug)]
pub(crate) struct Store {
    folder: Option<Folder>,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    coded: HashMap<Form, Arc<[u8]>>,
    not_worth_it: HashSet<Form>,
}

impl Store {
    /// Opens a store. Without a folder, the store keeps everything in memory.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub(crate) fn open(folder: Option<PathBuf>) -> io::Result<Self> {
        Ok(Self {
            folder: folder.map(Folder::open).transpose()?,
            memory: Mutex::default(),
        })
    }

    /// Returns what [`make`](Self::make) has returned for this content, coding and effort. Looks in
    /// memory first, then in the folder. A file that cannot be a form of the content is removed.
    pub(crate) fn get(&self, key: Key, coding: Coding, effort: Effort) -> Option<Made> {
        let form = Form {
            key,
            coding,
            effort,
        };
        if let Some(made) = self.memory().get(&form) {
            return Some(made);
        }
        let coded = self.folder.as_ref()?.read(form)?;
        Some(if coded.is_empty() {
            Made::NotWorthIt
        } else {
            Made::Coded(coded.into())
        })
    }

    /// Encodes `content`, stores the result, and returns it. `key` must be the key of `content`.
    ///
    /// This encodes even if the result is already stored, so callers try [`get`](Self::get) first.
    pub(crate) fn make(&self, key: Key, coding: Coding, effort: Effort, content: &[u8]) -> Made {
        debug_assert_eq!(key, Key::of(content));
        let form = Form {
            key,
            coding,
            effort,
        };
        let coded = encode(coding, effort, content);
        let is_in_folder = |bytes: &[u8]| {
            let folder = self.folder.as_ref();
            folder.is_some_and(|folder| folder.write(form, bytes))
        };
        if let Some(coded) = coded {
            let coded: Arc<[u8]> = coded.into();
            if !is_in_folder(&coded) {
                self.memory().coded.insert(form, coded.clone());
            }
            Made::Coded(coded)
        } else {
            if !is_in_folder(&[]) {
                self.memory().note_not_worth_it(form);
            }
            Made::NotWorthIt
        }
    }

    /// Frees the coded forms of this content that are in memory, once the caller has used them.
    /// Results without bytes stay.
    pub(crate) fn forget_memory(&self, key: Key) {
        let mut memory = self.memory();
        for coding in Coding::ALL {
            for effort in Effort::ALL {
                memory.coded.remove(&Form {
                    key,
                    coding,
                    effort,
                });
            }
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Each change is a single call, so another thread's panic leaves nothing half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn get(&self, form: &Form) -> Option<Made> {
        if self.not_worth_it.contains(form) {
            return Some(Made::NotWorthIt);
        }
        self.coded.get(form).cloned().map(Made::Coded)
    }

    fn note_not_worth_it(&mut self, form: Form) {
        if self.not_worth_it.len() >= MAX_NOT_WORTH_IT {
            self.not_worth_it.clear();
        }
        self.not_worth_it.insert(form);
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
