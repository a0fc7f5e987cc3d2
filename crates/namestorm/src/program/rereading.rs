//! Takes over other zones from a configuration file that was read again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::{StartError, config, open_ordinary};

use super::source::{Given, NextZones};
use super::{Namestorm, locked};
use crate::load::ZoneSpec;
use crate::zone_args::{NoZones, ZoneArgs};
use crate::zone_files::{UnservedFile, ZoneFiles};
use crate::zone_folders::RealPaths;

impl<H, F> Namestorm<H, F> {
    /// Checks other options for zones. Only those that name zones and patterns are used, and `strict`.
    ///
    /// # Errors
    /// If the options are wrong, or if zones are in a folder that this thread may not read. A new file that is
    /// named must also be one that it can open.
    pub fn check_next(&self, zones: &ZoneArgs, strict: bool) -> Result<NextZones<'_>, StartError> {
        let source = self.source.as_ref().ok_or("the zones are not from files")?;
        if let Some(error) = zones.wrong_others().into_iter().next() {
            return Err(error);
        }
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
            let (option, value) = value_of(spec);
            config::check_allowed(&spec.file, (option, &value))?;
        }
        check_new(&specs, &files)?;
        let given = Given {
            zones: Arc::new(zones.clone()),
            strict,
        };
        Ok(NextZones::new(source, given))
    }
}

/// Checks that each named file can be opened that was not named before. A typing error is no reason to give
/// up a zone.
fn check_new(specs: &[ZoneSpec], files: &ZoneFiles) -> Result<(), StartError> {
    let served = files.facts().map(|zone| zone.file());
    let unserved = files.unserved().iter().map(UnservedFile::spec);
    let known: HashSet<_> = served.chain(unserved.map(|spec| &*spec.file)).collect();
    let is_new = |spec: &&ZoneSpec| spec.group.is_none() && !known.contains(&*spec.file);
    for spec in specs.iter().filter(is_new) {
        if let Err(error) = open_ordinary(&spec.file) {
            let (option, value) = value_of(spec);
            return Err(format!(
                "{}the zone file {} cannot be read: {error}; correct its path, or write the file",
                config::before(option, &value),
                spec.file.display()
            )
            .into());
        }
    }
    Ok(())
}

/// Returns the option that names a zone or its pattern, and its value, as the configuration file has it.
fn value_of(spec: &ZoneSpec) -> (&'static str, String) {
    if let Some(pattern) = &spec.group {
        return ("zones_from", pattern.to_string());
    }
    let full = spec.to_string();
    // The name of a zone needs no final dot.
    let short = full.replacen(".=", "=", 1);
    let is_written = |value: &String| config::place_of("zones", value).is_some();
    let value = [short].into_iter().find(is_written).unwrap_or(full);
    ("zones", value)
}
