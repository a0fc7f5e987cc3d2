//! Reads master files, without blocking on a FIFO or reading from a device endlessly.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Maximum size of a master file, in bytes.
const MAX_FILE: u64 = u32::MAX as u64;
/// The byte order mark that some editors write at the start of UTF-8 text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a master file. Refuses FIFOs and devices instead of waiting for them.
///
/// # Errors
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
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    Ok(match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let shown = |error: std::io::Error| error.to_string();
    // Without NONBLOCK, opening a FIFO waits for a writer.
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
    // The size was checked, but the file may grow while it is read.
    let mut file = file.take(MAX_FILE + 1);
    match file.read_to_end(&mut bytes).map_err(shown)? as u64 {
        len if len > MAX_FILE => Err("it is larger than 4 GiB".into()),
        _ => Ok(bytes),
    }
}
