//! Reads small files with secrets.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// Returns the bytes of a file, or `None` if it has more than `max_len`.
///
/// # Errors
/// If the file cannot be read, or is no ordinary file. Reading a pipe, for example, may never end.
pub(crate) fn read(path: &Path, max_len: u64) -> io::Result<Option<Vec<u8>>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no ordinary file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(max_len + 1).read_to_end(&mut text)?;
    Ok((text.len() as u64 <= max_len).then_some(text))
}
