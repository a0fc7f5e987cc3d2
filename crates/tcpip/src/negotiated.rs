//! The TCP features negotiated in the handshake.

use std::fmt;

/// TCP options and ECN support negotiated in the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Negotiated(u8);

impl Negotiated {
    const SACK: u8 = 1 << 4;
    const TIMESTAMPS: u8 = 1 << 5;
    const SCALED: u8 = 1 << 6;
    const ECN: u8 = 1 << 7;

    /// Creates a set of negotiated features. `peer_scale` is the shift count of the peer's window
    /// field, 0 to 14, or `None` without window scaling.
    pub(crate) const fn new(
        sack: bool,
        timestamps: bool,
        peer_scale: Option<u8>,
        ecn: bool,
    ) -> Self {
        const fn bit(is_on: bool, bit: u8) -> u8 {
            if is_on { bit } else { 0 }
        }
        let scale = match peer_scale {
            Some(scale) => Self::SCALED | scale & 0x0f,
            None => 0,
        };
        Self(
            bit(sack, Self::SACK) | bit(timestamps, Self::TIMESTAMPS) | bit(ecn, Self::ECN) | scale,
        )
    }

    /// Returns true if both sides use selective acknowledgements (RFC 2018).
    #[inline(always)]
    pub const fn sack(self) -> bool {
        self.0 & Self::SACK != 0
    }

    /// Returns true if both sides send timestamps (RFC 7323).
    #[inline(always)]
    pub const fn timestamps(self) -> bool {
        self.0 & Self::TIMESTAMPS != 0
    }

    /// Returns true if both sides scale windows (RFC 7323).
    #[inline(always)]
    pub const fn scaled(self) -> bool {
        self.0 & Self::SCALED != 0
    }

    /// Returns true if both sides use explicit congestion notification (RFC 3168).
    #[inline(always)]
    pub const fn ecn(self) -> bool {
        self.0 & Self::ECN != 0
    }

    /// Returns the shift count of the peer's window field (RFC 7323): 0 to 14, or 0 without window
    /// scaling.
    #[inline(always)]
    pub const fn peer_scale(self) -> u8 {
        self.0 & 0x0f
    }
}

impl fmt::Debug for Negotiated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Negotiated")
            .field("sack", &self.sack())
            .field("timestamps", &self.timestamps())
            .field("peer_scale", &self.scaled().then(|| self.peer_scale()))
            .field("ecn", &self.ecn())
            .finish()
    }
}
