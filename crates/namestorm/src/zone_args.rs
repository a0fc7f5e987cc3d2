//! The options that name zones.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Command};
use control::{OptionError, StartError, Watched, config};
use glob::{MatchOptions, Pattern};

use crate::load::ZoneSpec;
use crate::notify::{Secondaries, Secondary};
use crate::secret_source::NeededKeys;
use crate::transfer::{TransferClients, TransferRule};

/// The options that name the zones to serve, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = ZONES)]
pub struct ZoneArgs {
    /// Zone file to serve. Without ORIGIN, the zone's name is that of an $ORIGIN before the first
    /// record. Otherwise it is the owner of a leading SOA record, or else the file's name. Repeat
    /// the option for more zones.
    #[arg(long = "zone", value_name = "[ORIGIN=]FILE")]
    zones: Vec<ZoneSpec>,

    /// Serve all zone files whose paths match a pattern, such as `/var/lib/zones/*.zone`. `*`, `?` and
    /// `[ab]` match parts of a name, and `**` matches any folders. Hidden files do not match. Repeat the
    /// option for more patterns.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    zones_from: Vec<String>,

    /// Address or network of clients that may transfer the zones over TCP, such as the secondary server
    /// `192.0.2.53`. If a key of `--tsig-keys` follows, as in `'192.0.2.53 KEY'`, the clients must sign
    /// with it. The server then also keeps the records, which takes memory. Repeat the option for more.
    /// Without it, nobody may.
    #[arg(long = "allow-transfer", value_name = "ADDRESS[/BITS] [KEY]")]
    allow_transfers: Vec<TransferRule>,

    /// Secondary server that hears of each change of a zone at once (NOTIFY), such as `192.0.2.53`. The
    /// default port is 53. If a key of `--tsig-keys` follows, as in `'192.0.2.53 KEY'`, the message is
    /// signed with it, and the server must sign its reply. The kernel sends the message from its own
    /// address. Repeat the option for more.
    #[arg(long, value_name = "ADDRESS[:PORT] [KEY]")]
    notify: Vec<Secondary>,
}

/// Why there are no zones to serve, as a message for the operator.
#[derive(Debug, thiserror::Error)]
pub enum NoZones {
    /// Neither a zone nor a pattern is given.
    #[error(
        "{}no zone is given: use --zone FILE or --zones-from PATTERN, or the keys zones or zones-from in \
         [[dns]] of a configuration file",
        config::before_section("dns")
    )]
    Given,
    /// No file matches a pattern.
    #[error(
        "{}no zone file matches {_0}; check the pattern, and that its folders can be read",
        config::before("zones_from", _0)
    )]
    Match(String),
    /// A folder or a file that may match cannot be read.
    #[error(
        "{}cannot read {}: {reason}; let the server's user read it",
        config::before("zones_from", pattern.as_deref().unwrap_or_default()), path.display()
    )]
    Unreadable {
        /// The pattern, if the folder was searched for files that match it.
        pattern: Option<String>,
        /// The folder or the file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
}

impl NoZones {
    /// Passes all errors except the last one to `say`.
    ///
    /// # Errors
    /// The last one.
    pub fn tell(wrong: Vec<Self>, say: &mut dyn FnMut(String)) -> Result<(), StartError> {
        let mut wrong = wrong.into_iter();
        let Some(last) = wrong.next_back() else {
            return Ok(());
        };
        wrong.for_each(|error| say(error.to_string()));
        Err(match last {
            Self::Given => OptionError::new(last).into(),
            last => last.into(),
        })
    }
}

/// Heading of the options for zones, and so their section in a configuration file.
const ZONES: &str = "Zones";

/// Identifiers of the options that name zones. A running server can take over others.
pub const ZONE_OPTIONS: [&str; 2] = ["zones", "zones_from"];

/// Moves the port's option to the options for zones, so that it is a key of `[[dns]]`.
#[must_use]
pub fn port_of_zones(option: &'static str, command: Command) -> Command {
    config::under(ZONES, option, command)
}

impl ZoneArgs {
    /// Returns the named zones, and then those of the patterns, sorted by path.
    ///
    /// # Errors
    /// If there is no zone, no file for a pattern, or a folder that cannot be read. The first error
    /// counts.
    pub fn specs(&self) -> Result<Vec<ZoneSpec>, NoZones> {
        let (specs, wrong) = self.found();
        wrong.into_iter().next().map_or(Ok(specs), Err)
    }

