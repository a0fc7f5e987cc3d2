//! Loads a folder for an operator. Shows the progress, prints warnings, and handles `--strict`.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use control::{NotOfServer, OptionError, StartError, config, progress, report};

use crate::fields::FieldError;
use crate::hosts::HostName;
use crate::limits::Limits;
use crate::load::{LoadError, Progress};
use crate::settings::Settings;
use crate::site::{NextSite, Site, Totals};
use crate::skipped::Reason;

/// Maximum number of mistakes that warnings or an error name. Further ones are only counted.
const MAX_NAMED: u64 = 100;

/// Why the folder is not served. The message is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum NotLoaded {
    /// The folder cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A field for all responses is invalid.
    #[error("a field for all responses: {0}")]
    Field(#[from] FieldError),
    /// The access log cannot be opened.
    #[error(transparent)]
    Log(#[from] io::Error),
    /// The options of the sites contradict each other.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// Two options of a site contradict each other.
    #[error("{} and {} contradict each other; leave one of them out", options[0], options[1])]
    Contradiction {
        /// The options.
        options: Box<[GivenOption; 2]>,
    },
    /// A site is to be served on an address that the server does not have.
    #[error(transparent)]
    Address(#[from] NotOfServer),
    /// No site is given.
    #[error("no site is given; name a folder")]
    NoSite,
    /// Two sites are for the same host.
    #[error("the host {host} leads to {} and to {}; give it to one of them", sites[0], sites[1])]
    SameHost {
        /// The host.
        host: HostName,
        /// The folders of the sites, and the places of the host.
        sites: [String; 2],
    },
    /// Two sites have the same port, and no host tells them apart.
    #[error(
        "{} and {} both have TCP port {port}; give one of them another port, or different addresses or \
         hosts to both",
        sites[0], sites[1]
    )]
    SamePort {
        /// The port.
        port: u16,
        /// The folders of the sites.
        sites: [String; 2],
    },
    /// Two sites share a port, but send their packets in different ways.
    #[error(
        "{} and {} share a port, so their mode must be the same; correct one of them",
        sites[0], sites[1]
    )]
    OtherMode {
        /// The folders of the sites.
        sites: [String; 2],
    },
    /// Two sites share a port, but have different limits for connections.
    #[error(
        "{} and {} share a port, so their connections have the same limits; correct one of them, or \
         give it another port",
        sites[0], sites[1]
    )]
    OtherLimits {
        /// The folders of the sites.
        sites: [String; 2],
    },
    /// The folder for compressed forms cannot be used.
    #[error(
        "cannot keep compressed files in {}: {source}; make the folder, and let the server's user write \
         there",
        folder.display()
    )]
    Cache {
        /// The folder.
        folder: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The folder of a configuration file, or a file that it names, cannot be used.
    #[error("{place}: {}", config::with_places_of(*site, &error.to_string()))]
    At {
        /// The file, the line and the column.
        place: String,
        /// The number of the site, from 0. Its keys are named.
        site: usize,
        /// The reason.
        error: Box<Self>,
    },
    /// Files have changed while the folder was loaded with other options than before.
    #[error(
        "{}: {} changed while they were read, so the site keeps its old content and options; reload again",
        folder.display(), report::counted(*count, "file")
    )]
    Changing {
        /// The folder.
        folder: PathBuf,
        /// Number of these files.
        count: u64,
    },
    /// Some entries cannot be served, or something else is probably a mistake, and `--strict` is set.
    /// The message lists the first mistakes, one per line.
    #[error(
        "mistakes that --strict does not allow: {}; mend them, or leave out --strict to serve the rest{}",
        report::count(*count), OnePerLine(named)
    )]
    Strict {
        /// Number of mistakes.
        count: u64,
        /// The first of them.
        named: Vec<String>,
    },
}

/// An option with a value, as it is on the command line.
#[derive(Clone, Debug)]
pub struct GivenOption {
    /// The name, without its dashes.
    pub name: &'static str,
    /// The value.
    pub value: String,
    /// The option's identifier.
    pub(crate) id: &'static str,
    /// The index of the value, from 0.
    pub(crate) index: usize,
}

