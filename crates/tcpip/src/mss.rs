//! Maximum segment sizes (MSS): our own, and those that peers advertise.

use crate::content::Family;
use crate::wire::TIMESTAMPS_LEN;

/// Minimum MSS that we use, even if a peer advertises a smaller one. The MSS includes 12 bytes for
/// timestamps.
///
/// Smaller segments would let a peer cause more work per byte. RFC 9293, section 3.7.1, defines no
/// minimum.
pub const MIN_MSS: u16 = 88;
/// MSS assumed for an IPv4 peer that advertises none (RFC 9293, section 3.7.1).
pub const DEFAULT_MSS_V4: u16 = 536;
/// MSS assumed for an IPv6 peer that advertises none (RFC 9293, section 3.7.1).
pub const DEFAULT_MSS_V6: u16 = 1220;
/// Length of the longest link header in bytes: Ethernet with a VLAN tag.
const LINK_HEADER: usize = eth::TAGGED_HEADER_LEN;

/// Our own maximum segment sizes, for IPv4 and IPv6.
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

    /// Returns the MSS that a peer `advertised` in its SYN, or the family's default (RFC 9293,
    /// section 3.7.1).
    pub(crate) fn advertised_or_default(family: Family, advertised: Option<u16>) -> u16 {
        advertised.unwrap_or(match family {
            Family::V4 => DEFAULT_MSS_V4,
            Family::V6 => DEFAULT_MSS_V6,
        })
    }

    /// Returns the maximum number of data bytes in a segment to a peer. Returns `None` if the
    /// port's frames are too small for [`MIN_MSS`].
    ///
    /// Space for timestamps is always reserved, so that peers with and without timestamps share the
    /// same prepared segments. (RFC 6691 subtracts this space only if timestamps are used.)
    pub(crate) fn effective(
        self,
        family: Family,
        advertised: Option<u16>,
        frame_capacity: usize,
    ) -> Option<u16> {
        let fits = frame_capacity.checked_sub(LINK_HEADER + family.headers())?;
        let mss = Self::advertised_or_default(family, advertised)
            .max(MIN_MSS)
            .min(self.of(family));
        let mss = usize::from(mss).min(fits).checked_sub(TIMESTAMPS_LEN)?;
        (fits >= usize::from(MIN_MSS)).then_some(mss as u16)
    }
}
