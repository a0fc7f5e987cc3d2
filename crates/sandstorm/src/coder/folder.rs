//! Keeps coded forms in a folder, one file for each. Several servers can share the folder.
//!
//! A file consists of the coded bytes and a checksum of [`CHECKSUM_LEN`] bytes. Without coded
//! bytes, the file says that the form is not worth its memory. The checksum also depends on the
//! file's name, so a file that was renamed does not match. A server that stops in the middle leaves
//! a file whose name begins with a dot, and no server reads that file.
//!
//! The checksum reveals damage, but no forgery. Only users whom the operator trusts may have write
//! access to the folder.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use super::form::Form;

/// Length of the checksum at the end of each file, in bytes.
const CHECKSUM_LEN: usize = size_of::<u128>();

/// Access rights of new files, which the process's umask restricts further.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);

/// An open folder of coded forms.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    descriptor: OwnedFd,
    /// Becomes false after the first error, and then the folder is only read.
    is_writable: AtomicBool,
}

impl Folder {
    /// Opens the folder.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = openat(CWD, &path, flags, Mode::empty())?;
        Ok(Self {
            path,
            descriptor,
            is_writable: AtomicBool::new(true),
        })
    }

    /// Returns the coded bytes of a form. They are empty if the form is not worth its memory. A
    /// file that does not match its name is removed.
    pub(super) fn read(&self, form: Form) -> Option<Vec<u8>> {
        let name = form.file_name();
        match self.read_file(&name, form.key.content_len()) {
            Ok(coded) => Some(coded),
            Err(Unread::Unavailable) => None,
            Err(Unread::Damaged) => {
                tracing::debug!("{name} in {} is damaged", self.path.display());
                // If removing fails, the file stays without effect.
                let _ = unlinkat(&self.descriptor, &name, AtFlags::empty());
                None
            }
        }
    }

    fn read_file(&self, name: &str, max_len: u64) -> Result<Vec<u8>, Unread> {
        // A named pipe without a writer must not block the server.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::CLOEXEC;
        let file = openat(&self.descriptor, name, flags, Mode::empty());
        let mut file: File = file.map_err(Unread::from)?.into();
        let metadata = file.metadata().map_err(|_| Unread::Unavailable)?;
        let lengths = CHECKSUM_LEN as u64..=max_len.saturating_add(CHECKSUM_LEN as u64);
        if !metadata.is_file() || !lengths.contains(&metadata.len()) {
            return Err(Unread::Damaged);
        }
        let mut bytes = vec![0; metadata.len() as usize];
        file.read_exact(&mut bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Unread::Damaged,
                _ => Unread::Unavailable,
            })?;
        let coded_len = bytes.len() - CHECKSUM_LEN;
        if bytes[coded_len..] != checksum(name, &bytes[..coded_len]) {
            return Err(Unread::Damaged);
        }
        bytes.truncate(coded_len);
        Ok(bytes)
    }

    /// Writes a form, and replaces an earlier file of the same name. `coded` is empty if the form is
    /// not worth its memory. Returns false if the folder does not hold the form.
    pub(super) fn write(&self, form: Form, coded: &[u8]) -> bool {
        if !self.is_writable.load(Ordering::Relaxed) {
            return false;
        }
        let Err(error) = self.write_file(&form.file_name(), coded) else {
            return true;
        };
        if self.is_writable.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                "cannot write compressed files to {}: {error}; they stay in memory until the \
                 server ends. Give this user write access and disk space there, and start again",
                self.path.display()
            );
        }
        false
    }

    fn write_file(&self, name: &str, coded: &[u8]) -> io::Result<()> {
        let folder = &self.descriptor;
        // The standard library's hasher has random keys, which differ between servers.
        let random = RandomState::new().hash_one(name);
        let temporary = format!(".{name}.{random:016x}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file: File = openat(folder, &temporary, flags, FILE_MODE)?.into();
        let written = file
            .write_all(coded)
            .and_then(|()| file.write_all(&checksum(name, coded)))
            .and_then(|()| Ok(renameat(folder, &temporary, folder, name)?));
        if written.is_err() {
            let _ = unlinkat(folder, &temporary, AtFlags::empty());
        }
        written
    }
}

/// Why a file was not read.
enum Unread {
    /// The file does not exist or cannot be read.
    Unavailable,
    /// The file is not what a server has written, and should be removed.
    Damaged,
}

impl From<Errno> for Unread {
    /// Maps an error from opening a file. The kernel reports `ELOOP` for a symbolic link.
    fn from(errno: Errno) -> Self {
        if errno == Errno::LOOP {
            Self::Damaged
        } else {
            Self::Unavailable
        }
    }
}

/// Returns the checksum of the file `name` with these coded bytes.
fn checksum(name: &str, coded: &[u8]) -> [u8; CHECKSUM_LEN] {
    xxh3_128_with_seed(coded, xxh3_64(name.as_bytes())).to_le_bytes()
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