impl PartialEq for GivenOption {
    /// The place of the value does not count.
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.value) == (other.name, &other.value)
    }
}

impl Eq for GivenOption {}

impl fmt::Display for GivenOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{} {}", self.name, self.value)
    }
}

impl NotLoaded {
    /// Returns the error for [`control::serve`], which gives mistakes in the options a status of their
    /// own.
    pub(crate) fn into_start_error(self) -> StartError {
        if self.is_mistake() {
            OptionError::new(self).into()
        } else {
            self.into()
        }
    }

    /// Adds the place in the configuration file that the error is about.
    pub(crate) fn at(self, site: usize, place: String) -> Self {
        let error = Box::new(self);
        Self::At { place, site, error }
    }

    /// Returns the error without its place.
    pub(crate) fn cause(&self) -> &Self {
        match self {
            Self::At { error, .. } => error.cause(),
            error => error,
        }
    }

    /// Returns true if the options are wrong, whatever the files of the sites are.
    fn is_mistake(&self) -> bool {
        matches!(
            self.cause(),
            Self::Field(_)
                | Self::Options(_)
                | Self::Contradiction { .. }
                | Self::Address(_)
                | Self::NoSite
                | Self::SameHost { .. }
                | Self::SamePort { .. }
                | Self::OtherMode { .. }
                | Self::OtherLimits { .. }
                | Self::Load(LoadError::NoRealm { .. })
        )
    }
}

/// Formats each mistake on its own line.
struct OnePerLine<'a>(&'a [String]);

impl fmt::Display for OnePerLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|one| write!(f, "\n  {one}"))
    }
}

/// How a folder is loaded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loading {
    pub(crate) folder: PathBuf,
    pub(crate) limits: Limits,
    /// Whether an entry that cannot be served is an error.
    pub(crate) strict: bool,
    /// The memory that the operator gives to the site, if it does not depend on the free memory.
    pub(crate) memory: Option<u64>,
    pub(crate) settings: Settings,
}

/// Loads the folder, but not the files `without`, which have rules. What is probably a mistake causes a warning,
/// or an error if `strict` is set.
pub(crate) fn load(
    folder: &Path,
    limits: &Limits,
    strict: bool,
    settings: &Settings,
    without: &[PathBuf],
) -> Result<Site, NotLoaded> {
    reporting(strict, |progress| {
        Site::load_without(without, (folder, limits), settings, progress)
    })
}

/// Loads a folder like [`load`], beside `packets` bytes of resident packets. The result takes over from
/// `previous`. `is_other` says that the options are not those of `previous`, whose folder may be another one.
/// A file that changes while it is read then has no old content.
pub(crate) fn load_next(
    previous: &Site,
    packets: u64,
    loading: &Loading,
    is_other: bool,
) -> Result<NextSite, NotLoaded> {
    let mut changed = 0;
    let next = reporting(loading.strict, |progress| {
        let Loading {
            folder,
            limits,
            settings,
            ..
        } = loading;
        let mut count = |one: Progress<'_>| {
            let is_changed =
                matches!(&one, Progress::Skipped(one) if matches!(one.reason, Reason::Changed));
            changed += u64::from(is_changed);
            progress(one);
        };
        previous.load_next_beside(packets, folder, (limits, settings), &mut count)
    })?;
    let count = changed + next.site.totals().outdated;
    if is_other && count > 0 {
        let folder = loading.folder.clone();
        return Err(NotLoaded::Changing { folder, count });
    }
    Ok(next)
}

