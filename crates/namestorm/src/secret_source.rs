//! Where the secrets of a server come from: those of its cookies, and the keys that it shares with clients.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use control::config::{before, before_nth, is_wrong};
use control::report::counted;
use control::{Handover, OptionError, StartError, Turn};
use nmio::{Bell, Mailbox};

use crate::cookie::{Cookies, SECRET_LEN, Secret, read_secrets};
use crate::name::Name;
use crate::tsig::TsigKeys;

/// The secrets of a server.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    pub(crate) cookies: Arc<Cookies>,
    pub(crate) keys: Arc<TsigKeys>,
}

/// The files with secrets, as far as the options name them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretFiles {
    pub(crate) cookies: Option<PathBuf>,
    pub(crate) keys: Option<PathBuf>,
}

/// The keys that must be in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct NeededKeys(Vec<NeededKey>);

/// A key that an option names.
#[derive(Clone, Debug)]
struct NeededKey {
    /// The option as it is on the command line, and its identifier.
    option: [&'static str; 2],
    /// The index of the option's value, from 0.
    index: usize,
    name: Name,
}

impl NeededKeys {
    /// Starts with the keys of clients for transfers, and those of secondary servers for NOTIFY. They are
    /// those of each value of the option.
    pub(crate) fn new<'k>(
        clients: impl Iterator<Item = Option<&'k Name>>,
        secondaries: impl Iterator<Item = Option<&'k Name>>,
    ) -> Self {
        let clients = clients.enumerate();
        let clients = clients.map(|one| (["--allow-transfer", "allow_transfers"], one));
        let secondaries = secondaries.enumerate();
        let secondaries = secondaries.map(|one| (["--notify", "notify"], one));
        let all = clients.chain(secondaries);
        let keys = all.filter_map(|(option, (index, name))| {
            let name = name?.clone();
            Some(NeededKey {
                option,
                index,
                name,
            })
        });
        Self(keys.collect())
    }

    /// Returns a message for the operator about each one that is not among `keys`.
    fn missing(&self, keys: &TsigKeys) -> Vec<StartError> {
        let why = if keys.is_empty() {
            "but there are no keys: name a file with --tsig-keys"
        } else {
            "which is not in the file of --tsig-keys: add it there, or correct the name"
        };
        let mut known = HashSet::new();
        let missing = self.0.iter().filter(|key| keys.find(&key.name).is_none());
        let missing = missing.filter(|key| known.insert((key.option, key.name.to_string())));
        let errors = missing.map(
            |NeededKey {
                 option,
                 index,
                 name,
             }| {
                let [option, id] = option;
                let place = before_nth(id, *index);
                OptionError::new(format!("{place}{option} names the key {name}, {why}")).into()
            },
        );
        errors.collect()
    }
}

/// The newest secrets of a server, and the files that they come from.
#[derive(Debug)]
pub(crate) struct SecretSource {
    files: SecretFiles,
    needed: NeededKeys,
    newest: Mutex<Secrets>,
    handover: Handover<Secrets>,
}

impl SecretSource {
    /// Reads the files. Without a file for cookies, draws a random secret, which ends with the process.
    /// The `needed` keys must be among the keys.
    ///
    /// # Errors
    /// If a file has no secrets, or lacks keys, or if the system returns no random bytes. Each error names
    /// the file or the key.
    pub(crate) fn open(files: SecretFiles, needed: NeededKeys) -> Result<Self, Vec<StartError>> {
        let cookies = match &files.cookies {
            Some(path) => read_cookies(path),
            None => random_cookies().map_err(Into::into),
        };
        let keys = read_keys(files.keys.as_deref(), &needed);
        match (cookies, keys) {
            (Ok(cookies), Ok(keys)) => Ok(Self {
                files,
                needed,
                newest: Mutex::new(Secrets {
                    cookies: cookies.into(),
                    keys: keys.into(),
                }),
                handover: Handover::default(),
            }),
            (cookies, keys) => {
                let of_keys = keys.err().into_iter().flatten();
                Err(cookies.err().into_iter().chain(of_keys).collect())
            }
        }
    }

