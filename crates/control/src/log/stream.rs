//! A standard stream that may fail.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::{Errno, write};

/// A standard stream. Lines that cannot be written are counted, and the next line that can be written
/// comes after one about them.
#[derive(Debug)]
pub(super) struct Stream(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Number of lines that are lost and not yet told.
    lost: u64,
    /// Whether the stream ends with a part of a line.
    is_cut: bool,
}

impl Stream {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(State {
            lost: 0,
            is_cut: false,
        }))
    }

    /// Writes a line to this stream, which is open at `out`. `describe` is the line about so many lost
    /// ones.
    pub(super) fn write(
        &self,
        out: BorrowedFd<'_>,
        line: &[u8],
        describe: impl FnOnce(u64) -> Vec<u8>,
    ) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = state.lost;
        if lost > 0 && state.write(out, &describe(lost)) {
            state.lost = 0;
        }
        if state.lost > 0 || !state.write(out, line) {
            state.lost += 1;
        }
    }
}

impl State {
    /// Writes a line. Returns `false` if a part of it could not be written.
    fn write(&mut self, out: BorrowedFd<'_>, line: &[u8]) -> bool {
        let end = if self.is_cut { &b"\n"[..] } else { b"" };
        let line = [end, line].concat();
        let written = write_some(out, &line);
        if let Some(last) = line[..written].last() {
            self.is_cut = *last != b'\n';
        }
        written == line.len()
    }
}

/// Returns the number of bytes that were written before an error.
fn write_some(out: BorrowedFd<'_>, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match write(out, &bytes[written..]) {
            Ok(0) => break,
            Ok(len) => written += len,
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, pipe};
    use std::os::fd::AsFd as _;

    use super::*;

    fn describe(lost: u64) -> Vec<u8> {
        format!("{lost} lost\n").into_bytes()
    }

    #[test]
    fn lines_that_a_full_disk_loses_are_told_later() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let stream = Stream::new();
        stream.write(full.as_fd(), b"one\n", describe);
        stream.write(full.as_fd(), b"two\n", describe);
        stream.write(writer.as_fd(), b"three\n", describe);
        stream.write(writer.as_fd(), b"four\n", describe);
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "2 lost\nthree\nfour\n");
    }
}