/// Calls `load` with a function that reports the progress and what is probably a mistake.
fn reporting<T>(
    strict: bool,
    load: impl FnOnce(&mut dyn FnMut(Progress<'_>)) -> Result<T, LoadError>,
) -> Result<T, NotLoaded> {
    let (mut count, mut named) = (0_u64, Vec::new());
    let outcome = load(&mut |progress| {
        let mistake = match progress {
            Progress::Loaded(totals) => return progress::say(|| describe(totals)),
            Progress::Warning { folder, warning } => {
                let warning = format!("{}: {warning}", folder.display());
                if !strict {
                    named.push(warning);
                    return;
                }
                warning
            }
            Progress::Skipped(skipped) if strict => skipped.to_string(),
            Progress::Skipped(skipped) => format!("left out: {skipped}"),
        };
        count += 1;
        if count <= MAX_NAMED {
            named.push(mistake);
        }
    });
    // Without these files and options, other mistakes are not known yet. A check leaves them out, and loads
    // again. It must name no mistake twice.
    if let Err(
        error @ (LoadError::Rules { .. }
        | LoadError::TagKey { .. }
        | LoadError::Users { .. }
        | LoadError::NoRealm { .. }),
    ) = outcome
    {
        return Err(error.into());
    }
    if strict && count > 0 {
        return Err(NotLoaded::Strict { count, named });
    }
    for warning in named {
        tracing::warn!("{warning}");
    }
    if count > MAX_NAMED {
        let more = report::count(count - MAX_NAMED);
        tracing::warn!("left out without a message: {more} more entries");
    }
    Ok(outcome?)
}

fn describe(totals: &Totals) -> String {
    let (files, bytes) = (totals.files, totals.content_bytes);
    format!("{} files, {}", report::count(files), report::bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(bad: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("page.html"), "page").unwrap();
        for n in 0..bad {
            symlink("nowhere", folder.path().join(format!("bad\n{n:04}"))).unwrap();
        }
        folder
    }

    #[test]
    fn strict_loading_fails_and_names_at_most_100_entries() {
        for (bad, lines) in [(1, 2), (MAX_NAMED, 101), (MAX_NAMED + 1, 101)] {
            let folder = folder(bad);
            let error = load(
                folder.path(),
                &Limits::default(),
                true,
                &Settings::default(),
                &[],
            )
            .unwrap_err();
            let message = error.to_string();
            assert_eq!(message.lines().count(), lines, "{message}");
            let start = format!("mistakes that --strict does not allow: {bad}; ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains("bad\\n0000\" is a link to \"nowhere\""));
            let site = load(
                folder.path(),
                &Limits::default(),
                false,
                &Settings::default(),
                &[],
            )
            .unwrap();
            assert_eq!((site.totals().files, site.totals().skipped), (1, bad));
        }
        let site = load(
            folder(0).path(),
            &Limits::default(),
            true,
            &Settings::default(),
            &[],
        )
        .unwrap();
        assert_eq!(site.totals().skipped, 0);
    }

    #[test]
    fn strict_loading_fails_if_a_password_is_for_nothing() {
        let folder = folder(1);
        let users = tempfile::NamedTempFile::new().unwrap();
        let hash = "$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
        fs::write(users.path(), format!("ali:{hash}")).unwrap();
        let mut settings = Settings::default();
        let realm = format!("/nothing={}", users.path().display());
        settings.add_basic_auth(&realm).unwrap();
        let load = |strict| load(folder.path(), &Limits::default(), strict, &settings, &[]);
        assert!(load(false).is_ok());
        let message = load(true).unwrap_err().to_string();
        assert!(message.contains("not allow: 2; ") && message.contains("is a link to"));
        assert!(
            message.contains("--basic-auth names /nothing, but the folder has nothing there"),
            "{message}"
        );
    }

    #[test]
    fn a_folder_without_a_file_is_refused_with_and_without_strict() {
        let folder = folder(1);
        fs::remove_file(folder.path().join("page.html")).unwrap();
        let load = |strict| {
            load(
                folder.path(),
                &Limits::default(),
                strict,
                &Settings::default(),
                &[],
            )
            .unwrap_err()
        };
        assert!(load(false).to_string().contains("each with its reason: 1"));
        assert!(load(true).to_string().contains("is a link to"));
    }
}
