//! Opens files that may be anything else, such as a FIFO.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Opens an ordinary file for reading. Never waits for the writer of a FIFO.
///
/// # Errors
/// If the file cannot be opened, or if it is something else. Reading a device, for example, may never end.
pub fn open_ordinary(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::other("it is a folder, not a file"));
    }
    if !kind.is_file() {
        return Err(io::Error::other(
            "it is a FIFO, a socket or a device, not a file",
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_an_ordinary_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [file, fifo] = ["file", "fifo"].map(|name| folder.path().join(name));
        fs::write(&file, "text").unwrap();
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(open_ordinary(&file).is_ok());
        let error = |path: &Path| open_ordinary(path).unwrap_err().to_string();
        assert!(error(&fifo).contains("it is a FIFO"));
        assert!(error(Path::new("/dev/null")).contains("a device"));
        assert!(error(folder.path()).contains("it is a folder"));
        assert_eq!(
            open_ordinary(&folder.path().join("none"))
                .unwrap_err()
                .kind(),
            io::ErrorKind::NotFound
        );
    }
}
