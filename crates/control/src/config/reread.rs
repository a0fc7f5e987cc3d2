//! Reads the configuration file of a running server again, and tells what has changed.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::FromArgMatches;

use super::keys::{Key, keys};
use super::merge::{Parsed, Wrong};
use super::origin::{self, Origins, before, changed_file, with_places};
use crate::error::StartError;

/// The options that a running server takes over when their keys in the file have changed. All other
/// changes need a restart.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    /// Identifiers of these options.
    pub options: &'a [&'a str],
    /// Identifiers of options such as the port. A site is the same in both versions of the file if all
    /// options of a list are. The first list that fits counts.
    pub same_site: &'a [&'a [&'a str]],
}

/// Reads the configuration file of a running server again.
#[derive(Debug)]
pub struct Rereading<'a, T> {
    parsed: &'a Parsed<T>,
    applied: Applied<'a>,
    /// What needs a restart since the file was read last, for the operator.
    restart: Mutex<Option<String>>,
}

/// What the command line says with a changed file.
#[derive(Debug)]
pub struct Reread<'a, T> {
    parsed: &'a Parsed<T>,
    /// For each site, the number that it had at the start, if the server can take it over.
    before: Vec<Option<usize>>,
}

impl<T> Reread<'_, T> {
    /// Same as [`Parsed::shared`].
    pub fn shared(&self) -> &T {
        self.parsed.shared()
    }

    /// Returns what the command line says for each site.
    pub fn sites(&self) -> impl Iterator<Item = &T> {
        self.parsed.sites().map(|site| &site.cli)
    }

    /// Returns the number that each site had at the start, from 0. It is `None` if the site is new, or
    /// if it needs a restart.
    pub fn numbers_before(&self) -> &[Option<usize>] {
        &self.before
    }
}

impl<'a, T: FromArgMatches> Rereading<'a, T> {
    /// Prepares reading the file of `parsed` again. The server takes over what `applied` names.
    pub fn new(parsed: &'a Parsed<T>, applied: Applied<'a>) -> Self {
        Self {
            parsed,
            applied,
            restart: Mutex::default(),
        }
    }

