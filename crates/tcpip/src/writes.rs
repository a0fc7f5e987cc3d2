//! Write buffers: bytes that are written only once and are not a content.

use crate::pools::{Lendable, LendingPool};

/// Maximum length of one [`write_bytes`](crate::Connection::write_bytes), in bytes. It fits a DNS
/// message over TCP with its length field.
pub const MAX_WRITE_LEN: usize = 2 + 65_535;

/// The pool of write buffers.
pub(crate) type Writes = LendingPool<Vec<u8>>;

impl Lendable for Vec<u8> {
    fn clear(&mut self) {
        self.clear();
    }
}