    fn newest(&self) -> MutexGuard<'_, Secrets> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest keys.
    pub(crate) fn keys(&self) -> Arc<TsigKeys> {
        Arc::clone(&self.newest().keys)
    }

    /// Returns the files with secrets.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let SecretFiles { cookies, keys } = &self.files;
        [cookies, keys].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Describes the secrets in lines of the start block.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let newest = self.newest();
        let from = |number, of, file: &Path| {
            format!("{} from {}", counted(number as u64, of), file.display())
        };
        let cookies = match &self.files.cookies {
            Some(file) => from(newest.cookies.secrets(), "secret", file),
            None => "a random secret, which no other server shares".to_owned(),
        };
        let keys = self.files.keys.as_deref();
        let keys = keys.map(|file| ("TSIG", from(newest.keys.len(), "key", file)));
        std::iter::once(("cookies", cookies)).chain(keys).collect()
    }

    /// Returns the newest secrets for a worker with this bell, and the mailbox for later ones.
    pub(crate) fn start(&self, bell: &Bell) -> (Secrets, Mailbox<Turn<Secrets>>) {
        self.handover.open(bell, || self.newest().clone())
    }

    /// Reads the files again, and hands the secrets to the workers. Of a file with an error, the old
    /// secrets stay in use.
    ///
    /// # Errors
    /// If a file has no secrets, or lacks keys. Each error names the file or the key.
    pub(crate) fn reload(&self) -> Vec<StartError> {
        if self.files().next().is_none() {
            return Vec::new();
        }
        let mut new = self.newest().clone();
        let mut errors = Vec::new();
        match self.files.cookies.as_deref().map(read_cookies).transpose() {
            Ok(Some(cookies)) => new.cookies = cookies.into(),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
        match read_keys(self.files.keys.as_deref(), &self.needed) {
            Ok(keys) => new.keys = keys.into(),
            Err(wrong) => errors.extend(wrong),
        }
        let change = || *self.newest() = new.clone();
        self.handover.send(change, || new.clone());
        errors
    }
}

fn random_cookies() -> io::Result<Cookies> {
    let [low, high, ..] = control::Secret::random()?.words();
    let mut secret: Secret = [0; SECRET_LEN];
    secret[..8].copy_from_slice(&low.to_ne_bytes());
    secret[8..].copy_from_slice(&high.to_ne_bytes());
    Ok(Cookies::new(&[secret], SystemTime::now))
}

fn read_cookies(path: &Path) -> Result<Cookies, StartError> {
    let secrets = read_secrets(path)
        .map_err(|error| unusable(("cookie_secret", "the cookie secrets"), path, &error))?;
    Ok(Cookies::new(&secrets, SystemTime::now))
}

/// Reads the keys of a file, if there is one. The `needed` ones must be among them.
fn read_keys(path: Option<&Path>, needed: &NeededKeys) -> Result<TsigKeys, Vec<StartError>> {
    let read = |path: &Path| {
        let unusable = |error| vec![unusable(("tsig_keys", "the TSIG keys"), path, &error).into()];
        TsigKeys::read(path).map_err(unusable)
    };
    let keys = path.map(read).transpose()?.unwrap_or_default();
    // An option with a wrong value names a file, too.
    if path.is_none() && is_wrong(0, "tsig_keys") {
        return Ok(keys);
    }
    let missing = needed.missing(&keys);
    if missing.is_empty() {
        Ok(keys)
    } else {
        Err(missing)
    }
}

