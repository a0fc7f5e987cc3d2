//! One of the folders that a program serves.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use control::{ContentFiles, StartError, Watched, report};

use crate::background::Background;
use crate::improving::Done;
use crate::limits::Limits;
use crate::load::RULES;
use crate::loading::{Loading, load_next};
use crate::login::{Realm, RealmFile};
use crate::site::{Builder, NextSite, Site};
use crate::tagging::Tagging;

/// A folder and its site.
#[derive(Debug)]
pub(crate) struct ProgramPart {
    /// How the folder was loaded last.
    loading: Mutex<Loading>,
    /// How it is loaded from the next reload on, if that has changed.
    next: Mutex<Option<Loading>>,
    /// The number of the site among all that the configuration file had since the start.
    number: usize,
    /// The name for the operator, also in counts and logs. It is the name of the first folder, with an
    /// addition if another part has the same folder.
    name: &'static str,
    /// The index of its log among those of the program, if it has one.
    log: Option<usize>,
    site: Mutex<Arc<Site>>,
    /// What improves the site, if the folder can be loaded again.
    improving: Option<Improving>,
}

/// Locks a mutex, also if a thread has panicked with it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What improves a site while it is served.
#[derive(Debug)]
struct Improving {
    /// Makes compressed forms of files. `None`: there are none.
    background: Option<Background>,
    /// Reads the files on the disk for their tags.
    tagging: Tagging,
}

impl Improving {
    /// Prepares improving a site that is loaded in this way.
    fn of(loading: &Loading) -> Self {
        let coder = loading.settings.coder.clone();
        Self {
            background: coder.map(Background::new),
            tagging: Tagging::default(),
        }
    }
}

impl ProgramPart {
    pub(crate) fn new(site: Arc<Site>, folder: &Path) -> Self {
        let loading = Loading {
            folder: folder.to_owned(),
            limits: Limits::default(),
            strict: false,
            memory: None,
            settings: site.settings().clone(),
        };
        Self {
            loading: Mutex::new(loading),
            next: Mutex::default(),
            number: 0,
            // There are few names, and they live as long as the process.
            name: folder.display().to_string().leak(),
            log: None,
            site: Mutex::new(site),
            improving: None,
        }
    }

    /// Returns a part whose folder will be loaded in this way. Until then its site is empty.
    pub(crate) fn to_be_loaded(
        number: usize,
        name: &'static str,
        log: Option<usize>,
        loading: &Loading,
    ) -> Self {
        let site = Builder::with_settings(UNIX_EPOCH, &loading.settings).into_site();
        Self {
            loading: Mutex::new(loading.clone()),
            next: Mutex::default(),
            number,
            name,
            log,
            site: Mutex::new(Arc::new(site)),
            improving: Some(Improving::of(loading)),
        }
    }

    pub(crate) fn allow_reloads(&mut self, limits: Limits, strict: bool) {
        let mut loading = self.loading();
        (loading.limits, loading.strict) = (limits, strict);
        let improving = Improving::of(&loading);
        drop(loading);
        self.improving = Some(improving);
    }

    /// Notes the number of the site in the configuration file, and the memory that the operator gives to it.
    pub(crate) fn set_source(&mut self, number: usize, memory: Option<u64>) {
        self.number = number;
        self.loading().memory = memory;
    }