    /// Same as [`specs`](Self::specs), but returns the zones that there are, and all errors.
    pub fn found(&self) -> (Vec<ZoneSpec>, Vec<NoZones>) {
        let (mut specs, mut wrong) = (self.zones.clone(), Vec::new());
        for pattern in &self.zones_from {
            let (matching, unreadable) = matching(pattern);
            if matching.is_empty() && unreadable.is_empty() {
                wrong.push(NoZones::Match(pattern.clone()));
            }
            add_new(&mut specs, matching);
            wrong.extend(unreadable);
        }
        let is_given = ZONE_OPTIONS
            .iter()
            .any(|option| config::is_wrong(0, option));
        if specs.is_empty() && wrong.is_empty() && !is_given {
            wrong.push(NoZones::Given);
        }
        (specs, wrong)
    }

    /// Same as [`specs`](Self::specs), for a server that has zones already. Its operator may have removed
    /// all files of a pattern. Also returns a warning about each such pattern.
    ///
    /// # Errors
    /// If a folder is missing or cannot be read, or if no zone is left. Then nobody has removed zones, or
    /// too many. The first error counts.
    pub(crate) fn specs_again(&self) -> Result<(Vec<ZoneSpec>, Vec<String>), NoZones> {
        let (specs, wrong) = self.found();
        let mut warnings = Vec::new();
        for error in wrong {
            match error {
                NoZones::Match(pattern) if !specs.is_empty() && start_of(&pattern).0.is_dir() => {
                    warnings.push(format!(
                        "{}no zone file matches {pattern} any more, so it names no zones; add a file, or \
                         leave the pattern out, because the next start will refuse it",
                        config::before("zones_from", &pattern)
                    ));
                }
                error => return Err(error),
            }
        }
        Ok((specs, warnings))
    }

    /// Returns the clients that may ask for transfers.
    ///
    /// # Errors
    /// If there are too many networks.
    pub fn transfer_clients(&self) -> Result<TransferClients, StartError> {
        let clients = TransferClients::new(&self.allow_transfers);
        Ok(clients.map_err(OptionError::new)?)
    }

    /// Returns the secondary servers that hear of changes.
    ///
    /// # Errors
    /// If there are too many, or if one is given twice.
    pub(crate) fn secondaries(&self) -> Result<Secondaries, OptionError> {
        Secondaries::new(&self.notify).map_err(OptionError::new)
    }

    /// Returns the keys that the options name.
    pub(crate) fn needed_keys(&self) -> NeededKeys {
        let of_clients = self.allow_transfers.iter().map(TransferRule::key);
        let of_servers = self.notify.iter().map(Secondary::key);
        NeededKeys::new(of_clients, of_servers)
    }

    /// Returns what is wrong with the options for other servers, apart from the zones: errors as for
    /// [`transfer_clients`](Self::transfer_clients), and wrong servers for NOTIFY.
    pub(crate) fn wrong_others(&self) -> Vec<StartError> {
        let clients = self.transfer_clients().err();
        let secondaries = self.secondaries().err().map(Into::into);
        clients.into_iter().chain(secondaries).collect()
    }

    /// Returns the options without those for other servers.
    pub(crate) fn without_others(mut self) -> Self {
        self.allow_transfers.clear();
        self.notify.clear();
        self
    }

    /// Returns the folder in which the search for the files of each pattern begins.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let patterns = self.zones_from.iter();
        patterns.map(|pattern| start_of(pattern).0).collect()
    }

    /// Returns the files of the named zones.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.zones.iter().map(|zone| zone.file.clone())
    }

    /// Returns the folders in which new files may match a pattern.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        let of_pattern = |pattern: &String| {
            let parts: Vec<_> = pattern.split('/').collect();
            let (folder, fixed) = start_of(pattern);
            let names = parts.last().filter(|part| **part != "**");
            match names.and_then(|names| Pattern::new(names).ok()) {
                Some(names) => Watched::Matching {
                    folder,
                    names,
                    below: fixed + 1 < parts.len(),
                },
                None => Watched::Tree(folder),
            }
        };
        self.zones_from.iter().map(of_pattern).collect()
    }

    /// Adds zones in front of the others.
    #[must_use]
    pub fn with_zones(mut self, zones: &[ZoneSpec]) -> Self {
        self.zones.splice(..0, zones.iter().cloned());
        self
    }
}

/// Adds zones of a pattern, except those whose files another option or pattern names too.
fn add_new(specs: &mut Vec<ZoneSpec>, mut matching: Vec<ZoneSpec>) {
    if !specs.is_empty() {
        let files: HashSet<_> = specs.iter().map(|spec| &spec.file).collect();
        matching.retain(|spec| !files.contains(&spec.file));
    }
    specs.append(&mut matching);
}

