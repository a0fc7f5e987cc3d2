//! Reads master files. Refuses FIFOs and devices, because reading them may block or never end.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use control::FileVersion;
use rustix::fs::{Mode, OFlags, open};

/// Maximum size of a zone's text, in bytes (4 GiB). The text is that of its files, and of the
/// records that `$GENERATE` makes. A file counts as often as it is included.
pub(super) const MAX_TEXT: u64 = u32::MAX as u64;
pub(super) const TOO_MUCH_TEXT: &str = "the files of a zone, with the records of $GENERATE, may \
                                        have at most 4 GiB of text together; divide the zone";
/// The byte order mark that some editors write at the start of UTF-8 text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a master file. `left` is the number of bytes that the zone may still have, which the file
/// reduces. Returns the text, and the version of the file.
///
/// # Errors
///
/// Returns the reason why the file cannot be read or is not text.
pub(super) fn read(path: &Path, left: &mut u64) -> Result<(String, FileVersion), String> {
    let (bytes, version) = read_bytes(path, *left)?;
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

/// Reads the bytes of a file that has at most `limit` bytes.
fn read_bytes(path: &Path, limit: u64) -> Result<(Vec<u8>, FileVersion), String> {
    let shown = |error: std::io::Error| error.to_string();
    // Without NONBLOCK, opening a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|error| shown(error.into()))?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(shown)?;
    if metadata.is_dir() {
        return Err("it is a folder, not a file".into());
    }
    if !metadata.is_file() {
        return Err("it is a FIFO, a socket or a device, not a file".into());
    }
    if metadata.len() > limit {
        return Err(TOO_MUCH_TEXT.into());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // The file may grow after its size was checked, so the number of bytes read is limited too.
    let mut file = file.take(limit + 1);
    match file.read_to_end(&mut bytes).map_err(shown)? as u64 {
        len if len > limit => Err(TOO_MUCH_TEXT.into()),
        _ => Ok((bytes, FileVersion::of(&metadata))),
    }
}
