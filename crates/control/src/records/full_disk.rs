//! A disk that is full, for tests.

use std::io::{self, ErrorKind, Write};

/// A disk with room for some bytes.
pub(super) struct Disk {
    pub(super) bytes: Vec<u8>,
    pub(super) room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.room);
        if len == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..len]);
        self.room -= len;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
