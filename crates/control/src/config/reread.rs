//! Reads the configuration file of a running server again, and tells what has changed.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::FromArgMatches;

use super::keys::{Key, keys};
use super::merge::{Parsed, Wrong};
use super::origin::{self, FileNow, Origins, before, file_now, with_places};
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
    /// Identifiers of options of a site that the command line has no default for, each with the value that
    /// holds without the option.
    pub site_defaults: &'a [(&'a str, &'a str)],
}

/// Reads the configuration file of a running server again.
#[derive(Debug)]
pub struct Rereading<'a, T> {
    parsed: &'a Parsed<T>,
    applied: Applied<'a>,
    running: Mutex<Running>,
}

/// What a running server has of its file.
#[derive(Debug)]
struct Running {
    sites: Vec<RunningSite>,
    /// The number of the next site that is new.
    next_number: usize,
    /// What needs a restart since the file was read last, for the operator.
    restart: Option<String>,
}

/// A site of a running server.
#[derive(Clone, Debug)]
struct RunningSite {
    number: usize,
    /// What the file said when the site became one. Options that need a restart have these values.
    first: Arc<Origins>,
    /// What the file has said last. By this the site is known.
    last: Arc<Origins>,
    /// Whether the file has had the site last. Otherwise it is leaving or staying.
    is_in_file: bool,
}

/// What the command line says with a changed file.
#[derive(Debug)]
pub struct Reread<'a, T> {
    parsed: &'a Parsed<T>,
    numbers: Vec<usize>,
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

    /// Returns the number of each site. At the start they are numbered from 0. A site that is the same as in
    /// the file before keeps its number. A new one has a number that no other site has had.
    pub fn numbers(&self) -> &[usize] {
        &self.numbers
    }
}

/// Why a file that has changed, or may have, cannot be read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The system forbids it.
    Forbidden(PathBuf),
    /// Its folder may not be entered, so nobody knows whether the file has changed.
    Hidden(PathBuf),
    /// There is nothing at its path, for this reason.
    Gone(PathBuf, io::Error),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(file) => {
                let why = "but the server may not read it; restart the server to use it";
                write!(f, "{} has changed, {why}", file.display())
            }
            Self::Hidden(file) => {
                let why = "so it may have changed; restart the server to use it";
                write!(f, "the server may not look at {}, {why}", file.display())
            }
            Self::Gone(file, error) => {
                let (file, remedy) = (file.display(), "put it back and reload again");
                write!(
                    f,
                    "the configuration file {file} is gone: {error}; {remedy}"
                )
            }
        }
    }
}

/// What reading the configuration file again has told.
#[derive(Debug, Default)]
pub(crate) struct FileRead {
    /// Why the file could not be read.
    pub(crate) unread: Option<Unread>,
    /// What else the operator should know.
    pub(crate) note: Option<String>,
}

/// What a server takes over from a changed file.
#[derive(Debug, Default)]
pub struct TakenOver {
    /// The numbers of sites that are begun anew.
    pub added: Vec<usize>,
    /// The numbers of new sites that are served only after a restart.
    pub waiting: Vec<usize>,
    /// The numbers of sites that the file no longer has, but that are served until all others can be loaded.
    pub leaving: Vec<usize>,
    /// The numbers of sites that the file no longer has, but that are served until a restart.
    pub staying: Vec<usize>,
}

impl<'a, T: FromArgMatches> Rereading<'a, T> {
    /// Prepares reading the file of `parsed` again. The server takes over what `applied` names.
    pub fn new(parsed: &'a Parsed<T>, applied: Applied<'a>) -> Self {
        let sites = parsed.sites().enumerate();
        let sites: Vec<_> = sites
            .map(|(number, site)| RunningSite::new(number, &site.origins))
            .collect();
        Self {
            parsed,
            applied,
            running: Mutex::new(Running {
                next_number: sites.len(),
                sites,
                restart: None,
            }),
        }
    }

