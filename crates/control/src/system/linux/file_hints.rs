//! Hints of the kernel about files that have changed (inotify).

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};

/// Maximum number of folders that are watched. The kernel keeps some memory for each.
const MAX_FOLDERS: usize = 4_096;
/// Maximum number of events that one call reads. The kernel keeps about as many unless it is told otherwise.
const MAX_EVENTS: usize = 16_384;
/// Number of bytes that one system call reads, which is enough for any event.
const BUFFER: usize = 16 << 10;
/// A file was written and closed, or another file has taken its place.
const CHANGES: WatchFlags = WatchFlags::CLOSE_WRITE.union(WatchFlags::MOVED_TO);

/// Hints about files that have changed, so that a reload need not look at all files first.
///
/// Nothing may depend on a hint. The kernel does not see each change of each file system, and forgets changes
/// if there are too many. No thread waits for changes: the kernel keeps them until somebody asks.
#[derive(Debug)]
pub struct FileHints {
    /// It is `None` if the kernel has no inotify left.
    inotify: Option<OwnedFd>,
    /// The paths of each folder, as the paths of its files have them. Links can give a folder several paths.
    folders: HashMap<i32, Vec<PathBuf>>,
}

impl FileHints {
    /// Begins to watch the folders of these files.
    pub fn about<'f>(files: impl Iterator<Item = &'f Path>) -> Self {
        let mut hints = Self {
            inotify: init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
            folders: HashMap::new(),
        };
        let mut seen = HashSet::new();
        let mut last = None;
        for folder in files.filter_map(Path::parent) {
            // The files of a folder mostly come one after the other.
            if last.replace(folder) == Some(folder) || !seen.insert(folder) {
                continue;
            }
            if seen.len() > MAX_FOLDERS {
                break;
            }
            hints.watch(folder);
        }
        hints
    }

    /// Watches a folder. Its files have no hints if the kernel refuses.
    fn watch(&mut self, folder: &Path) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        if let Ok(watch) = add_watch(inotify, Path::new(".").join(folder), CHANGES) {
            let paths = self.folders.entry(watch).or_default();
            paths.push(folder.to_owned());
        }
    }

    /// Takes the paths of the files that have changed since the last call.
    pub fn take(&self) -> HashSet<PathBuf> {
        let mut changed = HashSet::new();
        let Some(inotify) = &self.inotify else {
            return changed;
        };
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(inotify, &mut buffer);
        for _ in 0..MAX_EVENTS {
            // An error means that there are no more events.
            let Ok(event) = reader.next() else {
                break;
            };
            let folders = self.folders.get(&event.wd());
            if let (Some(folders), Some(name)) = (folders, event.file_name()) {
                let name = OsStr::from_bytes(name.to_bytes());
                changed.extend(folders.iter().map(|folder| folder.join(name)));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_that_are_written_or_replaced_have_hints() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("below")).unwrap();
        let files = ["a", "b", "below/c"].map(path);
        for file in &files {
            fs::write(file, "1").unwrap();
        }
        let hints = FileHints::about(files.iter().map(PathBuf::as_path));
        fs::read(&files[0]).unwrap();
        assert!(hints.take().is_empty());
        fs::write(&files[2], "2").unwrap();
        fs::write(path("next"), "2").unwrap();
        fs::rename(path("next"), &files[1]).unwrap();
        fs::create_dir(path("new")).unwrap();
        let changed = [path("next"), files[1].clone(), files[2].clone()];
        assert_eq!(hints.take(), HashSet::from(changed));
        assert!(hints.take().is_empty());
    }

    #[test]
    fn a_file_of_a_folder_with_two_paths_has_a_hint_for_each_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("real")).unwrap();
        symlink("real", path("link")).unwrap();
        let files = ["real/a", "link/b"].map(path);
        let hints = FileHints::about(files.iter().map(PathBuf::as_path));
        fs::write(path("real/a"), "1").unwrap();
        assert_eq!(hints.take(), HashSet::from(["real/a", "link/a"].map(path)));
    }

    #[test]
    fn a_file_of_the_current_folder_has_the_path_that_was_given() {
        let hints = FileHints::about([Path::new("Cargo.toml")].into_iter());
        let folders: Vec<_> = hints.folders.values().flatten().collect();
        assert_eq!(folders, [Path::new("")]);
        let none = FileHints::about([Path::new("/none/a.zone")].into_iter());
        assert!(none.folders.is_empty() && none.take().is_empty());
    }
}
