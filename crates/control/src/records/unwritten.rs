//! Writing as far as there is room, for lines and for frames.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// Pause after an attempt to connect, or to write on a full disk, that has failed.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Lines or frames that could not be written.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) error: io::Error,
    /// Number of these lines. A line of which only a part can ever be written is one of them.
    pub(super) lines: u64,
}

/// Writes all bytes. The error has the number of bytes that were written before it.
pub(super) fn write_all(out: &mut impl Write, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => return Err((ErrorKind::WriteZero.into(), written)),
            Ok(len) => written += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((error, written)),
        }
    }
    Ok(())
}

/// Returns true if a write may succeed later, when there is room on the disk.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}
