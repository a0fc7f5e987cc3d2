//! Adds files to the site that is being loaded.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use control::FileVersion;
use rustix::fs::Stat;

use super::loader::{Late, Loader};
use super::names::key_of;
use super::progress::Progress;
use super::reading::{self, FileContent, FileReaders, Job, Read};
use super::unchanged::read_exactly;
use crate::date::time_of;
use crate::disk::DiskFile;
use crate::limits::MAX_FILE_LEN;
use crate::root::{FilePlace, RealPath};
use crate::site::Site;
use crate::skipped::{Reason, unreadable};

/// Memory of the heads and tables of a file, in bytes, as long as it is only estimated.
const MEMORY_PER_FILE: u64 = 1_300;

/// Number of files after which further ones are read on other threads.
pub(super) const MANY: u64 = 1_000;

impl<P: FnMut(Progress<'_>)> Loader<'_, P> {
    /// Adds a file: from the previous site if it has not changed, and else by reading it. A file that is
    /// long for the memory left is added later. If a link leads to the file, `target` is its path.
    pub(super) fn add_file(
        &mut self,
        path: &Path,
        target: Option<&RealPath>,
        stat: &Stat,
    ) -> Result<(), Reason> {
        let key = key_of(path);
        let len = stat.st_size.cast_unsigned();
        if self.check_limits(len, self.in_hand()).is_err() {
            // Some of the files that are being read may turn out to be unreadable.
            self.add_rest();
        }
        self.check_limits(len, (0, 0))?;
        let version = FileVersion::of_stat(stat);
        if let Some(previous) = self.previous
            && !self.has_moved(path, target, previous)
            && self.site.keep_file(&key, previous, Some(version))
        {
            return Ok(());
        }
        let (files, bytes) = self.in_hand();
        let used = self.site.totals().memory() + bytes + files * MEMORY_PER_FILE;
        let memory = self.settings.memory;
        if memory.is_some_and(|memory| memory.is_big(len, used)) {
            self.late.push(Late {
                path: path.to_owned(),
                real: self.real(path, target),
                len,
                version,
            });
            return Ok(());
        }
        let (place, is_inside) = match self.open.last() {
            Some(folder) if target.is_none() => (folder.place(path), folder.is_inside()),
            _ => (FilePlace::Real(self.real(path, target)), false),
        };
        if is_inside && len <= reading::MAX_LEN && self.reads_on_threads() {
            self.read_later(path, place, len);
            return Ok(());
        }
        self.read_or_keep(path, place.open())
    }

    /// Whether a file was on the disk at another place. It has the same version there if a folder around
    /// it has another name now, or if a link leads to it.
    fn has_moved(&self, path: &Path, target: Option<&RealPath>, previous: &Site) -> bool {
        let known = previous.disk_file(&key_of(path));
        known.is_some_and(|file| !file.is_at(&self.real(path, target)))
    }

    /// Whether files are read on other threads. They are if there are many, unless they must be added
    /// before their folder is left. A reload has no other threads, and reads only what has changed.
    fn reads_on_threads(&mut self) -> bool {
        let is_first = self.previous.is_none() && !self.settings.listings;
        if self.reading.is_none() && is_first && self.site.totals().files >= self.threads_from {
            self.reading = FileReaders::start().ok();
            // If there are no threads, this one reads all files.
            self.threads_from = u64::MAX;
        }
        self.reading.is_some()
    }

    /// Has a file read on another thread, and adds files that were read before.
    fn read_later(&mut self, path: &Path, place: FilePlace, len: u64) {
        let job = Job {
            path: path.to_owned(),
            place,
            len,
        };
        let read = self.reading.as_mut().map(|reading| reading.add(job));
        self.add_all(read.unwrap_or_default());
    }

    /// Number and length of the files that are being read.
    fn in_hand(&self) -> (u64, u64) {
        let reading = self.reading.as_ref();
        reading.map_or((0, 0), |reading| (reading.files(), reading.bytes()))
    }

    /// Adds all files that are being read.
    pub(super) fn add_rest(&mut self) {
        while let Some(reading) = &mut self.reading {
            let read = reading.take_rest();
            if read.is_empty() {
                return;
            }
            self.add_all(read);
        }
    }

    fn add_all(&mut self, read: Vec<Read>) {
        for Read { path, content, .. } in read {
            let added = content.and_then(|content| self.add_content(&path, &content));
            if let Err(reason) = added {
                self.skip(&path, reason);
            }
        }
    }

    fn add_content(&mut self, path: &Path, content: &FileContent) -> Result<(), Reason> {
        let FileContent {
            bytes,
            modified,
            version,
        } = content;
        self.check_limits(bytes.len() as u64, (0, 0))?;
        let key = key_of(path);
        self.site.add_file(&key, *modified, bytes.len(), |buffer| {
            buffer.copy_from_slice(bytes);
            Ok::<_, Reason>(())
        })?;
        self.site.note_version(&key, *version);
        (self.progress)(Progress::Loaded(self.site.totals()));
        Ok(())
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
        self.check_limits(file.len, (0, 0))?;
        let used = self.site.totals().memory();
        let memory = self.settings.memory;
        if file.len <= MAX_FILE_LEN && memory.is_none_or(|memory| memory.fits(file.len, used)) {
            return self.read_or_keep(&file.path, file.real.file());
        }
        // Nothing is served that cannot be read.
        file.real.file().map_err(unreadable)?;
        let modified = time_of(file.version.modified.0);
        let key = key_of(&file.path);
        let on_disk = DiskFile::new(file.real.root(), file.real.below_root(), file.version);
        self.site.add_disk_file(&key, modified, Arc::new(on_disk));
        self.site.note_version(&key, file.version);
        (self.progress)(Progress::Loaded(self.site.totals()));
        Ok(())
    }

    /// Reads a file. If it changes meanwhile, it keeps the content that it has in the previous site.
    fn read_or_keep(&mut self, path: &Path, file: io::Result<File>) -> Result<(), Reason> {
        let key = key_of(path);
        match (self.read_file(&key, file), self.previous) {
            (Err(Reason::Changed), Some(previous)) if self.site.keep_file(&key, previous, None) => {
                self.site.add_outdated();
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

    /// Checks that the limits allow one more file of `len` bytes, besides the loaded files and the number
    /// and length of `others`.
    fn check_limits(&self, len: u64, others: (u64, u64)) -> Result<(), Reason> {
        let totals = self.site.totals();
        if len > MAX_FILE_LEN && self.settings.memory.is_none() {
            return Err(Reason::FileTooLong { len });
        }
        if totals.files + others.0 >= self.limits.files {
            let limit = self.limits.files;
            return Err(Reason::TooManyFiles { limit });
        }
        let bytes = totals.content_bytes.saturating_add(others.1);
        if bytes.saturating_add(len) > self.limits.bytes {
            let limit = self.limits.bytes;
            return Err(Reason::TooManyBytes { len, limit });
        }
        Ok(())
    }

    /// Reads a file whose path in URLs is `key`.
    fn read_file(&mut self, key: &[u8], file: io::Result<File>) -> Result<(), Reason> {
        let mut file = file.map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        // The entry may have been replaced since `load` checked its type.
        if !metadata.is_file() {
            return Err(Reason::Changed);
        }
        let modified = metadata.modified().map_err(unreadable)?;
        let len = metadata.len();
        self.check_limits(len, (0, 0))?;
        self.site.add_file(key, modified, len as usize, |buffer| {
            read_exactly(&mut file, buffer, modified)
        })?;
        self.site.note_version(key, FileVersion::of(&metadata));
        (self.progress)(Progress::Loaded(self.site.totals()));
        Ok(())
    }
}
