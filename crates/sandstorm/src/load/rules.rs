//! Reads the rules of a folder, and its files with users.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use super::error::LoadError;
use super::loader::{Loader, name_of};
use super::names::{HEADERS, REDIRECTS, is_hidden};
use super::progress::Progress;
use crate::login::{RealmFile, RealmPath, RealmText, Users};
use crate::root::{RealPath, file_type};
use crate::rules::{LineError, parse_headers, parse_redirects};
use crate::skipped::{Reason, unreadable};
use crate::tag_key::TagKey;

/// Why a file with users or a key is refused.
const IN_FOLDER: &str = "is in the served folder; move it out, because it has secrets";
/// Maximum length of these files in bytes.
const MAX_RULES_LEN: u64 = 1 << 20;

/// Returns the file to which a path leads, if it is a symbolic link.
fn target_of(path: &Path) -> Option<PathBuf> {
    let is_link = path.symlink_metadata().is_ok_and(|one| one.is_symlink());
    let target = || path.canonicalize().or_else(|_| path.read_link()).ok();
    is_link.then(target).flatten()
}

/// Reads the file with the key of entity tags.
fn read_tag_key(file: &Path) -> Result<TagKey, LoadError> {
    TagKey::load(file).map_err(|error| wrong_tag_key(file, error.to_string()))
}

/// Reads a file with users.
fn read_users(file: &Path) -> Result<Users, LoadError> {
    Users::load(file).map_err(|error| wrong_users(file, error.to_string()))
}

fn wrong_tag_key(file: &Path, reason: String) -> LoadError {
    LoadError::TagKey {
        path: file.to_owned(),
        target: target_of(file),
        reason,
    }
}

fn wrong_users(file: &Path, reason: String) -> LoadError {
    LoadError::Users {
        path: file.to_owned(),
        target: target_of(file),
        reason,
    }
}

/// Returns an error for each text about a path that needs no password.
fn texts_without_realm(
    realms: &[RealmFile],
    texts: &[RealmText],
) -> impl Iterator<Item = LoadError> {
    let is_unknown = |text: &&RealmText| !realms.iter().any(|realm| realm.path == text.path);
    let unknown = texts.iter().filter(is_unknown);
    unknown.map(|text| LoadError::NoRealm {
        path: text.path.to_string(),
    })
}

/// Checks the files with users and with the key of entity tags, whatever the folder is. Returns all errors.
pub(crate) fn check_secret_files(
    tag_key: Option<&Path>,
    realms: &[RealmFile],
    texts: &[RealmText],
) -> Vec<LoadError> {
    let key = tag_key.and_then(|file| read_tag_key(file).err());
    let users = realms.iter();
    let users = users.filter_map(|realm| read_users(&realm.file).err());
    let texts = texts_without_realm(realms, texts);
    key.into_iter().chain(users).chain(texts).collect()
}

