//! Write buffers: bytes that are written once and belong to no content.

use crate::pools::{Lendable, LendingPool};

/// Most bytes of one [`write_bytes`](crate::Connection::write_bytes): a DNS message over
/// TCP with its length field.
pub const MAX_WRITE_LEN: usize = 2 + 65_535;

/// The pool of write buffers.
pub(crate) type Writes = LendingPool<Vec<u8>>;

impl Lendable for Vec<u8> {
    fn clear(&mut self) {
        self.clear();
    }
}
