//! Whether the signatures of a zone have expired.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::zone_files::ZoneFacts;

/// Time before their end from which signatures are warned of, in seconds: a day.
const SOON: i32 = 24 * 3_600;

/// Whether the signatures of a zone are still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Signatures {
    /// All are valid for more than a day.
    Valid,
    /// The first of them expires within a day.
    Expiring,
    /// Some have expired.
    Expired,
}

impl Signatures {
    pub(super) const ALL: [Self; 3] = [Self::Valid, Self::Expiring, Self::Expired];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expiring => "expiring",
            Self::Expired => "expired",
        }
    }

    /// Returns the state of signatures at `now`, if the first of them expires at `until`. Both times are
    /// in seconds since 1970, and wrap (RFC 4034, section 3.1.5).
    pub(super) fn at(until: u32, now: u32) -> Self {
        match until.wrapping_sub(now).cast_signed() {
            ..0 => Self::Expired,
            0..SOON => Self::Expiring,
            SOON.. => Self::Valid,
        }
    }
}

/// Returns a time in seconds since 1970, modulo 2^32.
pub(super) fn seconds(now: SystemTime) -> u32 {
    let since = now.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as u32)
}

/// Returns the time at which the first signature of a zone expires, and the state of its signatures at
/// `now`, if the zone is signed.
pub(super) fn of_zone(zone: &ZoneFacts, now: u32) -> Option<(u32, Signatures)> {
    let until = zone.version()?.signed_until?;
    Some((until, Signatures::at(until, now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_day_of_signatures_is_told_apart() {
        for (until, now, state) in [
            (1_000_000, 1_000_001, Signatures::Expired),
            (1_000_000, 1_000_000, Signatures::Expiring),
            (1_086_399, 1_000_000, Signatures::Expiring),
            (1_086_400, 1_000_000, Signatures::Valid),
            // Times wrap in 2106.
            (5, u32::MAX - 5, Signatures::Expiring),
            (u32::MAX - 5, 5, Signatures::Expired),
            (500_000, u32::MAX - 5, Signatures::Valid),
        ] {
            assert_eq!(Signatures::at(until, now), state, "{until} {now}");
        }
    }
}
