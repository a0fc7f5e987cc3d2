//! Opens the file of a log while the process may still have the rights of root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::writable::check_file;

/// Why a log's file is not opened, although the system would open it or has another reason. The message has the
/// remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("it is a symbolic link of another user; give the path of the file itself")]
    LinkOfAnother,
    #[error("it is a symbolic link to a file that does not exist; make that file first")]
    LinkToNothing,
    #[error("nobody reads this pipe; start the program that reads it first")]
    NoReader,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::other(refused)
    }
}

/// Opens a file with these options and flags. Does not wait for the reader of a pipe, but writes to the file
/// will wait.
///
/// # Errors
/// The system's error, also if nobody reads a pipe.
pub(super) fn open_at_once(path: &Path, options: &OpenOptions, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK;
    let mut options = options.clone();
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| {
        let has_no_reader = error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
        if has_no_reader && is_pipe(path) {
            Refused::NoReader.into()
        } else {
            error
        }
    })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Returns true if there is a pipe at this path.
pub(super) fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

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
    Ok((open_old(path, options)?, false))
}

/// Checks that a log can be appended to a file, without making it. A pipe is not opened, because its reader
/// would see an end.
///
/// # Errors
/// Those of [`open_or_make`].
pub(super) fn check_log(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err() || is_pipe(path) {
        return check_file(path);
    }
    open_old(path, OpenOptions::new().append(true)).map(drop)
}

/// Opens a file that exists, as [`open_or_make`] does.
fn open_old(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let mut flags = OFlags::empty();
    let found = fs::symlink_metadata(path)?;
    if !found.is_symlink() {
        flags = OFlags::NOFOLLOW;
    } else if ![0, geteuid().as_raw()].contains(&found.uid()) {
        return Err(Refused::LinkOfAnother.into());
    }
    match open_at_once(path, options, flags) {
        Err(error) if error.kind() == ErrorKind::NotFound && found.is_symlink() => {
            Err(Refused::LinkToNothing.into())
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    fn refused(error: &io::Error) -> Option<Refused> {
        error.get_ref()?.downcast_ref().copied()
    }

    #[test]
    fn a_pipe_without_a_reader_is_no_file_to_wait_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        mkfifoat(CWD, &path, mode).unwrap();
        let open = || open_or_make(&path, OpenOptions::new().append(true));
        assert_eq!(refused(&open().unwrap_err()), Some(Refused::NoReader));
        let mut both = File::options();
        let _reader = both.read(true).write(true).open(&path).unwrap();
        let (file, is_new) = open().unwrap();
        let flags = fcntl_getfl(&file).unwrap();
        assert!(!is_new && !flags.contains(OFlags::NONBLOCK) && flags.contains(OFlags::APPEND));
    }

    #[test]
    fn a_check_finds_what_opening_would_fail_with_and_makes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(at("none"), at("link")).unwrap();
        fs::write(at("file"), "text").unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["link", "folder", "none/log", "file/log", "file", "new"] {
            let checked = check_log(&at(name)).map_err(|error| error.to_string());
            assert!(!at("new").exists() && !at("none").exists());
            let opened = open_or_make(&at(name), OpenOptions::new().append(true));
            let opened = opened.map(drop).map_err(|error| error.to_string());
            assert_eq!(checked, opened, "{name}");
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"text");
    }

    #[test]
    fn a_link_makes_no_file_and_is_followed_only_if_it_is_our_own() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let open = |name: &str| open_or_make(&at(name), OpenOptions::new().append(true));
        let is_new = |name: &str| open(name).map(|(_, is_new)| is_new).ok();
        assert_eq!(is_new("log"), Some(true));
        assert_eq!(is_new("log"), Some(false));
        symlink(at("target"), at("link")).unwrap();
        let error = open("link").unwrap_err();
        assert_eq!(refused(&error), Some(Refused::LinkToNothing));
        assert!(!at("target").exists());
        fs::write(at("target"), "").unwrap();
        assert_eq!(is_new("link"), Some(false));
        // Only root can give the link away.
        if geteuid().is_root() {
            lchown(at("link"), Some(1), Some(1)).unwrap();
            let error = open("link").unwrap_err();
            assert_eq!(refused(&error), Some(Refused::LinkOfAnother));
        }
    }
}
