//! Names of entries: hidden ones, those of files with rules, and their paths in URLs.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The only name with a leading dot that is served (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";
/// The file with a folder's redirects. Like [`HEADERS`], it is read at load and not served.
pub(super) const REDIRECTS: &str = "_redirects";
/// The file with rules for the fields of a folder's files.
pub(super) const HEADERS: &str = "_headers";
/// The files with a folder's rules.
pub(crate) const RULES: [&str; 2] = [REDIRECTS, HEADERS];

/// Returns true if an entry's name begins with a dot, so that it is left out without a warning.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != WELL_KNOWN
}

/// Returns the path in URLs for a path that is relative to the folder.
pub(super) fn key_of(path: &Path) -> Vec<u8> {
    [b"/", path.as_os_str().as_bytes()].concat()
}