    /// Reads the file if it has changed since it was read last, and passes what it says to `apply`.
    /// Returns what needs a restart, and why the file could not be read, if it could not.
    ///
    /// # Errors
    /// If the file has mistakes, or if `apply` fails. The file then counts as not read.
    pub(crate) fn read(
        &self,
        apply: impl FnOnce(&Reread<'_, T>) -> Result<TakenOver, StartError>,
    ) -> Result<FileRead, StartError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = match file_now() {
            FileNow::Same => None,
            FileNow::Changed(file) if is_forbidden(&file) => Some(Unread::Forbidden(file)),
            FileNow::Changed(file) => {
                self.take(&mut running, &file, apply)?;
                None
            }
            FileNow::Hidden(file) => Some(Unread::Hidden(file)),
            FileNow::Gone(file, error) => Some(Unread::Gone(file, error)),
        };
        Ok(FileRead {
            unread,
            note: running.restart.clone(),
        })
    }

    /// Reads a changed file, and passes what it says to `apply`.
    fn take(
        &self,
        running: &mut Running,
        file: &Path,
        apply: impl FnOnce(&Reread<'_, T>) -> Result<TakenOver, StartError>,
    ) -> Result<(), StartError> {
        let parsed = match self.parsed.line.parse() {
            Ok((parsed, None)) => parsed,
            Ok((_, Some(mistakes))) | Err(Wrong::File(mistakes) | Wrong::Both(mistakes, _)) => {
                return Err(mistakes.into());
            }
            Err(Wrong::CommandLine(error)) => return Err(first_line(&error).into()),
        };
        let reread = Reread {
            numbers: self.numbers(running, &parsed),
            parsed: &parsed,
        };
        let kept = origin::remember(parsed.sites().map(|site| &*site.origins), false);
        let applied = if let FileNow::Same = file_now() {
            apply(&reread)
        } else {
            let file = file.display();
            Err(
                format!("{file} changed while it was read; reload again when it is complete")
                    .into(),
            )
        };
        match applied {
            Ok(taken) => {
                self.go_on(running, &reread, &taken);
                Ok(())
            }
            Err(error) => {
                let message = with_places(&error.to_string());
                origin::keep(kept);
                Err(message.into())
            }
        }
    }

    /// Notes what the server has taken over, and what needs a restart.
    fn go_on(&self, running: &mut Running, reread: &Reread<'_, T>, taken: &TakenOver) {
        let changes = self.changes(running, reread, taken).join(", ");
        running.restart = (!changes.is_empty())
            .then(|| format!("restart the server to use what else has changed: {changes}"));
        let mut before = std::mem::take(&mut running.sites);
        let news = reread.numbers.iter().zip(reread.parsed.sites());
        for (number, new) in news.filter(|(number, _)| !taken.waiting.contains(number)) {
            let same = before.iter().position(|old| old.number == *number);
            let same = same.map(|at| before.swap_remove(at));
            let same = same.filter(|_| !taken.added.contains(number));
            running.sites.push(match same {
                Some(old) => RunningSite {
                    last: Arc::clone(&new.origins),
                    is_in_file: true,
                    ..old
                },
                None => RunningSite::new(*number, &new.origins),
            });
        }
        // Those that are leaving may be back in the next file.
        let kept = taken.leaving.iter().chain(&taken.staying);
        before.retain(|old| kept.clone().any(|number| *number == old.number));
        running
            .sites
            .extend(before.into_iter().map(|old| RunningSite {
                is_in_file: false,
                ..old
            }));
        let numbers = reread.numbers.iter().map(|number| number + 1);
        running.next_number = numbers.fold(running.next_number, usize::max);
    }

    /// Returns all changes that need a restart, for the operator.
    fn changes(&self, running: &Running, reread: &Reread<'_, T>, taken: &TakenOver) -> Vec<String> {
        let of_all = (self.parsed.shared_origins(), reread.parsed.shared_origins());
        let is_elsewhere = |key: &Key<'_>| key.section.is_site || self.is_applied(key);
        let mut changes = self.changed_keys((of_all.0, of_all.1), is_elsewhere);
        let sites = running.sites.iter();
        let mut staying = sites.filter(|site| taken.staying.contains(&site.number));
        for (number, new) in reread.numbers.iter().zip(reread.parsed.sites()) {
            let is_waiting = taken.waiting.contains(number);
            if taken.added.contains(number) {
                continue;
            }
            let mut sites = running.sites.iter();
            let old = if is_waiting {
                staying.next()
            } else {
                sites.find(|site| site.number == *number)
            };
            let new = &*new.origins;
            let Some(old) = old else {
                if is_waiting {
                    changes.push(format!("a new {}{}", new.site(), new.place_of_site()));
                }
                continue;
            };
            let old = &*old.first;
            changes.extend(self.changed_keys((old, new), |key| {
                let is_here = key.section.is_site || old.is_of_site(key) || new.is_of_site(key);
                !is_here || !is_waiting && self.is_applied(key)
            }));
        }
        changes.extend(staying.map(|old| format!("a removed {}", old.last.site())));
        changes
    }

    /// Returns the number of each site of a changed file. Sites that the file had last come first, because
    /// others may be gone.
    fn numbers(&self, running: &Running, parsed: &Parsed<T>) -> Vec<usize> {
        let news: Vec<_> = parsed.sites().map(|site| &*site.origins).collect();
        let mut numbers = vec![None; news.len()];
        let lists = self.applied.same_site;
        let in_file = lists.iter().map(|list| (true, list));
        for (is_in_file, list) in in_file.chain(lists.iter().map(|list| (false, list))) {
            for (at, new) in news.iter().enumerate() {
                let is_same = |old: &&RunningSite| {
                    let mut ids = list.iter();
                    old.is_in_file == is_in_file
                        && !numbers.contains(&Some(old.number))
                        && ids.all(|id| self.texts(&old.last, id) == self.texts(new, id))
                };
                if numbers[at].is_none() {
                    numbers[at] = running.sites.iter().find(is_same).map(|old| old.number);
                }
            }
        }
        let mut free = running.next_number..;
        let numbers = numbers.into_iter();
        numbers
            .filter_map(|known| known.or_else(|| free.next()))
            .collect()
    }

    /// Returns the keys whose values differ, with their places, except those that `leave_out` accepts.
    fn changed_keys(
        &self,
        (old, new): (&Origins, &Origins),
        leave_out: impl Fn(&Key<'_>) -> bool,
    ) -> Vec<String> {
        let keys = keys(&new.command);
        let others = keys.iter().filter(|key| !leave_out(key));
        let changed = others.filter(|key| {
            let id = key.arg.get_id().as_str();
            self.texts(old, id) != self.texts(new, id)
        });
        changed.map(|key| new.named(key)).collect()
    }

    /// Returns the values of an option as texts, or the value that holds without it.
    fn texts(&self, origins: &Origins, id: &str) -> Vec<String> {
        let texts = origins.texts(id);
        let mut defaults = self.applied.site_defaults.iter();
        match defaults.find(|(known, _)| *known == id) {
            Some((_, default)) if texts.is_empty() => vec![(*default).to_owned()],
            _ => texts,
        }
    }

    fn is_applied(&self, key: &Key<'_>) -> bool {
        self.applied.options.contains(&key.arg.get_id().as_str())
    }
}

impl RunningSite {
    fn new(number: usize, origins: &Arc<Origins>) -> Self {
        Self {
            number,
            first: Arc::clone(origins),
            last: Arc::clone(origins),
            is_in_file: true,
        }
    }
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

/// Checks that this thread may read content at a path, which this value of an option names.
///
/// # Errors
/// If the system forbids it. Other errors do not count.
pub fn check_allowed(path: &Path, (option, value): (&str, &str)) -> Result<(), StartError> {
    match open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(format!(
            "{}the server may not read {}: since its start it reads only as its user, and only below the \
             folders of its content then; restart it",
            before(option, value),
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
