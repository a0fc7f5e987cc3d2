//! What limits the length of replies, beside the client itself.

use crate::edns::MAX_UDP_MESSAGE;
use crate::udp_size::ClientSize;

/// The limits of the next reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The largest UDP message that the client gets.
    pub(super) udp_size: ClientSize,
    /// Number of bytes that the reply leaves free for a signature.
    pub(super) signature_room: usize,
}

impl Limits {
    pub(super) const fn new() -> Self {
        Self {
            udp_size: ClientSize {
                bytes: MAX_UDP_MESSAGE as u16,
                of_others: MAX_UDP_MESSAGE as u16,
            },
            signature_room: 0,
        }
    }

    /// Returns true if a reply of at most `limit` bytes has this limit because of the client's network. Other
    /// clients must have a larger one.
    #[inline(always)]
    pub(super) fn is_of_network(&self, limit: usize) -> bool {
        let ClientSize { bytes, of_others } = self.udp_size;
        bytes < of_others && limit + self.signature_room == usize::from(bytes)
    }
}
