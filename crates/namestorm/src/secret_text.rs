//! Reads small files with secrets.

use std::io::{self, Read as _};
use std::path::Path;

use control::{FileVersion, open_ordinary};

/// Why a file has no text.
#[derive(Debug)]
pub(crate) enum NoText {
    /// The file cannot be read, or is no ordinary file. Reading a pipe, for example, may never end.
    Unreadable(io::Error),
    /// The file has too many bytes.
    Long,
    /// The file has changed while it was read, so a part of the secrets may be missing.
    Changed,
}

impl From<io::Error> for NoText {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Returns the bytes of a file, which may have at most `max_len`.
///
/// # Errors
/// If the file has no such text.
pub(crate) fn read(path: &Path, max_len: u64) -> Result<Vec<u8>, NoText> {
    read_with(path, max_len, || {})
}

/// Like [`read`]. Calls `when_read` after the reading.
fn read_with(path: &Path, max_len: u64, when_read: impl FnOnce()) -> Result<Vec<u8>, NoText> {
    let file = open_ordinary(path)?;
    let version = FileVersion::of(&file.metadata()?);
    let mut text = Vec::new();
    let mut file = file.take(max_len + 1);
    file.read_to_end(&mut text)?;
    when_read();
    if FileVersion::of(&file.get_ref().metadata()?) != version {
        return Err(NoText::Changed);
    }
    if text.len() as u64 > max_len {
        return Err(NoText::Long);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_changes_while_it_is_read_has_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        fs::write(&path, "one\n").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"one\n");
        assert!(matches!(read(&path, 3), Err(NoText::Long)));
        let add = || fs::write(&path, "one\ntwo\n").unwrap();
        assert!(matches!(read_with(&path, 99, add), Err(NoText::Changed)));
        assert_eq!(read(&path, 99).unwrap(), b"one\ntwo\n");
    }
}
