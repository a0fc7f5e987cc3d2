//! Reads files, and notices if they change meanwhile.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::time::SystemTime;

use crate::skipped::{Reason, unreadable};

/// Fills `buffer` from a file. Returns true if the file has more bytes. A single call reads a short file
/// and finds its end.
fn read_all(file: &mut File, buffer: &mut [u8]) -> io::Result<bool> {
    let mut next = [0];
    let mut both = [IoSliceMut::new(buffer), IoSliceMut::new(&mut next)];
    let len = loop {
        match file.read_vectored(&mut both) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => break outcome?,
        }
    };
    if len < buffer.len() {
        file.read_exact(&mut buffer[len..])?;
        return Ok(file.read(&mut next)? > 0);
    }
    Ok(len > buffer.len())
}

/// Reads a file into `buffer`. Fails if the file's length differs from that of `buffer`, or its
/// modification time from `modified`.
pub(super) fn read_exactly(
    file: &mut File,
    buffer: &mut [u8],
    modified: SystemTime,
) -> Result<(), Reason> {
    let has_more = read_all(file, buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Reason::Changed,
        _ => Reason::Unreadable(error),
    })?;
    let metadata = file.metadata().map_err(unreadable)?;
    let now = metadata.modified().map_err(unreadable)?;
    if !has_more && metadata.len() == buffer.len() as u64 && now == modified {
        Ok(())
    } else {
        Err(Reason::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("four");
        std::fs::write(&path, "four").unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let before = modified - std::time::Duration::from_nanos(1);
        for (len, modified, right) in [
            (3, modified, false),
            (4, modified, true),
            (5, modified, false),
            (4, before, false),
        ] {
            let mut file = File::open(&path).unwrap();
            let outcome = read_exactly(&mut file, &mut vec![0; len], modified);
            assert_eq!(outcome.is_ok(), right);
            assert!(right || matches!(outcome, Err(Reason::Changed)));
        }
    }
}
