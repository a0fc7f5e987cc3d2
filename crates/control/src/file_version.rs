//! Versions of files, by which a reload knows what has changed.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, open, statat};

/// Minimum age of a version that is recognised, in seconds. A younger file may change again without
/// a new time, because file systems round times.
const MIN_AGE: i64 = 2;

/// What distinguishes a version of a file from others, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// Device and inode number.
    pub file: (u64, u64),
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of the content, in seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Time of the last change of the metadata, in seconds and nanoseconds.
    pub changed: (i64, i64),
}

impl FileVersion {
    /// Returns the version of a file with this metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns the version of a file with this status.
    pub fn of_stat(stat: &Stat) -> Self {
        // The type of the nanoseconds depends on the system.
        fn nanos(nanos: impl TryInto<i64>) -> i64 {
            nanos.try_into().unwrap_or_default()
        }
        Self {
            file: (stat.st_dev, stat.st_ino),
            len: stat.st_size.cast_unsigned(),
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        }
    }

    /// Returns the version of the file at `path` now. Follows links.
    ///
    /// # Errors
    /// If there is no file, or if its folder cannot be searched.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&fs::metadata(path)?))
    }

    /// Returns true if the file cannot change after `now` without a new version.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.modified.0.max(self.changed.0).saturating_add(MIN_AGE) <= now
    }
}

/// Looks for the versions of many files. While one file after the other lies in the same folder, the
/// folder stays open, so that the kernel need not search for it again.
#[derive(Debug, Default)]
pub struct FileVersions {
    /// The path of the last file's folder, with the final slash.
    folder: Vec<u8>,
    /// This folder, if several files were in it.
    open: Option<OwnedFd>,
}

impl FileVersions {
    /// Same as [`FileVersion::at`].
    ///
    /// # Errors
    /// See there.
    pub fn at(&mut self, path: &Path) -> io::Result<FileVersion> {
        let bytes = path.as_os_str().as_bytes();
        let name = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or(bytes);
        let folder = &bytes[..bytes.len() - name.len()];
        if folder.is_empty() || folder != self.folder {
            self.open = None;
            self.folder.clear();
            self.folder.extend_from_slice(folder);
            return FileVersion::at(path);
        }
        let folder = if let Some(open) = &self.open {
            open
        } else {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.open.insert(open(folder, flags, Mode::empty())?)
        };
        let stat = statat(folder, name, AtFlags::empty())?;
        Ok(FileVersion::of_stat(&stat))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_version_changes_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert!(FileVersion::at(&path).is_err());
        fs::write(&path, "1").unwrap();
        let first = FileVersion::at(&path).unwrap();
        assert_eq!(FileVersion::at(&path).unwrap(), first);
        fs::write(&path, "12").unwrap();
        assert_ne!(FileVersion::at(&path).unwrap(), first);
        fs::write(folder.path().join("b"), "1").unwrap();
        fs::rename(folder.path().join("b"), &path).unwrap();
        assert_ne!(FileVersion::at(&path).unwrap(), first);
    }

    #[test]
    fn versions_of_many_files_are_those_of_each() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        let mut versions = FileVersions::default();
        for name in ["a", "b", "c", "none", "below/d", "below/e", "link", "link"] {
            let path = folder.path().join(name);
            match name {
                "none" => {}
                "link" => drop(std::os::unix::fs::symlink("a", &path)),
                _ => fs::write(&path, name).unwrap(),
            }
            let one = FileVersion::at(&path).ok();
            assert_eq!(versions.at(&path).ok(), one, "{name}");
            assert_eq!(one.is_none(), name == "none");
        }
        assert!(versions.at(Path::new("none")).is_err());
        assert!(versions.at(Path::new("")).is_err());
    }

    #[test]
    fn a_young_file_is_not_settled() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let version = FileVersion::at(file.path()).unwrap();
        let now = SystemTime::now();
        assert!(!version.is_settled(now));
        assert!(version.is_settled(now + Duration::from_secs(3)));
    }
}
