//! Checks files that a server is going to write, without making them.

use std::io;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Checks that a file can be written, or made if it does not exist.
pub(crate) fn check_file(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    match access(path, Access::WRITE_OK) {
        Err(Errno::NOENT) => check_folder(path),
        checked => Ok(checked?),
    }
}

/// Checks that files can be made and removed in the folder of `path`.
pub(crate) fn check_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}
