//! Opening master files: whatever a path leads to, reading it ends.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// The largest master file, in bytes.
const MAX_FILE: u64 = u32::MAX as u64;
/// What some editors put in front of UTF-8 text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a master file. A FIFO or a device is refused, not waited for.
///
/// # Errors
/// Why it cannot be read, or why what is in it is no text.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let bytes = read_bytes(path)?;
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        let line = bytes[..at].split(|byte| *byte == b'\n').count();
        return Err(format!(
            "it is no text: line {line} holds a zero byte; is it compressed, or another \
             program's binary form of the zone?"
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
    // Without NONBLOCK the opening of a FIFO waits for somebody to write.
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
    // It may grow meanwhile.
    let mut file = file.take(MAX_FILE + 1);
    match file.read_to_end(&mut bytes).map_err(shown)? as u64 {
        len if len > MAX_FILE => Err("it is larger than 4 GiB".into()),
        _ => Ok(bytes),
    }
}
