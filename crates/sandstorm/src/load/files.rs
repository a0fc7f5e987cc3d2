//! Adds files to the site that is being loaded.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use super::Progress;
use super::loader::Loader;
use crate::disk::DiskFile;
use crate::root::RealPath;
use crate::site::{MAX_FILE_LEN, Version};
use crate::skipped::{Reason, unreadable};

/// A file that is loaded later.
pub(super) struct Late {
    path: PathBuf,
    real: RealPath,
    len: u64,
    version: Version,
}

impl<P: FnMut(Progress<'_>)> Loader<'_, P> {
    /// Adds a file: from the previous site if it has not changed, and else by reading it. A file that is
    /// long for the memory left is added later.
    pub(super) fn add_file(
        &mut self,
        path: &Path,
        real: RealPath,
        stat: &Stat,
    ) -> Result<(), Reason> {
        let key = key_of(path);
        let len = stat.st_size.cast_unsigned();
        self.check_limits(len)?;
        let version = version_of(stat);
        if let Some(previous) = self.previous
            && self.site.keep_file(&key, previous, Some(version))
        {
            return Ok(());
        }
        let used = self.site.totals().memory();
        let memory = self.settings.memory;
        if memory.is_some_and(|memory| memory.is_big(len, used)) {
            self.late.push(Late {
                path: path.to_owned(),
                real,
                len,
                version,
            });
            return Ok(());
        }
        self.read_or_keep(path, &real)
    }

    /// Adds the long files: the shorter ones as long as there is memory, and the others as files on the
    /// disk.
    pub(super) fn load_late(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        late.sort_by_key(|file| file.len);
        for file in late {
            if let Err(reason) = self.add_late(&file) {
                self.skip(&file.path, reason);
            }
        }
    }

    fn add_late(&mut self, file: &Late) -> Result<(), Reason> {
        self.check_limits(file.len)?;
        let used = self.site.totals().memory();
        let memory = self.settings.memory;
        if file.len <= MAX_FILE_LEN && memory.is_none_or(|memory| memory.fits(file.len, used)) {
            return self.read_or_keep(&file.path, &file.real);
        }
        // Nothing is served that cannot be read.
        file.real.file().map_err(unreadable)?;
        let (seconds, nanos) = file.version.modified;
        let modified = UNIX_EPOCH
            + Duration::new(
                seconds.try_into().unwrap_or_default(),
                nanos.unsigned_abs() as u32,
            );
        let key = key_of(&file.path);
        let on_disk = DiskFile::new(file.real.root(), file.real.below_root(), file.version);
        self.site.add_disk_file(&key, modified, Arc::new(on_disk));
        self.site.note_version(&key, file.version);
        (self.progress)(Progress::Loaded(self.site.totals()));
        Ok(())
    }

    /// Reads a file. If it changes meanwhile, it keeps the content that it has in the previous site.
    fn read_or_keep(&mut self, path: &Path, real: &RealPath) -> Result<(), Reason> {
        let key = key_of(path);
        match (self.read_file(&key, real), self.previous) {
            (Err(Reason::Changed), Some(previous)) if self.site.keep_file(&key, previous, None) => {
                let path = self.folder.join(path);
                tracing::warn!(
                    "{} changed while it was read, so it keeps its old content; reload again",
                    path.display()
                );
                Ok(())
            }
            (outcome, _) => outcome,
        }
    }

    fn check_limits(&self, len: u64) -> Result<(), Reason> {
        let totals = self.site.totals();
        if len > MAX_FILE_LEN && self.settings.memory.is_none() {
            return Err(Reason::FileTooLong { len });
        }
        if totals.files >= self.limits.files {
            let limit = self.limits.files;
            return Err(Reason::TooManyFiles { limit });
        }
        if totals.content_bytes.saturating_add(len) > self.limits.bytes {
            let limit = self.limits.bytes;
            return Err(Reason::TooManyBytes { len, limit });
        }
        Ok(())
    }

    /// Reads a file whose path in URLs is `key`.
    fn read_file(&mut self, key: &[u8], real: &RealPath) -> Result<(), Reason> {
        let mut file = real.file().map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        // The entry may have been replaced since `load` checked its type.
        if !metadata.is_file() {
            return Err(Reason::Changed);
        }
        let modified = metadata.modified().map_err(unreadable)?;
        let len = metadata.len();
        self.check_limits(len)?;
        self.site.add_file(key, modified, len as usize, |buffer| {
            read_exactly(&mut file, buffer, modified)
        })?;
        self.site.note_version(key, Version::of(&metadata));
        (self.progress)(Progress::Loaded(self.site.totals()));
        Ok(())
    }
}

/// Returns the path in URLs.
fn key_of(path: &Path) -> Vec<u8> {
    [b"/", path.as_os_str().as_bytes()].concat()
}

fn version_of(stat: &Stat) -> Version {
    // The type of the nanoseconds depends on the system.
    fn nanos(nanos: impl TryInto<i64>) -> i64 {
        nanos.try_into().unwrap_or_default()
    }
    Version {
        file: (stat.st_dev, stat.st_ino),
        len: stat.st_size.cast_unsigned(),
        modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
        changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
    }
}

/// Reads a file into `buffer`. Fails if the file's length differs from that of `buffer`, or its
/// modification time from `modified`.
pub(super) fn read_exactly(
    file: &mut File,
    buffer: &mut [u8],
    modified: SystemTime,
) -> Result<(), Reason> {
    file.read_exact(buffer)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Reason::Changed,
            _ => Reason::Unreadable(error),
        })?;
    let metadata = file.metadata().map_err(unreadable)?;
    let now = metadata.modified().map_err(unreadable)?;
    let more = file.read(&mut [0]).map_err(unreadable)?;
    if more == 0 && metadata.len() == buffer.len() as u64 && now == modified {
        Ok(())
    } else {
        Err(Reason::Changed)
    }
}
