//! Write buffers: they hold bytes that an application writes to one connection, and that belong to
//! no content item.

use crate::pools::Lendable;

/// Maximum number of bytes in one call of [`write_bytes`](crate::Connection::write_bytes). The
/// largest DNS message over TCP fits, including its length field.
pub const MAX_WRITE_LEN: usize = 2 + 65_535;

impl Lendable for Vec<u8> {
    fn clear(&mut self) {
        self.clear();
    }
}
