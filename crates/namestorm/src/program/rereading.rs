//! Takes over other zones from a configuration file that was read again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use control::{StartError, config};

use super::{Namestorm, Source, locked};
use crate::zone_args::{NoZones, ZoneArgs};
use crate::zone_folders::RealPaths;

/// The options that name zones, and say what happens if one is wrong.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) zones: ZoneArgs,
    /// Whether a reload fails if a zone has errors or is given twice.
    pub(super) strict: bool,
}

/// Other options for zones, which were checked.
#[derive(Debug)]
pub struct NextZones<'p> {
    source: &'p Source,
    given: Given,
}

impl NextZones<'_> {
    /// Lets the next reload of all zones use these options. If it fails, the one after it uses them.
    pub fn take(self) {
        *locked(&self.source.next) = Some(self.given);
    }
}

impl Source {
    /// Returns the newest options, which no reload may have used yet.
    pub(super) fn newest(&self) -> Given {
        let next = locked(&self.next).clone();
        next.unwrap_or_else(|| locked(&self.given).clone())
    }

    /// Notes the options that a reload has used.
    pub(super) fn note_used(&self, given: Given) {
        *locked(&self.given) = given;
        *locked(&self.next) = None;
    }
}

impl<H, F> Namestorm<H, F> {
    /// Checks other options for zones. Only those that name zones and patterns are used, and `strict`.
    ///
    /// # Errors
    /// If the options are wrong, or if zones are in a folder that this thread may not read.
    pub fn check_next(&self, zones: &ZoneArgs, strict: bool) -> Result<NextZones<'_>, StartError> {
        let source = self.source.as_ref().ok_or("the zones are not from files")?;
        zones.check_others()?;
        let (specs, wrong) = zones.found();
        NoZones::tell(wrong, &mut |line| tracing::error!("{line}"))?;
        let folder_of = |path: &Path| path.parent().map(PathBuf::from);
        let mut real = RealPaths::default();
        let files = locked(&source.files);
        let known: HashSet<_> = files.files().filter_map(folder_of).collect();
        let mut checked = HashSet::new();
        for spec in &specs {
            let (given, real) = (folder_of(&spec.file), real.of(&spec.file));
            let real = real.and_then(|file| folder_of(&file));
            let is_known =
                |folder: &Option<PathBuf>| folder.as_ref().is_some_and(|one| known.contains(one));
            // A file in a folder that could be read before concerns only its zone.
            if is_known(&given) || is_known(&real) || !checked.insert(given) {
                continue;
            }
            let name = spec.file.display().to_string();
            let value = spec.group.as_deref().unwrap_or(&name);
            config::check_allowed(&spec.file, value)?;
        }
        let given = Given {
            zones: zones.clone(),
            strict,
        };
        Ok(NextZones { source, given })
    }
}
