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

    /// Returns true if a reply of `len` bytes, which is too long, would not be so with the size for clients in
    /// no network. The client itself accepts `accepted` bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn is_cut_for_network(&self, len: usize, accepted: usize) -> bool {
        let of_others = usize::from(self.udp_size.of_others);
        len + self.signature_room <= accepted.min(of_others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_takes_a_part_of_each_size() {
        let limits = Limits {
            udp_size: ClientSize {
                bytes: 800,
                of_others: 1400,
            },
            signature_room: 100,
        };
        for (len, accepted, is_cut) in [
            (1300, 4096, true),
            (1301, 4096, false),
            (1100, 1200, true),
            (1101, 1200, false),
        ] {
            assert_eq!(limits.is_cut_for_network(len, accepted), is_cut, "{len}");
        }
    }
}