/// Returns the folder in which the search for the files of a pattern begins, and the number of parts that
/// are before the first wildcard.
fn start_of(pattern: &str) -> (PathBuf, usize) {
    let is_plain = |part: &&str| !part.contains(['*', '?', '[']);
    let parts: Vec<_> = pattern.split('/').collect();
    let fixed = parts.iter().copied().take_while(is_plain).count();
    let folder = parts[..fixed.min(parts.len() - 1)].join("/");
    let folder = match (folder.is_empty(), pattern.starts_with('/')) {
        (false, _) => PathBuf::from(folder),
        (true, true) => "/".into(),
        (true, false) => ".".into(),
    };
    (folder, fixed)
}

fn pattern(text: &str) -> Result<String, String> {
    match Pattern::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!(
            "it is not a pattern: {} at character {}; write a path with *, ? or [ab], such as zones/*.zone",
            error.msg,
            error.pos + 1
        )),
    }
}

/// Returns the files that match a pattern, sorted by path, and an error for each folder that cannot be read.
fn matching(pattern: &str) -> (Vec<ZoneSpec>, Vec<NoZones>) {
    let start = if pattern.starts_with('/') { "/" } else { "" };
    let parts: Vec<_> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let mut search = Search::default();
    search.find(Path::new(start), &parts);
    let Search {
        mut files,
        unreadable,
    } = search;
    if parts.contains(&"**") {
        // Files are found before those in folders, and perhaps twice.
        files.sort();
        files.dedup();
    }
    let group: Arc<str> = pattern.into();
    let spec = |file| ZoneSpec {
        origin: None,
        file,
        group: Some(Arc::clone(&group)),
    };
    let unreadable = unreadable.into_iter().map(|(path, reason)| {
        let pattern = Some(pattern.to_owned());
        NoZones::Unreadable {
            pattern,
            path,
            reason,
        }
    });
    (files.into_iter().map(spec).collect(), unreadable.collect())
}

/// A search for the files that match a pattern.
#[derive(Debug, Default)]
struct Search {
    files: Vec<PathBuf>,
    unreadable: Vec<(PathBuf, io::Error)>,
}

impl Search {
    /// Adds the files below `folder` whose paths match the `parts` of a pattern, sorted by path unless `**`
    /// is among the parts. `**` follows no links to folders, because they may form a circle.
    fn find(&mut self, folder: &Path, parts: &[&str]) {
        let Some((&part, rest)) = parts.split_first() else {
            // A link that leads nowhere matches too, so that its zone is reported.
            if folder.symlink_metadata().is_ok() && !folder.is_dir() {
                self.files.push(folder.to_owned());
            }
            return;
        };
        if !part.contains(['*', '?', '[']) {
            return self.find(&folder.join(part), rest);
        }
        let listed = if folder == Path::new("") {
            Path::new(".")
        } else {
            folder
        };
        let is_deep = part == "**";
        if is_deep {
            self.find(folder, rest);
        } else if !listed.is_dir() {
            return;
        }
        if let Err(error) = self.find_in(folder, listed, parts) {
            self.unreadable.push((listed.to_owned(), error));
        }
    }

