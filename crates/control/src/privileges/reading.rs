//! Finds files that were read at start and that the new user cannot read again.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::content_files::ContentFiles;

/// Maximum number of files that a warning names. Further files are only counted.
const NAMED: usize = 3;

/// Files that the calling thread may not read, in the order of their paths. There is at least one.
pub(super) struct Unreadable<'a>(BTreeSet<&'a Path>);

/// Warns of those of `files` that the calling thread may not read with its current privileges. `user` is its new
/// user.
pub(super) fn warn(files: &ContentFiles, user: &str) {
    if let Some(files) = Unreadable::among(&files.served) {
        tracing::warn!("{}", files.warning(user));
    }
    if let Some(files) = Unreadable::among(&files.to_reload) {
        tracing::warn!("{}", files.warning_of_reloads(user));
    }
}

impl<'a> Unreadable<'a> {
    /// Finds those of `files` that the calling thread may not read with its current privileges. No
    /// file is opened. Returns `None` if there are no such files.
    pub(super) fn among(files: &'a [PathBuf]) -> Option<Self> {
        let files = files.iter().map(PathBuf::as_path);
        let found: BTreeSet<_> = files
            .filter(|file| {
                accessat(CWD, *file, Access::READ_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
            })
            .collect();
        (!found.is_empty()).then_some(Self(found))
    }

    /// Returns a warning for the operator, if these files are served. `user` is the new user.
    fn warning(&self, user: &str) -> String {
        format!(
            "these files are served, although the server's user cannot read them: {self}; the server \
             reads them with the privileges of its start, its user is then {user}, and only what it \
             keeps in memory can be sent; move private \
             files to a place that is not served; make the others readable with chmod, or name another \
             user with --user"
        )
    }

    /// Returns a warning for the operator, if these files are not served, but each reload reads them.
    fn warning_of_reloads(&self, user: &str) -> String {
        format!(
            "reloads will fail, because the server's user cannot read these files: {self}; the server reads \
             them with the privileges of its start, its user is then {user}; let the group of this user read \
             them, with chgrp and chmod g+r"
        )
    }
}

impl fmt::Display for Unreadable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.0.iter().take(NAMED).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{}", path.display())?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn one(file: &Path) -> Unreadable<'_> {
        Unreadable([file].into())
    }

    #[test]
    fn a_few_files_are_named_and_all_are_counted() {
        let paths = ["a", "b", "c", "d", "e"].map(PathBuf::from);
        let list_of = |count| {
            let files = paths.iter().take(count).map(PathBuf::as_path);
            Unreadable(files.collect()).to_string()
        };
        assert_eq!(list_of(1), "a");
        assert_eq!(list_of(3), "a, b, c");
        assert_eq!(list_of(5), "a, b, c and 2 more");
    }

    #[test]
    fn the_warning_says_that_the_files_are_served() {
        let file = PathBuf::from("/www/key.pem");
        let warning = one(&file).warning("nobody");
        for words in [
            "these files are served, although the server's user cannot read them: /www/key.pem;",
            "its user is then nobody, and only what it keeps in memory",
            "move private files",
            "chmod",
            "--user",
        ] {
            assert!(warning.contains(words), "{words}: {warning}");
        }
    }

    #[test]
    fn the_warning_about_reloads_says_that_they_fail() {
        let file = PathBuf::from("/etc/key");
        let warning = one(&file).warning_of_reloads("nobody");
        let start =
            "reloads will fail, because the server's user cannot read these files: /etc/key;";
        assert!(warning.starts_with(start), "{warning}");
        assert!(warning.contains("its user is then nobody"), "{warning}");
        assert!(!warning.contains("served"), "{warning}");
    }

    #[test]
    fn readable_and_missing_files_are_not_reported() {
        let file = std::env::temp_dir().join(format!("control-reading-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let removed_file = file.with_extension("gone");
        assert!(Unreadable::among(&[file.clone(), removed_file]).is_none());
        fs::remove_file(file).unwrap();
    }
}
