//! What limits the length of replies, beside the client itself.

use crate::udp_size::{ClientSize, UdpSizes};

/// The limits of the next reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The largest UDP message that the client gets.
    pub(super) udp_size: ClientSize,
    /// Number of bytes that the reply leaves free for a signature.
    pub(super) signature_room: usize,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self {
            udp_size: UdpSizes::default().others(),
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