    /// Adds the files of a folder, which is `listed` from the working directory. The first of the `parts` has
    /// a wildcard.
    fn find_in(&mut self, folder: &Path, listed: &Path, parts: &[&str]) -> io::Result<()> {
        let (part, rest) = (parts[0], &parts[1..]);
        let is_deep = part == "**";
        let pattern = Pattern::new(part).unwrap_or_default();
        let options = MatchOptions {
            require_literal_leading_dot: true,
            ..MatchOptions::default()
        };
        // One buffer has all names, because there may be very many.
        let (mut names, mut entries) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(listed)? {
            let entry = entry?;
            let name = entry.file_name();
            // A name that is not UTF-8 also matches by its other characters.
            if pattern.matches_with(&name.to_string_lossy(), options) {
                let start = names.len();
                names.extend_from_slice(name.as_bytes());
                entries.push((start..names.len(), entry.file_type()));
            }
        }
        entries.sort_unstable_by_key(|(name, _)| &names[name.clone()]);
        for (name, kind) in entries {
            let mut path = PathBuf::with_capacity(folder.as_os_str().len() + 1 + name.len());
            path.push(folder);
            path.push(OsStr::from_bytes(&names[name]));
            // Most entries are files, whose type the folder tells without a system call.
            if !is_deep && rest.is_empty() && kind.as_ref().is_ok_and(FileType::is_file) {
                self.files.push(path);
            } else if !is_deep {
                self.find(&path, rest);
            } else {
                match kind {
                    Ok(kind) if kind.is_dir() => self.find(&path, parts),
                    Ok(_) => {}
                    Err(error) => self.unreadable.push((path, error)),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        zones: ZoneArgs,
    }

    fn specs(words: &[&str]) -> Result<Vec<PathBuf>, NoZones> {
        let words = std::iter::once(&"dns").chain(words);
        let specs = Cli::try_parse_from(words).unwrap().zones.specs()?;
        Ok(specs.into_iter().map(|spec| spec.file).collect())
    }

    #[test]
    fn the_folders_of_patterns_are_watched() {
        let words = ["dns", "--zones-from"];
        let watched = |pattern| {
            let words = words.iter().copied().chain([pattern]);
            Cli::try_parse_from(words).unwrap().zones.watched()
        };
        let matching = |folder: &str, names: &str, below| {
            let (folder, names) = (folder.into(), Pattern::new(names).unwrap());
            vec![Watched::Matching {
                folder,
                names,
                below,
            }]
        };
        assert_eq!(watched("*.zone"), matching(".", "*.zone", false));
        assert_eq!(watched("/*.zone"), matching("/", "*.zone", false));
        assert_eq!(watched("/a/b/*.zone"), matching("/a/b", "*.zone", false));
        assert_eq!(watched("a/b.zone"), matching("a", "b.zone", false));
        assert_eq!(watched("a/*/b.zone"), matching("a", "b.zone", true));
        assert_eq!(watched("/**/b.zone"), matching("/", "b.zone", true));
        assert_eq!(watched("/a/**"), vec![Watched::Tree("/a".into())]);
    }

    #[test]
    fn a_pattern_names_files_in_the_order_of_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("d.zone")).unwrap();
        for name in ["b.zone", "a.zone", ".hidden.zone", "c.txt", "d.zone/e.zone"] {
            fs::write(path(name), "").unwrap();
        }
        let text = |name: &str| path(name).to_str().unwrap().to_owned();
        let found = specs(&["--zones-from", &text("*.zone"), "--zone", "first"]).unwrap();
        assert_eq!(found, ["first".into(), path("a.zone"), path("b.zone")]);
        let found = specs(&["--zones-from", &text("**/e.zone")]).unwrap();
        assert_eq!(found, [path("d.zone/e.zone")]);
        let [a, all] = [text("a.zone"), text("*.zone")];
        let twice = ["--zone", &a, "--zones-from", &all, "--zones-from", &all];
        assert_eq!(specs(&twice).unwrap(), [path("a.zone"), path("b.zone")]);
        // A link to its own folder is no endless path, and a name need not be UTF-8.
        symlink(".", path("loop")).unwrap();
        symlink("none", path("e.zone")).unwrap();
        assert_eq!(
            specs(&["--zones-from", &text("e*.zone")]).unwrap(),
            [path("e.zone")]
        );
        fs::remove_file(path("e.zone")).unwrap();
        fs::write(path("d.zone").join(OsStr::from_bytes(b"\xff.zone")), "").unwrap();
        assert_eq!(
            specs(&["--zones-from", &text("**/*.zone")]).unwrap().len(),
            4
        );
        assert_eq!(
            specs(&["--zones-from", &text("[ab].zone")]).unwrap().len(),
            2
        );
        assert_eq!(
            specs(&["--zones-from", &text("loop/a.zone")])
                .unwrap()
                .len(),
            1
        );
    }

    /// Tests run in the folder of their crate.
    #[test]
    fn a_pattern_without_a_folder_names_files_of_the_current_one() {
        let found = specs(&["--zones-from", "Carg?.toml"]).unwrap();
        assert_eq!(found, [PathBuf::from("Cargo.toml")]);
    }

    #[test]
    fn a_pattern_without_a_file_is_an_error() {
        let error = specs(&["--zones-from", "/none/*.zone"]).unwrap_err();
        assert!(error.to_string().contains("/none/*.zone"), "{error}");
        let words = [
            "dns",
            "--zones-from",
            "/none/a*",
            "--zones-from",
            "/none/b*",
        ];
        let cli = Cli::try_parse_from([&words[..], &["--zone", "c"]].concat()).unwrap();
        let (found, wrong) = cli.zones.found();
        assert_eq!((found.len(), wrong.len()), (1, 2), "{wrong:?}");
        assert!(matches!(specs(&[]), Err(NoZones::Given)));
        let wrong = Cli::try_parse_from(["dns", "--zones-from", "a/***"]);
        assert!(wrong.is_err());
    }
}
