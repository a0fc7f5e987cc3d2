//! Takes over other zones from a configuration file that was read again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use control::{StartError, config};

use super::source::{Given, NextZones};
use super::{Namestorm, locked};
use crate::zone_args::{NoZones, ZoneArgs};
use crate::zone_folders::RealPaths;

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
        Ok(NextZones::new(source, given))
    }
}
