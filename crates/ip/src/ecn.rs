//! Explicit congestion notification in IP headers.

/// The two ECN bits in an IP header (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not support ECN for this packet.
    #[default]
    NotEct = 0,
    /// ECT(1): the sender supports ECN.
    Ect1 = 1,
    /// ECT(0): the sender supports ECN.
    Ect0 = 2,
    /// Congestion experienced: a congested router has marked the packet.
    Ce = 3,
}

impl Ecn {
    /// Reads the ECN codepoint from the lowest two bits of IPv4's type of service or IPv6's traffic
    /// class.
    #[inline(always)]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}
