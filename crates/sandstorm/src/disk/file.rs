//! A file on the disk, in the version that is served.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::ops::Deref;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arrayvec::ArrayVec;
use control::{FileRead, FileVersion};
use rustix::io::Errno;

use super::buffer::Buffer;
use crate::root::{RealPath, Root};

/// Length of a chunk in bytes. The last chunk of a file may be shorter.
pub(crate) const CHUNK_LEN: usize = 64 << 10;

/// Minimum length in bytes of a file that is read directly. With shorter ones, direct reads would save less
/// than their aligned memory costs.
const MIN_DIRECT: usize = 16 << 10;

/// Maximum number of chunks that are read with one call. A disk delivers more with fewer, longer reads.
pub(crate) const MAX_TOGETHER: usize = 4;

/// A file on the disk, in the version that is served.
#[derive(Debug)]
pub(crate) struct DiskFile {
    number: u32,
    root: Arc<Root>,
    /// The path below the root, without symbolic links.
    path: Box<Path>,
    version: FileVersion,
    /// Whether a read has found another version.
    has_changed: AtomicBool,
    /// Number of responses that are sending it.
    in_use: AtomicU32,
}

/// A file while a response sends it. It stays open for that time, so its end can be read even after it was
/// replaced.
#[derive(Debug)]
pub(crate) struct InUse(Arc<DiskFile>);

impl InUse {
    pub(crate) fn new(file: &Arc<DiskFile>) -> Self {
        file.in_use.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(file))
    }
}

impl Deref for InUse {
    type Target = Arc<DiskFile>;

    fn deref(&self) -> &Arc<DiskFile> {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a chunk could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The file has another version than the one that is served.
    #[error("changed since it was loaded; reload it")]
    Changed,
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            // The file was removed, or replaced by another kind of entry.
            Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Self::Changed,
            // It was made shorter.
            None if error.kind() == ErrorKind::UnexpectedEof => Self::Changed,
            _ => Self::Unreadable(error),
        }
    }
}

impl DiskFile {
    /// Describes the file at `path` below `root`, which must not contain symbolic links.
    pub(crate) fn new(root: &Arc<Root>, path: &Path, version: FileVersion) -> Self {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            root: Arc::clone(root),
            path: path.into(),
            version,
            has_changed: AtomicBool::new(false),
            in_use: AtomicU32::new(0),
        }
    }

    /// Whether a response is sending the file.
    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) > 0
    }

    /// Notes whether the file has another version than the one that is served.
    pub(crate) fn note_change(&self, has_changed: bool) {
        self.has_changed.store(has_changed, Ordering::Relaxed);
    }

    /// Whether a read has found another version than the one that is served. What is in memory of the file
    /// would then be the start of a response without an end.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed)
    }

    /// A number that no other file of this process has.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.version.len as usize
    }

    /// The path below the folder that is served.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is at this place.
    pub(crate) fn is_at(&self, place: &RealPath) -> bool {
        self.root.is_same(place.root()) && *self.path == *place.below_root()
    }

    /// Length of the chunk with this index, in bytes.
    pub(crate) fn chunk_len(&self, chunk: u32) -> usize {
        let from = chunk as usize * CHUNK_LEN;
        CHUNK_LEN.min(self.len().saturating_sub(from))
    }

    /// Whether the file is read without the kernel's page cache, if possible.
    pub(super) fn is_direct(&self) -> bool {
        self.len() >= MIN_DIRECT
    }

    /// Memory for the chunk with this index, in bytes.
    pub(super) fn buffer_len(&self, chunk: u32) -> usize {
        Buffer::len_for(self.chunk_len(chunk), self.is_direct())
    }

    /// Opens the file at its path, whatever version is there.
    pub(crate) fn open(&self) -> Result<File, ReadError> {
        Ok(self.root.file(&self.path)?)
    }

    /// Whether an open file has the version that is served. The time of the metadata does not count, because a
    /// new name or new permissions change it too.
    pub(super) fn is_version_of(&self, file: &File) -> Result<bool, ReadError> {
        let now = FileVersion::of(&file.metadata()?);
        Ok(self.version
            == FileVersion {
                changed: self.version.changed,
                ..now
            })
    }

    /// Reads chunks from the open file into `buffers`, from the one with the index `first` on. At most
    /// [`MAX_TOGETHER`] chunks are read. The version is checked afterwards, so that no byte of a later version
    /// is used. Returns false if this way is not possible.
    pub(crate) fn read(
        &self,
        file: &File,
        first: u32,
        buffers: &mut [Buffer],
        way: FileRead,
    ) -> Result<bool, ReadError> {
        let mut len = 0;
        let mut into = ArrayVec::<_, MAX_TOGETHER>::new();
        for (chunk, buffer) in (first..).zip(buffers).take(MAX_TOGETHER) {
            let chunk_len = self.chunk_len(chunk);
            into.push(IoSliceMut::new(
                buffer.writable(chunk_len, self.is_direct()),
            ));
            len += chunk_len;
        }
        let offset = u64::from(first) * CHUNK_LEN as u64;
        let outcome = way.read(file, &mut into, len, offset);
        if !matches!(outcome, Ok(false)) {
            // A file that was made shorter cannot be read.
            self.check(file)?;
        }
        Ok(outcome?)
    }

    /// Reads the first bytes, at most `len` of them.
    pub(crate) fn read_start(&self, len: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; len.min(self.len())];
        self.open()?.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Reads the whole file.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>, ReadError> {
        let file = self.open()?;
        let mut bytes = vec![0; self.len()];
        file.read_exact_at(&mut bytes, 0)?;
        self.check(&file)?;
        Ok(bytes)
    }

    /// Fails if the open file has another version than the one that is served, and notes that. A file that is
    /// absent is not noted, because it may come back.
    pub(super) fn check(&self, file: &File) -> Result<(), ReadError> {
        if self.is_version_of(file)? {
            Ok(())
        } else {
            self.note_change(true);
            Err(ReadError::Changed)
        }
    }
}
