//! Write buffers: bytes written for a single response, which do not belong to a content.

use crate::pools::{Lendable, LendingPool};

/// Maximum length of one [`write_bytes`](crate::Connection::write_bytes), in bytes. The largest DNS
/// message over TCP fits, including its length field.
pub const MAX_WRITE_LEN: usize = 2 + 65_535;

/// The pool of write buffers.
pub(crate) type Writes = LendingPool<Vec<u8>>;

impl Lendable for Vec<u8> {
    fn clear(&mut self) {
        self.clear();
    }
}
