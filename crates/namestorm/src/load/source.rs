//! Reads master files. Refuses FIFOs and devices, because reading them may block or never end.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use control::{FileVersion, open_ordinary};

/// Maximum size of a zone's text, in bytes (4 GiB). It counts the zone's files, and the records that
/// `$GENERATE` makes. A file counts as often as it is included.
pub(super) const MAX_TEXT: u64 = u32::MAX as u64;
pub(super) const TOO_MUCH_TEXT: &str = "the files of a zone, with the records of $GENERATE, may \
                                        have at most 4 GiB of text together; divide the zone";
/// How often a file is read that changes meanwhile.
const READINGS: usize = 3;
/// The byte order mark that some editors write at the start of UTF-8 text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a master file. `left` is the number of bytes that the zone may still have, which the file
/// reduces. Returns the text, and the version of the file.
///
/// # Errors
///
/// Returns the reason why the file cannot be read or is not text.
pub(super) fn read(path: &Path, left: &mut u64) -> Result<(String, FileVersion), String> {
    let (bytes, version) = read_bytes(path, *left, || {})?;
    *left -= bytes.len() as u64;
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        let line = bytes[..at].split(|byte| *byte == b'\n').count();
        return Err(format!(
            "it is not text: line {line} holds a zero byte; is the file compressed, or another \
             program's binary zone file?"
        ));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => escape(error.as_bytes()),
    };
    let text = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => rest.to_owned(),
        None => text,
    };
    Ok((text, version))
}

/// Replaces each byte that is not part of UTF-8 text by an escape, so that its value is kept.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let backslashes = text.len() - text.trim_end_matches('\\').len();
        if !chunk.invalid().is_empty() && !backslashes.is_multiple_of(2) {
            // Before a byte beyond ASCII, a backslash changes nothing.
            text.pop();
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\{byte:03}");
        }
    }
    text
}

/// Reads the bytes of a file that has at most `limit` bytes. A file that changes meanwhile is read again,
/// because a part of a zone must not be served. `when_read` is called after each reading.
fn read_bytes(
    path: &Path,
    limit: u64,
    mut when_read: impl FnMut(),
) -> Result<(Vec<u8>, FileVersion), String> {
    let reading = |_| read_once(path, limit, &mut when_read).transpose();
    let mut readings = (0..READINGS).filter_map(reading);
    let changed = || Err("it changed while it was read; reload again when it is complete".into());
    readings.next().unwrap_or_else(changed)
}

/// Reads the bytes of a file, or returns `None` if it has changed meanwhile.
fn read_once(
    path: &Path,
    limit: u64,
    when_read: impl FnOnce(),
) -> Result<Option<(Vec<u8>, FileVersion)>, String> {
    let shown = |error: std::io::Error| error.to_string();
    let file = open_ordinary(path).map_err(shown)?;
    let metadata = file.metadata().map_err(shown)?;
    if metadata.len() > limit {
        return Err(TOO_MUCH_TEXT.into());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // The file may grow after its size was checked, so the number of bytes read is limited too.
    let mut file = file.take(limit + 1);
    let len = file.read_to_end(&mut bytes).map_err(shown)? as u64;
    if len > limit {
        return Err(TOO_MUCH_TEXT.into());
    }
    when_read();
    let version = FileVersion::of(&metadata);
    let now = FileVersion::of(&file.get_ref().metadata().map_err(shown)?);
    Ok((now == version).then_some((bytes, version)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again_and_never_in_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zone");
        for (changes, is_whole) in [(0, true), (1, true), (READINGS, false)] {
            fs::write(&path, "begin\n").unwrap();
            let mut left = changes;
            let write = || {
                if left > 0 {
                    left -= 1;
                    let text = fs::read_to_string(&path).unwrap();
                    fs::write(&path, text + "more\n").unwrap();
                }
            };
            let read = read_bytes(&path, MAX_TEXT, write);
            assert_eq!(read.is_ok(), is_whole, "{changes} changes: {read:?}");
            if let Ok((bytes, version)) = read {
                assert_eq!(bytes, fs::read(&path).unwrap());
                assert_eq!(version, FileVersion::at(&path).unwrap());
            }
        }
    }
}
