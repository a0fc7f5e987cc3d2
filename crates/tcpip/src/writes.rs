//! Buffers for what is written once: bytes that are no content.

use crate::pools::{Lendable, LendingPool};

/// The most bytes of one [`write_bytes`](crate::Connection::write_bytes): a
/// DNS message over TCP with its length.
pub const MAX_WRITE_LEN: usize = 2 + 65_535;

/// The bounded pool of them.
pub(crate) type Writes = LendingPool<Vec<u8>>;

impl Lendable for Vec<u8> {
    fn clear(&mut self) {
        self.clear();
    }
}
