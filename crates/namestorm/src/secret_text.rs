//! Reads small files with secrets.

use std::io::{self, Read as _};
use std::path::Path;

use control::open_ordinary;

/// Returns the bytes of a file, or `None` if it has more than `max_len`.
///
/// # Errors
/// If the file cannot be read, or is no ordinary file. Reading a pipe, for example, may never end.
pub(crate) fn read(path: &Path, max_len: u64) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    open_ordinary(path)?
        .take(max_len + 1)
        .read_to_end(&mut text)?;
    Ok((text.len() as u64 <= max_len).then_some(text))
}
