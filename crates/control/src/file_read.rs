//! Reads files through the kernel's page cache, from what is in it, or without it (direct I/O).
//!
//! A program with a cache of its own needs no second copy in the kernel. With direct I/O the kernel writes
//! straight to the program's memory, and does not fill and reclaim pages.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt as _;

use crate::system::{read_direct, read_if_cached, set_direct};

/// Direct reads need memory, offsets and lengths that are multiples of this number of bytes. Disks have
/// sectors of at most this size.
pub const ALIGNMENT: usize = 4096;

/// A way to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRead {
    /// Through the page cache, which keeps what is read.
    Cached,
    /// From the page cache, if all of it is there. Otherwise the kernel may begin to read it.
    IfCached,
    /// From the disk, without the page cache. The file must be [open](Self::open) for this way, and the
    /// offset and the start and the end of each buffer must be multiples of [`ALIGNMENT`].
    Direct,
}

impl FileRead {
    /// Prepares an open file for reads in this way only. Returns false if its file system, or the
    /// system, refuses direct reads.
    pub fn open(self, file: &File) -> bool {
        self != Self::Direct || set_direct(file).is_ok()
    }

    /// Reads the `len` bytes at `offset` into `buffers`, one after the other. The rest of the buffers may
    /// be overwritten. Returns false if this way is not possible.
    ///
    /// # Errors
    /// If the file cannot be read, or ends earlier, or if the buffers are shorter than `len` bytes.
    pub fn read(
        self,
        file: &File,
        buffers: &mut [IoSliceMut<'_>],
        len: usize,
        offset: u64,
    ) -> io::Result<bool> {
        let read = match self {
            Self::Cached => read_cached(file, buffers, len, offset)?,
            Self::IfCached => return Ok(read_if_cached(file, buffers, len, offset)),
            Self::Direct => match read_direct(file, buffers, offset)? {
                Some(read) => read,
                None => return Ok(false),
            },
        };
        if read < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(true)
    }
}

fn read_cached(
    file: &File,
    buffers: &mut [IoSliceMut<'_>],
    len: usize,
    offset: u64,
) -> io::Result<usize> {
    let mut read = 0;
    for buffer in buffers {
        let next = buffer.len().min(len - read);
        file.read_exact_at(&mut buffer[..next], offset + read as u64)?;
        read += next;
    }
    Ok(read)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write as _;

    use rustix::fs::{Advice, fadvise};

    use super::*;

    const LEN: usize = 3 * ALIGNMENT + 100;
    /// Number of files that a test tries.
    const TRIES: usize = 100;
    const WAYS: [FileRead; 3] = [FileRead::Cached, FileRead::IfCached, FileRead::Direct];

    /// A file with different bytes in each part, which the page cache has or has not.
    fn file(is_cached: bool) -> (tempfile::NamedTempFile, Vec<u8>) {
        let content: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).unwrap();
        file.as_file().sync_all().unwrap();
        if !is_cached {
            fadvise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        }
        (file, content)
    }

    /// Reads `len` bytes at `offset` into aligned buffers of one or two pages in turn. Returns nothing
    /// if this way is not possible.
    fn read(file: &File, way: FileRead, len: usize, offset: usize) -> io::Result<Option<Vec<u8>>> {
        let mut memory = vec![0; 16 * ALIGNMENT];
        let start = memory.as_ptr().addr();
        let mut rest = &mut memory[start.next_multiple_of(ALIGNMENT) - start..];
        let (mut buffers, mut room) = (Vec::new(), 0);
        while room < len {
            let next = (1 + buffers.len() % 2) * ALIGNMENT;
            let (buffer, others) = rest.split_at_mut(next);
            buffers.push(IoSliceMut::new(buffer));
            (rest, room) = (others, room + next);
        }
        let is_read = way.open(file) && way.read(file, &mut buffers, len, offset as u64)?;
        let read: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_vec()).collect();
        Ok(is_read.then(|| read[..len].to_vec()))
    }

    /// Whether the page cache has the first byte. Returns `None` if the file system, such as tmpfs, cannot
    /// tell.
    fn is_cached(file: &tempfile::NamedTempFile) -> Option<bool> {
        let (mut memory, flags) = ([0], rustix::io::ReadWriteFlags::NOWAIT);
        let into = &mut [IoSliceMut::new(&mut memory)];
        match rustix::io::preadv2(file.as_file(), into, 0, flags) {
            Ok(_) => Some(true),
            Err(rustix::io::Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    }

    #[test]
    fn each_way_reads_parts_and_the_end() {
        for way in WAYS {
            let (file, content) = file(true);
            let opened = file.reopen().unwrap();
            for (page, len) in [(2, ALIGNMENT + 100), (0, 2 * ALIGNMENT), (1, 10), (0, LEN)] {
                let from = page * ALIGNMENT;
                let read = read(&opened, way, len, from).unwrap();
                match way {
                    FileRead::Cached => assert!(read.is_some()),
                    FileRead::IfCached => assert_eq!(read.is_some(), is_cached(&file).is_some()),
                    FileRead::Direct => {}
                }
                assert!(read.is_none_or(|read| read == content[from..from + len]));
            }
        }
    }

    #[test]
    fn a_file_that_ends_too_early_is_an_error() {
        for way in WAYS {
            let (file, _) = file(true);
            match read(&file.reopen().unwrap(), way, LEN + 1, 0) {
                Ok(read) => assert!(way != FileRead::Cached && read.is_none(), "{way:?}"),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof),
            }
        }
        let mut memory = [0; 10];
        let short = &mut [IoSliceMut::new(&mut memory)];
        let (file, _) = file(true);
        assert!(FileRead::Cached.read(file.as_file(), short, 11, 0).is_err());
    }

    #[test]
    fn a_direct_read_leaves_nothing_in_the_page_cache() {
        // The kernel may keep pages that it is told to drop, if something else uses them at this moment.
        let left_nothing = (0..TRIES).any(|_| {
            let (file, content) = file(false);
            let direct = read(&file.reopen().unwrap(), FileRead::Direct, LEN, 0).unwrap();
            direct.is_none_or(|direct| {
                assert!(direct == content);
                // This begins to read the file into the cache, so it comes last.
                is_cached(&file) != Some(true)
            })
        });
        assert!(left_nothing);
    }

    #[test]
    fn a_file_system_that_refuses_a_way_says_so() {
        let file = File::open("/proc/sys/kernel/ostype").unwrap();
        for way in [FileRead::IfCached, FileRead::Direct] {
            assert_eq!(read(&file, way, 6, 0).unwrap(), None, "{way:?}");
        }
        let cached = read(&file, FileRead::Cached, 6, 0).unwrap();
        assert_eq!(cached.unwrap(), b"Linux\n");
    }
}
