//! What is reported while a folder is loaded.

use std::path::Path;

use crate::finding::Warning;
use crate::site::Totals;
use crate::skipped::Skipped;

/// Events that are reported while a folder is loaded.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A file was loaded. The totals include this file.
    Loaded(&'a Totals),
    /// An entry of a folder was left out because it cannot be served.
    Skipped(Skipped),
    /// Something is probably a mistake, but served.
    Warning {
        /// The folder.
        folder: &'a Path,
        /// What it is.
        warning: Warning,
    },
}
