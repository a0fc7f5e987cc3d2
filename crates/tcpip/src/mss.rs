//! Maximum segment sizes: ours, and those that peers may tell.

use crate::content::Family;
use crate::wire::TIMESTAMPS_LEN;

/// The least maximum segment size that we send by, whatever a peer asks for:
/// smaller ones only make us work (RFC 9293, section 3.7.1, leaves it open).
/// Of it 12 bytes are kept for timestamps.
pub const MIN_MSS: u16 = 88;
/// The MSS of a peer that tells none (RFC 9293, section 3.7.1), IPv4.
pub const DEFAULT_MSS_V4: u16 = 536;
/// The same for IPv6.
pub const DEFAULT_MSS_V6: u16 = 1220;
/// Bytes of the largest link header: Ethernet with a tag.
const LINK_HEADER: usize = eth::TAGGED_HEADER_LEN;

/// Our own maximum segment sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnMss {
    v4: u16,
    v6: u16,
}

impl OwnMss {
    pub(crate) fn new(mtu: usize) -> Self {
        let of = |family: Family| {
            let mss = mtu.saturating_sub(family.headers());
            mss.clamp(usize::from(MIN_MSS), usize::from(u16::MAX)) as u16
        };
        Self {
            v4: of(Family::V4),
            v6: of(Family::V6),
        }
    }

    pub(crate) fn of(self, family: Family) -> u16 {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// What a peer has `told` by its SYN, or means if it tells none (RFC 9293,
    /// section 3.7.1).
    pub(crate) fn advertised_or_default(family: Family, told: Option<u16>) -> u16 {
        told.unwrap_or(match family {
            Family::V4 => DEFAULT_MSS_V4,
            Family::V6 => DEFAULT_MSS_V6,
        })
    }

    /// The most bytes of data in a segment to a peer that has told an MSS, if
    /// any segment fits a frame of the port. The place of timestamps is kept,
    /// with or without them, so that content is cut the same way for all (RFC
    /// 6691 would have it so where they are).
    pub(crate) fn effective(
        self,
        family: Family,
        told: Option<u16>,
        frame_capacity: usize,
    ) -> Option<u16> {
        let fits = frame_capacity.checked_sub(LINK_HEADER + family.headers())?;
        let mss = Self::advertised_or_default(family, told)
            .max(MIN_MSS)
            .min(self.of(family));
        let mss = usize::from(mss).min(fits).checked_sub(TIMESTAMPS_LEN)?;
        (fits >= usize::from(MIN_MSS)).then_some(mss as u16)
    }
}
