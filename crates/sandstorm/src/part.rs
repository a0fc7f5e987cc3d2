//! One of the folders that a program serves.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use control::{StartError, Watched, report};

use crate::background::Background;
use crate::hosts::HostName;
use crate::improving::Done;
use crate::limits::Limits;
use crate::load::RULES;
use crate::loading::load_next;
use crate::login::{Realm, RealmFile};
use crate::site::{NextSite, Site};
use crate::tagging::Tagging;

/// A folder, its site, and the hosts that the site is served for.
#[derive(Debug)]
pub(crate) struct Part {
    folder: PathBuf,
    /// The name for the operator, also in counts and logs. It is that of the folder, and more if another
    /// part has the same folder.
    name: &'static str,
    /// The hosts, or none for all hosts that no other part has.
    hosts: Vec<HostName>,
    site: Mutex<Arc<Site>>,
    /// How the folder is loaded again, if it can be.
    reloading: Option<Reloading>,
}

/// Lets a text live as long as the process, as its parts do. There are few of them.
fn leaked(text: String) -> &'static str {
    text.leak()
}

/// How a folder is loaded again.
#[derive(Debug)]
struct Reloading {
    limits: Limits,
    strict: bool,
    /// Makes compressed forms of files, unless there are to be none.
    background: Option<Background>,
    /// Reads the files on the disk for their tags.
    tagging: Tagging,
}

impl Part {
    pub(crate) fn new(site: Arc<Site>, folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            name: leaked(folder.display().to_string()),
            hosts: Vec::new(),
            site: Mutex::new(site),
            reloading: None,
        }
    }

    pub(crate) fn allow_reloads(&mut self, limits: Limits, strict: bool) {
        let coder = self.site().settings().coder.clone();
        self.reloading = Some(Reloading {
            limits,
            strict,
            background: coder.map(Background::new),
            tagging: Tagging::default(),
        });
    }

    pub(crate) fn set_hosts(&mut self, hosts: &[HostName]) {
        self.hosts = hosts.to_vec();
    }

    pub(crate) fn hosts(&self) -> &[HostName] {
        &self.hosts
    }

    /// The newest site.
    pub(crate) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_site(&self, site: &Arc<Site>) {
        *self.site.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(site);
    }

    pub(crate) fn set_name(&mut self, name: String) {
        if name != self.name {
            self.name = leaked(name);
        }
    }

    /// The name for the operator.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        let named = Path::new(name);
        let is_same = || Some(named.canonicalize().ok()? == self.folder.canonicalize().ok()?);
        name == self.name || named == self.folder || is_same().unwrap_or_default()
    }

    pub(crate) fn can_reload(&self) -> bool {
        self.reloading.is_some()
    }

    /// Loads the folder again, beside `packets` bytes of resident packets.
    pub(crate) fn load_next(&self, packets: u64) -> Result<NextSite, StartError> {
        let Some(reloading) = &self.reloading else {
            return Err("this program cannot load its folder again".into());
        };
        let Reloading { limits, strict, .. } = reloading;
        let site = self.site();
        Ok(load_next(&site, packets, &self.folder, limits, *strict)?)
    }

    /// Makes compressed forms of a file.
    pub(crate) fn compress(&self) -> Done {
        let reloading = self.reloading.as_ref();
        let background = reloading.and_then(|one| one.background.as_ref());
        background.map_or(Done::Nothing, |one| one.step(&self.site()))
    }

    /// Reads a piece of a file on the disk for its tag.
    pub(crate) fn tag(&self) -> Done {
        let reloading = self.reloading.as_ref();
        reloading.map_or(Done::Nothing, |one| one.tagging.step(&self.site()))
    }

    /// Describes the files for the operator.
    pub(crate) fn describe(&self) -> String {
        let site = self.site();
        let totals = site.totals();
        let hidden = match totals.hidden {
            0 => String::new(),
            n => format!(" (hidden entries left out: {})", report::count(n)),
        };
        let hosts: Vec<_> = self.hosts.iter().map(HostName::to_string).collect();
        let hosts = match &*hosts {
            [] => String::new(),
            hosts => format!(", for {}", hosts.join(", ")),
        };
        format!(
            "{}, {}, from {}{hosts}{hidden}",
            report::count(totals.files),
            report::bytes(totals.content_bytes),
            self.folder.display()
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
        let given = self
            .folder
            .is_absolute()
            .then(|| above(&self.folder))
            .flatten();
        let real = self.folder.canonicalize().ok();
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

    /// Returns the folder with compressed forms, if there is one.
    pub(crate) fn stored_path(&self) -> Option<PathBuf> {
        let coder = self.site().settings().coder.clone();
        coder?.folder().cloned()
    }

    /// Returns the files that were loaded.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let site = self.site();
        let below = |path: &[u8]| self.folder.join(OsStr::from_bytes(path));
        let rules = RULES.map(|name| self.folder.join(name));
        let rules = rules.into_iter().filter(|path| path.exists());
        let files = site.file_paths().map(below).chain(rules);
        files.chain(self.secret_files()).collect()
    }

    /// Returns the folder, and its place in the one that contains it, because a new folder may take
    /// it. Also returns the files with users or a key, and the targets of links that lead out of the folder.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        let folder = [
            Watched::Tree(self.folder.clone()),
            Watched::Entry(self.folder.clone()),
        ];
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
        folder.into_iter().chain(secrets).chain(outside).collect()
    }
}
