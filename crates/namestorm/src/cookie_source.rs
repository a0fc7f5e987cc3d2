//! Where the secrets of a server's cookies come from.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use control::report::counted;
use control::{Handover, StartError, Turn};
use nmio::{Bell, Mailbox};

use crate::cookie::{Cookies, SECRET_LEN, Secret, read_secrets};

/// The newest cookies of a server, and the file with their secrets, if there is one.
#[derive(Debug)]
pub(crate) struct CookieSource {
    file: Option<PathBuf>,
    newest: Mutex<Arc<Cookies>>,
    handover: Handover<Arc<Cookies>>,
}

impl CookieSource {
    /// Draws a random secret, which ends with the process.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub(crate) fn random() -> io::Result<Self> {
        let [low, high, ..] = control::Secret::random()?.words();
        let mut secret: Secret = [0; SECRET_LEN];
        secret[..8].copy_from_slice(&low.to_ne_bytes());
        secret[8..].copy_from_slice(&high.to_ne_bytes());
        Ok(Self::of(None, &[secret]))
    }

    /// Reads the secrets of a file.
    ///
    /// # Errors
    /// If the file has no secrets. The error names it.
    pub(crate) fn from_file(path: &Path) -> Result<Self, StartError> {
        Ok(Self::of(Some(path.to_owned()), &read_named(path)?))
    }

    fn of(file: Option<PathBuf>, secrets: &[Secret]) -> Self {
        Self {
            file,
            newest: Mutex::new(Arc::new(Cookies::new(secrets, SystemTime::now))),
            handover: Handover::default(),
        }
    }

    fn newest(&self) -> MutexGuard<'_, Arc<Cookies>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file with the secrets, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Describes the secrets in the words of the start block.
    pub(crate) fn describe(&self) -> String {
        match &self.file {
            Some(file) => {
                let number = counted(self.newest().secrets() as u64, "secret");
                format!("{number} from {}", file.display())
            }
            None => "a random secret, which no other server shares".to_owned(),
        }
    }

    /// Returns the newest cookies for a worker with this bell, and the mailbox for later ones.
    pub(crate) fn open(&self, bell: &Bell) -> (Arc<Cookies>, Mailbox<Turn<Arc<Cookies>>>) {
        self.handover.open(bell, || Arc::clone(&self.newest()))
    }

    /// Reads the file again, if there is one, and hands the secrets to the workers.
    ///
    /// # Errors
    /// If the file has no secrets. The old ones stay in use.
    pub(crate) fn reload(&self) -> Result<(), StartError> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let new = Arc::new(Cookies::new(&read_named(path)?, SystemTime::now));
        let change = || *self.newest() = Arc::clone(&new);
        self.handover.send(change, || Arc::clone(&new));
        Ok(())
    }
}

fn read_named(path: &Path) -> Result<Vec<Secret>, StartError> {
    read_secrets(path)
        .map_err(|error| format!("the cookie secrets {} {error}", path.display()).into())
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
        let source = CookieSource::from_file(&path).unwrap();
        let client = "192.0.2.7".parse().unwrap();
        let cookie = |option: &[u8]| {
            let checked = source.newest().check(option, client).unwrap();
            (checked.presented(), checked.reply())
        };
        let (_, old) = cookie(b"myCookie");
        fs::write(&path, format!("{b}\n{a}\n")).unwrap();
        source.reload().unwrap();
        assert_eq!(
            source.describe(),
            format!("2 secrets from {}", path.display())
        );
        let (presented, new) = cookie(&old);
        assert_eq!(presented, Presented::Valid);
        assert_ne!(new, old);
        fs::write(&path, "no secret").unwrap();
        let error = source.reload().unwrap_err().to_string();
        let name = path.display().to_string();
        assert!(
            error.starts_with(&format!("the cookie secrets {name} has no ")),
            "{error}"
        );
        assert_eq!(cookie(&new), (Presented::Valid, new));
        fs::remove_file(&path).unwrap();
        assert!(CookieSource::from_file(&path).is_err());
    }

    #[test]
    fn random_secrets_differ() {
        let client = "192.0.2.7".parse().unwrap();
        let [a, b] = [0; 2].map(|_| CookieSource::random().unwrap());
        let cookie = a.newest().check(b"myCookie", client).unwrap().reply();
        let checked = b.newest().check(&cookie, client).unwrap();
        assert_eq!(checked.presented(), Presented::Invalid);
        assert!(a.reload().is_ok() && a.describe().starts_with("a random secret"));
    }
}
