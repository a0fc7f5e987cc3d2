//! Which zones have a new version.

use std::sync::Arc;

use super::ZoneFiles;
use super::good_zone::GoodZone;
use crate::answers::ZoneAnswers;

/// What has changed for a secondary server of the zones.
#[derive(Debug, Default)]
pub(crate) struct News<'z> {
    /// The names and the answers of zones that are new, or have another serial.
    pub(crate) changed: Vec<(Arc<[u8]>, &'z ZoneAnswers)>,
    /// The names of zones that are no longer served.
    pub(crate) gone: Vec<&'z [u8]>,
}

impl ZoneFiles {
    /// Returns what has changed since `before`.
    pub(crate) fn news_since<'z>(&'z self, before: &'z Self) -> News<'z> {
        if let Some(replaced) = self.replaced_since(before) {
            let replaced = replaced.into_iter();
            let pairs = replaced.map(|number| (&*self.good[number], &*before.good[number]));
            let changed = pairs.filter(|(zone, old)| serial(zone) != serial(old));
            return News {
                changed: changed.map(|(zone, _)| named(zone)).collect(),
                gone: Vec::new(),
            };
        }
        let mut old = self.hashing.map(before.good.len());
        old.extend(
            before
                .good
                .iter()
                .map(|zone| (zone.facts.apex(), serial(zone))),
        );
        let is_new = |zone: &&Arc<GoodZone>| old.remove(zone.facts.apex()) != Some(serial(zone));
        let changed = self.good.iter().filter(is_new);
        News {
            changed: changed.map(|zone| named(zone)).collect(),
            gone: old.into_keys().collect(),
        }
    }
}

/// Returns the serial of a zone's SOA record.
fn serial(zone: &GoodZone) -> Option<u32> {
    zone.facts.version().map(|version| version.serial)
}

fn named(zone: &GoodZone) -> (Arc<[u8]>, &ZoneAnswers) {
    (zone.facts.shared_apex(), &zone.answers)
}
