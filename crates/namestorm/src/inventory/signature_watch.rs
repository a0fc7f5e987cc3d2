//! Warns of zones whose signatures expire.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use control::report::count;

use super::expiry::{Signatures, of_zone, seconds};
use super::line::shown;
use crate::name;
use crate::zone_files::ZoneFacts;

/// Minimum time between two lines about zones in the same state.
const LINE_INTERVAL: Duration = Duration::from_hours(1);
/// Maximum number of zones that a line names.
const NAMED: usize = 5;

/// Remembers of which zones the operator has been warned, so that each state of a zone is told once.
#[derive(Debug, Default)]
pub(super) struct SignatureWatch {
    /// The zones whose signatures are not valid for long, with the states that were told.
    told: HashMap<Box<[u8]>, Signatures>,
    /// When the last line about each of the two states was written.
    last: [Option<SystemTime>; 2],
}

impl SignatureWatch {
    /// Returns the warnings about zones whose state has changed, at most one an hour for each state. They
    /// name some zones, and count the others.
    pub(super) fn lines(&mut self, served: &[Arc<ZoneFacts>], now: SystemTime) -> Vec<String> {
        let at = seconds(now);
        let states = served.iter().filter_map(|zone| {
            let (until, state) = of_zone(zone, at)?;
            (state != Signatures::Valid).then_some((zone.apex(), (until, state)))
        });
        let states: HashMap<&[u8], _> = states.collect();
        self.told.retain(|apex, _| states.contains_key(&**apex));
        let mut lines = Vec::new();
        for (slot, of) in [Signatures::Expired, Signatures::Expiring]
            .into_iter()
            .enumerate()
        {
            let is_early = |last: SystemTime| {
                let since = now.duration_since(last);
                since.is_ok_and(|since| since < LINE_INTERVAL)
            };
            if self.last[slot].is_some_and(is_early) {
                continue;
            }
            let is_new = |apex: &[u8]| self.told.get(apex).is_none_or(|told| *told != of);
            let changed = states
                .iter()
                .filter(|(apex, (_, state))| *state == of && is_new(apex));
            let mut changed: Vec<_> = changed.map(|(apex, (until, _))| (*until, *apex)).collect();
            changed.sort_unstable();
            if !changed.is_empty() {
                lines.push(line(of, &changed));
                self.last[slot] = Some(now);
                self.told
                    .extend(changed.into_iter().map(|(_, apex)| (apex.into(), of)));
            }
        }
        lines
    }
}

/// Describes zones with this state. Each has the time when its first signature expires, and the earliest
/// comes first.
fn line(of: Signatures, zones: &[(u32, &[u8])]) -> String {
    let names = zones.iter().take(NAMED);
    let names: Vec<_> = names
        .map(|(_, apex)| name::Shown(apex).to_string())
        .collect();
    let others = match zones.len().saturating_sub(NAMED) {
        0 => String::new(),
        1 => " and another zone".to_owned(),
        more => format!(" and {} other zones", count(more as u64)),
    };
    let names = names.join(", ") + &others;
    let since = zones.first().map_or(0, |(until, _)| *until);
    let since = shown(since.into());
    let (what, them) = match zones.len() {
        1 => ("the zone", "it"),
        _ => ("the zones", "them"),
    };
    let remedy = format!("sign {what} again, and reload {them}");
    match of {
        Signatures::Expired => format!(
            "signatures of {names} have expired, the first at {since}, so resolvers refuse answers: {remedy}"
        ),
        _ => format!("signatures of {names} expire within a day, the first at {since}: {remedy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_some_zones_and_counts_the_others() {
        let names: Vec<_> = (0..7).map(|n| vec![1, b'a' + n, 0]).collect();
        let zones: Vec<_> = names.iter().map(|name| (784_111_777, &**name)).collect();
        assert_eq!(
            line(Signatures::Expiring, &zones[..1]),
            "signatures of a. expire within a day, the first at 1994-11-06T08:49:37Z: sign the zone again, \
             and reload it"
        );
        assert_eq!(
            line(Signatures::Expired, &zones[..6]),
            "signatures of a., b., c., d., e. and another zone have expired, the first at \
             1994-11-06T08:49:37Z, so resolvers refuse answers: sign the zones again, and reload them"
        );
        let all = line(Signatures::Expired, &zones);
        assert!(all.contains("e. and 2 other zones have"), "{all}");
    }
}