    /// The number of the site among all that the configuration file had since the start.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn set_log(&mut self, log: Option<usize>) {
        self.log = log;
    }

    /// The index of its log among those of the program, if it has one.
    pub(crate) fn log(&self) -> Option<usize> {
        self.log
    }

    /// How the folder was loaded last.
    pub(crate) fn loading(&self) -> MutexGuard<'_, Loading> {
        locked(&self.loading)
    }

    /// Loads the folder in this way from the next time on, until that has succeeded.
    pub(crate) fn set_next(&self, next: Loading) {
        *self.next() = Some(next);
    }

    /// Forgets what [`set_next`](Self::set_next) was told.
    pub(crate) fn forget_next(&self) {
        *self.next() = None;
    }

    fn next(&self) -> MutexGuard<'_, Option<Loading>> {
        locked(&self.next)
    }

    /// The folder, and another one from which the next reload loads the site.
    fn folders(&self) -> Vec<PathBuf> {
        let now = self.loading().folder.clone();
        let next = self.next().as_ref().map(|next| next.folder.clone());
        let next = next.filter(|next| *next != now);
        std::iter::once(now).chain(next).collect()
    }

    /// The newest site.
    pub(crate) fn site(&self) -> Arc<Site> {
        Arc::clone(&locked(&self.site))
    }

    pub(crate) fn set_site(&self, site: &Arc<Site>) {
        *locked(&self.site) = Arc::clone(site);
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        if name != self.name {
            self.name = name.to_owned().leak();
        }
    }

    /// The name for the operator.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        let named = Path::new(name);
        let is_same =
            |folder: &Path| Some(named.canonicalize().ok()? == folder.canonicalize().ok()?);
        let is_in = |folder: &PathBuf| named == folder || is_same(folder).unwrap_or_default();
        name == self.name || self.folders().iter().any(is_in)
    }

    pub(crate) fn can_reload(&self) -> bool {
        self.improving.is_some()
    }

    /// Loads the folder again, beside `packets` bytes of resident packets. Uses other options if `takes_next`
    /// is set. Call [`has_loaded_next`](Self::has_loaded_next) if the result is served then.
    pub(crate) fn load_next(&self, packets: u64, takes_next: bool) -> Result<NextSite, StartError> {
        let Some(improving) = &self.improving else {
            return Err("this program cannot load its folder again".into());
        };
        let next = self.next().clone().filter(|_| takes_next);
        let is_other = next.is_some();
        let loading = next.unwrap_or_else(|| self.loading().clone());
        let site = self.site();
        improving.tagging.try_again();
        Ok(load_next(&site, packets, &loading, is_other)?)
    }

    /// Notes that the folder was loaded as [`set_next`](Self::set_next) was told.
    pub(crate) fn has_loaded_next(&self) {
        if let Some(next) = self.next().take() {
            *self.loading() = next;
        }
    }

    /// Makes compressed forms of a file.
    pub(crate) fn compress(&self) -> Done {
        let improving = self.improving.as_ref();
        let background = improving.and_then(|one| one.background.as_ref());
        background.map_or(Done::Nothing, |one| one.step(&self.site()))
    }

    /// Reads a piece of a file on the disk for its tag.
    pub(crate) fn tag(&self) -> Done {
        let improving = self.improving.as_ref();
        improving.map_or(Done::Nothing, |one| one.tagging.step(&self.site()))
    }

    /// Describes the files for the operator. `hosts` follow the folder.
    pub(crate) fn describe(&self, hosts: &str) -> String {
        let site = self.site();
        let totals = site.totals();
        let hidden = match totals.hidden {
            0 => String::new(),
            n => format!(" (hidden entries left out: {})", report::count(n)),
        };
        format!(
            "{}, {}, from {}{hosts}{hidden}",
            report::count(totals.files),
            report::bytes(totals.content_bytes),
            self.loading().folder.display()
        )
    }

    /// Describes the parts of the site that need a name and a password.
    pub(crate) fn logins(&self) -> Vec<String> {
        let site = self.site();
        let realms = site.realms().iter().zip(&site.settings().realms);
        let describe = |(realm, rule): (&Realm, &RealmFile)| {
            let users = report::counted(realm.users().len(), "user");
            format!("{}, {users} of {}", realm.describe(), rule.file.display())
        };
        realms.map(describe).collect()
    }

    /// Returns the folders above the served one, because a new version may take the place of the
    /// folder, or of a link to it. The root folder is too much, so it is not among them.
    pub(crate) fn read_paths(&self) -> Vec<PathBuf> {
        let above = |path: &Path| {
            let folder = path.parent()?.canonicalize().ok()?;
            folder.parent().is_some().then_some(folder)
        };
        let folder = self.loading().folder.clone();
        let given = folder.is_absolute().then(|| above(&folder)).flatten();
        let real = folder.canonicalize().ok();
        let above_real = real.as_deref().and_then(above);
        let paths = real.into_iter().chain(given).chain(above_real);
        // A new version may take the place of such a file.
        let secrets = self.secret_files();
        let site = self.site();
        let outside = site.outside();
        let outside =
            outside.flat_map(|target| std::iter::once(target.to_owned()).chain(above(target)));
        paths
            .chain(secrets.iter().filter_map(|file| above(file)))
            .chain(outside)
            .collect()
    }

    /// Returns the files with users and with the key of entity tags.
    fn secret_files(&self) -> Vec<PathBuf> {
        let site = self.site();
        let realms = site.settings().realms.iter();
        let files = realms.map(|realm| realm.file.clone());
        files.chain(site.settings().tag_key.clone()).collect()
    }

    /// Returns the files that the site was read from. Those with rules, users or a key are not served, but each
    /// reload reads them.
    pub(crate) fn files(&self) -> ContentFiles {
        let site = self.site();
        let folder = self.loading().folder.clone();
        let below = |path: &[u8]| folder.join(OsStr::from_bytes(path));
        let rules = RULES.map(|name| folder.join(name));
        let rules = rules.into_iter().filter(|path| path.exists());
        ContentFiles {
            served: site.file_paths().map(below).collect(),
            to_reload: rules.chain(self.secret_files()).collect(),
        }
    }

    /// Returns the folder, and its place in the one that contains it, because a new folder may take
    /// it. Also returns the files with users or a key, and the targets of links that lead out of the folder.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        let folders = self.folders().into_iter();
        let folders = folders.flat_map(|one| [Watched::Tree(one.clone()), Watched::Entry(one)]);
        let secrets = self.secret_files().into_iter().map(Watched::Entry);
        let site = self.site();
        let outside = site.outside().map(|target| {
            let path = target.to_owned();
            if target.is_dir() {
                Watched::Tree(path)
            } else {
                Watched::Entry(path)
            }
        });
        folders.chain(secrets).chain(outside).collect()
    }
}
