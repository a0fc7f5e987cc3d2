//! The folders of the zone files, which the sandbox holds as they were at the start.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

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