    /// Reads the file if it has changed since it was read last, and passes what it says to `apply`.
    /// Returns what needs a restart, for the operator.
    ///
    /// # Errors
    /// If the file has mistakes, or if `apply` fails. The file then counts as not read.
    pub(crate) fn read(
        &self,
        apply: impl FnOnce(&Reread<'_, T>) -> Result<Vec<String>, StartError>,
    ) -> Result<Option<String>, StartError> {
        let mut restart = self.restart.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = changed_file() else {
            return Ok(restart.clone());
        };
        if is_forbidden(&file) {
            let why = "but the server may not read it; restart the server to use it";
            return Ok(Some(format!("{} has changed, {why}", file.display())));
        }
        let parsed = match self.parsed.line.parse() {
            Ok((parsed, None)) => parsed,
            Ok((_, Some(mistakes))) | Err(Wrong::File(mistakes)) => {
                return Err(mistakes.replace('\n', "; ").into());
            }
            Err(Wrong::CommandLine(error)) => return Err(first_line(&error).into()),
        };
        let (before, mut changes) = self.compare(&parsed);
        let kept = origin::remember(parsed.sites().map(|site| &site.origins), false);
        let applied = if changed_file().is_some() {
            Err("changed while it was read; reload again when it is complete".into())
        } else {
            apply(&Reread {
                parsed: &parsed,
                before,
            })
        };
        match applied {
            Ok(others) => changes.extend(others),
            Err(error) => {
                let message = with_places(&error.to_string());
                origin::keep(kept);
                return Err(message.into());
            }
        }
        *restart = (!changes.is_empty()).then(|| {
            let changes = changes.join(", ");
            format!("restart the server to use what else has changed: {changes}")
        });
        Ok(restart.clone())
    }

    /// Returns the number at the start of each site that the server can take over, and all changes that
    /// need a restart.
    fn compare(&self, new: &Parsed<T>) -> (Vec<Option<usize>>, Vec<String>) {
        let of_all = (self.parsed.shared_origins(), new.shared_origins());
        let mut changes = changed_keys(of_all, |key| key.section.is_site || self.is_applied(key));
        let olds: Vec<_> = self.parsed.sites().map(|site| &site.origins).collect();
        let news: Vec<_> = new.sites().map(|site| &site.origins).collect();
        let before = self.numbers_before(&olds, &news);
        let mut others = (0..olds.len()).filter(|number| !before.contains(&Some(*number)));
        for (new, before) in news.iter().zip(&before) {
            let other = || others.next();
            let Some(old) = before.or_else(other).map(|number| olds[number]) else {
                changes.push(format!("a new {}{}", new.site(), new.place_of_site()));
                continue;
            };
            changes.extend(changed_keys((old, new), |key| {
                let is_here = key.section.is_site || old.is_of_site(key) || new.is_of_site(key);
                !is_here || before.is_some() && self.is_applied(key)
            }));
        }
        changes.extend(others.map(|number| format!("a removed {}", olds[number].site())));
        (before, changes)
    }

    /// Returns the number that each new site had among the old ones, if there is the same site.
    fn numbers_before(&self, olds: &[&Origins], news: &[&Origins]) -> Vec<Option<usize>> {
        let mut before = vec![None; news.len()];
        for list in self.applied.same_site {
            for (at, new) in news.iter().enumerate() {
                let is_same = |old: usize| {
                    let mut ids = list.iter();
                    !before.contains(&Some(old))
                        && ids.all(|id| olds[old].texts(id) == new.texts(id))
                };
                if before[at].is_none() {
                    before[at] = (0..olds.len()).find(|old| is_same(*old));
                }
            }
        }
        before
    }

    fn is_applied(&self, key: &Key<'_>) -> bool {
        self.applied.options.contains(&key.arg.get_id().as_str())
    }
}

/// Returns the keys whose values differ, with their places, except those that `leave_out` accepts.
fn changed_keys(
    (old, new): (&Origins, &Origins),
    leave_out: impl Fn(&Key<'_>) -> bool,
) -> Vec<String> {
    let keys = keys(&new.command);
    let others = keys.iter().filter(|key| !leave_out(key));
    let changed = others.filter(|key| {
        let id = key.arg.get_id().as_str();
        old.texts(id) != new.texts(id)
    });
    changed.map(|key| new.named(key)).collect()
}

fn is_required_of_site(key: &Key<'_>) -> bool {
    key.section.is_site && key.arg.is_required_set()
}

/// Returns true if the system refuses to let this thread read the file.
fn is_forbidden(file: &Path) -> bool {
    open(file).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Opens a file or a folder for reading. Never waits for the writer of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Returns the message of an error without its usage.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Checks that this thread may read content at a path, which an option with this value names.
///
/// # Errors
/// If the system forbids it. Other errors do not count.
pub fn check_allowed(path: &Path, value: &str) -> Result<(), StartError> {
    match open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(format!(
            "{}the server may not read {}: since its start it reads only as its user, and only below the \
             folders of its content then; restart it",
            before(value),
            path.display()
        )
        .into()),
        _ => Ok(()),
    }
}

/// Returns the folders in which a new version of the configuration file may appear: that of the file and
/// that of a link to it.
pub(crate) fn folders() -> Vec<PathBuf> {
    let Some(file) = origin::file() else {
        return Vec::new();
    };
    let above = |path: &Path| {
        let folder = Path::new(".").join(path.parent()?).canonicalize().ok()?;
        // The root folder is too much.
        Some(if folder.parent().is_some() {
            folder
        } else {
            path.to_owned()
        })
    };
    let real = file.canonicalize().ok();
    let real = real.as_deref().and_then(above);
    above(&file).into_iter().chain(real).collect()
}

impl Origins {
    /// Returns the values of an option as texts. Equal values have equal texts, however they are written.
    fn texts(&self, id: &str) -> Vec<String> {
        let matches = &self.matches;
        if let Some(texts) = numbers::<u8>(matches, id)
            .or_else(|| numbers::<u16>(matches, id))
            .or_else(|| numbers::<u32>(matches, id))
            .or_else(|| numbers::<u64>(matches, id))
            .or_else(|| numbers::<bool>(matches, id))
        {
            return texts;
        }
        let values = matches.try_get_raw(id).ok().flatten();
        let values = values.into_iter().flatten();
        values
            .map(|value| value.to_string_lossy().into_owned())
            .collect()
    }

    /// Names a key and its place in the file.
    fn named(&self, key: &Key<'_>) -> String {
        let (name, id) = (key.name(), key.arg.get_id().as_str());
        let settings = self.file.settings.iter();
        match settings.rev().find(|setting| setting.id == id) {
            Some(setting) => format!("{name} ({}:{})", self.file_name(), setting.position),
            None => format!("{name} (no longer in {})", self.file_name()),
        }
    }

    /// Names the site by the value of its required key.
    fn site(&self) -> String {
        let keys = keys(&self.command);
        let required = keys.iter().find(|key| is_required_of_site(key));
        required.map_or_else(String::new, |key| {
            let values = self.texts(key.arg.get_id().as_str());
            format!("{} for {}", key.section.header(), values.join(", "))
        })
    }

    /// Returns the place of this key in the file.
    fn place_of_site(&self) -> String {
        let keys = keys(&self.command);
        let required = keys.iter().find(|key| is_required_of_site(key));
        required.map_or_else(String::new, |key| format!(", {}", self.named(key)))
    }

    fn file_name(&self) -> String {
        let file = self.file.path.display().to_string();
        file.escape_debug().to_string()
    }
}

/// Returns the values of an option as texts, if they have this type.
fn numbers<N: ToString + Clone + Send + Sync + 'static>(
    matches: &clap::ArgMatches,
    id: &str,
) -> Option<Vec<String>> {
    let values = matches.try_get_many::<N>(id).ok()??;
    Some(values.map(ToString::to_string).collect())
}
