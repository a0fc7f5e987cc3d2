//! Opens the file of a log while the process may still have the rights of root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Opens a file with these options, or makes it. Also returns whether it was made.
///
/// The folder may belong to a user with fewer rights, who could lead this process elsewhere by a symbolic
/// link. So a link to nothing makes no file. Only links of root and of this process's own user are
/// followed.
///
/// # Errors
/// The system's error, or if the path is a link of another user or to nothing.
pub(super) fn open_or_make(path: &Path, options: &mut OpenOptions) -> io::Result<(File, bool)> {
    options.mode(0o640);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return Ok((made?, true)),
    }
    let found = fs::symlink_metadata(path)?;
    if !found.is_symlink() {
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    } else if ![0, geteuid().as_raw()].contains(&found.uid()) {
        let message = "it is a symbolic link of another user; give the path of the file itself";
        return Err(io::Error::other(message));
    }
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && found.is_symlink() => {
            let message =
                "it is a symbolic link to a file that does not exist; make that file first";
            Err(io::Error::other(message))
        }
        opened => Ok((opened?, false)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn a_link_makes_no_file_and_is_followed_only_if_it_is_our_own() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let open = |name: &str| open_or_make(&at(name), OpenOptions::new().append(true));
        let is_new = |name: &str| open(name).map(|(_, is_new)| is_new).ok();
        assert_eq!(is_new("log"), Some(true));
        assert_eq!(is_new("log"), Some(false));
        symlink(at("target"), at("link")).unwrap();
        let refused = open("link").unwrap_err().to_string();
        assert!(refused.contains("make that file first"), "{refused}");
        assert!(!at("target").exists());
        fs::write(at("target"), "").unwrap();
        assert_eq!(is_new("link"), Some(false));
        // Only root can give the link away.
        if geteuid().is_root() {
            lchown(at("link"), Some(1), Some(1)).unwrap();
            let refused = open("link").unwrap_err().to_string();
            assert!(refused.contains("link of another user"), "{refused}");
        }
    }
}