impl<P: FnMut(Progress<'_>)> Loader<'_, P> {
    /// Reads the file with the key of entity tags.
    pub(super) fn load_tag_key(&mut self) -> Result<(), LoadError> {
        let Some(file) = &self.settings.tag_key else {
            return Ok(());
        };
        let key = read_tag_key(file)?;
        if self.would_serve(file) {
            return Err(wrong_tag_key(file, IN_FOLDER.to_owned()));
        }
        self.add_secret(file);
        self.site.set_tag_key(key);
        Ok(())
    }

    /// Notes a file that must not be in the folder.
    fn add_secret(&mut self, file: &Path) {
        if let Ok(metadata) = file.metadata() {
            let id = (metadata.dev(), metadata.ino());
            self.secrets.push((id, file.to_owned()));
        }
    }

    /// Reads the files with users.
    pub(super) fn load_users(&mut self) -> Result<(), LoadError> {
        for RealmFile { path, file } in &self.settings.realms {
            let users = read_users(file)?;
            if self.would_serve(file) {
                return Err(wrong_users(file, IN_FOLDER.to_owned()));
            }
            self.add_secret(file);
            let users = self
                .known_users(path, &users)
                .unwrap_or_else(|| Arc::new(users));
            self.site.add_realm(path.clone(), users);
        }
        texts_without_realm(&self.settings.realms, &self.settings.realm_texts)
            .next()
            .map_or(Ok(()), Err)
    }

    /// Returns the users who may see the part at a path now, if they equal `users`. Workers know them by their
    /// place in memory, and remember their logins.
    fn known_users(&self, path: &RealmPath, users: &Users) -> Option<Arc<Users>> {
        let mut realms = self.previous?.realms().iter();
        let realm = realms.find(|realm| realm.is_at(path) && **realm.users() == *users);
        realm.map(|realm| Arc::clone(realm.users()))
    }

    /// Notes that a file with this status is in the folder at `path`.
    pub(super) fn note_secret(&mut self, path: &Path, stat: &Stat) {
        let id = (stat.st_dev, stat.st_ino);
        let found = self.secrets.iter().find(|(secret, _)| *secret == id);
        if let Some((_, secret)) = found {
            let exposed = || (secret.clone(), path.to_owned());
            self.exposed.get_or_insert_with(exposed);
        }
    }

    /// Refuses a folder with a file of users or a key, to which a link may lead.
    pub(super) fn check_secrets(&self) -> Result<(), LoadError> {
        self.exposed.as_ref().map_or(Ok(()), |(secret, path)| {
            let entry = self.folder.join(path);
            let reason = format!("is {} too, which {IN_FOLDER}", entry.display());
            let is_key = self.settings.tag_key.as_ref() == Some(secret);
            let wrong = if is_key { wrong_tag_key } else { wrong_users };
            Err(wrong(secret, reason))
        })
    }

    /// Returns true if a file is in the folder and not hidden.
    fn would_serve(&self, file: &Path) -> bool {
        let real = (file.canonicalize(), self.folder.canonicalize());
        let (Ok(file), Ok(folder)) = real else {
            return false;
        };
        let is_shown = |part: &OsStr| self.settings.hidden || !is_hidden(part.as_bytes());
        file.strip_prefix(folder)
            .is_ok_and(|below| below.iter().all(is_shown))
    }

    /// Reads the rules of the folder.
    pub(super) fn load_rules(&mut self) -> Result<(), LoadError> {
        // A check leaves out a file that cannot be read, and tries again. It must report no line twice.
        let (redirects, headers) = (self.rules_text(REDIRECTS)?, self.rules_text(HEADERS)?);
        let (redirects, wrong) = parse_redirects(&redirects);
        self.report_lines(REDIRECTS, wrong);
        let (headers, wrong) = parse_headers(&headers);
        self.report_lines(HEADERS, wrong);
        let headers = headers.into_iter().collect();
        self.site.add_rules(redirects, headers);
        Ok(())
    }

    /// Returns the text of a file with rules, or an empty text if there is none. A file that cannot be
    /// read is an error, because its rules may protect other files.
    fn rules_text(&mut self, name: &str) -> Result<String, LoadError> {
        let failed = |reason| LoadError::Rules {
            path: self.folder.join(name),
            reason,
        };
        if self.without.contains(&self.folder.join(name)) {
            return Ok(String::new());
        }
        let mut real = self.root.join(name);
        let stat_of = |real: &RealPath| real.stat().map_err(|error| failed(unreadable(error)));
        let mut stat = match real.stat() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            _ => stat_of(&real)?,
        };
        if file_type(&stat) == FileType::Symlink {
            real = real.follow(self.outer.as_ref()).map_err(failed)?;
            if let Some(target) = real.outside() {
                self.site.note_outside(&target);
            }
            stat = stat_of(&real)?;
        }
        let kind = file_type(&stat);
        if kind != FileType::RegularFile {
            let kind = name_of(kind);
            return Err(failed(Reason::NoFile { kind }));
        }
        let file = real.file().map_err(|error| failed(unreadable(error)))?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_RULES_LEN + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(Reason::Unreadable(error)))?;
        if bytes.len() as u64 > MAX_RULES_LEN {
            return Err(failed(Reason::RulesTooLong {
                limit: MAX_RULES_LEN,
            }));
        }
        String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let before = String::from_utf8_lossy(before);
            let last = before.rsplit('\n').next().unwrap_or_default();
            failed(Reason::NotUtf8 {
                line: 1 + before.matches('\n').count(),
                column: 1 + last.chars().count(),
            })
        })
    }

    fn report_lines(&mut self, name: &str, wrong: Vec<LineError>) {
        let mut last = None;
        for LineError { line, column, why } in wrong {
            let reason = Reason::Rule { line, column, why };
            if last.replace(line) == Some(line) {
                self.report(name.as_ref(), reason);
            } else {
                self.skip(name.as_ref(), reason);
            }
        }
    }
}
