//! The folders of the zone files, which the sandbox holds as they were at the start.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, readlinkat_raw};

/// The folders of the zone files at the start: the device and the inode of each path.
#[derive(Debug)]
pub(crate) struct ZoneFolders(BTreeMap<PathBuf, (u64, u64)>);

impl ZoneFolders {
    /// Notes the folders of these files.
    pub(crate) fn of<'f>(files: impl Iterator<Item = &'f Path>) -> Self {
        let mut folders = BTreeMap::new();
        for file in files {
            let folder = match file.parent() {
                Some(folder) if folder != Path::new("") => folder,
                _ => Path::new("."),
            };
            if !folders.contains_key(folder)
                && let Some(is) = identity(folder)
            {
                folders.insert(folder.to_owned(), is);
            }
        }
        Self(folders)
    }

    /// Says which folder has taken the place of another one and cannot be read for this reason.
    pub(crate) fn replaced(&self) -> Option<String> {
        let is_replaced = |(path, was): &(&PathBuf, &(u64, u64))| {
            identity(path).is_some_and(|is| is != **was) && is_denied(path)
        };
        let (path, _) = self.0.iter().find(is_replaced)?;
        Some(format!(
            "the folder {} was replaced after the start, and the sandbox lets the server read only \
             the old one: restart the server",
            path.display()
        ))
    }
}

/// Finds the paths of files without symbolic links. This is fast if the files of a folder come one after
/// the other.
#[derive(Debug, Default)]
pub(crate) struct RealPaths {
    /// The folder of the last file.
    last: Option<Folder>,
}

#[derive(Debug)]
struct Folder {
    /// The path as it was given.
    given: PathBuf,
    /// The path without links.
    real: PathBuf,
    /// The folder itself, so that the kernel need not search for it again.
    open: OwnedFd,
}

impl RealPaths {
    /// Returns the path of a file without links, or `None` if its folder does not exist.
    pub(crate) fn of(&mut self, file: &Path) -> Option<PathBuf> {
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            return file.canonicalize().ok();
        };
        if self.last.as_ref().is_none_or(|last| last.given != folder) {
            self.last = Folder::open(folder);
        }
        let folder = self.last.as_ref()?;
        if folder.has_link(name) {
            file.canonicalize().ok()
        } else {
            Some(folder.real.join(name))
        }
    }
}

impl Folder {
    fn open(given: &Path) -> Option<Self> {
        let real = Path::new(".").join(given).canonicalize().ok()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Some(Self {
            open: open(&real, flags, Mode::empty()).ok()?,
            given: given.to_owned(),
            real,
        })
    }

    /// Returns true if the folder has a symbolic link with this name.
    fn has_link(&self, name: &OsStr) -> bool {
        let mut start = [MaybeUninit::uninit(); 1];
        readlinkat_raw(&self.open, name, &mut start[..]).is_ok()
    }
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(folder).ok()?;
    Some((found.dev(), found.ino()))
}

fn is_denied(folder: &Path) -> bool {
    fs::read_dir(folder).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_paths_have_no_links() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("a")).unwrap();
        fs::write(real.join("a/file"), "").unwrap();
        for (target, link) in [("a", "b"), ("file", "a/link"), ("none", "a/broken")] {
            std::os::unix::fs::symlink(target, real.join(link)).unwrap();
        }
        let mut paths = RealPaths::default();
        for (file, expected) in [
            ("a/file", Some("a/file")),
            ("b/file", Some("a/file")),
            ("b/link", Some("a/file")),
            ("b/new", Some("a/new")),
            ("b/broken", None),
            ("none/file", None),
        ] {
            let expected = expected.map(|path| real.join(path));
            assert_eq!(paths.of(&real.join(file)), expected, "{file}");
        }
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let found = paths.of(Path::new("Cargo.toml"));
        assert_eq!(found, Some(here.join("Cargo.toml")));
    }

    #[test]
    fn a_folder_in_the_place_of_another_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let [zones, next] = ["zones", "next"].map(|name| folder.path().join(name));
        for path in [&zones, &next] {
            fs::create_dir(path).unwrap();
        }
        let file = zones.join("a.zone");
        let folders = ZoneFolders::of([&*file, &*file, Path::new("b.zone")].into_iter());
        assert_eq!(folders.0.len(), 2);
        assert_eq!(folders.replaced(), None);
        fs::remove_dir(&zones).unwrap();
        fs::rename(&next, &zones).unwrap();
        assert_ne!(identity(&zones).as_ref(), folders.0.get(&zones));
        // Without a sandbox, the new folder can be read.
        assert_eq!(folders.replaced(), None);
    }
}
