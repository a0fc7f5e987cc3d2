//! The command `namestorm check`.

use control::report::count;

use crate::key::{Form, Hashing};
use crate::load::ZoneSpec;
use crate::name;
use crate::program::{all_cores, random_seed};
use crate::zone_files::ZoneFiles;

/// The error of `namestorm check`: some zones cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{lost} of {all} zones cannot be served: correct the errors above")]
pub struct CheckFailed {
    /// Number of zones that have errors, are too large, or are given twice.
    pub lost: usize,
    /// Number of zones on the command line.
    pub all: usize,
}

/// Reads zones and prepares their answers, for `namestorm check`. Also keeps their records for transfers if
/// `keeps_records` is set. Passes warnings and errors to `say`. For each good zone, passes its name and its
/// size to `print`.
///
/// # Errors
///
/// Returns an error if some zones cannot be served. `say` has then received at least one line about
/// each of these zones.
pub fn check(
    specs: &[ZoneSpec],
    keeps_records: bool,
    say: &mut dyn FnMut(String),
    print: &mut dyn FnMut(String, String),
) -> Result<(), CheckFailed> {
    let files = ZoneFiles::new(Hashing::new(Form::default(), random_seed()));
    let files = files.keeping_records(keeps_records);
    let files = files.read(specs, all_cores(), say);
    for (apex, size) in files.sizes() {
        let size = format!(
            "{} names, {} records, {} packets, {} bytes",
            count(size.names as u64),
            count(size.records as u64),
            count(size.answers as u64),
            count(size.memory as u64),
        );
        print(name::Shown(apex).to_string(), size);
    }
    files.warn_of_missing_delegations(&files.answers(), say);
    let unserved = files.unserved();
    // The errors of the others have already been reported.
    for file in unserved.iter().filter(|file| file.is_duplicate()) {
        say(file.to_string());
    }
    match unserved.len() {
        0 => Ok(()),
        lost => Err(CheckFailed {
            lost,
            all: specs.len(),
        }),
    }
}