/// Names a file with secrets that cannot be used, which this option names.
fn unusable((option, what): (&str, &str), path: &Path, error: &dyn std::fmt::Display) -> String {
    let (before, path) = (before(option, &path.to_string_lossy()), path.display());
    format!("{before}{what} {path} {error}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cookie::Presented;

    #[test]
    fn a_reload_reads_the_secrets_again_or_keeps_the_old_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        let [a, b] = ["0".repeat(32), "1".repeat(32)];
        fs::write(&path, &a).unwrap();
        let open = || {
            let files = SecretFiles {
                cookies: Some(path.clone()),
                keys: None,
            };
            SecretSource::open(files, NeededKeys::default())
        };
        let source = open().unwrap();
        let client = "192.0.2.7".parse().unwrap();
        let cookie = |option: &[u8]| {
            let checked = source.newest().cookies.check(option, client).unwrap();
            (checked.presented(), checked.reply())
        };
        let (_, old) = cookie(b"myCookie");
        fs::write(&path, format!("{b}\n{a}\n")).unwrap();
        assert!(source.reload().is_empty());
        let described = format!("2 secrets from {}", path.display());
        assert_eq!(source.describe(), [("cookies", described)]);
        let (presented, new) = cookie(&old);
        assert_eq!(presented, Presented::Valid);
        assert_ne!(new, old);
        fs::write(&path, "no secret").unwrap();
        let [error] = &source.reload()[..] else {
            panic!("one error")
        };
        let error = error.to_string();
        let name = path.display().to_string();
        assert!(
            error.starts_with(&format!("the cookie secrets {name} have a mistake ")),
            "{error}"
        );
        assert_eq!(cookie(&new), (Presented::Valid, new));
        fs::remove_file(&path).unwrap();
        assert_eq!(open().unwrap_err().len(), 1);
    }

    #[test]
    fn random_secrets_differ() {
        let client = "192.0.2.7".parse().unwrap();
        let random = || SecretSource::open(SecretFiles::default(), NeededKeys::default());
        let [a, b] = [random().unwrap(), random().unwrap()];
        let checked = |source: &SecretSource, option: &[u8]| {
            source.newest().cookies.check(option, client).unwrap()
        };
        let cookie = checked(&a, b"myCookie").reply();
        let checked = checked(&b, &cookie);
        assert_eq!(checked.presented(), Presented::Invalid);
        assert!(a.reload().is_empty());
        assert!(a.describe()[0].1.starts_with("a random secret"));
    }

    #[test]
    fn keys_that_options_name_must_be_in_the_file_also_after_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let key = |name| format!("key {name} {{ algorithm hmac-sha256; secret AAAA; }};\n");
        let [one, two] = ["one", "Two"].map(|name| name.parse().unwrap());
        let needed = NeededKeys::new(
            [Some(&two)].into_iter(),
            [Some(&one), Some(&two)].into_iter(),
        );
        let open = |keys| {
            let cookies = None;
            SecretSource::open(SecretFiles { cookies, keys }, needed.clone())
        };
        let error = |found: &[StartError]| {
            assert!(found.iter().all(|error| error.is::<OptionError>()));
            let lines: Vec<_> = found.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        let none = "--allow-transfer names the key Two., but there are no keys: ";
        assert!(error(&open(None).unwrap_err()).starts_with(none));
        let missing = |option: &str, key: &str| {
            format!("{option} names the key {key}., which is not in the file")
        };
        fs::write(&path, key("two")).unwrap();
        let expected = missing("--notify", "one");
        assert!(error(&open(Some(path.clone())).unwrap_err()).starts_with(&expected));
        fs::write(&path, key("three")).unwrap();
        let all = error(&open(Some(path.clone())).unwrap_err());
        let named = all.lines().map(|line| line.split(',').next().unwrap());
        let expected = [
            "--allow-transfer names the key Two.",
            "--notify names the key one.",
            "--notify names the key Two.",
        ];
        assert!(named.eq(expected), "{all}");
        fs::write(&path, key("one") + &key("two") + &key("three")).unwrap();
        let source = open(Some(path.clone())).unwrap();
        let described = format!("3 keys from {}", path.display());
        assert_eq!(source.describe()[1], ("TSIG", described));
        fs::write(&path, key("one")).unwrap();
        let expected = missing("--allow-transfer", "Two");
        assert!(error(&source.reload()).starts_with(&expected));
        assert_eq!(source.keys().len(), 3);
        fs::write(&path, key("two") + &key("one")).unwrap();
        assert!(source.reload().is_empty());
        assert_eq!(source.keys().len(), 2);
        fs::write(&path, "key").unwrap();
        let wrong = format!(
            "the TSIG keys {} have a mistake in line 1, column 4: the file ends",
            path.display()
        );
        assert!(source.reload()[0].to_string().starts_with(&wrong));
    }
}
