//! Reads master files. Refuses FIFOs and devices, because reading them may block or never end.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Maximum size of a master file, in bytes (4 GiB). The records of a zone together have the same
/// limit.
const MAX_FILE: u64 = u32::MAX as u64;
/// The byte order mark that some editors write at the start of UTF-8 text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a master file.
///
/// # Errors
///
/// Returns the reason why the file cannot be read or is not text.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let bytes = read_bytes(path)?;
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
    Ok(match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => rest.to_owned(),
        None => text,
    })
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

fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
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
    if metadata.len() > MAX_FILE {
        return Err("it is larger than 4 GiB".into());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // The file may grow after its size was checked, so the number of bytes read is limited too.
    let mut file = file.take(MAX_FILE + 1);
    match file.read_to_end(&mut bytes).map_err(shown)? as u64 {
        len if len > MAX_FILE => Err("it is larger than 4 GiB".into()),
        _ => Ok(bytes),
    }
}
